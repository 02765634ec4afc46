package local

import (
	"cmp"
	"time"
)

// PastQuery asks for the past of a pod, or of the node if Name is "".
type PastQuery struct {
	Namespace, Name string
	// At asks why the pod was in its state at this time. Within is the precision of At, for
	// example a minute for a time of day without seconds.
	At     time.Time
	Within time.Duration
	// Since and Until, without At, ask for all that happened between them. A zero Until is now.
	Since, Until time.Time
}

// Past is the recorded past of a pod or of the node.
type Past struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Answer says in one sentence why the pod was in its state at the time in question; "" without
	// such a time.
	Answer string `json:"answer,omitempty"`
	// Moments are the changes, oldest first. For PastQuery.At, they are the changes that led to
	// the state at that time, and those just after.
	Moments []Moment `json:"moments"`
	// Stretches are the states of the containers over time, and the times without an agent. They
	// are empty for PastQuery.At.
	Stretches []Stretch `json:"stretches,omitempty"`
	// Begins is the time of the oldest entry of the whole record.
	Begins time.Time `json:"begins,omitzero"`
}

// Moment is one thing that happened to a pod or to the node.
type Moment struct {
	At        time.Time `json:"at"`
	UID       string    `json:"uid,omitempty"` // of the pod; "" for the node
	Container string    `json:"container,omitempty"`
	// Kind is the kind of the recorded fact, such as "instance" or "probe".
	Kind string `json:"kind"`
	Text string `json:"text"`
	// Problem reports that the change is a failure, or the start of one.
	Problem bool `json:"problem,omitempty"`
}

// Stretch is a time in which a container, or the agent, was in one state.
type Stretch struct {
	Container string    `json:"container,omitempty"` // "" for the agent
	From      time.Time `json:"from"`
	To        time.Time `json:"to,omitzero"` // zero: it still is
	State     string    `json:"state"`
	Text      string    `json:"text"`
	// ExitCode is the exit code with which the stretch ended.
	ExitCode *int32 `json:"exitCode,omitempty"`
	// Problem reports that the stretch ended with a failure.
	Problem bool `json:"problem,omitempty"`
}

// The states of a [Stretch].
const (
	Running   = "running"
	Waiting   = "waiting" // for its first or next start
	Ended     = "ended"
	AgentAway = "away"
	AgentLost = "lost" // the agent was killed at some time in the stretch
)

// Lines returns the past as "agent why --at" prints it: the name and the answer, then the moments,
// indented.
func (p *Past) Lines(now time.Time) []string {
	name := cmp.Or(p.Name, "the node")
	if p.Namespace != "" {
		name = p.Namespace + "/" + p.Name
	}
	var lines []string
	switch {
	case p.Answer != "":
		lines = append(lines, name+" "+p.Answer)
	case len(p.Moments) == 0:
		lines = append(lines, name+": nothing is recorded")
	default:
		lines = append(lines, name+":")
	}
	for _, m := range p.Moments {
		lines = append(lines, "  "+When(m.At, now)+" "+m.Text)
	}
	if len(p.Moments) == 0 && !p.Begins.IsZero() {
		lines = append(lines, "  the record begins at "+When(p.Begins, now))
	}
	return lines
}

// When returns a time of day, with the date if it is not on the day of now.
func When(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}
