package pleg_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/pleg"
)

func TestNewReportsAMistake(t *testing.T) {
	if _, err := pleg.New(pleg.Config{}); err == nil || !strings.Contains(err.Error(), "Config.Runtime") {
		t.Errorf("error %v does not name Config.Runtime", err)
	}
	reg := prometheus.NewRegistry()
	for i := range 2 {
		if _, err := pleg.New(pleg.Config{Runtime: newFake(false), Metrics: reg}); err != nil {
			t.Errorf("manager %d on one registry: %v", i, err)
		}
	}
}

func TestRelistTellsWhatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(false)
		f.set("a", observed.Running, box("a1", observed.Running), box("a2", observed.Exited), box("a3", observed.Created))
		f.set("b", observed.Exited, box("b1", observed.Exited), box("b2", observed.Running))
		m := start(t, pleg.Config{Runtime: f})
		got := drain(m)
		wantChanges(t, "first relist, a", got["a"], pleg.Change{ID: "a-s", Type: pleg.ContainerStarted, Sandbox: true},
			pleg.Change{ID: "a1", Type: pleg.ContainerStarted}, pleg.Change{ID: "a2", Type: pleg.ContainerDied}, pleg.Change{ID: "a3", Type: pleg.ContainerChanged})
		wantChanges(t, "first relist, b", got["b"], pleg.Change{ID: "b-s", Type: pleg.ContainerDied, Sandbox: true},
			pleg.Change{ID: "b1", Type: pleg.ContainerDied}, pleg.Change{ID: "b2", Type: pleg.ContainerStarted})

		time.Sleep(5 * time.Second)
		if got := drain(m); len(got) > 0 {
			t.Errorf("events although nothing changed: %v", got)
		}
		if _, n := f.calls("a"); n != 1 {
			t.Errorf("inspections of an unchanged pod = %d", n)
		}

		f.set("a", observed.Exited, box("a1", observed.Exited), box("a3", observed.Running), box("a4", observed.Exited))
		f.do(func() { delete(f.pods, "b") })
		time.Sleep(time.Second)
		got = drain(m)
		wantChanges(t, "a", got["a"], pleg.Change{ID: "a-s", Type: pleg.ContainerDied, Sandbox: true}, pleg.Change{ID: "a1", Type: pleg.ContainerDied},
			pleg.Change{ID: "a2", Type: pleg.ContainerRemoved}, pleg.Change{ID: "a3", Type: pleg.ContainerStarted}, pleg.Change{ID: "a4", Type: pleg.ContainerDied})
		wantChanges(t, "b", got["b"], pleg.Change{ID: "b-s", Type: pleg.ContainerRemoved, Sandbox: true}, pleg.Change{ID: "b1", Type: pleg.ContainerRemoved},
			pleg.Change{ID: "b2", Type: pleg.ContainerDied}, pleg.Change{ID: "b2", Type: pleg.ContainerRemoved})
		if p, err := seen(m, "b"); err != nil || len(p.Containers)+len(p.Sandboxes) > 0 || p.UID != "b" {
			t.Errorf("a pod that is gone: %+v, %v", p, err)
		}
		if p, _ := seen(m, "a"); len(p.Sandboxes[0].IPs) != 1 {
			t.Errorf("the ended sandbox lost its address: %+v", p.Sandboxes[0])
		}
	})
}

func TestPodThatComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(true) // a static pod keeps its UID
		f.set("a", observed.Running, box("a1", observed.Running))
		m := start(t, pleg.Config{Runtime: f})
		drain(m)
		for round := range 5 {
			f.do(func() { delete(f.pods, "a") })
			f.tell("a")
			if got := drain(m)["a"]; len(got) != 4 {
				t.Fatalf("round %d: changes at the end = %v", round, got)
			}
			f.set("a", observed.Running, box("a1", observed.Running))
			time.Sleep(10 * time.Minute) // no event: a relist finds it
			if got := drain(m)["a"]; len(got) != 2 {
				t.Fatalf("round %d: changes at the return = %v", round, got)
			}
			if p, _ := seen(m, "a"); p.Runs() != observed.Yes || len(m.Pods()) != 1 {
				t.Fatalf("round %d: the pod that came back is not known", round)
			}
		}
	})
}

