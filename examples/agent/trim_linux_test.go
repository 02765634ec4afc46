package main

import (
	"testing"
	"time"
)

func TestTrimDue(t *testing.T) {
	for _, tc := range []struct {
		name  string
		since time.Duration
		grown int64
		used  time.Duration
		want  bool
	}{
		{"nothing happened", 5 * time.Second, 0, 0, false},
		{"a minute", time.Minute, 0, 0, true},
		{"a minute, busy", time.Minute, 0, time.Second, true},
		{"grown and busy", 5 * time.Second, 20 << 20, time.Second, false},
		{"grown and quiet again", 5 * time.Second, 20 << 20, 50 * time.Millisecond, true},
		{"hardly grown", 5 * time.Second, 1 << 20, 0, false},
		{"shrunk", 5 * time.Second, -20 << 20, 0, false},
	} {
		if got := trimDue(tc.since, tc.grown, tc.used); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
	if resident() <= 0 || cpuTime() <= 0 {
		t.Errorf("resident %d bytes, CPU %v: want what the kernel says", resident(), cpuTime())
	}
}
