package devicemgr

import (
	"context"
	"errors"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/topology"
)

// Admission is a choice of devices for a pod that is being made. It is an immutable
// value and a [topology.Provider]: nothing is taken before Commit, and one that is
// dropped leaves nothing behind. All fields but released are set before it is
// handed out; Commit alone changes them, so that it is the last call.
type Admission struct {
	m      *Manager
	ctx    context.Context // of calls to plugins
	pod    *v1.Pod
	slots  []slot          // containers, in the order of numa.Pod.Containers
	views  map[string]view // of resources, as they were
	held   [][]choice      // by slot
	before *record         // what the pod had; nil if nothing
	live   bool            // which is kept as it is, for something of it may run

	// Of the one that is committed, guarded by Manager.mu.
	// Set by Release, and read by Commit when the record is on disk: the devices
	// are then given back instead of kept.
	released bool
}

var _ topology.Provider = (*Admission)(nil)

// slot is a container. Its index is the number of a container in all calls of
// package topology.
type slot struct {
	name  string
	kind  numa.Kind
	wants []ask // sorted by resource
	// spared reports that it runs, with what nobody knows.
	spared bool
}

// ask is what a container wants of a resource. The count is positive.
type ask struct {
	resource string
	count    int
}

// view is a resource as an Admission sees it. It is copied under Manager.mu, so
// that the choice needs no lock and all containers of the pod are judged by the
// same state. Commit compares it with what has become of the resource.
type view struct {
	devices []Device
	// A copy: devices themselves are replaced and never changed, so that their list
	// is shared.
	taken map[string]types.UID
	// Nil while the resource has no plugin: nothing is chosen of it then.
	session *session
	options Options
}

// choice is what a container is to have. A container has at most one for each
// resource.
type choice struct {
	Holding
	fresh bool // the plugin has not allocated it yet
}

// slotsOf lists the containers of a pod, with what they want of devices that are
// not claimed otherwise. Limits count, as in the kubelet. It reads the pod alone
// and needs no lock; ephemeral containers cannot have devices.
func (m *Manager) slotsOf(pod *v1.Pod) []slot {
	var slots []slot
	add := func(c *v1.Container, kind numa.Kind) {
		// Names that cannot be an extended resource, such as cpu and hugepages, are
		// left out here; names that no plugin has ever offered only in Begin.
		s := slot{name: c.Name, kind: kind}
		for name, q := range c.Resources.Limits {
			if n := q.Value(); n > 0 && checkResource(string(name)) == nil && !m.cfg.Claimed(pod, c.Name, string(name)) {
				s.wants = append(s.wants, ask{string(name), int(n)})
			}
		}
		// Limits are a map: without an order, two runs could make different
		// choices, and which of two errors a pod is rejected with would be chance.
		slices.SortFunc(s.wants, func(a, b ask) int {
			if a.resource < b.resource {
				return -1
			}
			return 1
		})
		slots = append(slots, s)
	}
	for i := range pod.Spec.InitContainers {
		// A sidecar keeps its devices while the others run, so that it leaves none
		// to them.
		kind := numa.Init
		if podmeta.IsSidecar(&pod.Spec.InitContainers[i]) {
			kind = numa.Sidecar
		}
		add(&pod.Spec.InitContainers[i], kind)
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i], numa.Regular)
	}
	return slots
}

// Begin looks at what a pod asks for. ctx is that of all calls to plugins that
// the admission leads to. Resources that no plugin has ever offered are not
// looked at: they are somebody else's.
//
// The error is a [*NotYetError] if the pod should wait for a plugin, and a
// [*GoneError] if it has waited long enough. A pod of which something runs is not
// asked to wait for what it has. It does not block.
func (m *Manager) Begin(ctx context.Context, pod *v1.Pod) (*Admission, error) {
	a := &Admission{m: m, ctx: ctx, pod: pod, slots: m.slotsOf(pod), views: map[string]view{}}
	a.held = make([][]choice, len(a.slots))
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	// One time for all resources, and one critical section: what the views show was
	// true at the same moment.
	rec := m.pods[pod.UID]
	a.before, a.live = rec, rec != nil && rec.live
	m.look(pod, a.slots)
	for i := range a.slots {
		s := &a.slots[i]
		// From here on every resource in wants has an entry in m.resources, which
		// never goes away again.
		s.wants = slices.DeleteFunc(s.wants, func(w ask) bool { return m.resources[w.resource] == nil })
		s.spared = m.blind[pod.UID].has(s.name)
		for _, w := range s.wants {
			// A running container keeps its devices without a question to the
			// plugin, which may be gone. A record of a pod that does not run is
			// only a preference: see choose.
			h, has := rec.holding(s.name, w.resource)
			if has && a.live {
				a.held[i] = append(a.held[i], choice{Holding: h})
				continue
			}
			// It has devices, but nobody knows which. To choose others would have
			// no effect on a process that runs.
			if s.spared {
				continue
			}
			// A missing plugin ends the admission here, before anything is chosen
			// of the other resources.
			r := m.resources[w.resource]
			if err := m.ready(r, now); err != nil {
				return nil, err
			}
			// All containers share one view: two of them must not see different
			// lists.
			if _, seen := a.views[r.name]; !seen {
				a.views[r.name] = r.view()
			}
		}
	}
	for i, s := range a.slots { // for hints about what is kept
		for _, h := range a.held[i] {
			if _, seen := a.views[h.Resource]; !seen && len(s.wants) > 0 {
				a.views[h.Resource] = m.resources[h.Resource].view()
			}
		}
	}
	return a, nil
}

