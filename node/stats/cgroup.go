package stats

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/internal/kernel"
	"github.com/nodewright/nodewright/internal/podcgroup"
)

// cgroups reads the cgroups of the machine, v2 or v1 (with one directory for each
// controller), as they are mounted at /sys/fs/cgroup.
type cgroups struct{ *kernel.Reader }

// rel converts a cgroup's path to a path of io/fs. The root is ".".
func rel(dir string) string { return path.Clean("./" + strings.Trim(dir, "/")) }

// unlimited is the least limit that counts as none: 2^62, as in the kubelet.
const unlimited = 1 << 62

// limit returns a limit or a count. It returns nil if the value is not known. If there is no
// limit, the result is the largest uint64, so that comparisons work.
func limit(a kernel.Amount) *uint64 { return a.Pointer(1<<64 - 1) }

// read reads one cgroup. If the cgroup does not exist, the error is fs.ErrNotExist. If it is
// removed while it is read, the values read until then are returned.
func (c cgroups) read(dir string) (*Usage, error) {
	return kernel.ReadGroup(context.Background(), c.Reader, dir, func(g *kernel.Group) (*Usage, error) { return readUsage(g, dir) })
}

// readMemory reads the values for eviction: memory and threads. It reads four files
// instead of a dozen: it is called for all pods, every few seconds when memory is
// low.
func (c cgroups) readMemory(dir string) (*Usage, error) {
	return kernel.ReadGroup(context.Background(), c.Reader, dir, func(g *kernel.Group) (*Usage, error) {
		u := &Usage{At: time.Now()}
		if u.setMemory(g); u.Memory == nil {
			return readUsage(g, dir) // which says why
		}
		u.Tasks = limit(g.Threads())
		return u, nil
	})
}

// readTotal reads the CPU time and the memory: four files.
func (c cgroups) readTotal(dir string) (*Usage, error) {
	return kernel.ReadGroup(context.Background(), c.Reader, dir, func(g *kernel.Group) (*Usage, error) {
		u := &Usage{At: time.Now(), CPU: limit(g.CPUTime())}
		u.setMemory(g)
		return u, nil
	})
}

func readUsage(g *kernel.Group, dir string) (*Usage, error) {
	u := &Usage{At: time.Now(), CPU: limit(g.CPUTime())}
	memory := u.setMemory(g)
	// Every cgroup of v2 has cpu.stat, whatever controllers are enabled. A machine
	// with v1 may lack one of the two controllers.
	if u.CPU == nil && (g.V2() || u.Memory == nil) {
		err := cmp.Or[error](g.Err(), &fs.PathError{Op: "read", Path: dir, Err: fs.ErrNotExist})
		if bad := new(kernel.FormatError); !errors.As(err, &bad) { // a file of nonsense is there
			return nil, err
		}
	}
	u.RSS, u.Faults, u.MajorFaults = limit(memory.Anon), limit(memory.Faults), limit(memory.MajorFaults)
	// Without swap accounting there is no limit, and nothing is counted.
	used, most := g.SwapUsage(memory), g.SwapLimit()
	if g.V2() && used.Known() {
		u.Swap, u.SwapLimit = limit(used), limit(most)
	} else if !g.V2() && most.Known() {
		// v1 limits memory and swap together: the limit of swap is the difference.
		u.Swap, u.SwapLimit = limit(used), limit(most.Less(g.MemoryLimit()))
	}
	u.Tasks = limit(g.Threads())
	u.CPUPressure, u.MemoryPressure, u.IOPressure = psi(g.Pressure("cpu")), psi(g.Pressure("memory")), psi(g.Pressure("io"))
	return u, nil
}

// setMemory reads the usage of memory and its limit. The working set is by the kubelet's
// definition: the usage minus inactive file pages, which the kernel reclaims first.
func (u *Usage) setMemory(g *kernel.Group) kernel.Memory {
	usage, memory := g.MemoryUsage(), g.Memory()
	u.Memory, u.WorkingSet, u.MemoryLimit = limit(usage), limit(usage.Less(memory.InactiveFile)), limit(g.MemoryLimit())
	return memory
}

// psi returns the pressure in the form of the API. It returns nil if p is nil.
func psi(p *kernel.Pressure) *statsapi.PSIStats {
	if p == nil {
		return nil
	}
	data := func(s kernel.Stall) statsapi.PSIData {
		return statsapi.PSIData{Total: s.Total, Avg10: s.Avg10, Avg60: s.Avg60, Avg300: s.Avg300}
	}
	return &statsapi.PSIStats{Some: data(p.Some), Full: data(p.Full)}
}

// podCgroup has the cgroups of a pod and its containers. Paths are relative to the root of the
// hierarchy.
type podCgroup struct {
	dir        string
	containers map[string]string // by id
}

// pods returns the pods below root, the cgroup of all pods. It finds them by the names of
// directories, with two or three listings and one for each pod. On v1 it uses the directories of
// the memory controller. If it fails, it returns the pods found before together with the error.
func (c cgroups) pods(root string) (map[types.UID]podCgroup, error) {
	out := map[types.UID]podCgroup{}
	list := func(dir string) ([]string, error) { return c.Children(context.Background(), dir) }
	// tiers is true only at the root: the QoS cgroups are directly below.
	var look func(dir string, tiers bool) error
	look = func(dir string, tiers bool) error {
		names, err := list(dir)
		if err != nil {
			return err
		}
		for _, name := range names {
			sub := path.Join(dir, name)
			if uid := types.UID(podcgroup.PodUID(name)); uid != "" {
				p := podCgroup{dir: sub, containers: map[string]string{}}
				ids, err := list(sub) // a pod that was removed meanwhile has none
				if err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
				// The agent's and the runtime's ids differ in form by cgroup
				// driver: systemd's scopes have a prefix and a suffix.
				for _, id := range ids {
					p.containers[podcgroup.ContainerID(id)] = path.Join(sub, id)
				}
				out[uid] = p
			} else if tiers && isTier(name) {
				if err := look(sub, false); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
			}
		}
		return nil
	}
	return out, look(rel(root), true)
}
