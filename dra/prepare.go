package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Prepare calls drivers to prepare the claims of a pod. Call it before the pod's containers
// start. It may be repeated: prepared claims cause no call. It blocks until all drivers have
// answered or ctx ends; calls that were started continue. After an error it has to be called
// again. [Manager.Unprepare] undoes it, also after an error.
//
// Errors are, or wrap, [*NotYetError], [*GoneError], [*ClaimError], [*DriverError] and
// [ErrNotRunning].
func (m *Manager) Prepare(ctx context.Context, pod *v1.Pod) error {
	wants, err := wantsOf(pod)
	if err != nil {
		return err
	}
	// Checked before the turn, so that a sync of a running pod does not wait.
	if len(wants) == 0 || m.has(pod, wants) {
		return nil
	}
	leave, err := m.enter(ctx, pod.UID)
	if err != nil {
		return fmt.Errorf("wait for another call for the pod's claims: %w", err)
	}
	defer leave()
	// The pod exists, even if the last Retain found it gone.
	m.rescue(pod.UID)
	began := time.Now()
	err = m.prepare(ctx, pod, wants)
	m.met.operation(opPrepare, began, err)
	return err
}

// has reports whether all claims of a pod are prepared and stored. A reference without uses, such
// as one from a kubelet's file, is not enough for a container that uses the claim.
func (m *Manager) has(pod *v1.Pod, wants []want) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	// The pod's claims may be unprepared at any moment.
	if m.reaping[pod.UID] != nil {
		return false
	}
	for _, w := range wants {
		c := m.byName[pod.Namespace+"/"+w.claim]
		if c == nil || !c.prepared() {
			return false
		}
		if r := c.pods[pod.UID]; r == nil || !r.given || !slices.Equal(r.Uses, w.uses) {
			return false
		}
	}
	return true
}

// prepare does the work of Prepare. The caller holds the pod's turn.
func (m *Manager) prepare(ctx context.Context, pod *v1.Pod, wants []want) error {
	objects, err := m.look(ctx, pod, wants)
	if err != nil {
		return err
	}
	claims, err := m.take(pod, wants, objects)
	if err != nil {
		return err
	}
	// Stored first, so that everything the drivers do from now on will be undone.
	if err := m.save(claims...); err != nil {
		return err
	}
	err = m.each(claims, func(driver string, list []*claim) error {
		return m.prepareBy(ctx, driver, pod.UID, list)
	})
	// Stored even if a driver failed, so that the drivers that answered are not called again; and
	// before the pod starts, so that after a crash the pod does not have to wait for its drivers.
	if err = errors.Join(err, m.save(claims...)); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range claims {
		// A copy, since a write of a record may be reading the old one.
		r := *c.pods[pod.UID]
		r.given = true
		c.pods[pod.UID] = &r
	}
	return nil
}

// look returns the claims in the order of wants, after checking that the pod may use them. It
// returns at the first error. It changes nothing.
func (m *Manager) look(ctx context.Context, pod *v1.Pod, wants []want) ([]*resourceapi.ResourceClaim, error) {
	ctx, done := context.WithTimeout(ctx, m.cfg.Timeout)
	defer done()
	list := make([]*resourceapi.ResourceClaim, 0, len(wants))
	for _, w := range wants {
		c, err := m.cfg.Claims.Claim(ctx, pod.Namespace, w.claim)
		if err == nil && c == nil {
			err = errors.New("not found")
		}
		if err == nil {
			err = w.check(pod, c)
		}
		if err != nil {
			return nil, &ClaimError{pod.Namespace + "/" + w.claim, err}
		}
		list = append(list, c)
	}
	return list, nil
}

// take records that the pod uses the claims. After an error it has recorded none of them. Every
// check comes before the first change, so that a pod that waits for a driver uses no claim.
func (m *Manager) take(pod *v1.Pod, wants []want, objects []*resourceapi.ResourceClaim) ([]*claim, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx == nil || m.ctx.Err() != nil {
		return nil, ErrNotRunning
	}
	for i, w := range wants {
		name := pod.Namespace + "/" + w.claim
		c := m.byName[name]
		// The driver still has the devices of the older claim.
		if c != nil && c.UID != objects[i].UID {
			return nil, &ClaimError{name, fmt.Errorf("claim has UID %s, but an older claim with its name (UID %s), deleted by force, "+
				"is still prepared and has to be unprepared first", objects[i].UID, c.UID)}
		}
		for _, d := range driversOf(objects[i]) {
			// A driver that has already prepared its part may be missing: the pod starts without
			// it.
			if c != nil && c.parts[d] != nil && c.parts[d].prepared {
				continue
			}
			if _, err := m.plugin(d, name, pod.UID); err != nil {
				return nil, err
			}
		}
	}
	claims := make([]*claim, 0, len(wants))
	for i, w := range wants {
		o := objects[i]
		c := m.claims[o.UID]
		if c == nil {
			c = newClaim(ClaimRef{pod.Namespace, w.claim, o.UID})
			m.claims[c.UID], m.byName[c.String()] = c, c
			for _, r := range o.Status.ReservedFor { // the record may have been damaged
				if r.Resource == "pods" && m.alive[r.UID] {
					m.refer(c, &podRef{UID: r.UID, Namespace: pod.Namespace, Name: r.Name})
				}
			}
		}
		for _, d := range driversOf(o) {
			if c.parts[d] == nil {
				// Known claims too, since the current allocation counts.
				c.parts[d] = &part{}
				c.gen++
			}
		}
		m.refer(c, &podRef{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Uses: w.uses})
		claims = append(claims, c)
	}
	return claims, nil
}

// each calls fn for every driver, with the claims that have a part at the driver, and returns all
// errors after the last call. The calls run in parallel, so that a hung driver does not delay the
// others.
func (m *Manager) each(claims []*claim, fn func(driver string, list []*claim) error) error {
	by := map[string][]*claim{}
	m.mu.Lock()
	for _, c := range claims {
		for d := range c.parts {
			by[d] = append(by[d], c)
		}
	}
	m.mu.Unlock()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for d, list := range by {
		wg.Go(func() {
			if err := fn(d, list); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// prepareBy calls one driver to prepare the claims that it has not prepared yet. It waits for
// running calls for the claims, and uses their results.
func (m *Manager) prepareBy(ctx context.Context, driver string, uid types.UID, claims []*claim) error {
	seen := ops{}
	for {
		m.mu.Lock()
		var todo []*claim
		var wait *op
		for _, c := range claims {
			switch p := c.parts[driver]; {
			case p.op != nil:
				wait = p.op
			case !p.prepared:
				todo = append(todo, c)
			}
		}
		err := seen.errors(todo)
		if err == nil && len(todo) > 0 {
			wait, err = m.call(driver, uid, todo, true)
		}
		m.mu.Unlock()
		if err != nil || wait == nil {
			return err
		}
		if err := wait.wait(ctx, driver); err != nil {
			return err
		}
		if wait.prepare {
			seen[wait] = true
		}
	}
}
