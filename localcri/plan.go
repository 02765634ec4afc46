//go:build linux

package localcri

import (
	"cmp"

	"github.com/nodewright/nodewright/localcri/internal/life"
)

// Exit codes and reasons that no process gave.
const (
	codeUnknown     = 255 // of a container whose end nobody saw
	codeStartFailed = 128

	reasonCompleted   = "Completed"
	reasonError       = "Error"
	reasonOOMKilled   = "OOMKilled"
	reasonMonitorLost = "MonitorLost"
	reasonUnknown     = "Unknown"

	messageRestarted = "the machine restarted"
)

// kept is what a monitor says of a container.
type kept struct {
	started *life.Began
	ended   *life.Ending
	failed  string // why it could not be started; "" if nothing is known to have failed
}

// executed is what the executor says of a container.
type executed uint8

const (
	executedNone executed = iota // it does not know it
	executedCreated
	executedRunning
	executedStopped
)

// foundContainer is all that the recovery of a container depends on.
type foundContainer struct {
	record containerRecord
	kept   *kept        // nil: there is no monitor, or it never heard of it
	exit   *life.Ending // from the exit record; nil if there is none
	alive  *life.Began  // its process, if that is known and runs
	state  executed
	logged int64 // when its log was last written; 0 if it has none
	// made is when the executor made its process, as far as the file of its PID
	// says: close to its start, where that is not on record; 0 if not known.
	made int64
	// rebuilt says that the record is an old copy: it may have run and ended since.
	rebuilt bool
}

// foundPod is all that the recovery of a sandbox depends on.
type foundPod struct {
	record     sandboxRecord
	monitor    bool // one answered
	containers []foundContainer
}

// deed is what is done about a container beside the event of its recovery.
type deed uint8

const (
	nothing   deed = iota
	undoStart      // before it: what a start left is in the way of the next one
	adopt          // after it: a monitor is to take what runs
)

// containerAction is what a recovery does with a container.
type containerAction struct {
	id    string
	deed  deed
	event life.Event // nil: it is as its record says
}

// podAction is what a recovery does with a sandbox, and with its containers, in
// their order.
type podAction struct {
	event      life.Event // nil: there is nothing to finish
	successor  bool       // a monitor is to be started
	containers []containerAction
}

// plan decides what becomes of a pod that was found at the start. now is the
// time, and boot the machine's present one.
func plan(f foundPod, boot string, now int64) podAction {
	sameBoot := f.record.Boot == boot
	var out podAction
	for _, c := range f.containers {
		a := planContainer(c, f.monitor, sameBoot && c.record.Boot == boot, now)
		out.containers = append(out.containers, a)
		out.successor = out.successor || a.deed == adopt
	}
	switch f.record.State {
	case life.Intent, life.Stopping, life.Removing:
		out.event = life.Resumed{}
	case life.Ready:
		if !sameBoot { // its network is to be given back
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
	case k.started != nil: // its monitor reports its end
		a.event = *k.started
	case c.kept != nil: // its monitor is about to start it
		a.event = life.Rejoined{}
	case r.State == life.Created && (monitor || c.exit == nil && c.state == executedNone):
	case c.exit != nil:
		e := *c.exit
		e.Started = cmp.Or(e.Started, begun, min(c.made, e.Finished))
		ended(e)
	case r.State == life.Starting && monitor && !c.rebuilt: // nobody was told to start it
		a.deed, a.event = undoStart, life.Reset{}
	// From here on a created one is one whose start was not on record yet.
	case c.alive != nil && (r.State == life.Running || c.state == executedRunning):
		began := *c.alive
		began.At = cmp.Or(begun, began.At)
		a.deed, a.event = adopt, began
	case r.State != life.Running && c.state == executedCreated: // what the executor left is killed
		ended(startFailed("the agent and the monitor ended while it was started", now))
	case r.State == life.Starting && c.state == executedNone && c.rebuilt:
		ended(life.Ending{Finished: now, Code: codeUnknown, Reason: reasonUnknown, Message: "its record was damaged"})
	case r.State == life.Starting && c.state == executedNone:
		a.deed, a.event = undoStart, life.Reset{}
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

// reasonOf names why a process ended.
func reasonOf(code int32, oom bool, told string) string {
	switch {
	case oom:
		return reasonOOMKilled
	case told != "":
		return told
	case code == 0:
		return reasonCompleted
	}
	return reasonError
}
