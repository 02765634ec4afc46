package eviction

import (
	"slices"
	"time"

	"github.com/nodewright/nodewright/eviction/rank"
)

// Figure is a threshold with the last observation of its signal.
type Figure struct {
	Threshold rank.Threshold
	// Observation is the last observation. Known is false if the last reading failed.
	Observation rank.Observation
	Known       bool
	// Met means that the threshold is met, and was first met at the time Since. Acting means that
	// its grace period is over, and the node reclaims.
	Met, Acting bool
	Since       time.Time
}

// show publishes copies of the lane's last observations for Figures, under m.mu.
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

// Figures returns the thresholds with the last observations of their signals, in the order of
// action; none before the first reading. The caller owns the result.
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
