package serial

import "time"

// Stage is a state of a key that the handler defines, such as booting or running. A new key is in
// stage 0.
type Stage int

// Next is what a handler returns: what the Manager does next with the key. The zero value is
// [Rest]. A pending update is delivered at once, whatever the handler returns.
//
// If the handler also returns an error, only [Again] has an effect: it sets the delay before the
// retry. Without it, Config.Backoff sets the delay. The stage does not change.
type Next struct {
	verb   verb
	staged bool // the field stage is set
	stage  Stage
	after  time.Duration
	reason string
	then   func()
}

type verb uint8

const (
	rest verb = iota
	again
	done
)

// Rest returns a Next that does nothing until the key's next update.
func Rest() Next { return Next{} }

// Again returns a Next that calls the handler again after d, unless an update comes first. [State]
// shows the reason.
func Again(d time.Duration, reason string) Next { return Next{}.Again(d, reason) }

// Enter returns a Next that moves the key to another stage and calls the handler again at once.
func Enter(s Stage) Next { return Next{verb: again}.In(s) }

// Done returns a Next that forgets the key. If an update is pending, the key begins anew with it,
// in stage 0.
func Done() Next { return Next{verb: done} }

// Again returns n with the addition that the handler is called again after d, as by the function
// [Again].
func (n Next) Again(d time.Duration, reason string) Next {
	n.verb, n.after, n.reason = again, max(d, 0), reason
	return n
}

// In returns n with the addition that the key moves to the stage s.
func (n Next) In(s Stage) Next {
	n.stage, n.staged = s, true
	return n
}

// Then returns n with a function f that is called when the Manager has executed n: by the key's
// goroutine, without a lock, before the key's next call. The Manager does not recover from a panic
// of f.
func (n Next) Then(f func()) Next {
	n.then = f
	return n
}
