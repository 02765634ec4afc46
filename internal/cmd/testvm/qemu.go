package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Mount tags of the 9p shares.
const (
	hostTag       = "host"       // the machine's root: this system's, or that of a foreign machine
	repositoryTag = "repository" // with a foreign machine
)

// qemuArgs returns qemu's arguments for the machine: two NUMA nodes, a console on stdio, a
// second serial port for the results, shares that are read-only, no network card, no
// disk. After a panic the kernel reboots, and -no-reboot makes qemu exit instead.
func qemuArgs(s settings, image, initramfs, resultFile string, shares map[string]string) []string {
	args := slices.Concat(s.arch.machine, []string{
		"-accel", s.accel, "-smp", strconv.Itoa(s.cpus), "-m", s.memory.String(),
		"-nodefaults", "-display", "none", "-no-reboot",
		"-kernel", image, "-initrd", initramfs, "-append", strings.TrimSpace("console=" + s.arch.console + " quiet panic=-1 fstab=no " + s.parameters),
		"-serial", "stdio", "-chardev", "file,id=results,path=" + resultFile,
	}, s.arch.port, numaArgs(s))
	for _, tag := range slices.Sorted(maps.Keys(shares)) {
		args = append(args, "-virtfs", "local,path="+shares[tag]+",mount_tag="+tag+",security_model=none,readonly=on,multidevs=remap")
	}
	return args
}

// share returns the machine's mount of a share at target.
func share(tag, target string) mounting {
	return mounting{tag, target, "9p", unix.MS_RDONLY, "trans=virtio,version=9p2000.L,msize=512000,cache=loose"}
}

// numaArgs returns qemu's arguments that divide the machine's CPUs and memory between two
// NUMA nodes. The first node gets the first half. With one CPU it returns none.
func numaArgs(s settings) []string {
	if s.cpus < 2 {
		return nil
	}
	var args []string
	first, size := 0, s.memory/2
	for node, cpus := range []int{s.cpus / 2, s.cpus - s.cpus/2} {
		args = append(args,
			"-object", fmt.Sprintf("memory-backend-ram,id=ram%d,size=%dM", node, size>>20),
			"-numa", fmt.Sprintf("node,nodeid=%d,cpus=%d-%d,memdev=ram%d", node, first, first+cpus-1, node))
		first += cpus
	}
	return args
}

// A memory is a size in bytes, and the flag.Value for it. The flag's text is a number of
// MiB, or a number with the suffix M or G. The number of MiB is even, so that two NUMA
// nodes get equal parts.
type memory int64

func (m *memory) String() string { return strconv.FormatInt(int64(*m)>>20, 10) + "M" }

// Set implements flag.Value.
func (m *memory) Set(s string) error {
	unit := int64(1) << 20
	digits := strings.TrimSuffix(s, "M")
	if d, giga := strings.CutSuffix(s, "G"); giga {
		digits, unit = d, 1<<30
	}
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || n <= 0 || n*(unit>>20)%2 != 0 {
		return fmt.Errorf("%q: want an even number of MiB such as 3072M, or of GiB such as 3G", s)
	}
	*m = memory(n * unit)
	return nil
}
