// Package statusmgr keeps the status of every pod, and publishes it: at once to
// subscribers in this process, and through a [Sink] to others.
//
// [Manager.Set] takes a freshly computed status. If it differs from the previous
// one it gets a version, and [Manager.Get] returns it from then on; impossible
// transitions in it are reverted:
//
//	m, err := statusmgr.New(statusmgr.Config{Sink: sink, Store: store})
//	if err != nil {
//		return err
//	}
//	err = m.Restore(ctx) // before the first pod is adopted
//	go m.Run(ctx)
//	changed := m.Set(pod, status)
//
// Set is for a pod whose status is published under its own object. [Manager.Show] takes a [Report],
// which has the status, the object under which it is published, how certain that object is, and
// whether containers may run. So a write needs no further question about the pod.
// [Manager.Republish] sets another object.
//
// The package is for pods: statuses are v1.PodStatus, the keys are UIDs of pods, and it refuses
// impossible transitions of pods. To publish the state of anything else, use package serial
// (podworker/serial) with a handler that writes.
//
// The only dependency is a sink, and it is needed only to publish. [FileSink] writes a
// file for each pod. The example of [Sink] shows a sink of twenty lines.
//
// # States
//
// The publication of each pod is a state machine without clock, lock or goroutine (state.go,
// step.go). The Manager gives it the events and executes the effects. The histories in testdata
// show the effects of each sequence of events; TestHistories plays them, and with -update rewrites
// them.
//
// # Order
//
// Subscribers see every accepted status of a pod in order. The sink gets the newest one:
// changes that come during a write are combined into the next write, which is skipped if
// they cancel each other out. Writes of different pods run in parallel; a failed write is
// retried with back-off. Pods whose phase or readiness changed, and pods that have ended,
// are written first, but every fourth slot goes to the others. Pods whose last write
// failed use at most half of the slots: a sink that hangs for some pods delays the others
// by at most 30 seconds, once, and only if all slots hang at the same time.
//
// # What is never published
//
//   - A terminal phase, its reason and its message while containers may still run
//     (Report.Runs). The rest of the status is published at once.
//   - A status that may be a guess, or whose object is only remembered (Shown.By).
//   - Another phase after a terminal one.
//   - The deletion of a pod before [Manager.Terminate] says that nothing of it is left, or
//     of a mirror pod.
//
// Fields that other writers own are left alone: see merge.
//
// # Faults
//
// With a Config.Store, unpublished statuses survive a crash of the agent. Final statuses
// (of pods that have ended) are stored before they are given to the sink; other statuses
// are stored when a write fails or takes longer than a second; and all unpublished ones
// when Run ends. A status is stored once per change, however often its write fails, and
// removed once it is published.
//
// After a restart, a stored final status is published even if Set is not called for its pod,
// provided that nothing of the pod ran when the status was stored. The final status of a static pod
// waits for Set, since the pod may have begun again. Any other stored status may be older than the
// published one, if the store failed to remove it: it is used only once the pod is Set, and
// discarded if the API object has a newer status ([Manager.Adopt]). If the sink is a [Loader], the
// first status of a pod after a restart is compared with the published one: start times, transition
// times, restart counts and terminated containers are preserved, and an equal status is not
// written. A failing store delays nothing.
//
// Tier: beta.
package statusmgr
