// Package plugintest helps to test volume plugins and their manager. It has:
//
//   - [Node], a node in memory, on which each call can be made to fail or to be the last one
//     before a crash;
//   - [Conform], a conformance suite for plugins;
//   - [MountMemory], a [mount.Mounter] in memory, and [ConformMounter], a conformance suite for
//     mounters;
//   - [RequireMounts], for tests of real mounts in a private mount namespace.
//
// Tier: kit.
package plugintest

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nodewright/nodewright/internal/rmtree"
	"github.com/nodewright/nodewright/volumemgr"
)

// ErrCrashed is the error of every call after the simulated end of the process; see Node.Die.
var ErrCrashed = errors.New("the process has died")

// Node is a disk and a mount table in memory. It implements a manager's Files and Mounter. A file
// written below a mount point belongs to the mounted file system, so that a test sees whether it
// was deleted.
//
// It does not follow symbolic links.
type Node struct {
	mu          sync.Mutex
	fail, spoil func(op, path string) error
	files       map[string]file // by file system and path: "fs:/path"
	mounts      []mounted
	tmpfs       int
	writes      int // number of changing calls
	dies        int // number of the changing call at which the process ends; 0: never
}

type file struct {
	mode fs.FileMode
	data string // content of a file, or target of a link
}

type mounted struct {
	volumemgr.Mount
	backing string // the mounted path: "fs:/path"
}

// New returns a node with an empty disk.
func New() *Node { return &Node{files: map[string]file{":/": {mode: fs.ModeDir | 0o755}}} }

// Die ends the process at the n-th changing call from now: before the call, which then does
// nothing, or after it.
func (n *Node) Die(at int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.writes, n.dies = 0, at
}

// Faults makes calls fail. fail is called before each call. If fail returns an error, the call
// does nothing and returns this error. spoil is called after each call that changes something. If
// spoil returns an error, the call returns this error although it took effect. Both may be nil.
// They are called one at a time and must not call the node.
func (n *Node) Faults(fail, spoil func(op, path string) error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fail, n.spoil = fail, spoil
}

// Revive simulates a new process: calls succeed again.
func (n *Node) Revive() { n.Die(0) }

// Writes returns the number of changing calls since the last Die or Revive.
func (n *Node) Writes() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.writes
}

// begin returns an error if a call must not proceed.
func (n *Node) begin(op, path string, write bool) error {
	if n.dies > 0 && n.writes >= n.dies {
		return ErrCrashed
	}
	if n.fail != nil {
		if err := n.fail(op, path); err != nil {
			return err
		}
	}
	if write {
		n.writes++
	}
	return nil
}

// end returns the error of a call that has taken effect, or nil.
func (n *Node) end(op, path string) error {
	if n.spoil != nil {
		if err := n.spoil(op, path); err != nil {
			return err
		}
	}
	if n.dies > 0 && n.writes >= n.dies {
		return ErrCrashed
	}
	return nil
}