func TestListedPodsAreKnownBeforeTheirInspection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(false)
		f.set("a", observed.Running, box("a1", observed.Running))
		f.hangs["a"] = true
		m := start(t, pleg.Config{Runtime: f})
		select {
		case <-m.Listed():
		default:
			t.Fatal("the first list is not done")
		}
		if p, err := seen(m, "a"); err != nil || p.Runs() != observed.Yes {
			t.Errorf("Get of a pod that hangs since the start = %+v, %v", p, err)
		}
		if l := m.Pods(); len(l) != 1 || l[0].Name != "name-a" || len(l[0].Containers) != 1 {
			t.Errorf("Pods = %+v", l)
		}
		f.do(func() { delete(f.pods, "a") })
		time.Sleep(2 * time.Minute)
		if l := m.Pods(); len(l) != 0 || len(m.Hung()) != 0 {
			t.Errorf("after its end: Pods = %+v, Hung = %+v", l, m.Hung())
		}
		wantChanges(t, "told", drain(m)["a"], pleg.Change{Type: pleg.PodSync})
	})
}

func TestFailedInspectionKeepsTheChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(false)
		boom := errors.New("boom")
		f.set("good", observed.Running)
		f.set("bad", observed.Running, box("b1", observed.Running))
		f.inspectErr["bad"] = boom
		m := start(t, pleg.Config{Runtime: f})
		got := drain(m)
		if len(got["good"]) != 1 || len(got["bad"]) != 0 {
			t.Errorf("events = %v", got)
		}
		if _, err := seen(m, "bad"); !errors.Is(err, boom) {
			t.Errorf("Get of the failing pod: %v", err)
		}
		time.Sleep(10 * time.Minute)
		if lists, n := f.calls("bad"); n > 35 || n < 15 || lists < 590 {
			t.Errorf("inspections of a failing pod in 10 minutes = %d, lists = %d; want back-off up to 30 s", n, lists)
		}
		f.do(func() { delete(f.inspectErr, "bad") })
		time.Sleep(time.Minute)
		wantChanges(t, "after recovery", drain(m)["bad"], pleg.Change{ID: "b1", Type: pleg.ContainerStarted},
			pleg.Change{ID: "bad-s", Type: pleg.ContainerStarted, Sandbox: true})
		time.Sleep(time.Minute)
		if got := drain(m); len(got) > 0 {
			t.Errorf("told twice: %v", got)
		}
	})
}

// A change that no event told is seen by a Refresh, also if an inspection is under way that began
// before the change. Without a change there is no event.
func TestRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(true)
		f.set("a", observed.Running)
		m := start(t, pleg.Config{Runtime: f})
		time.Sleep(time.Hour) // lists are 5 minutes apart by now
		drain(m)
		nothing := func(what string) {
			t.Helper()
			if got := drain(m); len(got) > 0 {
				t.Errorf("%s: events %v, want none", what, got)
			}
		}
		m.Refresh("a")
		nothing("unchanged")
		m.Refresh("unknown")
		nothing("unknown")
		if len(m.Pods()) != 1 {
			t.Errorf("Pods = %v", m.Pods())
		}

		f.do(func() { f.inspectErr["a"] = errors.New("boom") })
		f.set("a", observed.Running, box("a1", observed.Running))
		m.Refresh("a")
		nothing("the inspection failed")
		f.do(func() { delete(f.inspectErr, "a") })
		time.Sleep(time.Second)
		wantChanges(t, "retried", drain(m)["a"], pleg.Change{ID: "a1", Type: pleg.ContainerStarted})

		f.do(func() { f.slow = 500 * time.Millisecond })
		m.Refresh("a")
		time.Sleep(100 * time.Millisecond)
		f.set("a", observed.Running, box("a1", observed.Exited))
		m.Refresh("a")
		_, before := f.calls("a")
		time.Sleep(500 * time.Millisecond)
		nothing("seen by the inspection that began too early")
		time.Sleep(500 * time.Millisecond)
		wantChanges(t, "second", drain(m)["a"], pleg.Change{ID: "a1", Type: pleg.ContainerDied})
		if _, n := f.calls("a"); n != before+1 {
			t.Errorf("inspections = %d more, want 1", n-before)
		}
	})
}

func TestEventsOfOnePodAreMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(true)
		m := start(t, pleg.Config{Runtime: f})
		for i := range 20 {
			f.set("a", observed.Running, box(fmt.Sprintf("c%02d", i), observed.Running))
			f.tell("a")
			f.set("b", observed.Running, box(fmt.Sprintf("c%02d", i), observed.Running))
			f.tell("b")
			synctest.Wait()
		}
		events := map[types.UID]int{}
		for {
			synctest.Wait()
			select {
			case ev := <-m.Events():
				events[ev.UID]++
				continue
			default:
			}
			break
		}
		// The very first was in hand already when the second came.
		if events["a"] == 0 || events["b"] == 0 || events["a"]+events["b"] > 3 {
			t.Errorf("events = %v", events)
		}
	})
}

func TestAtRestWithEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(true)
		for i := range 100 {
			f.set(types.UID(fmt.Sprint(i)), observed.Running)
		}
		m := start(t, pleg.Config{Runtime: f})
		drain(m)
		time.Sleep(15 * time.Minute)
		l0, n0 := f.calls("1")
		time.Sleep(time.Hour)
		l1, n1 := f.calls("1")
		if l1-l0 > 12 || n1 != n0 {
			t.Errorf("in an hour at rest: %d lists, %d inspections; want at most 12 and 0", l1-l0, n1-n0)
		}

		// An event acts at once, and several at one time come to two inspections.
		f.set("1", observed.Exited)
		f.do(func() { f.slow = 5 * time.Millisecond })
		for range 10 {
			f.tell("1")
		}
		time.Sleep(time.Second)
		if got := drain(m)["1"]; len(got) != 1 {
			t.Errorf("changes = %v", got)
		}
		if _, n := f.calls("1"); n-n1 > 2 {
			t.Errorf("inspections for ten events = %d, want at most 2", n-n1)
		}
	})
}

func TestLostEventsBringRelistsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(true)
		f.set("a", observed.Running)
		m := start(t, pleg.Config{Runtime: f})
		drain(m)
		time.Sleep(30 * time.Minute)
		f.set("a", observed.Exited) // and nobody says so
		for waited := time.Duration(0); len(drain(m)["a"]) != 1; waited += time.Second {
			if waited > 5*time.Minute {
				t.Fatal("no relist found the change")
			}
			time.Sleep(time.Second)
		}
		l0, _ := f.calls("a")
		time.Sleep(20 * time.Second)
		if l1, _ := f.calls("a"); l1-l0 < 3 {
			t.Errorf("relists in 20 s after a loss = %d", l1-l0)
		}
	})
}

func TestLateEventLeadsToARelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(true)
		m := start(t, pleg.Config{Runtime: f})
		time.Sleep(time.Hour)
		l0, _ := f.calls("a")
		f.tell("a")
		time.Sleep(time.Second)
		if l1, _ := f.calls("a"); l1 != l0 {
			t.Errorf("an event in time led to %d relists", l1-l0)
		}
		for range 1000 {
			f.tellAt("a", time.Now().Add(-time.Minute))
		}
		time.Sleep(time.Second)
		l1, _ := f.calls("a")
		if l1 == l0 || l1-l0 > 3 {
			t.Errorf("1000 late events led to %d relists", l1-l0)
		}
		// The runtime's clock was set back by a second within the stream: from then on
		// its events are in order again.
		time.Sleep(time.Hour)
		f.tellAt("a", time.Now().Add(time.Hour))
		f.tellAt("a", time.Now())
		time.Sleep(time.Second)
		l1, _ = f.calls("a")
		for range 5 {
			f.tell("a")
			time.Sleep(time.Second)
		}
		if l2, _ := f.calls("a"); l2-l1 > 3 {
			t.Errorf("events in order led to %d relists", l2-l1)
		}
		drain(m)
	})
}

