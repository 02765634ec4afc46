// Package preempt chooses the pods that end for the sake of a critical one that does
// not fit beside them. It is pure: no I/O, no clock, and of use to a scheduler.
//
//	victims, err := preempt.Choose(pod, others, missing, preempt.Critical)
//
// # Who may have to go
//
// Those that are less than the pod: any that is not critical, for a critical one, and
// any of lower priority. Together they must come to all that is missing; else nobody
// goes.
//
// # Who goes
//
// Guaranteed pods only for what all Burstable and BestEffort pods together do not
// have, Burstable ones for what is left without these and all BestEffort pods, and
// BestEffort pods for the rest. Within a class it is the pod that comes nearest to
// what is still missing, time and again: the distance is the sum over the resources of the square of the
// part that would still be missing. Of two at one distance the pod that requests
// less memory goes, then less CPU, then the first by namespace and name.
package preempt
