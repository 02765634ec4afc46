package check

import "context"

// Outcome is the judgement of one check.
type Outcome int

// The outcomes. Unknown, the zero value, is no judgement at all; Warning is a
// success that somebody should hear of.
const (
	Unknown Outcome = iota
	Success
	Warning
	Failure
)

// String returns the outcome as the kubelet's events and logs spell it.
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

// Func makes one check and ends soon after ctx does. The package's comment
// says what an outcome and an error mean together.
type Func func(ctx context.Context) (o Outcome, output string, err error)

// MaxOutput is how many bytes of an answer are read and handed on, the
// kubelet's limit.
const MaxOutput = 10 << 10
