package volumemgr

import (
	"cmp"
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/diskusage"
)

// Records of pods, volumes, devices and operations, and what decide sees of them.
// Nothing of a record is written to disk: after a restart it is made from
// directories (reconstruct.go).

// volumeKey finds a volume in its pod, and its directory. The same persistent
// volume as a file system and as a block device would be two records.
type volumeKey struct {
	// name is Spec.Name and not the name in the pod's spec, of which a volume may
	// have several.
	plugin, name string
	block        bool
}

// pod is what is known of the volumes of one pod. Manager.mu guards it.
type pod struct {
	uid     types.UID
	wanted  bool // a Mount was called, and no Unmount since
	told    bool // either was called, or a sweep that does not know the pod
	sure    bool // all volumes of the last Mount were found; else some of volumes may be them
	failing bool // a Mount returned with an error: who called it wants to hear of success
	volumes map[volumeKey]*volume
	gate    chan struct{} // holds one token; who has it may change files of the pod beside volumes
	uses    int           // who is about to use this record
}

// volume is one volume of one pod. Manager.mu guards it.
type volume struct {
	key    volumeKey
	m      *Manager
	pod    *pod
	plugin Plugin
	outer  []string // its names in the spec
	spec   *Spec
	// spec and object are nil while a directory is all that is known. What they
	// point to is shared with the caller of Mount and never changed.
	object *v1.Pod // the newest
	made   *v1.Pod // as it was when the content was made
	// below is Volume.Below.
	below []string

	// desired: the last word of the pod was a Mount with this volume. abandoned:
	// its caller was canceled, so that nothing starts until the next.
	desired   bool
	abandoned bool
	has       presence
	found     bool // an earlier process left it
	// stale: the content has to be made again, also if a set-up is under way.
	stale bool
	// result is that of the last SetUp that succeeded.
	result  Result
	expires time.Time // of the content; zero: never

	// device is nil for a volume of the pod alone. refs are the objects whose
	// change wakes this volume.
	device *device
	lost   bool // it has a device, but which is not known
	refs   []Ref

	// run is the operation in flight, nil at rest. fails are those in a row of the
	// last operation that failed.
	run   *running
	fails failures
	since time.Time // of the state that Why shows
	// timer wakes the volume after a back-off or an expiry; nil if neither is due.
	timer   *time.Timer
	waiters map[*waiter]struct{}
	// The next three belong to Stats; survey is handed to one walk at a time
	// (measuring).
	usage  Usage // of the last walk
	survey *diskusage.Survey
	due    time.Time // when it is to be walked again

	// measuring: a goroutine of Stats is at it, which may hang.
	measuring bool
}

// device is what volumes of several pods share. Manager.mu guards it. A record
// exists as long as it has users or may be mounted.
type device struct {
	m      *Manager
	plugin DevicePlugin
	id     Device
	has    presence
	found  bool
	// users are all volumes that come from it, wanted or not.
	users map[*volume]struct{}
	run   *running
	fails failures
	timer *time.Timer
}

// running is an operation in flight. Manager.mu guards it; the goroutine of the
// operation touches it only once that has returned.
type running struct {
	op       op
	cancel   context.CancelFunc
	canceled bool // by the manager: nobody wants it
	overdue  bool // it did not return in time
	started  time.Time
	late     *time.Timer // sets overdue
}

// slowAfter is when an operation gives up its slot, so that what hangs takes
// nothing from others.
const slowAfter = time.Second

// waker waits for a slot: a volume or a device. When its turn comes it decides
// afresh what to do, and may find nothing.
type waker interface{ turn() }

func (v *volume) turn() { v.m.wake(v) }
func (d *device) turn() { d.m.wakeDevice(d) }

// is returns the operation, opNone for nil.
func (r *running) is() op {
	if r == nil {
		return opNone
	}
	return r.op
}

// stopped reports whether the manager has told the operation to stop; it may run on
// for a while.
func (r *running) stopped() bool { return r != nil && r.canceled }

// shared is the name under which operations on the volume exclude each other.
func (v *volume) shared() string {
	if v.device != nil {
		return v.device.key()
	}
	return v.key.plugin + "/" + string(v.pod.uid) + "-" + v.key.name
}

