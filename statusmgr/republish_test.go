package statusmgr_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/statusmgr"
)

// told lists the writes: the UID of the object, and the phase or "deleted".
func told(s *memorySink) string {
	var out []string
	for _, w := range s.History() {
		what := string(w.Pod.Status.Phase)
		if w.Deleted {
			what = "deleted"
		}
		out = append(out, string(w.Pod.UID)+" "+what)
	}
	return strings.Join(out, ", ")
}

// mirrors gives static pods their mirrors.
type mirrors struct {
	mu sync.Mutex
	of map[types.UID]*v1.Pod
}

func (m *mirrors) set(uid types.UID, mirror *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of = map[types.UID]*v1.Pod{uid: mirror}
}

// shown is how others see a static pod.
func (m *mirrors) shown(pod *v1.Pod) statusmgr.Shown {
	m.mu.Lock()
	defer m.mu.Unlock()
	return statusmgr.Shown{Object: m.of[pod.UID], By: podlife.Confirmed}
}

// report is that of a static pod of which nothing runs.
func (m *mirrors) report(pod *v1.Pod, st v1.PodStatus) statusmgr.Report {
	return statusmgr.Report{Status: st, Shown: m.shown(pod), Runs: observed.No}
}

func mirror(uid types.UID) *v1.Pod {
	p := newPod("mirror")
	p.UID, p.Annotations = uid, map[string]string{"kubernetes.io/config.mirror": "h"}
	return p
}

func TestStaticPodsArePublishedAsTheirMirrors(t *testing.T) {
	sink, as := newMemorySink(100), &mirrors{}
	run(t, statusmgr.Config{Sink: sink}, func(m *statusmgr.Manager) {
		check := func(step, want string) {
			t.Helper()
			synctest.Wait()
			if got := told(sink); got != want {
				t.Errorf("%s: sink was told %q, want %q", step, got, want)
			}
		}
		p := newPod("p")
		p.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		m.Show(p, as.report(p, status(v1.PodPending)))
		m.Republish("p", as.shown(p))
		m.Republish("unknown", as.shown(p))
		time.Sleep(time.Hour)
		check("no mirror", "")
		as.set("p", mirror("m1"))
		m.Republish("p", as.shown(p))
		check("mirror added", "m1 Pending")
		m.Republish("p", as.shown(p))
		m.Show(p, as.report(p, status(v1.PodPending)))
		check("nothing changed", "m1 Pending")
		m.Show(p, as.report(p, status(v1.PodRunning)))
		check("changed", "m1 Pending, m1 Running")
		as.set("p", mirror("m2"))
		m.Republish("p", as.shown(p))
		check("mirror replaced", "m1 Pending, m1 Running, m2 Running")
		as.set("p", nil)
		m.Show(p, as.report(p, terminated(v1.PodRunning, 1)))
		check("mirror gone", "m1 Pending, m1 Running, m2 Running")
		as.set("p", mirror("m2"))
		m.Republish("p", as.shown(p))
		check("mirror back", "m1 Pending, m1 Running, m2 Running, m2 Running")
		deleted := metav1.Now()
		p = p.DeepCopy()
		p.DeletionTimestamp = &deleted
		m.Show(p, as.report(p, terminated(v1.PodFailed, 1)))
		m.Terminate(p)
		time.Sleep(time.Hour)
		check("over", "m1 Pending, m1 Running, m2 Running, m2 Running, m2 Failed") // and never deleted
	})
}

// What is only remembered of a mirror is no base for what is sent to it: the status waits until
// it is known, and continues what was remembered here.
func TestARememberedMirrorWaits(t *testing.T) {
	sink, as := newMemorySink(100), &mirrors{}
	run(t, statusmgr.Config{Sink: sink}, func(m *statusmgr.Manager) {
		p, there := newPod("p"), mirror("m")
		p.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		start := metav1.NewTime(time.Unix(1000, 0))
		there.Status = v1.PodStatus{Phase: v1.PodRunning, StartTime: &start}
		as.set("p", there)
		remembered := as.shown(p)
		remembered.By = podlife.Remembered
		m.Show(p, statusmgr.Report{Status: status(v1.PodRunning), Shown: remembered})
		m.Republish("p", remembered)
		time.Sleep(time.Hour)
		if got := told(sink); got != "" {
			t.Errorf("sink was told %q of a mirror that is only remembered", got)
		}
		if st, _ := m.Get("p"); !st.StartTime.Equal(&start) {
			t.Errorf("started at %v, want %v", st.StartTime, start)
		}
		m.Republish("p", as.shown(p))
		synctest.Wait()
		if got := told(sink); got != "m Running" {
			t.Errorf("sink was told %q", got)
		}
	})
}

