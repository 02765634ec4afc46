//go:build linux

// Package kernelfile reads files of the kernel's own: of /proc, /sys and cgroups.
//
// Thousands of them are read at each round of statistics, and some by a process of which there
// is one for each container. os.ReadFile would ask for the size, which such files have not, and for
// the runtime's poller, which cannot poll them: twice as many system calls, and package os.
package kernelfile

import "golang.org/x/sys/unix"

// Longest is more than the longest file of a cgroup has, in bytes: a list of the 4,194,304 processes that
// Linux may have (PID_MAX_LIMIT).
const Longest = 64 << 20

// Read returns the content of a file: all of it, or at least the first limit bytes. size is that of
// the first buffer, in bytes, and best that of most such files. It blocks as read(2) does. The error is the
// system call's; what was read before it is returned with it, nil of a file that cannot be opened.
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
		// Only an empty read is the end: the kernel may return less than asked for.
		if err != nil || n <= 0 {
			return out, err
		}
		out = out[:len(out)+n]
	}
	return out, nil
}

// retry calls again what a signal interrupted. The runtime of Go sends signals to its own
// threads to preempt them.
func retry(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); err != unix.EINTR {
			return n, err
		}
	}
}
