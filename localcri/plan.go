//go:build linux

package localcri

import (
	"cmp"

	"github.com/nodewright/nodewright/localcri/internal/life"
)

// Exit codes and reasons that do not come from a process.
const (
	codeUnknown     = 255 // for a container whose end was not observed
	codeStartFailed = 128

	reasonCompleted   = "Completed"
	reasonError       = "Error"
	reasonOOMKilled   = "OOMKilled"
	reasonMonitorLost = "MonitorLost"
	reasonUnknown     = "Unknown"

	messageRestarted = "the machine restarted"
)

// kept is the state of a container as its monitor reports it.
type kept struct {
	started *life.Began
	ended   *life.Ending
	failed  string // why it could not be started; "" if no failure is known
}

// executed is what the OCI runtime knows about a container.
type executed uint8

const (
	executedNone executed = iota // it does not know the container
	executedCreated
	executedRunning
	executedStopped
)

// foundContainer has everything that the recovery of a container depends on.
type foundContainer struct {
	record containerRecord
	kept   *kept        // nil if there is no monitor, or it does not know the container
	exit   *life.Ending // from the exit record; nil if there is none
	alive  *life.Began  // the container's process, if it is known and running
	state  executed
	logged int64 // time of the last write to its log; 0 if it has none
	// made is the time at which the OCI runtime created the container's process: the time of the
	// file with the PID. It is used if no start time was recorded. If made is 0, the time is
	// unknown.
	made int64
	// rebuilt means that the record was restored from an old copy. The container may have run and
	// ended since that copy was made.
	rebuilt bool
}

// foundPod has everything that the recovery of a sandbox depends on.
type foundPod struct {
	record     sandboxRecord
	monitor    bool // a monitor answered
	containers []foundContainer
}

// repair is what a recovery does with a container besides sending an event to its state machine.
type repair uint8

const (
	nothing   repair = iota
	undoStart        // before the event: remove what a start left, since it blocks the next one
	adopt            // after the event: make a monitor take over the running container
)

// containerAction is what a recovery does with a container.
type containerAction struct {
	id     string
	repair repair
	event  life.Event // nil: the record is up to date
}

// podAction is what a recovery does with a sandbox, and with its containers, in order.
type podAction struct {
	event      life.Event // nil: nothing has to be finished
	successor  bool       // start a new monitor
	containers []containerAction
}

// plan decides what to do with a pod that was found at the start. now is the current time in
// ns since 1970, and boot is the ID of the current boot.
func plan(f foundPod, boot string, now int64) podAction {
	sameBoot := f.record.Boot == boot
	var out podAction
	for _, c := range f.containers {
		a := planContainer(c, f.monitor, sameBoot && c.record.Boot == boot, now)
		out.containers = append(out.containers, a)
		out.successor = out.successor || a.repair == adopt
	}
	switch f.record.State {
	case life.Intent, life.Stopping, life.Removing:
		out.event = life.Resumed{}
	case life.Ready:
		if !sameBoot { // its network has to be released
			out.event = life.StopAsked{}
		}
	}
	out.successor = out.successor && !f.monitor
	return out
}

func planContainer(c foundContainer, monitor, sameBoot bool, now int64) containerAction {
	r := c.record
	a := containerAction{id: r.ID}
	ended := func(e life.Ending) {
		e.Finished = max(e.Finished, e.Started)
		a.event = life.Ended{Ending: e}
	}
	switch {
	case r.State == life.Removing:
		a.event = life.Resumed{}
		return a
	case r.State == life.Exited:
		return a
	case !sameBoot:
		ended(life.Ending{
			Started: r.Started, Finished: max(r.Created, r.Started, c.logged),
			Code: codeUnknown, Reason: reasonUnknown, Message: messageRestarted,
		})
		return a
	}
	var k kept
	if c.kept != nil {
		k = *c.kept
	}
	begun := r.Started
	if k.started != nil {
		begun = cmp.Or(begun, k.started.At)
	}
	switch {
	case k.ended != nil:
		e := *k.ended
		e.Started = cmp.Or(e.Started, begun)
		ended(e)
	case k.failed != "":
		ended(startFailed(k.failed, now))
	case k.started != nil: // its monitor will report its end
		a.event = *k.started
	case c.kept != nil: // its monitor is about to start it
		a.event = life.Rejoined{}
	case r.State == life.Created && (monitor || c.exit == nil && c.state == executedNone):
	case c.exit != nil:
		e := *c.exit
		e.Started = cmp.Or(e.Started, begun, min(c.made, e.Finished))
		ended(e)
	case r.State == life.Starting && monitor && !c.rebuilt: // no monitor was told to start it
		a.repair, a.event = undoStart, life.Reset{}
	// From here on, a created container is one whose start was not recorded yet.
	case c.alive != nil && (r.State == life.Running || c.state == executedRunning):
		began := *c.alive
		began.At = cmp.Or(begun, began.At)
		a.repair, a.event = adopt, began
	case r.State != life.Running && c.state == executedCreated: // what the OCI runtime has of it is killed
		ended(startFailed("the agent and the monitor ended while it was started", now))
	case r.State == life.Starting && c.state == executedNone && c.rebuilt:
		ended(life.Ending{Finished: now, Code: codeUnknown, Reason: reasonUnknown, Message: "its record was damaged"})
	case r.State == life.Starting && c.state == executedNone:
		a.repair, a.event = undoStart, life.Reset{}
	default:
		ended(life.Ending{
			Started: cmp.Or(begun, min(c.made, now)), Finished: max(now, begun), Code: codeUnknown, Reason: reasonMonitorLost,
			Message: "it ended while nobody watched",
		})
	}
	return a
}

func startFailed(message string, now int64) life.Ending {
	return life.Ending{Finished: now, Code: codeStartFailed, Reason: life.ReasonStartError, Message: message}
}

// reasonOf returns the CRI's reason for the end of a process with an exit code. reported is the
// reason that the monitor gave, or "".
func reasonOf(code int32, oom bool, reported string) string {
	switch {
	case oom:
		return reasonOOMKilled
	case reported != "":
		return reported
	case code == 0:
		return reasonCompleted
	}
	return reasonError
}
