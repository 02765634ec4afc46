package serial

import (
	"fmt"
	"runtime/debug"
)

// PanicError is the error of a call that panicked. It has no method Unwrap: errors.Is and errors.As
// do not see the value, even if it is an error.
type PanicError struct {
	Value any    // the argument of panic
	Stack []byte // stack of the goroutine in the format of runtime/debug.Stack
}

// Error returns the value as text, without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Recover recovers from a panic and stores a [PanicError] in *err. It has to be deferred directly:
// defer serial.Recover(&err). Handlers do not need it for themselves: the Manager recovers from
// their panics.
func Recover(err *error) {
	if v := recover(); v != nil {
		*err = &PanicError{Value: v, Stack: debug.Stack()}
	}
}
