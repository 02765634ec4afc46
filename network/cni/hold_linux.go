package cni

import (
	"os"

	"golang.org/x/sys/unix"
)

// hold duplicates the descriptor of a guard, so that the file stays open and locked when its
// owner closes it. If guard is nil, hold returns nil.
func hold(guard *os.File) (*os.File, error) {
	if guard == nil {
		return nil, nil
	}
	raw, err := guard.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	var dup error
	if err := raw.Control(func(own uintptr) { fd, dup = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 3) }); err != nil {
		return nil, err
	}
	if dup != nil {
		return nil, os.NewSyscallError("fcntl", dup)
	}
	return os.NewFile(uintptr(fd), guard.Name()), nil
}
