package explain

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/local"
)

// away adds a stretch without an agent, which ends at the time at which an agent started.
func (p *past) away(at time.Time) {
	if p.lastAt.IsZero() {
		return
	}
	s := local.Stretch{From: p.lastAt, To: at, State: local.AgentAway, Text: "no agent ran"}
	if !p.stopped {
		s.State, s.Text = local.AgentLost, "the agent was killed or had crashed at some time in here"
	}
	p.aways = append(p.aways, s)
}

// stretches returns the states of the containers between two times, and the stretches without an
// agent.
func (p *past) stretches(since, until time.Time) (out []local.Stretch) {
	all := slices.Clone(p.aways)
	if p.stopped {
		all = append(all, local.Stretch{From: p.lastAt, State: local.AgentAway, Text: "no agent runs"})
	}
	next := map[*instance]*instance{}
	begun := map[types.UID]map[string]bool{}
	for _, i := range p.order {
		next[i.before] = i
	}
	for _, i := range p.order {
		if i.Started.IsZero() {
			continue
		}
		if begun[i.uid] == nil {
			begun[i.uid] = map[string]bool{}
		}
		if from, known := p.first[i.uid]; known && !begun[i.uid][i.container] && from.Before(i.Started) {
			all = append(all, local.Stretch{Container: i.container, From: from, To: i.Started, State: local.Waiting, Text: "was not started yet"})
		}
		begun[i.uid][i.container] = true
		run := local.Stretch{Container: i.container, From: i.Started, State: local.Running, Text: "runs"}
		if !i.ended {
			all = append(all, run)
			continue
		}
		run.To, run.Text = i.endedAt, "ran for "+spell(max(0, i.endedAt.Sub(i.Started)))
		after := local.Stretch{
			Container: i.container, From: i.endedAt, To: p.gone(i.endedAt), State: local.Ended, Text: p.ending(i).why,
			ExitCode: i.ExitCode, Problem: i.ExitCode == nil || *i.ExitCode != 0,
		}
		if n := next[i]; n != nil && !n.Started.IsZero() && n.uid == i.uid {
			after.State, after.To = local.Waiting, n.Started
		}
		all = append(all, run, after)
	}
	for _, s := range all {
		if (until.IsZero() || s.From.Before(until)) && (s.To.IsZero() || s.To.After(since)) {
			out = append(out, s)
		}
	}
	return out
}

// gone returns the first time, not before the given one, at which the source removed the pod. It
// returns the zero time if there is none.
func (p *past) gone(after time.Time) time.Time {
	for _, s := range p.status {
		if s.gone && !s.at.Before(after) {
			return s.at
		}
	}
	return time.Time{}
}
