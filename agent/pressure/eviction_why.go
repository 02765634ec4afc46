package pressure

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/agent/local"
	block "github.com/nodewright/nodewright/eviction"
	"github.com/nodewright/nodewright/eviction/rank"
)

// ExplainNode implements part.NodeExplainer. It adds Conditions, Figures and Decisions to the
// answer: how far the node is from its thresholds, and what was done when a threshold was crossed.
func (p *Eviction) ExplainNode(why *local.NodeWhy) {
	why.Conditions = p.Pressure()
	for _, f := range p.block.Figures() {
		why.Figures = append(why.Figures, figureOf(&f))
	}
	for _, d := range p.block.Decisions() {
		why.Decisions = append(why.Decisions, decisionOf(&d))
	}
}

// figureOf converts a figure for people.
func figureOf(f *block.Figure) local.NodeFigure {
	t, o := f.Threshold, f.Observation
	line := local.NodeFigure{
		Signal: string(t.Signal), Soft: !t.Hard(), Met: f.Met, Acting: f.Acting, Since: f.Since,
		Threshold: size(t.Signal, t.Value.Of(o.Capacity)),
	}
	if !t.Hard() {
		line.Grace = t.Grace.String()
	}
	if n := t.MinReclaim.Of(o.Capacity); n > 0 {
		line.MinReclaim = size(t.Signal, n)
	}
	if o.Capacity > 0 {
		line.Available, line.Capacity = size(t.Signal, o.Available), size(t.Signal, o.Capacity)
	}
	if !o.Time.IsZero() && !f.Known {
		line.Stale = time.Since(o.Time).Round(time.Second).String()
	}
	return line
}

// decisionOf converts a decision for people: the action, its reason, and the pods.
func decisionOf(d *block.Decision) local.NodeDecision {
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
		out.Lines = append(out.Lines, victimLine(v))
	}
	return out
}

func victimLine(v *block.Victim) string {
	line := fmt.Sprintf("%s was given %ds", v.Pod, v.GraceSeconds)
	switch {
	case v.Error != "":
		return line + ", and has not ended: " + v.Error
	case v.Ended:
		return line + ", and ended within " + v.Took.Round(time.Millisecond).String()
	}
	return line + ", and is ending"
}

// size formats an amount of a signal's resource.
func size(s rank.Signal, n int64) string {
	switch s.Resource() {
	case rank.ResourceInodes, rank.ResourcePIDs, "": // "": a custom signal
		return fmt.Sprint(n)
	default:
		return bytesOf(n)
	}
}

// bytesOf formats bytes with a unit.
func bytesOf(n int64) string {
	const mi, plenty = 1 << 20, 10 << 20
	if n >= plenty || n <= -plenty {
		n = n / mi * mi
	}
	return resource.NewQuantity(n, resource.BinarySI).String()
}
