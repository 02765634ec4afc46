// Package podworker drives every pod through its lifecycle: synced while it is
// wanted, then terminated, then cleaned up.
//
// A [Manager] keeps one record for each pod UID and calls a [Syncer], which
// does the work. For one UID the calls are strictly serial, whatever happens
// around them:
//
//	SyncPod ... SyncPod -> SyncTerminatingPod -> SyncTerminatedPod
//
// Each stage is repeated until it succeeds, with exponential back-off and a timer for each pod;
// nothing polls. A pod without a call in flight costs a record and a timer, but no goroutine.
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
// The record of a finished pod stays until [Manager.SyncKnownPods] is called without that pod, so
// that no late update except a create can start it again. A program that never calls SyncKnownPods
// keeps a record and the last spec of each pod it ever had.
//
// # Promises
//
// Updates coalesce: of several pending updates, the worker sees the last one. A request to
// terminate a pod is never lost when updates coalesce, and cannot be revoked. It cancels the sync
// in flight. A grace period can only be shortened, which cancels the termination in flight.
//
// Static pods of one full name run one after another, in the order of their first update. The next
// one starts when the previous one has been cleaned up.
//
// A create for a pod that is being terminated does not start it again. A create for a finished pod
// does; Config.Finished is called when a pod has finished.
//
// # Faults
//
// A syncer that returns an error is called again after a delay; a panic counts as an
// error. A syncer that hangs delays its own pod alone, and after 10 s no longer counts
// against the limit of first syncs. [KillOptions].Done is closed in every case.
//
// # Implementation
//
// The lifecycle of a pod is a state machine without clock, lock or goroutine (step). The
// Manager executes the actions that it returns. The histories in testdata list events and
// the resulting actions; go test -rewrite updates them.
//
// Package [serial] has the part that is not about pods: serial execution for each key, with
// goroutines, timers, back-off and limits. Use it directly for everything except pods.
//
// Tier: beta.
//
// [serial]: https://pkg.go.dev/github.com/nodewright/nodewright/podworker/serial
package podworker
