package pleg_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/pleg"
)

// A machine that starts again under its ID is seen at once, and not at the next
// list: a state that moves backwards is believed after a look.
func TestStatesThatMoveBackwardsAreLookedAt(t *testing.T) {
	for name, tc := range map[string]struct {
		from, to observed.State
		kind     observed.EventKind
		want     []pleg.Change
	}{
		"started again": {observed.Exited, observed.Running, observed.ContainerStarted, []pleg.Change{{ID: "a1", Type: pleg.ContainerStarted}}},
		"made again":    {observed.Exited, observed.Created, observed.ContainerCreated, []pleg.Change{{ID: "a1", Type: pleg.ContainerChanged}}},
		"put back":      {observed.Running, observed.Created, observed.ContainerCreated, []pleg.Change{{ID: "a1", Type: pleg.ContainerChanged}}},
		"changed":       {observed.Exited, observed.Running, observed.ContainerChanged, []pleg.Change{{ID: "a1", Type: pleg.ContainerStarted}}},
		"changed to an end": {observed.Running, observed.Exited, observed.ContainerChanged,
			[]pleg.Change{{ID: "a1", Type: pleg.ContainerDied}}},
		"nothing but a word": {observed.Exited, observed.Exited, observed.ContainerStarted, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(true)
				f.set("a", observed.Running, box("a1", tc.from))
				m := start(t, pleg.Config{Runtime: f})
				drain(m)
				time.Sleep(500 * time.Millisecond)
				looks := inspected(f, "a")
				f.set("a", observed.Running, box("a1", tc.to))
				f.tellOf("a", "a1", tc.kind)
				wantLooks(t, "told of", looks, 1)
				wantChanges(t, "told of", drain(m)["a"], tc.want...)
			})
		})
	}
}

// An event of before the last look is of something that another state has
// followed: it costs no look.
func TestEventsOfBeforeTheLookCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(true)
		f.set("a", observed.Running, box("a1", observed.Exited))
		began := time.Now()
		m := start(t, pleg.Config{Runtime: f})
		drain(m)
		looks := inspected(f, "a")
		for _, kind := range []observed.EventKind{observed.ContainerCreated, observed.ContainerStarted, observed.ContainerStopped} {
			f.mu.Lock()
			on := f.on
			f.mu.Unlock()
			on(observed.Event{UID: "a", ID: "a1", Kind: kind, At: began})
		}
		wantLooks(t, "late events", looks, 0)
	})
}
