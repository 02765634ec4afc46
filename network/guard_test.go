package network

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestAGuardNamesAGroup(t *testing.T) {
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "guard"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := readGuard(f); !errors.Is(err, errNoGroup) {
		t.Errorf("an empty guard: %v", err)
	}
	for _, pid := range []int{os.Getppid(), os.Getpid()} {
		if err := WriteGuard(f, pid); err != nil {
			t.Fatal(err)
		}
		start, _, err := processTimes(pid)
		if err != nil || start == 0 {
			t.Fatalf("start %d: %v", start, err)
		}
		if g, err := readGuard(f); err != nil || g != (group{pid, start}) {
			t.Errorf("%+v, %v; want %d started at %d", g, err, pid, start)
		}
	}
	if err := WriteGuard(f, 1<<30); err == nil {
		t.Error("a process that does not exist was named")
	}
	if err := WriteGuard(nil, os.Getpid()); err != nil {
		t.Errorf("no guard: %v", err)
	}
}

func FuzzGuard(f *testing.F) {
	for _, s := range []string{"", "\n", "12 34\n", "1 34\n", "0 0\n", "-1 5\n", "+7 5\n", "12 34", "12 34\n56 78\n", "12  34\n", "99999999999 1\n", "4294967295 1\n", "12 34\n\x00\x00"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if g, err := parseGuard(b); err == nil && (g.pid <= 1 || g.pid > 1<<31-1) {
			t.Errorf("%q names group %d", b, g.pid)
		}
	})
}
