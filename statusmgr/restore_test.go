package statusmgr_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/checkpoint"
	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/statusmgr"
)

var _ statusmgr.Store = (*checkpoint.Store)(nil)

func state(d *checkpointtest.Disk) string {
	return fmt.Sprint(slices.Sorted(maps.Keys(d.Values())), " after ", d.Count("write"), " writes")
}

func always(err error) func(*v1.Pod) error { return func(*v1.Pod) error { return err } }

func take(d time.Duration) func(*v1.Pod) time.Duration {
	return func(*v1.Pod) time.Duration { return d }
}

// What ends a pod is stored before the sink is told for the first time, and
// nothing is stored that the sink takes at once.
func TestEndsAreStoredBeforeTheyArePublished(t *testing.T) {
	store, sink := &checkpointtest.Disk{}, newMemorySink(10)
	run(t, statusmgr.Config{Sink: sink, Store: store}, func(m *statusmgr.Manager) {
		var first string
		sink.FailWith(func(p *v1.Pod) error { first += p.Name + ":" + state(store) + " "; return nil })
		m.Set(newPod("p"), status(v1.PodRunning))
		synctest.Wait()
		m.Set(newPod("p"), terminated(v1.PodFailed, 1))
		synctest.Wait()
		if first != "p:[] after 0 writes p:[p] after 1 writes " {
			t.Errorf("when the sink was told, the store had %s", first)
		}
		if got := state(store); got != "[] after 1 writes" {
			t.Errorf("then it had %s", got)
		}
	})
}

