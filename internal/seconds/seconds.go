// Package seconds converts seconds from pods, configurations and servers to durations.
// A simple multiplication would overflow for large numbers: 9223372037 s would become
// negative.
package seconds

import "time"

// Max is the largest result, about 146 years: half of the largest duration, so that
// the sum of two does not overflow. -Max is the smallest.
const Max time.Duration = 1 << 62

// Of returns n seconds, limited to -Max and Max.
func Of[T ~int | ~int32 | ~int64](n T) time.Duration {
	const most = int64(Max / time.Second)
	switch s := int64(n); {
	case s > most:
		return Max
	case s < -most:
		return -Max
	default:
		return time.Duration(s) * time.Second
	}
}
