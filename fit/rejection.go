package fit

import "time"

// Rejection says why a pod may not run on the node, or has to wait. A nil *Rejection admits
// the pod. Reason is the reason in the pod's status, such as OutOfcpu or NodePorts.
type Rejection struct {
	Reason  string
	Message string
	// RetryUntil, if not zero, lets the pod wait. The pod stays Pending with this reason and
	// message, and its admission is repeated whenever resources were released. At RetryUntil the pod
	// is rejected. If a reason is reported several times, the first RetryUntil is used. A pod that
	// would fit without the terminating pods waits without RetryUntil.
	RetryUntil time.Time
	// Outside means that the pod waits for something other than the node's pods, such as a
	// plugin. Then the last RetryUntil is used, not the first.
	Outside bool
	// Final means that free resources would not help: the pod does not wait for terminating pods.
	Final bool
}

// Error returns "Reason: Message".
func (r *Rejection) Error() string { return r.Reason + ": " + r.Message }

// Waits reports whether the pod has to wait. A nil Rejection means that it is admitted.
func (r *Rejection) Waits() bool { return r != nil && !r.RetryUntil.IsZero() }
