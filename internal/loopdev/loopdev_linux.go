package loopdev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Constants of loop devices, from loop(4).
const (
	control    = "/dev/loop-control"
	sysBlock   = "/sys/block"
	tries      = 8    // attempts: another process may use the free device first
	maxBacking = 8192 // maximum length of a path in sysfs in bytes
)

// Attach attaches a free loop device to a file or a block device, and returns the path of
// the loop device. The loop device is read-only if readOnly is true or if the file is not
// writable. If the system has no loop devices, the error is errors.ErrUnsupported.
func Attach(file string, readOnly bool) (device string, err error) {
	backing, flags, err := openBacking(file, readOnly)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, backing.Close()) }()
	free, err := os.OpenFile(control, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) {
		return "", fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = free.Close() }()
	for range tries {
		n, err := unix.IoctlRetInt(int(free.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", os.NewSyscallError("LOOP_CTL_GET_FREE", err)
		}
		device := "/dev/loop" + strconv.Itoa(n)
		err = configure(device, backing, file, flags)
		if err == nil {
			return device, nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return "", err
		}
	}
	return "", fmt.Errorf("other processes took every free loop device: %w", unix.EBUSY)
}

// openBacking opens the file for a loop device, and returns the flags of the device. It opens a
// file that is not writable read-only.
func openBacking(file string, readOnly bool) (*os.File, uint32, error) {
	if !readOnly {
		f, err := os.OpenFile(file, os.O_RDWR|unix.O_NONBLOCK, 0)
		if err == nil {
			return f, 0, nil
		}
		if !errors.Is(err, unix.EROFS) && !errors.Is(err, unix.EACCES) {
			return nil, 0, err
		}
	}
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0)
	return f, unix.LO_FLAGS_READ_ONLY, err
}

// configure attaches the loop device to the open file backing, whose path is file.
func configure(device string, backing *os.File, file string, flags uint32) error {
	mode := os.O_RDWR
	if flags&unix.LO_FLAGS_READ_ONLY != 0 {
		mode = os.O_RDONLY
	}
	dev, err := os.OpenFile(device, mode, 0)
	if err != nil {
		return err
	}
	defer func() { _ = dev.Close() }()
	c := unix.LoopConfig{Fd: uint32(backing.Fd()), Info: unix.LoopInfo64{Flags: flags}}
	copy(c.Info.File_name[:len(c.Info.File_name)-1], file)
	err = unix.IoctlLoopConfigure(int(dev.Fd()), &c)
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTTY) {
		return os.NewSyscallError("LOOP_CONFIGURE", err)
	}
	// Before Linux 5.8 there is no LOOP_CONFIGURE.
	if err := unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_SET_FD, int(backing.Fd())); err != nil {
		return os.NewSyscallError("LOOP_SET_FD", err)
	}
	return os.NewSyscallError("LOOP_SET_STATUS64", unix.IoctlLoopSetStatus64(int(dev.Fd()), &c.Info))
}

// Of returns the loop devices that are attached to the inode of a file. It returns nil if
// the file does not exist. It leaves out a freed device that a process still has open.
func Of(file string) ([]string, error) {
	var want unix.Stat_t
	if err := unix.Stat(file, &want); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, &fs.PathError{Op: "stat", Path: file, Err: err}
	}
	return find(func(device, _ string) (bool, error) {
		dev, err := os.OpenFile(device, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENXIO) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		defer func() { _ = dev.Close() }()
		info, err := unix.IoctlLoopGetStatus64(int(dev.Fd()))
		if errors.Is(err, unix.ENXIO) { // the device is free by now
			return false, nil
		}
		if err != nil {
			return false, os.NewSyscallError("LOOP_GET_STATUS64", err)
		}
		return info.Device == uint64(want.Dev) && info.Inode == want.Ino, nil //nolint:unconvert // Dev has 32 bits on some machines
	})
}

// Named returns the loop devices that were attached to a file by this path.
func Named(file string) ([]string, error) {
	return find(func(_, backing string) (bool, error) { return backing == file, nil })
}

// find returns the loop devices in use for which match returns true. match gets the path of a
// device and the path of its file (backing). find reads both from /sys/block
// (Documentation/ABI/testing/sysfs-block-loop of the kernel). A freed device that a process still
// has open does not count as in use: the kernel detaches it at the last close.
func find(match func(device, backing string) (bool, error)) ([]string, error) {
	entries, err := os.ReadDir(sysBlock)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "loop") {
			continue
		}
		backing, err := os.ReadFile(filepath.Join(sysBlock, e.Name(), "loop", "backing_file"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) {
			continue // not in use
		}
		if err != nil {
			return nil, err
		}
		goes, err := os.ReadFile(filepath.Join(sysBlock, e.Name(), "loop", "autoclear"))
		if err != nil || strings.TrimSpace(string(goes)) == "1" {
			continue // freed; an error means that the device is detached
		}
		device := "/dev/" + e.Name()
		ok, err := match(device, strings.TrimSuffix(string(backing[:min(len(backing), maxBacking)]), "\n"))
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, device)
		}
	}
	return out, nil
}

// Grow increases a loop device to the size of its file.
func Grow(device string) error {
	return with(device, "LOOP_SET_CAPACITY", unix.LOOP_SET_CAPACITY)
}

// Free detaches a loop device from its file. If a process has the device open, the kernel
// detaches it at the last close. A device that is free already is not an error.
func Free(device string) error {
	err := with(device, "LOOP_CLR_FD", unix.LOOP_CLR_FD)
	if errors.Is(err, unix.ENXIO) {
		return nil
	}
	return err
}

// with makes an ioctl request on a device. name is the name of the request, for errors.
func with(device, name string, request uint) error {
	dev, err := os.OpenFile(device, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	err = unix.IoctlSetInt(int(dev.Fd()), request, 0)
	return errors.Join(os.NewSyscallError(name, err), dev.Close())
}
