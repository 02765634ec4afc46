package agent

import (
	"context"

	"github.com/nodewright/nodewright/agent/internal/footprint"
)

// A Process keeps small what the process of an agent takes: its memory and its wakeups. An
// agent sits idle for nearly all of its life, and on a small machine that memory is better
// used by pods.
//
//	process := agent.StartProcess() // the first thing in main
//	...
//	go process.Trim(ctx) // when the agent is up
//
// What it sets belongs to the whole process: only a main function calls it, once, and an
// [Agent] does without. Nothing here is needed for an agent to work, and nothing fails:
// what the kernel or its security policy does not allow is left as it is.
type Process struct {
	footprint *footprint.Process
}

// StartProcess has the process take less from now on:
//
//   - The garbage collector lets the heap grow by half of what is in use at rest, and by as
//     much again while pods start, unless the environment has GOGC.
//   - A sample of the heap's profile is taken for each 4 MiB that are allocated, unless
//     the environment says otherwise (GODEBUG=memprofilerate).
//   - On Linux, the Go runtime's monitor thread may oversleep a millisecond, which saves a
//     seventh of the CPU while goroutines come and go.
//
// What was allocated before was sampled at the usual rate, so that it is best called first.
func StartProcess() *Process { return &Process{footprint.Start()} }

// Trim gives memory back until ctx ends: free pages of the heap, and on Linux pages of the program
// that only its start, or a burst long past, has read. They come back from the file when they are
// wanted; from Linux 6.7 on, that is the pages that are read, and not the 64 KiB around each.
// It collects garbage each minute, and looks at itself every five seconds.
// It is called once, when the program has started. Outside of Linux it returns at once.
func (p *Process) Trim(ctx context.Context) { p.footprint.Trim(ctx) }
