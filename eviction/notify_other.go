//go:build !linux

package eviction

import (
	"context"
	"errors"
)

// ErrUnsupported means that the system has no such notices.
var ErrUnsupported = errors.New("notify: only Linux reports memory running short")

type waiter interface{}

func (psi) open() (waiter, error)    { return nil, ErrUnsupported }
func (events) open() (waiter, error) { return nil, ErrUnsupported }
func (usage) open() (waiter, error)  { return nil, ErrUnsupported }

// KernelSource would wait for triggers.
type KernelSource struct{ triggers []Trigger }

// NewKernelSource makes a Source that cannot run on this system.
func NewKernelSource(triggers ...Trigger) *KernelSource { return &KernelSource{triggers} }

// Run returns an error.
func (s *KernelSource) Run(context.Context, func(cause string)) error {
	for _, t := range s.triggers {
		if err := t.check(); err != nil {
			return err
		}
		if _, err := t.open(); err != nil {
			return err
		}
	}
	return ErrUnsupported
}

// Aim does nothing.
func (s *KernelSource) Aim([]int64) error { return nil }

// Problems is what Run returns.
func (s *KernelSource) Problems() []error { return []error{ErrUnsupported} }
