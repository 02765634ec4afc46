package safefile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// withoutOpenat2 has the kernel refuse the call, for as long as the test runs.
func withoutOpenat2(t *testing.T, err error) {
	t.Helper()
	openat2 = func(int, string, *unix.OpenHow) (int, error) { return -1, err }
	t.Cleanup(func() { openat2 = unix.Openat2 })
}

// Where openat2 is missing, or a filter refuses it, the same names lead to the same
// files, and none leads out.
func TestWithoutOpenat2(t *testing.T) {
	for _, err := range []error{unix.ENOSYS, unix.EPERM} {
		t.Run(err.Error(), func(t *testing.T) {
			withoutOpenat2(t, err)
			t.Run("what is read", TestWhatIsRead)
			t.Run("held directories", TestAHeldDirectoryStaysTheSame)
			t.Run("writes", TestWrite)
			t.Run("what there is", TestExists)
		})
	}
}

// The walk and the kernel agree on every name of up to four elements.
func TestStepsAreTheKernels(t *testing.T) {
	dir := tree(t)
	for link, to := range map[string]string{
		"sub/back": "..", "sub/over": "../../dir/file", "sub/around": "../inside/../file", "chain": "linked", "trailing": "sub/", "filed": "file/",
		"deep": "./sub/./file", "sub/up2": "../..", "magic": "/proc/self/root/etc/passwd", "atroot": "/sub/inside", "above": "../../../sub/../file", "rooted": "/",
	} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(root) }()
	if fd, err := unix.Openat2(root, "file", &unix.OpenHow{Flags: unix.O_PATH}); err != nil {
		t.Skip("no openat2 here: ", err)
	} else {
		_ = unix.Close(fd)
	}
	look := func(name string, how follow) (id [2]uint64, ok bool) {
		fd, err := hold(dir, name, how)
		if err != nil {
			return id, false
		}
		defer func() { _ = unix.Close(fd) }()
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			t.Fatal(err)
		}
		return [2]uint64{st.Dev, st.Ino}, st.Mode&unix.S_IFMT != unix.S_IFLNK
	}
	elements := []string{"file", "sub", "inside", "linked", "out", "up", "loop", "absolute", "back", "over", "around", "chain", "trailing", "filed", "deep", "up2", "magic", "atroot", "above", "rooted", "..", ".", "", "none"}
	var names []string
	for _, a := range elements {
		names = append(names, a)
		for _, b := range elements {
			names = append(names, a+"/"+b)
			for _, c := range []string{"file", "back", "..", "sub", ""} {
				names = append(names, a+"/"+b+"/"+c, a+"/"+b+"/"+c+"/file")
			}
		}
	}
	for _, name := range names {
		if !filepath.IsLocal(name) {
			continue
		}
		for _, how := range []follow{noLinks, links, rooted} {
			openat2 = unix.Openat2
			want, wantOK := look(name, how)
			withoutOpenat2(t, unix.ENOSYS)
			got, gotOK := look(name, how)
			if got != want || gotOK != wantOK {
				t.Errorf("%q, %v: %v, %v; the kernel says %v, %v", name, how, got, gotOK, want, wantOK)
			}
		}
	}
}

// Links without end, and a name that is too deep, are errors and hold nothing open.
func TestStepsEnd(t *testing.T) {
	withoutOpenat2(t, unix.ENOSYS)
	dir := t.TempDir()
	name := ""
	for range 200 {
		name = filepath.Join(name, "d")
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, name), 0o700), os.Symlink("l/l/l", filepath.Join(dir, "l"))); err != nil {
		t.Fatal(err)
	}
	before := openFiles(t)
	for range 10 {
		for _, n := range []string{name, "l", "l/../l"} {
			if f, err := OpenWithin(dir, n); err == nil {
				_ = f.Close()
				t.Errorf("%q was opened", n)
			}
		}
	}
	if after := openFiles(t); after > before {
		t.Errorf("%d files are open, and were %d", after, before)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(entries)
}
