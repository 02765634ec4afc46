// Package resize changes the resources of pods that run (KEP-1287): it decides
// which of what they ask for they are allocated, and when.
//
//	p, err := resize.New(resize.Config{Store: part.OpenStore(dir, log)})
//
// A pod that asks for other resources than it has been allocated gets them at
// once if the node has room, waits if it has not now (Deferred), or until it asks
// for something else if it never has (Infeasible). Waiting pods are decided on
// again whenever something was given back: first those that take no more than
// they have, then by priority, then Guaranteed pods, then in the order in which
// they began to wait.
//
// # Hooks
//
// part.Allocator answers which version of a pod runs, part.Housekeeper decides
// again, part.Preparer writes a pod's allocation record before its containers are
// changed, part.SyncWatcher and part.Stopper follow a resize to its end,
// part.Restorer and part.Sweeper keep the records, part.Explainer says why a pod
// waits. The host has to have part.Resizes as well.
//
// # Allocation records
//
// The store has a record, under its UID, for each pod that was resized or waited
// for it. Of other pods what their containers were made with is known from the
// containers. A record is written after the decision, and before a container is
// changed: an agent that is killed between the two decides anew.
//
// A kubelet's allocated_pods_state is newer than the records if the kubelet wrote it
// last; [Part.Run] keeps it up to date.
//
// # Ownership
//
// Decisions are made in memory on the agent's loop. Calls of the store are made
// by Restore, by Sweep, and by goroutines that [Part.Run] waits for, at most one
// for each pod, and under no lock.
//
// # Faults
//
// Until the records have been read nothing is decided, and pods have what their
// containers were made with; one that asks for something else is not synced,
// since its containers may have been resized already. Reading goes on until the disk
// answers. A single record that is damaged or cannot be read counts as missing. One that cannot be written fails the sync of a pod that
// is to be resized, with the reason ResizeError and a condition; its containers
// keep what they have. A pod that only waits is not held up by its record.
//
// Tier: beta.
package resize
