package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	"k8s.io/mount-utils"

	"github.com/nodewright/nodewright/cgroups"
	"github.com/nodewright/nodewright/e2e/apart"
	"github.com/nodewright/nodewright/node"
)

// stage tells a child of this program how far it is separated from the machine, and place which
// directory it uses. The node under test takes the cgroup with that name for the root cgroup.
const (
	stage = "NODEWRIGHT_CONFORMANCE_STAGE"
	place = "NODEWRIGHT_CONFORMANCE_PLACE"
)

// separate runs the rest of this program in a child process with its own mounts, network and
// cgroups. This is necessary since the suites use a kubelet's directories and ports,
// systemCgroups moves all processes of the machine, and recursive read-only mounts require that
// the root is a shared mount. Several children may run at a time. In the parent, separate returns
// true when the child has ended.
//
// If processes is true, the child also has its own PID namespace, and is its init. Pods of the
// storage suites enter the mount namespace of process 1, which the kernel refuses if that process
// has more capabilities than the containers.
//
// On cgroup v2, a cgroup with processes cannot pass controllers to its children, so the machine's
// root cgroup is used.
func separate(ctx context.Context, processes bool) (done bool, err error) {
	switch {
	case os.Getenv(stage) == "3":
		return false, nil
	case isApart():
		if err := apart.Places(os.Getenv(place)); err != nil {
			return true, err
		}
		if err := remount(); err != nil || os.Getpid() != 1 {
			return err != nil, err
		}
		if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			return true, fmt.Errorf("mount /proc: %w", err)
		}
		return true, again("3", 0)
	case os.Getenv(stage) == "1":
		own := filepath.Base(os.Getenv(place))
		if err := errors.Join((cgroups.Host{}).Join(ctx, "/"+own, os.Getpid()), joinUnified(own)); err != nil {
			return true, err
		}
		var flags uintptr = apart.Flags | unix.CLONE_NEWCGROUP
		if processes {
			flags |= unix.CLONE_NEWPID
		}
		return true, again("2", flags)
	case node.CgroupV2():
		return false, nil
	}
	dir, err := os.MkdirTemp("", "nwconformance")
	if err != nil {
		return true, err
	}
	if err := os.Setenv(place, dir); err != nil {
		return true, err
	}
	err = errors.Join(again("1", 0), os.RemoveAll(dir))
	for _, dir := range cgroupDirs(filepath.Base(dir)) {
		err = errors.Join(err, removeCgroup(dir))
	}
	return true, err
}

// joinUnified moves this process to a cgroup of the v2 hierarchy that some machines have in
// addition to v1.
func joinUnified(name string) error {
	const root = "/sys/fs/cgroup/unified"
	if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
		return nil //nolint:nilerr // there is none
	}
	dir := filepath.Join(root, name)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Append(nil, os.Getpid()), 0)
}

// isApart reports whether this process is a child that separate has started.
func isApart() bool { return os.Getenv(stage) == "2" || os.Getenv(stage) == "3" }

// again runs this program with the same arguments, and passes on the signals that end it.
func again(next string, flags uintptr) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), stage+"="+next)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Setpgid: true}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	if os.Getpid() == 1 {
		err = reap(cmd.Process.Pid)
	} else {
		err = cmd.Wait()
	}
	if exit := new(exec.ExitError); errors.As(err, &exit) && exit.ExitCode() == 1 {
		return errFailed // it has said why
	}
	return err
}

// reap waits for a child as an init process does: it also reaps all orphans until the child has
// ended.
func reap(child int) error {
	for {
		var status unix.WaitStatus
		switch pid, err := unix.Wait4(-1, &status, 0, nil); {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return os.NewSyscallError("wait4", err)
		case pid != child || status.Stopped():
		case status.ExitStatus() == 0:
			return nil
		default:
			return errFailed // it has said why, unless it was killed
		}
	}
}

// errFailed is the error of a child that failed. The child has printed the reason, unless it was killed.
var errFailed = errors.New("failed")

// remount mounts cgroups again, so that only those below this process's own cgroup are visible.
// It also makes every mount a shared one.
func remount() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	mounts, err := mount.ParseMountInfo("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range mounts {
		if m.FsType != "cgroup" && m.FsType != "cgroup2" {
			continue
		}
		var options []string
		for _, o := range m.SuperOptions {
			switch named := strings.HasPrefix(o, "name="); {
			case m.FsType == "cgroup2":
			case named:
				options = append(options, "none", o)
			case o != "rw" && o != "ro" && !strings.Contains(o, "="):
				options = append(options, o) // a controller
			}
		}
		if err := unix.Unmount(m.MountPoint, unix.MNT_DETACH); err != nil {
			errs = append(errs, fmt.Errorf("unmount %s: %w", m.MountPoint, err))
			continue
		}
		data := strings.Join(options, ",")
		if err := unix.Mount(m.FsType, m.MountPoint, m.FsType, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, data); err != nil {
			errs = append(errs, fmt.Errorf("mount %s %q on %s: %w", m.FsType, data, m.MountPoint, err))
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		errs = append(errs, fmt.Errorf("make mounts shared: %w", err))
	}
	return errors.Join(errs...)
}
