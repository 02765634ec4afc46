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

// Admission is a choice of devices for a pod before it is committed. It is an immutable value and a
// [topology.Provider]: no device is allocated before Commit, and an Admission may simply be
// dropped. Commit must be the last call, since it is the only method that changes fields.
type Admission struct {
	m      *Manager
	ctx    context.Context // context of calls to plugins
	pod    *v1.Pod
	slots  []slot          // the containers, in the order of numa.Pod.Containers
	views  map[string]view // views of resources at the time of Begin
	held   [][]choice      // choices, by slot
	before *record         // the pod's earlier record; nil if it has none
	live   bool            // a container of the pod may be running, so before is kept as it is

	// released is guarded by Manager.mu. Release sets it during a Commit. Commit reads it once the
	// record is on disk, and frees the devices if it is set.
	released bool
}

var _ topology.Provider = (*Admission)(nil)

// slot is a container of the pod. The index of the slot is the container's number in all calls of
// package topology.
type slot struct {
	name  string
	kind  numa.Kind
	wants []ask // sorted by resource
	// spared reports that the container is running with devices that are not known.
	spared bool
}

// ask is a container's request for a resource. The count is positive.
type ask struct {
	resource string
	count    int
}

// view is a copy of a resource for an Admission, made under Manager.mu. With it, all containers
// of the pod see the same state and the choice needs no lock. Commit compares the view with the
// resource's current state.
type view struct {
	devices []Device
	// taken is a copy. The list of devices need not be copied, since devices are replaced and never
	// modified.
	taken map[string]types.UID
	// session is nil while the resource has no plugin. Then none of its devices is chosen.
	session *session
	options Options
}

// choice is the devices chosen for a container, at most one choice for each
// resource.
type choice struct {
	Holding
	fresh bool // the plugin has not allocated the devices yet
}

