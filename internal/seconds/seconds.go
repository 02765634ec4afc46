// Package seconds makes durations of the whole seconds that pods, configurations
// and servers ask for, which may be more than a duration holds: 9223372037 s
// would be less than nothing.
package seconds

import "time"

// Max is as long as durations get here, about 146 years: half of what they hold,
// so that the sum of two of them does not overflow either. Likewise -Max is the
// least.
const Max time.Duration = 1 << 62

// Of is n seconds, or Max or -Max where that is nearer to nothing.
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
