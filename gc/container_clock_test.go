package gc

import (
	"slices"
	"testing"
	"time"

	"github.com/nodewright/nodewright/cri/observed"
)

// A clock that was set back between two instances makes no older one of the newer:
// what is needed and what goes first is decided by attempts.
func TestAttemptsOrderInstances(t *testing.T) {
	now := time.Unix(1e9, 0)
	at := func(hours int) time.Time { return now.Add(time.Duration(hours) * time.Hour) }
	all := []Container{
		{ID: "a0", Pod: "p", Name: "a", State: observed.Exited, Attempt: 0, CreatedAt: at(-1)},
		{ID: "a1", Pod: "p", Name: "a", State: observed.Exited, Attempt: 1, CreatedAt: at(-40)}, // the clock was set back
		{ID: "a2", Pod: "p", Name: "a", State: observed.Exited, Attempt: 2, CreatedAt: at(-39)},
		{ID: "b0", Pod: "p", Name: "b", State: observed.Exited, Attempt: 0, CreatedAt: at(-30)},
		{ID: "b1", Pod: "p", Name: "b", State: observed.Exited, Attempt: 1, CreatedAt: at(-20)},
	}
	var removed []string
	for _, v := range decideContainers(ContainerPolicy{MaxPerContainer: 1, MaxContainers: -1}, situation{Now: now}, all) {
		switch {
		case v.Verdict == containerRemove:
			removed = append(removed, v.ID)
		case v.Verdict != containerNeeded:
			t.Errorf("%s: %v", v.ID, v.Verdict)
		}
	}
	if !slices.Equal(removed, []string{"b0", "a0", "a1"}) {
		t.Errorf("removed %q", removed)
	}
	sandboxes := []Sandbox{{ID: "s0", Pod: "p", CreatedAt: at(-1)}, {ID: "s1", Pod: "p", Attempt: 1, CreatedAt: at(-40)}}
	if out := decideSandboxes(situation{Now: now}, sandboxes, nil); len(out) != 1 || out[0].ID != "s0" {
		t.Errorf("removed %v", out)
	}
}
