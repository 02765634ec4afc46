package sim

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

var weeks = flag.Int("weeks", 0, "how many schedules of each kind TestWeek runs; 0: a day at rest")

// weekPods is how many pods a node has in a schedule of a week, all the time.
const weekPods = 20

// weekKinds are what a week is made of, from the cost of an agent at rest to that of trouble.
var weekKinds = []struct {
	name  string
	stay  bool          // no container ends by itself, and none has a probe
	pause time.Duration // about the time between two troubles; 0: there are none
}{
	{"rest", true, 0},
	{"quiet", false, 0}, // pods of the usual mix, of which some restart for ever
	{"usual", false, 80 * time.Minute},
	{"stormy", false, 10 * time.Minute},
}

// week makes the schedule of a week, or what is left of it, with weekPods pods; those that go
// are replaced.
func week(seed uint64, left time.Duration, stay bool, pause time.Duration) []step {
	g := &generator{rnd: rand.New(rand.NewPCG(seed, 7)), long: true, disks: seed%3 == 0 && !ofNodes(seed)}
	take := func(from int, scale time.Duration) {
		for i := range g.out[from:] {
			s := &g.out[from+i]
			if s.after = time.Duration(float64(s.after) * float64(scale) / float64(meanPause)); stay {
				s.args = slices.DeleteFunc(s.args, func(a string) bool {
					return slices.ContainsFunc(probeKinds, func(k string) bool { return strings.HasPrefix(a, k+"=") })
				})
				for j, a := range s.args {
					if name, _, _ := strings.Cut(a, "="); name == "c" || name == "d" {
						s.args[j] = name + "=forever"
					}
				}
			}
			left -= s.after
		}
	}
	for range weekPods {
		g.pod()
	}
	take(0, 0)
	if pause == 0 {
		return append(g.out, step{after: left, verb: "heal"})
	}
	for left > 0 {
		at := len(g.out)
		if len(g.names) < weekPods {
			g.pod()
		} else {
			g.one()
		}
		take(at, pause)
		for _, s := range g.out[at:] {
			if s.verb == "remove" || s.verb == "forget" {
				g.names = slices.DeleteFunc(g.names, func(n string) bool { return n == s.arg(0) })
			}
		}
	}
	return g.out
}

// meanPause is the mean of a generator's long pauses: see pause.
const meanPause = 80 * time.Minute

// What a week costs: the figures are in the format of go test -bench, a line for a schedule.
func TestWeek(t *testing.T) {
	kinds, length := weekKinds, 7*24*time.Hour
	if *weeks == 0 {
		kinds, length = kinds[:1], 24*time.Hour
	}
	// A life is one thing after the other: with another CPU beside it, the scheduler
	// wakes it for each goroutine that begins, a fourth of the cost of a week.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			dir := workDir(t)
			for seed := range uint64(max(*weeks, 1)) {
				steps := week(seed, length, kind.stay, kind.pause)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				began, cpu := time.Now(), cpuTime(t)
				r := run(t, dir, steps, linked(seed))
				wall, spent := time.Since(began), cpuTime(t)-cpu
				runtime.ReadMemStats(&after)
				for _, p := range r.problems {
					t.Errorf("seed %d: %s", seed, p)
				}
				fmt.Printf("BenchmarkWeek/%s/%d 1 %d ns/op %d cpu-ns/op %d steps/op %d effects/op %d B/op %d allocs/op\n", kind.name, seed,
					wall, spent, len(steps), r.effects, after.TotalAlloc-before.TotalAlloc, after.Mallocs-before.Mallocs)
			}
		})
	}
}

// cpuTime is what this process has had of the CPUs, the kernel's work for it included.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
