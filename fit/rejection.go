package fit

import "time"

// Rejection describes why a pod may not run here, or not yet. A nil *Rejection admits
// it. Reason is a CamelCase word of the Kubernetes API, such as OutOfcpu or
// NodePorts.
type Rejection struct {
	Reason  string
	Message string
	// RetryUntil, if not zero, lets the pod wait instead: it stays pending with
	// this reason and message, is asked about again whenever something was given
	// back, and is rejected at that time. The first time that a pod is given for
	// a reason counts. Pods that would be admitted if others had ended that are
	// ending wait without it.
	RetryUntil time.Time
	// Outside means that the pod waits for somebody outside of the node's pods,
	// such as a plugin: the last RetryUntil counts, and not the first.
	Outside bool
	// Final means that room on the node would not help: the pod does not wait
	// for others to end.
	Final bool
}

// Error makes a *Rejection an error.
func (r *Rejection) Error() string { return r.Reason + ": " + r.Message }

// Waits reports whether the pod is to wait. A nil Rejection does not wait.
func (r *Rejection) Waits() bool { return r != nil && !r.RetryUntil.IsZero() }
