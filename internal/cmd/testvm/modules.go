package main

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// diskModules are the modules for tests of volumes: file systems on loop devices with
// quotas, and iSCSI.
var diskModules = []string{"loop", "ext4", "quota_v2", "crc32c_intel", "sd_mod", "iscsi_tcp"}

// podModules are the modules for containers, pods' networks and host ports. The
// machine has no modprobe, so /init loads all modules at the start. A module that the
// kernel version lacks is skipped.
var podModules = []string{
	"crc32c_generic", // libcrc32c requests it by an alias
	"veth", "bridge", "br_netfilter", "dummy", "nf_conntrack", "nf_conntrack_netlink", "tcp_diag", "udp_diag", "af_packet", "nf_tables", "nft_compat", "nft_chain_nat", "nft_nat", "nft_masq",
	"nft_redir", "nft_ct", "nft_fib_inet", "nft_reject_inet", "nft_limit", "ip_tables", "iptable_filter",
	"iptable_nat", "iptable_mangle", "ip6_tables", "ip6table_filter", "ip6table_nat", "ip6table_mangle", "xt_addrtype",
	"xt_comment", "xt_conntrack", "xt_mark", "xt_MASQUERADE", "xt_multiport", "xt_nat", "xt_tcpudp", "xt_statistic",
	"ifb", "sch_tbf", "sch_ingress", "cls_u32", "act_mirred", // limits of bandwidth
	"tun", // for pasta
}

// A module is a kernel module, ready to load.
type module struct {
	name string
	data []byte
}

// modules returns the modules to load, each after its dependencies. It leaves out
// modules that are built in. It fails if the kernel lacks a module of k.boot.
func (k kernel) modules(ctx context.Context) ([]module, error) {
	files, err := moduleFiles(k.tree)
	if err != nil {
		return nil, err
	}
	builtin, err := os.ReadFile(filepath.Join(k.tree, "modules.builtin"))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(builtin)) {
		files[moduleName(strings.TrimSpace(line))] = ""
	}
	for _, name := range k.boot {
		if _, ok := files[name]; !ok {
			return nil, fmt.Errorf("missing: module %s of Linux %s", name, k.version)
		}
	}
	loaded := map[string][]byte{}
	order, err := inOrder(slices.Concat(k.boot, podModules, diskModules), func(name string) ([]string, error) {
		file := files[name]
		if file == "" {
			return nil, nil
		}
		data, err := readModule(ctx, file)
		if err != nil {
			return nil, fmt.Errorf("module %s: %w", name, err)
		}
		loaded[name] = data
		needs, err := depends(data)
		if err != nil {
			return nil, fmt.Errorf("module %s: %w", name, err)
		}
		return needs, nil
	})
	if err != nil {
		return nil, err
	}
	var all []module
	for _, name := range order {
		if data, ok := loaded[name]; ok {
			all = append(all, module{name, data})
		}
	}
	return all, nil
}

// moduleFiles returns the paths of the module files below tree, by module name.
func moduleFiles(tree string) (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.Contains(d.Name(), ".ko") {
			files[moduleName(path)] = path
		}
		return err
	})
	return files, err
}

// moduleName returns the kernel's name of the module in a file: the file name without extensions,
// and with underscores for hyphens.
func moduleName(file string) string {
	name, _, _ := strings.Cut(filepath.Base(file), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

// inOrder returns the names and their dependencies, each once and after its own dependencies. It
// calls dependencies for the direct dependencies of a name.
func inOrder(names []string, dependencies func(string) ([]string, error)) ([]string, error) {
	var order []string
	seen := map[string]bool{}
	var visit func(string) error
	visit = func(name string) error {
		if seen[name] {
			return nil
		}
		seen[name] = true
		below, err := dependencies(name)
		if err != nil {
			return err
		}
		for _, n := range below {
			if err := visit(n); err != nil {
				return err
			}
		}
		order = append(order, name)
		return nil
	}
	for _, name := range names {
		if err := visit(name); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// readModule reads a module, and decompresses it if necessary.
func readModule(ctx context.Context, file string) ([]byte, error) {
	switch filepath.Ext(file) {
	case ".xz":
		out, err := output(ctx, "", "xz", "-dc", file)
		return []byte(out), err
	case ".zst":
		out, err := output(ctx, "", "zstd", "-dcq", file)
		return []byte(out), err
	}
	return os.ReadFile(file)
}

// depends returns the names of a module's direct dependencies. ko is the content of the
// module's file.
func depends(ko []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(ko))
	if err != nil {
		return nil, err
	}
	section := f.Section(".modinfo")
	if section == nil {
		return nil, errors.New("no section .modinfo")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	return parseModinfo(info), nil
}

// parseModinfo returns the names of a module's dependencies from its section .modinfo,
// a list of strings KEY=VALUE that end with NUL.
func parseModinfo(info []byte) []string {
	var names []string
	for s := range strings.SplitSeq(string(info), "\x00") {
		list, ok := strings.CutPrefix(s, "depends=")
		if !ok {
			continue
		}
		for name := range strings.SplitSeq(list, ",") {
			if name != "" {
				names = append(names, moduleName(name))
			}
		}
	}
	return names
}
