package part

import "github.com/nodewright/nodewright/record"

// Recorder is a Part that records the agent's facts and decisions, such as a [record.Recorder].
type Recorder interface {
	// Record is called from any goroutine, including the loop, and must not block. Most facts are
	// states, which the agent passes repeatedly; a Recorder keeps only their changes. After a
	// restart of the agent, the states of running pods are passed again.
	Record(e record.Entry)
}

// Record passes a fact to the Recorders of the part's agent, if the Host is a [Records].
func Record(h Host, e record.Entry) {
	if r, ok := h.(Records); ok {
		r.Record(e)
	}
}
