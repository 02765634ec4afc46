package volumemgr

import (
	"errors"
	"time"

	"github.com/nodewright/nodewright/internal/retry"
)

// The decisions of the manager, as pure functions without clock, lock or disk, so that
// tests can go through every case. Their input, the views, is made from the records in
// volume.go; wake in manager.go executes the actions.

// presence says whether a volume or a device is mounted.
type presence int

const (
	// absent: nothing is mounted; the record of an unwanted volume can be removed.
	absent    presence = iota
	uncertain          // it may be there
	// present: an operation of this process has succeeded, and nothing since has
	// taken the mount down.
	present
)

// op is an operation of a plugin. The values index the names in metric.
type op int

const (
	opNone op = iota
	opSetUp
	opTearDown
	opMountDevice
	opUnmountDevice
)

// class is the result of an operation that mounts something. The classes are those
// of the kubelet's operation executor, which distinguishes UncertainProgress and
// TransientOperationFailure.
type class int

const (
	succeeded     class = iota
	maybe               // ErrUncertain: it may have worked
	unchanged           // ErrTransient
	failedForSure       // any other error: nothing is mounted
)

// classify returns the class of an operation's error. An operation that exceeded
// its deadline is maybe. Success comes first: an operation that returned nil has
// worked, even if its context has ended.
func classify(err error, ended bool) class {
	switch {
	case err == nil:
		return succeeded
	case ended, errors.Is(err, ErrUncertain):
		return maybe
	case errors.Is(err, ErrTransient):
		return unchanged
	default:
		return failedForSure
	}
}

// after returns the presence of a mount after an operation that mounts it. A failed
// remount of a mounted volume does not change its presence, and a volume left by an
// earlier process is not dropped.
func after(was presence, c class, found bool) presence {
	switch {
	case c == succeeded:
		return present
	// A failed refresh never makes a volume of running containers one to be torn
	// down.
	case was == present:
		return present
	// From here on a TearDown is needed, also because the mount may appear later
	// (if a server answers late).
	case c == maybe:
		return uncertain
	// A volume that an earlier process left may have been in use long before this
	// attempt: the failure of the attempt says nothing about the old mount.
	case c == failedForSure && !found:
		return absent
	default:
		return was
	}
}

// key identifies the object of an operation: a volume (or its device, if it has one) for one
// pod, or for all pods if pod is "".
type key struct{ volume, pod string }

// conflicts reports whether operations on a and b exclude each other. An empty volume name
// conflicts with nothing.
func conflicts(a, b key) bool {
	if a.volume == "" || b.volume == "" || a.volume != b.volume {
		return false
	}
	return a.pod == "" || b.pod == "" || a.pod == b.pod
}

// Back-off after failures, the kubelet's: 500 ms, doubled each time, at most
// 2 min 2 s.
const (
	backoffFirst = 500 * time.Millisecond
	// The kubelet waits 2 min 3 s for volumes: a second more than the longest
	// back-off, so that a retry falls within each wait.
	backoffMax = 2*time.Minute + 2*time.Second
)

// delay returns the back-off after a number of failures in a row.
func delay(failures int) time.Duration {
	return retry.Backoff{First: backoffFirst, Max: backoffMax}.After(failures)
}

// view is everything that decides the next action for a volume.
type view struct {
	desired   bool // a pod wants it
	kept      bool // it is not known yet whether a pod wants it
	abandoned bool // the caller of Mount was canceled; the next Mount clears it
	has       presence
	stale     bool // its content has to be made again
	running   op
	canceled  bool // the running operation was canceled
	device    bool // it has a device...
	deviceHas presence
	conflict  bool          // a running operation excludes a set-up of this volume
	busy      bool          // a running operation excludes a tear-down of this volume
	failed    op            // the last operation that failed
	wait      time.Duration // remaining back-off after it
}

// action is the next action for a volume.
type action struct {
	do   verb
	wait time.Duration // for wait
}

type verb int

const (
	nothing    verb = iota
	setUp           // start a SetUp
	tearDown        // start a TearDown
	needDevice      // mount the device first
	cancel          // cancel the running operation
	wait            // decide again after the wait
	forget          // remove the record
)

// decide returns the next action for a volume. It is called again when a field of
// its view changes. The order of the cases matters: the running operation first,
// then missing knowledge, then the pod's wish.
func decide(v view) action {
	switch {
	// A set-up of an unwanted volume is canceled, once. An abandoned refresh of a
	// mounted volume continues: containers use the volume.
	case v.running == opSetUp && (!v.desired || v.abandoned && v.has != present) && !v.canceled:
		return action{do: cancel}
	// One operation at a time; its end calls decide again. Nothing is torn down
	// before it is known whether the pod still has the volume.
	case v.running != opNone || v.kept:
		return action{}
	case v.desired:
		return decideDesired(v)
	case v.has == absent:
		return action{do: forget}
	// The end of the running operation wakes all users of the device.
	case v.busy:
		return action{}
	// Back-off counts for the operation that failed only: a tear-down never waits
	// for the back-off of a set-up.
	case v.failed == opTearDown && v.wait > 0:
		return action{do: wait, wait: v.wait}
	default:
		return action{do: tearDown}
	}
}

// decideDesired decides for a volume that a pod wants and that has no running
// operation.
func decideDesired(v view) action {
	switch {
	case v.has == present && !v.stale:
		return action{}
	// The caller of Mount was canceled. The next Mount clears the flag; retries
	// before it could mount volumes of a pod that is gone.
	case v.has != present && v.abandoned:
		return action{}
	// The end of MountDevice wakes all users of the device, this volume among them.
	case v.device && v.deviceHas != present:
		return action{do: needDevice}
	case v.conflict:
		return action{}
	case v.failed == opSetUp && v.wait > 0:
		return action{do: wait, wait: v.wait}
	default:
		return action{do: setUp}
	}
}

// deviceView is everything that decides the next action for a device.
type deviceView struct {
	desired  bool // a wanted volume needs it
	used     bool // a volume of it is, or may be, set up
	kept     bool // left by an earlier process, and not all pods are known
	has      presence
	running  op
	canceled bool
	conflict bool // a running operation of one of its volumes excludes any
	failed   op
	wait     time.Duration
}

// deviceAction is the next action for a device. The zero value is none.
type deviceAction struct {
	do   op // opNone: nothing
	stop bool
	wait time.Duration
	gone bool // the record can be removed
}

// decideDevice returns the next action for a device, in the order of decide's
// cases. A device is mounted before the first of its volumes, and unmounted after
// the last.
func decideDevice(v deviceView) deviceAction {
	switch {
	// The last pod was removed while its device was being mounted.
	case v.running == opMountDevice && !v.desired && !v.canceled:
		return deviceAction{stop: true}
	case v.running != opNone, v.conflict:
		return deviceAction{}
	// At rest: mounted and wanted, or not wanted but under a volume whose tear-down
	// calls decide again.
	case v.desired && v.has == present, !v.desired && v.used:
		return deviceAction{}
	case v.desired && v.failed == opMountDevice && v.wait > 0:
		return deviceAction{wait: v.wait}
	case v.desired:
		return deviceAction{do: opMountDevice}
	case v.has == absent:
		return deviceAction{gone: true}
	// Without all pods, a device that an earlier process left may be under a
	// running container.
	case v.kept:
		return deviceAction{}
	case v.failed == opUnmountDevice && v.wait > 0:
		return deviceAction{wait: v.wait}
	default:
		return deviceAction{do: opUnmountDevice}
	}
}
