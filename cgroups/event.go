package cgroups

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// EventType describes what happened to a cgroup. The memory events are the counters
// of memory.events (cgroup-v2.rst); v1 has only OOMKill.
type EventType string

// The types of events.
const (
	OOMKill    EventType = "OOMKill"    // the kernel killed a process to free memory
	OOM        EventType = "OOM"        // an allocation was about to fail at the limit (v2)
	MemoryMax  EventType = "MemoryMax"  // usage came to the limit (v2)
	MemoryHigh EventType = "MemoryHigh" // the cgroup was slowed down (v2)
	Stalled    EventType = "Stalled"    // tasks waited for as long as a Trigger says (v2)
	Gone       EventType = "Gone"       // the cgroup was removed; the last event
)

// Event is an event of a pod's cgroup or of its containers. Events of one type are combined until
// they are received.
type Event struct {
	UID  types.UID
	Type EventType
	// Count is the number of occurrences since the last event of the same type.
	Count uint64
	// Trigger is the trigger that fired, and Pressure is the current pressure. They are set only
	// if Type is Stalled.
	Trigger  Trigger
	Pressure Pressure
}

// Trigger is a threshold of waiting time at which a Stalled event is reported (the
// kernel's accounting/psi document). Without CAP_SYS_RESOURCE the kernel accepts
// only windows that are multiples of 2s.
type Trigger struct {
	Resource string // cpu, memory or io
	Full     bool   // all tasks that are not idle, instead of at least one
	Stall    time.Duration
	Window   time.Duration // 500ms to 10s; Stall is at most that
}

// minWindow and maxWindow are the kernel's limits of a trigger's window (accounting/psi).
const (
	minWindow = 500 * time.Millisecond
	maxWindow = 10 * time.Second
)

// validate returns an error for a trigger for which the kernel would return EINVAL without a
// reason.
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

// Signal describes a kernel file that reports changes. There are three kinds: a
// file that reports by itself, a file to which a trigger is written, and a file of
// v1 that reports through an eventfd.
type Signal struct {
	File string
	// Arg is the trigger that is written to File or, with Control, the argument of
	// the v1 registration.
	Arg string
	// Control is the cgroup.event_control file of v1 through which File reports. It is "" if File
	// reports by itself.
	Control string
}

// Notifier waits for signals of the kernel. Notify calls wake whenever the kernel
// reports the signal, and possibly at other times, until stop is called. wake does
// not block. Notify may call wake from its own goroutine with locks held, so that
// wake must not call stop. Notify may be called from any goroutine.
type Notifier interface {
	Notify(s Signal, wake func()) (stop func(), err error)
}
