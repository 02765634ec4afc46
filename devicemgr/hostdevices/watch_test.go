//go:build linux

package hostdevices

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestInotify(t *testing.T) {
	w, err := newInotify()
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	top := t.TempDir()
	deep, file := filepath.Join(top, "a", "b"), filepath.Join(top, "file")
	dirs := watched{deep: false, filepath.Join(file, "x"): true}
	// Reports a change within a long time; the only limit is for a watcher that does not.
	step := func(what string, do func() error) {
		t.Helper()
		if err := w.watch(dirs); err != nil {
			t.Fatal(err)
		}
		select { // of changes before
		case <-w.changed():
		default:
		}
		if err := do(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-w.changed():
		case <-time.After(2 * time.Minute):
			t.Fatalf("%s is not reported", what)
		}
	}
	write := func(path string) func() error { return func() error { return os.WriteFile(path, []byte("x"), 0o600) } }
	for range 2 {
		step("the parent of a missing directory", func() error { return os.Mkdir(filepath.Dir(deep), 0o700) })
		step("a missing directory", func() error { return os.Mkdir(deep, 0o700) })
		step("a new file", write(filepath.Join(deep, "x")))
		step("its end", func() error { return os.Remove(filepath.Join(deep, "x")) })
		step("the end of the directory", func() error { return os.RemoveAll(filepath.Dir(deep)) })
	}
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(deep, "kept")
	if err := write(kept)(); err != nil {
		t.Fatal(err)
	}
	dirs[deep] = true
	step("a write to a file whose content matters", write(kept))
	dirs[deep] = false
	step("a rename", func() error { return os.Rename(kept, kept+"2") })
	if err := w.watch(watched{}); err != nil || len(w.(*inotify).watches) > 0 {
		t.Errorf("%v, %v", w.(*inotify).watches, err)
	}
}