// The first status of a pod changes what its mirror shows.
func TestTheMirrorsStatusIsTheOldOne(t *testing.T) {
	as, api := &mirrors{}, mirror("m")
	start := metav1.NewTime(time.Unix(1000, 0))
	api.Status = v1.PodStatus{Phase: v1.PodRunning, StartTime: &start}
	as.set("p", api)
	run(t, statusmgr.Config{}, func(m *statusmgr.Manager) {
		p := newPod("p")
		p.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		m.Show(p, as.report(p, status(v1.PodRunning)))
		if st, _ := m.Get("p"); !st.StartTime.Equal(&start) {
			t.Errorf("start time %v, want the mirror's", st.StartTime)
		}
	})
}

func TestReconcile(t *testing.T) {
	sink := newMemorySink(100)
	run(t, statusmgr.Config{Sink: sink}, func(m *statusmgr.Manager) {
		p := newPod("p")
		p.Status.Phase = v1.PodPending // there is an API
		if m.Reconcile(p, statusmgr.Itself(p)) {
			t.Error("an unknown pod is published")
		}
		sink.DelayBy(take(time.Second))
		m.Set(p, status(v1.PodRunning))
		if m.Reconcile(p, statusmgr.Itself(p)) {
			t.Error("what is not published yet is published again")
		}
		time.Sleep(time.Minute)
		sink.DelayBy(nil)
		for _, tc := range []struct {
			name   string
			change func(*v1.PodStatus)
			again  bool
		}{
			{"the same", func(*v1.PodStatus) {}, false},
			{"parts of a second", func(st *v1.PodStatus) {
				st.StartTime.Time = st.StartTime.Add(300 * time.Millisecond)
				st.ContainerStatuses[0].State.Running.StartedAt.Time = st.ContainerStatuses[0].State.Running.StartedAt.Add(time.Millisecond)
			}, false},
			{"a foreign condition", func(st *v1.PodStatus) {
				st.Conditions = append(st.Conditions, v1.PodCondition{Type: "foreign", Status: v1.ConditionTrue})
			}, false},
			{"nobody shows it", func(st *v1.PodStatus) { *st = v1.PodStatus{} }, false},
			{"another phase", func(st *v1.PodStatus) { st.Phase = v1.PodPending }, true},
			{"a container less", func(st *v1.PodStatus) { st.ContainerStatuses = nil }, true},
		} {
			before, _ := sink.Counts()
			shows, _ := sink.Get("p")
			q := p.DeepCopy()
			q.Status = shows.Status
			tc.change(&q.Status)
			if got := m.Reconcile(q, statusmgr.Itself(q)); got != tc.again {
				t.Errorf("%s: published again %v, want %v", tc.name, got, tc.again)
			}
			synctest.Wait()
			after, _ := sink.Counts()
			if (after > before) != tc.again {
				t.Errorf("%s: %d writes", tc.name, after-before)
			}
			if now, _ := sink.Get("p"); now.Status.Phase != v1.PodRunning || len(now.Status.ContainerStatuses) != 1 {
				t.Errorf("%s: sink has %+v", tc.name, now.Status)
			}
		}
	})
}

