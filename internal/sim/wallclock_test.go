//go:build wallclock

package sim

import "time"

// With this tag the standard library's time is that of wallclock.sed: see make clocks.
func init() {
	shiftWall = func(d time.Duration) { time.ShiftWall(d) }
	wallShifts = true
}
