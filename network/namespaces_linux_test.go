package network

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/nspin"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

// inside calls f in a network namespace, on a thread that ends with it.
func inside(t *testing.T, path string, f func() error) {
	t.Helper()
	var err error
	nspin.OnThread(func() bool {
		space, err2 := openSpace(path)
		if err = err2; err == nil {
			err = enter(space)
		}
		if err == nil {
			err = f()
		}
		return false
	})
	if err != nil {
		t.Errorf("in %s: %v", path, err)
	}
}

// pings has a connection to an address of its own.
func pings(address string) error {
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return err
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return err
	}
	return c.Close()
}

func interfaces() ([]string, error) {
	var names []string
	all, err := net.Interfaces()
	for _, i := range all {
		names = append(names, i.Name)
	}
	return names, err
}

func TestANamespaceComesAndGoes(t *testing.T) {
	plugintest.RequireMounts(t)
	dir := filepath.Join(t.TempDir(), "netns")
	path := filepath.Join(dir, "a")
	var k kernelSpaces
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if at, err := k.Look(path); err != nil || at.Kind != SpaceNone {
		t.Fatalf("%+v, %v", at, err)
	}
	if err := k.Remove(path, 0); err != nil {
		t.Fatalf("remove nothing: %v", err)
	}
	id, err := k.Make(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if at, err := k.Look(path); err != nil || at != (Space{SpaceNamed, id}) || id == 0 {
		t.Errorf("%+v, %v; want ID %d", at, err, id)
	}
	inside(t, path, func() error {
		names, err := interfaces()
		if len(names) == 0 || names[0] != "lo" {
			return fmt.Errorf("interfaces %v, %w", names, err)
		}
		return errors.Join(pings("127.0.0.1"), pings("::1"))
	})
	if _, err := k.Make(t.Context(), path, nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("make it twice: %v", err)
	}
	if names, err := k.List(dir, 10); err != nil || len(names) != 1 || names[0] != "a" {
		t.Errorf("%q, %v", names, err)
	}
	if err := k.Remove(path, id+1); !errors.Is(err, ErrForeign) {
		t.Errorf("remove another one: %v", err)
	}
	if at, _ := k.Look(path); at.ID != id {
		t.Errorf("it went: %+v", at)
	}
	for range 2 {
		if err := k.Remove(path, id); err != nil {
			t.Errorf("remove: %v", err)
		}
	}
	if names, err := k.List(dir, 10); err != nil || len(names) != 0 {
		t.Errorf("%q, %v", names, err)
	}
}

// No thread of the program stays in a namespace of a pod.
func TestThreadsComeBack(t *testing.T) {
	plugintest.RequireMounts(t)
	dir := t.TempDir()
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	var k kernelSpaces
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			path := filepath.Join(dir, fmt.Sprint(i))
			id, err := k.Make(t.Context(), path, nil)
			if err == nil {
				err = k.Remove(path, id)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	home, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, th := range threads {
		at, err := os.Readlink("/proc/self/task/" + th.Name() + "/ns/net")
		if err == nil && at != home {
			t.Errorf("thread %s is in %s, not in %s", th.Name(), at, home)
		}
	}
}

// Whoever comes first makes the directory a mount, and no other thread does so
// again, also while another process keeps all of them waiting.
func TestADirectoryIsSharedOnce(t *testing.T) {
	plugintest.RequireMounts(t)
	dir := t.TempDir()
	other, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := unix.Flock(int(other.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			if err := nspin.ShareDir(dir); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(mounts), " "+dir+" "); n != 1 {
		t.Errorf("%d mounts; want 1", n)
	}
}

func TestForeignThingsStay(t *testing.T) {
	plugintest.RequireMounts(t)
	dir := t.TempDir()
	if err := nspin.ShareDir(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	var k kernelSpaces
	for name, make := range map[string]func(path string) error{
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"link":      func(path string) error { return os.Symlink("/proc/self/ns/net", path) },
		"pipe":      func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"content":   func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) },
		"twonames": func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Link(path, path+".other"))
		},
		"tmpfs": func(path string) error {
			return errors.Join(os.Mkdir(path, 0o700), unix.Mount("x", path, "tmpfs", 0, ""))
		},
		"otherspace": func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), unix.Mount("/proc/self/ns/uts", path, "", unix.MS_BIND, ""))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, name)
			if err := make(path); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) })
			before, _ := os.Lstat(path)
			if at, err := k.Look(path); err != nil || at.Kind != SpaceForeign {
				t.Errorf("%+v, %v", at, err)
			}
			if _, err := k.Make(t.Context(), path, nil); !errors.Is(err, fs.ErrExist) {
				t.Errorf("make: %v", err)
			}
			if err := k.Remove(path, 0); !errors.Is(err, ErrForeign) {
				t.Errorf("remove: %v", err)
			}
			if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
				t.Errorf("it was touched: %v", err)
			}
		})
	}
	// An empty file is what a crash left; one that somebody mounted there is not.
	path := filepath.Join(dir, "empty")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := k.Remove(path, 0); err != nil {
		t.Errorf("remove an empty file: %v", err)
	}
}

// A namespace for a pod with a user namespace belongs to that.
func TestANamespaceOfAUserNamespace(t *testing.T) {
	plugintest.RequireMounts(t)
	cmd := exec.Command("/bin/sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 100000, Size: 1000}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 100000, Size: 1000}},
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("no user namespaces: %v", err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	owner, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	dir := t.TempDir()
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	var k kernelSpaces
	for i := range 20 {
		path := filepath.Join(dir, fmt.Sprint(i))
		id, err := k.Make(t.Context(), path, owner)
		if err != nil {
			t.Fatal(err)
		}
		space, err := openSpace(path)
		if err != nil {
			t.Fatal(err)
		}
		fd, err := onFile(space, func(fd int) (int, error) { return unix.IoctlRetInt(fd, unix.NS_GET_USERNS) })
		if err != nil {
			t.Fatal(err)
		}
		got := os.NewFile(uintptr(fd), "owner")
		a, _ := owner.Stat()
		if b, err := got.Stat(); err != nil || !os.SameFile(a, b) {
			t.Errorf("it belongs to another user namespace: %v", err)
		}
		_, _ = got.Close(), space.Close()
		inside(t, path, func() error { return pings("127.0.0.1") })
		if err := k.Remove(path, id); err != nil {
			t.Error(err)
		}
	}
	var left int
	if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err == nil && pid > 0 {
		left = pid
	}
	if left != 0 {
		t.Errorf("child %d was not waited for", left)
	}
	// The caller's own is none of the kind; a file that is none at all is refused.
	self, _ := os.Open("/proc/self/ns/user")
	defer self.Close()
	if id, err := k.Make(t.Context(), filepath.Join(dir, "self"), self); err != nil {
		t.Error(err)
	} else if err := k.Remove(filepath.Join(dir, "self"), id); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"/proc/self/ns/net", "/dev/null"} {
		f, _ := os.Open(name)
		if _, err := k.Make(t.Context(), filepath.Join(dir, "bad"), f); CodeOf(err) != InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
		f.Close()
	}
	if names, err := k.List(dir, 100); err != nil || len(names) != 0 {
		t.Errorf("left: %q, %v", names, err)
	}
}
