package pleg

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/internal/slots"
)

// The record of one pod, and its comparison with a list, an event and the next inspection. Only
// IDs and states are compared; a changed address or exit code alone is no change.

// item is a container or a sandbox as it was last seen.
type item struct {
	id      string
	state   observed.State
	sandbox bool
}

// record has the last known state of one pod. Manager.mu guards it.
type record struct {
	uid             types.UID
	namespace, name string

	items []item        // items of the last successful inspection, containers first
	pod   *observed.Pod // result of the last successful inspection; nil before the first
	err   error         // error of the last inspection; nil if it succeeded
	at    time.Time     // start of the last inspection that has ended

	// matched is when the last list that agreed with items began. A list during an inspection does
	// not count: the inspection may then replace items by a state that is older than the list.
	matched time.Time

	// dirty is set by news that no inspection has covered yet: an event, a list, a Refresh, or a
	// failed inspection.
	dirty    bool
	flight   *flight
	retry    *time.Timer
	failures int

	// denied has the items of the last list that disagreed with the inspection after it. denials
	// counts the inspections in a row that disagreed with this list.
	denied  []item
	denials int

	paid  time.Time // the time up to which earlier inspections count: see pace
	paced bool      // retry is the timer of an inspection that pace delayed

	held int // number of holds

	hungSince time.Time
	round     uint64 // number of the last list that had the pod
	dropped   bool   // the record is not in Manager.records any more

	// hint has the IDs and states of the list until the first inspection succeeds.
	hint *observed.Pod
}

// flight is one inspection under way.
type flight struct {
	began time.Time
	done  chan struct{} // closed when the inspection has ended
	slot  *slots.Slot   // slot of the inspection; nil while the inspection waits for one
	over  bool          // the inspection has ended, or was given up

	// pod and err are the result. They may be read when done is closed.
	pod *observed.Pod
	err error
}

// knows reports whether an inspection has already seen the state of an event. An event from
// before the last inspection may name an earlier state. A later event always counts, even if it
// names an earlier state.
func (r *record) knows(e observed.Event) bool {
	if r.dirty || r.flight != nil || r.err != nil || r.pod == nil {
		return false
	}
	i := slices.IndexFunc(r.items, func(it item) bool { return it.id == e.ID })
	before := !e.At.After(r.at)
	switch e.Kind {
	case observed.ContainerDeleted:
		return i < 0
	case observed.ContainerStopped:
		return i >= 0 && r.items[i].state == observed.Exited
	case observed.ContainerStarted:
		return i >= 0 && (r.items[i].state == observed.Running || before && r.items[i].state == observed.Exited)
	case observed.ContainerCreated:
		return i >= 0 && (r.items[i].state == observed.Created || before)
	default:
		return false
	}
}

// stopRetry stops the timer of a retry or of a delayed inspection. Its callback may already wait
// for the lock, so it checks the record again.
func (r *record) stopRetry() {
	r.paced = false
	if r.retry != nil {
		r.retry.Stop()
	}
}

// asListed returns the record for Pods: the last inspection or, before the first, the list.
func (r *record) asListed() observed.Listed {
	l := observed.Listed{UID: r.uid, Name: r.name, Namespace: r.namespace}
	if r.pod == nil && r.hint != nil {
		for _, s := range r.hint.Sandboxes {
			l.Sandboxes = append(l.Sandboxes, observed.Item{ID: s.ID, State: s.State})
		}
		for _, c := range r.hint.Containers {
			l.Containers = append(l.Containers, observed.Item{ID: c.ID, State: c.State})
		}
		return l
	}
	// Both lists share one array: this is called for every pod at each look at all
	// pods. Containers come first in items.
	all, n := make([]observed.Item, len(r.items)), 0
	for i, it := range r.items {
		if all[i] = (observed.Item{ID: it.id, State: it.state}); !it.sandbox {
			n++
		}
	}
	l.Containers, l.Sandboxes = all[:n:n], all[n:]
	return l
}

// exists reports whether the last inspection or list had a sandbox or container of the pod.
func (r *record) exists() bool {
	return len(r.items) > 0 || r.pod == nil && r.hint != nil
}

// hintOf converts a listed pod for View, before the first inspection.
func hintOf(l *observed.Listed) *observed.Pod {
	p := &observed.Pod{UID: l.UID, Name: l.Name, Namespace: l.Namespace}
	for _, s := range l.Sandboxes {
		p.Sandboxes = append(p.Sandboxes, observed.Sandbox{ID: s.ID, State: s.State})
	}
	for _, c := range l.Containers {
		p.Containers = append(p.Containers, observed.Container{ID: c.ID, State: c.State})
	}
	return p
}