func TestFailedDeletionIsTriedAgain(t *testing.T) {
	sink := newMemorySink(100)
	run(t, statusmgr.Config{Sink: sink}, func(m *statusmgr.Manager) {
		p := newPod("p")
		now := metav1.Now()
		p.DeletionTimestamp = &now
		m.Set(p, status(v1.PodRunning))
		synctest.Wait()
		calls := 0
		sink.FailWith(func(*v1.Pod) error {
			if calls++; calls > 1 && calls < 5 {
				return errors.New("no")
			}
			return nil
		})
		m.Terminate(p)
		m.Terminate(p)
		for range 3 { // nothing new, and no reason to hurry
			st, _ := m.Get("p")
			m.Set(p, st)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := told(sink); got != "p Running, p Failed, p deleted" {
			t.Errorf("sink was told %q", got)
		}
	})
}

// A terminal phase that was withheld is published when the containers are gone, though the status
// is the same; all else is published at once.
func TestWithheldPhasesAreNotForgotten(t *testing.T) {
	sink, store := newMemorySink(100), &checkpointtest.Disk{}
	run(t, statusmgr.Config{Sink: sink, Store: store}, func(m *statusmgr.Manager) {
		p := newPod("p")
		m.Set(p, status(v1.PodRunning))
		synctest.Wait()
		evicted := status(v1.PodFailed)
		evicted.Reason, evicted.Message, evicted.PodIP = "Evicted", "low on memory", "10.0.0.1"
		ends := func(runs observed.Answer) {
			m.Show(p, statusmgr.Report{Status: *evicted.DeepCopy(), Shown: statusmgr.Itself(p), Runs: runs})
			time.Sleep(time.Hour)
			synctest.Wait()
		}
		ends(observed.Yes)
		ends(observed.Maybe)
		if got, _ := sink.Get("p"); got.Status.Phase != v1.PodRunning || got.Status.Reason != "" || got.Status.PodIP == "" {
			t.Errorf("while containers run, sink has %+v", got.Status)
		}
		if n, _ := sink.Counts(); n != 2 {
			t.Errorf("%d writes, want one for each change", n)
		}
		if got, _ := store.Keys(); len(got) != 1 {
			t.Errorf("store has %v, want the end", got)
		}
		ends(observed.No)
		if got, _ := sink.Get("p"); got.Status.Phase != v1.PodFailed || got.Status.Reason != "Evicted" || got.Status.Message == "" {
			t.Errorf("at the end, sink has %+v", got.Status)
		}
		if got, _ := store.Keys(); len(got) != 0 {
			t.Errorf("then the store has %v", got)
		}
	})
}

// What others write to the API's object stays as it is there.
func TestForeignConditionsAreTheAPIs(t *testing.T) {
	sink := newMemorySink(10)
	run(t, statusmgr.Config{Sink: sink}, func(m *statusmgr.Manager) {
		p := newPod("p")
		p.Status = v1.PodStatus{Phase: v1.PodPending, Conditions: []v1.PodCondition{{Type: "gate", Status: v1.ConditionTrue}}}
		st := status(v1.PodRunning)
		st.Conditions = []v1.PodCondition{{Type: "gate", Status: v1.ConditionFalse}, {Type: v1.PodReady, Status: v1.ConditionTrue}}
		m.Set(p, st)
		alone := newPod("alone") // where there is no API, they are whoever computes the status's
		m.Set(alone, *st.DeepCopy())
		synctest.Wait()
		for uid, want := range map[types.UID]v1.ConditionStatus{"p": v1.ConditionTrue, "alone": v1.ConditionFalse} {
			got, _ := sink.Get(uid)
			if c := got.Status.Conditions; len(c) != 2 || c[0].Status != want {
				t.Errorf("%s: conditions %+v, want gate %s", uid, c, want)
			}
		}
	})
}

// A sink that finds the pod gone is not asked again until there is news.
func TestGonePodsAreLeftAlone(t *testing.T) {
	sink, store := newMemorySink(10), &checkpointtest.Disk{}
	run(t, statusmgr.Config{Sink: sink, Store: store}, func(m *statusmgr.Manager) {
		sink.FailWith(always(fmt.Errorf("get pod: %w", statusmgr.ErrGone)))
		p := newPod("p")
		now := metav1.Now()
		p.DeletionTimestamp = &now
		m.Set(p, status(v1.PodRunning))
		time.Sleep(time.Hour)
		m.Terminate(p)
		time.Sleep(time.Hour)
		synctest.Wait()
		if _, failed := sink.Counts(); failed != 2 {
			t.Errorf("sink was called %d times, want once for each change", failed)
		}
		if got, _ := store.Keys(); len(got) != 0 {
			t.Errorf("store has %v", got)
		}
	})
}

// A write that failed may have been done: what was there before it is written
// again when the status is that again.
func TestFailedWritesAreNotTrusted(t *testing.T) {
	sink := newMemorySink(10)
	run(t, statusmgr.Config{Sink: sink}, func(m *statusmgr.Manager) {
		m.Set(newPod("p"), readyStatus(0, false))
		synctest.Wait()
		sink.FailWith(always(errors.New("timeout, perhaps")))
		m.Set(newPod("p"), readyStatus(0, true))
		synctest.Wait()
		m.Set(newPod("p"), readyStatus(0, false))
		sink.FailWith(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n, _ := sink.Counts(); n != 2 {
			t.Errorf("%d writes, want the old status once more", n)
		}
	})
}

// Changes that take each other back before the sink is told are no write.
func TestChangesBackAndForthAreNoWrite(t *testing.T) {
	sink := newMemorySink(10)
	run(t, statusmgr.Config{Sink: sink, Parallel: 1}, func(m *statusmgr.Manager) {
		m.Set(newPod("p"), readyStatus(0, true))
		synctest.Wait()
		sink.DelayBy(take(time.Second))
		m.Set(newPod("other"), readyStatus(0, true))
		m.Set(newPod("p"), readyStatus(0, false))
		m.Set(newPod("p"), readyStatus(0, true))
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := told(sink); got != "p Running, other Running" {
			t.Errorf("sink was told %q", got)
		}
	})
}
