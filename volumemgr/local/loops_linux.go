package local

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
	loopControl = "/dev/loop-control"
	loopTries   = 8 // others take free ones as well
)

// kernelLoops are the kernel's loop devices.
type kernelLoops struct{}

// newLoops returns the loop devices of this system.
func newLoops() Loops { return kernelLoops{} }

// Attach finds a free loop device and puts it on the file.
func (kernelLoops) Attach(file string, readOnly bool) (err error) {
	have, err := loopsOn(file)
	if err != nil || len(have) > 0 {
		return err
	}
	backing, flags, err := openBacking(file, readOnly)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, backing.Close()) }()
	control, err := os.OpenFile(loopControl, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	}
	if err != nil {
		return err
	}
	defer func() { _ = control.Close() }()
	for range loopTries {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return os.NewSyscallError("LOOP_CTL_GET_FREE", err)
		}
		err = configure("/dev/loop"+strconv.Itoa(n), backing, file, flags)
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
	}
	return fmt.Errorf("no loop device stays free: %w", unix.EBUSY)
}

// openBacking opens what a loop device is to be on, for reading alone if writing
// is not allowed.
func openBacking(file string, readOnly bool) (*os.File, uint32, error) {
	if !readOnly {
		f, err := os.OpenFile(file, os.O_RDWR, 0)
		if err == nil {
			return f, 0, nil
		}
		if !errors.Is(err, unix.EROFS) && !errors.Is(err, unix.EACCES) {
			return nil, 0, err
		}
	}
	f, err := os.Open(file)
	return f, unix.LO_FLAGS_READ_ONLY, err
}

// configure puts one loop device on a file.
func configure(loop string, backing *os.File, file string, flags uint32) error {
	mode := os.O_RDWR
	if flags&unix.LO_FLAGS_READ_ONLY != 0 {
		mode = os.O_RDONLY
	}
	dev, err := os.OpenFile(loop, mode, 0)
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

// Detach frees the loop devices on the file.
func (kernelLoops) Detach(file string) error {
	loops, err := loopsOn(file)
	errs := []error{err}
	for _, loop := range loops {
		dev, err := os.Open(loop)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		err = unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_CLR_FD, 0)
		if errors.Is(err, unix.ENXIO) { // it is free already
			err = nil
		}
		errs = append(errs, os.NewSyscallError("LOOP_CLR_FD", err), dev.Close())
	}
	return errors.Join(errs...)
}

// loopsOn are the loop devices on a file, by the name that it had when they were
// put on it (Documentation/ABI/testing/sysfs-block-loop of the kernel).
func loopsOn(file string) ([]string, error) {
	found, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	var out []string
	for _, f := range found {
		name, err := os.ReadFile(f)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was just freed
		}
		if err != nil {
			return nil, err
		}
		if strings.TrimSuffix(string(name), "\n") == file {
			out = append(out, filepath.Join("/dev", filepath.Base(filepath.Dir(filepath.Dir(f)))))
		}
	}
	return out, nil
}
