// Package preempt chooses the pods to terminate, so that a critical pod fits on a node.
// It is pure: it has no I/O and no clock, so a scheduler can use it too.
//
//	victims, err := preempt.Choose(pod, others, missing, preempt.Critical)
//
// # Possible victims
//
// For a critical pod, any pod that is not critical may be terminated; and for every
// pod, any pod of lower priority. If all of these together do not have the missing
// resources, none is terminated.
//
// # Order of victims
//
// Guaranteed pods are chosen only for the amount that all Burstable and BestEffort pods together do
// not have. Burstable pods are chosen only for the amount that the chosen Guaranteed pods and all
// BestEffort pods do not have. BestEffort pods are chosen for the rest. Within a class, the pod
// that comes nearest to the missing resources is chosen repeatedly. Its distance is the sum, over
// the resources, of the square of the fraction that would still be missing. If two pods have the
// same distance, the pod that requests less memory is chosen, then the one that requests less CPU,
// then the first one by namespace and name.
package preempt
