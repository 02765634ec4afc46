// Package critest is a container runtime in memory, for tests: sandboxes
// and containers with their states, exit codes, logs, events and filters, as a
// CRI runtime has them, and faults on demand.
//
//	rt := critest.New()
//	rt.AddImage("localhost/app:1")
//	rt.Fail("CreateContainer", errors.New("no space left"))
//
// [Runtime] has the methods of cri-api's service interfaces itself, for tests in a testing/synctest
// bubble; [Runtime.Client] serves them over gRPC in memory. A container's command is a small
// script, the same that the image localhost/nodewright/testbox:1 understands, so that [Conformance]
// runs the same scripts on this runtime and on a real one:
//
//	out TEXT, err TEXT     write a line
//	sleep DURATION|forever wait
//	exit CODE              end
//	trap CODE DURATION     end with CODE, DURATION after TERM
//	ignore                 do not end on TERM
//
// A command that is a path cannot be started, since neither image has such a file.
//
// Tier: kit.
package critest
