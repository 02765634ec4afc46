package network

import "time"

// State says how far an attachment of a pod to the network is.
type State uint8

// The states of attachments.
const (
	Planned   State = iota // Attach is running
	Attached               // in use
	Lost                   // attached, but its namespace is gone
	Detaching              // it is being torn down, or that is retried later
	Damaged                // its record was damaged and set aside
	states
)

// String returns the name of the state in lower case.
func (s State) String() string {
	if s >= states {
		return "unknown"
	}
	return [states]string{"planned", "attached", "lost", "detaching", "damaged"}[s]
}

// Info describes an attachment for [Network.List].
type Info struct {
	ID     string
	State  State
	Plugin string // "" if Damaged
	Netns  string // path of its namespace; "" if Damaged
	// Created is the time of the first request, by the wall clock. For a Damaged attachment it is
	// the time at which the damage was found.
	Created time.Time
	// Err is the error of the last teardown, or describes the damage of the record. It is nil if
	// there is neither.
	Err error
}

// Counts are numbers of attachments, for metrics.
type Counts struct {
	States  [states]int // by State
	Retries int         // waiting for the next TearDown
	Hung    int         // plugin calls that did not return at their deadline
	Kills   uint64      // killed process groups that outlived another agent
}

// The operations that are reported to an [Observer]. If the kubelet had a metric of an operation,
// the operation has the kubelet's name.
const (
	OpSetUp    = "set_up_pod"
	OpTearDown = "tear_down_pod"
	OpCheck    = "check"
	OpStatus   = "status"
	OpCollect  = "gc"
)

// Observer is called for each operation that has ended, from any goroutine. It must not block.
type Observer interface {
	// Observe gets the time that the operation op took in its plugin, without waits for
	// other operations.
	Observe(op string, took time.Duration, code Code)
}
