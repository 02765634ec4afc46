// Package check makes health checks by the kubelet's rules: one at a time ([HTTP], [TCP] and
// [Exec]), or on time, with thresholds for the verdict ([Engine]). It needs the standard
// library only, no pod and no container runtime:
//
//	c := check.HTTP{URL: &url.URL{Scheme: "http", Host: "127.0.0.1:8080", Path: "/healthz"}}
//	ctx, cancel := context.WithTimeout(ctx, time.Second)
//	defer cancel()
//	outcome, output, err := c.Check(ctx)
//
// Package grpchealth, below this one, makes the checks of gRPC's health protocol.
//
// A probe that works with a kubelet works here. Every check ends when its context does. All
// values may be used from many goroutines at a time.
//
// # Outcome and error
//
// The outcome is the judgement of what was checked, and output says why. An
// error means that there is no judgement: what was to be asked could not be
// asked, and whoever asked should neither trust nor blame what was checked. A
// server that refuses or does not answer is a [Failure] without an error.
//
// # Connections
//
// A check opens a connection and ends it with a reset once it has all it
// wants: neither side keeps the connection in TIME_WAIT, which at a check each
// second would be 60 dead sockets for each server. Field Graceful of the
// checkers asks for an orderly end instead, for servers that log resets.
//
// # Checks on time
//
// [Engine] runs checks when they are due. A supervisor of plain processes can use it as it is:
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
// A waiting probe is an entry in a heap with one timer for all. There are
// goroutines only for checks under way. They have places, EngineConfig.Parallel of
// them, and EngineConfig.ParallelExpensive for those that cost the node more, such
// as commands. Checks that are due wait in order for a place. Those that took
// their whole timeout the last time get half of the places at most: servers
// that hang hold up each other, and nobody else.
//
// Every decision uses the monotonic clock. A check that takes longer than its
// period makes the missed ones into one, which follows at once; the ones after
// keep the rhythm.
//
// # Fair shares
//
// Probes with a [Spec].Group, such as those of one pod, share. Groups have
// places in turn, however many checks each of them has due. A check that runs
// for a second gives its place to the next in line and goes on. A group has as
// many checks under way as a quarter of the places, those without a place
// counted too, and half of that for checks that took a second the last time or
// do so now. So checks that hang for an hour cost other groups a second once, and
// all checks under way are at most the places and a quarter of them for each
// group.
//
// # Errors of checks on time
//
// A check that ends with an error is tried again, three times in all and
// within the one timeout. If there is still an error the round counts neither
// as a success nor as a failure, however often it happens: an error is about
// whoever asked (the runtime is down, the port has no such name), and a node
// whose runtime restarts must not fail all its probes. [Round].Errors reports
// how long this goes on. A panic in a check is such an error.
//
// Tier: stable.
package check
