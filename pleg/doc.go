// Package pleg observes every pod in the container runtime, and reports each change. The
// name is the kubelet's: pod lifecycle event generator.
//
// A [Manager] combines two sources. The runtime's event stream names the pods to
// inspect; a relist compares the runtime's lists, which are cheap, with the last
// known state and names the pods whose events were lost. Either way one pod is
// inspected, its status is cached, and an event is sent:
//
//	m, err := pleg.New(pleg.Config{Runtime: cri.NewReader(client)})
//	if err != nil {
//		return err
//	}
//	go m.Run(ctx)
//	for ev := range m.Events() {
//		seen := m.View(ev.UID)
//		...
//	}
//
// While the event stream is open and relists find no change that it missed, the
// interval between relists grows to 5 minutes; a relist that finds one resets it.
// Without a stream there is a relist every second.
//
// A runtime event that repeats a state already seen by an inspection is dropped. An
// event that is newer than the last inspection is not dropped even if it names an
// earlier state, since some runtimes start a virtual machine again under its old ID.
// Runtimes report any other change by [observed.ContainerChanged].
//
// # Freshness
//
// [Manager.GetNewerThan] returns a status that was read from the runtime after the
// given time. If the cached one is older, the pod is inspected at once.
//
// # Faults
//
// An inspection that fails or hangs affects its pod alone: it is retried with
// back-off, [Manager.Hung] lists it, and after a second it no longer occupies one of the
// slots for inspections. [Manager.Healthy] reports the health of the runtime as a whole.
// Events that are not consumed are merged by pod, and never dropped.
//
// Tier: beta.
package pleg