// look learns from a pod's spec which devices it can have, if its record was
// damaged. Manager.mu is held. A damaged record does not say whose devices are
// missing; the spec narrows "all resources" down to those that the pod can have, so
// that other pods need not wait. It is called again whenever a container ends.
func (m *Manager) look(pod *v1.Pod, slots []slot) {
	b := m.blind[pod.UID]
	if b == nil {
		return
	}
	b.pod = pod.Namespace + "/" + pod.Name
	if b.unknown == nil { // all that can have any
		b.unknown = map[string]bool{}
		for _, s := range slots {
			b.unknown[s.name] = len(s.wants) > 0
		}
	}
	// Made anew each time, since the containers that count become fewer.
	b.resources = map[string]bool{}
	for _, s := range slots {
		for _, w := range s.wants {
			if b.has(s.name) {
				b.resources[w.resource] = true
			}
		}
	}
}

// has reports whether a container runs with devices that are not known. It is safe
// for nil, which is a pod whose record is whole.
func (b *blind) has(container string) bool {
	return b != nil && (b.unknown == nil || b.unknown[container])
}

// view copies what may change. Manager.mu is held.
func (r *resource) view() view {
	v := view{devices: r.devices, session: r.session, taken: make(map[string]types.UID, len(r.taken))}
	for id, uid := range r.taken {
		v.taken[id] = uid
	}
	if r.session != nil {
		v.options = r.session.options
	}
	return v
}

// mine are the devices that containers of the pod have by now, and reusable those
// among them that the init containers before a slot leave to it. Devices of an init
// container are free again when the next one starts, but only until a container
// that stays takes them over.
func (a *Admission) mine(resource string, slot int) (mine map[string]bool, reusable []string) {
	mine = map[string]bool{}
	left := map[string]bool{}
	for i, list := range a.held {
		for _, h := range list {
			if h.Resource != resource {
				continue
			}
			for _, d := range h.Devices {
				mine[d.ID] = true
				switch {
				case i >= slot || a.slots[i].kind != numa.Init:
					// False is final: of two holders, the one that stays decides.
					left[d.ID] = false // a later or a lasting one has it
				default:
					if _, lasting := left[d.ID]; !lasting {
						left[d.ID] = true
					}
				}
			}
		}
	}
	for id, ok := range left {
		if ok {
			reusable = append(reusable, id)
		}
	}
	// The order of a map must not decide which device a container has.
	slices.Sort(reusable)
	return mine, reusable
}

// Hints returns from which nodes the devices of a container can be had, or those of
// the pod with [topology.WholePod]. Nil means that the container asks for no
// devices; Hints with an empty list, that no placement will do. It asks no plugin
// and does not block.
func (a *Admission) Hints(container int) []numa.Hints {
	if container == topology.WholePod {
		return a.podHints()
	}
	if container < 0 || container >= len(a.slots) || a.slots[container].spared {
		return nil
	}
	var out []numa.Hints
	for _, w := range a.slots[container].wants {
		q := a.question(w.resource, w.count)
		if has, ok := a.has(container, w.resource); ok {
			// The limit has changed since. An empty list has the pod rejected, with
			// the same outcome as choose.
			if len(has.Devices) != w.count {
				out = append(out, numa.Hints{Resource: w.resource})
				continue
			}
			// Only the nodes of its own devices fit a container that has them
			// already.
			q.only(has.ids())
		} else {
			mine, reusable := a.mine(w.resource, container)
			q.must = reusable
			q.free = a.free(w.resource, mine)
		}
		out = append(out, q.hints(a.m.cfg.Machine))
	}
	return out
}

