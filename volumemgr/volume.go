package volumemgr

import (
	"cmp"
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/diskusage"
)

// The records of pods, volumes, devices and operations, and the views of them for decide. Records
// are not stored on disk; after a restart they are created from directories (reconstruct.go).

// volumeKey identifies a volume within its pod. A persistent volume that is used both as a file
// system and as a block device has two records.
type volumeKey struct {
	// name is Spec.Name, not the name in the pod's spec, of which a volume may have several.
	plugin, name string
	block        bool
}

// pod is the record of the volumes of one pod. Manager.mu guards it.
type pod struct {
	uid     types.UID
	wanted  bool // Mount was called, and Unmount not since
	told    bool // Mount or Unmount was called, or Sweep did not list the pod: undesired volumes may be torn down
	sure    bool // all volumes of the last Mount were resolved; otherwise each of volumes may be wanted
	failing bool // the last Mount failed: call Config.Ready after a success
	volumes map[volumeKey]*volume
	gate    chan struct{} // has one token; its holder may change the pod's files outside of volumes
	uses    int           // number of callers between enter and leave
}

// volume is one volume of one pod. Manager.mu guards it.
type volume struct {
	key    volumeKey
	m      *Manager
	pod    *pod
	plugin Plugin
	outer  []string // the volume's names in the spec
	spec   *Spec
	// spec and object are nil if only a directory is known. Their objects are shared with the
	// caller of Mount and never modified.
	object *v1.Pod // the newest version of the pod
	made   *v1.Pod // the object at the start of the last set-up
	// below has the meaning of Volume.Below.
	below []string

	// desired means that the last call for the pod was a Mount with this volume. abandoned means
	// that the caller of that Mount gave up: no set-up starts before the next Mount.
	desired   bool
	abandoned bool
	has       presence
	found     bool // an earlier process left the volume
	// stale means that the content has to be updated. If it becomes true during a set-up, another
	// set-up follows.
	stale bool
	// result is the result of the last successful SetUp.
	result  Result
	expires time.Time // expiry of the content; zero if it does not expire

	// device is the volume's shared device. It is nil if the volume has none. refs are the
	// objects whose change wakes this volume.
	device *device
	lost   bool // the volume has a device, but it is not known which one
	refs   []Ref

	// run is the running operation. It is nil if no operation is running. fails are the
	// consecutive failures of the last operation.
	run   *running
	fails failures
	since time.Time // start of the state that Why shows
	// timer wakes the volume after a back-off or an expiry. It is nil if the volume waits for
	// neither.
	timer   *time.Timer
	waiters map[*waiter]struct{}
	// usage, survey, due and measuring belong to Stats.
	usage  Usage             // usage by the last walk
	survey *diskusage.Survey // used by one walk at a time; nil before the first
	due    time.Time         // time of the next walk

	// measuring reports that a goroutine of Stats, which may hang, is measuring the volume.
	measuring bool
}

// device is the record of a device that volumes of several pods share. Manager.mu guards it. It
// exists while it has users or may be mounted.
type device struct {
	m      *Manager
	plugin DevicePlugin
	id     Device
	has    presence
	found  bool
	// users are all volumes of the device, desired or not.
	users map[*volume]struct{}
	run   *running
	fails failures
	timer *time.Timer
}

// running is a running operation. Manager.mu guards it. The operation's goroutine accesses it
// only after the plugin's call has returned.
type running struct {
	op       op
	cancel   context.CancelFunc
	canceled bool // the manager canceled the operation, since no pod wants the volume
	overdue  bool // the operation has not returned in time
	started  time.Time
	late     *time.Timer // sets overdue
}

// slowAfter is the time after which an operation releases its slot, so that a hung operation
// does not block others.
const slowAfter = time.Second

// waker is a volume or a device that waits for a slot. turn is called when a slot may be free; it
// starts the next operation if one is still needed.
type waker interface{ turn() }

func (v *volume) turn() { v.m.wake(v) }
func (d *device) turn() { d.m.wakeDevice(d) }

// is returns the kind of the operation. It returns opNone if r is nil.
func (r *running) is() op {
	if r == nil {
		return opNone
	}
	return r.op
}

// stopped reports whether the manager has canceled the operation, which may still be running.
func (r *running) stopped() bool { return r != nil && r.canceled }

// shared returns the volume name for operations on the volume: operations with equal names
// exclude each other.
func (v *volume) shared() string {
	if v.device != nil {
		return v.device.key()
	}
	return v.key.plugin + "/" + string(v.pod.uid) + "-" + v.key.name
}

// opKey returns the key of an operation on the volume. If the volume has a device, a set-up
// excludes operations for all other pods on that device, as in the kubelet. Tear-downs for
// different pods run in parallel.
func (v *volume) opKey(o op) key {
	k := key{volume: v.shared()}
	if o == opTearDown || v.device == nil {
		k.pod = string(v.pod.uid)
	}
	return k
}

// key returns the device's key in Manager.devices. It includes the plugin, since a device's name
// is unique only within its plugin.
func (d *device) key() string { return d.plugin.Name() + "/" + d.id.Name }

// blocked reports whether a running operation of another volume excludes an operation with key k.
// Its cost grows with the number of volumes on the device, which are few.
func (v *volume) blocked(k key) bool {
	d := v.device
	if d == nil {
		return false
	}
	// An operation on the device itself has no pod, so it excludes all.
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

// view returns the input of decide. The caller holds m.mu. kept is true before the first Mount,
// Unmount or Sweep for the pod, and while a volume of the pod could not be resolved, since it may
// be this one.
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

// view returns the input of decideDevice. The caller holds m.mu. allKnown means that all volumes
// that may use the device have records.
func (d *device) view(now time.Time, allKnown bool) deviceView {
	out := deviceView{
		kept: d.found && !allKnown, has: d.has, running: d.run.is(), canceled: d.run.stopped(),
		failed: d.fails.op, wait: d.fails.left(now),
	}
	for v := range d.users {
		// An abandoned set-up does not need the device, but a mounted volume does.
		out.desired = out.desired || v.desired && (v.has == present || !v.abandoned)
		out.used = out.used || v.has != absent
		out.conflict = out.conflict || v.run != nil
	}
	return out
}

// label returns the plugin name of the volume for metrics.
func (v *volume) label() string {
	var d Device
	if v.device != nil {
		d = v.device.id
	}
	return label(v.plugin, v.spec, d)
}

// label returns the plugin name of a volume, from its spec or its device. It distinguishes the
// volumes of different CSI drivers.
func label(p Plugin, spec *Spec, d Device) string {
	if l, ok := p.(Labeler); ok {
		return cmp.Or(l.Label(spec, d), p.Name())
	}
	return p.Name()
}

// setPresence stores the state of the mount, and the time since when it has this state. If the
// state is the same as before, the time does not change.
func (v *volume) setPresence(p presence, now time.Time) {
	if v.has != p {
		v.has, v.since = p, now
	}
}

// arg returns the Volume to pass to a plugin. The caller holds m.mu. The operation owns the result.
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
	// By the time Warn is called, the record may have a newer object or be gone.
	object := v.object
	a.Warn = func(reason, message string) {
		if object != nil {
			m.cfg.Events.Event(object, v1.EventTypeWarning, reason, message)
		}
	}
	return a
}
