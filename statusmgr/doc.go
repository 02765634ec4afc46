// Package statusmgr keeps the status of every pod and hands it to whoever
// wants it: at once to those in this process, and through a [Sink] to the
// world.
//
// [Manager.Set] takes a freshly computed status. It is accepted if it says
// anything new and nothing impossible, gets a version, and is what
// [Manager.Get] returns from then on:
//
//	m, err := statusmgr.New(statusmgr.Config{Sink: sink})
//	if err != nil {
//		return err
//	}
//	go m.Run(ctx)
//	changed := m.Set(pod, status)
//
// # Order
//
// Subscribers see every accepted status of a pod in order. The sink gets the
// newest one: several changes that it was too slow for are one write. Writes
// of different pods run side by side, so that a pod whose write fails or hangs
// holds up nobody else; it is tried again with back-off. Pods whose phase or
// readiness changed come before others.
//
// # What is never published
//
// A terminal phase while containers may run (Config.CouldHaveRunning), and a
// terminal phase taken back.
package statusmgr
