package mount_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/volumemgr/mount"
)

// tree makes a base and something outside, and returns the directory of both.
func tree(t *testing.T) (top string, at func(...string) string) {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	at = func(name ...string) string { return filepath.Join(append([]string{top}, name...)...) }
	must(t, os.MkdirAll(at("base/dir/sub"), 0o755))
	must(t, os.MkdirAll(at("outside/secret"), 0o755))
	must(t, os.WriteFile(at("base/dir/file"), []byte("x"), 0o644))
	must(t, unix.Mkfifo(at("base/fifo"), 0o644))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: at("base/socket"), Net: "unix"})
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	for link, to := range map[string]string{
		"in": "dir", "deep": "dir/sub", "absolute": at("base/dir"), "out": "../outside", "root": "/", "dangling": "none",
		"loop1": "loop2", "loop2": "loop1", "self": ".", "up": "..", "tofile": "dir/file", "outdangling": "../outside/none",
	} {
		must(t, os.Symlink(to, at("base", link)))
	}
	return top, at
}

func TestOpen(t *testing.T) {
	walks(t, func(t *testing.T, w mount.SubPathWalk) {
		_, at := tree(t)
		for _, tc := range []struct {
			rel  string
			want error // nil: it is opened
		}{
			{"dir", nil}, {"dir/sub", nil}, {"./dir//sub/", nil}, {".", nil}, {"", nil},
			{"dir/file", nil}, {"fifo", nil}, {"socket", nil},
			{"none", fs.ErrNotExist}, {"dir/none", fs.ErrNotExist}, {"none/none", fs.ErrNotExist},
			{"dir/file/x", unix.ENOTDIR}, {"fifo/x", unix.ENOTDIR}, {"socket/x", unix.ENOTDIR},
			{"in", mount.ErrSymlink}, {"in/sub", mount.ErrSymlink}, {"absolute", mount.ErrSymlink}, {"out", mount.ErrSymlink}, {"out/secret", mount.ErrSymlink},
			{"root", mount.ErrSymlink}, {"root/etc", mount.ErrSymlink}, {"dangling", mount.ErrSymlink}, {"loop1", mount.ErrSymlink}, {"self/dir", mount.ErrSymlink}, {"tofile", mount.ErrSymlink},
			{"..", mount.ErrOutside}, {"dir/..", mount.ErrOutside}, {"../base/dir", mount.ErrOutside}, {"/etc", mount.ErrOutside},
		} {
			f, err := w.Open(at("base"), tc.rel)
			if tc.want == nil && err != nil || tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("%q: error %v, want %v", tc.rel, err, tc.want)
			}
			if err != nil {
				continue
			}
			got, serr := f.Stat()
			must(t, serr)
			if want, serr := os.Lstat(at("base", tc.rel)); serr != nil || !os.SameFile(got, want) {
				t.Errorf("%q: something else was opened", tc.rel)
			}
			must(t, f.Close())
		}
		if _, err := w.Open(at("nobase"), "x"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("no base: %v", err)
		}
		if f, err := w.Open(at("base/in"), "sub"); err != nil {
			t.Errorf("a base that is a link: %v", err)
		} else {
			must(t, f.Close())
		}
	})
}

