package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

func TestDrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var lines []string
		err := drive(func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, fmt.Sprintf(format, args...))
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"web has booted", "web has 4 CPUs now, it had 1", "db has 8 CPUs now, it had 1",
			"build: boot VM: no room; again in 10ms", "build has 12 CPUs now, it had 1",
			"db: stage 1, resting, next health check", "web is off", "db is off", "build is off",
		} {
			if !slices.Contains(lines, want) {
				t.Errorf("%q is missing from\n%s", want, strings.Join(lines, "\n"))
			}
		}
	})
}
