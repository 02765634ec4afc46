package logrotate

import "time"

const (
	// shortest is the least time between two looks at a log that grows.
	shortest = 100 * time.Millisecond
	// stillFor is how long a log has not grown before it counts as idle.
	stillFor = 10 * time.Second
)

// pace is how fast a log grows.
type pace struct {
	size  int64
	at    time.Time // of the look; zero before the first
	rate  float64   // bytes a second
	grown time.Time // when it was seen to have grown last
}

// look takes note of a log's size. The rate is that since the last look, and
// falls by no more than half from one look to the next.
func (p *pace) look(size int64, now time.Time) {
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
	room := max(0, limit-p.size)
	d := seconds(float64(room+limit)/float64(burst), longest)
	if p.rate > 0 {
		d = min(d, seconds(float64(room)/p.rate, longest))
	}
	return max(shortest, d)
}

// seconds is a duration of so many seconds, at most atMost.
func seconds(s float64, atMost time.Duration) time.Duration {
	if s >= atMost.Seconds() {
		return atMost
	}
	return time.Duration(s * float64(time.Second))
}
