package serial

import "time"

// Stage is a step in the life of a key. What the numbers mean is up to the
// handler; a key begins its life in stage 0.
type Stage int

// Next is a handler's answer: what is to become of its key. The zero value is
// [Rest]. An update that waits is delivered at once, whatever the answer.
//
// Beside an error only [Again] counts, as the delay before the retry; without
// it the key backs off as Config.Backoff says. The stage stays.
type Next struct {
	verb   verb
	staged bool // stage is set
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

// Rest leaves the key alone until its next update.
func Rest() Next { return Next{} }

// Again has the handler called again after d, unless an update comes first.
// The reason shows in [State].
func Again(d time.Duration, reason string) Next { return Next{}.Again(d, reason) }

// Enter moves the key to another stage and has the handler called again at
// once.
func Enter(s Stage) Next { return Next{verb: again}.In(s) }

// Done ends the key's life: it is forgotten. An update that waits begins
// another one, in stage 0.
func Done() Next { return Next{verb: done} }

// Again is n with the handler called again after d, as by the function.
func (n Next) Again(d time.Duration, reason string) Next {
	n.verb, n.after, n.reason = again, max(d, 0), reason
	return n
}

// In is n with the key moved to another stage.
func (n Next) In(s Stage) Next {
	n.stage, n.staged = s, true
	return n
}

// Then is n with a function to be called when the answer has taken effect: by
// the key's goroutine, without a lock, before the key's next call. Unlike the
// handler's, a panic of it is not recovered from.
func (n Next) Then(f func()) Next {
	n.then = f
	return n
}
