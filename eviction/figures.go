package eviction

import (
	"slices"
	"time"

	"github.com/nodewright/nodewright/eviction/rank"
)

// Figure is a threshold, and what its signal was when it was looked at last.
type Figure struct {
	Threshold rank.Threshold
	// Observation is the last one there was; Known reports that it could be read
	// at the last look.
	Observation rank.Observation
	Known       bool
	// Met reports that the threshold is met, since Since, and Acting that
	// something is being done about it: its grace is over.
	Met, Acting bool
	Since       time.Time
}

// show makes what the lane has seen last known to others. The watches belong to the
// lane's goroutine, so that others get copies, under m.mu.
func (l *lane) show(seen observations) {
	out := make([]Figure, 0, len(l.list))
	for _, t := range l.list {
		w := l.watches[t]
		// The last observation stays visible when a signal cannot be read.
		_, known := seen[t.Signal]
		f := Figure{Threshold: t, Observation: w.obs, Known: known, Met: w.met, Acting: w.acting}
		if w.met {
			f.Since = w.since
		}
		out = append(out, f)
	}
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	l.m.figures[l.condition] = out
}

// Figures are the thresholds with what was last seen of their signals, in the
// order in which they are acted upon: none before the first look. The result is
// the caller's.
func (m *Manager) Figures() []Figure {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Figure
	for _, l := range m.lanes {
		out = append(out, m.figures[l.condition]...)
	}
	slices.SortStableFunc(out, func(a, b Figure) int { return rank.CompareSignals(a.Threshold.Signal, b.Threshold.Signal) })
	return out
}
