package logrotate

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The kernel reports the first write after arm, and of no other.
func TestInotify(t *testing.T) {
	n := newIdle()
	defer n.close()
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	write := func(path string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("x"); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	told := func(want string) {
		t.Helper()
		select {
		case got := <-n.written():
			if got != want {
				t.Errorf("told of %q, want %q", got, want)
			}
		case <-time.After(2 * time.Minute):
			t.Errorf("not told of %q", want)
		}
	}
	if n.arm("none", filepath.Join(dir, "none")) {
		t.Error("armed for a file that is not there")
	}
	write(a)
	write(b)
	if !n.arm("A", a) || !n.arm("B", b) {
		t.Fatal("inotify cannot be had")
	}
	write(a)
	told("A")
	write(a) // of which nothing is told
	write(b)
	told("B")
	if !n.arm("A", a) || !n.arm("B", b) {
		t.Fatal("not armed again")
	}
	if err := os.Rename(a, a+".old"); err != nil {
		t.Fatal(err)
	}
	told("A")
	if err := os.Remove(b); err != nil {
		t.Fatal(err)
	}
	told("B")
}

// Closing while somebody is to be told, and nobody listens.
func TestInotifyCloses(t *testing.T) {
	n := newIdle()
	path := filepath.Join(t.TempDir(), "a")
	for range 3 {
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		n.arm("A", path)
	}
	if err := os.WriteFile(path, []byte("y"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.close()
}
