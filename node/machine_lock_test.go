package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestLockDirs(t *testing.T) {
	top := t.TempDir()
	a, b, link := filepath.Join(top, "a"), filepath.Join(top, "b"), filepath.Join(top, "link")
	if err := errors.Join(os.Mkdir(a, 0o700), os.Mkdir(b, 0o700), os.Symlink(a, link)); err != nil {
		t.Fatal(err)
	}
	first, err := LockDirs(a, a+"/../a", link)
	if err != nil {
		t.Fatalf("one directory by three names: %v", err)
	}
	for _, dirs := range [][]string{{a}, {link}, {b, a}} {
		if _, err := LockDirs(dirs...); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("(process %d)", os.Getpid())) {
			t.Errorf("%v: %v", dirs, err)
		}
	}
	second, err := LockRoot(b)
	if err != nil {
		t.Fatalf("what was refused is still locked in part: %v", err)
	}
	second.Release()
	if err := first.Hold(); err != nil {
		t.Fatal(err)
	}
	first.Release()
	if _, err := LockRoot(a); !errors.Is(err, ErrLocked) {
		t.Errorf("with one holder left: %v", err)
	}
	first.Release()
	first.Release()
	if err := first.Hold(); !errors.Is(err, ErrReleased) {
		t.Errorf("after its end: %v", err)
	}
	again, err := LockRoot(a)
	if err != nil {
		t.Fatal(err)
	}
	again.Release()
}

// What lies in the place of a lock is neither followed nor waited for.
func TestHostileLocks(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"a link":      func(p string) error { return os.Symlink(filepath.Join(filepath.Dir(p), "elsewhere"), p) },
		"a pipe":      func(p string) error { return syscall.Mkfifo(p, 0o600) },
		"a directory": func(p string) error { return os.Mkdir(p, 0o700) },
	} {
		dir := t.TempDir()
		if err := make(filepath.Join(dir, RootLockName)); err != nil {
			t.Fatal(err)
		}
		if _, err := LockRoot(dir); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", name, err)
		}
		if names, _ := os.ReadDir(dir); len(names) != 1 {
			t.Errorf("%s: %v", name, names)
		}
	}
	if _, err := LockDirs(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory that is not there: %v", err)
	}
}
