package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Calls to drivers. A call belongs to the manager, not to its caller: it has Run's context and
// its own deadline, and its result counts even if the pod that requested it no longer waits.

// Names of the calls in the DRA API, for errors and metrics.
const (
	callPrepare   = "NodePrepareResources"
	callUnprepare = "NodeUnprepareResources"
)

// call starts a call to a driver for claims of a pod, none of which may have a running call. The
// call continues even if its caller stops waiting for it. So a driver never gets an Unprepare
// before it has answered the Prepare, or the reverse, unless the first call has timed out.
// Manager.mu is held.
func (m *Manager) call(driver string, uid types.UID, claims []*claim, prepare bool) (*op, error) {
	if m.ctx == nil || m.ctx.Err() != nil {
		return nil, ErrNotRunning
	}
	// The error names one claim for all, since they miss the same driver.
	p, err := m.plugin(driver, claims[0].String(), uid)
	if err != nil {
		return nil, err
	}
	// errs needs no lock: it is written before done is closed, and read only afterwards.
	o := &op{done: make(chan struct{}), prepare: prepare, errs: map[*claim]error{}}
	// Counted while the plugin is listed, so that its connection is not closed before the call
	// ends.
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
	if err != nil { // Run has just ended
		p.calls.Done()
		return nil, err
	}
	for _, c := range claims {
		part := c.parts[driver]
		part.op = o
		if prepare {
			part.called = true
		} else {
			// From here on, no container may start with this claim, whatever the result: a driver
			// that fails halfway may have removed the CDI files already.
			part.prepared, part.devices = false, nil
			c.gen++
		}
	}
	return o, nil
}

// refs returns the claims as the DRA API refers to them. A ClaimRef never changes, so no lock is
// needed.
func refs(claims []*claim) []ClaimRef {
	list := make([]ClaimRef, len(claims))
	for i, c := range claims {
		list[i] = c.ClaimRef
	}
	return list
}

// callPrepare calls the driver's Prepare and records the result in claims and o. The devices
// replace the devices of an earlier answer. The caller of prepareBy stores the claims. m.mu must
// not be held.
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

// callUnprepare stores that the claims are not prepared any more, then calls the driver's Unprepare
// and records the result. If the claims cannot be stored, the driver is not called. After a
// failure, Unprepare has to be repeated. m.mu must not be held.
func (m *Manager) callUnprepare(ctx context.Context, p *plugin, o *op, claims []*claim) {
	// Stored first, so that after a crash the claim does not count as prepared.
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

// errSkipped is the error of a claim that is missing in a driver's answer.
var errSkipped = errors.New("the driver's answer lacks the claim")

// known returns an error if an answer has a claim that was not requested. Such an answer is
// rejected as a whole.
func known[T any](answer map[types.UID]T, claims []*claim) error {
	for uid := range answer {
		if !slices.ContainsFunc(claims, func(c *claim) bool { return c.UID == uid }) {
			return fmt.Errorf("the answer has claim %.64q, which is not in the request", uid)
		}
	}
	return nil
}

// finish records the result of a call. err is the error of the whole call. If it is nil, accept
// is called for each claim, with Manager.mu held; accept changes the claim's part and returns the
// claim's error.
func (m *Manager) finish(p *plugin, o *op, claims []*claim, call string, err error, accept func(*claim, *part) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	// The same value for all claims, so that errors, below, can remove repetitions: a pod with
	// many claims shows the error once.
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
		// All pods of the claim wait for the driver, not only the pod that made the call, since
		// any of them may be the next to try.
		if errors.Is(err, ErrAway) {
			for uid := range c.pods {
				m.await(p.name, uid)
			}
		}
	}
	close(o.done)
}

// errors joins the errors that the calls in s returned for claims, each once. If s is empty it
// returns nil, so that the first attempt of a loop proceeds. Manager.mu is held.
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

// ops are the calls that ended during one Prepare or Unprepare. That Prepare or Unprepare returns
// their errors, and does not repeat the calls that failed meanwhile.
type ops map[*op]bool

// wait waits until a call has ended, successfully or not. If ctx ends first, the call continues.
func (o *op) wait(ctx context.Context, driver string) error {
	select {
	case <-o.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("driver %s has not answered yet: %w", driver, ctx.Err())
	}
}
