package stats

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/internal/kernel"
)

// usage returns the usage of the machine. It is read from the root of the cgroup hierarchy if
// that has the values, otherwise from /proc. The limit is the machine's memory. usage returns an
// error only if meminfo cannot be read. Other values are nil if their file is missing.
func (c cgroups) usage() (*Usage, error) {
	ctx := context.Background()
	info, err := c.MemInfo(ctx)
	if err != nil {
		return nil, err
	}
	if !info.Total.Known() || !info.Free.Known() {
		return nil, errors.New("/proc/meminfo: line \"MemTotal\" or \"MemFree\" is missing")
	}
	u, err := c.read("")
	// The root of cgroup v2 has few files, and that of v1 may not be mounted: /proc
	// has the rest.
	if err != nil {
		u = &Usage{At: time.Now()}
	}
	if u.Memory == nil { // cgroup v2 has none at its root
		used := info.Total.Less(info.Free)
		u.Memory, u.RSS, u.WorkingSet = limit(used), limit(info.Anon), limit(used.Less(info.InactiveFile))
	}
	// Not a cgroup's limit: available memory of the node is measured by the
	// machine's.
	u.MemoryLimit = limit(info.Total)
	u.Swap, u.SwapLimit = nil, nil
	if info.SwapTotal.Known() && info.SwapFree.Known() {
		u.Swap, u.SwapLimit = limit(info.SwapTotal.Less(info.SwapFree)), limit(info.SwapTotal)
	}
	// A root without cpu.stat: the kernel's sum over all processors is the same
	// time, in ticks.
	if u.CPU == nil {
		if s, err := c.Stat(ctx); err == nil && s.All > 0 {
			u.CPU = ptr(s.Busy * (1e9 / kernel.UserHZ))
		}
	}
	// /proc/pressure has the machine's pressure where the root cgroup has no such
	// files.
	for name, to := range map[string]**statsapi.PSIStats{"cpu": &u.CPUPressure, "memory": &u.MemoryPressure, "io": &u.IOPressure} {
		if *to == nil {
			if p, err := c.Pressure(ctx, name); err == nil {
				*to = psi(&p)
			}
		}
	}
	return u, nil
}

// boot returns the boot time of the machine: the kernel's btime, which changes when the clock is
// set.
func (c cgroups) boot() (metav1.Time, error) {
	s, err := c.Stat(context.Background())
	if err != nil {
		return metav1.Time{}, err
	}
	if s.Boot == 0 {
		return metav1.Time{}, errors.New("/proc/stat: line \"btime\" is missing")
	}
	return metav1.Unix(s.Boot, 0), nil
}

// rlimit returns the maximum number of threads, and the current number. Threads of all processes
// count, since each has a PID. The maximum may be returned together with an error.
func (c cgroups) rlimit() (*statsapi.RlimitStats, error) {
	out := &statsapi.RlimitStats{Time: metav1.Now()}
	if most, err := c.MaxThreads(context.Background()); err == nil {
		out.MaxPID = &most
	}
	n, err := c.Threads(context.Background())
	if err != nil {
		return out, err
	}
	out.NumOfRunningProcesses = &n
	return out, nil
}

// network returns the interfaces of a network namespace. The default interface is eth0, as in the
// kubelet. The result is nil if there is only the loopback interface.
func network(all []kernel.Interface, at time.Time) *statsapi.NetworkStats {
	out := &statsapi.NetworkStats{Time: metav1.NewTime(at)}
	for _, f := range all {
		i := statsapi.InterfaceStats{Name: f.Name, RxBytes: &f.RxBytes, RxErrors: &f.RxErrors, TxBytes: &f.TxBytes, TxErrors: &f.TxErrors}
		out.Interfaces = append(out.Interfaces, i)
		if i.Name == "eth0" {
			out.InterfaceStats = i
		}
	}
	if len(out.Interfaces) == 0 {
		return nil
	}
	return out
}