// slotsOf returns the containers of a pod with their requests for devices that Config.Claimed
// does not cover. As in the kubelet, limits count. It reads only the pod and needs no lock.
// Ephemeral containers cannot have devices.
func (m *Manager) slotsOf(pod *v1.Pod) []slot {
	var slots []slot
	add := func(c *v1.Container, kind numa.Kind) {
		// This omits names that cannot be an extended resource, such as cpu and hugepages. Begin
		// omits names that no plugin has ever offered.
		s := slot{name: c.Name, kind: kind}
		for name, q := range c.Resources.Limits {
			if n := q.Value(); n > 0 && CheckResource(string(name)) == nil && !m.cfg.Claimed(pod, c.Name, string(name)) {
				s.wants = append(s.wants, ask{string(name), int(n)})
			}
		}
		// Sorted, since limits are a map: without an order, two runs could choose different
		// devices, or reject the pod with different errors.
		slices.SortFunc(s.wants, func(a, b ask) int {
			if a.resource < b.resource {
				return -1
			}
			return 1
		})
		slots = append(slots, s)
	}
	for i := range pod.Spec.InitContainers {
		// A sidecar keeps its devices while later containers run, so these cannot reuse them.
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

// Begin starts the admission of a pod. All calls to plugins use ctx. Resources that
// no plugin has ever offered are ignored: they do not belong to device plugins.
//
// The error is a [*NotYetError] if the pod should wait for a plugin, and a
// [*GoneError] if the wait has been too long. A pod with running containers does
// not wait for devices that it has. Begin does not block.
func (m *Manager) Begin(ctx context.Context, pod *v1.Pod) (*Admission, error) {
	a := &Admission{m: m, ctx: ctx, pod: pod, slots: m.slotsOf(pod), views: map[string]view{}}
	a.held = make([][]choice, len(a.slots))
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	// All resources are read at one time in one critical section, so that the views are
	// consistent.
	rec := m.pods[pod.UID]
	a.before, a.live = rec, rec != nil && rec.live
	m.limitDamaged(pod, a.slots)
	for i := range a.slots {
		s := &a.slots[i]
		// From here on, every resource in wants has an entry in m.resources, which is never
		// removed.
		s.wants = slices.DeleteFunc(s.wants, func(w ask) bool { return m.resources[w.resource] == nil })
		s.spared = m.damaged[pod.UID].has(s.name)
		for _, w := range s.wants {
			// A running container keeps its devices without a call to the plugin, which may have
			// gone. For a pod that is not running, the record is only a preference; see choose.
			h, has := rec.holding(s.name, w.resource)
			if has && a.live {
				a.held[i] = append(a.held[i], choice{Holding: h})
				continue
			}
			// The container's devices are not known. Other devices would have no effect on its
			// running process.
			if s.spared {
				continue
			}
			// A missing plugin ends the admission here, before devices of other resources are
			// chosen.
			r := m.resources[w.resource]
			if err := m.ready(r, now); err != nil {
				return nil, err
			}
			// All containers of the pod use the same view.
			if _, seen := a.views[r.name]; !seen {
				a.views[r.name] = r.view()
			}
		}
	}
	for i, s := range a.slots { // for hints about devices that are kept
		for _, h := range a.held[i] {
			if _, seen := a.views[h.Resource]; !seen && len(s.wants) > 0 {
				a.views[h.Resource] = m.resources[h.Resource].view()
			}
		}
	}
	return a, nil
}

// limitDamaged determines, from a pod's spec, the resources of which the pod may have devices, if its
// record was damaged. Manager.mu is held. Without it, the pod could have devices of any
// resource, and other pods would have to wait for all of them. It is called again whenever a
// container ends.
func (m *Manager) limitDamaged(pod *v1.Pod, slots []slot) {
	b := m.damaged[pod.UID]
	if b == nil {
		return
	}
	b.pod = pod.Namespace + "/" + pod.Name
	if b.unknown == nil { // all containers that can have devices
		b.unknown = map[string]bool{}
		for _, s := range slots {
			b.unknown[s.name] = len(s.wants) > 0
		}
	}
	// Computed again each time, since fewer containers count later.
	b.resources = map[string]bool{}
	for _, s := range slots {
		for _, w := range s.wants {
			if b.has(s.name) {
				b.resources[w.resource] = true
			}
		}
	}
}

// has reports whether a container is running with devices that are not known. b is nil if the
// pod's record is intact.
func (b *damagedPod) has(container string) bool {
	return b != nil && (b.unknown == nil || b.unknown[container])
}

// view returns a copy of those values that may change. Manager.mu is held.
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

// mine returns the devices that containers of the pod have so far. reusable lists the devices among
// them that the container of the slot can have from earlier init containers: the devices of an init
// container are free again when the next container starts, until a sidecar or regular container
// takes them.
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
					// Once false, it stays false: if two containers have a device, the one that
					// does not end decides.
					left[d.ID] = false // a later container or a sidecar has it
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
	// Sorted, since the order of a map must not decide which device a container gets.
	slices.Sort(reusable)
	return mine, reusable
}

// Hints returns the NUMA nodes from which a container or, with [topology.WholePod], the pod can
// get its devices. Nil means that no devices are requested; Hints with an empty list mean that
// the request cannot be served. It calls no plugin and does not block.
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
			// The limit has changed. With an empty list the pod is rejected, as choose would do.
			if len(has.Devices) != w.count {
				out = append(out, numa.Hints{Resource: w.resource})
				continue
			}
			// A container that already has devices fits only the nodes of these devices.
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

// question returns the question for n devices of a resource. The caller sets its fields free and
// must.
func (a *Admission) question(resource string, n int) question {
	return question{resource: resource, devices: a.views[resource].devices, n: n}
}

// only restricts the question to devices that are allocated already, given by ID;
// no other device counts as free.
func (q *question) only(ids []string) {
	q.must = nil
	q.free = func(id string) bool { return slices.Contains(ids, id) }
}

// free returns a function that reports whether a device is free for the pod: it is healthy, no
// other pod has it, and it is not in the set mine. Devices that an earlier record gave to the same
// pod count as free for it. An ID that the plugin no longer lists is not free.
func (a *Admission) free(resource string, mine map[string]bool) func(string) bool {
	v := a.views[resource]
	return func(id string) bool {
		d, ok := find(v.devices, id)
		owner, taken := v.taken[id]
		return ok && d.Healthy && !mine[id] && (!taken || owner == a.pod.UID)
	}
}

// has returns the choice for a container and a resource: a new one, or one kept from before.
func (a *Admission) has(container int, resource string) (choice, bool) {
	for _, h := range a.held[container] {
		if h.Resource == resource {
			return h, true
		}
	}
	return choice{}, false
}

// podHints returns hints for the largest number of devices that containers of the pod use at the
// same time: sidecars and regular containers together, or an init container and the sidecars
// before it. This is the pod's effective request: the devices of an init container are freed
// before the regular containers start.
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
			// Slots are in the order of starts, so the sidecars counted so far are those before
			// an init container.
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
	// Sorted, since the merge of hints must not depend on the order of a map.
	slices.Sort(names)
	out := make([]numa.Hints, 0, len(names))
	for _, name := range names {
		n := max(sums[name].most, sums[name].staying)
		q := a.question(name, n)
		mine, _ := a.mine(name, 0)
		q.free = a.free(name, mine)
		if len(mine) > 0 { // the pod keeps its devices
			ids := make([]string, 0, len(mine))
			for id := range mine {
				ids = append(ids, id)
			}
			// The pod has some devices, but not the number that it requests, so it cannot be
			// placed.
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

// Settled reports that no device has to be chosen: the pod requests none, or each container has
// its devices or a choice. Then Hints, Allocate and Choose call no plugin, so that they can be
// called where blocking is not allowed.
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

// Asks reports whether the pod requests devices.
func (a *Admission) Asks() bool {
	return slices.ContainsFunc(a.slots, func(s slot) bool { return len(s.wants) > 0 })
}

// Chosen returns the IDs of the devices that a container has or would get, by resource. The
// result is nil if there are none. The caller may change the map.
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

// Allocate chooses the devices of a container or, with [topology.WholePod], of all containers, near
// the nodes of the hint if it has any. It asks plugins with the option Prefer for their preference,
// and blocks on them. Nothing is allocated and the receiver does not change: the result contains
// the choice, so that package topology can try several hints from one state. It returns the errors
// of Choose.
func (a *Admission) Allocate(container int, hint numa.Hint) (topology.Provider, error) {
	// A nil *Admission in the interface would not be a nil interface.
	next, err := a.Choose(container, hint)
	if err != nil {
		return nil, err
	}
	return next, nil
}

// Choose does the same as Allocate and returns an *Admission. The error is an
// [*InsufficientError] or a [*RequestError]. If a plugin failed, it is one of the errors that
// Commit returns for a plugin.
func (a *Admission) Choose(container int, hint numa.Hint) (*Admission, error) {
	next := &Admission{m: a.m, ctx: a.ctx, pod: a.pod, slots: a.slots, views: a.views, before: a.before, live: a.live, held: slices.Clone(a.held)}
	first, last := container, container
	if container == topology.WholePod {
		first, last = 0, len(a.slots)-1
	}
	// In order, because a container may reuse the devices of earlier init containers.
	for i := max(first, 0); i <= last && i < len(a.slots); i++ {
		for _, w := range a.slots[i].wants {
			if err := next.choose(i, w, hint.Nodes); err != nil {
				return nil, err
			}
		}
	}
	return next, nil
}

// choose adds the choice of one resource for the container in slot i. It changes a.held, so it
// must be called on a new copy of the Admission.
func (a *Admission) choose(i int, w ask, hint numa.NodeSet) error {
	s := a.slots[i]
	if has, ok := a.has(i, w.resource); ok {
		// The API has no call to add devices to a container that may be running.
		if len(has.Devices) != w.count {
			return &RequestError{Container: s.name, Resource: w.resource, Requested: w.count, Has: len(has.Devices)}
		}
		return nil
	}
	if s.spared {
		return nil
	}
	// Uses the view, not the manager's state; reserve compares the choice with the current state.
	v := a.views[w.resource]
	mine, reusable := a.mine(w.resource, i)
	free := a.free(w.resource, mine)
	q := want{
		resource: w.resource, count: w.count, devices: v.devices, reusable: reusable, hint: hint,
		taken: func(id string) bool { return !free(id) },
	}
	// After a reboot, the pod gets its former devices if all of them are free and listed. Then
	// only these are offered, and the plugin is not asked.
	if old, ok := a.before.holding(s.name, w.resource); ok && len(old.Devices) == w.count && !slices.ContainsFunc(old.ids(), q.taken) {
		q.devices = only(v.devices, old.ids()) // offer only its former devices
	} else if v.options.Prefer {
		// Each call has its own deadline. As in the kubelet, a failed call ends the choice:
		// otherwise the pod could be placed against the plugin's rules.
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
	// This may call the plugin. No lock is held.
	ids, err := pick(q)
	if err != nil {
		return err
	}
	h := Holding{Container: s.name, Resource: w.resource, PreStart: v.options.PreStart}
	// The nodes are stored with the device, so that they are known after a restart before the
	// plugin sends its list.
	for _, id := range ids {
		d, _ := find(v.devices, id)
		h.Devices = append(h.Devices, HeldDevice{ID: id, Nodes: d.Nodes})
	}
	// Clipped, since the backing array may be shared with the admission that this one was copied
	// from.
	a.held[i] = append(slices.Clip(a.held[i]), choice{Holding: h, fresh: true})
	return nil
}

// only returns the devices with the given IDs, in the order of ids. It skips IDs that are not in
// the list.
func only(list []Device, ids []string) []Device {
	out := make([]Device, 0, len(ids))
	for _, id := range ids {
		if d, ok := find(list, id); ok {
			out = append(out, d)
		}
	}
	return out
}

// Admit chooses and allocates the devices of a pod, without regard to NUMA nodes, for agents
// without a topology manager. A pod that already has its devices keeps them. It blocks on plugins
// and on the store. It returns the errors of Begin, Choose and Commit.
func (m *Manager) Admit(ctx context.Context, pod *v1.Pod) error {
	const attempts = 3 // devices may change between choice and allocation
	var err error
	for range attempts {
		if err = m.admit(ctx, pod); !errors.Is(err, ErrChanged) {
			return err
		}
	}
	return err
}

// admit is one attempt of Admit. After the error ErrChanged another attempt may succeed.
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
