package logrotate

import "time"

// The time of the next check of a log: when it could reach its limit at its current rate, or
// twice its limit at a rate of burstRate. For an idle log, inotify reports the next write.

const (
	// shortest is the shortest time between two checks, which limits the cost.
	shortest = 100 * time.Millisecond
	// stillFor is the time without growth after which a log counts as idle.
	stillFor = 10 * time.Second
)

// pace is the growth of a log. Manager.mu guards it, as part of a watched.
type pace struct {
	size  int64
	at    time.Time // time of the last check; zero before the first
	rate  float64   // bytes a second
	grown time.Time // time of the last growth
}

// look updates the pace from a log's size. The new rate is the rate since the last check, but at
// least half of the previous rate.
func (p *pace) look(size int64, now time.Time) {
	// A smaller file was rotated or truncated. The rate of the container stays.
	if p.at.IsZero() || size < p.size {
		*p = pace{size: size, at: now, rate: p.rate, grown: now}
		return
	}
	rate := 0.0
	if d := now.Sub(p.at).Seconds(); d > 0 {
		rate = float64(size-p.size) / d
	}
	if size > p.size {
		p.grown = now
	}
	p.rate = max(rate, p.rate/2)
	// Halving alone would never reach 0.
	if p.rate < 1 {
		p.rate = 0
	}
	p.size, p.at = size, now
}

// idle reports whether the log has not grown for long.
func (p *pace) idle(now time.Time) bool { return now.Sub(p.grown) >= stillFor }

// next returns the time until the next check of a log. It is the shorter of two times: until the
// log reaches its limit at its current rate, and until it reaches twice its limit at burst bytes a
// second. The result is between shortest and longest.
func (p *pace) next(limit, burst int64, longest time.Duration) time.Duration {
	// Bytes until the limit; 0 above it.
	room := max(0, limit-p.size)
	d := seconds(float64(room+limit)/float64(burst), longest)
	if p.rate > 0 {
		d = min(d, seconds(float64(room)/p.rate, longest))
	}
	return max(shortest, d)
}

// seconds converts seconds to a duration of at most atMost.
func seconds(s float64, atMost time.Duration) time.Duration {
	// First, since a large number would overflow a Duration.
	if s >= atMost.Seconds() {
		return atMost
	}
	return time.Duration(s * float64(time.Second))
}
