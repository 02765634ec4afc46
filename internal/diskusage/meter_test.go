package diskusage

import (
	"testing"
	"time"
)

func TestDue(t *testing.T) {
	const level = 1000
	t0 := time.Unix(1e9, 0)
	for _, tc := range []struct {
		name  string
		last  walked // of 100 bytes and 10 ms, on a file system with 5000 bytes and 50 inodes
		fs    Usage
		after time.Duration
		want  bool
	}{
		{"never before", walked{}, Usage{}, 0, true},
		{"nothing happened", walked{}, Usage{Used: 5000, InodesUsed: 50}, 59 * time.Second, false},
		{"not for a minute", walked{}, Usage{Used: 5000, InodesUsed: 50}, time.Minute, true},
		{"a little", walked{}, Usage{Used: 5001, InodesUsed: 50}, 4999 * time.Millisecond, false},
		{"a little, later", walked{}, Usage{Used: 5001, InodesUsed: 50}, 5 * time.Second, true},
		{"less", walked{}, Usage{Used: 4000, InodesUsed: 50}, 5 * time.Second, true},
		{"files without content", walked{}, Usage{Used: 5000, InodesUsed: 51}, 5 * time.Second, true},
		{"up to the level", walked{}, Usage{Used: 5900, InodesUsed: 50}, time.Second, false},
		{"above the level", walked{}, Usage{Used: 5901, InodesUsed: 50}, 199 * time.Millisecond, false},
		{"above the level, later", walked{}, Usage{Used: 5901, InodesUsed: 50}, 200 * time.Millisecond, true},
		{"above the level already", walked{usage: Usage{Used: 1001}}, Usage{Used: 9000, InodesUsed: 50}, time.Second, false},
		{"a long walk", walked{took: 2 * time.Second}, Usage{Used: 5100, InodesUsed: 50}, 59 * time.Second, false},
		{"a long walk, above the level", walked{took: 2 * time.Second}, Usage{Used: 9000, InodesUsed: 50}, 39 * time.Second, false},
		{"a long walk, above the level, later", walked{took: 2 * time.Second}, Usage{Used: 9000, InodesUsed: 50}, 40 * time.Second, true},
		{"not to the end", walked{took: time.Second, more: true}, Usage{Used: 5000, InodesUsed: 50}, 19 * time.Second, false},
		{"not to the end, later", walked{took: time.Second, more: true}, Usage{Used: 5000, InodesUsed: 50}, 20 * time.Second, true},
		{"not to the end, at once", walked{took: time.Millisecond, more: true}, Usage{Used: 5000, InodesUsed: 50}, 999 * time.Millisecond, false},
		{"a very long walk", walked{took: 10 * time.Second}, Usage{Used: 9000, InodesUsed: 50}, time.Minute, true},
	} {
		w := tc.last
		if tc.name != "never before" {
			w.began, w.fs = t0, Usage{Used: 5000, InodesUsed: 50}
			if w.took == 0 {
				w.took = 10 * time.Millisecond
			}
			if w.usage.Used == 0 {
				w.usage.Used = 100
			}
		}
		if got := w.due(tc.fs, level, t0.Add(tc.after)); got != tc.want {
			t.Errorf("%s: due %v, want %v", tc.name, got, tc.want)
		}
	}
}