func TestStreamIsReopened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(true)
		f.set("a", observed.Running)
		m := start(t, pleg.Config{Runtime: f})
		drain(m)
		time.Sleep(time.Hour)
		var broke time.Time
		f.do(func() {
			f.refuse = true
			f.opened = nil
			broke = time.Now()
			f.pods["a"].Sandboxes[0].State = observed.Exited
			close(f.broken)
		})
		if got := drain(m)["a"]; len(got) != 1 {
			t.Errorf("what happened as the stream broke: %v", got)
		}
		l0, _ := f.calls("a")
		time.Sleep(10 * time.Minute)
		l1, _ := f.calls("a")
		var tries int
		f.do(func() { tries = len(f.opened) })
		if n := l1 - l0; n < 590 || n > 650 {
			t.Errorf("relists in 10 minutes without a stream = %d, want about 600", n)
		}
		if tries < 15 || tries > 40 {
			t.Errorf("tries to open the stream in 10 minutes = %d", tries)
		}
		f.do(func() {
			if d := f.opened[0].Sub(broke); d < 100*time.Millisecond || d > time.Second {
				t.Errorf("first try after %v", d)
			}
			f.refuse = false
		})
		time.Sleep(20 * time.Minute)
		l2, _ := f.calls("a")
		time.Sleep(time.Hour)
		if l3, _ := f.calls("a"); l3-l2 > 12 {
			t.Errorf("relists in an hour with the stream back = %d", l3-l2)
		}
	})
}

func TestHungPodDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(true)
		m := start(t, pleg.Config{Runtime: f})
		for i := range 20 { // more than there are slots
			uid := types.UID(fmt.Sprintf("hung%d", i))
			f.do(func() { f.hangs[uid] = true })
			f.set(uid, observed.Running)
			f.tell(uid)
		}
		time.Sleep(3 * time.Second)
		f.set("fine", observed.Running)
		began := time.Now()
		f.tell("fine")
		if got := drain(m); len(got["fine"]) != 1 || time.Since(began) > 0 {
			t.Errorf("events = %v after %v", got, time.Since(began))
		}
		if _, err := m.GetNewerThan(t.Context(), "fine", time.Now()); err != nil || time.Since(began) > 0 {
			t.Errorf("GetNewerThan of another pod: %v after %v", err, time.Since(began))
		}
		if n := len(m.Hung()); n != 0 {
			t.Errorf("hung after 3 s: %d", n)
		}
		time.Sleep(10 * time.Second)
		if n := len(m.Hung()); n != 20 {
			t.Errorf("hung after 13 s: %d", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if _, err := m.GetNewerThan(ctx, "hung0", began); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("GetNewerThan of a hung pod: %v after %v", err, time.Since(began))
		}
		if _, err := m.GetNewerThan(t.Context(), "hung0", began); err == nil || time.Since(began) > 65*time.Second {
			t.Errorf("without a deadline of its own: %v after %v", err, time.Since(began))
		}
		time.Sleep(10 * time.Minute)
		if n := len(m.Hung()); n != 20 {
			t.Errorf("hung after 10 minutes: %d", n)
		}
		if _, n := f.calls("hung0"); n > 20 {
			t.Errorf("inspections of a hung pod in 11 minutes = %d", n)
		}
		if err := m.Healthy(); err != nil {
			t.Errorf("a hung pod makes the node unhealthy: %v", err)
		}
		f.do(func() { clear(f.hangs) })
		time.Sleep(2 * time.Minute)
		if n := len(m.Hung()); n != 0 {
			t.Errorf("still hung: %d", n)
		}
		if got := drain(m); len(got) != 20 {
			t.Errorf("pods told of after recovery = %d, want 20", len(got))
		}
	})
}

func TestInspectionThatIgnoresItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(false)
		f.deaf["a"] = true
		f.set("a", observed.Running)
		m := start(t, pleg.Config{Runtime: f})
		t.Cleanup(func() { close(f.release) }) // before Run is awaited
		time.Sleep(40 * time.Second)
		if _, err := seen(m, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Get: %v", err)
		}
		if len(m.Hung()) != 1 {
			t.Errorf("Hung = %v", m.Hung())
		}
		f.do(func() { clear(f.deaf) })
		time.Sleep(2 * time.Minute)
		if p, err := seen(m, "a"); err != nil || p.Runs() != observed.Yes {
			t.Errorf("after recovery: %+v, %v", p, err)
		}
	})
}

func TestInspectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(false)
		f.slow = 100 * time.Millisecond
		for i := range 100 {
			f.set(types.UID(fmt.Sprint(i)), observed.Running)
		}
		m := start(t, pleg.Config{Runtime: f})
		time.Sleep(2 * time.Second)
		if got := drain(m); len(got) != 100 || f.most != 8 {
			t.Errorf("pods told of = %d, inspections at a time = %d; want 100 and 8", len(got), f.most)
		}
	})
}

func TestHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(true)
		m, err := pleg.New(pleg.Config{Runtime: f})
		if err != nil {
			t.Fatal(err)
		}
		if m.Healthy() == nil {
			t.Error("healthy before the first relist")
		}
		m = start(t, pleg.Config{Runtime: f})
		time.Sleep(time.Hour) // lists are 5 minutes apart by now
		if err := m.Healthy(); err != nil {
			t.Error(err)
		}
		f.do(func() {
			f.listErr = errors.New("no answer")
			close(f.broken)
		})
		time.Sleep(3 * time.Minute)
		if err := m.Healthy(); err != nil {
			t.Errorf("at the threshold: %v", err)
		}
		time.Sleep(2 * time.Second)
		if err := m.Healthy(); !errors.Is(err, f.listErr) {
			t.Errorf("beyond it: %v", err)
		}
		f.do(func() { f.listErr = nil })
		time.Sleep(2 * time.Second)
		if err := m.Healthy(); err != nil {
			t.Errorf("after recovery: %v", err)
		}
		f.do(func() {
			f.listHangs = true
			close(f.broken)
		})
		time.Sleep(4 * time.Minute)
		if m.Healthy() == nil {
			t.Error("healthy although lists hang")
		}
	})
}

func TestGetNewerThan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(true)
		f.set("a", observed.Running)
		m := start(t, pleg.Config{Runtime: f})
		time.Sleep(time.Minute)
		_, n0 := f.calls("a")
		get := func(uid types.UID, at time.Time) *observed.Pod {
			t.Helper()
			p, err := m.GetNewerThan(t.Context(), uid, at)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		get("a", time.Time{})
		if _, n := f.calls("a"); n != n0 {
			t.Error("inspected although any age will do")
		}
		if p := get("a", time.Now()); !p.ObservedAt.Equal(time.Now()) {
			t.Errorf("observed %v ago", time.Since(p.ObservedAt))
		}
		if p := get("a", time.Now().Add(time.Hour)); p.Runs() != observed.Yes {
			t.Error("a time to come")
		}
		// Not there, and a relist said so after that time: no call.
		if p := get("none", time.Now().Add(-time.Minute)); len(p.Sandboxes) != 0 || p.UID != "none" {
			t.Errorf("unknown pod = %+v", p)
		}
		if _, n := f.calls("none"); n != 0 {
			t.Errorf("inspections of a pod that no list has = %d", n)
		}
		get("none", time.Now())
		if _, n := f.calls("none"); n != 1 {
			t.Errorf("inspections of a pod that no list since has = %d", n)
		}

		// Many callers share one inspection.
		f.do(func() { f.slow = 100 * time.Millisecond })
		_, n0 = f.calls("a")
		at := time.Now()
		time.Sleep(time.Millisecond)
		for range 50 {
			go m.GetNewerThan(t.Context(), "a", at)
		}
		time.Sleep(time.Second)
		if _, n := f.calls("a"); n != n0+1 {
			t.Errorf("inspections for 50 callers = %d", n-n0)
		}
	})
}

func TestGetNewerThanEndsWithRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(true)
		f.hangs["a"] = true
		m, _ := pleg.New(pleg.Config{Runtime: f})
		if _, err := m.GetNewerThan(t.Context(), "a", time.Now()); err == nil {
			t.Error("an answer before Run")
		}
		ctx, cancel := context.WithCancel(t.Context())
		go m.Run(ctx)
		synctest.Wait()
		ended := false
		go func() {
			m.GetNewerThan(context.Background(), "a", time.Now())
			ended = true
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if !ended {
			t.Error("a caller is stuck after Run's end")
		}
		m.Refresh("a")
	})
}

