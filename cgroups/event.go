package cgroups

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// EventType says what happened to a cgroup.
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

// Event is something that happened to a pod's cgroup.
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
// accounting/psi document).
type Trigger struct {
	Resource string // cpu, memory or io
	Full     bool   // all tasks that are not idle, instead of at least one
	Stall    time.Duration
	Window   time.Duration // 500ms to 10s; Stall is at most that
}

// Bounds of a trigger's window.
const (
	minWindow = 500 * time.Millisecond
	maxWindow = 10 * time.Second
)

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

// String is the trigger as the kernel wants it.
func (t Trigger) String() string {
	who := "some"
	if t.Full {
		who = "full"
	}
	return who + " " + strconv.FormatInt(t.Stall.Microseconds(), 10) + " " + strconv.FormatInt(t.Window.Microseconds(), 10)
}

// Signal is what the kernel is asked to tell of.
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
// does not block.
type Notifier interface {
	Notify(s Signal, wake func()) (stop func(), err error)
}
