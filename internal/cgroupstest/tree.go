// Package cgroupstest has a cgroup file system in memory, for tests of package
// cgroups and its users.
package cgroupstest

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/nodewright/nodewright/cgroups"
)

// Mount is the directory of the hierarchies.
const Mount = "/sys/fs/cgroup"

// Tree acts as the cgroup file systems of a kernel: a new directory has its files,
// invalid values are refused, and a directory with processes or children cannot be
// removed. It implements cgroups.FS and cgroups.Notifier. Its methods may be called
// from any goroutine.
type Tree struct {
	version cgroups.Version

	mu      sync.Mutex
	dirs    map[string]*dir
	static  map[string]string // other files
	faults  map[string]error  // by operation, blank and path; the path * matches any
	hangs   map[string]chan struct{}
	writes  []string // "path value"
	signals map[*signal]bool
	immune  map[int]bool // processes that Kill does not end
}

type dir struct {
	files    map[string]string
	children int
	procs    []int
}

type signal struct {
	file, arg string
	wake      func()
}

// NewTree returns the cgroup file system of a machine with 2 CPUs, huge pages of 2 MiB
// and 1 GiB, and all controllers that package cgroups uses.
func NewTree(v cgroups.Version) *Tree {
	t := &Tree{
		version: v, dirs: map[string]*dir{}, static: map[string]string{}, faults: map[string]error{},
		hangs: map[string]chan struct{}{}, signals: map[*signal]bool{}, immune: map[int]bool{},
	}
	t.dirs["/sys/kernel/mm/hugepages"] = &dir{}
	t.dirs["/sys/kernel/mm/hugepages/hugepages-2048kB"] = &dir{}
	t.dirs["/sys/kernel/mm/hugepages/hugepages-1048576kB"] = &dir{}
	t.SetControllers("cpu", "cpuacct", "cpuset", "memory", "pids", "hugetlb", "io")
	return t
}

// SetControllers removes all cgroups and files, and creates the root again with only
// these controllers.
func (t *Tree) SetControllers(names ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var info strings.Builder
	for d := range t.dirs {
		if strings.HasPrefix(d, Mount) {
			delete(t.dirs, d)
		}
	}
	if t.version == cgroups.V2 {
		names = slices.DeleteFunc(slices.Clone(names), func(s string) bool { return s == "cpuacct" })
		fmt.Fprintf(&info, "30 24 0:26 / %s rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n", Mount)
		t.dirs[Mount] = &dir{files: map[string]string{
			"cgroup.controllers": strings.Join(names, " "), "cgroup.subtree_control": "", "cgroup.procs": "", "cpu.stat": "usage_usec 1\n",
			"cpu.pressure": noStall, "memory.pressure": noStall, "io.pressure": noStall,
		}}
	} else {
		for i, c := range names {
			if c == "io" {
				continue
			}
			fmt.Fprintf(&info, "%d 24 0:%d / %s/%s rw,relatime shared:%d - cgroup cgroup rw,%s\n", 30+i, 26+i, Mount, c, i, c)
			d := &dir{files: filesV1(c)}
			if c == "cpuset" {
				d.files["cpuset.cpus"], d.files["cpuset.mems"] = "0-1", "0"
			}
			t.dirs[Mount+"/"+c] = d
		}
	}
	t.static["/proc/self/mountinfo"] = info.String()
}

const noStall = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"

func filesV1(controller string) map[string]string {
	out := map[string]string{"cgroup.procs": "", "notify_on_release": "0"}
	for file, value := range map[string]map[string]string{
		"cpu":     {"cpu.shares": "1024", "cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000", "cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n"},
		"cpuacct": {"cpuacct.usage": "0", "cpuacct.stat": "user 0\nsystem 0\n"},
		"cpuset":  {"cpuset.cpus": "", "cpuset.mems": "", cloneChildren: "0"},
		"memory": {
			"memory.limit_in_bytes": unlimited, "memory.memsw.limit_in_bytes": unlimited, "memory.usage_in_bytes": "0",
			"memory.failcnt": "0", "memory.stat": "total_rss 0\n", "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
			"cgroup.event_control": "",
		},
		"pids":    {"pids.max": "max", "pids.current": "0"},
		"hugetlb": {"hugetlb.2MB.limit_in_bytes": unlimited, "hugetlb.1GB.limit_in_bytes": unlimited, "hugetlb.2MB.usage_in_bytes": "0", "hugetlb.1GB.usage_in_bytes": "0"},
	}[controller] {
		out[file] = value
	}
	return out
}

const (
	unlimited     = "9223372036854771712"
	cloneChildren = "cgroup.clone_children" // of v1's cpuset
)

