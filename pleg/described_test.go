package pleg_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/pleg"
)

// Whoever reads an event late learns from it what the runtime has forgotten.
func TestEventsNameWhatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newFake(false)
		named := func(state observed.State, code int32) {
			rt.set("a", observed.Running, observed.Container{ID: "c1", Name: "app", State: state, ExitCode: &code},
				observed.Container{ID: "c2", Name: "side", State: observed.Running})
		}
		named(observed.Running, 0)
		m := start(t, pleg.Config{Runtime: rt})
		next := func() pleg.Event { return <-m.Events() }
		if ev := next(); ev.Namespace != "ns" || ev.Name != "name-a" || !slices.ContainsFunc(ev.Changes, func(c pleg.Change) bool { return c.Container == "app" }) {
			t.Errorf("start: %+v", ev)
		}
		named(observed.Exited, 7)
		if ev := next(); ev.Changes[0] != (pleg.Change{ID: "c1", Type: pleg.ContainerDied, Container: "app", ExitCode: 7}) {
			t.Errorf("end: %+v", ev)
		}
		rt.do(func() { delete(rt.pods, "a") })
		ev := next()
		want := []pleg.Change{
			{ID: "c1", Type: pleg.ContainerRemoved, Container: "app", ExitCode: 7},
			{ID: "c2", Type: pleg.ContainerDied, Container: "side", ExitCode: -1},
			{ID: "c2", Type: pleg.ContainerRemoved, Container: "side", ExitCode: -1},
		}
		if ev.Name != "name-a" || !slices.Equal(ev.Changes[:3], want) {
			t.Errorf("removal: %+v", ev)
		}
	})
}
