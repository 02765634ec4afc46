//go:build linux

// Package kernelfile reads files of proc, sysfs and cgroups with fewer system calls than
// os.ReadFile.
//
// One collection of statistics reads thousands of such files. os.ReadFile calls fstat(2),
// which returns no size for them, and registers the file with the runtime's poller, which
// cannot poll it. This doubles the number of system calls. The package also avoids package
// os, so that the small process that exists once per container does not link it.
package kernelfile

import "golang.org/x/sys/unix"

// Longest is an upper limit for the length of a cgroup's file in bytes. The longest file
// is a list of the 4,194,304 processes that Linux may have (PID_MAX_LIMIT).
const Longest = 64 << 20

// Read returns the content of a file: all of it, or at least the first limit bytes. size
// is the size of the first buffer in bytes; it should be large enough for most files of
// this kind. Read blocks as read(2) does. With an error it returns the data that it read
// before, or nil if the file cannot be opened.
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
		// Only an empty read means the end: the kernel may fill a part of the buffer
		// before it.
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
