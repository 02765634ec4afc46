// Package podstatus computes a pod's status, by Kubernetes' rules, from the state of its
// containers in the runtime.
//
// All functions are pure: they read no clock, and do not change their arguments. [Of]
// computes the whole status; [ContainerStatuses], [Phase] and [Conditions] compute parts
// of it.
//
//	status := podstatus.Of(podstatus.Input{
//		Pod:      pod,
//		Observed: obs, // from cri.Reader, or filled in by hand
//		Previous: &last,
//		Now:      time.Now(),
//	})
//
// Input.Previous is the last status: restart counts never decrease, a terminal phase and
// the start time never change, and the transition time of a condition is kept as long as
// its status is the same.
//
// Tier: stable.
package podstatus
