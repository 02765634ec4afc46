// Package podworker drives every pod through its lifecycle: synced while it is
// wanted, then terminated, then cleaned up.
//
// A [Manager] keeps one record for each pod UID and calls a [Syncer], which
// does the work. For one UID the calls are strictly serial, whatever happens
// around them:
//
//	SyncPod ... SyncPod -> SyncTerminatingPod -> SyncTerminatedPod
//
// Each stage is repeated until it succeeds, with exponential back-off and a
// timer of the pod's own; nothing polls. A pod at rest costs a record and a
// timer, no goroutine.
//
//	m, err := podworker.New(podworker.Config{Syncer: syncer})
//	if err != nil {
//		return err
//	}
//	go m.Run(ctx)
//	m.Update(podworker.Update{Type: podworker.CreateUpdate, Pod: pod})
//	...
//	done := make(chan struct{})
//	m.Update(podworker.Update{Type: podworker.KillUpdate, Pod: pod, Kill: &podworker.KillOptions{Done: done}})
//	<-done // its containers have stopped
//	m.SyncKnownPods(desired) // from time to time: drops the records of finished pods
//
// The record of a finished pod stays until [Manager.SyncKnownPods] is called without
// that pod, so that a late update cannot start it again. A program that never calls
// it keeps a record and the last spec of each pod it ever had.
//
// # Promises
//
// Updates coalesce: of several that a worker has not begun with, the last one
// counts. A request to end a pod is never lost among them and never taken
// back; it interrupts the sync in flight. A grace period only shrinks, and
// when it does, interrupts the termination in flight.
//
// Static pods of one full name run one after another, in the order of their
// first update; the next one is woken when the one before has been cleaned up.
//
// A create for a pod that is being terminated is kept, and starts the pod anew
// when the old one is gone.
//
// # Faults
//
// A syncer that fails is called again after a delay; one that panics has
// failed; one that hangs holds up its own pod alone, and gives its place
// among the first syncs to the next pod after 10 s. [KillOptions].Done is
// closed in every case.
//
// # How it is made
//
// The pod's life is a state machine, step: states with names, and no clock, lock
// or goroutine. The Manager carries out what it wants done. The histories in
// testdata tell what comes of what; go test -rewrite rewrites their answers.
//
// What is not about pods is package [serial]: one strictly serial life for each
// key, with its goroutine, timers, back-off and places. Those who look after
// anything else take that alone.
//
// Tier: beta.
//
// [serial]: https://pkg.go.dev/github.com/nodewright/nodewright/podworker/serial
package podworker