func within(p, dir string) bool { return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/") }

// at returns the key of a path, resolved through the mounts: "fs:/path".
func (n *Node) at(p string) string {
	p = path.Clean(p)
	var best *mounted
	for i := range n.mounts {
		if m := &n.mounts[i]; within(p, m.Path) && (best == nil || len(m.Path) >= len(best.Path)) {
			best = m
		}
	}
	if best == nil {
		return ":" + p
	}
	rest := strings.TrimPrefix(p, best.Path)
	if rest == "" {
		return best.backing
	}
	return strings.TrimSuffix(best.backing, "/") + rest
}

func perr(op, p string, err error) error { return &fs.PathError{Op: op, Path: p, Err: err} }

// children returns the names in the directory that is stored under key.
func (n *Node) children(key string) []string {
	prefix := strings.TrimSuffix(key, "/") + "/"
	var out []string
	for k := range n.files {
		if rest, ok := strings.CutPrefix(k, prefix); ok && rest != "" && !strings.Contains(rest, "/") {
			out = append(out, rest)
		}
	}
	slices.Sort(out)
	return out
}

// ReadDir lists a directory.
func (n *Node) ReadDir(name string) ([]fs.DirEntry, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.begin("readdir", name, false); err != nil {
		return nil, err
	}
	key := n.at(name)
	f, ok := n.files[key]
	if !ok {
		return nil, perr("readdir", name, fs.ErrNotExist)
	}
	if !f.mode.IsDir() {
		return nil, perr("readdir", name, syscall.ENOTDIR)
	}
	var out []fs.DirEntry
	for _, c := range n.children(key) {
		out = append(out, fs.FileInfoToDirEntry(info{c, n.files[n.at(path.Join(name, c))]}))
	}
	return out, nil
}

// Lstat describes the file at name.
func (n *Node) Lstat(name string) (fs.FileInfo, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.begin("lstat", name, false); err != nil {
		return nil, err
	}
	f, ok := n.files[n.at(name)]
	if !ok {
		return nil, perr("lstat", name, fs.ErrNotExist)
	}
	return info{path.Base(name), f}, nil
}

// Readlink returns the target of a link.
func (n *Node) Readlink(name string) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.begin("readlink", name, false); err != nil {
		return "", err
	}
	f, ok := n.files[n.at(name)]
	switch {
	case !ok:
		return "", perr("readlink", name, fs.ErrNotExist)
	case f.mode&fs.ModeSymlink == 0:
		return "", perr("readlink", name, syscall.EINVAL)
	}
	return f.data, nil
}

// MkdirAll creates a directory and its parents.
func (n *Node) MkdirAll(name string, perm fs.FileMode) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.begin("mkdir", name, true); err != nil {
		return err
	}
	for p := path.Clean(name); p != "/"; p = path.Dir(p) {
		f, ok := n.files[n.at(p)]
		if ok && !f.mode.IsDir() {
			return perr("mkdir", name, syscall.ENOTDIR)
		}
		if !ok {
			n.files[n.at(p)] = file{mode: fs.ModeDir | perm}
		}
	}
	return n.end("mkdir", name)
}

// Symlink creates a link.
func (n *Node) Symlink(target, name string) error {
	return n.create("symlink", name, file{fs.ModeSymlink | 0o777, target})
}

// Write creates a file.
func (n *Node) Write(name, data string) error { return n.create("write", name, file{0o644, data}) }

func (n *Node) create(op, name string, f file) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.begin(op, name, true); err != nil {
		return err
	}
	if dir, ok := n.files[n.at(path.Dir(path.Clean(name)))]; !ok || !dir.mode.IsDir() {
		return perr(op, name, fs.ErrNotExist)
	}
	key := n.at(name)
	if old, ok := n.files[key]; ok && (op == "symlink" || !old.mode.IsRegular()) {
		return perr(op, name, fs.ErrExist)
	}
	n.files[key] = f
	return n.end(op, name)
}

// Read returns a file's content.
func (n *Node) Read(name string) (string, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f, ok := n.files[n.at(name)]
	return f.data, ok && f.mode.IsRegular()
}

// Remove removes one file, link or empty directory.
func (n *Node) Remove(name string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.begin("remove", name, true); err != nil {
		return err
	}
	key := n.at(name)
	switch _, ok := n.files[key]; {
	case n.mountedAt(name):
		return perr("remove", name, syscall.EBUSY)
	case !ok:
		return perr("remove", name, fs.ErrNotExist)
	case len(n.children(key)) > 0:
		return perr("remove", name, syscall.ENOTEMPTY)
	}
	delete(n.files, key)
	return n.end("remove", name)
}

func (n *Node) mountedAt(p string) bool {
	return slices.ContainsFunc(n.mounts, func(m mounted) bool { return m.Path == path.Clean(p) })
}

func (n *Node) mountedWithin(p string) bool {
	return slices.ContainsFunc(n.mounts, func(m mounted) bool { return within(m.Path, path.Clean(p)) })
}

