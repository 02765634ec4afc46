package volumemgr

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Mount resolves volumes, records that they are wanted, and waits until wake has mounted them.
// Changed marks content that has to be updated.

// The errors of a Mount that an Unmount ended, and of an Unmount that a Mount ended.
var (
	ErrUnwanted = errors.New("the pod's volumes are being unmounted")
	ErrWanted   = errors.New("the pod's volumes are mounted again")
)

// Mounted says how a container gets a volume that is mounted.
type Mounted struct {
	// Path is the host path that containers mount, or the device that they get; ""
	// if the runtime creates the volume itself.
	Path string
	// Block reports whether Path is a block device.
	Block bool
	// ReadOnly reports whether the volume is read-only, whatever a mount requests.
	ReadOnly bool
	// Group is the group of the volume's files, from the annotation pv.beta.kubernetes.io/gid of
	// a persistent volume; nil if there is none.
	Group *int64
}

// Mounts are a pod's mounted volumes, by their name in the spec.
type Mounts map[string]Mounted

// Paths returns the host paths by volume name, without volumes that have none, such
// as image volumes.
func (ms Mounts) Paths() map[string]string {
	out := make(map[string]string, len(ms))
	for name, m := range ms {
		if m.Path != "" {
			out[name] = m.Path
		}
	}
	return out
}

