package main

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// bootModules bring the machine to its root file system. What a kernel has
// built in need not be there as a file.
var bootModules = []string{"virtio_pci", "9pnet_virtio", "9p", "overlay"}

// podModules are what containers, pods' networks and host ports use. There is
// no modprobe for the kernel to call, so all are loaded ahead, those that the
// kernel has: which ones exist differs from version to version.
var podModules = []string{
	"crc32c_generic", // libcrc32c asks the kernel's crypto for it by an alias
	"veth", "bridge", "br_netfilter", "dummy", "nf_conntrack", "nf_tables", "nft_compat", "nft_chain_nat", "nft_nat", "nft_masq",
	"nft_redir", "nft_ct", "nft_fib_inet", "nft_reject_inet", "nft_limit", "ip_tables", "iptable_filter",
	"iptable_nat", "iptable_mangle", "ip6_tables", "ip6table_filter", "ip6table_nat", "ip6table_mangle", "xt_addrtype",
	"xt_comment", "xt_conntrack", "xt_mark", "xt_MASQUERADE", "xt_multiport", "xt_nat", "xt_tcpudp", "xt_statistic",
}

// A kernel is an unpacked kernel package.
type kernel struct {
	version string
	image   string
	tree    string // of modules
}

// A module is a kernel module, ready to load.
type module struct {
	name string
	data []byte
}

// provide looks for the programs this needs. qemu is installed if it can be.
func provide(ctx context.Context) error {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return fmt.Errorf("missing: Linux on amd64 (this is %s on %s)", runtime.GOOS, runtime.GOARCH)
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		return errors.New("missing: gcc, the race detector needs it; try apt-get install gcc libc6-dev")
	}
	if _, err := exec.LookPath(qemu); err == nil {
		return nil
	}
	if os.Geteuid() == 0 {
		say("installing qemu-system-x86")
		cmd := exec.CommandContext(ctx, "sh", "-c", "i='apt-get install -qq -y --no-install-recommends qemu-system-x86'; "+
			"$i >/dev/null 2>&1 || { apt-get update -qq && $i; } >/dev/null 2>&1")
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if cmd.Run() == nil {
			return nil
		}
	}
	return errors.New("missing: " + qemu + "; try apt-get install qemu-system-x86")
}

// getKernel finds the kernel in dir or, if dir is empty, in vm, where it
// unpacks Debian's first if there is none. "make clean" is how to get a newer one.
func getKernel(ctx context.Context, vm, dir string) (kernel, error) {
	if dir != "" {
		return findKernel(dir)
	}
	dir = filepath.Join(vm, "kernel")
	if k, err := findKernel(dir); err == nil {
		return k, nil
	}
	if err := fetchKernel(ctx, vm, dir); err != nil {
		return kernel{}, err
	}
	return findKernel(dir)
}

// fetchKernel unpacks Debian's kernel package into dir, all of it or nothing.
func fetchKernel(ctx context.Context, vm, dir string) error {
	for _, p := range []string{"apt-get", "apt-cache", "dpkg-deb"} {
		if _, err := exec.LookPath(p); err != nil {
			return fmt.Errorf("missing: %s, to get Debian's kernel; or unpack a kernel and name its directory with -kernel", p)
		}
	}
	out, err := output(ctx, vm, "apt-cache", "depends", "linux-image-amd64")
	if err != nil {
		return err
	}
	pkg, err := dependency(out)
	if err != nil {
		return err
	}
	part := dir + ".part"
	if err := errors.Join(os.RemoveAll(part), os.RemoveAll(dir), os.MkdirAll(part, 0o755)); err != nil {
		return err
	}
	say("getting %s", pkg)
	get := []string{"apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", pkg}
	if _, err := output(ctx, part, get...); err != nil { // the lists may be old
		_, _ = output(ctx, part, "apt-get", "-qq", "update")
		if _, err := output(ctx, part, get...); err != nil {
			return fmt.Errorf("missing: Debian's package %s: %w", pkg, err)
		}
	}
	debs, err := filepath.Glob(filepath.Join(part, "*.deb"))
	if err != nil || len(debs) != 1 {
		return fmt.Errorf("%d packages came of apt-get download, want 1", len(debs))
	}
	if _, err := output(ctx, part, "dpkg-deb", "-x", debs[0], "."); err != nil {
		return err
	}
	return errors.Join(os.Remove(debs[0]), os.Rename(part, dir))
}

// dependency reads in the output of "apt-cache depends" which package of a
// version stands behind the one of no version.
func dependency(out string) (string, error) {
	for line := range strings.Lines(out) {
		if pkg, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: linux-image-"); ok {
			return "linux-image-" + pkg, nil
		}
	}
	return "", errors.New("missing: Debian's package linux-image-amd64; try apt-get update")
}

func findKernel(dir string) (kernel, error) {
	images, err := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*"))
	if err != nil {
		return kernel{}, err
	}
	if len(images) != 1 {
		return kernel{}, fmt.Errorf("%d kernels match %s/boot/vmlinuz-*, want 1", len(images), dir)
	}
	k := kernel{image: images[0], version: strings.TrimPrefix(filepath.Base(images[0]), "vmlinuz-")}
	for _, lib := range []string{"lib", "usr/lib"} {
		k.tree = filepath.Join(dir, lib, "modules", k.version)
		if _, err := os.Stat(k.tree); err == nil {
			return k, nil
		}
	}
	return kernel{}, fmt.Errorf("no modules of Linux %s in %s", k.version, dir)
}

// modules returns what is to be loaded, each after those that it needs.
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
	for _, name := range bootModules {
		if _, ok := files[name]; !ok {
			return nil, fmt.Errorf("missing: module %s of Linux %s", name, k.version)
		}
	}
	loaded := map[string][]byte{}
	order, err := inOrder(slices.Concat(bootModules, podModules), func(name string) ([]string, error) {
		file := files[name]
		if file == "" {
			return nil, nil
		}
		data, err := readModule(ctx, file)
		if err != nil {
			return nil, fmt.Errorf("module %s: %w", name, err)
		}
		loaded[name] = data
		return depends(data)
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

// moduleFiles maps the modules below tree to their files.
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

// moduleName is how the kernel calls the module in a file: as that, without
// its extensions, and with an underscore for a hyphen.
func moduleName(file string) string {
	name, _, _ := strings.Cut(filepath.Base(file), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

// inOrder returns names and all that they need, each once and after its needs.
func inOrder(names []string, needs func(string) ([]string, error)) ([]string, error) {
	var order []string
	seen := map[string]bool{}
	var visit func(string) error
	visit = func(name string) error {
		if seen[name] {
			return nil
		}
		seen[name] = true
		below, err := needs(name)
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

// readModule reads a module, inflated if the package has it compressed.
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

// depends reads which modules a module needs.
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

// parseModinfo finds the list of needs among a module's strings, which are
// KEY=VALUE, each ended by NULs.
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

// output runs a program and returns what it prints; what it complains of is
// in the error.
func output(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	var msg bytes.Buffer
	cmd.Stderr = &msg
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(msg.Bytes()))
	}
	return string(out), nil
}
