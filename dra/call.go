package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Names of the calls, as the DRA API has them.
const (
	callPrepare   = "NodePrepareResources"
	callUnprepare = "NodeUnprepareResources"
)

// call starts a call to a driver for a pod's claims, of which none has one under
// way. It goes on if the caller does not wait for it: a driver that was told to
// do something is not told the opposite before it has answered, or its time is
// over. Manager.mu is held.
func (m *Manager) call(driver string, uid types.UID, claims []*claim, prepare bool) (*op, error) {
	if m.ctx == nil || m.ctx.Err() != nil {
		return nil, ErrNotRunning
	}
	p, err := m.plugin(driver, claims[0].String(), uid)
	if err != nil {
		return nil, err
	}
	o := &op{done: make(chan struct{}), prepare: prepare, errs: map[*claim]error{}}
	p.calls.Add(1)
	err = m.start(func(ctx context.Context) {
		defer p.calls.Done()
		ctx, done := context.WithTimeout(ctx, m.cfg.Timeout)
		defer done()
		if prepare {
			m.callPrepare(ctx, p, o, claims)
		} else {
			m.callUnprepare(ctx, p, o, claims)
		}
	})
	if err != nil { // it has ended just now
		p.calls.Done()
		return nil, err
	}
	for _, c := range claims {
		part := c.parts[driver]
		part.op = o
		if prepare {
			part.called = true
		} else {
			part.prepared, part.devices = false, nil
			c.gen++
		}
	}
	return o, nil
}

func refs(claims []*claim) []ClaimRef {
	list := make([]ClaimRef, len(claims))
	for i, c := range claims {
		list[i] = c.ClaimRef
	}
	return list
}

func (m *Manager) callPrepare(ctx context.Context, p *plugin, o *op, claims []*claim) {
	answer, err := p.driver.Prepare(ctx, refs(claims))
	if err == nil {
		err = known(answer, claims)
	}
	m.finish(p, o, claims, callPrepare, err, func(c *claim, part *part) error {
		got, ok := answer[c.UID]
		switch {
		case !ok:
			return errSkipped
		case got.Err != nil:
			return got.Err
		}
		part.prepared, part.devices = true, got.Devices
		c.gen++
		return nil
	})
}

func (m *Manager) callUnprepare(ctx context.Context, p *plugin, o *op, claims []*claim) {
	// Stored first: a crash must not leave it as if it were prepared.
	err := m.save(claims...)
	var answer map[types.UID]error
	if err == nil {
		answer, err = p.driver.Unprepare(ctx, refs(claims))
	}
	if err == nil {
		err = known(answer, claims)
	}
	m.finish(p, o, claims, callUnprepare, err, func(c *claim, part *part) error {
		got, ok := answer[c.UID]
		switch {
		case !ok:
			return errSkipped
		case got != nil:
			return got
		}
		part.called = false
		return nil
	})
}

// errSkipped is for a claim that the driver did not answer for.
var errSkipped = errors.New("its answer leaves the claim out")

// known reports whether an answer is for no other claims than those asked for.
func known[T any](answer map[types.UID]T, claims []*claim) error {
	for uid := range answer {
		if !slices.ContainsFunc(claims, func(c *claim) bool { return c.UID == uid }) {
			return fmt.Errorf("the answer has claim %.64q, which is not in the request", uid)
		}
	}
	return nil
}

// finish notes what came of a call: err is for all of its claims, and accept
// says what came of one. It is called with Manager.mu held.
func (m *Manager) finish(p *plugin, o *op, claims []*claim, call string, err error, accept func(*claim, *part) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all *DriverError
	if err != nil {
		all = &DriverError{Driver: p.name, Call: call, Err: err}
	}
	for _, c := range claims {
		part := c.parts[p.name]
		part.op = nil
		if all != nil {
			all.Claims = append(all.Claims, c.String())
			o.errs[c] = all
		} else if err := accept(c, part); err != nil {
			o.errs[c] = &DriverError{Driver: p.name, Call: call, Claims: []string{c.String()}, Err: err}
		}
		if errors.Is(err, ErrAway) {
			for uid := range c.pods {
				m.await(p.name, uid)
			}
		}
	}
	close(o.done)
}

// errors are what the calls said of claims, each once.
func (s ops) errors(claims []*claim) error {
	var errs []error
	for _, c := range claims {
		for o := range s {
			if err := o.errs[c]; err != nil && !slices.Contains(errs, err) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// ops are calls that are over.
type ops map[*op]bool

// wait waits for the end of a call.
func (o *op) wait(ctx context.Context, driver string) error {
	select {
	case <-o.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("driver %s has not answered yet: %w", driver, ctx.Err())
	}
}
