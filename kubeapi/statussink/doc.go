// Package statussink publishes the statuses of pods to the API server: the
// [statusmgr.Sink] of a node of a cluster.
//
//	sink, err := statussink.New(statussink.Config{Client: client.Once(), Pods: source})
//	...
//	statuses, err := statusmgr.New(statusmgr.Config{Sink: sink, Parallel: 8})
//
// A status is one PATCH of the status subresource, a strategic merge patch of
// what differs from the newest version of the pod that this node knows: the one
// that its watch told of, or the one that the last PATCH returned. Nothing is
// read before it. What others write stays as it is: their conditions, the
// statuses of resource claims.
//
// The patch and the deletion of a pod that is over name the pod's UID, so that
// they never meet another pod of that name: that one, and a pod that is not
// there, are [statusmgr.ErrGone]. When the server says that they conflict, the
// pod is read and, if it is still the one, patched once more.
//
// # Faults
//
// Errors are for [statusmgr.Manager] to try again, with back-off, and later if
// the server says when (429, 503): until then calls for that pod end at once
// with the same error. Calls of different pods run side by side, as many as
// statusmgr allows, so that one that is slow holds up no other.
//
// A status never goes back, even if it was computed before an outage: a pod
// that the server shows as Succeeded or Failed stays so, and of two
// generations that were observed the later one counts.
package statussink
