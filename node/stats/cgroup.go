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

// The files of cgroups are described in Documentation/admin-guide/cgroup-v2.rst and
// cgroup-v1/memory.rst of the kernel. A missing file belongs to a controller that
// is not enabled, or to a newer kernel: its number stays nil.

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

// rel converts a cgroup's path to a path of io/fs. The root is ".".
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

// read reads one cgroup. If it does not exist, the error is fs.ErrNotExist. If it
// is removed meanwhile, the values read until then are returned.
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
	// Every cgroup has cpu.stat, whatever controllers are enabled: without it the
	// cgroup does not exist.
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
	// Without swap accounting the file is missing, and there is no limit.
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
	// A machine may lack one of the two controllers; without both the cgroup is
	// gone.
	if u.CPU == nil && u.Memory == nil {
		return nil, &fs.PathError{Op: "read", Path: dir, Err: fs.ErrNotExist}
	}
	// Keys with the prefix total_ include the cgroups below. Like the kubelet's,
	// faults are those of the cgroup alone.
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
		// v1 limits memory and swap together: the limit of swap is the difference.
		u.Swap, u.SwapLimit = swap, both
		if *both < unlimited {
			u.SwapLimit = ptr(less(*both, zero(u.MemoryLimit)))
		}
	}
	u.Tasks = c.number(path.Join("pids", dir, "pids.current"))
	return u, nil
}

// setWorkingSet sets the working set by the kubelet's definition: the usage minus
// inactive file pages, which the kernel reclaims first. It is 0 if the difference
// is negative, since the two numbers are read one after the other.
func (u *Usage) setWorkingSet(inactive *uint64) {
	if u.Memory != nil {
		u.WorkingSet = ptr(less(*u.Memory, zero(inactive)))
	}
}

// podCgroup has the cgroups of a pod and its containers. Paths are relative to the root of the
// hierarchy.
type podCgroup struct {
	dir        string
	containers map[string]string // by id
}

// pods returns the pods below their root, found by directory names: two or three
// listings, and one for each pod. root is the cgroup of all pods. With an error the
// pods found before are returned. On v1 the directories of the memory controller
// are used.
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