// What GetNewerThan returns holds all that happened before t, whatever else
// goes on: changes with and without events, relists, other callers, failures.
func TestGetNewerThanIsFresh(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			f := newFake(seed%2 == 0)
			f.slow = 20 * time.Millisecond
			// Inspections of other pods leave one slot or two.
			others := []types.UID{"q0", "q1", "q2", "q3", "q4", "q5", "q6"}
			f.slowOf = map[types.UID]time.Duration{}
			for _, uid := range others {
				f.slowOf[uid] = 900 * time.Millisecond
				f.set(uid, observed.Running)
			}
			m := start(t, pleg.Config{Runtime: f})
			stop := make(chan struct{})
			defer close(stop)
			go func() {
				for {
					select {
					case <-stop:
						return
					case <-m.Events():
					}
				}
			}()
			for _, uid := range append(others, "p1") {
				go func() {
					for {
						select {
						case <-stop:
							return
						case <-time.After(7 * time.Millisecond):
							m.GetNewerThan(t.Context(), uid, time.Now().Add(-10*time.Millisecond))
						}
					}
				}()
			}
			for i := range 300 {
				uid := types.UID(fmt.Sprintf("p%d", rng.IntN(5)))
				want := fmt.Sprintf("%s-%d", uid, i)
				if rng.IntN(4) == 0 {
					f.do(func() { delete(f.pods, uid) })
					want = ""
				} else {
					f.set(uid, observed.Running, box(want, observed.Running))
				}
				if rng.IntN(2) == 0 {
					f.tell(uid)
				}
				at := time.Now()
				time.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond)
				p, err := m.GetNewerThan(t.Context(), uid, at)
				if err != nil {
					t.Fatal(err)
				}
				got := ""
				if len(p.Containers) > 0 {
					got = p.Containers[0].ID
				}
				if got != want {
					t.Fatalf("seed %d, step %d: container %q, want %q", seed, i, got, want)
				}
			}
		})
	}
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(false)
		reg := prometheus.NewRegistry()
		f.set("a", observed.Running, box("a1", observed.Running), box("a2", observed.Running))
		f.set("b", observed.Exited, box("b1", observed.Exited))
		f.do(func() {
			f.pods["a"].Sandboxes = append(f.pods["a"].Sandboxes, observed.Sandbox{ID: "a-s2", State: observed.Running})
		})
		m := start(t, pleg.Config{Runtime: f, Metrics: reg})
		if err := m.Healthy(); err != nil {
			t.Error(err)
		}
		want := func(key string, value float64) {
			t.Helper()
			families, err := reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, fam := range families {
				for _, metric := range fam.GetMetric() {
					name := fam.GetName()
					for _, l := range metric.GetLabel() {
						name += "/" + l.GetValue()
					}
					if name != key {
						continue
					}
					got := metric.GetGauge().GetValue()
					if h := metric.GetHistogram(); h != nil {
						got = float64(h.GetSampleCount())
					}
					if got != value {
						t.Errorf("%s = %v, want %v", key, got, value)
					}
					return
				}
			}
			t.Errorf("no metric %s", key)
		}
		want("kubelet_running_pods", 1)
		want("kubelet_running_containers/running", 2)
		want("kubelet_running_containers/exited", 1)
		want("kubelet_pleg_last_seen_seconds", float64(time.Now().Unix()))
		f.set("b", observed.Running, box("b2", observed.Running))
		m.Refresh("b") // a look between two relists counts
		synctest.Wait()
		want("kubelet_running_pods", 2)
		want("kubelet_running_containers/running", 3)
		f.do(func() { clear(f.pods) })
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		want("kubelet_running_pods", 0)
		want("kubelet_running_containers/running", 0)
		want("kubelet_running_containers/exited", 0)
		want("kubelet_pleg_relist_interval_seconds", 2)
		want("kubelet_pleg_relist_duration_seconds", 3)
		want("kubelet_pleg_pod_relist_duration_seconds", 3)
	})
}
