package node

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestFilesThatPodsInherit(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "resolv.conf")
	n := &MachineFiles{ResolvConf: path}
	for _, c := range []struct {
		name string
		do   func() error
		want string
	}{
		{"none", func() error { return nil }, ""},
		{"a file", func() error { return os.WriteFile(path, []byte("nameserver 1"), 0o600) }, "nameserver 1"},
		{"another one", func() error { return os.WriteFile(path, []byte("nameserver 192.0.2.1"), 0o600) }, "nameserver 192.0.2.1"},
		{"a link, as many nodes have it", func() error {
			return errors.Join(os.Rename(path, path+"-real"), os.Symlink("resolv.conf-real", path))
		}, "nameserver 192.0.2.1"},
		{"a terabyte", func() error { return os.Truncate(path, 1<<40) }, ""},
		{"a pipe", func() error { return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)) }, ""},
		{"not asked for", func() error { n.ResolvConf = "-"; return nil }, ""},
	} {
		if err := c.do(); err != nil {
			t.Fatal(err)
		}
		for range 2 { // as read, and as remembered
			if got := n.Resolv(); got != c.want {
				t.Errorf("%s: %.80q, want %q", c.name, got, c.want)
			}
		}
	}
}

// The disk does not answer: pods get what was read last.
func TestAFileThatDoesNotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "resolv.conf")
		if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		n := &MachineFiles{ResolvConf: path}
		if got := n.Resolv(); got != "old" {
			t.Errorf("%q", got)
		}
		hang := make(chan struct{})
		defer close(hang)
		go func() { _, _ = n.reads.Do(t.Context(), path, func() (string, error) { <-hang; return "", nil }) }()
		synctest.Wait()
		began := time.Now()
		if got := n.Resolv(); got != "old" || time.Since(began) != fileTimeout {
			t.Errorf("%q after %v", got, time.Since(began))
		}
		if n.Hosts(); time.Since(began) != fileTimeout {
			t.Error("another file waits too")
		}
	})
}