// question returns the question for n devices of a resource, without free and must,
// which the caller sets.
func (a *Admission) question(resource string, n int) question {
	return question{resource: resource, devices: a.views[resource].devices, n: n}
}

// only asks about devices that are taken already. The caller gives the devices'
// IDs; no other device counts as free.
func (q *question) only(ids []string) {
	q.must = nil
	q.free = func(id string) bool { return slices.Contains(ids, id) }
}

// free returns which healthy devices no other pod has, and none of mine. Devices that
// an earlier record gave to the same pod count as free for it. An ID that the
// plugin no longer lists is not free.
func (a *Admission) free(resource string, mine map[string]bool) func(string) bool {
	v := a.views[resource]
	return func(id string) bool {
		d, ok := find(v.devices, id)
		owner, taken := v.taken[id]
		return ok && d.Healthy && !mine[id] && (!taken || owner == a.pod.UID)
	}
}

// has returns the choice that a container has made of a resource, or kept from
// before.
func (a *Admission) has(container int, resource string) (choice, bool) {
	for _, h := range a.held[container] {
		if h.Resource == resource {
			return h, true
		}
	}
	return choice{}, false
}

// podHints are for what the containers of a pod have at the same time, at most:
// those that run side by side, or an init container and the sidecars before it. The
// count is that of a pod's effective request: an init container's devices are given
// back before the regular containers start, so that the larger of the two sums
// decides.
func (a *Admission) podHints() []numa.Hints {
	type sum struct{ staying, sidecars, most int }
	sums := map[string]*sum{}
	var names []string
	for _, s := range a.slots {
		for _, w := range s.wants {
			t := sums[w.resource]
			if t == nil {
				t = &sum{}
				sums[w.resource] = t
				names = append(names, w.resource)
			}
			// Slots come in the order in which containers start, which is why the
			// sidecars counted so far are those that run beside an init container.
			switch s.kind {
			case numa.Init:
				t.most = max(t.most, t.sidecars+w.count)
			case numa.Sidecar:
				t.sidecars += w.count
				t.staying += w.count
			default:
				t.staying += w.count
			}
		}
	}
	// One resource after the other by name: merging hints must not depend on a map.
	slices.Sort(names)
	out := make([]numa.Hints, 0, len(names))
	for _, name := range names {
		n := max(sums[name].most, sums[name].staying)
		q := a.question(name, n)
		mine, _ := a.mine(name, 0)
		q.free = a.free(name, mine)
		if len(mine) > 0 { // what it has, it has
			ids := make([]string, 0, len(mine))
			for id := range mine {
				ids = append(ids, id)
			}
			// A pod that has some of its devices, but not as many as it asks for
			// now, fits nowhere.
			if len(ids) != n {
				out = append(out, numa.Hints{Resource: name})
				continue
			}
			q.only(ids)
		}
		out = append(out, q.hints(a.m.cfg.Machine))
	}
	return out
}

// Settled reports that nothing is left to choose: the pod asks for no devices, or
// each container has, or has been chosen, all it asks for. No plugin is asked then
// by Hints, Allocate and Choose. Callers that must not block see from it whether
// they may go on.
func (a *Admission) Settled() bool {
	for i, s := range a.slots {
		for _, w := range s.wants {
			if _, ok := a.has(i, w.resource); !ok && !s.spared {
				return false
			}
		}
	}
	return true
}

// Asks reports that the pod asks for devices.
func (a *Admission) Asks() bool {
	return slices.ContainsFunc(a.slots, func(s slot) bool { return len(s.wants) > 0 })
}

// Chosen are the IDs of the devices that a container has, or would have, by
// resource. The map is the caller's; nil means none.
func (a *Admission) Chosen(container int) map[string][]string {
	if container < 0 || container >= len(a.held) || len(a.held[container]) == 0 {
		return nil
	}
	out := map[string][]string{}
	for _, h := range a.held[container] {
		out[h.Resource] = h.ids()
	}
	return out
}

// Allocate chooses the devices of a container, or of all with [topology.WholePod],
// near the nodes of the hint if it names any. Plugins that want to are asked for
// their preference; nothing is taken. a stays as it is: the result has the choice,
// so that package topology can try several hints from one state. It blocks while a
// plugin is asked. Errors are those of Choose.
func (a *Admission) Allocate(container int, hint numa.Hint) (topology.Provider, error) {
	// A nil *Admission in the interface would not be nil: errors return before the
	// conversion.
	next, err := a.Choose(container, hint)
	if err != nil {
		return nil, err
	}
	return next, nil
}

