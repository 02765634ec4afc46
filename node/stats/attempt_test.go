package stats

import (
	"slices"
	"testing"
	"time"
)

// A clock that was set back between two instances has no figures told of the older.
func TestAttemptsOrderInstances(t *testing.T) {
	late, early := time.Unix(2e9, 0), time.Unix(1e9, 0)
	sandboxes := []Sandbox{{ID: "0", UID: "p", Attempt: 0, CreatedAt: late, Ready: true}, {ID: "1", UID: "p", Attempt: 1, CreatedAt: early, Ready: true}}
	containers := []Container{{ID: "0", Name: "c", SandboxID: "1", Running: true, CreatedAt: late}, {ID: "1", Name: "c", SandboxID: "1", Running: true, Attempt: 1, CreatedAt: early}}
	for range 2 {
		if got := livePods(sandboxes)["p"]; got.ID != "1" {
			t.Errorf("of sandboxes, %s", got.ID)
		}
		if got := running(containers)["1"]; len(got) != 1 || got[0].ID != "1" {
			t.Errorf("of containers, %v", got)
		}
		slices.Reverse(sandboxes)
		slices.Reverse(containers)
	}
}
