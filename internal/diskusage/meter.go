package diskusage

import (
	"context"
	"time"
)

// What a Meter spends on walks: none is older than kept (the kubelet's
// volumeStatsAggPeriod), and else one follows after so many times as long as the
// last one took. That is a five-hundredth of a processor, or a twentieth while
// the directory may have met a level.
const (
	kept   = time.Minute
	often  = 20
	seldom = 500
)

// Meter measures one directory again and again, and does without a walk where
// it can be known, or is likely, that there is nothing new. Its zero value is
// ready. It serves one caller at a time.
//
// While the file system as a whole has neither taken nor given anything since
// the last walk, the directory has not either, unless both came to exactly the
// same; that is found out after a minute at the latest.
//
// A directory with more in it than one walk may look at is walked as a [Survey].
type Meter struct {
	survey Survey
	last   walked
}

// walked is what a walk brought.
type walked struct {
	usage Usage // of the last one that succeeded
	err   error
	fs    Usage         // the file system before it
	began time.Time     // zero if there was none
	took  time.Duration // by it
	more  bool          // it did not get to the end
}

// Measure returns what dir takes. A level is how many bytes it may take before
// somebody wants to know, be it more or less than it takes: while the file
// system has taken as much since the last walk as the directory lacks to it,
// walks may come more often. What is returned may be the result of a walk before,
// as its time reports; beside an error it is that of the last that succeeded, if
// there was one.
func (m *Meter) Measure(ctx context.Context, dir string, level int64, limits Limits) (Usage, error) {
	fs, err := Statfs(dir)
	if err != nil {
		return m.last.usage, err
	}
	began := time.Now()
	if !m.last.due(fs, level, began) {
		return m.last.usage, m.last.err
	}
	u, err := m.survey.Walk(ctx, dir, limits)
	if err != nil {
		u = m.last.usage // and it is not tried again at once: it took its time
	}
	m.last = walked{usage: u, err: err, fs: fs, began: began, took: time.Since(began), more: m.survey.Unfinished()}
	return u, err
}

// due reports whether it is time for another walk. It is told the time.
func (w walked) due(fs Usage, level int64, now time.Time) bool {
	since := now.Sub(w.began)
	grown := fs.Used - w.fs.Used
	switch {
	case w.began.IsZero() || since >= kept:
		return true
	case w.usage.Used <= level && w.usage.Used+grown > level:
		return since >= often*w.took
	case w.more:
		return since >= often*w.took && since >= time.Second
	case grown != 0 || fs.InodesUsed != w.fs.InodesUsed:
		return since >= seldom*w.took
	default:
		return false
	}
}
