package record

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podlife"
)

// Step is a recorded decision that was made again.
type Step struct {
	At       time.Time
	Pod      Pod
	Decision *Decision
	// Differences are the differences between the recorded decision and the one of the current
	// code, a line each. There are none if both are equal.
	Differences []string
	// Other lists what the agent that runs the pod did differently, a line each. It is empty
	// unless the decision was made by a shadow.
	Other []string
}

// Replay makes the recorded decisions of some entries again, each by its own inputs, in order.
// Decisions of a shadow are compared with what the other agent did until the next one of the pod.
func Replay(entries []Entry) []Step {
	var steps []Step
	last := map[types.UID]int{} // the last step of a pod
	for i := range entries {
		e := &entries[i]
		d, ok := e.Fact.(*Decision)
		if !ok {
			continue
		}
		if at, ok := last[e.Pod.UID]; ok && steps[at].Decision.Shadow {
			steps[at].Other = otherwise(&steps[at], e.At, &d.Input)
		}
		last[e.Pod.UID] = len(steps)
		steps = append(steps, Step{At: e.At, Pod: e.Pod, Decision: d, Differences: d.Differs(d.Again())})
	}
	return steps
}

// shadowSlack is how much earlier or later another agent may act without counting as different: it
// looks at its pods once a second or more, and pulls an image before it starts a container.
const shadowSlack = 5 * time.Second

// otherwise returns what the other agent did differently between a decision and the next one,
// whose input shows the result. Ends of containers are not compared: a record does not say whether
// the agent stopped a container or the container exited by itself.
func otherwise(s *Step, at time.Time, now *Input) (out []string) {
	was := &s.Decision.Input
	r := &s.Decision.Result
	later := func(than time.Time) string { return at.Sub(than).Round(100 * time.Millisecond).String() }
	if n := len(now.Sandboxes) > 0 && !slices.ContainsFunc(was.Sandboxes, func(b Sandbox) bool { return b.ID == now.Sandboxes[0].ID }); n != r.Make {
		switch {
		case n:
			out = append(out, "made a sandbox")
		case at.Sub(s.At) > shadowSlack:
			out = append(out, "made no sandbox within "+later(s.At))
		}
	}
	// Something else may have happened first, and ended the wait for init containers.
	advanced := slices.ContainsFunc(r.Init, func(a Act) bool {
		before, after := was.newest(a.Name), now.newest(a.Name)
		return after != nil && (before == nil || before.ID != after.ID || before.State != after.State || before.Started != after.Started)
	})
	for _, a := range slices.Concat(r.Init, r.Regular) {
		before, after := was.newest(a.Name), now.newest(a.Name)
		begun := after != nil && (before == nil || after.ID != before.ID)
		switch {
		case begun && a.Do == doWords[podlife.Wait] && at.Before(a.Until.Add(-shadowSlack)):
			out = append(out, fmt.Sprintf("started %s %s before the end of the wait", a.Name, a.Until.Sub(at).Round(100*time.Millisecond)))
		case begun && (a.Do == doWords[podlife.Never] || a.Do == doWords[podlife.NotYet] && !advanced):
			out = append(out, "started "+a.Name)
		case !begun && a.Do == doWords[podlife.Start] && at.Sub(s.At) > shadowSlack:
			out = append(out, fmt.Sprintf("did not start %s within %s", a.Name, later(s.At)))
		}
	}
	return out
}

// newest returns the newest instance of a container, nil if there is none.
func (in *Input) newest(name string) *Observed {
	for i := range in.Runs { // newest first: see observed.Pod
		if in.Runs[i].Name == name {
			return &in.Runs[i]
		}
	}
	return nil
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
