package usage

import (
	"context"
	"math"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cgroups"
	"github.com/nodewright/nodewright/internal/nspin"
	"github.com/nodewright/nodewright/internal/safefile"
)

// Container returns the usage of a container, without its attributes: from its cgroup unless that
// is "", and from the directory of its writable layer unless that is "". The error is
// fs.ErrNotExist if the cgroup does not exist. A layer whose measurement takes long is measured
// in the background; the result then has the previous value or none.
func (r *Reader) Container(ctx context.Context, cgroup, writable string) (*runtimeapi.ContainerStats, error) {
	out := &runtimeapi.ContainerStats{}
	if cgroup != "" {
		if err := r.exists(cgroup); err != nil {
			return nil, err
		}
		f := r.look(cgroup)
		out.Cpu, out.Memory, out.Swap, out.Io = r.cpu(cgroup, f), f.criMemory(), f.criSwap(), f.criIO()
	}
	if writable != "" {
		out.WritableLayer = r.layers.measure(ctx, writable, r.cfg.Mountpoint)
	}
	return out, nil
}

// Pod returns the usage of a pod, from its cgroup and the interfaces of the network namespace at
// netns; "" omits either. If the pod has no cgroup of its own ("" or "/"), values of a cgroup are
// omitted. The caller adds the containers.
func (r *Reader) Pod(_ context.Context, cgroup, netns string) (*runtimeapi.LinuxPodSandboxStats, error) {
	out := &runtimeapi.LinuxPodSandboxStats{}
	if cgroup != "" && cgroup != "/" {
		if err := r.exists(cgroup); err != nil {
			return nil, err
		}
		f := r.look(cgroup)
		out.Cpu, out.Memory, out.Io = r.cpu(cgroup, f), f.criMemory(), f.criIO()
		if f.pids != nil {
			out.Process = &runtimeapi.ProcessUsage{Timestamp: f.at.UnixNano(), ProcessCount: value(f.pids)}
		}
	}
	if netns != "" {
		all, err := interfaces(netns)
		if err != nil {
			return nil, err
		}
		out.Network = criNetwork(all, time.Now())
	}
	return out, nil
}

func value(n *uint64) *runtimeapi.UInt64Value {
	if n == nil {
		return nil
	}
	return &runtimeapi.UInt64Value{Value: *n}
}

func (r *Reader) cpu(cgroup string, f *figures) *runtimeapi.CpuUsage {
	if f.cpu.total == nil {
		return nil
	}
	return &runtimeapi.CpuUsage{
		Timestamp: f.at.UnixNano(), UsageCoreNanoSeconds: value(f.cpu.total),
		UsageNanoCores: value(r.rate(cgroup, f.at, *f.cpu.total)), Psi: psi(f.pressure.cpu),
	}
}

func (f *figures) criMemory() *runtimeapi.MemoryUsage {
	m := &f.memory
	if m.usage == nil {
		return nil
	}
	out := &runtimeapi.MemoryUsage{
		Timestamp: f.at.UnixNano(), WorkingSetBytes: value(m.workingSet), UsageBytes: value(m.usage), RssBytes: value(m.rss),
		PageFaults: value(m.faults), MajorPageFaults: value(m.majorFaults), Psi: psi(f.pressure.memory),
	}
	if m.limit != nil && *m.limit != math.MaxUint64 {
		out.AvailableBytes = value(less(m.limit, m.workingSet))
	}
	return out
}

func (f *figures) criSwap() *runtimeapi.SwapUsage {
	m := &f.memory
	if m.swap == nil {
		return nil
	}
	out := &runtimeapi.SwapUsage{Timestamp: f.at.UnixNano(), SwapUsageBytes: value(m.swap)}
	if m.swapLimit != nil && *m.swapLimit != math.MaxUint64 {
		out.SwapAvailableBytes = value(less(m.swapLimit, m.swap))
	}
	return out
}

func (f *figures) criIO() *runtimeapi.IoUsage {
	return &runtimeapi.IoUsage{Timestamp: f.at.UnixNano(), Psi: psi(f.pressure.io)}
}

func psi(p *cgroups.Pressure) *runtimeapi.PsiStats {
	if p == nil {
		return nil
	}
	data := func(s cgroups.Stall) *runtimeapi.PsiData {
		return &runtimeapi.PsiData{Total: uint64(max(s.Total, 0)), Avg10: s.Avg10, Avg60: s.Avg60, Avg300: s.Avg300}
	}
	return &runtimeapi.PsiStats{Some: data(p.Some), Full: data(p.Full)}
}

// interfaces reads the counters of the interfaces of a network namespace.
func interfaces(netns string) ([]iface, error) {
	space, err := nspin.OpenPinned(netns, unix.CLONE_NEWNET)
	if err != nil {
		return nil, err
	}
	defer func() { _ = space.Close() }()
	var b []byte
	nspin.OnThread(func() (back bool) {
		if _, err = nspin.Control(space, func(fd int) (int, error) { return 0, unix.Setns(fd, unix.CLONE_NEWNET) }); err == nil {
			b, err = safefile.ReadFile("/proc/thread-self/net/dev", maxFile)
		}
		return false // the thread ends with its goroutine
	})
	return netDev(b), err
}

// usualInterface is a pod's main interface, which has the same name in all networks.
const usualInterface = "eth0"

func criNetwork(all []iface, at time.Time) *runtimeapi.NetworkUsage {
	out := &runtimeapi.NetworkUsage{Timestamp: at.UnixNano()}
	usual := 0
	for i, f := range all {
		if f.name == usualInterface {
			usual = i
		}
	}
	for i, f := range all {
		u := &runtimeapi.NetworkInterfaceUsage{
			Name: f.name, RxBytes: value(&f.rxBytes), RxErrors: value(&f.rxErrors), TxBytes: value(&f.txBytes), TxErrors: value(&f.txErrors),
		}
		if i == usual {
			out.DefaultInterface = u
		} else {
			out.Interfaces = append(out.Interfaces, u)
		}
	}
	return out
}
