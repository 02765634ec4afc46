// Package mirror shows static pods in the API: each has a mirror pod there, by
// which people and schedulers see it. It is no more than that: nobody runs it.
//
//	m, err := mirror.New(mirror.Config{Client: client, NodeName: "edge-1", Node: registration.Node})
//	...
//	err = m.Ensure(ctx, static, current) // current is what podmgr.Manager.Mirror returns, or nil
//
// A mirror bears the annotation kubernetes.io/config.mirror with the hash of
// the static pod that it stands for, and belongs to the Node object, with which
// it goes. One that is being deleted, or stands for an earlier version of the
// pod, makes room for a new one.
//
// # Faults
//
// Deletions name the UID, so that they never meet a pod that came since.
// Whatever cannot be done is an error that the caller may log and forget: the
// next call does it. Calls for pods of one name wait for each other.
package mirror
