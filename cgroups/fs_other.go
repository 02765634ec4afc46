//go:build !linux

package cgroups

import (
	"errors"
	"fmt"
)

// These errors match no error of this system, whose kernel has other numbers.
var (
	errNoDevice     = errors.New("no such device")
	errNotSupported = errors.New("not supported")
)

// osFS is an FS whose methods return errNotLinux, since this kernel has no cgroups.
type osFS struct{}

// errNotLinux is the error of all calls: the package compiles on other systems, but works only
// on Linux.
var errNotLinux = fmt.Errorf("cgroups: %w", ErrUnsupported)

func (osFS) Read(string) ([]byte, error)   { return nil, errNotLinux }
func (osFS) Write(string, string) error    { return errNotLinux }
func (osFS) Mkdir(string) error            { return errNotLinux }
func (osFS) Rmdir(string) error            { return errNotLinux }
func (osFS) Dirs(string) ([]string, error) { return nil, errNotLinux }

func kill(int) error { return errNotLinux }

// notifier is a Notifier whose Notify returns errNotLinux.
type notifier struct{}

func newNotifier() notifier { return notifier{} }

// Notify implements Notifier.
func (notifier) Notify(Signal, func()) (stop func(), err error) { return nil, errNotLinux }

func inUserNamespace() bool { return false }
