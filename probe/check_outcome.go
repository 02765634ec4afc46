package probe

import "context"

// Outcome is the judgement of one check.
type Outcome int

// The outcomes. Unknown, the zero value, is no judgement at all; Warning is a
// success that somebody should hear of.
const (
	OutcomeUnknown Outcome = iota
	OutcomeSuccess
	OutcomeWarning
	OutcomeFailure
)

// String returns the outcome as the kubelet's events and logs spell it.
func (o Outcome) String() string {
	switch o {
	case OutcomeSuccess:
		return "success"
	case OutcomeWarning:
		return "warning"
	case OutcomeFailure:
		return "failure"
	default:
		return "unknown"
	}
}

// CheckFunc makes one check and ends soon after ctx does. The package's comment
// says what an outcome and an error mean together.
type CheckFunc func(ctx context.Context) (o Outcome, output string, err error)

// MaxCheckOutput is how many bytes of an answer are read and handed on, the
// kubelet's limit.
const MaxCheckOutput = 10 << 10
