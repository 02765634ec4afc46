package footprint

import (
	"runtime/debug"
	"testing"
	"time"
)

func TestPaceOfGarbage(t *testing.T) {
	before := debug.SetGCPercent(restingGC)
	defer debug.SetGCPercent(before)
	p := pacer{on: true}
	now := time.Unix(1000, 0)
	for i, tc := range []struct {
		after time.Duration // 0: the agent is found at rest
		want  int
	}{
		{time.Hour, restingGC},
		{10 * time.Second, restingGC},
		{time.Second, busyGC},
		{10 * time.Second, busyGC},
		{0, restingGC},
		{time.Second, busyGC},
		{2 * time.Minute, restingGC},
	} {
		if now = now.Add(tc.after); tc.after > 0 {
			p.collected(now)
		} else {
			p.rest()
		}
		got := debug.SetGCPercent(restingGC)
		debug.SetGCPercent(got)
		if got != tc.want {
			t.Errorf("step %d: %d%%, want %d%%", i, got, tc.want)
		}
	}
}

func TestPaceOfTheEnvironment(t *testing.T) {
	before := debug.SetGCPercent(77)
	defer debug.SetGCPercent(before)
	t.Setenv("GOGC", "77")
	var p pacer
	p.start()
	p.rest()
	if got := debug.SetGCPercent(77); got != 77 {
		t.Errorf("%d%%, want what the environment says", got)
	}
}
