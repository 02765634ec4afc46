package dirwatch

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

// bench is a Watcher of a test, which has to report all that happens: the only time limit is for a
// Watcher that does not.
type bench struct {
	*testing.T
	w       *Watcher
	removed chan string
}

func newBench(t *testing.T) *bench {
	b := &bench{T: t, removed: make(chan string, 100)}
	b.w = New(nil, func(path string) { b.removed <- path })
	t.Cleanup(b.w.Close)
	return b
}

func (b *bench) must(errs ...error) {
	b.Helper()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
}

// change makes a change, which has to be reported, and watches again.
func (b *bench) change(what string, dirs []string, do func() error) {
	b.Helper()
	if !b.w.Watch(b.Context(), dirs...) {
		b.Fatalf("before %s: not all of %q are watched", what, dirs)
	}
	select { // of changes before
	case <-b.w.Changed():
	default:
	}
	b.must(do())
	select {
	case <-b.w.Changed():
	case <-time.After(2 * time.Minute):
		b.Fatalf("%s is not reported", what)
	}
}

func write(path string) func() error {
	return func() error { return os.WriteFile(path, []byte("x"), 0o600) }
}

func TestDirectoriesThatComeAndGo(t *testing.T) {
	b := newBench(t)
	top := t.TempDir()
	deep, other, link := filepath.Join(top, "a", "b", "c"), filepath.Join(top, "other"), filepath.Join(top, "link")
	b.must(os.Mkdir(other, 0o700), os.Symlink(other, link))
	dirs := []string{deep, link}
	mkdir := func(path string) func() error { return func() error { return os.Mkdir(path, 0o700) } }
	for range 2 {
		b.change("the first parent", dirs, mkdir(filepath.Join(top, "a")))
		b.change("the second parent", dirs, mkdir(filepath.Join(top, "a", "b")))
		b.change("the directory", dirs, mkdir(deep))
		b.change("a file", dirs, write(filepath.Join(deep, "f")))
		b.change("a file behind the link", dirs, write(filepath.Join(other, "f")))
		b.change("another target of the link", dirs, func() error {
			return errors.Join(os.Symlink(filepath.Dir(deep), link+".new"), os.Rename(link+".new", link))
		})
		b.change("a file in it", dirs, write(filepath.Join(link, "f")))
		b.change("the former target", dirs, func() error {
			return errors.Join(os.Symlink(other, link+".new"), os.Rename(link+".new", link))
		})
		b.change("the end of all", dirs, func() error { return os.RemoveAll(filepath.Join(top, "a")) })
	}
}

// A directory that is removed and created at once may have the inode of the former one, whose watch
// has ended.
func TestDirectoryCreatedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d")
	for range 100 {
		b := newBench(t)
		b.must(os.Mkdir(path, 0o700))
		same := false
		b.change("its end", []string{path}, func() error {
			was, err := os.Stat(path)
			err = errors.Join(err, os.Remove(path), os.Mkdir(path, 0o700))
			now, err2 := os.Stat(path)
			same = os.SameFile(was, now)
			return errors.Join(err, err2)
		})
		b.change("a file in the new one", []string{path}, write(filepath.Join(path, "f")))
		b.must(os.RemoveAll(path))
		if same {
			return
		}
	}
	t.Log("no inode was used again")
}

func TestRemovedFiles(t *testing.T) {
	b := newBench(t)
	dir := t.TempDir()
	f, kept := filepath.Join(dir, "f"), filepath.Join(dir, "kept")
	b.must(write(f)(), write(kept)())
	b.change("a file that is removed and written again", []string{dir}, func() error { return errors.Join(os.Remove(f), write(f)()) })
	if got := <-b.removed; got != f {
		t.Errorf("%s was removed; want %s", got, f)
	}
	b.change("a file that is renamed", []string{dir}, func() error { return os.Rename(kept, filepath.Join(dir, "backup")) })
	b.change("the last one", []string{dir}, func() error { return os.Remove(f) })
	if got := <-b.removed; got != f || len(b.removed) > 0 {
		t.Errorf("%s was removed, and %d more; want %s alone", got, len(b.removed), f)
	}
}

func TestEventsThatConcernNobody(t *testing.T) {
	w := New(nil, nil)
	w.dirs = []string{"/etc/cni/net.d", "/opt/bin"}
	for name, want := range map[string]bool{
		"/etc/cni/net.d": true, "/etc/cni/net.d/10.conf": true, "/etc/cni": true, "/etc": true, "/opt/bin/x": true,
		"/etc/cni/net.d/sub/x": false, "/etc/cni/net": false, "/etc/cni/other": false, "/etc/passwd": false, "/opt/binary": false,
	} {
		if got := w.take(fsnotify.Event{Name: name, Op: fsnotify.Remove}); got != want {
			t.Errorf("%s: %v; want %v", name, got, want)
		}
	}
}

// A path that cannot be watched is reported once, until it can be watched.
func TestPathThatCannotBeWatched(t *testing.T) {
	failed := 0
	w := New(func(string, error) { failed++ }, nil)
	defer w.Close()
	w.arm(nil) // creates the instance
	dir := t.TempDir()
	if err := w.fs.Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if w.Watch(t.Context(), dir) {
			t.Fatal("watched by an instance that is closed")
		}
	}
	if failed != 1 {
		t.Errorf("reported %d times; want once", failed)
	}
}

func TestClosedWatcher(t *testing.T) {
	w := New(nil, nil)
	w.Close()
	if w.Watch(t.Context(), t.TempDir()) {
		t.Error("watches after its end")
	}
	w.Close()
}

// Lost events are reported as a change.
func TestOverflow(t *testing.T) {
	b := newBench(t)
	b.change("an overflow", []string{t.TempDir()}, func() error {
		b.w.fs.Errors <- fsnotify.ErrEventOverflow
		return nil
	})
}
