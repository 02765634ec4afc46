package status

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/internal/bootid"
)

// System reads the facts of a Linux machine from its files. Files is the root of
// its file system, such as os.DirFS("/"); Storage, if not nil, returns the
// ephemeral-storage in bytes. It reads only small files of /proc, /sys and /etc
// with stable formats.
type System struct {
	Files   fs.FS
	Storage func() (int64, error)
}

// Facts reads all facts. Memory and processors are required; other values are empty
// if they cannot be read. The context is not used: reads of such files do not
// block.
func (s System) Facts(context.Context) (Facts, error) {
	meminfo, err := fs.ReadFile(s.Files, "proc/meminfo")
	if err != nil {
		return Facts{}, err
	}
	memory, err := meminfoBytes(meminfo, "MemTotal")
	if err != nil {
		return Facts{}, err
	}
	swap, _ := meminfoBytes(meminfo, "SwapTotal") // a kernel without has no such line
	// The processors of the machine and not of this process, which may be bound to
	// some of them.
	cpus, err := s.cpus()
	if err != nil {
		return Facts{}, err
	}
	// Without it reboots are not reported, and nothing else is lost.
	boot, _ := bootid.Read(s.Files)
	f := Facts{
		Capacity: v1.ResourceList{
			v1.ResourceCPU:    *resource.NewQuantity(cpus, resource.DecimalSI),
			v1.ResourceMemory: *resource.NewQuantity(memory, resource.BinarySI),
		},
		Swap:      swap,
		BootID:    boot,
		Kernel:    s.line("proc/sys/kernel/osrelease"),
		MachineID: cmp.Or(s.line("etc/machine-id"), s.line("var/lib/dbus/machine-id")),
		OSImage:   cmp.Or(s.osImage("etc/os-release"), s.osImage("usr/lib/os-release"), "Unknown"),
	}
	// The UUID of the firmware; systems without, such as many of ARM, have the
	// device tree's, and else their machine-id.
	f.SystemUUID = cmp.Or(s.line("sys/class/dmi/id/product_uuid"), s.line("proc/device-tree/vm,uuid"), f.MachineID)
	if s.Storage != nil {
		disk, err := s.Storage()
		if err != nil {
			return Facts{}, fmt.Errorf("ephemeral storage: %w", err)
		}
		f.Capacity[v1.ResourceEphemeralStorage] = *resource.NewQuantity(disk, resource.BinarySI)
	}
	// A size that cannot be read is an error and not left out: memory would be
	// counted twice.
	pages, err := s.hugePages()
	if err != nil {
		return Facts{}, fmt.Errorf("huge pages: %w", err)
	}
	maps.Copy(f.Capacity, pages)
	return f, nil
}

// line returns the first line of a file; "" if there is none. Texts of the device
// tree end with a zero byte.
func (s System) line(name string) string {
	raw, err := fs.ReadFile(s.Files, name)
	if err != nil {
		return ""
	}
	return strings.TrimRight(strings.TrimSpace(string(raw)), "\x00")
}

// cpus counts the online processors (Documentation/admin-guide/cputopology),
// whatever this process may use. The list has ranges, such as "0-3,8". An empty
// list is an error.
func (s System) cpus() (int64, error) {
	text := s.line("sys/devices/system/cpu/online")
	if text == "" {
		return 0, errors.New("sys/devices/system/cpu/online: not there, or empty")
	}
	var n int64
	for part := range strings.SplitSeq(text, ",") {
		from, to, ranged := strings.Cut(part, "-")
		if !ranged {
			to = from
		}
		a, err1 := strconv.ParseInt(from, 10, 32)
		b, err2 := strconv.ParseInt(to, 10, 32)
		if err := errors.Join(err1, err2); err != nil || b < a {
			return 0, fmt.Errorf("sys/devices/system/cpu/online: %q: want a list such as 0-3,8", text)
		}
		n += b - a + 1
	}
	return n, nil
}

// osImage returns PRETTY_NAME of os-release(5); "" if the file or the name is missing.
func (s System) osImage(name string) string {
	raw, err := fs.ReadFile(s.Files, name)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(raw)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			return strings.Trim(value, `"'`)
		}
	}
	return ""
}

// hugePages is the memory that is set aside, by the size of a page
// (Documentation/admin-guide/mm/hugetlbpage). A size without any is there. Pages of
// all NUMA nodes are counted, used or free. Without the directory the kernel has
// none.
func (s System) hugePages() (v1.ResourceList, error) {
	dirs, err := fs.Glob(s.Files, "sys/kernel/mm/hugepages/hugepages-*kB")
	if err != nil {
		return nil, err
	}
	out := v1.ResourceList{}
	for _, dir := range dirs {
		size, err1 := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(path.Base(dir), "hugepages-"), "kB"), 10, 53)
		pages, err2 := strconv.ParseInt(s.line(dir+"/nr_hugepages"), 10, 53)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		// The name has the size as a quantity writes it: 2Mi, 1Gi.
		unit := resource.NewQuantity(size<<10, resource.BinarySI)
		out[v1.ResourceName(v1.ResourceHugePagesPrefix+unit.String())] = *resource.NewQuantity(size<<10*pages, resource.BinarySI)
	}
	return out, nil
}

// meminfoBytes reads a line of /proc/meminfo, which is in kB (proc(5)). The
// kernel's kB are 1024 bytes.
func meminfoBytes(raw []byte, name string) (int64, error) {
	for sc := bufio.NewScanner(bytes.NewReader(raw)); sc.Scan(); {
		value, ok := strings.CutPrefix(sc.Text(), name+":")
		if !ok {
			continue
		}
		kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 53)
		if err != nil || kb < 0 {
			return 0, fmt.Errorf("proc/meminfo: %s: %q is not a number of kB", name, value)
		}
		return kb << 10, nil
	}
	return 0, fmt.Errorf("proc/meminfo: no %s", name)
}
