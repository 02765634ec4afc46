package network

import (
	"context"
	"os"
)

// None returns a plugin named "none": pods have a namespace with only a loopback
// interface, without address or host ports.
func None() Plugin { return none{} }

type none struct{}

func (none) Name() string { return "none" }

// Durable returns false: the namespace is the only state, and ends with the
// machine.
func (none) Durable() bool { return false }

func (none) Plan(context.Context, Attachment) ([]byte, error) { return nil, nil }

func (none) SetUp(_ context.Context, a Attachment, _ string, _ []byte, _ *os.File) (Result, error) {
	var r Result
	if len(a.Ports) > 0 {
		r.Warnings = []string{"host ports are not served: the node has no pod network"}
	}
	return r, nil
}

func (none) TearDown(context.Context, Attachment, string, []byte, *os.File) error { return nil }
func (none) Status() error                                                        { return nil }
func (none) Recovered(context.Context, []Kept) error                              { return nil }
func (none) Run(context.Context, func()) error                                    { return nil }
