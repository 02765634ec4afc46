package durable_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/durable"
)

var private = durable.OS{DirMode: 0o700, FileMode: 0o600}

// journal is the system's disk, with a record of what is done, that fails at a
// step.
type journal struct {
	durable.OS
	steps  []string
	failAt int
}

var errDisk = errors.New("disk failed")

func (j *journal) step(format string, args ...any) error {
	j.steps = append(j.steps, fmt.Sprintf(format, args...))
	if len(j.steps) == j.failAt {
		return errDisk
	}
	return nil
}

func (j *journal) Write(path string, data []byte, sync bool) error {
	if err := j.step("write %s %v", filepath.Base(path), sync); err != nil {
		_ = j.OS.Write(path, data[:len(data)/2], false)
		return err
	}
	return j.OS.Write(path, data, sync)
}

func (j *journal) Rename(from, to string) error {
	if err := j.step("rename %s %s", filepath.Base(from), filepath.Base(to)); err != nil {
		return err
	}
	return j.OS.Rename(from, to)
}

func (j *journal) Remove(path string) error {
	if err := j.step("remove %s", filepath.Base(path)); err != nil {
		return err
	}
	return j.OS.Remove(path)
}

func (j *journal) SyncDir(path string) error {
	if err := j.step("sync dir"); err != nil {
		return err
	}
	return j.OS.SyncDir(path)
}

func TestSteps(t *testing.T) {
	for _, tc := range []struct {
		name   string
		sync   bool
		failAt int
		do     func(d durable.Dir) error
		want   string
		after  string // the file's content; "-" is no file
	}{
		{"replace", true, 0, replace, "write f.tmp true, rename f.tmp f, sync dir", "new"},
		{"replace without syncing", false, 0, replace, "write f.tmp false, rename f.tmp f", "new"},
		{"the disk is full", true, 1, replace, "write f.tmp true, remove f.tmp", "old"},
		{"no rename", true, 2, replace, "write f.tmp true, rename f.tmp f, remove f.tmp", "old"},
		{"no sync", true, 3, replace, "write f.tmp true, rename f.tmp f, sync dir", "new"},
		{"remove", true, 0, remove, "remove f, sync dir, remove f.tmp", "-"},
		{"remove without syncing", false, 0, remove, "remove f, remove f.tmp", "-"},
		{"no removal", true, 1, remove, "remove f, remove f.tmp", "old"},
		{"what a failed replace left", true, 0, func(d durable.Dir) error {
			return errors.Join(d.Disk.Write(filepath.Join(d.Path, "f.tmp"), nil, false), d.Remove("f"))
		}, "write f.tmp false, remove f, sync dir, remove f.tmp", "-"},
		{"that cannot be removed", true, 3, remove, "remove f, sync dir, remove f.tmp", "-"},
		{"not there", true, 0, func(d durable.Dir) error { return d.Remove("g") }, "remove g, remove g.tmp", "old"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			disk := &journal{OS: private}
			d := durable.Dir{Path: filepath.Join(t.TempDir(), "a", "b"), Disk: disk, Sync: tc.sync}
			if err := errors.Join(d.Prepare(), d.Replace("f", []byte("old"))); err != nil {
				t.Fatal(err)
			}
			disk.steps, disk.failAt = nil, tc.failAt
			if err := tc.do(d); errors.Is(err, errDisk) != (tc.failAt > 0) {
				t.Errorf("error %v", err)
			}
			if got := strings.Join(disk.steps, ", "); got != tc.want {
				t.Errorf("steps: %s\n want: %s", got, tc.want)
			}
			got, err := d.Read("f")
			if errors.Is(err, fs.ErrNotExist) {
				got = []byte("-")
			}
			if string(got) != tc.after {
				t.Errorf("the file holds %q, want %q", got, tc.after)
			}
			if names, err := d.List(); err != nil || slices.Contains(names, "f.tmp") {
				t.Errorf("%v is left, %v", names, err)
			}
		})
	}
}

func replace(d durable.Dir) error { return d.Replace("f", []byte("new")) }
func remove(d durable.Dir) error  { return d.Remove("f") }

func TestPrepareClearsAway(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{"f", "f.tmp", "f.corrupt-1", "gone.tmp"} {
		if err := os.WriteFile(filepath.Join(dir, n), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "dir.tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	d := durable.Dir{Path: dir, Disk: private}
	if err := d.Prepare(); err != nil {
		t.Fatal(err)
	}
	if names, err := d.List(); err != nil || !slices.Equal(names, []string{"f", "f.corrupt-1"}) {
		t.Errorf("%v, %v", names, err)
	}
}

func TestSetAside(t *testing.T) {
	d := durable.Dir{Path: t.TempDir(), Disk: private}
	for n := 1; n <= 12; n++ {
		if err := d.Replace("f", []byte{byte(n)}); err != nil {
			t.Fatal(err)
		}
		want := filepath.Join(d.Path, fmt.Sprintf("f.corrupt-%d", n))
		if got := d.SetAside("f"); got != want {
			t.Errorf("set aside at %q, want %q", got, want)
		}
		if b, err := os.ReadFile(want); err != nil || b[0] != byte(n) {
			t.Errorf("%s holds %v, %v", want, b, err)
		}
	}
	if got := d.SetAside("not there"); got != "" {
		t.Errorf("what is not there is set aside at %q", got)
	}
}

func TestModes(t *testing.T) {
	d := durable.Dir{Path: filepath.Join(t.TempDir(), "d"), Disk: private, Sync: true}
	if err := errors.Join(d.Prepare(), d.Replace("f", nil)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{".": fs.ModeDir | 0o700, "f": 0o600} {
		if fi, err := os.Stat(filepath.Join(d.Path, name)); err != nil || fi.Mode() != want {
			t.Errorf("%s: %v, %v; want %v", name, fi.Mode(), err, want)
		}
	}
}

// A file has the mode that it is to have, whatever the umask is.
func TestModeOfFiles(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	path := filepath.Join(t.TempDir(), "f")
	if err := (durable.OS{DirMode: 0o755, FileMode: 0o644}).Write(path, []byte("x"), false); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o644 {
		t.Errorf("%v, %v; want the mode 644", info, err)
	}
}
