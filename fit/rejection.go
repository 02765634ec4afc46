package fit

import "time"

// Rejection says why a pod may not run on the node, or has to wait. A nil *Rejection admits
// the pod. Reason is the reason in the pod's status, such as OutOfcpu or NodePorts.
type Rejection struct {
	Reason  string
	Message string
	// RetryUntil, if not zero, lets the pod wait: it stays Pending with this reason and
	// message, its admission is repeated whenever resources were released, and it is
	// rejected at that time. Of several values for the same reason the first is used.
	// A pod that would fit without the pods that are terminating waits without
	// RetryUntil.
	RetryUntil time.Time
	// Outside means that the pod waits for something other than the node's pods, such
	// as a plugin. Then the last RetryUntil is used, not the first.
	Outside bool
	// Final means that free resources would not help: the pod does not wait for pods
	// that are terminating.
	Final bool
}

// Error returns "Reason: Message".
func (r *Rejection) Error() string { return r.Reason + ": " + r.Message }

// Waits reports whether the pod is to wait. A nil Rejection does not wait.
func (r *Rejection) Waits() bool { return r != nil && !r.RetryUntil.IsZero() }
