package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodewright/nodewright/internal/durable"
)

// hanging is a disk on which calls for some files do not return before they are
// freed.
type hanging struct {
	durable.OS
	mu    sync.Mutex
	hangs map[string]chan struct{} // by base name
	done  []string                 // writes, in order
}

func newHanging() *hanging {
	return &hanging{OS: durable.OS{DirMode: 0o700, FileMode: 0o600}, hangs: map[string]chan struct{}{}}
}

func (h *hanging) hang(name string) (free func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := make(chan struct{})
	h.hangs[name] = c
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.hangs, name)
		close(c)
	}
}

func (h *hanging) wait(path string) {
	h.mu.Lock()
	c := h.hangs[strings.TrimSuffix(filepath.Base(path), durable.TempSuffix)]
	h.mu.Unlock()
	if c != nil {
		<-c
	}
}

func (h *hanging) MakeDir(path string) error { h.wait(path); return h.OS.MakeDir(path) }

func (h *hanging) Write(path string, data []byte, sync bool) error {
	h.wait(path)
	h.mu.Lock()
	h.done = append(h.done, string(data[headerSize:]))
	h.mu.Unlock()
	return h.OS.Write(path, data, sync)
}

func (h *hanging) Rename(from, to string) error { h.wait(from); return h.OS.Rename(from, to) }

func (h *hanging) Read(path string) ([]byte, error)  { h.wait(path); return h.OS.Read(path) }
func (h *hanging) Remove(path string) error          { h.wait(path); return h.OS.Remove(path) }
func (h *hanging) List(dir string) ([]string, error) { h.wait(dir); return h.OS.List(dir) }

// A file that hangs holds up no other key, and its own callers until their contexts
// end.
func TestAKeyThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newHanging()
		s, err := Open(Config{Dir: t.TempDir(), files: disk})
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"good", "bad"} {
			if err := s.Write(key, []byte("old")); err != nil {
				t.Fatal(err)
			}
		}
		free := disk.hang("bad")
		for name, call := range map[string]func() error{
			"write":  func() error { return s.Write("bad", []byte("a")) },
			"read":   func() error { _, err := s.Read("bad"); return err },
			"delete": func() error { return s.Delete("bad") },
			"aside":  func() error { return s.SetAside("bad", errors.New("x")) },
		} {
			at := time.Now()
			if err := call(); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "bad") || time.Since(at) != 30*time.Second {
				t.Errorf("%s: %v after %v", name, err, time.Since(at))
			}
		}
		at := time.Now()
		if err := errors.Join(s.Write("good", []byte("new")), s.Delete("none")); err != nil {
			t.Error(err)
		}
		if b, err := s.Read("good"); string(b) != "new" || err != nil {
			t.Errorf("another key: %q, %v", b, err)
		}
		if keys, err := s.Keys(); len(keys) != 2 || err != nil {
			t.Errorf("keys %v, %v", keys, err)
		}
		if time.Since(at) != 0 {
			t.Errorf("another key waited for %v", time.Since(at))
		}
		free()
		synctest.Wait()
		if len(s.calls.lanes) != 0 || len(s.calls.slots) != 0 {
			t.Errorf("%d lanes and %d calls are left", len(s.calls.lanes), len(s.calls.slots))
		}
	})
}

// A value whose caller has given up is written before later values; one whose write had not begun
// is not written; and the caller may change its own slice.
func TestCallsForAKeyKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newHanging()
		s, err := Open(Config{Dir: t.TempDir(), files: disk})
		if err != nil {
			t.Fatal(err)
		}
		free := disk.hang("k")
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		value := []byte("first")
		for _, text := range []string{"first", "never"} {
			copy(value, text)
			if err := s.WriteContext(short, "k", value); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}
		copy(value, "other")
		last := make(chan error)
		go func() { last <- s.Write("k", []byte("last")) }()
		synctest.Wait()
		free()
		if err := <-last; err != nil {
			t.Error(err)
		}
		if got := fmt.Sprint(disk.done); got != "[first last]" {
			t.Errorf("written %s", got)
		}
		if b, err := s.Read("k"); string(b) != "last" || err != nil {
			t.Errorf("%q, %v", b, err)
		}
		gone, end := context.WithCancelCause(t.Context())
		end(errors.New("gone home"))
		if err := s.WriteContext(gone, "k", nil); err == nil || !strings.Contains(err.Error(), "gone home") {
			t.Errorf("a context that has ended: %v", err)
		}
	})
}

