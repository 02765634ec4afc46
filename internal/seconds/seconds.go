// Package seconds converts numbers of seconds from pods, configurations and servers to
// durations. A simple multiplication would overflow for large numbers: 9223372037 s would
// become negative.
package seconds

import "time"

// Max is the largest result of Of, about 146 years, and -Max the smallest. It is half of
// the largest duration, so that the sum of two results does not overflow.
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
