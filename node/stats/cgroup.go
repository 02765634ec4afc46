package stats

import (
	"errors"
	"io/fs"
	"path"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/internal/podcgroup"
)

// cgroups reads a cgroup hierarchy, v2 or v1 (with one directory for each
// controller), given as it is mounted at /sys/fs/cgroup.
type cgroups struct {
	files fs.FS
	v2    bool
}

func newCgroups(files fs.FS) cgroups {
	_, err := fs.Stat(files, "cgroup.controllers")
	return cgroups{files: files, v2: err == nil}
}

// rel turns a cgroup's path into one of io/fs.
func rel(dir string) string { return path.Clean("./" + strings.Trim(dir, "/")) }

func (c cgroups) number(name string) *uint64 {
	raw, err := fs.ReadFile(c.files, name)
	if err != nil {
		return nil
	}
	if n, err := number(raw); err == nil {
		return &n
	}
	return nil
}

func (c cgroups) keyed(name string, want map[string]**uint64) {
	if raw, err := fs.ReadFile(c.files, name); err == nil {
		keyed(raw, want)
	}
}

func (c cgroups) pressure(name string) *statsapi.PSIStats {
	raw, err := fs.ReadFile(c.files, name)
	if err != nil {
		return nil // CONFIG_PSI is off, or psi=0 (then reading fails)
	}
	p, err := ParsePressure(raw)
	if err != nil {
		return nil
	}
	return p
}

// read reads one cgroup. The error is fs.ErrNotExist if it is not there.
func (c cgroups) read(dir string) (*Usage, error) {
	dir = rel(dir)
	if c.v2 {
		return c.readV2(dir)
	}
	return c.readV1(dir)
}

func (c cgroups) readV2(dir string) (*Usage, error) {
	file := func(name string) string { return path.Join(dir, name) }
	u := &Usage{At: time.Now()}
	raw, err := fs.ReadFile(c.files, file("cpu.stat"))
	if err != nil {
		return nil, err
	}
	keyed(raw, map[string]**uint64{"usage_usec": &u.CPU})
	if u.CPU != nil {
		*u.CPU *= 1000
	}
	var inactive *uint64
	u.Memory = c.number(file("memory.current"))
	c.keyed(file("memory.stat"), map[string]**uint64{
		"inactive_file": &inactive, "anon": &u.RSS, "pgfault": &u.Faults, "pgmajfault": &u.MajorFaults,
	})
	u.setWorkingSet(inactive)
	u.MemoryLimit = c.number(file("memory.max"))
	if u.Swap = c.number(file("memory.swap.current")); u.Swap != nil {
		u.SwapLimit = c.number(file("memory.swap.max"))
	}
	u.Tasks = c.number(file("pids.current"))
	u.CPUPressure, u.MemoryPressure, u.IOPressure =
		c.pressure(file("cpu.pressure")), c.pressure(file("memory.pressure")), c.pressure(file("io.pressure"))
	return u, nil
}

func (c cgroups) readV1(dir string) (*Usage, error) {
	u := &Usage{At: time.Now()}
	for _, controller := range []string{"cpuacct", "cpu,cpuacct"} {
		if u.CPU == nil {
			u.CPU = c.number(path.Join(controller, dir, "cpuacct.usage"))
		}
	}
	file := func(name string) string { return path.Join("memory", dir, name) }
	u.Memory = c.number(file("memory.usage_in_bytes"))
	if u.CPU == nil && u.Memory == nil {
		return nil, &fs.PathError{Op: "read", Path: dir, Err: fs.ErrNotExist}
	}
	// Those that begin with total_ count the cgroups below too. The kubelet reports
	// faults of the cgroup alone: those of pods are few, for all are containers'.
	var inactive, own, swap *uint64
	c.keyed(file("memory.stat"), map[string]**uint64{
		"total_inactive_file": &inactive, "total_rss": &u.RSS, "pgfault": &u.Faults, "pgmajfault": &u.MajorFaults,
		"inactive_file": &own, "total_swap": &swap,
	})
	if inactive == nil {
		inactive = own
	}
	u.setWorkingSet(inactive)
	u.MemoryLimit = c.number(file("memory.limit_in_bytes"))
	if both := c.number(file("memory.memsw.limit_in_bytes")); both != nil { // swap is counted
		u.Swap, u.SwapLimit = swap, both
		if *both < unlimited {
			u.SwapLimit = ptr(less(*both, zero(u.MemoryLimit)))
		}
	}
	u.Tasks = c.number(path.Join("pids", dir, "pids.current"))
	return u, nil
}

// setWorkingSet: what is used, less what can be dropped at once.
func (u *Usage) setWorkingSet(inactive *uint64) {
	if u.Memory != nil {
		u.WorkingSet = ptr(less(*u.Memory, zero(inactive)))
	}
}

// podCgroup is where a pod and its containers are.
type podCgroup struct {
	dir        string
	containers map[string]string // by id
}

// pods finds the pods below their root by the names of directories: two or
// three lists, and one for each pod.
func (c cgroups) pods(root string) (map[types.UID]podCgroup, error) {
	top := ""
	if !c.v2 {
		top = "memory"
	}
	out := map[types.UID]podCgroup{}
	list := func(dir string) ([]string, error) {
		entries, err := fs.ReadDir(c.files, path.Join(top, dir))
		var names []string
		for _, e := range entries {
			if e.IsDir() {
				names = append(names, e.Name())
			}
		}
		return names, err
	}
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
				ids, err := list(sub) // a pod that is gone by now has none
				if err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
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