func TestMakeDir(t *testing.T) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	walks(t, func(t *testing.T, w mount.SubPathWalk) {
		for _, tc := range []struct {
			name, rel string
			made      []string // directories that have to be new; nil: none
			fails     error    // errAny: any error
		}{
			{"one", "new", []string{"base/new"}, nil},
			{"several", "new/a/b", []string{"base/new", "base/new/a", "base/new/a/b"}, nil},
			{"below one that is there", "dir/sub/new", []string{"base/dir/sub/new"}, nil},
			{"there already", "dir/sub", nil, nil},
			{"the base", ".", nil, nil},
			{"words that stay inside", "dir/../new", []string{"base/new"}, nil},
			{"through a link inside", "in/new", []string{"base/dir/new"}, nil},
			{"through a link deep inside", "deep/new/x", []string{"base/dir/sub/new", "base/dir/sub/new/x"}, nil},
			{"through an absolute link inside", "absolute/new", []string{"base/dir/new"}, nil},
			{"a link outside that is there", "out", nil, nil}, // Bind refuses it
			{"there, behind a link outside", "out/secret", nil, nil},
			{"up", "..", nil, mount.ErrOutside},
			{"up and up", "test/../../..", nil, mount.ErrOutside},
			{"absolute", "/new", nil, mount.ErrOutside},
			{"something to make outside", "out/new", nil, mount.ErrOutside},
			{"something to make at the root", "root/new-directory", nil, mount.ErrOutside},
			{"something to make above", "up/new", nil, mount.ErrOutside},
			{"a link that leads nowhere", "dangling", nil, mount.ErrSymlink},
			{"below a link that leads nowhere", "dangling/new", nil, mount.ErrSymlink},
			{"a link that leads nowhere outside", "outdangling/new", nil, mount.ErrSymlink},
			{"mutual links", "loop1/new", nil, unix.ELOOP},
			{"a file at the end", "dir/file", nil, unix.ENOTDIR},
			{"a link to a file", "tofile", nil, unix.ENOTDIR},
			{"a file in the middle", "dir/file/new", nil, unix.ENOTDIR},
			{"a fifo in the middle", "fifo/new", nil, unix.ENOTDIR},
			{"a fifo at the end", "fifo", nil, unix.ENOTDIR},
		} {
			for _, mode := range []fs.FileMode{0o755, fs.ModeSetgid | 0o770, fs.ModeSetuid | fs.ModeSticky | 0o777} {
				top, at := tree(t)
				before := subPathList(t, top)
				err := w.MakeDir(at("base"), tc.rel, mode)
				if tc.fails == nil && err != nil || tc.fails != nil && !errors.Is(err, tc.fails) {
					t.Errorf("%s: error %v, want %v", tc.name, err, tc.fails)
				}
				for _, d := range tc.made {
					info, err := os.Lstat(at(d))
					if err != nil || info.Mode() != fs.ModeDir|mode {
						t.Errorf("%s: %s has mode %v (%v), want %v", tc.name, d, info.Mode(), err, mode)
					}
				}
				if got := subPathList(t, top) - before; got != len(tc.made) {
					t.Errorf("%s: %d are new, want %d", tc.name, got, len(tc.made))
				}
			}
		}
	})
}

// subPathList counts the entries below dir.
func subPathList(t *testing.T, dir string) int {
	t.Helper()
	n := 0
	must(t, filepath.WalkDir(dir, func(string, fs.DirEntry, error) error { n++; return nil }))
	return n
}

func TestResolve(t *testing.T) {
	_, at := tree(t)
	for _, tc := range []struct {
		rel, want string
		fails     error
	}{
		{"dir", "dir", nil}, {"in/sub", "dir/sub", nil}, {"absolute/sub", "dir/sub", nil}, {"tofile", "dir/file", nil}, {"self/self/fifo", "fifo", nil},
		{"out", "", mount.ErrOutside}, {"root/etc", "", mount.ErrOutside}, {"up/outside", "", mount.ErrOutside}, {"up", "", mount.ErrOutside}, {"../base", "", mount.ErrOutside},
		{"dangling", "", fs.ErrNotExist}, {"none", "", fs.ErrNotExist},
	} {
		base, rel, err := mount.SubPathWalk{}.Resolve(at("base/in/../in/.."), tc.rel)
		if tc.fails != nil {
			if !errors.Is(err, tc.fails) {
				t.Errorf("%s: error %v, want %v", tc.rel, err, tc.fails)
			}
			continue
		}
		if err != nil || base != at("base") || rel != tc.want {
			t.Errorf("%s: %s %s (%v), want %s", tc.rel, base, rel, err, tc.want)
		}
	}
}

// walks runs f with openat2(2) and without.
func walks(t *testing.T, f func(t *testing.T, w mount.SubPathWalk)) {
	t.Run("openat2", func(t *testing.T) { f(t, mount.SubPathWalk{}) })
	t.Run("step by step", func(t *testing.T) { f(t, mount.SubPathWalk{NoOpenat2: true}) })
}
