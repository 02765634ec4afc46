package network

import (
	"os"

	"golang.org/x/sys/unix"
)

// duplicate duplicates a file's descriptor, so that the caller may close its own.
func duplicate(f *os.File) (*os.File, error) {
	fd, err := onFile(f, func(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0) })
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