// A disk that hangs as a whole has no more than so many calls.
func TestADiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newHanging()
		s, err := Open(Config{Dir: t.TempDir(), files: disk})
		if err != nil {
			t.Fatal(err)
		}
		var frees []func()
		var wg sync.WaitGroup
		for i := range 3 * maxInFlight {
			key := fmt.Sprint("k", i)
			frees = append(frees, disk.hang(key))
			wg.Go(func() {
				for range 3 {
					if err := s.Write(key, nil); !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
				}
			})
		}
		time.Sleep(time.Second)
		if n := len(s.calls.slots); n != maxInFlight {
			t.Errorf("%d calls are under way, want %d", n, maxInFlight)
		}
		wg.Wait()
		for _, free := range frees {
			free()
		}
		synctest.Wait()
		if len(s.calls.lanes) != 0 || len(s.calls.slots) != 0 {
			t.Errorf("%d lanes and %d calls are left", len(s.calls.lanes), len(s.calls.slots))
		}
		if err := s.Write("k0", nil); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// A directory that cannot be opened for now is the error of each call, until it can.
func TestLazyHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newHanging()
		dir := filepath.Join(t.TempDir(), "state")
		free := disk.hang("state")
		l := NewLazy(Config{Dir: dir, files: disk})
		for range 3 {
			if err := l.Write("k", []byte("v")); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			if _, err := l.Read("k"); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}
		free()
		synctest.Wait()
		if err := l.Write("k", []byte("v")); err != nil {
			t.Error(err)
		}
		if b, err := l.Read("k"); string(b) != "v" || err != nil {
			t.Errorf("%q, %v", b, err)
		}
	})
}

// Any file in place of a value is set aside, without blocking on it or reading all of it, and the
// next value is stored.
func TestHostileFiles(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"a gigabyte": func(p string) error { return errors.Join(os.WriteFile(p, nil, 0o600), os.Truncate(p, 1<<30)) },
		"a pipe":     func(p string) error { return syscall.Mkfifo(p, 0o600) },
		"a link":     func(p string) error { return os.Symlink("/etc/passwd", p) },
		"a directory": func(p string) error {
			return errors.Join(os.Mkdir(p, 0o700), os.WriteFile(filepath.Join(p, "x"), nil, 0o600))
		},
	} {
		dir := t.TempDir()
		var told []string
		s, err := Open(Config{Dir: dir, OnCorrupt: func(key, aside string, err error) {
			if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), filepath.Join(dir, "k")) {
				t.Errorf("%s: %v", name, err)
			}
			told = append(told, key+" "+filepath.Base(aside))
		}})
		if err != nil {
			t.Fatal(err)
		}
		if err := make(filepath.Join(dir, "k")); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Read("k"); !errors.Is(err, fs.ErrNotExist) || !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		if fmt.Sprint(told) != "[k k.corrupt-1]" {
			t.Errorf("%s: told %v", name, told)
		}
		if err := s.Write("k", []byte("v")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if b, err := s.Read("k"); string(b) != "v" || err != nil {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}

func TestSetAside(t *testing.T) {
	dir := t.TempDir()
	var told []error
	s, err := Open(Config{Dir: dir, OnCorrupt: func(_, _ string, err error) { told = append(told, err) }})
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("not understood")
	for range 100 {
		if err := errors.Join(s.Write("k", []byte("v")), s.SetAside("k", cause)); err != nil {
			t.Fatal(err)
		}
	}
	if len(told) != 100 || !errors.Is(told[0], cause) || !errors.Is(told[0], ErrCorrupt) {
		t.Errorf("told %d times, %v", len(told), told[0])
	}
	if names, err := os.ReadDir(dir); len(names) < 1 || len(names) > 20 || err != nil {
		t.Errorf("%d files are kept, %v", len(names), err)
	}
	if err := s.SetAside("k", cause); err == nil {
		t.Error("what is not there is set aside")
	}
	if err := s.Write("k", make([]byte, MaxValue+1)); err == nil || !strings.Contains(err.Error(), "want at most 67108864") {
		t.Errorf("a value that is too long: %v", err)
	}
}
