package volumemgr

import (
	"errors"
	"time"

	"github.com/nodewright/nodewright/internal/retry"
)

// presence is what is known of a mount, be it of a volume or of a device.
type presence int

const (
	absent    presence = iota
	uncertain          // it may be there
	present
)

// op is an operation of a plugin.
type op int

const (
	opNone op = iota
	opSetUp
	opTearDown
	opMountDevice
	opUnmountDevice
)

// class is how an operation that makes something ended.
type class int

const (
	succeeded     class = iota
	maybe               // ErrUncertain: it may have worked
	unchanged           // ErrTransient
	failedForSure       // nothing was left
)

// classify sorts the error of an operation. One that ran out of time may have
// done anything.
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
	case was == present:
		return present
	case c == maybe:
		return uncertain
	case c == failedForSure && !found:
		return absent
	default:
		return was
	}
}

// key says what an operation touches: a volume (a device, if it has one) for
// one pod, or for all if pod is "".
type key struct{ volume, pod string }

// conflicts reports whether operations on a and b exclude each other.
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
	backoffMax   = 2*time.Minute + 2*time.Second
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

// decide says what happens to a volume next. When something of its view has
// changed it is asked again.
func decide(v view) action {
	switch {
	case v.running == opSetUp && (!v.desired || v.abandoned && v.has != present) && !v.canceled:
		return action{do: cancel}
	case v.running != opNone || v.kept:
		return action{}
	case v.desired:
		return decideDesired(v)
	case v.has == absent:
		return action{do: forget}
	case v.busy:
		return action{}
	case v.failed == opTearDown && v.wait > 0:
		return action{do: wait, wait: v.wait}
	default:
		return action{do: tearDown}
	}
}

func decideDesired(v view) action {
	switch {
	case v.has == present && !v.stale:
		return action{}
	case v.has != present && v.abandoned:
		return action{}
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

// deviceVerb is what to do with a device next.
type deviceAction struct {
	do   op // opNone: nothing
	stop bool
	wait time.Duration
	gone bool // the record can go
}

// decideDevice says what happens to a device next.
func decideDevice(v deviceView) deviceAction {
	switch {
	case v.running == opMountDevice && !v.desired && !v.canceled:
		return deviceAction{stop: true}
	case v.running != opNone, v.conflict:
		return deviceAction{}
	case v.desired && v.has == present, !v.desired && v.used:
		return deviceAction{}
	case v.desired && v.failed == opMountDevice && v.wait > 0:
		return deviceAction{wait: v.wait}
	case v.desired:
		return deviceAction{do: opMountDevice}
	case v.has == absent:
		return deviceAction{gone: true}
	case v.kept:
		return deviceAction{}
	case v.failed == opUnmountDevice && v.wait > 0:
		return deviceAction{wait: v.wait}
	default:
		return deviceAction{do: opUnmountDevice}
	}
}
