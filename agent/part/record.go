package part

import "github.com/nodewright/nodewright/record"

// Recorder is a Part that records what the agent learns and decides, such as a [record.Recorder].
type Recorder interface {
	// Record is called from any goroutine, on the loop as well, and must not block. The agent passes
	// most facts again and again: they are states, of which a Recorder keeps the changes. A part
	// that restarts with the agent gets those of running pods anew.
	Record(e record.Entry)
}

// Record passes a fact to the Recorders of the part's agent, if the Host is a [Records].
func Record(h Host, e record.Entry) {
	if r, ok := h.(Records); ok {
		r.Record(e)
	}
}
