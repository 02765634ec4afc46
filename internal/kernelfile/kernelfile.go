//go:build linux

// Package kernelfile reads files of proc, sysfs and cgroups.
//
// Each round of statistics reads thousands of them; a process that exists once for
// each container also reads some. os.ReadFile would call fstat(2), which returns no
// size for such files, and register the file with the runtime's poller, which
// cannot poll it. That doubles the number of system calls, and links package os.
package kernelfile

import "golang.org/x/sys/unix"

// Longest is larger than the longest file of a cgroup, in bytes: a list of the
// 4,194,304 processes that Linux may have (PID_MAX_LIMIT).
const Longest = 64 << 20

// Read returns the content of a file: all of it, or at least the first limit bytes.
// size is the size of the first buffer, in bytes; it should be that of most such
// files. Read blocks as read(2) does. With the error of a system call it returns
// the data before the error; nil if the file cannot be opened.
func Read(path string, size, limit int) ([]byte, error) {
	fd, err := retry(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	out := make([]byte, 0, max(size, 1))
	for len(out) < limit {
		if len(out) == cap(out) {
			out = append(make([]byte, 0, 2*cap(out)), out...)
		}
		n, err := retry(func() (int, error) { return unix.Read(fd, out[len(out):cap(out)]) })
		// Only an empty read is the end: the kernel may return less than the buffer
		// holds.
		if err != nil || n <= 0 {
			return out, err
		}
		out = out[:len(out)+n]
	}
	return out, nil
}

// retry repeats a call after EINTR. The Go runtime sends signals to its own threads
// to preempt them.
func retry(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); err != unix.EINTR {
			return n, err
		}
	}
}
