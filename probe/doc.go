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
//	m.Observe(podlife.Life{UID: pod.UID}, pod, obs) // before each status is computed
//	status := podstatus.Of(podstatus.Input{Pod: pod, Observed: obs, Ready: m.Ready, Started: m.Started})
//
// Nothing is polled: [Manager.Observe] takes the state of the runtime, and Config.OnChange
// gets the results of probes. Single checks and their timing, without pods, are package check.
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
// The results of a pod are written to Config.Journal before they are reported, and are read back
// when the pod is first observed. A running container has Unknown results until its first checks,
// which are made at once, in three cases: it is not in the journal; its readiness in the journal
// differs from the pod's status; or the pod's status is not known yet (Config.Published). Until
// then its published readiness should be kept ([Manager.Unsure]). A liveness or startup Failure is
// not restored: the probe has to fail again. A failing or slow journal delays results by 100 ms at
// most.
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
// Tier: beta.
package probe
