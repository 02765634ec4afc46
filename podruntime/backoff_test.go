package podruntime

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

// delays are those of n crashes in a row, in seconds.
func delays(b Backoff, n int, code int32) []float64 {
	var out []float64
	c := Crash{ExitCode: told(code)}
	for range n {
		c.Last = b.Delay(c)
		c.Restarts++
		out = append(out, c.Last.Seconds())
	}
	return out
}

func TestBackoffDelays(t *testing.T) {
	byCode := ByExitCode{
		Codes:   map[int32]Backoff{42: ConstantBackoff(3 * time.Second), 137: DoublingBackoff{First: time.Minute}},
		Default: DoublingBackoff{First: time.Second, Max: time.Minute},
	}
	for _, tc := range []struct {
		name string
		b    Backoff
		code int32
		want []float64
	}{
		{"kubelet", DoublingBackoff{}, 1, []float64{0, 10, 20, 40, 80, 160, 300, 300}},
		{"limit below the first", DoublingBackoff{Max: 2 * time.Second}, 1, []float64{0, 2, 2}},
		{"limit just above it", DoublingBackoff{Max: 11 * time.Second}, 1, []float64{0, 10, 11, 11}},
		{"reduced", DoublingBackoff{First: time.Second, Max: time.Minute}, 1, []float64{0, 1, 2, 4, 8, 16, 32, 60, 60}},
		{"no end", DoublingBackoff{First: math.MaxInt64 / 2, Max: math.MaxInt64}, 1,
			[]float64{0, time.Duration(math.MaxInt64 / 2).Seconds(), time.Duration(math.MaxInt64 - 1).Seconds(), time.Duration(math.MaxInt64).Seconds()}},
		{"constant", ConstantBackoff(7 * time.Second), 1, []float64{7, 7, 7}},
		{"by exit code: one", byCode, 42, []float64{3, 3, 3}},
		{"by exit code: another", byCode, 137, []float64{0, 60, 120, 240, 300}},
		{"by exit code: default", byCode, 1, []float64{0, 1, 2}},
		{"by exit code: not told yet", byCode, untold, []float64{0, 1, 2}},
		{"by exit code: no default", ByExitCode{}, 1, []float64{0, 10, 20}},
	} {
		if got := delays(tc.b, len(tc.want), tc.code); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// A delay that another policy, or another limit, has left behind.
func TestDoublingFromAnotherDelay(t *testing.T) {
	b := DoublingBackoff{First: 10 * time.Second, Max: time.Minute}
	for last, want := range map[time.Duration]time.Duration{
		time.Second: 10 * time.Second, 5 * time.Second: 10 * time.Second, 25 * time.Second: 50 * time.Second,
		time.Hour: time.Minute, math.MaxInt64: time.Minute,
	} {
		if got := b.Delay(Crash{Restarts: 3, Last: last}); got != want {
			t.Errorf("after %v: %v, want %v", last, got, want)
		}
	}
}

func TestRecovered(t *testing.T) {
	for _, tc := range []struct {
		b     Backoff
		lived time.Duration
		want  bool
	}{
		{DoublingBackoff{}, 10 * time.Minute, false},
		{DoublingBackoff{}, 10*time.Minute + 1, true},
		{DoublingBackoff{Max: time.Second}, 2*time.Second + 1, true},
		{DoublingBackoff{Max: math.MaxInt64}, math.MaxInt64, false},
		{ConstantBackoff(time.Second), time.Hour, false},
		{ByExitCode{}, time.Hour, true},
		{ByExitCode{Codes: map[int32]Backoff{0: ConstantBackoff(0)}}, time.Hour, false},
	} {
		if got := tc.b.Recovered(Crash{ExitCode: new(int32), Restarts: 1, Lived: tc.lived}); got != tc.want {
			t.Errorf("%T after %v: %v, want %v", tc.b, tc.lived, got, tc.want)
		}
	}
}

// The first restart of a container whose process was killed by the kernel for
// its memory waits a minute; others are restarted as the kubelet does it.
func ExampleByExitCode() {
	policy := ByExitCode{Codes: map[int32]Backoff{137: ConstantBackoff(time.Minute)}}
	for _, code := range []int32{1, 137} {
		fmt.Println(code, policy.Delay(Crash{ExitCode: &code}), policy.Delay(Crash{ExitCode: &code, Restarts: 1}))
	}
	// Output:
	// 1 0s 10s
	// 137 1m0s 1m0s
}
