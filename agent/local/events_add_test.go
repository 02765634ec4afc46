package local

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// An event that is there already moves to the end, and what one object has of events is not
// copied for each of them: a pod that restarts has two a minute for ever.
func TestEventsAreMergedInPlace(t *testing.T) {
	var evs []v1.Event
	now := time.Unix(1000, 0)
	for i := range perObject + 2 {
		evs, _ = add(evs, v1.Event{Reason: "R", Message: fmt.Sprint(i)}, now)
	}
	if len(evs) != perObject || evs[0].Message != "2" || evs[perObject-1].Message != fmt.Sprint(perObject+1) {
		t.Fatalf("%d events, from %q to %q", len(evs), evs[0].Message, evs[len(evs)-1].Message)
	}
	evs, _ = add(evs, v1.Event{Reason: "R", Message: "3"}, now.Add(time.Hour))
	if last := evs[perObject-1]; last.Message != "3" || last.Count != 2 || evs[0].Message != "2" || evs[1].Message != "4" {
		t.Errorf("%q, %q ... %q %d times", evs[0].Message, evs[1].Message, last.Message, last.Count)
	}
	again := v1.Event{Reason: "R", Message: "4"}
	if n := testing.AllocsPerRun(100, func() { evs, _ = add(evs, again, now) }); n > 0 {
		t.Errorf("%v allocations for an event that is there already", n)
	}
}
