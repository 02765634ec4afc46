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
// It is for pods: statuses are v1.PodStatus, keyed by a pod's UID, and the transitions
// that it refuses are those of pods. To publish the state of anything else, take
// package serial (podworker/serial) with a handler that writes.
//
// It needs nothing but a sink, and that only to publish. [FileSink] writes a file
// per pod, [MemorySink] keeps all in memory; the example of [Sink] shows one of
// twenty lines.
//
// # States
//
// The publication of each pod is a state machine without clock, lock or
// goroutine (state.go, step.go, result.go). The Manager delivers its events and
// carries out its effects. The histories in testdata show the effects of each
// sequence of events; TestHistories plays them, and with -update rewrites them.
//
// # Order
//
// Subscribers see every accepted status of a pod in order. The sink gets the
// newest one: several changes that it was too slow for are one write, or none
// if the last one restores the first. Writes of different pods run in parallel,
// and a write that fails is repeated with back-off. Pods whose phase or
// readiness changed, or that are over, come before others, which nevertheless
// have every fourth turn. Pods whose last write failed have half of the slots
// at most: a pod that fails or hangs delays others once, for Config.Timeout, and
// only if as many as there are slots hang together.
//
// # What is never published
//
// A terminal phase while containers may run (Config.CouldHaveRunning), with
// its reason and message: everything else is published, and the phase once they
// have stopped. Another phase after a terminal one. The deletion of a pod of
// which anything is left (Config.Reclaimed), or of a mirror. Fields that others
// write stay as they are: see [Merge].
//
// # Faults
//
// Statuses that the sink has not taken survive a crash of the agent if there is
// a Config.Store. Final ones, of pods that are over, are stored before the sink
// gets them, others when a write of theirs fails or lasts longer than a second,
// and all that are left when Run ends. A status is stored once per change,
// however often its write fails, and removed when it is published. After a
// restart a final one is published again though nobody sets it. Any other may be older
// than what was published, if the store could not remove it: it waits until the pod is
// Set, and counts for nothing if the API's object has a newer status ([Manager.Adopt]).
// If the sink is a [Loader], the first status of a pod after a restart is compared with the
// published one: start times, transition times, restart counts and terminated
// containers stay, and a status that is the same is not written. A store that
// fails delays nothing.
//
// Tier: beta.
package statusmgr
