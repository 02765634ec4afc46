package serial

import (
	"fmt"
	"runtime/debug"
)

// PanicError is the error of a call that panicked. It does not unwrap: a value
// that is an error was not returned as one.
type PanicError struct {
	Value any    // what was given to panic
	Stack []byte // of the goroutine, as runtime/debug.Stack formats it
}

// Error names the value, without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Recover turns a panic into a [PanicError] in *err. It has to be deferred
// itself: defer serial.Recover(&err). Handlers need it only for what they call
// besides; the Manager recovers from theirs.
func Recover(err *error) {
	if v := recover(); v != nil {
		*err = &PanicError{Value: v, Stack: debug.Stack()}
	}
}