// opKey is what an operation on the volume touches. A set-up from a device excludes
// those of other pods on it, as the kubelet does; tear-downs of different pods run
// side by side.
func (v *volume) opKey(o op) key {
	k := key{volume: v.shared()}
	if o == opTearDown || v.device == nil {
		k.pod = string(v.pod.uid)
	}
	return k
}

// key is the device's place in Manager.devices: a device's name is unique within
// its plugin only.
func (d *device) key() string { return d.plugin.Name() + "/" + d.id.Name }

// blocked reports whether an operation that runs excludes one that touches k. The
// volume's own operation is its own matter. The cost is that of the volumes on one
// device, which are few.
func (v *volume) blocked(k key) bool {
	d := v.device
	if d == nil {
		return false
	}
	// An operation on the device itself is for all pods.
	if d.run != nil && conflicts(k, key{volume: d.key()}) {
		return true
	}
	for u := range d.users {
		if u != v && u.run != nil && conflicts(k, u.opKey(u.run.op)) {
			return true
		}
	}
	return false
}

// view is what decide looks at. Called with m.mu held. kept is true until somebody
// has spoken of the pod, and while the pod has a volume that could not be resolved,
// which may be this one.
func (v *volume) view(now time.Time) view {
	out := view{
		desired: v.desired, kept: !v.desired && (!v.pod.told || v.pod.wanted && !v.pod.sure),
		abandoned: v.abandoned, has: v.has, stale: v.stale,
		running: v.run.is(), canceled: v.run.stopped(),
		failed: v.fails.op, wait: v.fails.left(now),
		conflict: v.blocked(v.opKey(opSetUp)), busy: v.blocked(v.opKey(opTearDown)),
	}
	if v.device != nil {
		out.device, out.deviceHas = true, v.device.has
	}
	return out
}

// view is what decideDevice looks at. Called with m.mu held. allKnown means that no
// pod and no volume is missing that might use a device that was found.
func (d *device) view(now time.Time, allKnown bool) deviceView {
	out := deviceView{
		kept: d.found && !allKnown, has: d.has, running: d.run.is(), canceled: d.run.stopped(),
		failed: d.fails.op, wait: d.fails.left(now),
	}
	for v := range d.users {
		// An abandoned set-up needs no device, but a mounted volume does, whoever
		// waits for it.
		out.desired = out.desired || v.desired && (v.has == present || !v.abandoned)
		out.used = out.used || v.has != absent
		out.conflict = out.conflict || v.run != nil
	}
	return out
}

// label is the name of the volume's plugin in metrics.
func (v *volume) label() string {
	var d Device
	if v.device != nil {
		d = v.device.id
	}
	return label(v.plugin, v.spec, d)
}

// label is the name of the plugin that makes a volume, by whichever of spec and
// device is known. Operations of CSI drivers are told apart by it.
func label(p Plugin, spec *Spec, d Device) string {
	if l, ok := p.(Labeler); ok {
		return cmp.Or(l.Label(spec, d), p.Name())
	}
	return p.Name()
}

// setPresence notes what is known of the mount, and since when. Why shows since
// when; a state that repeats keeps its time.
func (v *volume) setPresence(p presence, now time.Time) {
	if v.has != p {
		v.has, v.since = p, now
	}
}

// arg is the volume as a plugin's operation sees it. It is made under m.mu and is
// the operation's own from then on.
func (m *Manager) arg(v *volume) *Volume {
	a := &Volume{
		Spec: v.spec, Pod: v.object, UID: v.pod.uid, Name: v.key.name,
		Remount: v.has == present, Found: v.found, Below: v.below,
	}
	a.Path, a.StateDir = m.paths(v.pod.uid, v.key.plugin, v.key.name, v.key.block)
	if v.device != nil {
		a.DevicePath = v.device.id.Path
	}
	if p := v.object; p != nil {
		if sc := p.Spec.SecurityContext; sc != nil {
			a.FSGroup, a.FSGroupPolicy = sc.FSGroup, sc.FSGroupChangePolicy
		}
		a.FSUser, a.SizeLimit = commonUser(p), sizeLimit(p, v.spec)
	}
	// Warn may be called when the record has a newer object already, or is gone.
	object := v.object
	a.Warn = func(reason, message string) {
		if object != nil {
			m.cfg.Events.Event(object, v1.EventTypeWarning, reason, message)
		}
	}
	return a
}
