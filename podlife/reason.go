package podlife

import "errors"

// WithReason returns err with the reason that statuses, events and metrics show for it, such as
// FailedMount. If an error that wraps this one has a reason too, the reason of the outer error is
// shown; see [ReasonOf].
func WithReason(reason string, err error) error { return &reasoned{reason, err} }

type reasoned struct {
	reason string
	err    error
}

func (e *reasoned) Error() string  { return e.err.Error() }
func (e *reasoned) Unwrap() error  { return e.err }
func (e *reasoned) Reason() string { return e.reason }

// ReasonOf returns the reason of an error, or "" if it has none. Of err and the errors that it
// wraps, it takes the outermost with a method Reason() string.
func ReasonOf(err error) string {
	var named interface{ Reason() string }
	if errors.As(err, &named) {
		return named.Reason()
	}
	return ""
}
