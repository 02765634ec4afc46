package pleg_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/pleg"
)

// tellOf sends an event of one container.
func (f *fake) tellOf(uid types.UID, id string, kind observed.EventKind) {
	f.mu.Lock()
	on := f.on
	f.mu.Unlock()
	if on != nil {
		on(observed.Event{UID: uid, ID: id, Kind: kind, At: time.Now()})
	}
}

// inspected says how often a pod was inspected since the last call.
func inspected(f *fake, uid types.UID) func() int {
	_, before := f.calls(uid)
	return func() int {
		synctest.Wait()
		_, n := f.calls(uid)
		n, before = n-before, n
		return n
	}
}

func wantLooks(t *testing.T, what string, looks func() int, want int) {
	t.Helper()
	if n := looks(); n != want {
		t.Errorf("%s: %d inspections, want %d", what, n, want)
	}
}

// holdable is a manager that has seen pod a with container a1, and is at rest.
func holdable(t *testing.T, stream bool, cfg pleg.Config) (*fake, *pleg.Manager) {
	t.Helper()
	f := newFake(stream)
	f.set("a", observed.Running, box("a1", observed.Running))
	cfg.Runtime = f
	m := start(t, cfg)
	drain(m)
	time.Sleep(500 * time.Millisecond)
	return f, m
}

func TestHeldPodIsInspectedOnceAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, m := holdable(t, true, pleg.Config{})
		looks := inspected(f, "a")
		release := m.Hold("a")
		f.set("a", observed.Running, box("a1", observed.Exited))
		f.tellOf("a", "a1", observed.ContainerStopped)
		f.set("a", observed.Running, box("a1", observed.Exited), box("a2", observed.Running))
		f.tellOf("a", "a2", observed.ContainerCreated)
		f.tellOf("a", "a2", observed.ContainerStarted)
		m.Refresh("a")
		wantLooks(t, "held", looks, 0)
		if got := drain(m); len(got) > 0 {
			t.Errorf("events of a held pod: %v", got)
		}
		release()
		wantLooks(t, "released", looks, 1)
		wantChanges(t, "released", drain(m)["a"],
			pleg.Change{ID: "a1", Type: pleg.ContainerDied}, pleg.Change{ID: "a2", Type: pleg.ContainerStarted})
	})
}

func TestHoldWithoutNewsLeadsToNoInspection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, m := holdable(t, true, pleg.Config{})
		looks := inspected(f, "a")
		m.Hold("a")()
		wantLooks(t, "released", looks, 0)
		if p, err := seen(m, "a"); err != nil || p.Runs() != observed.Yes {
			t.Errorf("Get after a hold = %+v, %v", p, err)
		}
	})
}

func TestEveryHolderHasToRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, m := holdable(t, true, pleg.Config{})
		looks := inspected(f, "a")
		first, second := m.Hold("a"), m.Hold("a")
		f.tell("a")
		first()
		first() // does not count for the second
		wantLooks(t, "released by one of two", looks, 0)
		second()
		wantLooks(t, "released by both", looks, 1)
		first()
		second()
		third := m.Hold("a")
		f.tell("a")
		wantLooks(t, "held again, after releases too many", looks, 0)
		third()
		wantLooks(t, "released again", looks, 1)
	})
}

func TestHoldOfOnePodLeavesTheOthersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, m := holdable(t, true, pleg.Config{})
		f.set("b", observed.Running)
		defer m.Hold("a")()
		f.tell("b")
		if got := drain(m); len(got["b"]) != 1 {
			t.Errorf("events beside a held pod: %v", got)
		}
	})
}

func TestHoldEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, m := holdable(t, true, pleg.Config{})
		looks := inspected(f, "a")
		release := m.Hold("a")
		f.tell("a")
		time.Sleep(4 * time.Second)
		wantLooks(t, "within its time", looks, 0)
		time.Sleep(time.Second)
		wantLooks(t, "after it", looks, 1)
		next := m.Hold("a")
		f.tell("a")
		release() // late, and not in the place of the next holder
		wantLooks(t, "the late release", looks, 0)
		next()
		wantLooks(t, "the next release", looks, 1)
	})
}

func TestHoldDuringAnInspection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, m := holdable(t, true, pleg.Config{})
		looks := inspected(f, "a")
		f.do(func() { f.slow = 300 * time.Millisecond })
		m.Refresh("a") // on its way
		wantLooks(t, "before the hold", looks, 1)
		release := m.Hold("a")
		f.set("a", observed.Running, box("a1", observed.Exited))
		f.tell("a")
		time.Sleep(time.Second)
		wantLooks(t, "held", looks, 0)
		release()
		wantLooks(t, "released", looks, 1)
		time.Sleep(time.Second)
		wantChanges(t, "released", drain(m)["a"], pleg.Change{ID: "a1", Type: pleg.ContainerDied})

		f.tell("a") // on its way
		release = m.Hold("a")
		f.tell("a")
		release() // before it has landed
		wantLooks(t, "released before the end", looks, 1)
		time.Sleep(time.Second)
		wantLooks(t, "the news of meanwhile", looks, 1)
	})
}

func TestGetNewerThanOfAHeldPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, m := holdable(t, true, pleg.Config{})
		looks := inspected(f, "a")
		release := m.Hold("a")
		f.set("a", observed.Running, box("a1", observed.Exited))
		f.tellOf("a", "a1", observed.ContainerStopped)
		p, err := m.GetNewerThan(t.Context(), "a", time.Now())
		if err != nil || p.Containers[0].State != observed.Exited {
			t.Errorf("GetNewerThan = %+v, %v", p, err)
		}
		wantLooks(t, "asked for", looks, 1)
		release() // nothing has come since
		wantLooks(t, "released", looks, 0)
	})
}

