package cgroupstest

import (
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/nodewright/nodewright/cgroups"
)

// Fail makes every operation op (read, write, mkdir, rmdir, list or watch) on path p
// return err. If err is nil, the operation works again. The path * matches any path.
func (t *Tree) Fail(op, p string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		delete(t.faults, op+" "+p)
		return
	}
	t.faults[op+" "+p] = err
}

// Hang blocks every operation op on path p until the caller calls release.
func (t *Tree) Hang(op, p string) (release func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := make(chan struct{})
	t.hangs[op+" "+p] = c
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.hangs, op+" "+p)
		close(c)
	}
}

// at returns the directory of a cgroup in the hierarchy of a controller.
func (t *Tree) at(controller, cgroup string) string {
	if t.version == cgroups.V2 {
		return path.Join(Mount, cgroup)
	}
	return path.Join(Mount, controller, cgroup)
}

// Value returns the content of a file of a cgroup. It returns "" if there is no such file.
func (t *Tree) Value(cgroup, file string) string {
	data, err := t.Read(path.Join(t.at(controllerOf(file), cgroup), file))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

func controllerOf(file string) string {
	c, _, _ := strings.Cut(file, ".")
	return c
}

// Set writes a file without the checks of the kernel, to simulate a usage or a change
// by another process. If value is "", it deletes the file.
func (t *Tree) Set(cgroup, file, value string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.dirs[t.at(controllerOf(file), cgroup)]
	if d == nil {
		return
	}
	if value == "" {
		delete(d.files, file)
		return
	}
	d.files[file] = value
}

// Make creates a cgroup in every hierarchy, as another process might.
func (t *Tree) Make(cgroup string) {
	for _, p := range t.paths(cgroup) {
		_ = t.Mkdir(p) // it may exist
	}
}

// Remove deletes a cgroup without children from every hierarchy, as another process
// might.
func (t *Tree) Remove(cgroup string) {
	for _, p := range t.paths(cgroup) {
		if err := t.Rmdir(p); err != nil {
			panic(err)
		}
	}
}

func (t *Tree) paths(cgroup string) []string {
	if t.version == cgroups.V2 {
		return []string{path.Join(Mount, cgroup)}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []string
	for d := range t.dirs {
		if path.Dir(d) == Mount {
			out = append(out, path.Join(d, cgroup))
		}
	}
	return out
}

// Exists reports whether the cgroup has a directory in any hierarchy.
func (t *Tree) Exists(cgroup string) bool {
	paths := t.paths(cgroup)
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(paths, func(p string) bool { return t.dirs[p] != nil })
}

// File creates a file outside of the cgroups, such as one of /proc.
func (t *Tree) File(path, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.static[path] = text
}

// Put moves a process into a cgroup. Kill has no effect on an immune process.
func (t *Tree) Put(cgroup string, pid int, immune bool) {
	paths := t.paths(cgroup)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(pid)
	t.immune[pid] = immune
	for _, p := range paths {
		if d := t.dirs[p]; d != nil {
			d.procs = append(d.procs, pid)
		}
	}
}

func (t *Tree) drop(pid int) {
	for _, d := range t.dirs {
		d.procs = slices.DeleteFunc(d.procs, func(p int) bool { return p == pid })
	}
}

// Kill ends a process unless it is immune. Tests set it as cgroups.Config.Kill.
func (t *Tree) Kill(pid int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.immune[pid] {
		t.drop(pid)
	}
	return nil
}

func (t *Tree) killBelow(at string) {
	for p, d := range t.dirs {
		if p == at || strings.HasPrefix(p, at+"/") {
			d.procs = slices.DeleteFunc(d.procs, func(pid int) bool { return !t.immune[pid] })
		}
	}
}

// Writes returns the accepted writes since the last call, as "path value".
func (t *Tree) Writes() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.writes
	t.writes = nil
	return out
}

// Notify implements cgroups.Notifier. Change calls wake.
func (t *Tree) Notify(s cgroups.Signal, wake func()) (stop func(), err error) {
	if err := t.trip("watch", s.File); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if d := t.dirs[path.Dir(s.File)]; d == nil || d.files[path.Base(s.File)] == "" {
		return nil, pathError("open", s.File, syscall.ENOENT)
	}
	sig := &signal{s.File, s.Arg, wake}
	t.signals[sig] = true
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.signals, sig)
	}, nil
}

// Change writes a file and calls the watchers of that file.
func (t *Tree) Change(cgroup, file, value string) {
	t.Set(cgroup, file, value)
	p := path.Join(t.at(controllerOf(file), cgroup), file)
	t.mu.Lock()
	var wakes []func()
	for sig := range t.signals {
		if sig.file == p {
			wakes = append(wakes, sig.wake)
		}
	}
	t.mu.Unlock()
	for _, wake := range wakes {
		wake()
	}
}

// Watched returns the watched files, each with its event.
func (t *Tree) Watched() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []string
	for sig := range t.signals {
		out = append(out, strings.TrimSpace(sig.file+" "+sig.arg))
	}
	slices.Sort(out)
	return out
}
