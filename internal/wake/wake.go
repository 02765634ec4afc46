// Package wake has the signal with which goroutines wake a loop.
package wake

// Signal wakes the goroutine that receives from it. Signals that are set before the goroutine
// receives count as one, so it must do all pending work after each receive.
type Signal chan struct{}

// New returns a Signal that is not set.
func New() Signal { return make(Signal, 1) }

// Set wakes the receiver, now or at its next receive. It never blocks.
func (s Signal) Set() {
	select {
	case s <- struct{}{}:
	default:
	}
}
