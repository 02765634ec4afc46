// Package check makes health checks by the kubelet's rules: single ones ([HTTP],
// [TCP] and [Exec]), or periodic ones with thresholds ([Engine]). It needs only the
// standard library, no pod and no container runtime:
//
//	c := check.HTTP{URL: &url.URL{Scheme: "http", Host: "127.0.0.1:8080", Path: "/healthz"}}
//	ctx, cancel := context.WithTimeout(ctx, time.Second)
//	defer cancel()
//	outcome, output, err := c.Check(ctx)
//
// Package grpchealth, below this one, makes the checks of gRPC's health protocol.
//
// A probe that works with a kubelet works here. Every check ends when its context
// does. All values may be used concurrently.
//
// # Outcome and error
//
// The outcome is the result of the check, and output the reason. An error means
// that the check could not be made, and that nothing is known about its target. A
// server that refuses or does not answer is a [Failure] without an error.
//
// # Connections
//
// A check opens a connection and resets it at the end: neither side has a socket in TIME_WAIT. A
// check each second would otherwise leave 60 such sockets for each server. The field Graceful
// closes connections with a FIN instead, for servers that log resets.
//
// # Checks on time
//
// [Engine] runs checks when they are due. A supervisor of plain processes can use
// it:
//
//	e, err := check.NewEngine(check.EngineConfig{})
//	if err != nil {
//		return err
//	}
//	go e.Run(ctx)
//	p := e.Add(check.Spec{
//		Timing: check.Timing{Period: time.Second},
//		Check:  check.TCP{Host: "127.0.0.1", Port: 5432}.Check,
//		Done:   func(r check.Round) (again bool) { fmt.Println(r.Verdict); return true },
//	})
//	defer p.Stop()
//
// Waiting probes are in a heap with one timer for all. Only running checks have
// goroutines. EngineConfig.Parallel limits the running checks, and
// EngineConfig.ParallelExpensive those that cost the node more, such as commands.
// Due checks wait in order for a slot. Checks that took their whole timeout the
// last time get at most half of the slots: hanging servers only delay each other.
//
// Every decision uses the monotonic clock. After a check that took longer than its period, one
// check is made at once in place of all missed ones, and later checks keep the rhythm.
//
// # Fairness
//
// Probes with a [Spec].Group, such as those of one pod, share slots: waiting groups
// get slots in turn, however many checks each of them has due. A check that runs
// for a second gives its slot to the next group and continues. A group can have as
// many running checks as a quarter of the slots, those without a slot included, and
// half of that for slow checks, which took a second the last time or do so now. So
// hanging checks of a group delay others only once for a second, and the number of
// running checks is limited to the slots plus a quarter of them for each group.
//
// # Errors
//
// A check that ends with an error is retried, three times in all and within its
// timeout. If there is still an error, the round counts neither as a success nor as
// a failure, however often that happens: the error is about the prober (the runtime
// is down, or no port has that name), and a restart of the runtime must not fail
// all probes of the node. [Round].Errors counts such rounds. A panic in a check is
// such an error.
//
// Tier: stable.
package check
