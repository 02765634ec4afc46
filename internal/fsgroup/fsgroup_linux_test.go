package fsgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

const gid = 2000

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root gives files to any group")
	}
}

func TestMode(t *testing.T) {
	for _, tc := range []struct {
		is, rw, ro fs.FileMode
	}{
		{0o600, 0o660, 0o640},
		{0o755, 0o775, 0o755},
		{0, 0o660, 0o440},
		{fs.ModeSetuid | 0o700, fs.ModeSetuid | 0o760, fs.ModeSetuid | 0o740},
		{fs.ModeDir | 0o700, fs.ModeDir | fs.ModeSetgid | 0o770, fs.ModeDir | fs.ModeSetgid | 0o750},
		{fs.ModeDir, fs.ModeDir | fs.ModeSetgid | 0o770, fs.ModeDir | fs.ModeSetgid | 0o550},
		{fs.ModeSymlink | 0o777, fs.ModeSymlink | 0o777, fs.ModeSymlink | 0o777},
	} {
		if got := (Request{}).Mode(tc.is); got != tc.rw {
			t.Errorf("%v: %v, want %v", tc.is, got, tc.rw)
		}
		if got := (Request{ReadOnly: true}).Mode(tc.is); got != tc.ro {
			t.Errorf("%v, read-only: %v, want %v", tc.is, got, tc.ro)
		}
	}
}

func TestMatches(t *testing.T) {
	good := fs.ModeDir | fs.ModeSetgid | 0o770
	for _, tc := range []struct {
		name     string
		mode     fs.FileMode
		gid      int64
		readOnly bool
		want     bool
	}{
		{"all is right", good, gid, false, true},
		{"more than needed", good | 0o777, gid, false, true},
		{"another group", good, gid + 1, false, false},
		{"no setgid", fs.ModeDir | 0o770, gid, false, false},
		{"not writable", good &^ 0o020, gid, false, false},
		{"not to be entered", good &^ 0o010, gid, false, false},
		{"a file", fs.ModeSetgid | 0o770, gid, false, false},
		{"read-only", fs.ModeDir | fs.ModeSetgid | 0o550, gid, true, true},
		{"read-only, not readable", fs.ModeDir | fs.ModeSetgid | 0o510, gid, true, false},
	} {
		if got := (Request{GID: gid, ReadOnly: tc.readOnly}).Matches(tc.mode, tc.gid); got != tc.want {
			t.Errorf("%s: %t, want %t", tc.name, got, tc.want)
		}
	}
}

// volume has a file, a directory with one, a link out, and a fifo.
func volume(t *testing.T) (root, outside string) {
	t.Helper()
	top := t.TempDir()
	root, outside = filepath.Join(top, "root"), filepath.Join(top, "outside")
	must(t, os.MkdirAll(filepath.Join(root, "dir/sub"), 0o700))
	for _, f := range []string{"file", "dir/file", "dir/sub/file"} {
		must(t, os.WriteFile(filepath.Join(root, f), nil, 0o600))
	}
	must(t, os.WriteFile(outside, nil, 0o600))
	must(t, os.Symlink(outside, filepath.Join(root, "link")))
	must(t, syscall.Mkfifo(filepath.Join(root, "fifo"), 0o600))
	return root, outside
}

func owner(t *testing.T, path string) (fs.FileMode, uint32) {
	t.Helper()
	info, err := os.Lstat(path)
	must(t, err)
	return info.Mode(), info.Sys().(*syscall.Stat_t).Gid
}

func TestApply(t *testing.T) {
	needRoot(t)
	for _, readOnly := range []bool{false, true} {
		root, outside := volume(t)
		r := Request{Root: root, GID: gid, ReadOnly: readOnly}
		must(t, Apply(t.Context(), r))
		must(t, filepath.WalkDir(root, func(p string, _ fs.DirEntry, err error) error {
			mode, g := owner(t, p)
			if g != gid || r.Mode(mode) != mode {
				t.Errorf("%s: group %d, mode %v", p, g, mode)
			}
			if readOnly && mode&0o020 != 0 && mode&fs.ModeSymlink == 0 {
				t.Errorf("%s: the group may write", p)
			}
			return err
		}))
		if mode, g := owner(t, outside); g == gid || mode != 0o600 {
			t.Errorf("a link was followed: group %d, mode %v", g, mode)
		}
	}
}

