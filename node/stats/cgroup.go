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

// The files of cgroups and their meaning: Documentation/admin-guide/cgroup-v2.rst
// and cgroup-v1/memory.rst of the kernel. A file that is missing is a controller
// that is not enabled, or an older kernel: its number stays nil.

// cgroups reads a cgroup hierarchy, v2 or v1 (with one directory for each
// controller), given as it is mounted at /sys/fs/cgroup. It is a small value
// without state, made anew for each question.
type cgroups struct {
	files fs.FS
	v2    bool
}

// newCgroups finds out the version: a root without cgroup.controllers is v1, or a
// hybrid whose controllers are v1.
func newCgroups(files fs.FS) cgroups {
	_, err := fs.Stat(files, "cgroup.controllers")
	return cgroups{files: files, v2: err == nil}
}

// rel turns a cgroup's path into one of io/fs. The root is ".".
func rel(dir string) string { return path.Clean("./" + strings.Trim(dir, "/")) }

// number reads a file of one number; nil if it is not there or not a number.
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

// keyed reads lines of names and numbers into want; see the function of this name.
func (c cgroups) keyed(name string, want map[string]**uint64) {
	if raw, err := fs.ReadFile(c.files, name); err == nil {
		keyed(raw, want)
	}
}

// pressure reads a file of pressure stall information; nil if there is none.
func (c cgroups) pressure(name string) *statsapi.PSIStats {
	raw, err := fs.ReadFile(c.files, name)
	if err != nil {
		return nil // CONFIG_PSI is off, or psi=0 (then reading fails)
	}
	p, err := parsePressure(raw)
	if err != nil {
		return nil
	}
	return p
}

// read reads one cgroup. The error is fs.ErrNotExist if it is not there. A cgroup
// may go between two of its files: what was read by then is returned.
func (c cgroups) read(dir string) (*Usage, error) {
	dir = rel(dir)
	if c.v2 {
		return c.readV2(dir)
	}
	return c.readV1(dir)
}

// readV2 reads a cgroup of v2, whose files are all in one directory.
func (c cgroups) readV2(dir string) (*Usage, error) {
	file := func(name string) string { return path.Join(dir, name) }
	u := &Usage{At: time.Now()}
	// cpu.stat is in every cgroup, whatever controllers are enabled: without it
	// there is no cgroup.
	raw, err := fs.ReadFile(c.files, file("cpu.stat"))
	if err != nil {
		return nil, err
	}
	keyed(raw, map[string]**uint64{"usage_usec": &u.CPU})
	if u.CPU != nil {
		// Microseconds to nanoseconds.
		*u.CPU *= 1000
	}
	var inactive *uint64
	u.Memory = c.number(file("memory.current"))
	c.keyed(file("memory.stat"), map[string]**uint64{
		// These sums include the cgroups below.
		"inactive_file": &inactive, "anon": &u.RSS, "pgfault": &u.Faults, "pgmajfault": &u.MajorFaults,
	})
	u.setWorkingSet(inactive)
	u.MemoryLimit = c.number(file("memory.max"))
	// Without swap accounting there is no such file, and no limit to report.
	if u.Swap = c.number(file("memory.swap.current")); u.Swap != nil {
		u.SwapLimit = c.number(file("memory.swap.max"))
	}
	u.Tasks = c.number(file("pids.current"))
	u.CPUPressure, u.MemoryPressure, u.IOPressure =
		c.pressure(file("cpu.pressure")), c.pressure(file("memory.pressure")), c.pressure(file("io.pressure"))
	return u, nil
}

// readV1 reads a cgroup of v1, whose files are in one directory for each
// controller. cpuacct may be mounted alone or together with cpu.
func (c cgroups) readV1(dir string) (*Usage, error) {
	u := &Usage{At: time.Now()}
	for _, controller := range []string{"cpuacct", "cpu,cpuacct"} {
		if u.CPU == nil {
			u.CPU = c.number(path.Join(controller, dir, "cpuacct.usage"))
		}
	}
	file := func(name string) string { return path.Join("memory", dir, name) }
	u.Memory = c.number(file("memory.usage_in_bytes"))
	// One of the two may be missing on a machine without that controller; without
	// both the cgroup is gone.
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
	// Without hierarchical accounting the cgroup's own number is all there is.
	if inactive == nil {
		inactive = own
	}
	u.setWorkingSet(inactive)
	u.MemoryLimit = c.number(file("memory.limit_in_bytes"))
	if both := c.number(file("memory.memsw.limit_in_bytes")); both != nil { // swap is counted
		// v1 limits memory and swap together: the limit of swap alone is what
		// exceeds memory's.
		u.Swap, u.SwapLimit = swap, both
		if *both < unlimited {
			u.SwapLimit = ptr(less(*both, zero(u.MemoryLimit)))
		}
	}
	u.Tasks = c.number(path.Join("pids", dir, "pids.current"))
	return u, nil
}

// setWorkingSet: what is used, less what can be dropped at once. The kubelet's
// definition: inactive pages of files are the first that the kernel reclaims. It is
// 0 where the two numbers, which are read one after the other, cross.
func (u *Usage) setWorkingSet(inactive *uint64) {
	if u.Memory != nil {
		u.WorkingSet = ptr(less(*u.Memory, zero(inactive)))
	}
}

// podCgroup is where a pod and its containers are. Paths are from the root of the
// hierarchy, without a slash in front.
type podCgroup struct {
	dir        string
	containers map[string]string // by id
}

// pods finds the pods below their root by the names of directories: two or three
// lists, and one for each pod. root is the cgroup of all pods. An error may come
// beside the pods found before it. On v1 the memory controller's directories count.
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
	// tiers is true at the root alone: classes of service are no deeper.
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
