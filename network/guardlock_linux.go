package network

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/safefile"
)

// The first and the longest interval of tries to lock a guard.
const (
	firstTry   = 5 * time.Millisecond
	lastTry    = 500 * time.Millisecond
	maxProcess = 1 << 17 // limit of processes checked: more than a machine has
)

// takeGuard opens and locks the guard of that name. If processes of an earlier agent
// hold the lock, takeGuard waits up to timeout for them, and then kills the process
// group that the guard names. If the lock is still held, it returns without the lock:
// otherwise the attachment would never be torn down. killed reports whether it killed
// processes.
func takeGuard(ctx context.Context, dir, name string, timeout time.Duration) (guard *os.File, killed bool, err error) {
	path := filepath.Join(dir, name)
	f, held, err := tryGuard(path)
	if err != nil || !held {
		return f, false, err
	}
	if held, err = waitGuard(ctx, f, timeout); err == nil && held {
		killed = killGroup(f)
		_, err = waitGuard(ctx, f, afterKill)
	}
	if err != nil {
		_ = f.Close()
		return nil, killed, err
	}
	// The processes keep the old file open; the new file is not locked.
	_ = f.Close()
	if err := dropGuard(dir, name); err != nil {
		return nil, killed, err
	}
	f, _, err = tryGuard(path)
	return f, killed, err
}

// dropGuard removes the guard of that name. Processes that have the old file open no longer matter.
func dropGuard(dir, name string) error {
	err := os.Remove(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// tryGuard opens a guard and locks it. The result held reports that another process holds the lock.
// The lock belongs to the open file, which processes inherit.
func tryGuard(path string) (f *os.File, held bool, err error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, false, pathError("open", path, err)
	}
	f = os.NewFile(uintptr(fd), path)
	if held, err = lockGuard(f); err != nil {
		_ = f.Close()
		return nil, false, err
	}
	if !held {
		if err := f.Truncate(0); err != nil {
			_ = f.Close()
			return nil, false, err
		}
	}
	return f, held, nil
}

func lockGuard(f *os.File) (held bool, err error) {
	_, err = onFile(f, func(fd int) (int, error) { return 0, unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, pathError("lock", f.Name(), err)
}

func waitGuard(ctx context.Context, f *os.File, timeout time.Duration) (held bool, err error) {
	end := time.Now().Add(timeout)
	for pause := firstTry; ; pause = min(2*pause, lastTry) {
		held, err = lockGuard(f)
		left := time.Until(end)
		if err != nil || !held || left <= 0 {
			return held, err
		}
		select {
		case <-time.After(min(pause, left)):
		case <-ctx.Done():
			return true, context.Cause(ctx)
		}
	}
}

// killGroup kills the process group that a guard names, if it still is the same group,
// and reports whether it did. The leader is recognized by its start time. If the leader
// has ended, only those processes of the group are killed that have the guard open. If
// the guard names no group, all processes that have the guard open are killed.
func killGroup(guard *os.File) bool {
	g, err := readGuard(guard)
	if errors.Is(err, errNoGroup) {
		return killHolders(guard, anyGroup) // the agent ended before it could name one
	}
	if err != nil || g.pid == os.Getpid() || g.pid == unix.Getpgrp() {
		return false
	}
	start, pgrp, err := processTimes(g.pid)
	switch {
	case err == nil && start == g.start && pgrp == g.pid:
		return unix.Kill(-g.pid, unix.SIGKILL) == nil
	case err == nil && start == g.start:
		return unix.Kill(g.pid, unix.SIGKILL) == nil // it leads no group
	default:
		return killHolders(guard, g.pid)
	}
}

const anyGroup = 0

// killHolders kills the processes of a group that have a file open, and those that
// they start meanwhile, until there are none.
func killHolders(file *os.File, pgrp int) (killed bool) {
	want, err := file.Stat()
	if err != nil {
		return false
	}
	for end := time.Now().Add(afterKill); ; time.Sleep(firstTry) { // a killed process takes a moment to end
		found := false
		names, _ := safefile.Names("/proc", maxProcess)
		for _, name := range names {
			pid, err := strconv.Atoi(name)
			if err != nil || pid <= 1 || pid == os.Getpid() {
				continue
			}
			if _, its, err := processTimes(pid); err == nil && (its == pgrp || pgrp == anyGroup) && killHolder(pid, want) {
				found = true
			}
		}
		killed = killed || found
		if !found || time.Now().After(end) {
			return killed
		}
	}
}

// killHolder kills a process if it has a file open. It opens a pidfd before it checks the
// process, since the pid may be used for another process before the kill.
func killHolder(pid int, want os.FileInfo) bool {
	held, err := unix.PidfdOpen(pid, 0)
	if err == nil {
		defer func() { _ = unix.Close(held) }()
	}
	switch {
	case !hasOpen(pid, want):
		return false
	case err != nil: // Linux before 5.3
		return unix.Kill(pid, unix.SIGKILL) == nil
	}
	return unix.PidfdSendSignal(held, unix.SIGKILL, nil, 0) == nil
}

func hasOpen(pid int, want os.FileInfo) bool {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	names, _ := safefile.Names(dir, maxProcess)
	for _, name := range names {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && os.SameFile(info, want) {
			return true
		}
	}
	return false
}

// lockFile locks a file until unlock is called or this process ends.
func lockFile(path string) (unlock func(), err error) {
	f, held, err := tryGuard(path)
	if err != nil {
		return nil, err
	}
	if held {
		_ = f.Close()
		return nil, pathError("lock", path, errors.New("another process uses the directory"))
	}
	return func() { _ = f.Close() }, nil
}
