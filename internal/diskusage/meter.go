package diskusage

import (
	"context"
	"time"
)

// These constants limit the cost of walks. After kept, the default of the kubelet's
// volumeStatsAggPeriod, a walk is always due. Before that, the next walk waits for a
// multiple of the duration of the last walk. With the multiple seldom, walks use at most
// 1/500 of a CPU. With the multiple often, they use at most 1/20; it applies while the
// directory may have exceeded its level, or while a survey is unfinished.
const (
	kept   = time.Minute
	often  = 20
	seldom = 500
)

// Meter measures one directory repeatedly. It walks only when the content is likely
// to have changed. Its zero value is ready. It must not be called concurrently.
//
// If the used bytes and inodes of the whole file system have not changed since the
// last walk, Meter assumes that the directory has not changed either. Changes that
// cancel each other are found after at most a minute.
//
// A directory that is too large for one walk is walked as a [Survey].
type Meter struct {
	survey Survey
	last   walked
}

// walked is what the last walk through the directory found.
type walked struct {
	usage Usage // of the last successful walk
	err   error
	fs    Usage         // usage of the file system before the walk
	began time.Time     // zero before the first walk
	took  time.Duration // duration of the walk
	more  bool          // the walk did not reach the end
}

// Measure returns the usage of dir. level is a threshold in bytes, such as the size
// limit of the volume. Walks are more frequent while the growth of the file system
// since the last walk is large enough that the directory may have exceeded level.
// Measure may return the result of an earlier walk; Usage.At is the time of that walk.
// With an error it returns the result of the last successful walk, if there was one.
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
		u = m.last.usage
	}
	m.last = walked{usage: u, err: err, fs: fs, began: began, took: time.Since(began), more: m.survey.Unfinished()}
	return u, err
}

// due reports whether another walk is due at now.
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
