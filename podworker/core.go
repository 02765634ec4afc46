package podworker

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podmeta"
)

// core is the state of all pods and of what they share, their names. As step,
// it reads no clock, takes no lock and starts nothing. What it wants done
// gathers in fx, in order, until reset. The Manager calls it with the workers
// locked.
type core struct {
	pods  map[types.UID]*pod
	names names
	idle  func(types.UID) bool // Config.Idle
	open  bool                 // Run was called

	in   input // the next one, see input
	fx   []effect
	seen int // effects of fx that concern other pods too are handled up to here
}

// newCore returns a core without pods, and not open: pods are held until Run.
func newCore(idle func(types.UID) bool) *core {
	return &core{pods: map[types.UID]*pod{}, names: names{}, idle: idle}
}

// update informs a pod of news; p is nil at its first sight.
func (c *core) update(uid types.UID, p *pod, u *Update, now time.Time) {
	c.accept(uid, p, u, time.Time{}, now)
	c.share(now)
}

// input is one to fill in for feed. There is only one: see step for why.
func (c *core) input(e event, now time.Time) *input {
	in := &c.in
	*in = input{}
	in.event, in.now, in.open = e, now, c.open
	return in
}

// feed informs a pod of anything else.
func (c *core) feed(p *pod, in *input) {
	now := in.now
	c.step(p, in)
	c.share(now)
}

// reset forgets the effects, which have been applied. The few are overwritten
// by the next, so nothing is kept for long.
func (c *core) reset() { c.fx, c.seen = c.fx[:0], 0 }

// step makes one step of one pod, and marks its effects with the pod.
func (c *core) step(p *pod, in *input) {
	from := len(c.fx)
	c.fx = step(&p.state, in, c.fx)
	for i := from; i < len(c.fx); i++ {
		c.fx[i].pod = p
	}
}

// accept takes an update, the first of a pod included. newerThan is that of the
// pod's life before, if there was one: what the cache knew of that must not
// count for this one.
func (c *core) accept(uid types.UID, p *pod, u *Update, newerThan, now time.Time) {
	in := c.input(updated, now)
	in.update, in.first = *u, p == nil
	if p == nil {
		p = newPod(uid, u)
		p.newerThan = newerThan
		c.pods[uid] = p
		// Idle is asked for such pods only: it is a call out of the package, with the
		// lock held.
		in.idle = u.Pod != nil && podmeta.IsTerminal(u.Pod.Status.Phase) && c.idle(uid)
		// In line by the first update, not by the time at which it can begin: that is
		// the order that is promised.
		if u.Pod != nil && podmeta.IsStatic(u.Pod) {
			c.names.join(p.fullName(), uid)
		}
	}
	c.step(p, in)
}

// share carries out the effects that concern other pods: names, and the next
// life of a UID. They have effects in turn.
func (c *core) share(now time.Time) {
	for ; c.seen < len(c.fx); c.seen++ {
		switch p := c.fx[c.seen].pod; c.fx[c.seen].action {
		case claimName:
			c.claimName(p, now)
		case freeName:
			if next := c.names.free(p.fullName(), p.uid, c.mayBegin); next != "" {
				c.claimName(c.pods[next], now)
			}
		case forget:
			e := c.fx[c.seen] // a copy: there will be more
			c.forget(&e, now)
		}
	}
}

// claimName asks for a pod's name and informs it of the answer.
func (c *core) claimName(p *pod, now time.Time) {
	ok, waitFor := c.names.claim(p.fullName(), p.uid, c.mayBegin)
	if ok {
		c.step(p, c.input(named, now))
		return
	}
	in := c.input(denied, now)
	in.waitFor = waitFor
	c.step(p, in)
}

// mayBegin reports whether a pod in line will ever take its name.
func (c *core) mayBegin(uid types.UID) bool {
	p := c.pods[uid]
	return p != nil && p.stage == live
}

// forget drops a pod, and begins the next life of its UID if a create waits for
// that.
func (c *core) forget(e *effect, now time.Time) {
	p := e.pod
	if c.pods[p.uid] == p {
		delete(c.pods, p.uid)
	}
	if e.restart != nil { // what was seen of the old life is out of date
		c.accept(p.uid, c.pods[p.uid], e.restart, p.newerThan, now)
	}
}
