// Package sim lives through what happens to a whole agent in hours and days, in
// the time of a test. It has tests alone.
//
// A schedule is plain text, a line for each thing that happens, with the pause
// before it:
//
//	+1s pod web api grace=30 s1=forever c=sleep,10m,exit,1
//	+2h agent kill-at 7
//	+0s power
//	+1m remove web
//
// The verbs are in verbs_test.go, the words about pods at newPod. A seed makes a
// schedule (generate_test.go). What once failed is in testdata, as short as it
// could be made.
//
// # The machine
//
// What outlives a process of the agent is a machine: the container runtime in memory
// (cri/critest), the API server, a device plugin, a DRA driver, and a directory
// with the agent's files. Each life of the agent on it is a real agent.Agent with
// the parts of a node, in a bubble of testing/synctest. It is not nodeagent: that
// speaks to its runtime over a socket, serves TLS and reads the machine's
// cgroups, and a bubble's time stands still while anybody waits for the kernel.
//
// Whatever an agent does passes a gate: calls of the runtime, steps of its
// disk, statuses, allocations. There faults strike (fail, hang, lose the answer),
// effects are counted, and an agent is killed before the Nth of them: from then on
// it has no effect any more, and its supervisor starts another one.
//
// The files are real. internal/durable reports each step, so that a loss of power
// leaves of what was not synced what a disk may leave: the old file, the new
// one, or an empty one.
//
// # What must hold
//
// The judgements (judge_test.go) are made right before an effect, by what the
// runtime itself has, past all lies:
//
//   - no container starts beside another instance of it, after its end, against its
//     restart policy, or for a pod that is not wanted any more;
//   - nothing that runs is ended without a cause, or before its grace period is over;
//   - restart counts do not go back; a pod is over only when nothing of it runs, and
//     deleted only when nothing of it is left;
//   - readiness that is published changes by a probe's result alone, and within a bound;
//     a container is ended for its probes after as many failures as their threshold,
//     and it is ended then;
//   - no device and no CPU has two owners, a pod has as many as it asks for, no
//     container runs without its claim, and no claim stays prepared that nobody uses;
//   - a pod without troubles of its own runs within startBound of the last trouble
//     that struck everybody;
//   - when all troubles are over, everything is as it should be within
//     convergeBound, nothing is left of pods that are gone, and then, for
//     restFor, nothing is called or written.
//
// # Runs
//
//	go test ./internal/sim                                   # 100 schedules of hours, 15 with -race; make test runs 300 beside
//	go test ./internal/sim -run TestSeeds -seeds 10000       # a night's
//	go test ./internal/sim -run TestSeeds -seeds 1 -seed 45  # one again
//	go test ./internal/sim -run TestReplay -v -replays 20    # how often a seed takes the same way
//
// A schedule that fails is made short before it is shown. Goroutines of a bubble
// run in any order, so that a seed does not always take the same way: TestReplay
// says how often.
//
// # Mutations
//
// Faults that were put into the code by hand to see whether a judgement finds them, and
// in how many schedules from seed 1:
//
//	files are not synced before they are renamed                             3
//	a readiness result is not published                                      5
//	claims are not unprepared at a pod's end                                 9
//	a probe fails at its first failure                                      13
//	a liveness failure has nobody look at the pod                           21
//	a container whose readiness no probe of this agent has told is ready    44
//	directories are not synced                                             147
//
// Not found in 200: CPUs that are not given back at a pod's end, since the next sweep does;
// stored statuses that are published although they are old, and a second life without a
// reservation, for which there are schedules in testdata.
//
// Without their mends, the schedules of testdata fail, some in one run of several.
//
// # What is left out
//
// Volumes, CSI drivers, the API server's client, and nodeagent's wiring. The clock of the
// agent does not jump, as that of a bubble cannot; the runtime's does, by years. Reads of a
// disk neither fail nor hang, only its changes do.
package sim
