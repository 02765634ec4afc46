package diskusage_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/diskusage"
	"github.com/nodewright/nodewright/internal/diskusage/quotatest"
)

// The kernel counts what is below the directories of a project, also without a name, and what is
// left counts until it is closed.
func TestProject(t *testing.T) {
	disk := quotatest.Disk(t)
	a, b, other := filepath.Join(disk, "a"), filepath.Join(disk, "b"), filepath.Join(disk, "other")
	for _, dir := range []string{a, b, other} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(diskusage.Assign(a, b), diskusage.Assign(other)); err != nil {
		t.Fatal(err)
	}
	// A second call changes nothing.
	if err := diskusage.Assign(a, b); err != nil {
		t.Error(err)
	}
	const tree = 2 * 4096 // the two directories
	check := func(what string, dir string, bytes, inodes int64) {
		t.Helper()
		// Names take blocks of directories too, but no more than these directories have.
		u, err := diskusage.Quota(dir)
		if err != nil || u.Used != bytes || u.InodesUsed != inodes || u.AtLeast || u.Capacity <= u.Used {
			t.Errorf("%s: %d bytes and %d inodes (%v); want %d and %d", what, u.Used, u.InodesUsed, err, bytes, inodes)
		}
	}
	check("empty", b, tree, 2)
	write(t, filepath.Join(a, "x"), 1<<20)
	write(t, filepath.Join(b, "sub/y"), 1<<20)
	check("with files", b, tree+4096+2<<20, 5)
	f, err := os.Open(filepath.Join(a, "x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(f.Name()); err != nil {
		t.Fatal(err)
	}
	check("removed, but open", b, tree+4096+2<<20, 5)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	check("closed", b, tree+4096+1<<20, 4)
	check("another project", other, 4096, 1)
	if err := os.Mkdir(filepath.Join(disk, "plain"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := diskusage.Quota(filepath.Join(disk, "plain")); !errors.Is(err, diskusage.ErrNoQuota) {
		t.Errorf("without a project: %v", err)
	}
	write(t, filepath.Join(disk, "plain", "f"), 1)
	if err := diskusage.Assign(filepath.Join(disk, "plain")); !errors.Is(err, diskusage.ErrNoQuota) {
		t.Errorf("a directory with files: %v", err)
	}
}

func TestProjectIsOfItsOwn(t *testing.T) {
	disk := quotatest.Disk(t)
	const n = 300
	for i := range n {
		dir := filepath.Join(disk, strconv.Itoa(i))
		if err := errors.Join(os.Mkdir(dir, 0o755), diskusage.Assign(dir)); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "f"), 4096*(i%3+1))
	}
	for i := range n {
		u, err := diskusage.Quota(filepath.Join(disk, strconv.Itoa(i)))
		if want := int64(4096 * (i%3 + 2)); err != nil || u.Used != want || u.InodesUsed != 2 {
			t.Errorf("directory %d: %d bytes, %d inodes (%v); want %d and 2", i, u.Used, u.InodesUsed, err, want)
		}
	}
}

// changeProject is set for a process that takes the file of its standard input out of its project.
const changeProject = "DISKUSAGE_TEST_CHANGE_PROJECT"

func TestMain(m *testing.M) {
	if os.Getenv(changeProject) == "" {
		os.Exit(m.Run())
	}
	var attr [28]byte // struct fsxattr; bytes 12 to 15 are the project
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, 0, 0x801c581f, uintptr(unsafe.Pointer(&attr)))
	if errno == 0 {
		clear(attr[12:16])
		_, _, errno = unix.Syscall(unix.SYS_IOCTL, 0, 0x401c5820, uintptr(unsafe.Pointer(&attr)))
	}
	fmt.Print(int(errno))
}

// The root user of a user namespace owns the files of its pod, and cannot take them out of their
// project. A process without one can, which is why such pods have no projects.
func TestWhoChangesAProject(t *testing.T) {
	disk := quotatest.Disk(t)
	dir := filepath.Join(disk, "volume")
	if err := errors.Join(os.Mkdir(dir, 0o777), diskusage.Assign(dir), os.Chown(dir, 1000, 1000)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "f")
	write(t, file, 1<<20)
	if err := os.Chown(file, 1000, 1000); err != nil {
		t.Fatal(err)
	}
	run := func(path string, attr *syscall.SysProcAttr) string {
		t.Helper()
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		cmd := exec.Command(self)
		cmd.Stdin, cmd.Env, cmd.SysProcAttr = f, append(os.Environ(), changeProject+"=1"), attr
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	mapped := func() *syscall.SysProcAttr {
		m := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 1000, Size: 1}}
		return &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: m, GidMappings: m, Credential: &syscall.Credential{}}
	}
	for _, path := range []string{dir, file} {
		if got := run(path, mapped()); got != strconv.Itoa(int(unix.EINVAL)) {
			t.Errorf("%s, in a user namespace: error %s, want EINVAL", path, got)
		}
	}
	if u, err := diskusage.Quota(dir); err != nil || u.Used < 1<<20 {
		t.Errorf("%d bytes (%v)", u.Used, err)
	}
	if got := run(file, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}); got != "0" {
		t.Errorf("without a user namespace: error %s", got)
	}
	if u, err := diskusage.Quota(dir); err != nil || u.Used > 4096 {
		t.Errorf("%d bytes (%v), after the file left the project", u.Used, err)
	}
}
