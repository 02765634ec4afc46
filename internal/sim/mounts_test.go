package sim

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/volumemgr/mount"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

// mounts is the machine's mount table. What is below a tmpfs is in memory, although the
// files are in the machine's directory: it goes with the mount.
type mounts struct{ plugintest.MountMemory }

// Table has bind mounts of their source's file system, as the kernel's are.
func (m *mounts) Table(ctx context.Context) (mount.Table, error) {
	all, err := m.MountMemory.Table(ctx)
	for i := range all {
		if at := all.At(all[i].Source); strings.HasPrefix(all[i].Source, "/") && len(at) > 0 {
			all[i].Root, all[i].Source = at[0].Root, at[0].Source
		}
	}
	return all, err
}

// Unmount empties what was in memory.
func (m *mounts) Unmount(ctx context.Context, target string, how mount.How) error {
	inMemory := m.inMemory(target)
	err := m.MountMemory.Unmount(ctx, target, how)
	if err == nil && inMemory && !m.inMemory(target) {
		empty(target)
	}
	return err
}

// losePower unmounts all, from the last on.
func (m *mounts) losePower() {
	all, _ := m.Table(context.Background())
	for _, e := range slices.Backward(all) {
		_ = m.Unmount(context.Background(), e.Target, mount.Plain)
	}
}

// inMemory reports whether a path is below a tmpfs.
func (m *mounts) inMemory(path string) bool {
	all, _ := m.MountMemory.Table(context.Background())
	return slices.ContainsFunc(all, func(e mount.Entry) bool {
		return e.Type == "tmpfs" && (path == e.Target || strings.HasPrefix(path, e.Target+"/"))
	})
}

func empty(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		_ = os.RemoveAll(filepath.Join(dir, e.Name()))
	}
}

// below lists what is mounted in a directory.
func (m *mounts) below(dir string) (out []string) {
	all, _ := m.MountMemory.Table(context.Background())
	for _, e := range all {
		if e.Target == dir || strings.HasPrefix(e.Target, dir+"/") {
			out = append(out, e.Target)
		}
	}
	return out
}

// mounter is the mount table as one life of the agent sees it.
type mounter struct{ l *life }

var _ mount.Mounter = mounter{}

// do passes a change of the table through the gate, where it may fail.
func (m mounter) do(ctx context.Context, method, target string, change func() error) error {
	machine := m.l.m
	return m.l.gate().call(ctx, method, machine.ownerOf(target), true, nil, change)
}

func (m mounter) Mount(ctx context.Context, f mount.FileSystem) error {
	return m.do(ctx, "Mount", f.Target, func() error { return m.l.m.mounts.Mount(ctx, f) })
}

func (m mounter) Bind(ctx context.Context, b mount.Bind) error {
	return m.do(ctx, "Mount", b.Target, func() error { return m.l.m.mounts.Bind(ctx, b) })
}

func (m mounter) Unmount(ctx context.Context, target string, how mount.How) error {
	return m.do(ctx, "Unmount", target, func() error { return m.l.m.mounts.Unmount(ctx, target, how) })
}

func (m mounter) Table(ctx context.Context) (mount.Table, error) {
	if m.l.isDead() {
		return nil, errDead
	}
	return m.l.m.mounts.Table(ctx)
}

// ownerOf is the name of the pod whose directory a path is in.
func (m *machine) ownerOf(path string) string {
	rest, below := strings.CutPrefix(path, filepath.Join(m.root(), "pods")+"/")
	if !below {
		return ""
	}
	uid, _, _ := strings.Cut(rest, "/")
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pods[types.UID(uid)]; p != nil {
		return p.object.Name
	}
	return ""
}

