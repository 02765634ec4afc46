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

// Of loop devices, loop(4).
const (
	control    = "/dev/loop-control"
	sysBlock   = "/sys/block"
	tries      = 8    // others take free ones as well
	maxBacking = 8192 // of a path in sysfs, which has no more than a page
)

// Attach puts a free loop device on a file, or on a block device, and returns its
// path. Where the file cannot be written the device is for reading alone. The
// error is errors.ErrUnsupported where there are no loop devices.
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
	return "", fmt.Errorf("no loop device stays free: %w", unix.EBUSY)
}

// openBacking opens what a loop device is to be on, for reading alone if writing
// is not allowed.
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

// configure puts one loop device on a file.
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
	// Before Linux 5.8 it takes two steps.
	if err := unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_SET_FD, int(backing.Fd())); err != nil {
		return os.NewSyscallError("LOOP_SET_FD", err)
	}
	return os.NewSyscallError("LOOP_SET_STATUS64", unix.IoctlLoopSetStatus64(int(dev.Fd()), &c.Info))
}

// Of lists the loop devices on a file, known by its inode. A file that is not
// there has none, and one that was freed while others have it open is not listed.
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
		if errors.Is(err, unix.ENXIO) { // it was just freed
			return false, nil
		}
		if err != nil {
			return false, os.NewSyscallError("LOOP_GET_STATUS64", err)
		}
		return info.Device == uint64(want.Dev) && info.Inode == want.Ino, nil //nolint:unconvert // Dev has 32 bits on some machines
	})
}

// Named lists the loop devices on a file, known by the path that it had when they
// were put on it.
func Named(file string) ([]string, error) {
	return find(func(_, backing string) (bool, error) { return backing == file, nil })
}

// find lists the loop devices in use that match
// (Documentation/ABI/testing/sysfs-block-loop of the kernel). One that was freed and
// goes when its last user does is not in use: whoever took it would lose it.
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
			continue // it is free, or is becoming so
		}
		if err != nil {
			return nil, err
		}
		goes, err := os.ReadFile(filepath.Join(sysBlock, e.Name(), "loop", "autoclear"))
		if err != nil || strings.TrimSpace(string(goes)) == "1" {
			continue // an error is of one that has gone
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

// Grow makes a loop device as large as its file has become.
func Grow(device string) error {
	return with(device, "LOOP_SET_CAPACITY", unix.LOOP_SET_CAPACITY)
}

// Free takes a loop device off its file, at once or when its last user has gone.
// One that is free is no error.
func Free(device string) error {
	err := with(device, "LOOP_CLR_FD", unix.LOOP_CLR_FD)
	if errors.Is(err, unix.ENXIO) {
		return nil
	}
	return err
}

func with(device, name string, request uint) error {
	dev, err := os.OpenFile(device, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	err = unix.IoctlSetInt(int(dev.Fd()), request, 0)
	return errors.Join(os.NewSyscallError(name, err), dev.Close())
}
