// Package kerneltest has Linux machines to test with: their files of /proc, /sys and cgroups, as
// "agent record machine" wrote them, which a test can change, remove, or let hang.
//
//	m := kerneltest.Machine("v2-numa8")
//	m.Hang("sys/fs/cgroup/memory.stat")
//	facts, err := status.System{Files: m}.Facts(ctx)
//
// The recorded machines:
//
//   - v1 has two CPUs, cgroups v1, and beside them an empty hierarchy of cgroups v2.
//   - v2-no-psi is a user-mode Linux with one CPU and cgroups v2, without pressure stall information.
//   - v2-numa8 has eight NUMA nodes of one CPU each, and huge pages of 2 MiB on all of them.
//   - v2-arm64 is the same on arm64, without huge pages.
//
// A Tree is the root of a machine for what takes an fs.FS of one: node/status,
// node/stats, numa, agent/resources.
//
// Tier: beta.
package kerneltest

import (
	"archive/zip"
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"testing/fstest"
)

//go:embed testdata/*.zip
var machines embed.FS

// recorded has the files of each recorded machine.
var recorded = sync.OnceValue(func() map[string]fstest.MapFS {
	all := map[string]fstest.MapFS{}
	entries, err := machines.ReadDir("testdata")
	for _, e := range entries {
		b, errRead := machines.ReadFile("testdata/" + e.Name())
		files, errUnpack := unpack(b)
		all[strings.TrimSuffix(e.Name(), ".zip")], err = files, errors.Join(err, errRead, errUnpack)
	}
	if err != nil {
		panic(err) // the files of this package are damaged
	}
	return all
})

// Machines returns the names of the recorded machines.
func Machines() []string { return slices.Sorted(maps.Keys(recorded())) }

// Machine returns a recorded machine by its name, with its files as they were recorded. It panics
// if there is no such machine.
func Machine(name string) *Tree {
	files, ok := recorded()[name]
	if !ok {
		panic(fmt.Sprintf("kerneltest: machine %q; want one of %q", name, Machines()))
	}
	return &Tree{files: maps.Clone(files), faults: map[string]fault{}}
}

// Open returns the machine of a file that "agent record machine" wrote.
func Open(archive []byte) (*Tree, error) {
	files, err := unpack(archive)
	if err != nil {
		return nil, fmt.Errorf("unpack recorded machine: %w", err)
	}
	return &Tree{files: files, faults: map[string]fault{}}, nil
}

func unpack(archive []byte) (fstest.MapFS, error) {
	z, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		return nil, err
	}
	files := fstest.MapFS{}
	for _, f := range z.File {
		b, err := fs.ReadFile(z, f.Name) //nolint:forbidigo // an archive in memory
		if err != nil {
			return nil, err
		}
		files[f.Name] = &fstest.MapFile{Data: b, Mode: 0o444}
	}
	return files, nil
}

// Tree is the root of a machine's files. Its methods may be called from any goroutine.
type Tree struct {
	mu     sync.Mutex
	files  fstest.MapFS
	faults map[string]fault
}

// fault is what happens to whoever opens a file.
type fault struct {
	hangs chan struct{}
	err   error
}

// Files returns the paths of all files, in order, such as proc/meminfo.
func (t *Tree) Files() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.files))
}

// Set sets the content of a file, which it makes if there is none.
func (t *Tree) Set(name, content string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// Who has the file open goes on with its old content.
	t.files[name] = &fstest.MapFile{Data: []byte(content), Mode: 0o444}
}

// Remove removes a file, or a directory with everything below it.
func (t *Tree) Remove(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for file := range t.files {
		if file == name || strings.HasPrefix(file, name+"/") {
			delete(t.files, file)
		}
	}
}

// Fail makes each opening of the file or directory return an error, such as syscall.ENODEV, which
// the kernel returns for a cgroup that ends meanwhile.
func (t *Tree) Fail(name string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults[name] = fault{err: err}
}

// Hang makes each opening of the file or directory wait until release is called. release may be
// called several times.
func (t *Tree) Hang(name string) (release func()) {
	ch := make(chan struct{})
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults[name] = fault{hangs: ch}
	return sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.faults, name)
		close(ch)
	})
}

// Open implements fs.FS.
func (t *Tree) Open(name string) (fs.File, error) {
	t.mu.Lock()
	f := t.faults[path.Clean(name)]
	t.mu.Unlock()
	if f.hangs != nil {
		<-f.hangs
	}
	if f.err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: f.err}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.files.Open(name)
}
