package footprint

import (
	"testing"
	"time"
)

func TestTrimDue(t *testing.T) {
	left := memory{own: 20 << 20, files: 3 << 20}
	for _, tc := range []struct {
		name          string
		since         time.Duration
		own, files    int64 // grown
		used          time.Duration
		heap, program bool
	}{
		{"nothing happened", 5 * time.Second, 0, 0, 0, false, false},
		{"a minute", time.Minute, 0, 0, 0, true, true},
		{"a minute, busy", time.Minute, 0, 0, time.Second, true, true},
		{"grown and busy", 5 * time.Second, 20 << 20, 20 << 20, time.Second, false, false},
		{"grown and quiet again", 5 * time.Second, 20 << 20, 0, 50 * time.Millisecond, true, true},
		{"only pages of the program", 5 * time.Second, 1 << 20, 20 << 20, 50 * time.Millisecond, false, true},
		{"hardly grown", 5 * time.Second, 1 << 20, 1 << 20, 0, false, false},
		{"shrunk", 5 * time.Second, -20 << 20, -1 << 20, 0, false, false},
	} {
		has := memory{own: left.own + tc.own, files: left.files + tc.files}
		if heap, program := trimDue(tc.since, left, has, tc.used); heap != tc.heap || program != tc.program {
			t.Errorf("%s: heap %v, program %v; want %v, %v", tc.name, heap, program, tc.heap, tc.program)
		}
	}
	if has := resident(); has.own <= 0 || has.files <= 0 || cpuTime() <= 0 {
		t.Errorf("resident %+v, CPU %v: want what the kernel says", has, cpuTime())
	}
}

func TestMemoryOf(t *testing.T) {
	for text, want := range map[string]memory{
		"12345 300 100 7 0 20 0\n": {own: 200 << 12, files: 100 << 12},
		"1 2 2\n":                  {files: 2 << 12},
		"1 2":                      {},
		"1 x 3 4\n":                {},
		"":                         {},
	} {
		if got := memoryOf([]byte(text), 1<<12); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}
