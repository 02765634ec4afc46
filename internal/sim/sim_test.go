package sim

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

var (
	seeds   = flag.Int("seeds", defaultSeeds, "how many schedules TestSeeds runs")
	first   = flag.Uint64("seed", 1, "the first of them")
	workers = flag.Int("sims", runtime.GOMAXPROCS(0), "how many run at a time")
	nodes   = flag.Bool("node", false, "whole nodes only, instead of with every sixteenth seed")
	long    = flag.Bool("long", false, "schedules of days instead of hours")
	trace   = flag.Bool("trace", false, "show the effects of the shortest schedule that fails")
	enough  = flag.Int64("failures", 5, "failing schedules after which TestSeeds ends")
	shrinks = flag.Int("shrink", 300, "how often a failing schedule is run again, to make it shorter")
)

// A schedule makes much garbage and keeps little.
func TestMain(m *testing.M) {
	debug.SetGCPercent(garbage)
	os.Exit(m.Run())
}

// shm is a file system in memory, which most machines have.
const shm = "/dev/shm"

// workDir is a directory in memory, if the machine has one.
func workDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(shm, "sim")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "m")
}

// endlessAfter is how long a schedule may take on the machine's own clock: a hundred times
// what the longest does on a busy one. Virtual time stands still for who never rests.
const endlessAfter = 5 * time.Minute

// Whatever happens to the machine of a schedule, the invariants hold.
func TestSeeds(t *testing.T) {
	var next atomic.Uint64
	next.Store(*first)
	var ran, effects, virtual, failed atomic.Int64
	began := time.Now()
	t.Run("all", func(t *testing.T) {
		for w := range *workers {
			t.Run(fmt.Sprintf("worker-%d", w), func(t *testing.T) {
				t.Parallel()
				dir := workDir(t)
				for {
					seed := next.Add(1) - 1
					if seed >= *first+uint64(*seeds) || failed.Load() >= *enough {
						return
					}
					steps := generate(seed, *long)
					endless := time.AfterFunc(endlessAfter, func() {
						debug.SetTraceback("all")
						panic(fmt.Sprintf("seed %d has not come to an end within %v; again: go test ./internal/sim -run TestSeeds -seeds 1 -seed %d -long=%t -node=%t", seed, endlessAfter, seed, *long, *nodes))
					})
					r := run(t, dir, steps, linked(seed))
					endless.Stop()
					ran.Add(1)
					effects.Add(int64(r.effects))
					virtual.Add(int64(r.virtual))
					if len(r.problems) > 0 {
						failed.Add(1)
						report(t, dir, seed, steps, r)
					}
				}
			})
		}
	})
	t.Logf("%d schedules, %d failed, %.0f days, %d effects, in %v", ran.Load(), failed.Load(),
		time.Duration(virtual.Load()).Hours()/24, effects.Load(), time.Since(began).Round(time.Millisecond))
}

// linked are the options of a seed: every fourth has links to logs, another fourth frequent
// looks at all pods, and every sixteenth is one of whole nodes, which take eight times the CPU.
func linked(seed uint64) options {
	o := options{links: seed%4 == 0, syncs: rareSyncs, node: ofNodes(seed)}
	if seed%4 == 1 {
		o.syncs = syncFrequency
	}
	return o
}

// ofNodes reports whether the lives of a seed are whole nodes.
func ofNodes(seed uint64) bool { return *nodes || seed%16 == 3 }

// report says what went wrong in a schedule, and makes it short.
func report(t *testing.T, dir string, seed uint64, steps []step, r result) {
	t.Helper()
	o := linked(seed)
	short := shrink(steps, *shrinks, func(s []step) bool { return len(run(t, dir, s, o).problems) > 0 })
	o.trail = true
	last := run(t, dir, short, o)
	if *trace {
		t.Log(strings.Join(tail(last.lines, 60), "\n"))
	}
	t.Errorf("seed %d: %s\nagain: go test ./internal/sim -run TestSeeds -seeds 1 -seed %d -long=%t -node=%t\nshrunk to %d of %d steps, for testdata:\n%s\nwhich fails so: %s",
		seed, strings.Join(r.problems, "\n\t"), seed, *long, *nodes, len(short), len(steps), format(short), strings.Join(last.problems, "\n\t"))
}

func tail(lines []string, n int) []string { return lines[max(0, len(lines)-n):] }

// Each schedule of testdata once led to a problem. Whole nodes live through them as well,
// where the race detector leaves time for that, and through those that are for them alone.
func TestSchedules(t *testing.T) {
	agents, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := filepath.Glob("testdata/node/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range agents {
		through(t, f, filepath.Base(f), options{links: true})
	}
	if allAsNodes {
		nodes = append(nodes, agents...)
	} else {
		nodes = append(nodes, "testdata/smoke.txt")
	}
	for _, f := range nodes {
		through(t, f, "node/"+filepath.Base(f), options{node: true})
	}
}

// through lives through the schedule of a file.
func through(t *testing.T, file, name string, o options) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	steps, err := parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	o.trail = testing.Verbose()
	t.Run(name, func(t *testing.T) {
		r := run(t, workDir(t), steps, o)
		for _, p := range r.problems {
			t.Error(p)
		}
		for _, l := range r.lines {
			t.Log(l)
		}
	})
}
