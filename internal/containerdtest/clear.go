package containerdtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Stop ends all pods and containerd, and removes everything that they created. It
// removes Dir if Start created it. It works in any state of containerd: frozen,
// killed, half started.
func (c *Containerd) Stop() error {
	if c.proc != nil {
		_ = c.Thaw()
	} else if _, err := os.Stat(c.Socket); err == nil {
		if err := c.Resume(); err != nil {
			c.opts.Logf("cannot start containerd to remove its pods: %v", err)
		}
	}
	err := c.clear()
	if c.tempDir {
		err = errors.Join(err, os.RemoveAll(c.Dir))
	}
	if c.opts.lease != nil {
		err = errors.Join(err, c.opts.lease.Close())
		c.opts.lease = nil
	}
	return err
}

// clear removes everything except Dir itself and the log.
func (c *Containerd) clear() error {
	var errs []error
	if c.proc != nil {
		if err := c.removePods(); err != nil {
			c.opts.Logf("cannot remove pods through CRI: %v; killing them", err)
		}
		errs = append(errs, c.end(syscall.SIGTERM))
	}
	if c.local() {
		errs = append(errs, c.resetLocal())
	} else {
		c.deleteContainers()
		c.killShims()
	}
	errs = append(errs, UnmountBelow(c.Dir), removeBridge(c.Bridge), c.removeShared())
	for _, name := range []string{"root", "state", "tmp", "opt", "cni", "cdi", "net.d", "runc", "certs.d", "config.toml", "before", "pid", "containerd.sock", "containerd.sock.ttrpc"} {
		errs = append(errs, os.RemoveAll(filepath.Join(c.Dir, name)))
	}
	return errors.Join(errs...)
}

// removePods stops and removes every pod sandbox through CRI, which also removes
// its containers, mounts and networks.
func (c *Containerd) removePods() error {
	conn, err := c.dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	rt := runtimeapi.NewRuntimeServiceClient(conn)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	list, err := rt.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	return each(list.GetItems(), func(s *runtimeapi.PodSandbox) error {
		one, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		if _, err := rt.StopPodSandbox(one, &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.GetId()}); err != nil {
			return err
		}
		_, err := rt.RemovePodSandbox(one, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.GetId()})
		return err
	})
}

// deleteContainers deletes the remaining containers with runc.
func (c *Containerd) deleteContainers() {
	left, err := filepath.Glob(filepath.Join(c.RuncDir, "k8s.io", "*"))
	if err != nil || len(left) == 0 {
		return
	}
	runc, err := findProgram(c.opts.BinDir, "runc")
	if err != nil {
		return
	}
	for _, dir := range left {
		out, err := exec.Command(runc, "--root", filepath.Dir(dir), "delete", "--force", filepath.Base(dir)).CombinedOutput()
		if err != nil {
			c.opts.Logf("runc delete %s: %v: %s", filepath.Base(dir), err, bytes.TrimSpace(out))
		}
	}
}

// killShims kills the shims of this containerd, and waits until they are gone. It
// recognizes a shim by the socket of containerd on its command line.
func (c *Containerd) killShims() {
	for range 200 {
		found := false
		procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			return
		}
		for _, p := range procs {
			cmdline, err := os.ReadFile(p)
			if err != nil {
				continue
			}
			args := strings.Split(string(cmdline), "\x00")
			if !strings.Contains(args[0], "containerd-shim") || !slices.Contains(args, c.Socket) {
				continue
			}
			found = true
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(p))); err == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL) // fails if the shim has exited
			}
		}
		if !found {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// UnmountBelow lazily unmounts (MNT_DETACH) every mount below dir, the newest first.
func UnmountBelow(dir string) error {
	for range 5 { // mounts may be stacked
		info, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			return err
		}
		var points []string
		for line := range strings.Lines(string(info)) {
			if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], dir+"/") {
				points = append(points, f[4])
			}
		}
		if len(points) == 0 {
			return nil
		}
		for _, p := range slices.Backward(points) {
			if err := unix.Unmount(p, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("unmount %s: %w", p, err)
			}
		}
	}
	return nil
}

// UnlinkLogs removes an agent's links in /var/log/containers to logs below dir, and
// /var/log/containers itself if it is empty.
func UnlinkLogs(dir string) error {
	const links = "/var/log/containers"
	all, err := filepath.Glob(filepath.Join(links, "*.log"))
	for _, link := range all {
		if to, readErr := os.Readlink(link); readErr == nil && strings.HasPrefix(to, dir+"/") {
			err = errors.Join(err, os.Remove(link))
		}
	}
	_ = unix.Rmdir(links) // fails if the directory has other links
	return err
}

// removeBridge deletes a bridge by ioctl, so that the machine needs no iproute2. It
// returns nil if there is no such bridge.
func removeBridge(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	err = unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, ifr)
	if errors.Is(err, unix.ENODEV) {
		return nil // no pod has run
	}
	if err == nil {
		ifr.SetUint16(ifr.Uint16() &^ unix.IFF_UP) // a bridge that is up cannot be deleted
		err = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
	}
	if err == nil {
		raw := append([]byte(name), 0)
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCBRDELBR, uintptr(unsafe.Pointer(&raw[0])))
		if errno != 0 {
			err = errno
		}
	}
	if err != nil {
		return fmt.Errorf("remove bridge %s: %w", name, err)
	}
	return nil
}

// sharedDirs are patterns of directories that containerd creates outside of its own: the
// parent cgroups of pods, k8s.io and kubepods, on v2 and on every hierarchy of v1, and
// the directories of shim sockets and of CNI results.
var sharedDirs = []string{
	"/sys/fs/cgroup/k8s.io", "/sys/fs/cgroup/*/k8s.io", "/sys/fs/cgroup/kubepods", "/sys/fs/cgroup/*/kubepods",
	"/run/containerd", "/var/lib/cni",
}

// sharedNow returns the existing directories that match sharedDirs.
func sharedNow() map[string]bool {
	found := map[string]bool{}
	for _, pattern := range sharedDirs {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			continue // the patterns are constant and valid
		}
		for _, d := range dirs {
			found[d] = true
		}
	}
	return found
}

// removeShared removes the directories of sharedDirs that did not exist at the start, unless they
// are in use or not empty.
func (c *Containerd) removeShared() error {
	for dir := range sharedNow() {
		if c.before == nil || c.before[dir] {
			continue
		}
		var all []string
		err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				all = append(all, p)
			}
			return nil // an error means that another process has removed the directory
		})
		if err != nil {
			return err
		}
		for _, p := range slices.Backward(all) {
			err := syscall.Rmdir(p)
			if err != nil && !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.EBUSY) && !errors.Is(err, syscall.ENOTEMPTY) {
				return fmt.Errorf("remove %s: %w", p, err)
			}
		}
	}
	return nil
}
