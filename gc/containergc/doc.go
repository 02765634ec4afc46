// Package containergc removes dead containers, unused sandboxes, log directories of pods that
// are gone, and dangling links to logs.
//
//	m, err := containergc.New(containergc.Config{Runtime: runtime, Pods: pods})
//	if err != nil {
//		return err
//	}
//	go m.Run(ctx)
//	m.Died(uid)                    // a container of that pod ended
//	removed, err := m.Reclaim(ctx) // now, for an eviction manager
//
// It needs a [Runtime], which package overcri implements, and [Pods], which reports whether a
// pod is active, has ended, or is gone. [DecideContainers] and [DecideSandboxes] are the pure
// decisions.
//
// # What is kept
//
//   - Running containers, and created containers of active pods.
//   - The newest dead instance of each container of an active pod, however low the limits
//     are: the pod's status needs its state, restart count and logs.
//   - The newest sandbox of a pod that is not gone, every sandbox that is ready, and every
//     sandbox that a container refers to.
//
// Until all sources of pods have reported, every pod counts as active.
//
// # Pods that start
//
// The code that syncs a pod holds it: [Manager.Hold] waits for removals in progress, and
// nothing of the pod is removed until it is released. That matters for a UID that comes back
// (a static pod whose file was removed and restored), and for a plan based on an instance
// that is about to be removed. See package hold for the exact guarantee.
//
// # When
//
// A second after [Manager.Died] for the pod it names, and every five minutes for
// all: the kubelet looks at all of them each minute. The link to the log of a
// container goes with the container.
//
// # Faults
//
// A container, sandbox or directory that cannot be removed is reported and skipped. Every
// call has a deadline. The pods of a pass are handled in parallel, so a hung call delays no
// other pod, and the next pass by Config.Timeout at most.
//
// Tier: beta.
package containergc
