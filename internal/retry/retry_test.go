package retry_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodewright/nodewright/internal/retry"
)

func TestWaits(t *testing.T) {
	for _, tc := range []struct {
		name string
		b    retry.Backoff
		want string // the first waits in a row
	}{
		{"doubled up to the limit", retry.Backoff{First: time.Second, Max: 10 * time.Second}, "[1s 2s 4s 8s 10s 10s]"},
		{"a limit that is met", retry.Backoff{First: time.Second, Max: 4 * time.Second}, "[1s 2s 4s 4s 4s 4s]"},
		{"an odd limit", retry.Backoff{First: time.Second, Max: 4*time.Second + 1}, "[1s 2s 4s 4.000000001s 4.000000001s 4.000000001s]"},
		{"always the same", retry.Backoff{First: time.Second, Max: time.Second}, "[1s 1s 1s 1s 1s 1s]"},
		{"a limit below the first", retry.Backoff{First: time.Minute, Max: time.Second}, "[1s 1s 1s 1s 1s 1s]"},
		{"half as much again", retry.Backoff{First: 500 * time.Millisecond, Max: time.Minute, Factor: 1.5}, "[500ms 750ms 1.125s 1.6875s 2.53125s 3.796875s]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var next, after, following []time.Duration
			b, last := tc.b, time.Duration(0)
			for n := range 6 {
				last = tc.b.Following(last)
				next, after, following = append(next, b.Next()), append(after, tc.b.After(n+1)), append(following, last)
			}
			for name, got := range map[string][]time.Duration{"Next": next, "After": after, "Following": following} {
				if fmt.Sprint(got) != tc.want {
					t.Errorf("%s gives %v, want %s", name, got, tc.want)
				}
			}
			if b.Reset(); b.Next() != tc.b.After(1) {
				t.Error("a reset back-off does not begin with its first wait")
			}
		})
	}
}

// Whatever the limits: no wait is below the first or above the limit, none is
// shorter than the one before, and no number of failures overflows.
func TestWaitsStayWithinLimits(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 10000 {
		limit := time.Duration(random.Int64N(math.MaxInt64>>random.IntN(40)) + 1)
		b := retry.Backoff{First: time.Duration(random.Int64N(int64(limit))) + 1, Max: limit, Jitter: random.Float64() / 2}
		last := time.Duration(0)
		for n := 1; n < 70; n++ {
			d := b.Following(last)
			if d < b.First || d > b.Max || d < last || d != b.After(n) {
				t.Fatalf("%+v: wait %d is %v after one of %v, and %v by their number", b, n, d, last, b.After(n))
			}
			last = d
		}
		if last != b.Max && float64(b.First)*math.Pow(2, 68) > float64(b.Max) {
			t.Fatalf("%+v never reaches its limit: %v", b, last)
		}
	}
	if d := (retry.Backoff{First: time.Second, Max: math.MaxInt64}).After(math.MaxInt); d != math.MaxInt64 {
		t.Errorf("after endless failures %v", d)
	}
}

func TestJitter(t *testing.T) {
	for _, tc := range []struct {
		part     float64
		low, end time.Duration
	}{
		{0, time.Second, time.Second + 1},
		{0.5, time.Second, 1500 * time.Millisecond},
		{2, time.Second, 3 * time.Second},
	} {
		least, most := time.Hour, time.Duration(0)
		for range 10000 {
			b := retry.Backoff{First: time.Second, Max: time.Minute, Jitter: tc.part}
			d := b.Next()
			least, most = min(least, d), max(most, d)
		}
		if width := tc.end - tc.low; least < tc.low || most >= tc.end || least > tc.low+width/100 || most < tc.end-width/100-1 {
			t.Errorf("jitter %v: waits of %v to %v, want %v to %v", tc.part, least, most, tc.low, tc.end)
		}
	}
	b := retry.Backoff{First: time.Second, Max: 4 * time.Second, Jitter: 0.5}
	for range 100 {
		b.Next()
	}
	if b.Next() >= 6*time.Second {
		t.Error("jitter adds up")
	}
}

func TestRecovered(t *testing.T) {
	b := retry.Backoff{First: time.Second, Max: time.Minute}
	if b.Failing() {
		t.Error("it fails before any failure")
	}
	b.Next()
	b.Next()
	if b.Recovered(time.Minute) || !b.Failing() || b.Next() != 4*time.Second {
		t.Error("a run as long as the limit counts as recovered")
	}
	if !b.Recovered(time.Minute+1) || b.Failing() || b.Next() != time.Second {
		t.Error("a run longer than the limit does not count as recovered")
	}
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b, begun := retry.Backoff{First: time.Second, Max: 3 * time.Second}, time.Now()
		for _, want := range []time.Duration{time.Second, 3 * time.Second, 6 * time.Second, 9 * time.Second} {
			if !b.Wait(ctx) || time.Since(begun) != want {
				t.Errorf("%v have passed, want %v", time.Since(begun), want)
			}
		}
		time.AfterFunc(time.Second, cancel)
		if b.Wait(ctx) || time.Since(begun) != 10*time.Second {
			t.Errorf("a wait that was cut short ended after %v", time.Since(begun))
		}
		if retry.Sleep(ctx, time.Hour) || time.Since(begun) != 10*time.Second {
			t.Error("a context that has ended is waited with")
		}
	})
}

func ExampleBackoff() {
	wait := retry.Backoff{First: time.Second, Max: 5 * time.Second}
	for range 4 {
		fmt.Println(wait.Next())
	}
	// Output:
	// 1s
	// 2s
	// 4s
	// 5s
}
