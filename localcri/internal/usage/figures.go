package usage

import (
	"context"
	"fmt"
	"io/fs"
	"time"

	"github.com/nodewright/nodewright/internal/kernel"
)

// figures has the usage of a cgroup, including its descendants.
type figures struct {
	at       time.Time
	cpu      kernel.CPU
	limits   kernel.CPULimits
	memory   kernel.Memory
	pressure struct{ cpu, memory, io *kernel.Pressure }
	events   kernel.MemoryEvents
	io       []kernel.DiskIO

	usage, workingSet, limit, max kernel.Amount // of memory
	swap, swapLimit               kernel.Amount // of swap alone
	threads, maxThreads           kernel.Amount
}

// look reads the usage of a cgroup. If the cgroup does not exist, the error is fs.ErrNotExist.
func (r *Reader) look(ctx context.Context, cgroup string) (*figures, error) {
	if err := checkCgroup(cgroup); err != nil {
		return nil, err
	}
	return kernel.ReadGroup(ctx, r.kernel, cgroup, func(g *kernel.Group) (*figures, error) {
		if _, ok := g.Processes(); !ok && g.Err() == nil {
			return nil, fmt.Errorf("cgroup %s: %w", cgroup, fs.ErrNotExist)
		}
		f := &figures{
			at: time.Now(), cpu: g.CPU(), limits: g.CPULimits(), memory: g.Memory(), events: g.MemoryEvents(), io: g.IO(),
			usage: g.MemoryUsage(), limit: g.MemoryLimit(), max: g.MaxMemoryUsage(), swapLimit: g.SwapLimit(),
			threads: g.Threads(), maxThreads: g.MaxThreads(),
		}
		f.workingSet, f.swap = f.usage.Less(f.memory.InactiveFile), g.SwapUsage(f.memory)
		if !g.V2() {
			f.memory.Kernel = g.KernelMemoryV1()
			// The file has the limit of memory and swap together.
			if _, limited := f.limit.Number(); limited {
				f.swapLimit = f.swapLimit.Less(f.limit)
			} else if !f.swapLimit.Unlimited() || !f.limit.Known() {
				f.swapLimit = kernel.Amount{}
			}
		}
		f.pressure.cpu, f.pressure.memory, f.pressure.io = g.Pressure("cpu"), g.Pressure("memory"), g.Pressure("io")
		return f, nil
	})
}