// judgeSecrets looks for what is secret on what outlasts the machine. m.mu is held.
func (m *machine) judgeSecrets() {
	if !m.secretive {
		return
	}
	inMemory := map[string]bool{}
	all, _ := m.mounts.MountMemory.Table(context.Background())
	for _, e := range all {
		inMemory[e.Target] = inMemory[e.Target] || e.Type == "tmpfs"
	}
	var now syscall.Timeval // that of the machine that runs the test: a bubble's is another
	if syscall.Gettimeofday(&now) != nil {
		return
	}
	if m.looked == nil {
		m.looked = &looked{path: m.dir}
	}
	m.lookForSecrets(m.looked, inMemory, now.Nano())
}

// lookForSecrets looks at a directory of the disk and all below it. m.mu is held.
func (m *machine) lookForSecrets(d *looked, inMemory map[string]bool, now int64) {
	if inMemory[d.path] {
		*d = looked{path: d.path}
		return
	}
	if state, settled := stateOf(d.path, now, ticks()); !settled || d.state != state {
		d.list(state)
	}
	for _, f := range d.files {
		state, settled := stateOf(f.path, now, ticks())
		if settled && f.state == state {
			continue
		}
		f.state = state
		if b, _ := os.ReadFile(f.path); strings.Contains(string(b), secretMark) {
			m.wrong("a secret is on the disk: %s", strings.TrimPrefix(f.path, m.dir))
			f.state = fileState{}
		}
	}
	for _, sub := range d.dirs {
		m.lookForSecrets(sub, inMemory, now)
	}
}

// looked is what judgeSecrets found at a path: a file without a secret in it, or a directory
// with its entries.
type looked struct {
	path        string
	state       fileState
	dirs, files []*looked
}

// list reads a directory. What is known of entries that were there stays.
func (d *looked) list(state fileState) {
	dirs, files := byPath(d.dirs), byPath(d.files)
	d.state, d.dirs, d.files = state, nil, nil
	entries, _ := os.ReadDir(d.path) // it may have gone meanwhile
	for _, e := range entries {
		switch path := filepath.Join(d.path, e.Name()); {
		case e.IsDir():
			d.dirs = append(d.dirs, cmp.Or(dirs[path], &looked{path: path}))
		case e.Type().IsRegular():
			d.files = append(d.files, cmp.Or(files[path], &looked{path: path}))
		}
	}
}

func byPath(list []*looked) map[string]*looked {
	out := make(map[string]*looked, len(list))
	for _, l := range list {
		out[l.path] = l
	}
	return out
}

// fileState is what one content of a file or a directory has otherwise than another: what is
// written to it later, or renamed to its place, differs in one of them.
type fileState struct {
	inode   uint64
	size    int64
	changed int64 // in nanoseconds of the disk's own clock
}

// ticks is more than the disk's clock stands still: what was changed that long ago has
// another time when it changes again. With the timestamps of Linux 6.13 and later
// (Documentation/filesystems/multigrain-ts.rst) each change has, if somebody has looked at the
// one before.
var ticks = sync.OnceValue(func() time.Duration {
	const coarse = 20 * time.Millisecond
	dir, err := os.MkdirTemp(shm, "sim")
	if err != nil {
		return coarse
	}
	defer func() { _ = os.RemoveAll(dir) }()
	f := filepath.Join(dir, "f")
	seen := map[int64]bool{}
	const changes = 20
	for range changes {
		if os.WriteFile(f, []byte("f"), 0o600) != nil {
			return coarse
		}
		state, _ := stateOf(f, 0, coarse)
		seen[state.changed] = true
	}
	if len(seen) < changes {
		return coarse
	}
	return 0
})

// stateOf is the state of what is at a path, and whether each later one is another than it
// was at that time, by a clock that stands still for less than tick.
func stateOf(path string, now int64, tick time.Duration) (_ fileState, settled bool) {
	var st syscall.Stat_t
	if syscall.Lstat(path, &st) != nil {
		return fileState{}, false
	}
	changed := st.Ctim.Nano()
	return fileState{st.Ino, st.Size, changed}, now-changed > int64(tick)
}