// keepIPs keeps the last known addresses of a sandbox that is not ready any more, since runtimes
// drop them.
func keepIPs(old, now *observed.Pod) *observed.Pod {
	if old == nil {
		return now
	}
	copied := false
	for i := range now.Sandboxes {
		s := &now.Sandboxes[i]
		if s.State == observed.Running || len(s.IPs) > 0 {
			continue
		}
		j := slices.IndexFunc(old.Sandboxes, func(o observed.Sandbox) bool { return o.ID == s.ID })
		if j < 0 || len(old.Sandboxes[j].IPs) == 0 {
			continue
		}
		if !copied { // the runtime's answer is not ours to change
			c := *now
			c.Sandboxes = slices.Clone(now.Sandboxes)
			now, copied = &c, true
		}
		now.Sandboxes[i].IPs = old.Sandboxes[j].IPs
	}
	return now
}

// mayDeny reports whether a list that differs from the record causes an inspection. If
// inspections keep contradicting the same list, the pauses between them grow.
func (r *record) mayDeny(l *observed.Listed, now time.Time) bool {
	if r.denials == 0 || !same(r.denied, l) {
		r.denied, r.denials = listedItems(l), 1
		return true
	}
	if now.Sub(r.at) < (retry.Backoff{First: minRetry, Max: maxDenied}.After(r.denials)) {
		return false
	}
	r.denials++
	return true
}

// same reports whether a listed pod has exactly these items. It looks for each item at its old
// position first.
func same(items []item, l *observed.Listed) bool {
	if len(items) != len(l.Containers)+len(l.Sandboxes) {
		return false
	}
	n := 0
	for i := range l.Containers {
		if !has(items, n, &l.Containers[i], false) {
			return false
		}
		n++
	}
	for i := range l.Sandboxes {
		if !has(items, n, &l.Sandboxes[i], true) {
			return false
		}
		n++
	}
	return true
}

// has reports whether items contains the item want with the same state. It compares the element at
// index place first.
func has(items []item, place int, want *observed.Item, sandbox bool) bool {
	if it := &items[place]; it.id == want.ID {
		return it.state == want.State
	}
	for i := range items {
		if it := &items[i]; it.id == want.ID && it.sandbox == sandbox {
			return it.state == want.State
		}
	}
	return false
}

// listedItems returns the items of a listed pod: containers, then sandboxes.
func listedItems(l *observed.Listed) []item {
	items := make([]item, 0, len(l.Containers)+len(l.Sandboxes))
	for _, c := range l.Containers {
		items = append(items, item{id: c.ID, state: c.State})
	}
	for _, s := range l.Sandboxes {
		items = append(items, item{id: s.ID, state: s.State, sandbox: true})
	}
	return items
}

// itemsOf returns the items of an inspected pod: containers, then sandboxes. Their order is that
// of lists, for which same is fast.
func itemsOf(p *observed.Pod) []item {
	items := make([]item, 0, len(p.Containers)+len(p.Sandboxes))
	for i := range p.Containers {
		items = append(items, item{id: p.Containers[i].ID, state: p.Containers[i].State})
	}
	for i := range p.Sandboxes {
		items = append(items, item{id: p.Sandboxes[i].ID, state: p.Sandboxes[i].State, sandbox: true})
	}
	return items
}

// diff returns the changes between two inspections: containers before sandboxes, old ones before
// new ones, and an end before a removal.
func diff(old, now []item) []Change {
	var changes []Change
	for _, sandboxes := range []bool{false, true} {
		for i := range old {
			if o := &old[i]; o.sandbox == sandboxes {
				j := slices.IndexFunc(now, func(n item) bool { return n.id == o.id })
				if j < 0 {
					// Its end was not seen: report it too, since readers count ends.
					if o.state != observed.Exited {
						changes = append(changes, Change{ID: o.id, Type: ContainerDied, Sandbox: o.sandbox})
					}
					changes = append(changes, Change{ID: o.id, Type: ContainerRemoved, Sandbox: o.sandbox})
				} else if now[j].state != o.state {
					changes = append(changes, Change{ID: o.id, Type: entered(now[j].state), Sandbox: o.sandbox})
				}
			}
		}
		for i := range now {
			n := &now[i]
			if n.sandbox == sandboxes && !slices.ContainsFunc(old, func(o item) bool { return o.id == n.id }) {
				changes = append(changes, Change{ID: n.id, Type: entered(n.state), Sandbox: n.sandbox})
			}
		}
	}
	return changes
}

// described adds container names and exit codes to changes, from two inspections of the pod.
// Either may be nil.
func described(changes []Change, old, now *observed.Pod) []Change {
	for i := range changes {
		c := &changes[i]
		for _, pod := range []*observed.Pod{now, old} {
			if pod == nil || c.Sandbox || c.Container != "" {
				continue
			}
			for j := range pod.Containers {
				if k := &pod.Containers[j]; k.ID == c.ID {
					c.describe(k)
				}
			}
		}
	}
	return changes
}

func (c *Change) describe(k *observed.Container) {
	c.Container = k.Name
	switch {
	case c.Type != ContainerDied && c.Type != ContainerRemoved:
	case k.State == observed.Exited:
		c.ExitCode = k.Code()
	default:
		c.ExitCode = -1
	}
}

// entered returns the type of the change that leads to a state.
func entered(s observed.State) ChangeType {
	switch s {
	case observed.Running:
		return ContainerStarted
	case observed.Exited:
		return ContainerDied
	default:
		return ContainerChanged
	}
}
