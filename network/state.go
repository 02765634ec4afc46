package network

import "time"

// State is how far an attachment is.
type State uint8

// The states of attachments.
const (
	Planned   State = iota // Attach is at work
	Attached               // in use
	Lost                   // attached, but its namespace is not there any more
	Detaching              // it is being taken back, or that is tried again later
	Damaged                // its record could not be read and was set aside
	states
)

// String returns the name of the state in lower case.
func (s State) String() string {
	if s >= states {
		return "unknown"
	}
	return [states]string{"planned", "attached", "lost", "detaching", "damaged"}[s]
}

// Info is what [Network.List] says of an attachment.
type Info struct {
	ID     string
	State  State
	Plugin string // "" if Damaged
	Netns  string // where its namespace is, or would be; "" if Damaged
	// Created is when it was first asked for, by the wall clock; for one that is
	// Damaged, when that was found.
	Created time.Time
	// Err is why it could not be taken back when that was last tried, or how its
	// record is damaged; else nil.
	Err error
}

// Counts are numbers of attachments, for those who watch.
type Counts struct {
	States  [states]int // by State
	Retries int         // waiting until TearDown is tried again
	Hung    int         // plugin calls that did not return at their deadline
	Kills   uint64      // process groups that outlived another agent and were killed
}

// Operations that an [Observer] hears of; the names are the kubelet's where it
// had them.
const (
	OpSetUp    = "set_up_pod"
	OpTearDown = "tear_down_pod"
	OpCheck    = "check"
	OpStatus   = "status"
	OpCollect  = "gc"
)

// Observer hears of the operations that ended, from any goroutine. It must not
// block. network/metrics has one that exports them.
type Observer interface {
	// Observe is called with the time that op took with its plugin, waiting
	// for others left out.
	Observe(op string, took time.Duration, code Code)
}
