//go:build !linux

package notify

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

// Source would wait for triggers.
type Source struct{ triggers []Trigger }

// New makes a Source that cannot run on this system.
func New(triggers ...Trigger) *Source { return &Source{triggers} }

// Run returns an error.
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

// Problems is what Run returns.
func (s *Source) Problems() []error { return []error{ErrUnsupported} }
