package notify

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	// The default threshold is a tenth of the time (defaultStall in defaultWindow): this is not
	// normal, and comes long before the node stalls.
	defaultStall  = 100 * time.Millisecond
	defaultWindow = time.Second

	// The kernel's limits for a window (kernel/sched/psi.c).
	minWindow = 500 * time.Millisecond
	maxWindow = 10 * time.Second
	// unprivilegedWindow is the unit of windows without CAP_SYS_RESOURCE
	// (Documentation/accounting/psi.rst).
	unprivilegedWindow = 2 * time.Second
)

// Trigger is one kind of notification to wait for.
type Trigger interface {
	// String returns the name of the trigger, as the cause of a wake-up.
	String() string
	// check returns an error for an invalid trigger.
	check() error
	// open registers the trigger with the kernel.
	open() (waiter, error)
}

// psi is the trigger that PSI returns.
type psi struct {
	path          string
	stall, window time.Duration
}

// PSI triggers when at least one task was stalled waiting for memory for longer than stall in a
// window. path is /proc/pressure/memory, or the file memory.pressure of a cgroup. If stall or
// window is 0, it is 100 ms or 1 s. The kernel accepts windows from 500 ms to 10 s; without
// CAP_SYS_RESOURCE, multiples of 2 s only.
func PSI(path string, stall, window time.Duration) Trigger {
	if window == 0 {
		window = defaultWindow
	}
	if stall == 0 {
		stall = defaultStall * window / defaultWindow
	}
	return psi{path, stall, window}
}

// String names the file.
func (p psi) String() string { return "psi " + p.path }

func (p psi) check() error {
	if p.window < minWindow || p.window > maxWindow {
		return fmt.Errorf("%s: the window is %v; want %v to %v", p, p.window, minWindow, maxWindow)
	}
	if p.stall <= 0 || p.stall > p.window {
		return fmt.Errorf("%s: the stall is %v; want more than 0 and at most the window of %v", p, p.stall, p.window)
	}
	return nil
}

// line returns the text for the kernel, in microseconds.
func (p psi) line() string {
	return fmt.Sprintf("some %d %d\x00", p.stall.Microseconds(), p.window.Microseconds())
}

// events waits for a memory.events file of cgroup v2.
type events struct{ path string }

// Events triggers when a limit of a cgroup v2 was hit, or a process in it was killed because of
// the limit: one of the counters high, max, oom and oom_kill in its memory.events has grown.
func Events(path string) Trigger { return events{path} }

// String names the file.
func (e events) String() string { return "memory.events " + e.path }
func (e events) check() error   { return nil }

// counts parses a memory.events file. Invalid lines are ignored.
func counts(data string) map[string]uint64 {
	out := map[string]uint64{}
	for line := range strings.Lines(data) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseUint(value, 10, 64); ok && err == nil {
			out[name] = n
		}
	}
	return out
}

// grown returns the worst event that occurred between two readings, or "".
func grown(before, after map[string]uint64) string {
	for _, name := range []string{"oom_kill", "oom", "max", "high"} {
		if after[name] > before[name] {
			return name
		}
	}
	return ""
}

// usage waits for levels of usage in cgroup v1.
type usage struct{ dir string }

// Usage triggers when the usage of a cgroup v1 crosses one of the levels of Source.Aim, in
// either direction. dir is its directory in the memory controller.
func Usage(dir string) Trigger { return usage{dir} }

// String names the directory.
func (u usage) String() string { return "memory.usage_in_bytes " + u.dir }
func (u usage) check() error   { return nil }
