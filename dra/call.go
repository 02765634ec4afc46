package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Calls to drivers. A call belongs to the manager: it has Run's context and its own
// deadline, and its result counts whether or not the pod that requested it still
// waits.

// Names of the calls, as the DRA API has them.
const (
	callPrepare   = "NodePrepareResources"
	callUnprepare = "NodeUnprepareResources"
)

// call starts a call to a driver for claims of a pod; none of them may have a
// running call. The call continues if the caller does not wait: a driver never gets
// the opposite call before it has answered or timed out. Manager.mu is held.
func (m *Manager) call(driver string, uid types.UID, claims []*claim, prepare bool) (*op, error) {
	if m.ctx == nil || m.ctx.Err() != nil {
		return nil, ErrNotRunning
	}
	// One claim stands for all of them in the error: they miss the same driver.
	p, err := m.plugin(driver, claims[0].String(), uid)
	if err != nil {
		return nil, err
	}
	// errs is written before done is closed, and only read after that: it needs no
	// lock.
	o := &op{done: make(chan struct{}), prepare: prepare, errs: map[*claim]error{}}
	// Counted while the plugin is listed: its connection is not closed before the
	// call is over.
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
	if err != nil { // Run has ended just now
		p.calls.Done()
		return nil, err
	}
	for _, c := range claims {
		part := c.parts[driver]
		part.op = o
		if prepare {
			part.called = true
		} else {
			// From here on no container may start with this claim, whatever the
			// result: a driver that fails in the middle may have removed the CDI
			// files already.
			part.prepared, part.devices = false, nil
			c.gen++
		}
	}
	return o, nil
}

// refs names claims to a driver. ClaimRef never changes, so that no lock is needed.
func refs(claims []*claim) []ClaimRef {
	list := make([]ClaimRef, len(claims))
	for i, c := range claims {
		list[i] = c.ClaimRef
	}
	return list
}

// callPrepare calls the driver's Prepare and records the result in claims and o. The
// devices replace those of an earlier answer. The result is not stored yet: the
// caller of prepareBy stores the claims. m.mu is not held.
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

// callUnprepare makes the call, without Manager.mu, and records its result. If the
// record cannot be written the driver is not called, and the claim still has to be
// undone.
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

// known returns an error if an answer has a claim that was not requested: such an
// answer is not trusted for the other claims either.
func known[T any](answer map[types.UID]T, claims []*claim) error {
	for uid := range answer {
		if !slices.ContainsFunc(claims, func(c *claim) bool { return c.UID == uid }) {
			return fmt.Errorf("the answer has claim %.64q, which is not in the request", uid)
		}
	}
	return nil
}

// finish records the result of a call. err is the error of the whole call; without one,
// accept is called for each claim, changes its part, and returns its error. finish locks
// Manager.mu; accept is called with it held.
func (m *Manager) finish(p *plugin, o *op, claims []*claim, call string, err error, accept func(*claim, *part) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	// One value for all claims: errors below drops repetitions by identity, so that a
	// pod with many claims is not shown the same error as often.
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
		// All pods of the claim wait for the driver, not only the one that made the
		// call: any of them may be the next to try.
		if errors.Is(err, ErrAway) {
			for uid := range c.pods {
				m.await(p.name, uid)
			}
		}
	}
	close(o.done)
}

// errors joins the errors that the calls in s had for claims, each once. Without
// calls it is nil, which lets the first attempt of a loop through. Manager.mu is
// held.
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

// ops are the calls that ended during one Prepare or Unprepare. It returns their
// errors, and does not repeat calls that failed while it waited.
type ops map[*op]bool

// wait waits for the end of a call, and not for its success. If ctx ends first the
// call goes on without this caller.
func (o *op) wait(ctx context.Context, driver string) error {
	select {
	case <-o.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("driver %s has not answered yet: %w", driver, ctx.Err())
	}
}
