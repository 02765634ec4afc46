package volumemgr

import (
	"errors"
	"time"

	"github.com/nodewright/nodewright/internal/retry"
)

// The decisions of the manager, as pure functions of small views: neither a clock,
// nor a lock, nor the disk is in this file, so that its tests can go through every
// case. The records behind the views are in volume.go, the actions in manager.go.

// presence is what is known of a mount, be it of a volume or of a device.
type presence int

const (
	// absent: nothing is mounted, and a record that nobody wants can go.
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

// class is how an operation that makes something ended. The classes are those of
// the kubelet's operation executor, which sorts errors by UncertainProgress and
// TransientOperationFailure.
type class int

const (
	succeeded     class = iota
	maybe               // ErrUncertain: it may have worked
	unchanged           // ErrTransient
	failedForSure       // nothing was left
)

// classify sorts the error of an operation. One that ran out of time may have done
// anything. Success comes first: an operation that returned nil has worked, even if
// its context ended meanwhile.
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

// after is what is known of a mount after an operation that makes it. What is
// mounted is never thought less of because it could not be mounted again, and
// what an earlier process left is not forgotten.
func after(was presence, c class, found bool) presence {
	switch {
	case c == succeeded:
		return present
	// A failed refresh never makes a volume of running containers one to be torn
	// down.
	case was == present:
		return present
	// From here on a TearDown is owed, also if the mount only comes to be later (a
	// server that answers late).
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

// key describes what an operation touches: a volume (a device, if it has one) for
// one pod, or for all if pod is "".
type key struct{ volume, pod string }

// conflicts reports whether operations on a and b exclude each other. An empty name
// is the key of no volume: it excludes nothing.
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

// delay is how long to wait after so many failures in a row.
func delay(failures int) time.Duration {
	return retry.Backoff{First: backoffFirst, Max: backoffMax}.After(failures)
}

// view is all that decides what happens to a volume next.
type view struct {
	desired   bool // a pod wants it
	kept      bool // nobody has said yet whether a pod wants it
	abandoned bool // who wanted it gave up; it waits for another word
	has       presence
	stale     bool // its content has to be made again
	running   op
	canceled  bool // the running operation was told to stop
	device    bool // it comes from a device...
	deviceHas presence
	conflict  bool          // a running operation excludes a set-up of this volume
	busy      bool          // and one excludes its tear-down
	failed    op            // what failed last
	wait      time.Duration // of the back-off after it, what is left
}

// action is what to do next.
type action struct {
	do   verb
	wait time.Duration // for wait
}

type verb int

const (
	nothing    verb = iota
	setUp           // start a SetUp
	tearDown        // start a TearDown
	needDevice      // the device comes first
	cancel          // stop the running operation
	wait            // and ask again then
	forget          // the record can go
)

// decide returns what happens to a volume next. When something of its view has changed
// it is asked again. The order of the cases matters: the running operation first,
// then the lack of knowledge, then the wish of the pod.
func decide(v view) action {
	switch {
	// A set-up that nobody wants is told to stop, once. An abandoned refresh of a
	// mounted volume goes on: containers use the volume.
	case v.running == opSetUp && (!v.desired || v.abandoned && v.has != present) && !v.canceled:
		return action{do: cancel}
	// One operation at a time; its end asks again. And nothing is taken down before
	// it is known whether the pod still has the volume.
	case v.running != opNone || v.kept:
		return action{}
	case v.desired:
		return decideDesired(v)
	case v.has == absent:
		return action{do: forget}
	// Whoever runs now wakes all users of the device at its end.
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

// decideDesired is the part of decide for a volume that a pod wants and that no
// operation runs on.
func decideDesired(v view) action {
	switch {
	case v.has == present && !v.stale:
		return action{}
	// The caller of Mount was canceled. The next Mount clears the flag; retries
	// before it would mount volumes for a pod that may be gone.
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

// deviceView is all that decides what happens to a device next.
type deviceView struct {
	desired  bool // a volume that a pod wants needs it
	used     bool // a volume of it is, or may be, set up
	kept     bool // an earlier process left it, and not all pods are known
	has      presence
	running  op
	canceled bool
	conflict bool // a running operation of one of its volumes excludes any
	failed   op
	wait     time.Duration
}

// deviceAction is what to do with a device next. The zero value is nothing.
type deviceAction struct {
	do   op // opNone: nothing
	stop bool
	wait time.Duration
	gone bool // the record can go
}

// decideDevice returns what happens to a device next. The cases are in the order of
// decide's. A device goes only after the last of its volumes, and is mounted before
// the first.
func decideDevice(v deviceView) deviceAction {
	switch {
	// The last pod has gone while its device was being mounted.
	case v.running == opMountDevice && !v.desired && !v.canceled:
		return deviceAction{stop: true}
	case v.running != opNone, v.conflict:
		return deviceAction{}
	// At rest: mounted and wanted, or not wanted and still under a volume, whose
	// tear-down asks again.
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