// filesV2 returns the files that a controller adds to a cgroup.
func filesV2(controller string) map[string]string {
	return map[string]map[string]string{
		"cpu":    {"cpu.weight": "100", "cpu.max": "max 100000"},
		"cpuset": {"cpuset.cpus": "", "cpuset.mems": ""},
		"memory": {
			"memory.max": "max", "memory.min": "0", "memory.low": "0", "memory.high": "max", "memory.current": "0",
			"memory.swap.max": "max", "memory.swap.current": "0", "memory.stat": "anon 0\ninactive_file 0\n", "memory.oom.group": "0",
			"memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n",
		},
		"pids":    {"pids.max": "max", "pids.current": "0"},
		"hugetlb": {"hugetlb.2MB.max": "max", "hugetlb.1GB.max": "max", "hugetlb.2MB.current": "0", "hugetlb.1GB.current": "0"},
	}[controller]
}

// coreV2 returns the files that every cgroup except the root has, with any controllers.
func coreV2() map[string]string {
	return map[string]string{
		"cgroup.controllers": "", "cgroup.subtree_control": "", "cgroup.procs": "", "cgroup.events": "populated 0\nfrozen 0\n",
		"cgroup.kill": "", "cpu.stat": "usage_usec 0\nuser_usec 0\nsystem_usec 0\n",
		"cpu.pressure": noStall, "memory.pressure": noStall, "io.pressure": noStall,
	}
}

// trip waits while Hang blocks the operation. Then it returns the error that Fail has set
// for the operation, if any.
func (t *Tree) trip(op, p string) error {
	t.mu.Lock()
	err, hang := t.faults[op+" "+p], t.hangs[op+" "+p]
	if err == nil {
		err = t.faults[op+" *"]
	}
	t.mu.Unlock()
	if hang != nil {
		<-hang
	}
	if err != nil {
		return pathError(op, p, err)
	}
	return nil
}

func pathError(op, p string, err error) error { return &fs.PathError{Op: op, Path: p, Err: err} }

// Read implements cgroups.FS.
func (t *Tree) Read(p string) ([]byte, error) {
	if err := t.trip("read", p); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if s, ok := t.static[p]; ok {
		return []byte(s), nil
	}
	d := t.dirs[path.Dir(p)]
	if d == nil {
		return nil, pathError("open", p, syscall.ENOENT)
	}
	s, ok := d.files[path.Base(p)]
	if !ok {
		return nil, pathError("open", p, syscall.ENOENT)
	}
	if path.Base(p) == "cgroup.procs" {
		s = ""
		for _, pid := range d.procs {
			s += strconv.Itoa(pid) + "\n"
		}
	}
	return []byte(s), nil
}

// Write implements cgroups.FS.
func (t *Tree) Write(p, value string) error {
	if err := t.trip("write", p); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	d, file := t.dirs[path.Dir(p)], path.Base(p)
	if d == nil {
		return pathError("open", p, syscall.ENOENT)
	}
	if _, ok := d.files[file]; !ok {
		return pathError("open", p, syscall.ENOENT)
	}
	if err := t.set(path.Dir(p), d, file, value); err != nil {
		return pathError("write", p, err)
	}
	t.writes = append(t.writes, p+" "+value)
	return nil
}

// set applies a value as the kernel does.
func (t *Tree) set(at string, d *dir, file, value string) error {
	switch file {
	case "cgroup.subtree_control":
		return t.subtree(at, d, value)
	case "cgroup.procs":
		return t.move(at, d, value)
	case "cgroup.kill":
		if value != "1" {
			return syscall.EINVAL
		}
		t.killBelow(at)
		return nil
	}
	kind := ""
	for _, suffix := range []string{".max", ".limit_in_bytes", ".min", ".low", ".high"} {
		if strings.HasSuffix(file, suffix) {
			kind = "limit"
		}
	}
	switch {
	case file == "cpu.max":
		f := strings.Fields(value)
		if len(f) != 2 || !number(f[1], 1000, 1000000) || f[0] != "max" && !number(f[0], 1000, 1<<44) {
			return syscall.EINVAL
		}
	case file == "cpu.weight" && !number(value, 1, 10000):
		return syscall.ERANGE
	case file == "cpu.shares":
		if !number(value, 0, 1<<62) {
			return syscall.EINVAL
		}
		n, _ := strconv.ParseUint(value, 10, 64)
		value = strconv.FormatUint(min(max(n, 2), 262144), 10)
	case file == "cpu.cfs_quota_us" && value != "-1" && !number(value, 1000, 1<<44),
		file == "cpu.cfs_period_us" && !number(value, 1000, 1000000):
		return syscall.EINVAL
	case strings.HasPrefix(file, "cpuset.") && value == "":
		return syscall.ENOSPC
	case kind == "limit":
		var err error
		if value, err = t.limit(d, file, value); err != nil {
			return err
		}
	}
	d.files[file] = value
	return nil
}

// move puts the process with the ID value into a cgroup, as a write to cgroup.procs does.
// It returns ESRCH if no cgroup of the same hierarchy has the process.
func (t *Tree) move(at string, to *dir, value string) error {
	pid, err := strconv.Atoi(value)
	if err != nil {
		return syscall.EINVAL
	}
	depth := 3 // path elements of the mount point, /sys/fs/cgroup
	if t.version == cgroups.V1 {
		depth++ // the controller's directory
	}
	point := strings.Join(strings.SplitN(at, "/", depth+2)[:depth+1], "/")
	for p, d := range t.dirs {
		if i := slices.Index(d.procs, pid); i >= 0 && (p == point || strings.HasPrefix(p, point+"/")) {
			d.procs = slices.Delete(d.procs, i, i+1)
			to.procs = append(to.procs, pid)
			return nil
		}
	}
	return syscall.ESRCH
}

