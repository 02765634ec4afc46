package cgroups

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// EventType describes what happened to a cgroup. Those of memory are the counters of
// memory.events (cgroup-v2.rst); of these v1 has OOMKill alone.
type EventType string

// What happens to a cgroup.
const (
	OOMKill    EventType = "OOMKill"    // the kernel killed a process to free memory
	OOM        EventType = "OOM"        // an allocation was about to fail at the limit (v2)
	MemoryMax  EventType = "MemoryMax"  // usage came to the limit (v2)
	MemoryHigh EventType = "MemoryHigh" // the cgroup was slowed down (v2)
	Stalled    EventType = "Stalled"    // tasks waited for as long as a Trigger says (v2)
	Gone       EventType = "Gone"       // the cgroup was removed; the last event
)

// Event is something that happened to a pod's cgroup, its containers included.
// Events of one type that nobody received in time arrive as one.
type Event struct {
	UID  types.UID
	Type EventType
	// Count is how often, since the last event of that type.
	Count uint64
	// Trigger is the one that was pulled, and Pressure what the kernel shows
	// now, if Type is Stalled.
	Trigger  Trigger
	Pressure Pressure
}

// Trigger is how long tasks may wait before it is told (the kernel's
// accounting/psi document). Processes without CAP_SYS_RESOURCE are restricted
// by the kernel to windows of whole multiples of 2s.
type Trigger struct {
	Resource string // cpu, memory or io
	Full     bool   // all tasks that are not idle, instead of at least one
	Stall    time.Duration
	Window   time.Duration // 500ms to 10s; Stall is at most that
}

// The bounds of a trigger's window are the kernel's (accounting/psi): shorter
// ones would cost too much, and longer ones are what the averages are for.
const (
	minWindow = 500 * time.Millisecond
	maxWindow = 10 * time.Second
)

// validate finds faults that the kernel would report as a bare EINVAL.
func (t Trigger) validate() error {
	switch {
	case !slices.Contains([]string{"cpu", "memory", "io"}, t.Resource):
		return fmt.Errorf("Trigger.Resource is %q; want cpu, memory or io", t.Resource)
	case t.Window < minWindow || t.Window > maxWindow:
		return fmt.Errorf("Trigger.Window is %v; want %v to %v", t.Window, minWindow, maxWindow)
	case t.Stall < time.Microsecond || t.Stall > t.Window:
		return fmt.Errorf("Trigger.Stall is %v; want 1µs to Trigger.Window, %v", t.Stall, t.Window)
	}
	return nil
}

// String returns the trigger as the kernel reads it, with stall and window in
// microseconds: "some 150000 1000000".
func (t Trigger) String() string {
	who := "some"
	if t.Full {
		who = "full"
	}
	return who + " " + strconv.FormatInt(t.Stall.Microseconds(), 10) + " " + strconv.FormatInt(t.Window.Microseconds(), 10)
}

// Signal is what the kernel is asked to tell of. There are three kinds: a file
// that reports by itself, one that takes a trigger, and one of v1 that reports
// through an eventfd.
type Signal struct {
	File string
	// Arg is written to File, for it to tell of that.
	Arg string
	// Control is the cgroup.event_control of v1 through which File reports; ""
	// if it says by itself.
	Control string
}

// Notifier asks the kernel to tell of changes. Notify calls wake whenever the
// kernel reports the signal, and maybe without, until stop is called. wake
// does not block. It may call wake from a goroutine of its own, with locks
// held, so that wake must not call stop. Notify may be called from any
// goroutine.
type Notifier interface {
	Notify(s Signal, wake func()) (stop func(), err error)
}
