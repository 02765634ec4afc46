//go:build !linux

package local

import "errors"

// newLoops returns the loop devices of this system: there are none.
func newLoops() Loops { return noLoops{} }

type noLoops struct{}

func (noLoops) Attach(string, bool) error { return errors.ErrUnsupported }
func (noLoops) Detach(string) error       { return errors.ErrUnsupported }
