// Package sim runs a complete agent through hours and days of simulated time, within
// the duration of a test. It has only tests.
//
// A schedule is plain text. Each line is an event, with the pause before it:
//
//	+1s pod web api grace=30 s1=forever c=sleep,10m,exit,1
//	+2h agent kill-at 7
//	+0s power
//	+1m remove web
//
// The verbs are in verbs_test.go, the attributes of pods at newPod. A seed
// generates a schedule (generate_test.go). testdata has schedules that once failed,
// as short as possible.
//
// # The machine
//
// The machine survives the processes of the agent. It has the container runtime in
// memory (cri/critest), the API server with its ConfigMaps, Secrets and tokens, a
// device plugin, a DRA driver, a CSI driver with the controller that attaches its
// volumes (internal/csitest, over a connection in memory), a mount table, and a
// directory with the agent's files. Each process of the agent is a real agent.Agent
// with the parts of a node, in a bubble of testing/synctest: the time of a bubble
// stands still while a goroutine waits for the kernel.
//
// # Whole nodes
//
// With every sixteenth seed, and once more with the schedules of testdata, each process is a
// whole node (node_test.go): package nodeagent with all its parts, built from a
// KubeletConfiguration and joined to an API server in memory (kubeapi/kubeapitest) by
// nodeagent/cluster and the real client, with watches, events, leases, mirrors, tokens and its
// files for a start without the API server. Static pods are files. Anything that would wait for
// the kernel is replaced through options that embedders have too: manifests and logs are polled,
// the test registers plugins, mounts go to a table, the hardware is described, and so are
// notifications of memory pressure, the kernel's log and the usage figures for evictions. Each
// changing request to the API server passes the gate too.
//
// More verbs for whole nodes: "uses" sets a pod's usage of memory or disk; "oom" kills a process
// as the kernel does; "shutdown" shuts the machine down in order, or is cancelled. The API server
// hangs, is slow, fails, returns 429 or conflicts; its watches are cut, silent or too old; the
// Node is deleted. In half of the schedules many pods request devices or CPUs, in a sixth some
// have volumes of a CSI driver, and a controller attaches them (csinode_test.go).
//
// All effects of an agent pass a gate: calls of the runtime, steps of its disk,
// mounts, statuses, allocations. The gate injects faults (fail, hang, lose the
// result), counts effects, and kills an agent before its Nth effect: the agent then
// has no further effects, and its supervisor starts another one.
//
// The files are real. internal/durable reports each step, so that after a power
// failure unsynced changes are in a state that a disk may leave: the old file, the
// new one, or an empty one. Files below a tmpfs of the mount table are lost.
//
// # What must hold
//
// The checks (judge_test.go) run right before an effect. They use the runtime's own state, not
// its answers, which may be wrong:
//
//   - No container starts beside another instance of it, after its final end, against its
//     restart policy, or for a pod that is not wanted.
//   - No running container is stopped without a cause or before the end of its grace period.
//   - Restart counts never decrease, and each new container has a new one. A pod is terminal only
//     when nothing of it runs or is shown as running, and deleted only when nothing of it is left.
//   - Published readiness changes only with a probe result, and in time. A container is stopped for
//     its probes exactly when their failure threshold is reached.
//   - No device and no CPU has two owners; a pod has as many as it requests; no container runs
//     without its claim; no unused claim stays prepared; a deleted pod holds none of these.
//   - A running pod has its volumes, changed objects reach it, and its tokens are valid. No file
//     that survives the machine contains a secret. The directory of a synced file is synced.
//   - A CSI driver gets no call that its specification forbids: for a volume that is attached
//     elsewhere or in use. Nothing unwanted stays staged, published or mounted.
//   - A minute has at most busyBound effects.
//   - A resized pod has the memory that it requests.
//   - A pod without faults of its own runs within startBound after the last fault for all pods.
//   - After the last fault, the state is as wanted within convergeBound, nothing of removed pods
//     is left, and nothing is called or written for restFor.
//
// For whole nodes also:
//
//   - The lease is never older than its duration, unless a fault prevents the renewal.
//   - The Node is ready at rest, and a start of the agent does not make a ready Node unready.
//   - Each static pod has one mirror, of its current version and with its phase, which is removed
//     with it. Pods are deleted by UID.
//   - A terminal phase never changes.
//   - A pod is evicted only under pressure, and not before a pod that exceeds its request by more.
//     It is preempted only for a critical pod that needs its resources. Conditions end at rest.
//   - No pod starts on a node under pressure unless the rules of evictions admit it, and no
//     admissible pod is kept out.
//   - A pod that is published as terminal, or deleted, has no device, CPU or claim in the node's
//     answers to monitors. A pod is rejected for lack of them only if other pods may have them.
//   - Pods with user namespaces share no IDs.
//   - No image of a container is removed. Unused images are removed before a pod is evicted for
//     disk pressure. One dead instance of each container stays.
//   - A container that the kernel killed for memory is reported as OOMKilled, with an event unless
//     a fault prevents it.
//   - At a shutdown, pods get their grace periods within the time of their group, pods of high
//     priority run longest, and nothing runs at the end. Static pods run again after the boot.
//   - At rest there are only leases and node statuses at their intervals, tokens, and a limited
//     number of reads.
//
// # Runs
//
//	go test ./internal/sim                                   # 100 schedules of hours, 15 with -race; make test runs 300 more
//	go test ./internal/sim -run TestSeeds -seeds 100 -node   # of whole nodes alone, which take three times as long
//	go test ./internal/sim -run TestSeeds -seeds 10000       # a night
//	go test ./internal/sim -run TestSeeds -seeds 1 -seed 45  # one seed again
//	go test ./internal/sim -run TestReplay -v -replays 20    # how deterministic seeds are
//	go test ./internal/sim -run TestWeek -weeks 3 -v         # what a week with 20 pods costs
//	go test ./internal/sim -run TestRecord -v -record FILE   # the decisions of a recorded node, from agent record export
//	go test ./internal/sim -run TestRecord -record FILE -save NAME # keeps them in testdata/records
//	make clocks                                              # on a machine whose wall clock jumps
//
// A failing schedule is shortened before it is printed. Goroutines of a bubble run in any
// order, so a seed does not always give the same effects (TestReplay), and a failure may need some
// runs to appear again.
//
// TestWeek prints the CPU time, allocations and effects of a week with 20 pods, in the format of
// go test -bench.
//
// # Which faults it finds
//
// The value of a check is the bugs that it finds. The table has bugs that were put into the
// code on purpose, and how many of the schedules 1 to 200 found each:
//
//	directories are not synced                                              198
//	a grace period is a third of what it should be                          188
//	volumes stay mounted at a pod's end                                     175
//	restart counts start again with each agent                              155
//	containers start again with policy Never                                142
//	secrets are on the disk                                                 132
//	devices are not released at a pod's end                                  69
//	files are not synced before they are renamed                             32
//	CPUs are not released at a pod's end                                     24
//	a readiness result is not published                                      19
//	a probe fails at its first failure                                       14
//	changed objects do not reach the pod                                      4
//	a failed StopContainer counts as a success                                2
//
// Schedules in testdata find rarer bugs: each was added with the fix of a bug. A new check or fix
// is tested in the same way: put the bug into the code, and see that a schedule fails.
//
// # What is left out
//
//   - The node API, plugin sockets and cgroups: they need sockets, TLS and the kernel, and a bubble's
//     time stands still in such calls. Block devices, and other kinds of volumes than those above.
//   - Failing or hanging reads of a disk; only changes fail or hang. Writes of volume content, of
//     manifests and of the API server's store do neither.
//   - Restart counts of static pods at a start without the API server: only the mirror has them.
//   - The registration of a deleted Node before the next start of its agent.
//   - Jumps of the agent's wall clock, except with make clocks. The runtime's clock jumps by years.
//
// If a goroutine waits while it holds a mutex, the time of a bubble stops and does not continue.
// For this reason locks that are held during disk calls are channels.
package sim