func TestWhatIsRightIsLeftAlone(t *testing.T) {
	needRoot(t)
	root, _ := volume(t)
	r := Request{Root: root, GID: gid}
	must(t, Apply(t.Context(), r))
	changed := func() string {
		var b strings.Builder
		must(t, filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
			info, ierr := e.Info()
			must(t, ierr)
			fmt.Fprintln(&b, p, info.Sys().(*syscall.Stat_t).Ctim)
			return err
		}))
		return b.String()
	}
	before := changed()
	must(t, Apply(t.Context(), r))
	if changed() != before {
		t.Error("files were touched again")
	}
}

func TestPolicies(t *testing.T) {
	needRoot(t)
	root, _ := volume(t)
	file := filepath.Join(root, "dir/file")
	must(t, Apply(t.Context(), Request{Root: root, GID: gid, OnRootMismatch: true}))
	if _, g := owner(t, file); g != gid {
		t.Error("a root that does not match is no reason to walk")
	}
	must(t, os.Chown(file, 0, 0))
	must(t, Apply(t.Context(), Request{Root: root, GID: gid, OnRootMismatch: true}))
	if _, g := owner(t, file); g == gid {
		t.Error("a root that matches is walked")
	}
	must(t, Apply(t.Context(), Request{Root: root, GID: gid}))
	if _, g := owner(t, file); g != gid {
		t.Error("Always is not")
	}
}

// Wherever a walk is interrupted, the root does not match, and the next walk
// finishes.
func TestInterrupted(t *testing.T) {
	needRoot(t)
	for after := 1; ; after++ {
		root, _ := volume(t)
		ctx, cancel := context.WithCancel(t.Context())
		left := after
		counting := &countingContext{Context: ctx, left: &left, cancel: cancel}
		r := Request{Root: root, GID: gid, OnRootMismatch: true}
		err := Apply(counting, r)
		cancel()
		mode, g := owner(t, root)
		if err == nil {
			if after < 7 {
				t.Errorf("only %d steps", after)
			}
			return
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("after %d: error %v", after, err)
		}
		if r.Matches(mode, int64(g)) {
			t.Errorf("after %d: the root matches", after)
		}
		must(t, Apply(t.Context(), r))
		if _, g := owner(t, filepath.Join(root, "dir/sub/file")); g != gid {
			t.Errorf("after %d: the next walk does not finish", after)
		}
	}
}

// countingContext ends when it was asked often enough.
type countingContext struct {
	context.Context
	left   *int
	cancel func()
}

func (c *countingContext) Err() error {
	if *c.left--; *c.left <= 0 {
		c.cancel()
	}
	return c.Context.Err()
}

func TestRefusals(t *testing.T) {
	root, _ := volume(t)
	link := root + ".link"
	must(t, os.Symlink(root, link))
	for name, r := range map[string]Request{
		"nothing there": {Root: root + ".none", GID: gid}, "a link": {Root: link, GID: gid}, "a file": {Root: filepath.Join(root, "file"), GID: gid},
		"no group": {Root: root, GID: -1}, "too large a group": {Root: root, GID: 1<<32 - 1},
	} {
		if err := Apply(t.Context(), r); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestErrorsAreCounted(t *testing.T) {
	var f failures
	for i := range 100 {
		f.add(fmt.Errorf("file %d", i))
		f.add(nil)
	}
	text := f.err().Error()
	if strings.Count(text, "file ") != maxErrors || !strings.Contains(text, "and 95 more files") {
		t.Errorf("%q", text)
	}
}

func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		w := &walker{ctx: t.Context(), next: time.Now().Add(firstProgress)}
		w.Progress = func(n int64, first bool) { told = append(told, fmt.Sprint(n, first)) }
		for range 200 { // one file a second
			time.Sleep(time.Second)
			must(t, w.step())
		}
		if want := "[30 true 90 false 150 false]"; fmt.Sprint(told) != want {
			t.Errorf("told %v, want %s", told, want)
		}
	})
}
