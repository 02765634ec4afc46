package safefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// Links are followed, but only to what is stored somewhere.
func TestOpenLinked(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	fifo := at("fifo")
	if err := errors.Join(os.WriteFile(at("file"), []byte("text"), 0o600), syscall.Mkfifo(fifo, 0o600), os.Mkdir(at("folder"), 0o700)); err != nil {
		t.Fatal(err)
	}
	targets := map[string]error{"file": nil, "fifo": ErrNotRegular, "folder": ErrNotRegular, "/dev/zero": ErrNotRegular, "none": fs.ErrNotExist}
	if runtime.GOOS == "linux" {
		targets["/proc/kmsg"], targets["/proc/self/status"], targets["/sys/kernel/mm/transparent_hugepage/enabled"] = ErrNotRegular, ErrNotRegular, ErrNotRegular
	}
	for target, want := range targets {
		link, links := at("link"), at("links")
		if err := errors.Join(os.Symlink(target, link), os.Symlink(link, links)); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(link); filepath.IsAbs(target) && err != nil {
			want = fs.ErrNotExist // not on this machine
		}
		for _, path := range []string{link, links} {
			f, err := OpenLinked(path)
			if !errors.Is(err, want) || want == nil && err != nil {
				t.Errorf("%s: %v, want %v", target, err, want)
			}
			if err != nil {
				continue
			}
			if b, err := Read(f, 10); err != nil || string(b) != "text" {
				t.Errorf("%s: %q, %v", target, b, err)
			}
			_ = f.Close()
		}
		if err := errors.Join(os.Remove(link), os.Remove(links)); err != nil {
			t.Fatal(err)
		}
	}
}
