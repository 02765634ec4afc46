package plugins

import (
	"errors"

	"github.com/nodewright/nodewright/internal/loopdev"
)

// kernelLoops are the kernel's loop devices. They are found by the path of the attached file,
// since the files of several pods are the same device.
type kernelLoops struct{}

// Attach attaches a loop device to the file, unless it has one.
func (kernelLoops) Attach(file string, readOnly bool) error {
	have, err := loopdev.Named(file)
	if err != nil || len(have) > 0 {
		return err
	}
	_, err = loopdev.Attach(file, readOnly)
	return err
}

// Detach detaches the loop devices of the file.
func (kernelLoops) Detach(file string) error {
	loops, err := loopdev.Named(file)
	errs := []error{err}
	for _, loop := range loops {
		errs = append(errs, loopdev.Free(loop))
	}
	return errors.Join(errs...)
}
