package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/internal/bootid"
	"github.com/nodewright/nodewright/internal/kernel"
	"github.com/nodewright/nodewright/numa"
)

// System reads the facts of a Linux machine from its files. Files is the root of its file system,
// such as os.DirFS("/"). Storage, if not nil, returns the ephemeral-storage in bytes. System
// reads only small files of /proc, /sys and /etc with stable formats.
type System struct {
	Files   fs.FS
	Storage func() (int64, error)
}

// Facts reads all facts. Memory and processors are required; other values are empty
// if they cannot be read. Each read of the kernel has a time limit.
func (s System) Facts(ctx context.Context) (Facts, error) {
	machine := kernel.At(s.Files)
	info, err := machine.MemInfo(ctx)
	if err != nil {
		return Facts{}, err
	}
	memory, known := info.Total.Number()
	if !known {
		return Facts{}, errors.New("/proc/meminfo: line \"MemTotal\" is missing")
	}
	swap, _ := info.SwapTotal.Number() // a kernel without has no such line
	// The processors of the machine and not of this process, which may be bound to
	// some of them.
	cpus, err := onlineCPUs(ctx, machine)
	if err != nil {
		return Facts{}, err
	}
	// Without the boot ID, only reboots are not reported.
	boot, _ := bootid.Read(s.Files)
	f := Facts{
		Capacity: v1.ResourceList{
			v1.ResourceCPU:    *resource.NewQuantity(int64(cpus), resource.DecimalSI),
			v1.ResourceMemory: *resource.NewQuantity(int64(memory), resource.BinarySI),
		},
		Swap:      int64(swap),
		BootID:    boot,
		Kernel:    s.line("proc/sys/kernel/osrelease"),
		MachineID: cmp.Or(s.line("etc/machine-id"), s.line("var/lib/dbus/machine-id")),
		OSImage:   cmp.Or(s.osImage("etc/os-release"), s.osImage("usr/lib/os-release"), "Unknown"),
	}
	// The UUID is read from the firmware; on systems without one, such as many ARM boards, from the
	// device tree, and otherwise from machine-id.
	f.SystemUUID = cmp.Or(s.line("sys/class/dmi/id/product_uuid"), s.line("proc/device-tree/vm,uuid"), f.MachineID)
	if s.Storage != nil {
		disk, err := s.Storage()
		if err != nil {
			return Facts{}, fmt.Errorf("read ephemeral storage: %w", err)
		}
		f.Capacity[v1.ResourceEphemeralStorage] = *resource.NewQuantity(disk, resource.BinarySI)
	}
	// A size that cannot be read is an error and not left out: memory would be
	// counted twice.
	pages, err := hugePages(ctx, machine)
	if err != nil {
		return Facts{}, fmt.Errorf("read huge pages: %w", err)
	}
	maps.Copy(f.Capacity, pages)
	return f, nil
}

// line returns the first line of a file, or "" if there is none. Texts of the device tree end
// with a zero byte.
func (s System) line(name string) string {
	raw, err := fs.ReadFile(s.Files, name)
	if err != nil {
		return ""
	}
	return strings.TrimRight(strings.TrimSpace(string(raw)), "\x00")
}

// onlineCPUs counts the online processors (Documentation/admin-guide/cputopology), even if this
// process may not use all of them. An empty list is an error.
func onlineCPUs(ctx context.Context, machine *kernel.Reader) (int, error) {
	text, err := machine.OnlineCPUs(ctx)
	if err != nil {
		return 0, err
	}
	set, err := numa.ParseCPUs(text)
	if err == nil && set.Empty() {
		err = errors.New("the file lists no CPUs")
	}
	if err != nil {
		return 0, fmt.Errorf("sys/devices/system/cpu/online: %w", err)
	}
	return set.Len(), nil
}

// osImage returns PRETTY_NAME of os-release(5), or "" if the file or the name is missing.
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

// hugePages returns the amount of memory reserved in huge pages of each size. A size
// without pages has 0.
func hugePages(ctx context.Context, machine *kernel.Reader) (v1.ResourceList, error) {
	all, err := machine.HugePages(ctx)
	if err != nil {
		return nil, err
	}
	out := v1.ResourceList{}
	for _, p := range all {
		// The name has the size as a quantity writes it: 2Mi, 1Gi.
		unit := resource.NewQuantity(p.Size, resource.BinarySI)
		out[v1.ResourceName(v1.ResourceHugePagesPrefix+unit.String())] = *resource.NewQuantity(p.Size*p.Pages, resource.BinarySI)
	}
	return out, nil
}
