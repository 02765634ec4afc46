// Package containergc removes what dead containers leave behind: the containers
// themselves, sandboxes, log directories of pods that are gone, and links to
// logs that are not there any more.
//
//	m, err := containergc.New(containergc.Config{Runtime: runtime, Pods: pods})
//	if err != nil {
//		return err
//	}
//	go m.Run(ctx)
//	m.Died(uid)                    // a container of that pod ended
//	removed, err := m.Reclaim(ctx) // now, for an eviction manager
//
// It needs a [Runtime], of which package overcri has one, and [Pods], which
// reports each pod whether it lives, is over, or is gone. [DecideContainers]
// and [DecideSandboxes] are the decisions, without any of it.
//
// # What stays
//
// Whatever runs, and the containers that were made and not started yet of a pod
// that lives. Of each container of such a pod the newest dead instance, however
// low the limits are: its state, its restart count and its logs are the pod's.
// The newest sandbox of a pod that is not gone, and every sandbox that is ready
// or that a container refers to. Before all sources of pods have spoken every
// pod counts as one that lives.
//
// # Pods that start
//
// Who syncs a pod holds it meanwhile: [Manager.Hold] waits until nothing of the
// pod is being removed, and until it is released nothing will be. That matters
// for pods with an UID that comes back, as that of a static pod whose file was
// removed and put back, and for plans that were made of an instance that is to
// go. See package hold for what exactly it keeps true.
//
// # When
//
// A second after [Manager.Died] for the pod it names, and every five minutes for
// all: the kubelet looks at all of them each minute. The link to the log of a
// container goes with the container.
//
// # Faults
//
// A container, sandbox or directory that cannot be removed is reported and
// passed over, and counts as there. Every call has a deadline; the pods of a
// pass are worked on side by side, so that one that hangs holds up no other of
// them, and the next pass for no longer than Config.Timeout.
//
// Tier: beta.
package containergc
