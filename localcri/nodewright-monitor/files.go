//go:build linux

package main

import (
	"bytes"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// openFile opens a regular file for reading, and returns its size. It follows no link at the end
// of the path, and opens neither a pipe nor a device.
func openFile(name string) (int, int64, error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return -1, 0, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = unix.EINVAL
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, 0, err
	}
	return fd, st.Size, nil
}

// readTail returns the last bytes of a file; nil if it cannot be read.
func readTail(name string, limit int) []byte {
	fd, size, err := openFile(name)
	if err != nil {
		return nil
	}
	defer closeFD(fd)
	b := make([]byte, limit)
	n, _ := unix.Pread(fd, b, max(size-int64(limit), 0))
	return b[:max(n, 0)]
}

// readPID returns the PID in the file that an executor has written; 0 if there is no valid PID.
func readPID(name string) int {
	pid, err := strconv.Atoi(strings.TrimSpace(string(readTail(name, 32))))
	if err != nil || pid <= 1 || pid > 1<<30 {
		return 0
	}
	return pid
}

// replaceFile writes a new file beside name, and renames it to name.
func replaceFile(name string, content []byte) error {
	fresh := name + ".new"
	_ = unix.Unlink(fresh)
	fd, err := unix.Open(fresh, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	n, err := unix.Write(fd, content)
	if err == nil && n < len(content) {
		err = unix.ENOSPC
	}
	if e := unix.Close(fd); err == nil {
		err = e
	}
	if err == nil {
		err = unix.Rename(fresh, name)
	}
	if err != nil {
		_ = unix.Unlink(fresh)
	}
	return err
}

// stat has some fields of /proc/<pid>/stat.
type stat struct {
	state     byte
	parent    int
	startTime uint64
	code      unix.WaitStatus // exit status of a zombie
	// unexecuted means that the process was forked and has not executed a program since.
	unexecuted bool
}

// forkedOnly is PF_FORKNOEXEC in include/linux/sched.h of Linux. A fork sets it, and only a
// successful execve(2) clears it.
const forkedOnly = 0x40

func statOf(pid int) (stat, bool) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return stat{}, false
	}
	defer closeFD(fd)
	var b [1024]byte
	n, _ := unix.Read(fd, b[:])
	return parseStat(b[:max(n, 0)])
}

func parseStat(b []byte) (stat, bool) {
	i := bytes.LastIndexByte(b, ')') // the process chooses the name before it
	if i < 0 {
		return stat{}, false
	}
	var s stat
	n := 3 // the number of the field
	for f := range bytes.FieldsSeq(b[i+1:]) {
		if n == 3 {
			if len(f) != 1 {
				return stat{}, false
			}
			s.state = f[0]
			n++
			continue
		}
		if n == 4 || n == 9 || n == 22 || n == 52 {
			value, err := strconv.ParseUint(string(f), 10, 64)
			switch {
			case err != nil:
				return stat{}, false
			case n == 4:
				s.parent = int(value)
			case n == 9:
				s.unexecuted = value&forkedOnly != 0
			case n == 22:
				s.startTime = value
			default:
				s.code = unix.WaitStatus(value)
			}
		}
		n++
	}
	return s, n > 22
}

// absolute reports whether a path is absolute and accepted by the kernel.
func absolute(name string) bool {
	return path.IsAbs(name) && len(name) < unix.PathMax && strings.IndexByte(name, 0) < 0
}
