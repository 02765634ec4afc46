// Package podstatus computes a pod's status, by Kubernetes' rules, from the state of its
// containers in the runtime.
//
// Everything here is a pure function: no clock is read, nothing is called, and
// nothing handed in is changed. [Of] is the whole; [ContainerStatuses], [Phase]
// and [Conditions] are its parts for those who have the rest.
//
//	status := podstatus.Of(podstatus.Input{
//		Pod:      pod,
//		Observed: obs, // from cri.Reader, or filled in by hand
//		Previous: &last,
//		Now:      time.Now(),
//	})
//
// What a status says of the past comes from Previous: restart counts never
// fall, a terminal phase never changes, the start time stays. Transition times
// of conditions are kept while their status does.
//
// Tier: stable.
package podstatus
