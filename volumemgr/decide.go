package volumemgr

import (
	"errors"
	"time"

	"github.com/nodewright/nodewright/internal/retry"
)

// The decisions of the manager. They are functions without side effects, clock, lock or disk, so
// that tests can cover every case. Their inputs, the views, are made from the records in
// volume.go; wake in manager.go executes the resulting actions.

// presence says whether a volume or a device is mounted.
type presence int

const (
	// absent means that nothing is mounted. The record of an unwanted volume can be removed.
	absent    presence = iota
	uncertain          // the volume or device may be mounted
	// present means that an operation of this process has mounted the volume or device, and no later
	// operation has unmounted it.
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

// class is the result of an operation that mounts something. The kubelet's operation executor has
// the same classes (UncertainProgress, TransientOperationFailure).
type class int

const (
	succeeded     class = iota
	maybe               // ErrUncertain: the volume may be mounted
	unchanged           // ErrTransient: the mount is as before the operation
	failedForSure       // any other error: nothing is mounted
)

// classify returns the class of an operation's error. ended reports that the operation's context
// has ended: a failure then has the class maybe. An operation that returned nil has succeeded, even
// if its context has ended.
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

// after returns the presence of a mount after an operation that mounts it. A mounted volume stays
// present if a remount fails. found means that an earlier process left the volume; such a volume
// never becomes absent by a failure.
func after(was presence, c class, found bool) presence {
	switch {
	case c == succeeded:
		return present
	// If a refresh fails, the volume must not be torn down: containers use it.
	case was == present:
		return present
	// The volume needs a TearDown from now on, also because a slow server may complete the mount
	// later.
	case c == maybe:
		return uncertain
	// A volume that an earlier process left may be mounted since long before this attempt, so the
	// attempt's failure says nothing about that mount.
	case c == failedForSure && !found:
		return absent
	default:
		return was
	}
}

// key identifies the object of an operation: a volume (or its device, if it has one) for one pod.
// If pod is "", the operation is for all pods.
type key struct{ volume, pod string }

// conflicts reports whether operations on a and b exclude each other. An empty volume name
// conflicts with nothing.
func conflicts(a, b key) bool {
	if a.volume == "" || b.volume == "" || a.volume != b.volume {
		return false
	}
	return a.pod == "" || b.pod == "" || a.pod == b.pod
}

// Back-off after failures, as in the kubelet: 500 ms, doubled each time, at most 2 min 2 s.
const (
	backoffFirst = 500 * time.Millisecond
	// The kubelet waits 2 min 3 s for volumes: one second more than the longest back-off, so that
	// each wait includes a retry.
	backoffMax = 2*time.Minute + 2*time.Second
)

// delay returns the back-off after a number of consecutive failures.
func delay(failures int) time.Duration {
	return retry.Backoff{First: backoffFirst, Max: backoffMax}.After(failures)
}

// view has everything that decides the next action for a volume.
type view struct {
	desired   bool // a pod wants the volume
	kept      bool // true until it is known whether a pod wants the volume
	abandoned bool // the caller of Mount gave up; the next Mount clears it
	has       presence
	stale     bool // the volume's content has to be updated
	running   op
	canceled  bool // the running operation was canceled
	device    bool // the volume has a device
	deviceHas presence
	conflict  bool          // a running operation excludes a set-up of this volume
	busy      bool          // a running operation excludes a tear-down of this volume
	failed    op            // the last operation that failed
	wait      time.Duration // remaining back-off after that failure
}

// action is the next action for a volume.
type action struct {
	do   verb
	wait time.Duration // how long to wait, for the action wait
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

// decide returns the next action for a volume. It is called again when a field of its view
// changes. The cases are in this order: first the running operation, then whether it is known
// that a pod wants the volume, and last what the pod wants.
func decide(v view) action {
	switch {
	// The set-up of a volume that is no longer wanted is canceled, once. A refresh of a mounted
	// volume continues even if it is abandoned, since containers use the volume.
	case v.running == opSetUp && (!v.desired || v.abandoned && v.has != present) && !v.canceled:
		return action{do: cancel}
	// A volume has one operation at a time, whose end calls decide again. Nothing is torn down
	// while it is unknown whether the pod still has the volume.
	case v.running != opNone || v.kept:
		return action{}
	case v.desired:
		return decideDesired(v)
	case v.has == absent:
		return action{do: forget}
	// The end of the other operation wakes all users of the device.
	case v.busy:
		return action{}
	// Only the operation that failed has to wait: a tear-down does not wait for the back-off of a
	// set-up.
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
	// The caller of Mount gave up. Retrying before the next Mount, which clears the flag, could
	// mount volumes of a pod that no longer exists.
	case v.has != present && v.abandoned:
		return action{}
	// When MountDevice ends, it wakes all users of the device, including this volume.
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

// deviceView has everything that decides the next action for a device.
type deviceView struct {
	desired  bool // a wanted volume needs the device
	used     bool // a volume of the device is, or may be, set up
	kept     bool // an earlier process left the device, and not all pods are known
	has      presence
	running  op
	canceled bool
	conflict bool // a running operation of one of its volumes excludes operations on the device
	failed   op
	wait     time.Duration
}

// deviceAction is the next action for a device. The zero value means nothing to do.
type deviceAction struct {
	do   op // opNone means no operation
	stop bool
	wait time.Duration
	gone bool // the record can be removed
}

// decideDevice returns the next action for a device. Its cases have the order of decide's. A
// device is mounted before the first of its volumes, and unmounted after the last.
func decideDevice(v deviceView) deviceAction {
	switch {
	// The last pod was removed while its device was being mounted.
	case v.running == opMountDevice && !v.desired && !v.canceled:
		return deviceAction{stop: true}
	case v.running != opNone, v.conflict:
		return deviceAction{}
	// Nothing to do: it is mounted and wanted, or it is not wanted but in use by a volume whose
	// tear-down calls decide again.
	case v.desired && v.has == present, !v.desired && v.used:
		return deviceAction{}
	case v.desired && v.failed == opMountDevice && v.wait > 0:
		return deviceAction{wait: v.wait}
	case v.desired:
		return deviceAction{do: opMountDevice}
	case v.has == absent:
		return deviceAction{gone: true}
	// While not all pods are known, a running container may use a device that an earlier process
	// left.
	case v.kept:
		return deviceAction{}
	case v.failed == opUnmountDevice && v.wait > 0:
		return deviceAction{wait: v.wait}
	default:
		return deviceAction{do: opUnmountDevice}
	}
}
