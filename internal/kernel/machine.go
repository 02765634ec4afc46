package kernel

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
)

// MemInfo is the memory of the machine in bytes (proc_meminfo(5)).
type MemInfo struct{ Total, Free, InactiveFile, Anon, SwapTotal, SwapFree Amount }

// MemInfo reads /proc/meminfo. Values without a line are absent: in a container, lxcfs shows fewer
// lines.
func (r *Reader) MemInfo(ctx context.Context) (MemInfo, error) {
	b, err := r.read(ctx, r.proc, "meminfo", maxSmall)
	if err != nil {
		return MemInfo{}, err
	}
	return parseMemInfo("meminfo", b)
}

// NodeMemory reads the total memory of a NUMA node in bytes.
func (r *Reader) NodeMemory(ctx context.Context, node int) (Amount, error) {
	file := nodeDir(node) + "/meminfo"
	b, err := r.read(ctx, r.sys, file, maxSmall)
	if err != nil {
		return Amount{}, err
	}
	info, err := parseMemInfo("sys/"+file, b)
	return info.Total, err
}

func nodeDir(node int) string { return "devices/system/node/node" + strconv.Itoa(node) }

// parseMemInfo parses /proc/meminfo or the meminfo of a NUMA node. In both, a kB is 1024 bytes. The
// lines of a NUMA node begin with "Node" and its number.
func parseMemInfo(file string, b []byte) (MemInfo, error) {
	var out MemInfo
	to := map[string]*Amount{
		"MemTotal": &out.Total, "MemFree": &out.Free, "Inactive(file)": &out.InactiveFile, "AnonPages": &out.Anon,
		"SwapTotal": &out.SwapTotal, "SwapFree": &out.SwapFree,
	}
	for line := range strings.Lines(string(b)) {
		name, value, ok := strings.Cut(line, ":")
		name = name[strings.LastIndexByte(name, ' ')+1:]
		a := to[name]
		if !ok || a == nil {
			continue
		}
		text := strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB"))
		kb, err := strconv.ParseUint(text, 10, 53) // so that the bytes fit an int64
		if err != nil {
			return MemInfo{}, &FormatError{file + ": " + name, text, "a number of kB"}
		}
		*a = Number(kb * 1024)
	}
	return out, nil
}

// Stat has counts of the machine since its boot.
type Stat struct {
	// Busy is the number of clock ticks in which CPUs were busy, including the time of virtual
	// machines. All is the number of ticks in all states.
	Busy, All uint64
	Boot      int64 // time of the boot in seconds since 1970; changes if the clock is set
}

// Stat reads /proc/stat (proc_stat(5)).
func (r *Reader) Stat(ctx context.Context) (Stat, error) {
	b, err := r.read(ctx, r.proc, "stat", maxTable)
	if err != nil {
		return Stat{}, err
	}
	return parseStat(b)
}

// parseStat parses /proc/stat. A value without a line is 0.
func parseStat(b []byte) (Stat, error) {
	var out Stat
	for line := range bytes.Lines(b) {
		f := strings.Fields(string(line))
		switch {
		case len(f) >= 9 && f[0] == "cpu":
			// user, nice, system, idle, iowait, irq, softirq, steal. user and nice include the time of guests.
			for i, text := range f[1:9] {
				n, err := strconv.ParseUint(text, 10, 60)
				if err != nil {
					return Stat{}, &FormatError{"stat: cpu", text, "ticks"}
				}
				out.All += n
				if i != 3 && i != 4 {
					out.Busy += n
				}
			}
		case len(f) == 2 && f[0] == "btime":
			n, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil || n < 0 {
				return Stat{}, &FormatError{"stat: btime", f[1], "seconds since 1970"}
			}
			out.Boot = n
		}
	}
	return out, nil
}

// Threads reads the number of threads of all processes from /proc/loadavg.
func (r *Reader) Threads(ctx context.Context) (int64, error) {
	b, err := r.read(ctx, r.proc, "loadavg", maxValue)
	if err != nil {
		return 0, err
	}
	return parseThreads(b)
}

// parseThreads parses "0.52 0.58 0.59 2/1234 5678", where 2 threads of 1234 are runnable.
func parseThreads(b []byte) (int64, error) {
	f := strings.Fields(string(b))
	if len(f) < 4 {
		return 0, &FormatError{"loadavg", string(b), "at least 4 fields"}
	}
	_, all, _ := strings.Cut(f[3], "/")
	n, err := strconv.ParseInt(all, 10, 64)
	if err != nil || n < 0 {
		return 0, &FormatError{"loadavg", f[3], "threads"}
	}
	return n, nil
}

// Sysctl reads a number from /proc/sys, such as "kernel/pid_max". It fails if the number is not
// positive.
func (r *Reader) Sysctl(ctx context.Context, name string) (int64, error) {
	b, err := r.read(ctx, r.proc, "sys/"+name, maxValue)
	if err != nil {
		return 0, err
	}
	text := strings.TrimSpace(string(b))
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 {
		return 0, &FormatError{"sys/" + name, text, "a positive number"}
	}
	return n, nil
}

