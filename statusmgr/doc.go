// Package statusmgr keeps the status of every pod and hands it to whoever
// wants it: at once to those in this process, and through a [Sink] to the
// world.
//
// [Manager.Set] takes a freshly computed status. It is accepted if it says
// anything new and nothing impossible, gets a version, and is what
// [Manager.Get] returns from then on:
//
//	m, err := statusmgr.New(statusmgr.Config{Sink: sink, Store: store})
//	if err != nil {
//		return err
//	}
//	err = m.Restore(ctx) // before the first pod is taken up
//	go m.Run(ctx)
//	changed := m.Set(pod, status)
//
// It needs nothing but a sink, and that only to publish. filesink writes a
// file per pod, memsink keeps all in memory; the example of [Sink] shows one of
// twenty lines.
//
// # Order
//
// Subscribers see every accepted status of a pod in order. The sink gets the
// newest one: several changes that it was too slow for are one write, or none
// if they took each other back. Writes of different pods run side by side, and
// a write that fails is tried again with back-off. Pods whose phase or
// readiness changed, or that are over, come before others, which every fourth
// turn is nevertheless for. Pods whose last write failed have half of the
// slots at most: a pod that fails or hangs holds up others once, for
// Config.Timeout, and only if as many as there are slots hang together.
//
// # What is never published
//
// A terminal phase while containers may run (Config.CouldHaveRunning), with
// its reason and message: all else goes out, and the phase when they have
// stopped. A terminal phase taken back. The deletion of a pod of which
// anything is left (Config.Reclaimed), or of a mirror. What others write to a
// status stays as it is: see [Merge].
//
// # Faults
//
// What the sink has not taken survives a crash of the agent, if there is a
// Config.Store: ends of pods are stored before the sink hears of them, other
// statuses when a write of theirs fails or lasts longer than a second, and all
// that is left when Run ends. A status is stored once per change, however
// often its write fails, and removed when it is published. After a restart it
// is published again though nobody sets it, and what was published before is
// what the first status of a pod changes, if the sink is a [Loader]: start
// times, transition times, restart counts and ends stay, and what has not
// changed is not written. A store that fails delays nothing.
package statusmgr
