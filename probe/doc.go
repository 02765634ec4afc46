// Package probe keeps the health checks of a node's containers: startup,
// readiness and liveness probes by exec, HTTP, TCP and gRPC, with the kubelet's
// rules, timing, metrics and events.
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
// Nothing is polled: [Manager.Observe] brings what the runtime shows, Config.OnChange
// takes what probes find out. The checks themselves are package check, their
// timing is package schedule; both can be had without pods.
//
// # Results
//
// A fresh container begins with readiness Failure, liveness Success and
// startup Unknown. Liveness and readiness probes wait for the startup probe.
// After a startup result, and after a liveness Failure, the probe rests until
// there is a new container. A result belongs to one container: all counting
// starts afresh with the next. The end of Run says nothing about anybody.
//
// # Restarts of the agent
//
// Each pod's results are in Config.Journal before anyone is told of them, and
// are read back when the pod is first observed. A container that runs already
// and is not in there has Unknown results until its first checks, which are
// made at once; whoever computes statuses should then keep what was shown
// before. So has a container whose readiness in the pod's status is another one than
// in the journal. A liveness or startup Failure is not restored: the probe has to find
// it out again. A failing or slow journal delays results by 100 ms at most.
//
// # Errors
//
// A check that cannot be made (the runtime does not answer, a port has no such
// name) says nothing about the container: it is an event, a metric and, after
// as many as the failure threshold, a log line, but never a result. An exec
// probe that nothing is heard of, neither its end nor its timeout, is the
// container's failure if the runtime answered others meanwhile, and else an
// error.
//
// # Time
//
// The wall clock is read once for a container: when it runs already as its pod
// is first observed, to find out how much of its initial delay is over. A start in
// the future, or more than a year ago, counts as now.
//
// Tier: beta.
package probe
