package record

import (
	"strings"
	"time"
)

// Step is a recorded decision that was made again.
type Step struct {
	At       time.Time
	Pod      Pod
	Decision *Decision
	// Differences are those of the decision with today's code from the recorded one, a line each;
	// none if both are equal.
	Differences []string
}

// Replay makes the recorded decisions of some entries again, each by its own inputs, in order.
func Replay(entries []Entry) []Step {
	var steps []Step
	for i := range entries {
		if d, ok := entries[i].Fact.(*Decision); ok {
			steps = append(steps, Step{At: entries[i].At, Pod: entries[i].Pod, Decision: d, Differences: d.Differs(d.Again())})
		}
	}
	return steps
}

// String returns the result in words, such as "make a sandbox; app: start".
func (r *Result) String() string {
	var out []string
	switch {
	case len(r.Reset) > 0:
		return "remove all instances, to start over: " + strings.Join(r.Reset, " ")
	case r.Over:
		out = append(out, "the pod is over")
	case r.Make:
		out = append(out, "make a sandbox ("+r.Lack+")")
	case r.Lack != "":
		out = append(out, r.Lack)
	}
	for _, list := range [][]Act{r.Init, r.Regular} {
		for _, a := range list {
			out = append(out, a.Name+": "+a.String())
		}
	}
	if len(r.Surplus) > 0 {
		out = append(out, "end the surplus instances "+strings.Join(r.Surplus, " "))
	}
	return strings.Join(out, "; ")
}
