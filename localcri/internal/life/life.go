package life

import (
	"fmt"
	"strings"
	"time"
)

// Phase is the stage in the life of a container or sandbox.
type Phase string

// Phases of containers, in order. Records have those from Created to Removing.
const (
	Making   Phase = "making"
	Created  Phase = "created"
	Starting Phase = "starting"
	Running  Phase = "running"
	Exited   Phase = "exited"
	Removing Phase = "removing" // callers no longer see it
	Gone     Phase = "gone"     // nothing of it is left
)

// More phases of sandboxes. Their order is Intent, Ready, Stopping, Stopped, Removing, Gone.
// Records have all but Gone.
const (
	Intent   Phase = "intent"   // parts of it may exist
	Ready    Phase = "made"     // all of it exists
	Stopping Phase = "stopping" // parts of it may be gone
	Stopped  Phase = "stopped"  // nothing runs; the network is released
)

// Want is the strongest request so far. It never becomes weaker.
type Want uint8

// Values of Want.
const (
	Run Want = iota
	Stop
	Remove
)

func (w Want) String() string { return [...]string{"run", "stop", "remove"}[w] }

// Process identifies a process. The PID alone is not enough, since PIDs are reused.
type Process struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"startTime"` // field 22 of proc_pid_stat(5)
}

// Ending is how a container ended. Times are ns since 1970.
type Ending struct {
	Started  int64 // 0 if it never ran, or if the start time is unknown
	Finished int64
	Code     int32
	Reason   string
	Message  string
	LostLog  uint64 // bytes of output that were not logged
}

// ReasonStartError is the reason in the status of a container that could not be started.
const ReasonStartError = "StartError"

// Event is one of the event types below.
type Event any

// Events of containers and sandboxes. In their comments, "it" is the container or sandbox.
type (
	// Made says that all parts of it exist.
	Made struct{}
	// Discarded means that the object will not be used, since its creation failed or all callers
	// have stopped waiting for it.
	Discarded struct{}
	// StopAsked says that a caller asks to stop it. Containers are killed at Until.
	StopAsked struct{ Until time.Time }
	// RemoveAsked says that a caller asks to remove it, and to kill it first if it runs.
	RemoveAsked struct{}
	// Resumed says that an earlier process left it in this phase, and that no work on it is in
	// progress.
	Resumed struct{}
	// Erased says that nothing of it is left.
	Erased struct{}
)

// Events of containers.
type (
	// StartAsked says that a caller asks to start it.
	StartAsked struct{}
	// Told says that the start request is about to be sent to a monitor. If a stop was requested
	// meanwhile, this ends phase Starting, and the request must not be sent.
	Told struct{}
	// NotTold says that the start failed before the request was sent to a monitor.
	NotTold struct{}
	// Reset says that no monitor knows of the start, and the remains of the start have been removed.
	Reset struct{}
	// Rejoined says that a monitor is working on the start.
	Rejoined struct{}
	// Began says that its process started at At, in ns since 1970. The process may have
	// ended since.
	Began struct {
		Process Process
		At      int64
	}
	// Ended says that it has ended, or could not be started.
	Ended struct{ Ending Ending }
	// Cleaned says that the remains of its processes have been removed.
	Cleaned struct{}
)

// Events of sandboxes.
type (
	// TornDown says that nothing runs in the sandbox and its network is released.
	TornDown struct{}
	// NotTornDown says that the teardown failed.
	NotTornDown struct{}
	// InfraEnded says that the process of its shared PID namespace ended.
	InfraEnded struct{}
)

// Effect is one of the effect types below.
type Effect any

// Effects for containers and sandboxes.
type (
	// Announce reports News to callers.
	Announce struct {
		What News
		At   int64 // ns since 1970; 0 means now
	}
	// Withdraw reports the removal to callers, and then erases everything.
	Withdraw struct{}
	// Undo erases everything. Callers have never seen it, or consider it removed.
	Undo struct{}
)

// Effects on containers.
type (
	// Save writes the record.
	Save struct{}
	// Start lets a monitor start the container.
	Start struct{}
	// Join waits for a start that a monitor is working on.
	Join struct{}
	// End stops the container at Until, or changes the deadline of a stop in progress to Until.
	// If Until is zero, the container is killed at once.
	End struct{ Until time.Time }
	// Release wakes the callers that wait for the container's end.
	Release struct{}
	// Clean writes the record, and then removes the remains of the processes. In this order,
	// because until the record is written, a recovery needs the remains to find out how the
	// container ended.
	Clean struct{}
)

// TearDown stops everything that runs in a sandbox and releases what a stopped sandbox does not
// keep.
type TearDown struct{}

// News is a kind of event that is reported to callers.
type News uint8

// Values of News.
const (
	NewsStarted News = iota
	NewsStopped
)

func (n News) String() string { return [...]string{"started", "stopped"}[n] }

// Refused is the error for an event that is not possible in a phase. Nothing has changed.
type Refused struct {
	From  Phase
	Want  Want
	Event string // name of its type
}

func (r *Refused) Error() string {
	return fmt.Sprintf("%s is refused: it is %s, wanted: %s", r.Event, r.From, r.Want)
}

// nameOf returns the name of the type of an event.
func nameOf(e Event) string {
	name := fmt.Sprintf("%T", e)
	return name[strings.LastIndexByte(name, '.')+1:]
}