// RemoveDirs removes a tree of directories.
func (n *Node) RemoveDirs(name string) error { return n.removeTree("removedirs", name, true) }

// RemoveAll removes a tree.
func (n *Node) RemoveAll(name string) error { return n.removeTree("removeall", name, false) }

func (n *Node) removeTree(op, name string, dirsOnly bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.begin(op, name, true); err != nil {
		return err
	}
	if n.mountedWithin(name) {
		return perr(op, name, rmtree.ErrMountPoint)
	}
	var gone []string
	for k, f := range n.files {
		if within(k, n.at(name)) {
			if dirsOnly && !f.mode.IsDir() {
				return perr(op, name, rmtree.ErrNotEmpty)
			}
			gone = append(gone, k)
		}
	}
	for _, k := range gone {
		delete(n.files, k)
	}
	return n.end(op, name)
}

// Mounts returns the mounts at and below dir.
func (n *Node) Mounts(dir string) ([]volumemgr.Mount, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.begin("mounts", dir, false); err != nil {
		return nil, err
	}
	var out []volumemgr.Mount
	for _, m := range n.mounts {
		if within(m.Path, path.Clean(dir)) {
			out = append(out, m.Mount)
		}
	}
	return out, nil
}

// Mount mounts a directory of the node (option bind), a tmpfs, or the file system named by
// source, which keeps its content between mounts.
func (n *Node) Mount(ctx context.Context, source, target, fsType string, options []string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := errors.Join(ctx.Err(), n.begin("mount", target, true)); err != nil {
		return err
	}
	target = path.Clean(target)
	if _, ok := n.files[n.at(target)]; !ok {
		return perr("mount", target, fs.ErrNotExist)
	}
	m := mounted{Mount: volumemgr.Mount{Path: target, Root: "/", FSType: fsType, Source: source, Options: slices.Clone(options)}}
	switch {
	case slices.Contains(options, "bind"):
		m.backing = n.at(source)
	case fsType == "tmpfs":
		n.tmpfs++
		m.backing = "tmpfs-" + strconv.Itoa(n.tmpfs) + ":/"
	default:
		m.backing = source + ":/"
	}
	if _, ok := n.files[m.backing]; !ok {
		n.files[m.backing] = file{mode: fs.ModeDir | 0o755}
	}
	m.Device, _, _ = strings.Cut(m.backing, ":")
	n.mounts = append(n.mounts, m)
	return n.end("mount", target)
}

// Unmount unmounts the topmost mount of target.
func (n *Node) Unmount(ctx context.Context, target string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := errors.Join(ctx.Err(), n.begin("unmount", target, true)); err != nil {
		return err
	}
	target = path.Clean(target)
	for i, m := range slices.Backward(n.mounts) {
		if m.Path != target {
			continue
		}
		if slices.ContainsFunc(n.mounts, func(o mounted) bool { return o.Path != target && within(o.Path, target) }) {
			return perr("unmount", target, syscall.EBUSY)
		}
		n.mounts = slices.Delete(n.mounts, i, i+1)
		break
	}
	return n.end("unmount", target)
}

// Paths returns everything on the disk below dir, except mounted file systems.
func (n *Node) Paths(dir string) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []string
	for k := range n.files {
		if p, ok := strings.CutPrefix(k, ":"); ok && p != dir && within(p, dir) {
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return out
}

// Content returns every file of a mountable file system, by path.
func (n *Node) Content(source string) map[string]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := map[string]string{}
	for k, f := range maps.All(n.files) {
		if p, ok := strings.CutPrefix(k, source+":"); ok && f.mode.IsRegular() {
			out[p] = f.data
		}
	}
	return out
}

// info is the fs.FileInfo of a file.
type info struct {
	name string
	file file
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return int64(len(i.file.data)) }
func (i info) Mode() fs.FileMode  { return i.file.mode }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool        { return i.file.mode.IsDir() }
func (i info) Sys() any           { return nil }
