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
