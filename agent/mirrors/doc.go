// Package mirrors keeps a mirror in a cluster for each static pod of the node:
// an object of the API that shows the pod and its status there.
//
//	p, err := mirrors.New(mirrors.Config{API: client})
//
// A mirror that lacks is made when its pod is synced, when it disappears, and by
// housekeeping, of pods that have ended or were rejected as well; one whose pod is gone,
// and over, is removed by housekeeping. The statuses of static pods are published under
// their mirrors.
//
// # Hooks
//
// part.Starter, part.Housekeeper and part.MirrorWatcher notice what is to be
// done; part.Publisher says which object shows a status. The host has to have
// part.Mirrors as well.
//
// # Ownership
//
// Calls of the API are made by goroutines, at most one for each name of a pod.
// They end with [Part.Run], which waits for them. All that they act on is read
// anew before each call, so that nothing of an old version is made.
//
// # Faults
//
// A cluster that does not answer holds up no pod and no mirror of another pod: a
// call gets 30 s, and is made again after 1 s, doubled each time up to 1 min, as
// long as it is needed.
//
// Tier: beta.
package mirrors
