package usage

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/kernel"
	"github.com/nodewright/nodewright/internal/nspin"
	"github.com/nodewright/nodewright/internal/safefile"
)

// Container returns the usage of a container, without its attributes. It reads the container's
// cgroup and its writable layer. If one of the two is "", its values are omitted. If the cgroup
// does not exist, the error is fs.ErrNotExist. If measuring the layer takes long, the measurement
// continues in the background, and the result has the previous value or none.
func (r *Reader) Container(ctx context.Context, cgroup string, layer Layer) (*runtimeapi.ContainerStats, error) {
	out := &runtimeapi.ContainerStats{}
	if cgroup != "" {
		f, err := r.look(ctx, cgroup)
		if err != nil {
			return nil, err
		}
		out.Cpu, out.Memory, out.Swap, out.Io = r.cpu(cgroup, f), f.criMemory(), f.criSwap(), f.criIO()
	}
	if layer.Upper != "" {
		out.WritableLayer = r.layers.measure(ctx, layer, r.cfg.Mountpoint)
	}
	return out, nil
}

// Pod returns the usage of a pod, from its cgroup and the interfaces of the network namespace at
// netns. If netns is "", the network's values are omitted. If cgroup is "" or "/", the pod has no
// cgroup of its own, and the cgroup's values are omitted. The caller adds the usage of the
// containers.
func (r *Reader) Pod(ctx context.Context, cgroup, netns string) (*runtimeapi.LinuxPodSandboxStats, error) {
	out := &runtimeapi.LinuxPodSandboxStats{}
	if cgroup != "" && cgroup != "/" {
		f, err := r.look(ctx, cgroup)
		if err != nil {
			return nil, err
		}
		out.Cpu, out.Memory, out.Io = r.cpu(cgroup, f), f.criMemory(), f.criIO()
		if f.threads.Known() {
			out.Process = &runtimeapi.ProcessUsage{Timestamp: f.at.UnixNano(), ProcessCount: value(f.threads)}
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

// value returns a number for the CRI. It returns nil if the number is absent or unlimited.
func value(a kernel.Amount) *runtimeapi.UInt64Value {
	if n, ok := a.Number(); ok {
		return &runtimeapi.UInt64Value{Value: n}
	}
	return nil
}

func (r *Reader) cpu(cgroup string, f *figures) *runtimeapi.CpuUsage {
	total, ok := f.cpu.Total.Number()
	if !ok {
		return nil
	}
	out := &runtimeapi.CpuUsage{Timestamp: f.at.UnixNano(), UsageCoreNanoSeconds: value(f.cpu.Total), Psi: psi(f.pressure.cpu)}
	if rate := r.rate(cgroup, f.at, total); rate != nil {
		out.UsageNanoCores = &runtimeapi.UInt64Value{Value: *rate}
	}
	return out
}

func (f *figures) criMemory() *runtimeapi.MemoryUsage {
	if !f.usage.Known() {
		return nil
	}
	return &runtimeapi.MemoryUsage{
		Timestamp: f.at.UnixNano(), WorkingSetBytes: value(f.workingSet), UsageBytes: value(f.usage), RssBytes: value(f.memory.Anon),
		AvailableBytes: value(f.limit.Less(f.workingSet)), PageFaults: value(f.memory.Faults), MajorPageFaults: value(f.memory.MajorFaults),
		Psi: psi(f.pressure.memory),
	}
}

func (f *figures) criSwap() *runtimeapi.SwapUsage {
	if !f.swap.Known() {
		return nil
	}
	return &runtimeapi.SwapUsage{Timestamp: f.at.UnixNano(), SwapUsageBytes: value(f.swap), SwapAvailableBytes: value(f.swapLimit.Less(f.swap))}
}

func (f *figures) criIO() *runtimeapi.IoUsage {
	return &runtimeapi.IoUsage{Timestamp: f.at.UnixNano(), Psi: psi(f.pressure.io)}
}

func psi(p *kernel.Pressure) *runtimeapi.PsiStats {
	if p == nil {
		return nil
	}
	data := func(s kernel.Stall) *runtimeapi.PsiData {
		return &runtimeapi.PsiData{Total: uint64(s.Duration()), Avg10: s.Avg10, Avg60: s.Avg60, Avg300: s.Avg300}
	}
	return &runtimeapi.PsiStats{Some: data(p.Some), Full: data(p.Full)}
}

// maxInterfaces is the maximum number of interfaces reported for a pod.
const maxInterfaces = 256

// interfaces reads the counters of the interfaces of a network namespace.
func interfaces(netns string) ([]kernel.Interface, error) {
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
	all := kernel.ParseInterfaces(b)
	return all[:min(len(all), maxInterfaces)], err
}

// usualInterface is a pod's main interface, which has the same name in all networks.
const usualInterface = "eth0"

func criNetwork(all []kernel.Interface, at time.Time) *runtimeapi.NetworkUsage {
	out := &runtimeapi.NetworkUsage{Timestamp: at.UnixNano()}
	usual := 0
	for i, f := range all {
		if f.Name == usualInterface {
			usual = i
		}
	}
	for i, f := range all {
		u := &runtimeapi.NetworkInterfaceUsage{
			Name: f.Name, RxBytes: value(kernel.Number(f.RxBytes)), RxErrors: value(kernel.Number(f.RxErrors)),
			TxBytes: value(kernel.Number(f.TxBytes)), TxErrors: value(kernel.Number(f.TxErrors)),
		}
		if i == usual {
			out.DefaultInterface = u
		} else {
			out.Interfaces = append(out.Interfaces, u)
		}
	}
	return out
}