// Groups returns the groups of the volumes' files, except those that the pod has anyway. They are
// sorted and unique. The runtime gets them as supplemental groups of the pod's containers.
func (ms Mounts) Groups(pod *v1.Pod) []int64 {
	var out []int64
	for _, m := range ms {
		if m.Group != nil {
			out = append(out, *m.Group)
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	if sc := pod.Spec.SecurityContext; sc != nil {
		out = slices.DeleteFunc(out, func(g int64) bool { return slices.Contains(sc.SupplementalGroups, g) })
	}
	return out
}

// gidAnnotation is the kubelet's annotation with the group of a persistent volume's files.
const gidAnnotation = "pv.beta.kubernetes.io/gid"

// group returns the group in the annotation of a persistent volume, or nil. An invalid value is
// ignored: it must not prevent the pod from running.
func group(spec *Spec) *int64 {
	if spec == nil || spec.PersistentVolume == nil {
		return nil
	}
	g, err := strconv.ParseUint(spec.PersistentVolume.Annotations[gidAnnotation], 10, 32)
	if err != nil || g == math.MaxUint32 { // -1 is not a valid group
		return nil
	}
	gid := int64(g)
	return &gid
}

// want is one volume that a pod wants.
type want struct {
	use    use
	spec   *Spec
	plugin Plugin
	device Device
}

// Mount mounts the volumes that the pod's containers use. It blocks until each of them is mounted
// or has failed, and returns the mounted ones, and an [Error] for each of the others. Failed
// volumes are retried with back-off until Unmount is called; Config.Ready is called when all are
// mounted.
//
// If ctx is canceled, set-ups for which no other caller waits are canceled, and not retried until
// the next Mount. If the deadline of ctx passes, they continue.
//
// If all volumes are mounted already, Mount only updates those whose content depends on a field
// of the pod that has changed (see Refresher). Claims are resolved even then.
func (m *Manager) Mount(ctx context.Context, pod *v1.Pod) (Mounts, error) {
	if err := m.begun(ctx); err != nil {
		return nil, err
	}
	// Resolving claims may call an API server, so no lock is held.
	wants, errs := m.resolve(ctx, pod)
	// If the caller canceled the look-up, its failures are not reported.
	if ctx.Err() == nil {
		for _, err := range errs { // no operation will report it
			m.cfg.Events.Event(pod, v1.EventTypeWarning, "FailedMount", "Unable to attach or mount volumes: "+err.Error())
		}
	}
	p, err := m.enter(ctx, pod.UID)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	if m.stopped {
		m.mu.Unlock()
		m.leave(p)
		return nil, ErrStopped
	}
	// Resolved volumes are mounted even if others could not be resolved.
	w := m.want(p, pod, wants, len(errs) == 0)
	m.mu.Unlock()
	// The wait must not hold the gate, since an Unmount has to be able to end it.
	m.leave(p)

	// Set-ups continue after a deadline, since the caller repeats its sync and waits for them
	// again.
	err = m.wait(ctx, w, func(v *volume) {
		if errors.Is(ctx.Err(), context.Canceled) && v.desired && len(v.waiters) == 0 && v.has != present {
			v.abandoned = true
			m.wake(v)
			m.wakeShared(v.device)
		}
	})
	if err != nil {
		errs = append(errs, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	out := Mounts{}
	// Mounted volumes are returned even with an error, so that the caller can show them.
	for _, v := range p.volumes {
		if !v.desired || v.has != present {
			continue
		}
		for _, name := range v.outer {
			out[name] = Mounted{Path: v.result.Path, Block: v.key.block, ReadOnly: v.result.ReadOnly, Group: group(v.spec)}
		}
	}
	if len(errs) > 0 {
		p.failing = true
		m.tellReady(p) // the volumes may have been mounted since wait returned
	}
	return out, errors.Join(errs...)
}

// resolve returns the specs and plugins of the pod's volumes. It continues after an error, to
// report all mistakes.
func (m *Manager) resolve(ctx context.Context, pod *v1.Pod) (wants []want, errs []error) {
	for _, u := range uses(pod) {
		w, err := m.resolveOne(ctx, pod, u)
		if err != nil {
			errs = append(errs, &Error{Volume: u.volume.Name, Err: err})
			continue
		}
		wants = append(wants, w)
	}
	return wants, errs
}

// Check returns an error for each volume of the pod that could not be mounted now, as far as that is
// known without a change: its claim and persistent volume, its plugin, and what a [Checker] says.
func (m *Manager) Check(ctx context.Context, pod *v1.Pod) (errs []*Error) {
	for _, u := range uses(pod) {
		w, err := m.resolveOne(ctx, pod, u)
		if c, ok := w.plugin.(Checker); ok && err == nil {
			err = c.Check(ctx, w.spec)
		}
		if err != nil {
			errs = append(errs, &Error{Volume: u.volume.Name, Err: err})
		}
	}
	return errs
}

// resolveOne returns the spec, the plugin and the device of one volume. It may call Claims. It
// changes nothing.
func (m *Manager) resolveOne(ctx context.Context, pod *v1.Pod, u use) (want, error) {
	w := want{use: u, spec: &Spec{Volume: u.volume}}
	if u.volume.PersistentVolumeClaim != nil || u.volume.Ephemeral != nil {
		if m.cfg.Claims == nil {
			return w, fmt.Errorf("%s volumes need an API server, and this agent has none", sourceName(w.spec))
		}
		spec, err := m.cfg.Claims.Resolve(ctx, pod, u.volume)
		if err != nil {
			return w, err
		}
		w.spec = spec
	}
	// Checked after the claim is resolved, since only the persistent volume says whether it is a
	// block device.
	if err := u.check(w.spec); err != nil {
		return w, err
	}
	// The name becomes a directory below the pod's. The API server validates names, but a
	// manifest file passes no API server.
	name := w.spec.Name()
	if !plain(name) {
		return w, fmt.Errorf("volume name %q cannot be the name of a directory", name)
	}
	for _, p := range m.cfg.Plugins {
		if p.Supports(w.spec) {
			w.plugin = p
			break
		}
	}
	if w.plugin == nil {
		return w, unsupported(w.spec)
	}
	// The device has to be known before the set-up starts, since it decides which operations
	// exclude each other.
	if dp, ok := w.plugin.(DevicePlugin); ok {
		arg := &Volume{Spec: w.spec, Pod: pod, UID: pod.UID, Name: name, Warn: func(string, string) {}}
		arg.Path, arg.StateDir = m.paths(pod.UID, w.plugin.Name(), name, w.spec.Block())
		dev, err := dp.Device(arg)
		if err != nil {
			return w, err
		}
		w.device = dev
	}
	return w, nil
}

// want records which volumes the pod wants, wakes them, and returns a waiter for them. sure reports
// that all volumes of the pod were resolved: then volumes that are not in wants are torn down.
// Without sure none is torn down, since it may be a volume that could not be resolved. m.mu and the
// pod's gate are held.
func (m *Manager) want(p *pod, object *v1.Pod, wants []want, sure bool) *waiter {
	p.wanted, p.told, p.sure, p.failing = true, true, sure, false
	now := time.Now()
	w := newWaiter()
	// Two volumes of a pod may name the same claim. They are one volume with two names.
	named := map[*volume][]string{}
	for _, want := range wants {
		k := volumeKey{want.plugin.Name(), want.spec.Name(), want.spec.Block()}
		v := p.volumes[k]
		if v == nil {
			v = &volume{m: m, key: k, pod: p, plugin: want.plugin, since: now}
			p.volumes[k] = v
		}
		// An Unmount that waits for this volume gets an error.
		if !v.desired {
			v.settle(&Error{Volume: v.shown(), Err: ErrWanted})
			v.since = now
		}
		named[v] = append(named[v], want.use.volume.Name)
		v.desired, v.abandoned = true, false
		v.spec, v.object, v.below = want.spec, object, want.use.below
		if r, ok := v.plugin.(Refresher); ok {
			m.setRefs(v, r.Sources(v.spec, object))
			// An unchanged object cannot make the content stale, so a sync without changes costs
			// one comparison of pointers.
			if v.made != nil && v.made != object && r.Stale(v.spec, v.made, object) {
				v.stale = true
				// The change of the pod may have fixed the failure.
				v.fails.retryNow()
			}
		}
		if want.device.Name != "" {
			m.setDevice(v, m.deviceOf(want.plugin.(DevicePlugin), want.device))
		} else {
			m.setDevice(v, nil)
		}
	}
	// All volumes are added to the waiter before any is woken.
	for _, v := range p.volumes {
		names, wanted := named[v]
		if wanted {
			v.outer = names
			w.add(v)
		} else if sure {
			v.desired = false
		}
	}
	for _, v := range p.volumes {
		m.wake(v)
		if _, ours := w.left[v]; ours {
			// A volume that is mounted, hung or in back-off needs no wait. During a back-off, the
			// caller gets the last error; the back-off is not shortened.
			if over, err := v.outcome(now); over {
				w.drop(v, err)
			}
		}
	}
	w.ready()
	return w
}

// outcome reports whether a Mount need not wait for the volume, and its result. The caller holds
// m.mu. It must be called right after wake, which may have started an operation.
func (v *volume) outcome(now time.Time) (over bool, err error) {
	d := v.device
	switch {
	case v.has == present:
		return true, nil
	case v.run != nil && v.run.overdue:
		return true, &Error{Volume: v.shown(), Err: ErrHung}
	case v.run == nil && v.fails.op == opSetUp && v.fails.left(now) > 0:
		return true, v.failure(&v.fails)
	// The volume waits for a slot, or its operation is running.
	case d == nil || d.has == present:
		return false, nil
	case d.run != nil && d.run.overdue:
		return true, &Error{Volume: v.shown(), Err: ErrHung}
	case d.run == nil && d.fails.op == opMountDevice && d.fails.left(now) > 0:
		return true, v.failure(&d.fails)
	}
	return false, nil
}

// tellReady calls Config.Ready if a Mount of the pod has failed before and all its
// volumes are mounted now. m.mu is held; Ready runs without it, on a goroutine that
// Run waits for.
func (m *Manager) tellReady(p *pod) {
	if !p.failing || !p.wanted || !p.sure || m.stopped {
		return
	}
	for _, v := range p.volumes {
		if v.desired && v.has != present {
			return
		}
	}
	p.failing = false
	m.wg.Go(func() { m.cfg.Ready(p.uid) })
}

// Changed reports that an object was changed, created or deleted. Volumes that contain the object
// are updated, and a volume that failed without it is retried at once. Changed does not wait for
// operations. For an object that no volume contains, it costs one look-up in a map.
func (m *Manager) Changed(ref Ref) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for v := range m.refs[ref] {
		// An absent volume has no old content. A volume that is being set up may have read the
		// object before the change.
		if v.has != absent || v.run != nil {
			v.stale = true
		}
		v.fails.retryNow()
		if v.device != nil {
			v.device.fails.retryNow()
		}
		m.wake(v)
	}
}
