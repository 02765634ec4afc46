// Package sim simulates hours and days in the life of a whole agent, in the time of
// a test. It has only tests.
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
// With every sixteenth seed, and in the schedules of testdata once more, each life is a whole
// node (node_test.go): package nodeagent with all its parts, made from a
// KubeletConfiguration and joined to an API server in memory (kubeapi/kubeapitest) by
// nodeagent/cluster and the real client, with its watches, events, leases, mirrors, tokens
// and what it keeps for a start without a network. Static pods are files. What would wait
// for the kernel is left out by what embedders have for that as well: manifests and logs are
// polled, plugins are offered by the program, mounts go to a table, the hardware is
// described, and with it come the notices of memory pressure, the kernel's log and the
// figures that evictions decide by. Effects are counted at the same gate, each request that changes
// something among them. Steps for whole nodes alone are "uses", which has a pod use memory or
// disk, "oom", which has the kernel kill a process, "shutdown", which has the machine go down in order and come back, or is called off, and what may happen to an API server: it hangs, is slow, fails, asks for patience,
// conflicts, its watches are cut, silent or too old, and somebody deletes the Node. In half of the
// schedules many pods ask for devices or CPUs, and in a sixth some have volumes of a CSI driver: the server
// has its objects, and a controller attaches what the Node says to be in use (csinode_test.go).
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
// The checks (judge_test.go) run right before an effect. They use the runtime's own
// state, not its answers, which may be false:
//
//   - no container starts beside another instance of it, after its end, against its
//     restart policy, or for a pod that is not wanted any more;
//   - nothing that runs is ended without a cause, or before its grace period is over;
//   - restart counts do not go back, and another container has another one; a pod is over only when nothing of it runs, nor is shown as running, and
//     deleted only when nothing of it is left;
//   - readiness that is published changes by a probe's result alone, and within a bound;
//     a container is ended for its probes after as many failures as their threshold,
//     and it is ended then;
//   - no device and no CPU has two owners, a pod has as many as it asks for, no
//     container runs without its claim, and no claim stays prepared that nobody uses; a pod
//     that is deleted has given all of it back;
//   - what runs has its volumes, objects that change reach it, and its tokens are good; no
//     file that outlasts the machine has a secret in it, and a file that was synced has
//     its directory synced;
//   - a CSI driver hears nothing that its specification forbids, of no volume that
//     is attached elsewhere or that a container uses, and nothing stays staged,
//     published or mounted that nobody wants;
//   - a minute has no more effects than busyBound;
//   - a pod that was resized has the memory that it asks for;
//   - a pod without troubles of its own runs within startBound of the last trouble
//     that struck everybody;
//   - when all troubles are over, everything is as it should be within
//     convergeBound, nothing is left of pods that are gone, and then, for
//     restFor, nothing is called or written.
//
// And of whole nodes:
//
//   - the lease is never older than its duration, unless something is in its way;
//   - the Node is ready at rest, and no start of the agent makes it unready that was ready;
//   - each static pod has one mirror, of its present version, whose phase is the pod's, and
//     which goes with it; a pod is deleted by its UID;
//   - a phase does not go back once it is terminal;
//   - a pod is evicted only when its node runs short, and no pod before one that uses more
//     beyond its request; it is preempted only for a critical one, static or by its priority, that waits for
//     what it has; the node's conditions are over at rest;
//   - no pod begins that came while its node was short, by the specification of evictions, and nobody is kept
//     out who may begin;
//   - a pod that is published as over, or deleted, has no device, CPU or claim any more, as the node answers
//     monitors; a pod is rejected for lack of them only when others may have them, a critical one only when
//     those do that need not make room for it;
//   - pods with user namespaces of their own share no IDs;
//   - no image goes that a container has, those that nobody needs go before a pod is evicted for the disk, and
//     of the dead instances of a container one stays;
//   - what the kernel killed for its memory is said to be OOMKilled, and an event says so unless
//     something is in its way;
//   - when the machine goes down, pods have their graces as far as their group's time goes, those
//     of a high priority run the longest, and nothing runs in the end; static pods are back after the boot;
//   - at rest there are leases and statuses of the node at their periods, tokens, and a
//     bounded number of reads.
//
// # Runs
//
//	go test ./internal/sim                                   # 100 schedules of hours, 15 with -race; make test runs 300 beside
//	go test ./internal/sim -run TestSeeds -seeds 100 -node   # of whole nodes alone, which take three times as long
//	go test ./internal/sim -run TestSeeds -seeds 10000       # a night's; two processes with GOMAXPROCS=1 and half of them each take a twentieth less
//	go test ./internal/sim -run TestSeeds -seeds 1 -seed 45  # one again
//	go test ./internal/sim -run TestReplay -v -replays 20    # how often a seed takes the same way
//	go test ./internal/sim -run TestWeek -weeks 3 -v         # what a week with 20 pods costs
//	make clocks                                              # on a machine whose wall clock jumps
//
// A schedule that fails is made short before it is shown. Goroutines of a bubble
// run in any order, so that a seed does not always take the same way: of 40 seeds that
// TestReplay ran three times each, none had its effects in the same order each time, and
// four had the same ones in the same seconds. What failed once may take some runs to
// fail again.
//
// # Cost
//
// TestWeek has schedules of a week with 20 pods all the time, a line for each in the format of
// go test -bench. On two CPUs under much other load, which doubles such times at least, a week took
//
//	                                   CPU [s]     allocations [10⁶]   effects
//	rest: nobody ends, no probes       1.8 to 2.9  3.5 to 6.3          200
//	quiet: some pods restart for ever  8 to 13     11 to 22            19,000 to 69,000
//	usual: a trouble in 80 minutes     2 to 4.9    4.1 to 8.6          11,000
//	stormy: a trouble in 10 minutes    5 to 11     9 to 19             46,000 to 230,000
//
// A week at rest is 7,000 looks of workers at their pods (rareSyncs; three times as many with
// syncFrequency), 10,000 turns of the agent's loop, 2,000 passes of each garbage collector, and 1,000
// sweeps; a restart of a container is ten effects. Of an ordinary schedule a fifth is calls of the
// kernel for files, another the pods' workers, and the rest in many small parts.
//
// # Mutations
//
// Faults that were put into the code by hand to see whether a judgement finds them, and in
// how many of the schedules 1 to 200:
//
//	directories are not synced                                              198
//	a grace period is a third of what it should be                          188
//	volumes stay mounted at a pod's end                                     175
//	restart counts begin anew with each agent                               155
//	containers start again with policy Never                                142
//	secrets are on the disk                                                 132
//	devices are not given back at a pod's end                                69
//	files that were written once are written for ever                        52
//	tokens are not renewed                                                   50
//	claims are not unprepared at a pod's end                                 37
//	a volume is not unpublished                                              36
//	a driver hears of a volume before there is a record                      36
//	files are not synced before they are renamed                             32
//	a volume is not unstaged                                                 30
//	CPUs are not given back at a pod's end                                   24
//	a readiness result is not published                                      19
//	a probe fails at its first failure                                       14
//	a volume is staged before it is attached                                 10
//	objects that change do not reach the pod                                  4
//	a container whose readiness no probe of this agent has told is ready      4
//	a liveness failure has nobody look at the pod                             2
//	a StopContainer that failed counts as done                                2
//
// CPUs that are not given back, directories that are not synced, restart counts and volumes
// that are staged too early were missed at first, or found once: each got a judgement, or
// more schedules that come near it.
//
// Not found in 200, but by a schedule of testdata: a readiness of the journal that is
// believed whatever was published, an update of a cpuset that failed and is forgotten,
// volumes of rejected pods that stay, stored statuses that are published although they
// are old, a second life without a reservation. Not found, since something else
// guards against each: a stage that ends while others have the volume (volumemgr does not ask for
// that), a failed mount that is ignored (podspec has no path for it), a token that is kept
// to its end (it is dropped then).
//
// Of whole nodes, in how many of the schedules 1 to 48 (-node); the last column is whether
// testdata/node/given-and-taken-back.txt finds it, which is there for them (-: the seeds were not tried):
//
//	devices are not given back, or only with the next sweep                  32  yes
//	CPUs are not given back at a pod's end                                   33  yes
//	devices that are given back stay taken                                    1  yes
//	claims are not unprepared at a pod's end                                  -  yes
//	pods are admitted whatever the node is short of                           5  yes
//	BestEffort pods are admitted while memory is short                        1  yes
//	Burstable pods are admitted while the disk is short                       -  yes
//	nobody is admitted while memory is short                                  -  yes
//	static pods are not admitted while the node is short                      -  yes
//	containers are collected that run                                         -  yes
//	dead containers are not collected                                        23  no
//	images are collected that are in use                                      1  yes
//	images that nobody needs are not collected                                0  yes
//	records of resizes are not removed                                        1  yes
//	tokens are not renewed                                                   12  no
//	a critical pod ends other critical ones                                   -  yes
//	nobody ends for a critical pod                                            -  yes
//	pods end for others that are not critical                                 -  yes
//	user namespaces are not given back                                        -  yes
//	two pods have the IDs of one user namespace                               -  yes
//
// The generator changed while they were counted: each is the number of its time.
// Before there were judgements of what a node has given, none of 48 schedules found the first.
//
// Without their mends, the schedules of testdata fail, some in one run of several.
//
// # What it found
//
// What each would have done to a user:
//
//	a failed StopContainer, or a runtime that was away at the time, ended a container without its grace period
//	a pod that came back while it was ended as an unknown one had one second to end
//	a pod that ended just before it was deleted stayed on the API server for ever, and so did one deleted while the agent did not hear of it
//	a pod whose devices came later than the agent lost its history and its restart counts
//	a pod that was rejected and then waited, or came back while it was being ended, began without its devices or CPUs, which others could get
//	statuses of all pods waited for a hung disk; what the disk wrote late, or failed to remove, came back after its pod was gone
//	readiness flipped at a restart of the agent, to unready where its disk had failed, and to ready where a hung disk had kept an old result
//	claims, devices and resizes were forgotten by an agent that began on a hung disk: given twice, never given back, decided on again
//	a pod lost its own CPUs, also while it ran on them, to the checkpoint of a pod that was gone
//	a container kept CPUs that had become another pod's own, after an update of its cpuset that was done and answered with an error
//	a pod that had ended was gone from the API server while a runtime that was away had its containers
//	a file of a restart that a failing disk had half written stayed until the agent's next start
//	a volume of a pod that was rejected when its machine came back stayed staged, and could be attached nowhere else
//	a resize that the runtime failed was tried again at once, for ever, at the cost of a CPU
//	a volume that its CSI driver only said to have staged was never staged again, and its pod never ran
//	the end of a pod, on a disk that hung for longer than the start of an agent, was published by the next agent only
//	the CPU record of a pod that was gone stayed after such a start, for the next agent to believe
//	a container that restarts without a record of its devices, on a disk that fails, was tried thousands of times a minute
//	nothing of a pod was restarted by an agent that began after the pod's ConfigMap had been deleted, not even what a liveness probe found dead
//	a pod that was rejected while the API server was away, and edited then, was published as failed and run
//
// And by whole nodes:
//
//	a Node that was ready was published as not ready at each start of its agent, for a moment, since the runtime answered before the agent had looked at its pods
//	a static pod that had ended and was edited took over its earlier version's end from the mirror that was still there, and was killed as it began
//	a static pod that was rejected, or that came and ended while the API server was away, was never shown there
//	a static pod that was rejected and admitted by the next agent had its sandbox made and ended, and never ran, as its mirror said that it had failed
//	statuses of a pod were never published again after a server had asked for patience, since each try that was too early had the time begin anew
//	a node that was made, and could not be run, left a goroutine behind
//	a pod that was ready was published as unready by an agent that began on a hung disk while the API server was slow
//	a pod that had ended for a shutdown had another reason after the boot, since it was asked for again
//	the first init container of a static pod that had ended was begun again, where the pod's containers had been removed
//	a static pod that came back before the API server had deleted its mirror was ended as it began
//	static pods did not come back after a shutdown of the machine in order, and were ended as they began
//	the removal of a manifest was not seen while the disk hung, and the pod was begun when it came back
//	a pod that had ended was run again by an agent that began while the API server was slow, since a failing disk still had it
//	a pod that ran was ended by the next agent as an unknown one, where a failing disk had no record of it, the API server was slow, and other pods were on record
//	a pod that ran was ended by the next agent as an unknown one, where a failing disk had no record of it, and the slow API server had its ConfigMap later than the pod
//	a pod that was ended for a shutdown, an eviction or its deadline was published as failed with containers that ran, for a moment, or until a slow API server took more
//	a static pod that ran again after a shutdown was published as failed with containers that ran, since the mirror that its agent remembered was older than the server's
//	dead containers of a pod that a failing disk had no record of were removed before a slow API server had answered, and its next restart was not counted
//	a pod that waited for devices while more important ones began was shown to wait for each of the two in turn, several times a second
//	a pod that had ended for a shutdown, and that a failing disk had no end of, was shown as failed with containers that ran, until a slow API server had answered
//	a static pod that began beside a more important one, on a node that was full, was rejected for good, and nobody ended for it
//	a container that ran was replaced by one of the image before an edit that a hung disk had not taken, while the API server was slow
//	on a disk that failed, each change of a pod had the records of all pods be tried again
//	a pod that was rejected after a boot kept its devices until it was deleted, and others were rejected for lack of them
//	a pod that was rejected before the API server had answered was shown as failed, with containers that had run before
//	pods that waited for a device plugin which listed and went again and again had another status each second
//	a pod with policy Never that lost its sandbox between its init containers and the others, as in a boot, was pending for ever
//	a pod whose end the API server had taken was run again by an agent that began while the server was slow, since its watch had not told the agent before
//	a static pod that had ended, and whose containers had gone for a short disk, was run again by an agent that began while the API server failed
//	a pod that waited to be admitted again after a boot, and whose containers could not be asked for, was shown with a restart of each that the runtime knew nothing of
//	a static pod that ran again after a shutdown which was called off was published as failed, since that end had waited for a hung disk
//	tokens of before were unknown to an agent that began on a disk which hung or failed, and all that asked for one waited for the disk
//	a static pod that waited for the end of its earlier version never ran if it was ended then for a shutdown that was called off
//
// # What is open
//
// Of a dead agent's last patch, with the end of a static pod, that a slow API server takes
// when the pod runs again, judgeStatus would say that the pod is over and runs: no seed has come to that.
// Seed 6600064 of whole nodes came to a patch of the living agent's that is on its way when a static pod, ended
// for a shutdown that is called off, begins anew. Its mirror is made again then.
//
// # What is left out
//
// The node's API, its sockets for plugins, and its cgroups, since they need sockets, TLS
// and the kernel: a bubble's time stands still in these calls. Block devices, and volumes of other kinds than
// those above. Reads of a disk neither fail nor hang, only its changes do; writes of volumes'
// content, of manifests and of what the API server keeps do neither. What is known of a static pod's past
// is in its mirror: an agent that begins before it hears of that, as the kubelet does,
// counts restarts by what the runtime has, which is not judged over a start. Nor does
// an agent register a Node again that somebody has deleted, before its next start.
// A mutex that is held while its holder waits stops a bubble for good: locks that are held
// over a disk are channels. Without make clocks the wall clock of the agent does not
// jump, as that of a bubble cannot; the runtime's does, by years.
package sim
