package sim

import "time"

// shrink leaves out of a failing schedule all that it fails without: delta
// debugging over the steps, then over the pauses. fails runs a schedule; it is asked
// at most tries times.
func shrink(steps []step, tries int, fails func([]step) bool) []step {
	ask := func(s []step) bool {
		if tries--; tries < 0 {
			return false
		}
		return fails(s)
	}
	for size := len(steps) / 2; size > 0; {
		smaller := false
		for from := 0; from < len(steps); {
			to := min(from+size, len(steps))
			if rest := without(steps, from, to); ask(rest) {
				steps, smaller = rest, true
				continue
			}
			from = to
		}
		if size == 1 && !smaller {
			break
		}
		if !smaller || size > len(steps) {
			size = max(1, min(size, len(steps))/2)
		}
	}
	for i := range steps {
		for _, d := range []time.Duration{0, time.Second, time.Minute} {
			if steps[i].after <= d {
				break
			}
			other := append([]step{}, steps...)
			other[i].after = d
			if ask(other) {
				steps = other
				break
			}
		}
	}
	return steps
}

// without is steps without those of a range; their pauses stay.
func without(steps []step, from, to int) []step {
	var out []step
	var pause time.Duration
	for i, s := range steps {
		if i >= from && i < to {
			pause += s.after
			continue
		}
		s.after += pause
		pause = 0
		out = append(out, s)
	}
	return out
}
