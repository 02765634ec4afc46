package podlife

import "errors"

// WithReason returns err with the reason that statuses, events and metrics show for it, such as
// FailedMount. The reason of an error that wraps it counts more; see [ReasonOf].
func WithReason(reason string, err error) error { return &reasoned{reason, err} }

type reasoned struct {
	reason string
	err    error
}

func (e *reasoned) Error() string  { return e.err.Error() }
func (e *reasoned) Unwrap() error  { return e.err }
func (e *reasoned) Reason() string { return e.reason }

// ReasonOf returns the reason of an error, "" if it has none. It calls the method Reason() string
// of the outermost error in the tree that has one.
func ReasonOf(err error) string {
	var named interface{ Reason() string }
	if errors.As(err, &named) {
		return named.Reason()
	}
	return ""
}
