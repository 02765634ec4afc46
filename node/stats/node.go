package stats

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// proc reads the kernel's values of the whole machine from /proc. Sizes in meminfo
// are in kB of 1024 bytes (proc(5)).
type proc struct{ files fs.FS }

// userHZ is the unit of /proc/stat; it is 100 on every platform that Go supports,
// whatever the kernel's own tick.
const userHZ = 100

// usage returns the usage of the machine: from the root of the hierarchy if it has
// the values, otherwise from /proc. The limit is the machine's memory. It is an
// error only if meminfo cannot be read: other values are nil if a file is missing.
func (p proc) usage(c cgroups) (*Usage, error) {
	raw, err := fs.ReadFile(p.files, "meminfo")
	if err != nil {
		return nil, err
	}
	var total, free, inactive, anon, swapTotal, swapFree *uint64
	keyed(trimSpaces(raw), map[string]**uint64{
		"MemTotal": &total, "MemFree": &free, "Inactive(file)": &inactive, "AnonPages": &anon, "SwapTotal": &swapTotal, "SwapFree": &swapFree,
	})
	if total == nil || free == nil {
		return nil, errors.New("meminfo: no MemTotal or MemFree")
	}
	u, err := c.read("")
	// The root of cgroup v2 has few files, and that of v1 may not be mounted: /proc
	// has the rest.
	if err != nil {
		u = &Usage{At: time.Now()}
	}
	if u.Memory == nil { // cgroup v2 has none at its root
		u.Memory, u.RSS = ptr(less(*total, *free)*1024), anon
		if anon != nil {
			*anon *= 1024
		}
		u.setWorkingSet(ptr(zero(inactive) * 1024))
	}
	// Not a cgroup's limit: available memory of the node is measured by the
	// machine's.
	u.MemoryLimit = ptr(*total * 1024)
	u.Swap, u.SwapLimit = nil, nil
	if swapTotal != nil && swapFree != nil {
		u.Swap, u.SwapLimit = ptr(less(*swapTotal, *swapFree)*1024), ptr(*swapTotal*1024)
	}
	// A root without cpu.stat: the kernel's sum over all processors is the same
	// time, in ticks.
	if u.CPU == nil {
		u.CPU = p.cpu()
	}
	// /proc/pressure has the machine's pressure where the root cgroup has no such
	// files.
	for name, to := range map[string]**statsapi.PSIStats{
		"pressure/cpu": &u.CPUPressure, "pressure/memory": &u.MemoryPressure, "pressure/io": &u.IOPressure,
	} {
		if *to == nil {
			*to = cgroups{files: p.files}.pressure(name)
		}
	}
	return u, nil
}

// trimSpaces reduces runs of spaces to one: meminfo aligns its numbers in columns.
func trimSpaces(raw []byte) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(raw) {
		out.Write(bytes.Join(bytes.Fields(line), []byte{' '}))
		out.WriteByte('\n')
	}
	return out.Bytes()
}

// cpu adds the busy time of all processors: the first line of /proc/stat without
// idle and iowait. User time includes guests. The result is in nanoseconds; nil if
// the file is not as expected.
func (p proc) cpu() *uint64 {
	raw, err := fs.ReadFile(p.files, "stat")
	if err != nil {
		return nil
	}
	line, _, _ := strings.Cut(string(raw), "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return nil
	}
	var ticks uint64
	for i, f := range fields[1:9] {
		n, err := strconv.ParseUint(f, 10, 63)
		if err != nil {
			return nil
		}
		// Columns are user, nice, system, idle, iowait, irq, softirq, steal
		// (proc(5)).
		if i != 3 && i != 4 {
			ticks += n
		}
	}
	return ptr(ticks * (1e9 / userHZ))
}

// boot returns the boot time of the machine: the kernel's btime, which changes when the clock is
// set.
func (p proc) boot() (metav1.Time, error) {
	raw, err := fs.ReadFile(p.files, "stat")
	if err != nil {
		return metav1.Time{}, err
	}
	var sec *uint64
	keyed(raw, map[string]**uint64{"btime": &sec})
	if sec == nil {
		return metav1.Time{}, errors.New("stat: no btime")
	}
	return metav1.Unix(int64(*sec), 0), nil
}

// rlimit returns the maximum number of threads, the smaller of pid_max and threads-max, and the
// current number. Threads of all processes count, since each has a PID. The maximum may be
// returned together with an error.
func (p proc) rlimit() (*statsapi.RlimitStats, error) {
	out := &statsapi.RlimitStats{Time: metav1.Now()}
	for _, name := range []string{"sys/kernel/pid_max", "sys/kernel/threads-max"} {
		raw, err := fs.ReadFile(p.files, name)
		if err != nil {
			continue
		}
		// The smaller limit counts.
		if n, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64); err == nil && (out.MaxPID == nil || n < *out.MaxPID) {
			out.MaxPID = &n
		}
	}
	raw, err := fs.ReadFile(p.files, "loadavg")
	if err != nil {
		return out, err
	}
	n, err := threads(raw)
	if err != nil {
		return out, err
	}
	out.NumOfRunningProcesses = &n
	return out, nil
}

// threads reads "0.52 0.58 0.59 2/1234 5678": runnable ones/all.
func threads(raw []byte) (int64, error) {
	fields := strings.Fields(string(raw))
	if len(fields) < 4 {
		return 0, fmt.Errorf("loadavg: %d fields; want at least 4", len(fields))
	}
	_, all, _ := strings.Cut(fields[3], "/")
	n, err := strconv.ParseInt(all, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("loadavg: threads %q", fields[3])
	}
	return n, nil
}

// network reads the interfaces of a network namespace in the format of
// /proc/<pid>/net/dev. The default one is eth0, as in the kubelet. Nil if there is
// only the loopback. Header lines have no colon.
func network(raw []byte, at time.Time) *statsapi.NetworkStats {
	out := &statsapi.NetworkStats{Time: metav1.NewTime(at)}
	for line := range strings.Lines(string(raw)) {
		name, rest, ok := strings.Cut(line, ":")
		fields := strings.Fields(rest)
		if name = strings.TrimSpace(name); !ok || len(fields) < 11 || name == "lo" {
			continue
		}
		i := statsapi.InterfaceStats{Name: name}
		for col, to := range map[int]**uint64{0: &i.RxBytes, 2: &i.RxErrors, 8: &i.TxBytes, 10: &i.TxErrors} {
			if n, err := strconv.ParseUint(fields[col], 10, 64); err == nil {
				*to = &n
			}
		}
		out.Interfaces = append(out.Interfaces, i)
		if name == "eth0" {
			out.InterfaceStats = i
		}
	}
	if len(out.Interfaces) == 0 {
		return nil
	}
	return out
}
