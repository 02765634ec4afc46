package pleg_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/pleg"
)

// A runtime that never stops telling of a pod has it looked at with pauses, and
// what it told last is seen.
func TestEventsWithoutEndAreLookedAtWithPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, m := holdable(t, true, pleg.Config{})
		looks := inspected(f, "a")
		for i := range 10_000 { // ten seconds
			state := observed.Running
			if i%2 == 0 {
				state = observed.Exited
			}
			f.set("a", observed.Running, box("a1", state))
			f.tellOf("a", "a1", observed.ContainerChanged)
			time.Sleep(time.Millisecond)
		}
		if n := looks(); n < 20 || n > 20+5*10+2 {
			t.Errorf("%d inspections in ten seconds, want at most 72", n)
		}
		f.set("a", observed.Running, box("a1", observed.Created))
		f.tellOf("a", "a1", observed.ContainerChanged)
		time.Sleep(time.Second)
		synctest.Wait()
		if p, err := seen(m, "a"); err != nil || p.Containers[0].State != observed.Created {
			t.Errorf("the last state is not seen: %+v, %v", p, err)
		}
		// Whoever has to know does not wait.
		f.set("a", observed.Running, box("a1", observed.Exited))
		f.tellOf("a", "a1", observed.ContainerStopped)
		asked := time.Now()
		if p, err := m.GetNewerThan(t.Context(), "a", asked); err != nil || p.Containers[0].State != observed.Exited || time.Since(asked) > 0 {
			t.Errorf("after %v: %+v, %v", time.Since(asked), p, err)
		}
		// After a while of rest, news is looked at at once.
		time.Sleep(10 * time.Second)
		looks()
		f.tellOf("a", "a1", observed.ContainerChanged)
		wantLooks(t, "after a rest", looks, 1)
	})
}

// A runtime that shows something else at each look, to somebody who looks at each
// event, does not have both go on without pauses, a pod that seems to go included.
func TestLooksThatMakeEventsComeWithPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, m := holdable(t, true, pleg.Config{})
		f.do(func() { f.blinks = true })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		m.Refresh("a")
		events := 0
		for {
			select {
			case <-ctx.Done():
				if events < 70 || events > 90 {
					t.Errorf("%d events in a minute, want about 80", events)
				}
				return
			case <-m.Events():
				events++
				_, _ = m.GetNewerThan(ctx, "a", time.Now())
			}
		}
	})
}

// Lists that inspections deny, for ever, are not looked into each time; and what they say is
// seen soon once it is so, without any event.
func TestListsThatAreDeniedAreLookedIntoWithPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, m := holdable(t, false, pleg.Config{})
		looks := inspected(f, "a")
		f.do(func() { f.hides = true })
		time.Sleep(5 * time.Minute)
		if n := looks(); n < 20 || n > 40 {
			t.Errorf("%d inspections in five minutes, want about 30", n)
		}
		if p, err := seen(m, "a"); err != nil || len(p.Containers) != 1 {
			t.Errorf("the list is believed: %+v, %v", p, err)
		}
		f.set("a", observed.Running)
		time.Sleep(11 * time.Second)
		if p, err := seen(m, "a"); err != nil || len(p.Containers) != 0 {
			t.Errorf("what went meanwhile is shown: %+v, %v", p, err)
		}
		// Another list, and another inspection: both are news.
		f.do(func() { f.hides = false })
		f.set("a", observed.Running, box("a2", observed.Running))
		time.Sleep(2 * time.Second)
		if p, err := seen(m, "a"); err != nil || len(p.Containers) != 1 {
			t.Errorf("what came is not shown: %+v, %v", p, err)
		}
	})
}