func number(s string, lo, hi uint64) bool {
	n, err := strconv.ParseUint(s, 10, 64)
	return err == nil && n >= lo && n <= hi
}

// limit checks a limit and returns it in bytes, a memory limit rounded down to pages. On
// v1 it also compares a memory limit with the usage, and the limits with and without
// swap with each other.
func (t *Tree) limit(d *dir, file, value string) (string, error) {
	v1 := strings.HasSuffix(file, ".limit_in_bytes")
	if value == "max" && !v1 || value == "max" && file == "pids.max" {
		return "max", nil
	}
	if value == "-1" && v1 {
		value = unlimited
	}
	n, err := strconv.ParseUint(value, 10, 63)
	if err != nil {
		return "", syscall.EINVAL
	}
	if strings.HasPrefix(file, "memory.") {
		n = n / 4096 * 4096
	}
	get := func(name string) uint64 {
		n, _ := strconv.ParseUint(d.files[name], 10, 64)
		return n
	}
	switch {
	case file == "memory.limit_in_bytes" && n < get("memory.usage_in_bytes"):
		return "", syscall.EBUSY
	case file == "memory.limit_in_bytes" && n > get("memory.memsw.limit_in_bytes") && d.files["memory.memsw.limit_in_bytes"] != "",
		file == "memory.memsw.limit_in_bytes" && n < get("memory.limit_in_bytes"):
		return "", syscall.EINVAL
	}
	return strconv.FormatUint(n, 10), nil
}

func (t *Tree) subtree(at string, d *dir, value string) error {
	if len(d.procs) > 0 && at != Mount {
		return syscall.EBUSY // the "no internal process" constraint of v2
	}
	on := strings.Fields(d.files["cgroup.subtree_control"])
	for _, c := range strings.Fields(value) {
		c, ok := strings.CutPrefix(c, "+")
		if !ok {
			return syscall.EINVAL
		}
		if !slices.Contains(strings.Fields(d.files["cgroup.controllers"]), c) {
			return syscall.ENOENT
		}
		if !slices.Contains(on, c) {
			on = append(on, c)
		}
	}
	d.files["cgroup.subtree_control"] = strings.Join(on, " ")
	for p, child := range t.dirs {
		if path.Dir(p) == at {
			t.give(child, on)
		}
	}
	return nil
}

func (t *Tree) give(d *dir, controllers []string) {
	d.files["cgroup.controllers"] = strings.Join(controllers, " ")
	for _, c := range controllers {
		for file, value := range filesV2(c) {
			if _, ok := d.files[file]; !ok {
				d.files[file] = value
			}
		}
	}
}

// Mkdir implements cgroups.FS.
func (t *Tree) Mkdir(p string) error {
	if err := t.trip("mkdir", p); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	parent := t.dirs[path.Dir(p)]
	switch {
	case t.dirs[p] != nil:
		return pathError("mkdir", p, syscall.EEXIST)
	case parent == nil:
		return pathError("mkdir", p, syscall.ENOENT)
	}
	d := &dir{}
	if t.version == cgroups.V2 {
		d.files = coreV2()
		t.give(d, strings.Fields(parent.files["cgroup.subtree_control"]))
	} else {
		controller, _, _ := strings.Cut(strings.TrimPrefix(p, Mount+"/"), "/")
		d.files = filesV1(controller)
		if parent.files[cloneChildren] == "1" {
			for _, file := range []string{"cpuset.cpus", "cpuset.mems", cloneChildren} {
				d.files[file] = parent.files[file]
			}
		}
	}
	parent.children++
	t.dirs[p] = d
	return nil
}

// Rmdir implements cgroups.FS.
func (t *Tree) Rmdir(p string) error {
	if err := t.trip("rmdir", p); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.dirs[p]
	switch {
	case d == nil:
		return pathError("rmdir", p, syscall.ENOENT)
	case d.children > 0:
		return pathError("rmdir", p, syscall.ENOTEMPTY)
	case len(d.procs) > 0:
		return pathError("rmdir", p, syscall.EBUSY)
	}
	delete(t.dirs, p)
	t.dirs[path.Dir(p)].children--
	return nil
}

// Dirs implements cgroups.FS.
func (t *Tree) Dirs(p string) ([]string, error) {
	if err := t.trip("list", p); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dirs[p] == nil {
		return nil, pathError("open", p, syscall.ENOENT)
	}
	var out []string
	for d := range t.dirs {
		if path.Dir(d) == p {
			out = append(out, path.Base(d))
		}
	}
	slices.Sort(out)
	return out, nil
}

// ErrInjected is an error for tests that need any error.
var ErrInjected = errors.New("injected")