// An end that has to wait for its turn is stored at once.
func TestEndsAreStoredWhileTheyWait(t *testing.T) {
	store, sink := &checkpointtest.Disk{}, newMemorySink(10)
	run(t, statusmgr.Config{Sink: sink, Store: store, Parallel: 1}, func(m *statusmgr.Manager) {
		sink.DelayBy(take(100 * time.Millisecond))
		m.Set(newPod("first"), status(v1.PodRunning))
		m.Set(newPod("p"), terminated(v1.PodFailed, 1))
		synctest.Wait()
		if got := state(store); got != "[p] after 1 writes" {
			t.Errorf("store has %s", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := state(store); got != "[] after 1 writes" {
			t.Errorf("then it has %s", got)
		}
	})
}

func TestTroubleIsStored(t *testing.T) {
	t.Run("a write that fails", func(t *testing.T) {
		store, sink := &checkpointtest.Disk{}, newMemorySink(10)
		run(t, statusmgr.Config{Sink: sink, Store: store}, func(m *statusmgr.Manager) {
			sink.FailWith(always(errors.New("down")))
			m.Set(newPod("p"), status(v1.PodRunning))
			time.Sleep(time.Hour) // many tries, one write
			synctest.Wait()
			if got := state(store); got != "[p] after 1 writes" {
				t.Errorf("store has %s", got)
			}
			m.Set(newPod("p"), status(v1.PodPending))
			time.Sleep(time.Hour)
			synctest.Wait()
			if got := state(store); got != "[p] after 2 writes" {
				t.Errorf("after a change, store has %s", got)
			}
			sink.FailWith(nil)
			time.Sleep(time.Hour)
			synctest.Wait()
			if got := state(store); got != "[] after 2 writes" {
				t.Errorf("once published, store has %s", got)
			}
		})
	})
	t.Run("a write that lasts", func(t *testing.T) {
		store, sink := &checkpointtest.Disk{}, newMemorySink(10)
		run(t, statusmgr.Config{Sink: sink, Store: store}, func(m *statusmgr.Manager) {
			sink.DelayBy(take(5 * time.Second))
			m.Set(newPod("p"), status(v1.PodRunning))
			for _, tc := range []struct {
				after time.Duration
				want  string
			}{{900 * time.Millisecond, "[] after 0 writes"}, {time.Second, "[p] after 1 writes"}, {10 * time.Second, "[] after 1 writes"}} {
				time.Sleep(tc.after)
				synctest.Wait()
				if got := state(store); got != tc.want {
					t.Errorf("store has %s, want %s", got, tc.want)
				}
			}
		})
	})
	t.Run("the end of the agent", func(t *testing.T) {
		store, sink := &checkpointtest.Disk{}, newMemorySink(10)
		run(t, statusmgr.Config{Sink: sink, Store: store, Parallel: 1}, func(m *statusmgr.Manager) {
			sink.DelayBy(take(500 * time.Millisecond))
			for _, name := range []string{"a", "b", "c"} {
				m.Set(newPod(name), status(v1.PodRunning))
			}
			time.Sleep(750 * time.Millisecond) // a is published, b is under way, c waits
			synctest.Wait()
		})
		if got := state(store); got != "[b c] after 2 writes" {
			t.Errorf("store has %s", got)
		}
	})
	t.Run("a store that fails", func(t *testing.T) {
		store, sink := &checkpointtest.Disk{}, newMemorySink(10)
		store.Fault(checkpointtest.Fail(errors.New("full"), "write", "delete"))
		run(t, statusmgr.Config{Sink: sink, Store: store}, func(m *statusmgr.Manager) {
			m.Set(newPod("p"), terminated(v1.PodFailed, 1))
			synctest.Wait()
			if _, ok := sink.Get("p"); !ok {
				t.Error("the sink was not told")
			}
		})
	})
	t.Run("a value that cannot be deleted", func(t *testing.T) {
		store, sink := &checkpointtest.Disk{}, newMemorySink(10)
		run(t, statusmgr.Config{Sink: sink, Store: store}, func(m *statusmgr.Manager) {
			sink.FailWith(func(*v1.Pod) error {
				store.Fault(checkpointtest.Fail(errors.New("read-only"), "write", "delete"))
				return nil
			})
			m.Set(newPod("p"), terminated(v1.PodFailed, 1))
			synctest.Wait()
			store.Fault(nil)
			if got := state(store); got != "[p] after 1 writes" {
				t.Errorf("store has %s", got)
			}
		})
		if got := state(store); got != "[] after 1 writes" {
			t.Errorf("at the end, store has %s", got)
		}
	})
}

// What was not published before a crash is, and nobody has to Set it.
func TestUnsentStatusesSurviveACrash(t *testing.T) {
	store, sink := &checkpointtest.Disk{}, newMemorySink(10)
	var left *checkpointtest.Disk
	deleted := metav1.Now()
	run(t, statusmgr.Config{Sink: sink, Store: store}, func(m *statusmgr.Manager) {
		sink.FailWith(always(errors.New("down")))
		p := newPod("p")
		p.DeletionTimestamp, p.Labels, p.Annotations = &deleted, map[string]string{"a": "b"}, map[string]string{"big": "x"}
		m.Set(p, status(v1.PodRunning))
		m.Terminate(p)
		m.Set(newPod("gone"), terminated(v1.PodFailed, 1))
		synctest.Wait()
		left = store.Clone()
	})
	left.Put("damaged", "{")
	left.Put("other", left.Value("p"))
	sink = newMemorySink(10)
	run(t, statusmgr.Config{Sink: sink, Store: left}, func(m *statusmgr.Manager) {
		synctest.Wait()
		var got []string
		for _, w := range sink.History() {
			if w.Pod.Name == "p" {
				got = append(got, fmt.Sprintf("%s;%v;%v;%v", w.Pod.Status.Phase, w.Deleted, w.Pod.Labels, w.Pod.Annotations))
			}
		}
		if want := "Failed;false;map[a:b];map[] ;true;map[a:b];map[]"; strings.Join(got, " ") != want {
			t.Errorf("sink was told %s, want %s", got, want)
		}
		if ph, ok := m.Phase("gone"); !ok || ph != v1.PodFailed {
			t.Errorf("phase %s, %v", ph, ok)
		}
		if got := state(left); got != "[] after 0 writes" {
			t.Errorf("store has %s", got)
		}
	})
}

// A stored status that could not be removed is older than what was published since: it is
// not published again, and the pod goes on from what the API's object says.
func TestStaleStatusIsNotPublished(t *testing.T) {
	restarted := func(n int32) v1.PodStatus {
		st := status(v1.PodRunning)
		st.ContainerStatuses[0].RestartCount = n
		return st
	}
	store, sink := &checkpointtest.Disk{}, newMemorySink(10)
	var left *checkpointtest.Disk
	run(t, statusmgr.Config{Sink: sink, Store: store}, func(m *statusmgr.Manager) {
		sink.FailWith(always(errors.New("down")))
		m.Set(newPod("p"), restarted(6))
		m.Set(newPod("q"), restarted(6))
		synctest.Wait()
		store.Fault(checkpointtest.Fail(errors.New("read-only"), "write", "delete"))
		sink.FailWith(nil)
		time.Sleep(time.Hour)
		m.Set(newPod("p"), restarted(10))
		synctest.Wait()
		left = store.Clone()
		store.Fault(nil)
	})
	pod := newPod("p")
	p, _ := sink.Get("p")
	pod.Status = p.Status
	sink = newMemorySink(10)
	run(t, statusmgr.Config{Sink: sink, Store: left}, func(m *statusmgr.Manager) {
		time.Sleep(time.Hour)
		if h := sink.History(); len(h) > 0 {
			t.Errorf("published %+v", h[0].Pod.Status)
		}
		if got := state(left); got != "[p q] after 0 writes" {
			t.Errorf("store has %s", got)
		}
		m.Adopt(pod, statusmgr.Itself(pod))
		m.Adopt(newPod("q"), statusmgr.Itself(newPod("q")))
		if st, ok := m.Get("p"); ok {
			t.Errorf("the stale status counts: %+v", st)
		}
		if st, ok := m.Get("q"); !ok || st.ContainerStatuses[0].RestartCount != 6 {
			t.Errorf("the only status that there is: %+v, %v", st, ok)
		}
		m.Set(pod, restarted(11))
		m.Set(newPod("q"), restarted(6))
		synctest.Wait()
		for name, want := range map[string]int32{"p": 11, "q": 6} {
			if p, ok := sink.Get(types.UID(name)); !ok || p.Status.ContainerStatuses[0].RestartCount != want {
				t.Errorf("%s is published as %+v, %v", name, p, ok)
			}
		}
		if got := state(left); got != "[] after 0 writes" {
			t.Errorf("then the store has %s", got)
		}
	})
}

// While the sink is still down after the crash, dropping the pod drops what is
// stored.
func TestRetainDropsWhatIsStored(t *testing.T) {
	store, sink := &checkpointtest.Disk{}, newMemorySink(10)
	run(t, statusmgr.Config{Sink: sink, Store: store}, func(m *statusmgr.Manager) {
		sink.FailWith(always(errors.New("down")))
		m.Set(newPod("p"), status(v1.PodRunning))
		m.Set(newPod("q"), status(v1.PodRunning))
		synctest.Wait()
	})
	run(t, statusmgr.Config{Sink: sink, Store: store}, func(m *statusmgr.Manager) {
		if _, ok := m.Get("p"); !ok {
			t.Error("not restored")
		}
		m.Retain(func(uid types.UID) bool { return uid == "q" })
		synctest.Wait()
		if _, ok := m.Get("p"); ok {
			t.Error("it is still there")
		}
		if got, _ := store.Keys(); fmt.Sprint(got) != "[q]" {
			t.Errorf("store has %v", got)
		}
	})
}

// After a restart the first status is a change of what was published.
func TestWhatWasPublishedIsWhatChanges(t *testing.T) {
	sink := newMemorySink(10)
	var began *metav1.Time
	before := func() v1.PodStatus {
		st := status(v1.PodRunning)
		st.ContainerStatuses[0].RestartCount, st.ContainerStatuses[0].Ready = 3, true
		st.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
		return st
	}
	run(t, statusmgr.Config{Sink: sink}, func(m *statusmgr.Manager) {
		m.Set(newPod("p"), before())
		m.Set(newPod("over"), terminated(v1.PodSucceeded, 0))
		synctest.Wait()
		st, _ := m.Get("p")
		began = st.StartTime
		time.Sleep(time.Hour)
	})
	run(t, statusmgr.Config{Sink: sink}, func(m *statusmgr.Manager) {
		time.Sleep(2 * time.Hour)
		old, ok := m.Get("p")
		if !ok || old.ContainerStatuses[0].RestartCount != 3 {
			t.Fatalf("restored %+v, %v", old, ok)
		}
		m.SetReady("p", "id", false) // a probe of nobody's: the pod is not known yet
		if ready, started, known := m.PreviousReady("p", "id"); !ready || started || !known {
			t.Errorf("the container was ready %v, started %v, known %v", ready, started, known)
		}
		for _, tc := range [][2]string{{"p", "another"}, {"p", ""}, {"over", "id"}, {"q", "id"}} {
			if _, _, known := m.PreviousReady(types.UID(tc[0]), tc[1]); known {
				t.Errorf("container %q of %s is known", tc[1], tc[0])
			}
		}
		var added []bool
		m.Subscribe(func(c statusmgr.Change) { added = append(added, c.Added) })
		if m.Set(newPod("p"), before()) {
			t.Error("what was published is news")
		}
		changed := before()
		changed.ContainerStatuses[0].RestartCount = 4
		if !m.Set(newPod("p"), changed) {
			t.Error("a change is none")
		}
		m.Set(newPod("over"), status(v1.PodRunning))
		synctest.Wait()
		st, _ := m.Get("p")
		if !st.StartTime.Equal(began) || !st.Conditions[0].LastTransitionTime.Equal(began) {
			t.Errorf("started %v and ready since %v, want %v", st.StartTime, st.Conditions[0].LastTransitionTime, began)
		}
		if ph, _ := m.Phase("over"); ph != v1.PodSucceeded {
			t.Errorf("phase %s after Succeeded", ph)
		}
		if ok, _ := sink.Counts(); ok != 3 {
			t.Errorf("%d writes in all, want two before the restart and one after", ok)
		}
		if fmt.Sprint(added) != "[true false true]" {
			t.Errorf("subscribers saw additions %v", added)
		}
	})
}

// badLoader cannot tell what it published.
type badLoader struct{ *memorySink }

func (badLoader) Load(context.Context) (map[types.UID]v1.PodStatus, error) {
	return map[types.UID]v1.PodStatus{"some": status(v1.PodRunning)}, errors.New("unreadable")
}

func TestRestoreFailsAndTheAgentStarts(t *testing.T) {
	run(t, statusmgr.Config{Sink: badLoader{newMemorySink(1)}}, func(m *statusmgr.Manager) {
		if err := m.Restore(context.Background()); err == nil || !strings.Contains(err.Error(), "unreadable") {
			t.Errorf("error %v", err)
		}
		if ph, _ := m.Phase("some"); ph != v1.PodRunning {
			t.Error("what could be read is not there")
		}
		m.Set(newPod("p"), status(v1.PodRunning))
		if ph, _ := m.Phase("p"); ph != v1.PodRunning {
			t.Error("nothing works")
		}
	})
}

// A status that was Set before the store was read is newer than the stored.
func TestRestoreLeavesWhatWasSet(t *testing.T) {
	store, sink := &checkpointtest.Disk{}, newMemorySink(10)
	run(t, statusmgr.Config{Sink: sink, Store: store}, func(m *statusmgr.Manager) {
		sink.FailWith(always(errors.New("down")))
		m.Set(newPod("p"), status(v1.PodPending))
		synctest.Wait()
	})
	sink.FailWith(nil)
	synctest.Test(t, func(t *testing.T) {
		m, err := statusmgr.New(statusmgr.Config{Sink: sink, Store: store})
		if err != nil {
			t.Fatal(err)
		}
		m.Set(newPod("p"), status(v1.PodRunning))
		stop := testrun.Start(t, m.Run)
		synctest.Wait()
		if p, ok := sink.Get("p"); !ok || p.Status.Phase != v1.PodRunning {
			t.Errorf("published %v", p)
		}
		if got, _ := store.Keys(); len(got) != 0 {
			t.Errorf("store has %v", got)
		}
		stop()
	})
}

// Statuses of a store that cannot be read at the start are published once it can.
func TestLateRestore(t *testing.T) {
	store, sink := &checkpointtest.Disk{}, newMemorySink(10)
	var left *checkpointtest.Disk
	run(t, statusmgr.Config{Sink: sink, Store: store}, func(m *statusmgr.Manager) {
		sink.FailWith(always(errors.New("down")))
		m.Set(newPod("ended"), terminated(v1.PodFailed, 1))
		m.Set(newPod("again"), terminated(v1.PodFailed, 1))
		synctest.Wait()
		left = store.Clone()
	})
	sink = newMemorySink(10)
	left.Fault(checkpointtest.Fail(errors.New("input/output error"), "keys"))
	run(t, statusmgr.Config{Sink: sink, Store: left}, func(m *statusmgr.Manager) {
		synctest.Wait()
		m.Set(newPod("again"), status(v1.PodRunning)) // by a pod that did not hear of its end
		time.Sleep(time.Hour)
		if _, ok := m.Phase("ended"); ok {
			t.Error("a status that could not be read is known")
		}
		left.Fault(nil)
		time.Sleep(6 * time.Minute)
		if p, ok := sink.Get("ended"); !ok || p.Status.Phase != v1.PodFailed {
			t.Errorf("published %v", p)
		}
		if p, ok := sink.Get("again"); !ok || p.Status.Phase != v1.PodRunning {
			t.Errorf("published %v", p)
		}
		if got := state(left); got != "[] after 0 writes" {
			t.Errorf("store has %s", got)
		}
	})
}
