package check

import "context"

// Outcome is the result of one check.
type Outcome int

// The outcomes. Unknown, the zero value, means no result; Warning is a success that
// should be reported.
const (
	Unknown Outcome = iota
	Success
	Warning
	Failure
)

// String returns the outcome in the spelling of the kubelet's events and logs.
func (o Outcome) String() string {
	switch o {
	case Success:
		return "success"
	case Warning:
		return "warning"
	case Failure:
		return "failure"
	default:
		return "unknown"
	}
}

// Func makes one check and returns soon after ctx ends. The package documentation
// describes outcome and error.
type Func func(ctx context.Context) (o Outcome, output string, err error)

// MaxOutput is the maximum number of bytes of an answer that are read and returned (the
// kubelet's limit).
const MaxOutput = 10 << 10
