//go:build !linux

package notify

import (
	"context"
	"errors"
)

// ErrUnsupported means that the system has no such notifications.
var ErrUnsupported = errors.New("notify: memory pressure is reported on Linux only")

type waiter interface{}

func (psi) open() (waiter, error)    { return nil, ErrUnsupported }
func (events) open() (waiter, error) { return nil, ErrUnsupported }
func (usage) open() (waiter, error)  { return nil, ErrUnsupported }

// Source does not work on this system.
type Source struct{ triggers []Trigger }

// New returns a Source whose Run fails on this system.
func New(triggers ...Trigger) *Source { return &Source{triggers} }

// Run returns ErrUnsupported.
func (s *Source) Run(context.Context, func(cause string)) error {
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
func (s *Source) Aim([]int64) error { return nil }

// Problems returns ErrUnsupported.
func (s *Source) Problems() []error { return []error{ErrUnsupported} }