// MaxThreads reads the maximum number of threads of all processes: the smaller of pid_max and
// threads-max. It fails only if neither can be read.
func (r *Reader) MaxThreads(ctx context.Context) (int64, error) {
	ids, err1 := r.Sysctl(ctx, "kernel/pid_max")
	threads, err2 := r.Sysctl(ctx, "kernel/threads-max")
	switch {
	case err1 != nil && err2 != nil:
		return 0, errors.Join(err1, err2)
	case err1 != nil:
		return threads, nil
	case err2 != nil:
		return ids, nil
	}
	return min(ids, threads), nil
}

// Interfaces reads the interfaces of the network namespace of a process.
func (r *Reader) Interfaces(ctx context.Context, pid int) ([]Interface, error) {
	b, err := r.read(ctx, r.proc, strconv.Itoa(pid)+"/net/dev", maxTable)
	return ParseInterfaces(b), err
}

// HostInterfaces reads the interfaces of the network namespace of this process.
func (r *Reader) HostInterfaces(ctx context.Context) ([]Interface, error) {
	b, err := r.read(ctx, r.proc, "net/dev", maxTable)
	return ParseInterfaces(b), err
}

// OpenFilesLimit reads the soft limit of open files of a process. The Amount is absent if there is no
// limit.
func (r *Reader) OpenFilesLimit(ctx context.Context, pid int) (Amount, error) {
	b, err := r.read(ctx, r.proc, strconv.Itoa(pid)+"/limits", maxValue)
	for line := range strings.Lines(string(b)) { // Max open files  soft  hard  files
		if rest, ok := strings.CutPrefix(line, "Max open files"); ok {
			soft, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			if n, err := strconv.ParseUint(soft, 10, 64); err == nil {
				return Number(n), nil
			}
		}
	}
	return Amount{}, err
}

// BlockDevices reads the names of disks and partitions, such as "sda". The keys of the result are
// major:minor, such as "8:0".
func (r *Reader) BlockDevices(ctx context.Context) (map[string]string, error) {
	b, err := r.read(ctx, r.proc, "partitions", maxTable)
	out := map[string]string{}
	for line := range strings.Lines(string(b)) { // major minor #blocks name
		if f := strings.Fields(line); len(f) == 4 && isDevice(f[0]+":"+f[1]) {
			out[f[0]+":"+f[1]] = f[3]
		}
	}
	return out, err
}

// Disk is the I/O of a block device since the boot (Documentation/admin-guide/iostats.rst). Sectors
// have 512 bytes, times are in milliseconds.
type Disk struct {
	Name                                      string
	Reads, ReadsMerged, SectorsRead, ReadFor  uint64
	Writes, WritesMerged, SectorsWritten      uint64
	WriteFor, InFlight, BusyFor, WeightedBusy uint64
}

// Disks reads the block devices that have had I/O, in the kernel's order.
func (r *Reader) Disks(ctx context.Context) ([]Disk, error) {
	b, err := r.read(ctx, r.proc, "diskstats", maxTable)
	return parseDisks(b), err
}

func parseDisks(b []byte) (out []Disk) {
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 14 {
			continue
		}
		var n [11]uint64
		for i := range n {
			// A field that is not a number counts as 0. Newer kernels only add fields at the end.
			n[i], _ = strconv.ParseUint(f[3+i], 10, 64)
		}
		if n != [11]uint64{} { // skips unused devices, such as loop devices
			out = append(out, Disk{f[2], n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9], n[10]})
		}
	}
	return out
}

// Sys reads a small file of /sys, without the white space around its content.
func (r *Reader) Sys(ctx context.Context, name string) (string, error) {
	b, err := r.read(ctx, r.sys, name, maxSmall)
	return strings.TrimSpace(string(b)), err
}

// SysDirs lists the directories in a directory of /sys.
func (r *Reader) SysDirs(ctx context.Context, name string) ([]string, error) {
	return do(ctx, r.calls, name, func() ([]string, error) { return r.sys.Dirs(name, maxNames) })
}

// OnlineCPUs reads the list of the CPUs that are online, such as 0-3,8.
func (r *Reader) OnlineCPUs(ctx context.Context) (string, error) {
	return r.Sys(ctx, "devices/system/cpu/online")
}

// HugePages is the number of huge pages of one size, free and in use.
type HugePages struct{ Size, Pages int64 } // size in bytes

// HugePages reads the huge pages of all NUMA nodes, in ascending order of their sizes
// (Documentation/admin-guide/mm/hugetlbpage). The result is empty if the kernel has no huge pages.
func (r *Reader) HugePages(ctx context.Context) ([]HugePages, error) {
	return r.hugePages(ctx, "kernel/mm/hugepages")
}

