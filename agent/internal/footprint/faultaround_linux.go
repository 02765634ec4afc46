package footprint

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/programpages"
)

// From linux/userfaultfd.h; ioctl_userfaultfd(2).
const (
	uffdAPI            = 0xAA
	uffdUserModeOnly   = 1       // what a process without privileges may have
	uffdFeatureWPAsync = 1 << 15 // since Linux 6.7
	uffdRegisterModeWP = 1 << 1
	uffdioAPI          = 0xC018AA3F // _IOWR(0xAA, 0x3F, struct uffdio_api)
	uffdioRegister     = 0xC020AA00 // _IOWR(0xAA, 0x00, struct uffdio_register)
)

type uffdioAPIArgs struct{ api, features, ioctls uint64 }

type uffdioRegisterArgs struct{ start, length, mode, ioctls uint64 }

// bringSinglePages has the kernel bring single pages of the program when they are read. Else it
// brings the 15 others of the same 64 KiB that are in the page cache as well ("fault-around"), which
// is right for a program that starts. A turn of an idle agent reads some 900 pages all
// over the program, and would have three times as many resident.
//
// There is no advice for that (madvise(2)), but the kernel does so where writes are tracked
// with userfaultfd(2). Nothing writes to these pages. With asynchronous tracking
// the kernel would do all that is to be done at a write by itself, and say nothing to anybody.
//
// The function that it returns ends it. Where the kernel does not know it, or
// does not allow it, nothing changes.
func bringSinglePages(program []programpages.Span) (end func()) {
	fd, err := trackWrites()
	if err != nil {
		return func() {}
	}
	for _, s := range program {
		r := uffdioRegisterArgs{start: uint64(s.Start), length: uint64(s.End - s.Start), mode: uffdRegisterModeWP}
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uffdioRegister, uintptr(unsafe.Pointer(&r)))
	}
	return func() { _ = unix.Close(fd) }
}

// trackWrites opens a userfaultfd that tracks writes asynchronously. It does not try below
// a seccomp filter: some kill the process for a call that they do not list.
func trackWrites() (fd int, err error) {
	if mode, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0); err != nil || mode != 0 {
		return -1, unix.EPERM
	}
	r, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK|uffdUserModeOnly, 0, 0)
	if errno != 0 {
		return -1, errno
	}
	api := uffdioAPIArgs{api: uffdAPI, features: uffdFeatureWPAsync}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, r, uffdioAPI, uintptr(unsafe.Pointer(&api))); errno != 0 {
		_ = unix.Close(int(r))
		return -1, errno
	}
	return int(r), nil
}
