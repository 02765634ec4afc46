package ownerlock

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestTake(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, second := open(t, path), open(t, path)
	if err := Take(first); err != nil {
		t.Fatal(err)
	}
	var held *HeldError
	if err := Take(second); !errors.As(err, &held) || held.PID != strconv.Itoa(os.Getpid()) {
		t.Errorf("%v, want that process %d has it", err, os.Getpid())
	}
	if err := Check(second); !errors.As(err, &held) {
		t.Errorf("looked at while it is held: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Check(second); err != nil {
		t.Errorf("looked at after the first one's end: %v", err)
	}
	if err := Take(second); err != nil {
		t.Errorf("after the first one's end: %v", err)
	}
}

// A lock is given back although somebody has a copy of its descriptor, as a child has
// that runs no program yet.
func TestRelease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, second := open(t, path), open(t, path)
	if err := Take(first); err != nil {
		t.Fatal(err)
	}
	fd, err := syscall.Dup(int(first.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(fd) }()
	if err := Release(first); err != nil {
		t.Error(err)
	}
	if err := Take(second); err != nil {
		t.Errorf("after the release: %v", err)
	}
}

// The lock of a dead process, which a child of its has for a moment more, is waited
// for.
func TestTakeFromTheDead(t *testing.T) {
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "lock")
	first := open(t, path)
	if err := Take(first); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strconv.Itoa(dead.Process.Pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	child := exec.Command("sleep", "0.2")
	child.ExtraFiles = []*os.File{first}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Take(open(t, path)); err != nil {
		t.Error(err)
	}
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
}
