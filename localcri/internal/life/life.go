package life

import (
	"fmt"
	"strings"
	"time"
)

// Phase is how far a container or a sandbox came.
type Phase string

// Phases of containers, in their order. Records have those from Created to Removing.
const (
	Making   Phase = "making"
	Created  Phase = "created"
	Starting Phase = "starting"
	Running  Phase = "running"
	Exited   Phase = "exited"
	Removing Phase = "removing" // callers do not see it any more
	Gone     Phase = "gone"     // nothing of it is left
)

// Further phases of sandboxes: Intent, Ready, Stopping, Stopped, Removing, Gone. Records have all but Gone.
const (
	Intent   Phase = "intent"   // some of it may exist
	Ready    Phase = "made"     // all of it exists
	Stopping Phase = "stopping" // some of it may be gone
	Stopped  Phase = "stopped"  // nothing runs; the network is given back
)

// Want is the most that was asked for. It only grows.
type Want uint8

// What can be wanted.
const (
	Run Want = iota
	Stop
	Remove
)

func (w Want) String() string { return [...]string{"run", "stop", "remove"}[w] }

// Process identifies a process: a PID is used again.
type Process struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"startTime"` // field 22 of proc_pid_stat(5)
}

// Ending is how a container ended. Times are ns since 1970.
type Ending struct {
	Started  int64 // 0 if it never ran, or if only the machine knows
	Finished int64
	Code     int32
	Reason   string
	Message  string
	LostLog  uint64 // bytes of its log that found no room
}

// ReasonStartError is the reason of a container that could not be started.
const ReasonStartError = "StartError"

// Event is something that happened: one of the types that follow.
type Event any

// Events of both.
type (
	// Made says that all of it exists.
	Made struct{}
	// Discarded says that nobody gets it: its making failed, or the caller that it was made for has gone.
	Discarded struct{}
	// StopAsked says that nothing of it is to run. A container is killed at Until.
	StopAsked struct{ Until time.Time }
	// RemoveAsked says that it is to be removed, and killed first.
	RemoveAsked struct{}
	// Resumed says that it was found in this phase, and nobody is at work on it.
	Resumed struct{}
	// Erased says that nothing of it is left.
	Erased struct{}
)

// Events of containers.
type (
	// StartAsked says that it is to be started.
	StartAsked struct{}
	// Told says that a monitor is about to be told to start it. If a stop was asked for
	// meanwhile, it leaves Starting, and the monitor must not be told.
	Told struct{}
	// NotTold says that its start failed before a monitor was told.
	NotTold struct{}
	// Reset says that no monitor knows of its start, and that what that left has been undone.
	Reset struct{}
	// Rejoined says that a monitor has its start under way.
	Rejoined struct{}
	// Began says that it runs since At, in ns since 1970, or ran then.
	Began struct {
		Process Process
		At      int64
	}
	// Ended says that it has ended, or could not be started.
	Ended struct{ Ending Ending }
	// Cleaned says that what ran is cleaned away.
	Cleaned struct{}
)

// Events of sandboxes.
type (
	// TornDown says that nothing runs in it and that its network is given back.
	TornDown struct{}
	// NotTornDown says that tearing it down failed.
	NotTornDown struct{}
	// InfraEnded says that the process of its shared PID namespace ended.
	InfraEnded struct{}
)

// Effect is something to be begun: one of the types that follow.
type Effect any

// Effects on both.
type (
	// Announce tells callers what happened.
	Announce struct {
		What News
		At   int64 // ns since 1970; 0 is now
	}
	// Withdraw has it removed for callers, who are told, and all of it erased.
	Withdraw struct{}
	// Undo has all of it erased that callers never knew of, or that they know to be removed.
	Undo struct{}
)

// Effects on containers.
type (
	// Save writes the record.
	Save struct{}
	// Start has a monitor start it.
	Start struct{}
	// Join waits for a start that a monitor has under way.
	Join struct{}
	// End has what runs end, or has the end that is under way come at Until. The zero time
	// is at once.
	End struct{ Until time.Time }
	// Release lets those go on who wait for its end.
	Release struct{}
	// Clean writes the record, and then cleans away what ran: until then others know how
	// it ended.
	Clean struct{}
)

// TearDown ends all that runs in a sandbox and gives back what does not outlive a stop.
type TearDown struct{}

// News is what callers are told of.
type News uint8

// What callers are told of.
const (
	NewsStarted News = iota
	NewsStopped
)

func (n News) String() string { return [...]string{"started", "stopped"}[n] }

// Refused is the error for an event that cannot happen in a phase. Nothing has changed.
type Refused struct {
	From  Phase
	Want  Want
	Event string // the name of its type
}

func (r *Refused) Error() string {
	return fmt.Sprintf("%s is refused: it is %s, wanted: %s", r.Event, r.From, r.Want)
}

// nameOf returns the name of the type of an event.
func nameOf(e Event) string {
	name := fmt.Sprintf("%T", e)
	return name[strings.LastIndexByte(name, '.')+1:]
}
