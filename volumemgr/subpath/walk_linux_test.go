package subpath

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
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
	walks(t, func(t *testing.T, w Walk) {
		_, at := tree(t)
		for _, tc := range []struct {
			rel  string
			want error // nil: it is opened
		}{
			{"dir", nil}, {"dir/sub", nil}, {"./dir//sub/", nil}, {".", nil}, {"", nil},
			{"dir/file", nil}, {"fifo", nil}, {"socket", nil},
			{"none", fs.ErrNotExist}, {"dir/none", fs.ErrNotExist}, {"none/none", fs.ErrNotExist},
			{"dir/file/x", unix.ENOTDIR}, {"fifo/x", unix.ENOTDIR}, {"socket/x", unix.ENOTDIR},
			{"in", ErrSymlink}, {"in/sub", ErrSymlink}, {"absolute", ErrSymlink}, {"out", ErrSymlink}, {"out/secret", ErrSymlink},
			{"root", ErrSymlink}, {"root/etc", ErrSymlink}, {"dangling", ErrSymlink}, {"loop1", ErrSymlink}, {"self/dir", ErrSymlink}, {"tofile", ErrSymlink},
			{"..", ErrOutside}, {"dir/..", ErrOutside}, {"../base/dir", ErrOutside}, {"/etc", ErrOutside},
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
	walks(t, func(t *testing.T, w Walk) {
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
			{"up", "..", nil, ErrOutside},
			{"up and up", "test/../../..", nil, ErrOutside},
			{"absolute", "/new", nil, ErrOutside},
			{"something to make outside", "out/new", nil, ErrOutside},
			{"something to make at the root", "root/new-directory", nil, ErrOutside},
			{"something to make above", "up/new", nil, ErrOutside},
			{"a link that leads nowhere", "dangling", nil, ErrSymlink},
			{"below a link that leads nowhere", "dangling/new", nil, ErrSymlink},
			{"a link that leads nowhere outside", "outdangling/new", nil, ErrSymlink},
			{"mutual links", "loop1/new", nil, unix.ELOOP},
			{"a file at the end", "dir/file", nil, unix.ENOTDIR},
			{"a link to a file", "tofile", nil, unix.ENOTDIR},
			{"a file in the middle", "dir/file/new", nil, unix.ENOTDIR},
			{"a fifo in the middle", "fifo/new", nil, unix.ENOTDIR},
			{"a fifo at the end", "fifo", nil, unix.ENOTDIR},
		} {
			for _, mode := range []fs.FileMode{0o755, fs.ModeSetgid | 0o770, fs.ModeSetuid | fs.ModeSticky | 0o777} {
				top, at := tree(t)
				before := list(t, top)
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
				if got := list(t, top) - before; got != len(tc.made) {
					t.Errorf("%s: %d are new, want %d", tc.name, got, len(tc.made))
				}
			}
		}
	})
}

// list counts what is below dir.
func list(t *testing.T, dir string) int {
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
		{"out", "", ErrOutside}, {"root/etc", "", ErrOutside}, {"up/outside", "", ErrOutside}, {"up", "", ErrOutside}, {"../base", "", ErrOutside},
		{"dangling", "", fs.ErrNotExist}, {"none", "", fs.ErrNotExist},
	} {
		base, rel, err := Walk{}.Resolve(at("base/in/../in/.."), tc.rel)
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
