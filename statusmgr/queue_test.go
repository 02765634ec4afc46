package statusmgr_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/statusmgr"
)

// readyStatus is one that only differs by n, unless ready does.
func readyStatus(n int, ready bool) v1.PodStatus {
	st := status(v1.PodRunning)
	st.ContainerStatuses[0].RestartCount = int32(n)
	truth := v1.ConditionFalse
	if ready {
		truth = v1.ConditionTrue
	}
	st.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: truth}}
	return st
}

// A transition goes before the bulk, also if the pod stood in it before; and
// the bulk is not starved by transitions.
func TestTransitionsGoFirst(t *testing.T) {
	sink := newMemorySink(1000)
	run(t, statusmgr.Config{Sink: sink, Parallel: 1}, func(m *statusmgr.Manager) {
		const n = 40
		for i := range n {
			m.Set(newPod(fmt.Sprint("p", i)), readyStatus(0, false))
		}
		synctest.Wait()
		sink.DelayBy(take(time.Second))
		for i := range n {
			m.Set(newPod(fmt.Sprint("p", i)), readyStatus(1, false)) // noise
		}
		m.Set(newPod("p39"), readyStatus(1, true)) // a flip of one that waits with the noise
		place := func(name string) int {
			for i, w := range sink.History()[n:] {
				if w.Pod.Name == name {
					return i
				}
			}
			return -1
		}
		time.Sleep(3500 * time.Millisecond)
		synctest.Wait()
		if i := place("p39"); i < 0 || i > 2 {
			t.Errorf("the flip was write %d after the change", i)
		}
		// From now on there is always a transition more than the sink takes.
		for i := range 120 {
			m.Set(newPod("p30"), readyStatus(1, i%2 == 0))
			m.Set(newPod("p31"), readyStatus(1, i%2 == 0))
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if place("p29") < 0 {
			t.Error("a pod without transitions starves")
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		last := map[string]int{}
		for _, w := range sink.History()[n:] {
			last[w.Pod.Name]++
		}
		if len(last) != n || last["p39"] != 1 {
			t.Errorf("%d pods were written, p39 %d times", len(last), last["p39"])
		}
	})
}

// Pods whose writes hang take every slot once, for as long as the timeout
// lasts; after that, half of the slots at most.
func TestHangingPodsHoldUpNobodyForLong(t *testing.T) {
	sink := newMemorySink(10000)
	run(t, statusmgr.Config{Sink: sink, Parallel: 4}, func(m *statusmgr.Manager) {
		sink.DelayBy(func(p *v1.Pod) time.Duration {
			if strings.HasPrefix(p.Name, "hung") {
				return 24 * time.Hour
			}
			return 0
		})
		for i := range 4 {
			m.Set(newPod(fmt.Sprint("hung", i)), status(v1.PodRunning))
		}
		began := time.Now()
		m.Set(newPod("p"), status(v1.PodRunning))
		if _, err := sink.Wait(context.Background(), 1); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d != 30*time.Second {
			t.Errorf("published after %v, want when the timeout is over", d)
		}
		for i := range 600 {
			before, _ := sink.Counts()
			m.Set(newPod("p"), readyStatus(i+1, false))
			synctest.Wait()
			if after, _ := sink.Counts(); after == before {
				t.Fatalf("round %d: held up", i)
			}
			time.Sleep(time.Second)
		}
	})
}

// However many pods fail, one that does not is told of at once.
func TestFailingPodsHoldUpNobody(t *testing.T) {
	sink := newMemorySink(10)
	run(t, statusmgr.Config{Sink: sink, Parallel: 1}, func(m *statusmgr.Manager) {
		sink.FailWith(func(p *v1.Pod) error {
			if p.Name == "good" {
				return nil
			}
			return errors.New("no")
		})
		for i := range 100 {
			m.Set(newPod(fmt.Sprint("bad", i)), status(v1.PodRunning))
		}
		for i := range 60 {
			m.Set(newPod("good"), readyStatus(i, i%2 == 0))
			synctest.Wait()
			if ok, _ := sink.Counts(); ok != i+1 {
				t.Fatalf("round %d: %d writes", i, ok)
			}
			time.Sleep(time.Second)
		}
	})
}

// How long a status took is counted from its change, not from the pod's first;
// and through the failures that delayed it.
func TestDurationsBeginWithTheChange(t *testing.T) {
	reg, sink := prometheus.NewRegistry(), newMemorySink(10)
	run(t, statusmgr.Config{Sink: sink, Metrics: reg}, func(m *statusmgr.Manager) {
		sum := func() float64 {
			families, err := reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				if f.GetName() == "kubelet_pod_status_sync_duration_seconds" {
					return f.GetMetric()[0].GetHistogram().GetSampleSum()
				}
			}
			return -1
		}
		sink.DelayBy(take(time.Second))
		for i, want := range []float64{1, 2, 3} {
			m.Set(newPod("p"), readyStatus(i, false))
			time.Sleep(time.Hour)
			synctest.Wait()
			if got := sum(); got != want {
				t.Errorf("after %d writes of a second each, an hour apart: %v s", i+1, got)
			}
		}
		tries := 0
		sink.FailWith(func(*v1.Pod) error {
			if tries++; tries == 1 {
				return errors.New("no")
			}
			return nil
		})
		m.Set(newPod("p"), readyStatus(9, false))
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := sum() - 3; got < 3 || got > 3.5 { // two tries of 1 s, 1 to 1.5 s between them
			t.Errorf("a write that failed once took %v s", got)
		}
	})
}