// NodeHugePages reads the huge pages of a NUMA node, as HugePages does.
func (r *Reader) NodeHugePages(ctx context.Context, node int) ([]HugePages, error) {
	return r.hugePages(ctx, nodeDir(node)+"/hugepages")
}

func (r *Reader) hugePages(ctx context.Context, dir string) ([]HugePages, error) {
	names, err := r.SysDirs(ctx, dir)
	if errors.Is(err, ErrAbsent) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []HugePages
	for _, name := range names {
		size := HugePageSize(name)
		if size == 0 {
			continue
		}
		file := dir + "/" + name + "/nr_hugepages"
		text, err := r.Sys(ctx, file)
		if err != nil {
			return nil, err
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/size {
			return nil, &FormatError{"sys/" + file, text, "a number of pages"}
		}
		out = append(out, HugePages{size, n})
	}
	slices.SortFunc(out, func(a, b HugePages) int { return cmp.Compare(a.Size, b.Size) })
	return out, nil
}

// HugePageSize returns the size in bytes that a name such as hugepages-2048kB contains. It returns 0
// for other names.
func HugePageSize(name string) int64 {
	digits, ok := strings.CutPrefix(name, "hugepages-")
	digits, ok2 := strings.CutSuffix(digits, "kB")
	n, err := strconv.ParseUint(digits, 10, 53)
	if !ok || !ok2 || err != nil {
		return 0
	}
	return int64(n) * 1024
}

// Swap is a device or file that the kernel uses for swap. A space in its name is
// written as \040.
type Swap struct{ Name, Kind string }

// Swaps reads /proc/swaps. The result is empty if the kernel does not support swap.
func (r *Reader) Swaps(ctx context.Context) ([]Swap, error) {
	b, err := r.read(ctx, r.proc, "swaps", maxSmall)
	if errors.Is(err, ErrAbsent) {
		return nil, nil
	}
	return parseSwaps(b), err
}

func parseSwaps(b []byte) (out []Swap) {
	heading := true
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		switch {
		case len(f) == 0:
		case heading:
			heading = false
		case len(f) == 1:
			out = append(out, Swap{Name: f[0]})
		default:
			out = append(out, Swap{f[0], f[1]})
		}
	}
	return out
}

// LimitsSwap reports whether the kernel can limit the swap of cgroups. On v2 it looks for the limit
// in the cgroup of this process and in the children of the root, since the root itself has no
// limits.
func (r *Reader) LimitsSwap(ctx context.Context) (bool, error) {
	limited := func(dir string) (bool, error) {
		return ReadGroup(ctx, r, dir, func(g *Group) (bool, error) { return g.SwapLimit().Known(), g.Err() })
	}
	v2, err := r.V2(ctx)
	if err != nil || !v2 {
		ok, err2 := limited("/")
		return ok, cmp.Or(err, err2)
	}
	var errs []error
	own, err := r.CgroupsOf(ctx, "self")
	if err != nil && !errors.Is(err, ErrGone) {
		errs = append(errs, err)
	}
	children, err := r.Children(ctx, "/")
	errs = append(errs, err)
	if dir, ok := own[""]; ok && dir != "/" {
		children = append([]string{dir}, children...)
	}
	for _, dir := range children[:min(len(children), maxLooks)] {
		ok, err := limited(dir)
		if ok {
			return true, nil
		}
		errs = append(errs, err)
	}
	return false, errors.Join(errs...)
}

// maxLooks limits the cgroups that LimitsSwap examines. One cgroup with a limit of swap is enough.
const maxLooks = 256

// CgroupsOf reads the cgroups of a process; see [ParseCgroups]. pid is a number or "self". If there
// is no such process, the error is ErrGone.
func (r *Reader) CgroupsOf(ctx context.Context, pid string) (map[string]string, error) {
	b, err := r.read(ctx, r.proc, pid+"/cgroup", maxTable)
	if errors.Is(err, ErrAbsent) {
		return nil, &readError{ErrGone, err}
	}
	if err != nil {
		return nil, err
	}
	return ParseCgroups(b)
}

// ParseCgroups parses /proc/PID/cgroup (cgroups(7)) and returns the paths of the process's cgroups by
// controller. The key of cgroup v2 is "", the key of a named hierarchy is name=NAME. The suffix
// " (deleted)" of a removed cgroup is cut off. A malformed line is an error.
func ParseCgroups(b []byte) (map[string]string, error) {
	out := map[string]string{}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimRight(line, "\n")
		if line == "" {
			continue
		}
		f := strings.SplitN(line, ":", 3)
		if len(f) != 3 || !strings.HasPrefix(f[2], "/") {
			return nil, &FormatError{"cgroups of a process", line, "ID:CONTROLLERS:PATH"}
		}
		for controller := range strings.SplitSeq(f[1], ",") {
			out[controller] = strings.TrimSuffix(f[2], " (deleted)")
		}
	}
	return out, nil
}
