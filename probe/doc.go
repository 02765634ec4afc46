// Package probe runs the health checks of a node's containers: startup, readiness and
// liveness probes by exec, HTTP, TCP and gRPC, with the kubelet's rules, timing, metrics and
// events.
//
//	m, err := probe.New(probe.Config{Exec: runtime, Journal: store, OnChange: func(c probe.Change) {
//		resync(c.Pod.UID)
//	}})
//	if err != nil {
//		return err
//	}
//	go m.Run(ctx)
//	...
//	m.Observe(pod, obs) // before each status is computed
//	status := podstatus.Of(podstatus.Input{Pod: pod, Observed: obs, Ready: m.Ready, Started: m.Started})
//
// Nothing is polled: [Manager.Observe] takes the state of the runtime, and Config.OnChange
// gets the results of probes. The checks and their timing can be used alone: [HTTPCheck] and
// [Engine] work without pods.
//
// # Results
//
// A new container begins with readiness Failure, liveness Success and startup Unknown.
// Liveness and readiness probes wait for the startup probe. After a startup result, and
// after a liveness Failure, the probe stops until there is a new container. Results and
// counts belong to one container; the next one starts with none. The end of Run does not
// change any result.
//
// # Restarts of the agent
//
// The results of a pod are written to Config.Journal before they are reported, and are read
// back when the pod is first observed. A running container that is not in the journal, or
// whose readiness there differs from the pod's status, or that of a pod whose status is not
// known yet (Config.Published), has Unknown results until its first checks, which are made at
// once; until then its published readiness should be kept ([Manager.Unsure]). A
// liveness or startup Failure is not restored: the probe has to fail again. A failing or
// slow journal delays results by 100 ms at most.
//
// # Errors
//
// A check that cannot be executed (the runtime does not answer, there is no port of that
// name) is not a result. It is an event, a metric and, after as many times as the failure
// threshold, a log line. An exec probe for which the runtime reports neither an end nor a
// timeout counts as a failure of the container if the runtime answered other calls
// meanwhile, and as an error otherwise.
//
// # Time
//
// The wall clock is used once for a container that already runs when its pod is first
// observed, to compute the rest of its initial delay. A start time in the future, or more
// than a year ago, counts as now.
//
// # One check
//
// [HTTPCheck], [TCPCheck] and [ExecCheck] make one health check at a time: an HTTP request, a TCP
// connection, or a command. It needs the standard library only, no pod and no
// container runtime:
//
//	c := probe.HTTPCheck{URL: &url.URL{Scheme: "http", Host: "127.0.0.1:8080", Path: "/healthz"}}
//	ctx, cancel := context.WithTimeout(ctx, time.Second)
//	defer cancel()
//	outcome, output, err := c.Check(ctx)
//
// Each checker judges by the kubelet's rules, so that a probe that works there
// works here. Package grpchealth, below this one, speaks gRPC's health
// protocol.
//
// # One check: outcome and error
//
// The outcome is the judgement of what was checked, and output says why. An
// error means that there is no judgement: what was to be asked could not be
// asked, and whoever asked should neither trust nor blame what was checked. A
// server that refuses or does not answer is a [OutcomeFailure] without an error.
//
// # One check: connections
//
// A check opens a connection and ends it with a reset once it has all it
// wants: neither side keeps the connection in TIME_WAIT, which at a check each
// second would be 60 dead sockets for each server. Field Graceful of the
// checkers asks for an orderly end instead, for servers that log resets.
//
// Every checker ends when its context does. All values may be used from many
// goroutines at a time.
//
// # Checks on time
//
// [Engine] runs health checks on time: when the first one is due, how often, and
// how many results in a row change a verdict. It knows checks, and nothing of pods; a
// supervisor of plain processes can use it as it is:
//
//	e, err := probe.NewEngine(probe.EngineConfig{})
//	if err != nil {
//		return err
//	}
//	go e.Run(ctx)
//	p := e.Add(probe.ScheduleSpec{
//		Timing: probe.Timing{Period: time.Second},
//		Check:  probe.TCPCheck{Host: "127.0.0.1", Port: 5432}.Check,
//		Done:   func(r probe.Round) (again bool) { fmt.Println(r.Verdict); return true },
//	})
//	defer p.Stop()
//
// # Checks on time: cost
//
// A waiting probe is an entry in a heap with one timer for all. There are
// goroutines only for checks under way. They have places, Config.Parallel of
// them, and Config.ParallelExpensive for those that cost the node more, such
// as commands. Checks that are due wait in order for a place. Those that took
// their whole timeout the last time get half of the places at most: servers
// that hang hold up each other, and nobody else.
//
// # Checks on time: fair shares
//
// Probes with a [ScheduleSpec].Group, such as those of one pod, share. Groups have
// places in turn, however many checks each of them has due. A check that runs
// for a second gives its place to the next in line and goes on. A group has as
// many checks under way as a quarter of the places, those without a place
// counted too, and half of that for checks that took a second the last time or
// do so now. So checks that hang for an hour cost other groups a second once, and
// all checks under way are at most the places and a quarter of them for each
// group.
//
// # Checks on time: time
//
// Every decision uses the monotonic clock. A check that takes longer than its
// period makes the missed ones into one, which follows at once; the ones after
// keep the rhythm.
//
// # Checks on time: errors
//
// A check that ends with an error is tried again, three times in all and
// within the one timeout. If there is still an error the round counts neither
// as a success nor as a failure, however often it happens: an error is about
// whoever asked (the runtime is down, the port has no such name), and a node
// whose runtime restarts must not fail all its probes. [Round].Errors reports
// how long this goes on. A panic in a check is such an error.
//
// Tier: beta.
package probe
