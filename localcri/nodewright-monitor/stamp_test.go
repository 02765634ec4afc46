//go:build linux

package main

import (
	"testing"
	"time"
)

const layout = "2006-01-02T15:04:05.000000000Z"

func TestTimesAreAsTheStandardLibraryHasThem(t *testing.T) {
	at := time.Unix(0, 1).UTC()
	for at.Year() < 2260 {
		if got := string(appendTime(nil, at.UnixNano())); got != at.Format(layout) {
			t.Fatalf("%s is written %s", at.Format(layout), got)
		}
		if n, ok := parseTime([]byte(at.Format(layout))); !ok || n != at.UnixNano() {
			t.Fatalf("%s is read as %d, %v", at.Format(layout), n, ok)
		}
		at = at.Add(43*time.Hour + 13*time.Minute + 59*time.Second + 123456789)
	}
	for _, bad := range []string{"", "2026-01-02T03:04:05Z", "2026-13-02T03:04:05.000000000Z", "2026-01-02 03:04:05.000000000Z", "x026-01-02T03:04:05.000000000Z"} {
		if _, ok := parseTime([]byte(bad)); ok {
			t.Errorf("%q is a time", bad)
		}
	}
}
