package agent

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/eviction"
)

var _ local.NodeExplainer = (*Agent)(nil)

var errNoThreads = errors.New("threads of the node are not known")

// bytesOf writes bytes so that they can be read at a glance.
func bytesOf(n int64) string {
	const mi, plenty = 1 << 20, 10 << 20
	if n >= plenty || n <= -plenty {
		n = n / mi * mi
	}
	return resource.NewQuantity(n, resource.BinarySI).String()
}

// WhyNode tells how far the node is from its thresholds, and what was done
// about those that it met.
func (a *Agent) WhyNode() local.NodeWhy {
	why := local.NodeWhy{
		Name: a.cfg.Node.Name, Conditions: a.Pressure(), Events: a.NodeEvents(), ShuttingDown: a.ShuttingDown() != nil,
	}
	if a.eviction == nil {
		return why
	}
	for _, f := range a.eviction.Figures() {
		t := f.Threshold
		line := local.NodeFigure{
			Signal: string(t.Signal), Soft: !t.Hard(), Grace: t.Grace.String(), Met: f.Met, Acting: f.Acting, Since: f.Since,
			Threshold: size(t.Signal, t.Value.Of(f.Observation.Capacity)),
		}
		if t.Hard() {
			line.Grace = ""
		}
		if n := t.MinReclaim.Of(f.Observation.Capacity); n > 0 {
			line.MinReclaim = size(t.Signal, n)
		}
		if f.Observation.Capacity > 0 {
			line.Available, line.Capacity = size(t.Signal, f.Observation.Available), size(t.Signal, f.Observation.Capacity)
		}
		if !f.Observation.Time.IsZero() && !f.Known {
			line.Stale = time.Since(f.Observation.Time).Round(time.Second).String()
		}
		why.Figures = append(why.Figures, line)
	}
	for _, d := range a.eviction.Decisions() {
		why.Decisions = append(why.Decisions, decisionOf(&d))
	}
	return why
}

// decisionOf writes a decision for people: what, on what grounds, and about
// whom.
func decisionOf(d *eviction.Decision) local.NodeDecision {
	s := d.Signal
	what := string(s)
	if what == "" {
		what = string(d.Limit)
	}
	out := local.NodeDecision{
		Time: d.Time, Repeats: d.Repeats, What: what, Soft: d.Soft, Cause: d.Cause, Outcome: d.Outcome, Error: d.Error,
		Available: size(s, d.Available), Threshold: size(s, d.Threshold), Need: size(s, d.Need),
	}
	for _, st := range d.Steps {
		line := fmt.Sprintf("removed %s in %v: %s available before, %s after", st.Name, st.Took.Round(time.Millisecond), size(s, st.Before), size(s, st.After))
		if st.Error != "" {
			line += "; " + st.Error
		}
		out.Lines = append(out.Lines, line)
	}
	for _, c := range d.Considered {
		use := "nothing is known of its use"
		if c.Known {
			use = fmt.Sprintf("uses %s, requests %s", size(s, c.Used), size(s, c.Request))
		}
		out.Lines = append(out.Lines, fmt.Sprintf("%s (priority %d) %s: %s", c.Pod, c.Priority, use, c.Verdict))
	}
	for _, v := range d.Victims {
		line := fmt.Sprintf("%s was given %ds", v.Pod, v.GraceSeconds)
		switch {
		case v.Error != "":
			line += ", and has not ended: " + v.Error
		case v.Ended:
			line += ", and ended within " + v.Took.Round(time.Millisecond).String()
		default:
			line += ", and is ending"
		}
		out.Lines = append(out.Lines, line)
	}
	return out
}
