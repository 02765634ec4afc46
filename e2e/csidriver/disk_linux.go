package main

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Requests of ioctl(2): linux/fs.h, and fs/ext4/ext4.h of the kernel.
const (
	fiFreeze     = 0xc0045877 // FIFREEZE
	fiThaw       = 0xc0045878 // FITHAW
	ext4ResizeFS = 0x40086610 // EXT4_IOC_RESIZE_FS
)

// growFS increases a mounted file system with a system call, without another program.
func (loops) growFS(mounted string, bytes int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(mounted, &st); err != nil {
		return os.NewSyscallError("statfs", err)
	}
	blocks := uint64(bytes / st.Bsize)
	if blocks == 0 {
		return nil
	}
	return onDir(mounted, "EXT4_IOC_RESIZE_FS", ext4ResizeFS, uintptr(unsafe.Pointer(&blocks)), &blocks)
}

func (loops) freeze(mounted string) error { return onDir(mounted, "FIFREEZE", fiFreeze, 0, nil) }
func (loops) thaw(mounted string) error   { return onDir(mounted, "FITHAW", fiThaw, 0, nil) }

// onDir makes an ioctl(2) request on the file system of a directory. alive is the
// object to which arg points.
func onDir(dir, name string, request, arg uintptr, alive *uint64) error {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, arg)
	runtime.KeepAlive(alive)
	if errno != 0 {
		return os.NewSyscallError(name, errno)
	}
	return nil
}
