package podworker

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podmeta"
)

// core is the state of all pods and of their shared names. Like step, core has no clock, lock or
// goroutine. The Manager calls core's methods with the workers locked, and executes the returned
// effects before the next call.
type core struct {
	pods  map[types.UID]*pod
	names names
	idle  func(types.UID) bool // Config.Idle
	open  bool                 // Run was called

	effects []podEffect // collected by the current call
}

// podEffect is an effect of one pod's step.
type podEffect struct {
	pod *pod
	effect
}

// newCore returns a core without pods. It is not open: the Syncer is called for no pod before Run.
func newCore(idle func(types.UID) bool) *core {
	return &core{pods: map[types.UID]*pod{}, names: names{}, idle: idle}
}

// update applies an update to a pod, which is added if it is new, and returns the effects.
func (c *core) update(uid types.UID, u Update, now time.Time) []podEffect {
	c.accept(uid, u, time.Time{}, now)
	return c.share(now)
}

// feed applies any other event to a pod, and returns the effects.
func (c *core) feed(p *pod, e event, now time.Time) []podEffect {
	c.step(p, e, now)
	return c.share(now)
}

// step applies an event to one pod and collects the effects.
func (c *core) step(p *pod, e event, now time.Time) {
	for _, fx := range step(&p.state, e, now, c.open) {
		c.effects = append(c.effects, podEffect{p, fx})
	}
}

// accept applies an update. If the UID had a pod before, newerThan is that pod's newerThan: earlier
// observations are out of date for the new pod.
func (c *core) accept(uid types.UID, u Update, newerThan, now time.Time) {
	p := c.pods[uid]
	e := updated{update: u, first: p == nil}
	if p == nil {
		p = newPod(uid, &u)
		p.newerThan = newerThan
		c.pods[uid] = p
		// Idle is asked for such pods only: it is a call out of the package, with the
		// lock held.
		e.idle = u.Pod != nil && podmeta.IsTerminal(u.Pod.Status.Phase) && c.idle(uid)
		// In line by the first update, not by the time at which it can begin: that is
		// the order that is promised.
		if u.Pod != nil && podmeta.IsStatic(u.Pod) {
			c.names.join(p.fullName(), uid)
		}
	}
	c.step(p, e, now)
}

// share executes the effects that concern other pods: it offers a freed full name to the next pod
// in the queue, and adds a pod again if an update for its UID waited until the pod was forgotten.
// These effects can cause further ones. share returns all effects.
func (c *core) share(now time.Time) []podEffect {
	for i := 0; i < len(c.effects); i++ {
		p := c.effects[i].pod
		switch e := c.effects[i].effect.(type) {
		case claimName:
			c.claimName(p, now)
		case freeName:
			if next := c.names.free(p.fullName(), p.uid, c.mayBegin); next != "" {
				c.claimName(c.pods[next], now)
			}
		case forget:
			c.forget(p, e.next, now)
		}
	}
	all := c.effects
	c.effects = nil
	return all
}

// claimName tries to give a pod its full name, and tells the pod whether it has the name or must
// wait.
func (c *core) claimName(p *pod, now time.Time) {
	if ok, waitFor := c.names.claim(p.fullName(), p.uid, c.mayBegin); ok {
		c.step(p, named{}, now)
	} else {
		c.step(p, denied{waitFor}, now)
	}
}

// mayBegin reports whether a pod that waits for its name may still start: it exists and its end was
// not requested.
func (c *core) mayBegin(uid types.UID) bool {
	p := c.pods[uid]
	return p != nil && p.stage == live
}

// forget drops a pod. If next is not nil, a new pod with the same UID is added from this update.
func (c *core) forget(p *pod, next *Update, now time.Time) {
	if c.pods[p.uid] == p {
		delete(c.pods, p.uid)
	}
	if next != nil { // what was seen until now is out of date
		c.accept(p.uid, *next, p.newerThan, now)
	}
}

// names maps each full name to the static pod that has it and to the pods that wait for it. Like
// all of core, names is guarded by the lock of the workers. A name without pods has no entry.
type names map[string]*nameClaim

// nameClaim has the static pods of one full name: the pod that has the name, and the pods that wait
// for it.
type nameClaim struct {
	holder  types.UID   // "" if no pod has the name
	waiting []types.UID // waiting pods, in the order of their first update
}

// join appends a static pod to the queue for its name.
func (n names) join(fullName string, uid types.UID) {
	c := n[fullName]
	if c == nil {
		c = &nameClaim{}
		n[fullName] = c
	}
	// A UID is in the line once: core joins only at its first sight.
	c.waiting = append(c.waiting, uid)
}

// holder returns the UID of the pod that has a name, or "".
func (n names) holder(fullName string) types.UID {
	if c := n[fullName]; c != nil {
		return c.holder
	}
	return ""
}

// claim gives a pod its name if no other pod has it and no pod before it in the queue may still
// begin. Otherwise waitFor says in words what the pod waits for.
func (n names) claim(fullName string, uid types.UID, mayBegin func(types.UID) bool) (ok bool, waitFor string) {
	c := n[fullName]
	switch {
	case c == nil || c.holder == uid:
		return true, ""
	case c.holder != "":
		return false, "the end of the pod of the same name with UID " + string(c.holder)
	}
	if first := c.first(mayBegin); first != "" && first != uid {
		return false, "a pod of the same name that came before it"
	}
	c.holder = uid
	c.drop(uid)
	return true, ""
}

// free takes the name from a pod, or takes the pod out of the queue. If the name is free then, next
// is the next pod in the queue. The caller has to call claim for next; free does not give it the
// name.
func (n names) free(fullName string, uid types.UID, mayBegin func(types.UID) bool) (next types.UID) {
	c := n[fullName]
	if c == nil {
		return ""
	}
	c.drop(uid)
	if c.holder == uid {
		c.holder = ""
	}
	if c.holder != "" {
		return ""
	}
	if next = c.first(mayBegin); next == "" {
		delete(n, fullName)
	}
	return next
}

// drop takes a pod out of the queue.
func (c *nameClaim) drop(uid types.UID) {
	c.waiting = slices.DeleteFunc(c.waiting, func(u types.UID) bool { return u == uid })
}

// first returns the first pod in the queue that may begin, or "". It drops the pods before it,
// which will never begin because their end was requested.
func (c *nameClaim) first(mayBegin func(types.UID) bool) types.UID {
	for len(c.waiting) > 0 {
		if mayBegin(c.waiting[0]) {
			return c.waiting[0]
		}
		c.waiting = c.waiting[1:]
	}
	return ""
}