func TestHoldOfAPodThatIsNotYetThere(t *testing.T) {
	for _, stream := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f, m := holdable(t, stream, pleg.Config{})
			looks := inspected(f, "new")
			release := m.Hold("new")
			if p, err := m.GetNewerThan(t.Context(), "new", time.Now().Add(-time.Minute)); err != nil || len(p.Sandboxes) > 0 {
				t.Errorf("GetNewerThan = %+v, %v", p, err)
			}
			wantLooks(t, "known from the list", looks, 0)
			time.Sleep(2 * time.Second) // a relist that does not show it
			f.set("new", observed.Running)
			f.tellOf("new", "new-s", observed.ContainerStarted)
			time.Sleep(1500 * time.Millisecond) // and one that does
			if !stream {
				if l := m.Pods(); len(l) != 2 || l[0].Name == "" || l[1].Name == "" {
					t.Errorf("Pods = %+v", l)
				}
			}
			wantLooks(t, "held", looks, 0)
			release()
			wantLooks(t, "released", looks, 1)
			wantChanges(t, "released", drain(m)["new"], pleg.Change{ID: "new-s", Type: pleg.ContainerStarted, Sandbox: true})
		})
	}
}

// A list that was asked for before a held pod came to be says nothing of it.
func TestListOlderThanTheNewsOfAHeldPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, m := holdable(t, true, pleg.Config{})
		release := m.Hold("new")
		f.do(func() { f.slowList = 300 * time.Millisecond })
		f.tellAt("a", time.Now().Add(-time.Hour)) // so late that a relist follows
		time.Sleep(200 * time.Millisecond)        // the answer is made, and on its way
		f.set("new", observed.Running)
		f.tellOf("new", "new-s", observed.ContainerStarted)
		time.Sleep(300 * time.Millisecond)
		release()
		wantChanges(t, "released", drain(m)["new"], pleg.Change{ID: "new-s", Type: pleg.ContainerStarted, Sandbox: true})
	})
}

func TestHeldPodThatGoes(t *testing.T) {
	removed := []pleg.Change{
		{ID: "a-s", Type: pleg.ContainerDied, Sandbox: true}, {ID: "a-s", Type: pleg.ContainerRemoved, Sandbox: true},
		{ID: "a1", Type: pleg.ContainerDied}, {ID: "a1", Type: pleg.ContainerRemoved},
	}
	for name, stream := range map[string]bool{"told by events": true, "found by a relist": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, m := holdable(t, stream, pleg.Config{})
				release := m.Hold("a")
				f.do(func() { delete(f.pods, "a") })
				f.tellOf("a", "a-s", observed.ContainerDeleted)
				time.Sleep(2 * time.Second)
				release()
				wantChanges(t, name, drain(m)["a"], removed...)
				if l := m.Pods(); len(l) != 0 {
					t.Errorf("Pods = %+v", l)
				}
				f.set("a", observed.Running) // under the same UID, where it was in the list
				time.Sleep(10 * time.Minute)
				wantChanges(t, "back", drain(m)["a"], pleg.Change{ID: "a-s", Type: pleg.ContainerStarted, Sandbox: true})
				if p, err := seen(m, "a"); err != nil || p.Runs() != observed.Yes {
					t.Errorf("Get of the pod that came back = %+v, %v", p, err)
				}
			})
		})
	}
}

// Found empty while held, forgotten at the release, and back in its place of
// the list: nothing of the first life is mixed up with the second.
func TestHeldPodThatIsSeenEmptyAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, m := holdable(t, false, pleg.Config{})
		release := m.Hold("a")
		f.do(func() { delete(f.pods, "a") })
		if p, err := m.GetNewerThan(t.Context(), "a", time.Now()); err != nil || len(p.Sandboxes) > 0 {
			t.Fatalf("GetNewerThan = %+v, %v", p, err)
		}
		release()
		f.set("a", observed.Running)
		drain(m)
		time.Sleep(2 * time.Second)
		wantChanges(t, "back", drain(m)["a"], pleg.Change{ID: "a-s", Type: pleg.ContainerStarted, Sandbox: true})
		if p, err := seen(m, "a"); err != nil || p.Runs() != observed.Yes {
			t.Errorf("Get = %+v, %v", p, err)
		}
	})
}

func TestRetryOfAHeldPodWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, m := holdable(t, true, pleg.Config{})
		f.do(func() { f.inspectErr["a"] = errors.New("boom") })
		m.Refresh("a")
		looks := inspected(f, "a")
		looks()
		release := m.Hold("a")
		f.do(func() { delete(f.inspectErr, "a") })
		time.Sleep(4 * time.Second)
		wantLooks(t, "held", looks, 0)
		release()
		wantLooks(t, "released", looks, 1)
		if _, err := seen(m, "a"); err != nil {
			t.Errorf("Get: %v", err)
		}
	})
}

func TestHoldBeforeAndAfterRun(t *testing.T) {
	m, err := pleg.New(pleg.Config{Runtime: newFake(false)})
	if err != nil {
		t.Fatal(err)
	}
	m.Hold("a")()
	if l := m.Pods(); len(l) != 0 {
		t.Errorf("Pods = %+v", l)
	}
	synctest.Test(t, func(t *testing.T) {
		var release func()
		var looks func() int
		t.Cleanup(func() { // after that of start, which ends Run
			release()
			wantLooks(t, "released after Run", looks, 0)
		})
		f, m := holdable(t, true, pleg.Config{})
		release, looks = m.Hold("a"), inspected(f, "a")
		f.tell("a")
	})
}
