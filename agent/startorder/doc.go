// Package startorder is the part of a node agent that has pods begin in an order: after
// others, and the important ones first while the machine is busy.
//
//	p, err := startorder.New(startorder.Config{Log: log})
//	parts := []part.Part{p, ...}
//
// A pod says by annotations what it wants:
//
//	nodewright.io/after: db,other-namespace/queue
//	nodewright.io/start-priority: "100"
//
// # After
//
// A pod begins when those that it names are ready, or have come to their end. A static
// pod is named as in its manifest, with or without the node's name at its end. The order
// is one of beginnings: who was ready once may fail later, and what runs when an agent
// begins runs on. Nobody waits for a pod that the node does not have, one that is being
// deleted, or one that waits for it in turn: such a name is left out, with a warning
// (StartOrderIgnored) that says which and why.
//
// # Priority
//
// Start priority, then the pod's own, say who is more important; a pod is as important
// as those that wait for it. Lesser pods wait while more important ones begin and the
// machine is busy: by the time that tasks have stalled for a CPU, the disk or memory
// since the last look (/proc/pressure, Linux' PSI; without it by the time that CPUs were
// idle). While it is not busy a few of them are let through at each look. None waits
// for longer than Config.Patience. Where all are as important as each other nobody
// waits, and nothing is measured.
//
// # Hooks
//
// Admit has a pod wait, with the reason StartOrder; "why" shows for whom. Report sees
// who is ready. Run measures while a pod waits for its turn, and at rest does nothing.
// Sweep drops what is kept of pods that are gone. Explain says what was left out of a
// pod's annotations.
//
// Tier: beta.
package startorder
