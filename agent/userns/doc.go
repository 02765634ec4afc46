// Package userns sets a range of the node's user and group IDs aside for each
// pod with a user namespace of its own (hostUsers: false, KEP-127).
//
//	p, err := userns.New(userns.Config{Store: part.OpenStore(dir, log)})
//
// A range has Config.IDsPerPod IDs, 65536 of them by default. The first 65536 are the node's; a pod
// gets the lowest range that is free, and keeps it over restarts of the agent until the
// pod is gone, whatever the configuration has become: its files belong to these IDs.
// [SubIDs] are those that the machine sets aside for pods.
//
// # Hooks
//
// part.Preparer takes a range before the pod's sandbox is made, part.Compiler
// informs the runtime of it, from memory, and part.Sweeper gives back those of
// pods that are gone.
//
// # Ownership
//
// The store has a value for each pod that has a range, under its UID and the place
// of the range, so that a damaged value is made up for by its key. It is read
// when the first such pod comes or at the first sweep. Calls of the store are
// made by goroutines that [Part.Run] waits for, at most one for each pod, and
// under no lock.
//
// # Faults
//
// A write that hangs holds up its own pod, until that pod's sync is ended. Its
// range stays the pod's; the next sync waits for the same write. A write that
// fails fails the sync. Nobody has a range before what is kept has been read. A
// damaged value is written anew, from its key. Of one that another version has
// kept under the pod's UID alone, the range is lost: until that pod is gone, new
// pods get the highest ranges, since the lost one is among the lowest.
//
// Tier: beta.
package userns