// Choose is Allocate with its own type. The error is an [*InsufficientError], a
// [*RequestError], or what Commit returns for a plugin that failed.
func (a *Admission) Choose(container int, hint numa.Hint) (*Admission, error) {
	next := &Admission{m: a.m, ctx: a.ctx, pod: a.pod, slots: a.slots, views: a.views, before: a.before, live: a.live, held: slices.Clone(a.held)}
	first, last := container, container
	if container == topology.WholePod {
		first, last = 0, len(a.slots)-1
	}
	// In order, because a container may have the devices of the init containers
	// before it.
	for i := max(first, 0); i <= last && i < len(a.slots); i++ {
		for _, w := range a.slots[i].wants {
			if err := next.choose(i, w, hint.Nodes); err != nil {
				return nil, err
			}
		}
	}
	return next, nil
}

// choose adds the choice of one resource for slot i. It changes a.held, so that it
// is called on a fresh copy only.
func (a *Admission) choose(i int, w ask, hint numa.NodeSet) error {
	s := a.slots[i]
	if has, ok := a.has(i, w.resource); ok {
		// Devices cannot be added to a container that may run: the API has no call
		// for that.
		if len(has.Devices) != w.count {
			return &RequestError{Container: s.name, Resource: w.resource, Requested: w.count, Has: len(has.Devices)}
		}
		return nil
	}
	if s.spared {
		return nil
	}
	// From the view, not from the manager: the choice is checked against the
	// present in reserve.
	v := a.views[w.resource]
	mine, reusable := a.mine(w.resource, i)
	free := a.free(w.resource, mine)
	q := want{
		resource: w.resource, count: w.count, devices: v.devices, reusable: reusable, hint: hint,
		taken: func(id string) bool { return !free(id) },
	}
	// After a reboot the pod gets its devices again if all of them are free and
	// listed, as in the places where it ran before. Only they are offered then, and
	// the plugin is not asked.
	if old, ok := a.before.holding(s.name, w.resource); ok && len(old.Devices) == w.count && !slices.ContainsFunc(old.ids(), q.taken) {
		q.devices = only(v.devices, old.ids()) // the same again
	} else if v.options.Prefer {
		// Each question has a deadline of its own. One that fails ends the choice,
		// as in the kubelet, rather than have a pod placed against a plugin's
		// rules.
		q.prefer = func(available, must []string, size int) ([]string, error) {
			ctx, done := context.WithTimeout(a.ctx, a.m.cfg.Timeout)
			defer done()
			ids, err := v.session.plugin.Prefer(ctx, available, must, size)
			if err != nil {
				err = a.blame(v.session, "GetPreferredAllocation", err)
			}
			return ids, err
		}
	}
	// The plugin may be asked now; no lock is held.
	ids, err := pick(q)
	if err != nil {
		return err
	}
	h := Holding{Container: s.name, Resource: w.resource, PreStart: v.options.PreStart}
	// The nodes are stored with the device: who asks for them after a restart need
	// not wait for the plugin's list.
	for _, id := range ids {
		d, _ := find(v.devices, id)
		h.Devices = append(h.Devices, HeldDevice{ID: id, Nodes: d.Nodes})
	}
	// The backing array may be shared with the admission that this one was copied
	// from.
	a.held[i] = append(slices.Clip(a.held[i]), choice{Holding: h, fresh: true})
	return nil
}

// only cuts a list down. IDs that are not in it are left out; the result has the
// order of ids.
func only(list []Device, ids []string) []Device {
	out := make([]Device, 0, len(ids))
	for _, id := range ids {
		if d, ok := find(list, id); ok {
			out = append(out, d)
		}
	}
	return out
}

// Admit gives a pod its devices, wherever they are: for agents without a topology
// manager. A pod that has its devices already keeps them. It blocks for calls of
// plugins and of the store. Errors are those of Begin, Choose and Commit.
func (m *Manager) Admit(ctx context.Context, pod *v1.Pod) error {
	const attempts = 3 // devices change between the choice and the deed
	var err error
	for range attempts {
		if err = m.admit(ctx, pod); !errors.Is(err, ErrChanged) {
			return err
		}
	}
	return err
}

// admit is one attempt of Admit. ErrChanged means that another may succeed.
func (m *Manager) admit(ctx context.Context, pod *v1.Pod) error {
	a, err := m.Begin(ctx, pod)
	if err != nil {
		return err
	}
	if a, err = a.Choose(topology.WholePod, numa.Hint{}); err != nil {
		return err
	}
	return a.Commit()
}
