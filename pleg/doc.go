// Package pleg observes every pod in the container runtime, and reports each change. The
// name is the kubelet's: pod lifecycle event generator.
//
// A [Manager] joins two sources into one path. The runtime's event stream
// names pods to look at; a relist, which compares cheap lists of all pods with
// what is known, names those that the stream was silent about. Either way the
// one pod is inspected, the result is kept, and whoever listens is told:
//
//	m, err := pleg.New(pleg.Config{Runtime: cri.NewReader(client)})
//	if err != nil {
//		return err
//	}
//	go m.Run(ctx)
//	for ev := range m.Events() {
//		pod, err := m.Get(ev.UID)
//		...
//	}
//
// With a stream the relists become rarer, down to one in 5 minutes, for as
// long as they find nothing that events did not tell; one that does find
// something brings them back. Without a stream there is a relist every second.
//
// An event that says what the last look has shown is dropped. One of a state
// that was left behind, of later than that look, is not: runtimes that start a
// machine again under its ID are believed. Those that have other changes to tell
// of send [observed.ContainerChanged].
//
// # Freshness
//
// [Manager.GetNewerThan] answers with what was asked of the runtime after the
// given time, and inspects the pod at once if it has nothing so new.
//
// # Faults
//
// An inspection that fails or hangs is that pod's matter: it is tried again
// with back-off, shows in [Manager.Hung], and makes room for others after a
// second. [Manager.Healthy] speaks of the runtime as a whole. Events are
// merged by pod while nobody takes them, and never dropped.
//
// Tier: beta.
package pleg
