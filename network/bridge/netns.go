package bridge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/internal/safefile"
)

// nsfsMagic and nsGetType are from linux/magic.h and linux/nsfs.h.
const (
	nsfsMagic = 0x6e736673
	nsGetType = 0xb703 // NS_GET_NSTYPE
	maxSysctl = 4096   // bytes
)

// ownNetns opens the network namespace of the calling thread. It does not use /proc/self, which
// has the namespace of the process's first thread.
func ownNetns() (*os.File, error) { return openNetns("/proc/thread-self/ns/net", false) }

// openNetns opens a network namespace. Any other file is an error. If nofollow is set, a symbolic
// link as the last element of path is an error; this is for the paths of pods, which come from
// requests. The caller closes the file.
func openNetns(path string, nofollow bool) (*os.File, error) {
	flags := unix.O_PATH | unix.O_CLOEXEC
	if nofollow {
		flags |= unix.O_NOFOLLOW
	}
	// Opened with O_PATH first: opening a file of another kind could have effects.
	at, err := unix.Open(path, flags, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(at) }()
	var fs unix.Statfs_t
	if err := unix.Fstatfs(at, &fs); err != nil {
		return nil, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	if fs.Type != nsfsMagic {
		return nil, &os.PathError{Op: "open", Path: path, Err: errors.New("not a namespace")}
	}
	// Opened through the descriptor: the file cannot have been replaced since the check.
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(at), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	// Other kinds of namespaces are in the same file system.
	kind, err := unix.IoctlRetInt(fd, nsGetType)
	if err == nil && kind != unix.CLONE_NEWNET {
		err = errors.New("not a network namespace")
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// sameFile reports whether two files are the same namespace. If one cannot be checked, it returns
// false.
func sameFile(a, b *os.File) bool {
	x, errX := a.Stat()
	y, errY := b.Stat()
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// withinNetns calls f on a thread that is in a network namespace, and waits for it. A thread that
// cannot return to its namespace is ended, so that no other goroutine ever runs in the wrong
// namespace. f must not start goroutines that rely on the namespace.
func withinNetns(ns *os.File, f func() error) error {
	return onThread(func() error { return unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET) }, f)
}

// inFreshNetns calls f in a new network namespace, which is removed at the end, also after a panic,
// with everything that f created in it.
func inFreshNetns(f func() error) error {
	return onThread(func() error { return unix.Unshare(unix.CLONE_NEWNET) }, f)
}

// onThread calls enter and f on a thread of its own, and returns the thread to its
// namespace.
func onThread(enter, f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := ownNetns()
		if err != nil {
			// Nothing has changed: the thread can be used again.
			runtime.UnlockOSThread()
			result <- err
			return
		}
		defer func() { _ = home.Close() }()
		if err := enter(); err != nil {
			runtime.UnlockOSThread()
			result <- fmt.Errorf("enter network namespace: %w", err)
			return
		}
		err = call(f)
		// If the thread stays locked, the Go runtime ends it together with the goroutine.
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		result <- err
	}()
	return <-result
}

// aloneTimeout limits the wait for the lock. Other agents hold it for milliseconds, but any
// process of the namespace could hold it longer.
const aloneTimeout = 5 * time.Second

// alone calls f while it holds a lock of the network namespace. Otherwise two agents
// could choose the same subnet, or one agent could turn off a setting that the other
// needs. The lock is flock(2) on the namespace's file, and ends with the process. If it
// is held for longer than aloneTimeout, or the kernel does not support it, f is called
// without it.
func alone(ctx context.Context, ns *os.File, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, aloneTimeout)
	defer cancel()
	wait := retry.Backoff{First: time.Millisecond, Max: 100 * time.Millisecond}
	for errors.Is(unix.Flock(int(ns.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) && wait.Wait(ctx) {
	}
	defer func() { _ = unix.Flock(int(ns.Fd()), unix.LOCK_UN) }()
	return f()
}

// call turns a panic of f into an error.
func call(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return f()
}

// Settings of the calling thread's network namespace, as paths below /proc/sys/net.

// readSysctl returns a setting without the newline at its end.
func readSysctl(name string) (string, error) {
	b, err := safefile.ReadFile("/proc/sys/net/"+name, maxSysctl)
	return strings.TrimSpace(string(b)), err
}

// writeSysctl writes a setting, unless it has the value already: in a container, /proc/sys may be
// read-only while the value is right.
func writeSysctl(name, value string) error {
	if have, err := readSysctl(name); err == nil && have == value {
		return nil
	}
	return os.WriteFile("/proc/sys/net/"+name, []byte(value), 0)
}

// signOfIPv6 is the setting that exists if the kernel has IPv6; tests replace it.
var signOfIPv6 = "ipv6/conf/all/disable_ipv6"

// hasIPv6 reports whether the kernel has IPv6, even if it is disabled for interfaces. Kernels
// booted with ipv6.disable=1 lack these files.
func hasIPv6() bool {
	_, err := readSysctl(signOfIPv6)
	return err == nil
}
