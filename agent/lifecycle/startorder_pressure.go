package lifecycle

import (
	"context"
	"fmt"
	"time"

	"github.com/nodewright/nodewright/internal/kernel"
)

// Shares of time above which a machine counts as busy: time in which a task stalled (the line
// "some" of Documentation/accounting/psi.rst), or, without these figures, time in which CPUs
// worked.
const (
	busyStalled = 0.20
	busyWorking = 0.90
)

// gauge measures the machine's load between two checks. Only one goroutine may use it.
type gauge struct {
	machine *kernel.Reader
	last    reading
}

// reading has the kernel's counters since the boot.
type reading struct {
	at      time.Time
	stalled map[string]time.Duration // by resource; nil: the kernel has no such counters
	working float64                  // of all CPUs, in ticks
	all     float64
}

// busy reports whether the machine was busy since the last call, and why. It returns true at the
// first call, and if no figures can be read.
func (g *gauge) busy() (bool, string) {
	now, before := read(g.machine), g.last
	g.last = now
	if before.at.IsZero() {
		return true, "its load is not known yet"
	}
	if now.stalled != nil && before.stalled != nil {
		for _, resource := range resources {
			if share := float64(now.stalled[resource]-before.stalled[resource]) / float64(now.at.Sub(before.at)); share > busyStalled {
				return true, fmt.Sprintf("tasks stalled for %s for %.0f %% of the time", resource, share*100)
			}
		}
		return false, ""
	}
	if all := now.all - before.all; before.all > 0 && all > 0 {
		share := (now.working - before.working) / all
		return share > busyWorking, fmt.Sprintf("its CPUs worked for %.0f %% of the time", share*100)
	}
	return true, "its load cannot be read"
}

// resources names the files of /proc/pressure.
var resources = []string{"cpu", "io", "memory"}

func read(machine *kernel.Reader) reading {
	ctx := context.Background()
	r := reading{at: time.Now(), stalled: map[string]time.Duration{}}
	for _, resource := range resources {
		p, err := machine.Pressure(ctx, resource)
		if err != nil {
			r.stalled = nil
			break
		}
		r.stalled[resource] = p.Some.Duration()
	}
	if r.stalled == nil {
		if s, err := machine.Stat(ctx); err == nil {
			r.working, r.all = float64(s.Busy), float64(s.All)
		}
	}
	return r
}
