package sim

import (
	"fmt"
	"time"
)

// shiftWall sets how far the wall clock of the machine is from what it was, where it can
// be set: see wallclock_test.go. What is measured since a time of before stays.
var shiftWall = func(time.Duration) {}

// wallShifts reports whether it can be set.
var wallShifts bool

// doWall is DURATION: how far the machine's wall clock is from the right time, from now on.
func (m *machine) doWall(s step) error {
	d, err := time.ParseDuration(s.arg(0))
	if err != nil {
		return fmt.Errorf("wall %q: want a duration", s.arg(0))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	shiftWall(d)
	m.wall = d
	m.trouble("wall", d != 0)
	return nil
}

// rightTime is what clocks show elsewhere, such as the API server's. m.mu is held.
func (m *machine) rightTime() time.Time { return time.Now().Add(-m.wall) }
