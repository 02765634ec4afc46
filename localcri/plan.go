//go:build linux

package localcri

import "cmp"

// Exit codes and reasons that no process gave.
const (
	codeUnknown     = 255 // of a container whose end nobody saw
	codeStartFailed = 128

	reasonCompleted   = "Completed"
	reasonError       = "Error"
	reasonOOMKilled   = "OOMKilled"
	reasonStartError  = "StartError"
	reasonMonitorLost = "MonitorLost"
	reasonUnknown     = "Unknown"

	messageRestarted = "the machine restarted"
)

// ending is how a container ended.
type ending struct {
	Started  int64 // ns since 1970; 0 if it never ran
	Finished int64
	Code     int32
	Reason   string
	Message  string
	LostLog  uint64
}

// start is how a container started.
type start struct {
	Process processID
	At      int64 // ns since 1970
}

// kept is what a monitor says of a container.
type kept struct {
	started *start
	ended   *ending
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
	kept   *kept   // nil: there is no monitor, or it never heard of it
	exit   *ending // from the exit record; nil if there is none
	alive  *start  // its process, if that is known and runs
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

// containerStep is what a recovery does with a container.
type containerStep uint8

const (
	stay         containerStep = iota // it is as its record says
	follow                            // it runs, and its monitor reports its end
	adopt                             // it runs, and has no monitor
	end                               // it ended
	reset                             // nobody was told to start it
	abort                             // the executor was interrupted: what it left is killed
	finishRemove                      // its removal was under way
	rejoin                            // its monitor is about to start it
)

// podStep is what a recovery does with a sandbox.
type podStep uint8

const (
	leave         podStep = iota // nothing of it is left to do
	keepPod                      // it is in use
	undo                         // it was never told to anybody
	finishStop                   // in the background
	finishRemoval                // in the background
)

// containerAction is a step with what it needs.
type containerAction struct {
	id    string
	step  containerStep
	start start  // of follow and adopt
	end   ending // of end
}

// podAction is a step and those of the containers, in their order.
type podAction struct {
	step       podStep
	successor  bool // a monitor is to be started
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
		out.successor = out.successor || a.step == adopt
	}
	switch f.record.State {
	case sandboxIntent:
		out.step = undo
	case sandboxRemoving:
		out.step = finishRemoval
	case sandboxStopping:
		out.step = finishStop
	case sandboxMade:
		out.step = keepPod
		if !sameBoot { // its network is to be given back
			out.step = finishStop
		}
	}
	out.successor = out.successor && !f.monitor
	return out
}

func planContainer(c foundContainer, monitor, sameBoot bool, now int64) containerAction {
	r := c.record
	a := containerAction{id: r.ID}
	switch {
	case r.State == containerRemoving:
		a.step = finishRemove
		return a
	case r.State == containerExited:
		return a
	case !sameBoot:
		a.step, a.end = end, ending{
			Started: r.Started, Finished: max(r.Created, r.Started, c.logged),
			Code: codeUnknown, Reason: reasonUnknown, Message: messageRestarted,
		}
		return a
	}
	var k kept
	if c.kept != nil {
		k = *c.kept
	}
	begun := cmp.Or(r.Started, startOf(k.started).At)
	switch {
	case k.ended != nil:
		a.step, a.end = end, *k.ended
		a.end.Started = cmp.Or(a.end.Started, begun)
	case k.failed != "":
		a.step, a.end = end, startFailed(k.failed, now)
	case k.started != nil:
		a.step, a.start = follow, *k.started
	case c.kept != nil:
		a.step = rejoin
	case r.State == containerCreated && (monitor || c.exit == nil && c.state == executedNone):
		a.step = stay
	case c.exit != nil:
		a.step, a.end = end, *c.exit
		a.end.Started = cmp.Or(a.end.Started, begun, min(c.made, c.exit.Finished))
	case r.State == containerStarting && monitor && !c.rebuilt:
		a.step = reset
	// From here on a created one is one whose start was not on record yet.
	case c.alive != nil && (r.State == containerRunning || c.state == executedRunning):
		a.step, a.start = adopt, *c.alive
		a.start.At = cmp.Or(begun, a.start.At)
	case r.State != containerRunning && c.state == executedCreated:
		a.step, a.end = abort, startFailed("the agent and the monitor ended while it was started", now)
	case r.State == containerStarting && c.state == executedNone && c.rebuilt:
		a.step, a.end = end, ending{Finished: now, Code: codeUnknown, Reason: reasonUnknown, Message: "its record was damaged"}
	case r.State == containerStarting && c.state == executedNone:
		a.step = reset
	default:
		a.step, a.end = end, ending{
			Started: cmp.Or(begun, min(c.made, now)), Finished: max(now, begun), Code: codeUnknown, Reason: reasonMonitorLost,
			Message: "it ended while nobody watched",
		}
	}
	a.end.Finished = max(a.end.Finished, a.end.Started)
	return a
}

func startOf(s *start) start {
	if s == nil {
		return start{}
	}
	return *s
}

func startFailed(message string, now int64) ending {
	return ending{Finished: now, Code: codeStartFailed, Reason: reasonStartError, Message: message}
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

// apply changes a record as an action says, but for what is removed.
func (a containerAction) apply(r *containerRecord) {
	switch a.step {
	case follow, adopt:
		r.State, r.Process, r.Started = containerRunning, &a.start.Process, a.start.At
	case end, abort:
		r.end(a.end)
	case reset:
		r.State, r.Process, r.Started = containerCreated, nil, 0
	case rejoin:
		r.State, r.Process, r.Started = containerStarting, nil, 0
	case stay, finishRemove:
	}
}

// end notes how a container ended.
func (r *containerRecord) end(e ending) {
	r.State, r.Process = containerExited, nil
	r.Started, r.Finished = e.Started, max(e.Finished, e.Started)
	r.ExitCode, r.Reason, r.Message, r.LostLog = e.Code, e.Reason, e.Message, e.LostLog
}
