package seconds

import (
	"math"
	"testing"
	"time"
)

func TestDurations(t *testing.T) {
	for n, want := range map[int64]time.Duration{
		0: 0, 1: time.Second, -1: -time.Second, 30: 30 * time.Second, 3600: time.Hour, math.MaxInt32: math.MaxInt32 * time.Second,
		4611686018: 4611686018 * time.Second, 4611686019: Max, 1e10: Max, 9223372037: Max, 18446744074: Max, math.MaxInt64: Max,
		-4611686019: -Max, -9223372037: -Max, math.MinInt64: -Max,
	} {
		if got := Of(n); got != want {
			t.Errorf("%d s = %v, want %v", n, got, want)
		}
	}
	if Of(int32(math.MaxInt32)) != math.MaxInt32*time.Second || Of(-3) != -3*time.Second {
		t.Error("other types of numbers")
	}
}

// More seconds are never less time, and two durations have a sum.
func FuzzOf(f *testing.F) {
	f.Add(int64(1), int64(2))
	f.Add(int64(9223372037), int64(30))
	f.Add(int64(math.MinInt64), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, a, b int64) {
		if a > b {
			a, b = b, a
		}
		x, y := Of(a), Of(b)
		if x > y || y > 0 && x+y < x || x < 0 && x+y > y || time.Now().Add(Max).Before(time.Now()) {
			t.Errorf("%d s = %v, %d s = %v", a, x, b, y)
		}
	})
}
