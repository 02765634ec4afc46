package logrotate

import "time"

// When to look at a log again. The time is set so that a log which goes on growing as it did
// is seen at its limit, and one which suddenly grows fast is seen before it is twice as
// large; a log at rest is left to the kernel.

const (
	// shortest is the least time between two looks at a log that grows: a limit on the cost,
	// whatever the rate.
	shortest = 100 * time.Millisecond
	// stillFor is how long a log has not grown before it counts as idle.
	stillFor = 10 * time.Second
)

// pace is how fast a log grows. Manager.mu guards it, as part of a watched.
type pace struct {
	size  int64
	at    time.Time // of the look; zero before the first
	rate  float64   // bytes a second
	grown time.Time // when it was seen to have grown last
}

// look takes note of a log's size. The rate is that since the last look, and
// falls by no more than half from one look to the next.
func (p *pace) look(size int64, now time.Time) {
	// A smaller file is a new one, after a rotation or because somebody emptied it. The
	// container goes on at its rate, so that is kept.
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
	// Halved for ever it would never be 0, and never stop to count.
	if p.rate < 1 {
		p.rate = 0
	}
	p.size, p.at = size, now
}

// idle reports whether the log has not grown for long.
func (p *pace) idle(now time.Time) bool { return now.Sub(p.grown) >= stillFor }

// next is the time until a log could pass its limit if it grows on as it did,
// or, should it begin to grow by burst bytes a second right now, be twice as
// large; at most longest.
func (p *pace) next(limit, burst int64, longest time.Duration) time.Duration {
	// Bytes until the limit; a log above it is looked at as soon as may be.
	room := max(0, limit-p.size)
	d := seconds(float64(room+limit)/float64(burst), longest)
	if p.rate > 0 {
		d = min(d, seconds(float64(room)/p.rate, longest))
	}
	return max(shortest, d)
}

// seconds is a duration of so many seconds, at most atMost.
func seconds(s float64, atMost time.Duration) time.Duration {
	// First, since a large number of seconds does not fit into a Duration.
	if s >= atMost.Seconds() {
		return atMost
	}
	return time.Duration(s * float64(time.Second))
}
