package statusmgr_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/statusmgr"
)

// fakeSink records what it is told, and fails or hangs by pod.
type fakeSink struct {
	mu      sync.Mutex
	updates []string // name phase
	deletes []string
	fail    map[string]error
	hang    map[string]chan struct{}
	busy    map[string]bool
	t       *testing.T
}

func (s *fakeSink) Update(ctx context.Context, pod *v1.Pod, st v1.PodStatus) error {
	s.mu.Lock()
	if s.busy[pod.Name] {
		s.t.Errorf("two calls for %s at a time", pod.Name)
	}
	if s.busy == nil {
		s.busy = map[string]bool{}
	}
	s.busy[pod.Name] = true
	hang, err := s.hang[pod.Name], s.fail[pod.Name]
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.busy[pod.Name] = false
		s.mu.Unlock()
	}()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.updates = append(s.updates, pod.Name+" "+string(st.Phase))
	return nil
}

func (s *fakeSink) Delete(_ context.Context, pod *v1.Pod) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deletes = append(s.deletes, pod.Name)
	return nil
}

func (s *fakeSink) told() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.updates, ", ")
}

func newPod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID(name)},
		Spec:       v1.PodSpec{RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{{Name: "c"}}},
	}
}

func status(phase v1.PodPhase) v1.PodStatus {
	return v1.PodStatus{Phase: phase, ContainerStatuses: []v1.ContainerStatus{{
		Name: "c", ContainerID: "containerd://id", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
	}}}
}

func run(t *testing.T, cfg statusmgr.Config, test func(m *statusmgr.Manager)) {
	synctest.Test(t, func(t *testing.T) {
		m, err := statusmgr.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		stop := testrun.Start(t, m.Run)
		synctest.Wait()
		test(m)
		stop()
	})
}

func TestEqualStatusIsNoNews(t *testing.T) {
	sink := &fakeSink{t: t}
	run(t, statusmgr.Config{Sink: sink}, func(m *statusmgr.Manager) {
		p := newPod("p")
		for i, want := range []bool{true, false, false} {
			if got := m.Set(p, status(v1.PodRunning)); got != want {
				t.Errorf("Set %d = %v, want %v", i, got, want)
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if got := sink.told(); got != "p Running" {
			t.Errorf("sink was told %q", got)
		}
		st, _ := m.Get("p")
		if st.StartTime == nil {
			t.Error("no start time")
		}
	})
}

func TestFailingAndHangingPodsHoldUpNobody(t *testing.T) {
	sink := &fakeSink{t: t, fail: map[string]error{"bad": errors.New("no")}, hang: map[string]chan struct{}{}}
	run(t, statusmgr.Config{Sink: sink, Parallel: 2}, func(m *statusmgr.Manager) {
		hang := make(chan struct{})
		sink.mu.Lock()
		sink.hang["hung"] = hang
		sink.mu.Unlock()
		m.Set(newPod("hung"), status(v1.PodRunning))
		m.Set(newPod("bad"), status(v1.PodRunning))
		for i := range 5 {
			m.Set(newPod(fmt.Sprint("p", i)), status(v1.PodRunning))
		}
		synctest.Wait()
		if got := sink.told(); got != "p0 Running, p1 Running, p2 Running, p3 Running, p4 Running" {
			t.Errorf("sink was told %q", got)
		}
		// Changes that come while a write hangs are one write after it.
		for range 3 {
			m.Set(newPod("hung"), status(v1.PodPending))
			m.Set(newPod("hung"), status(v1.PodRunning))
		}
		sink.mu.Lock()
		sink.updates, sink.fail = nil, nil
		delete(sink.hang, "hung")
		sink.mu.Unlock()
		close(hang)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := sink.told(); strings.Count(got, "hung") > 2 || strings.Count(got, "bad") != 1 {
			t.Errorf("sink was told %q", got)
		}
	})
}

func TestTerminalPhaseWaitsForTheContainers(t *testing.T) {
	sink := &fakeSink{t: t}
	run(t, statusmgr.Config{Sink: sink}, func(m *statusmgr.Manager) {
		p := newPod("p")
		now := metav1.Now()
		p.DeletionTimestamp = &now
		m.Show(p, statusmgr.Report{Status: status(v1.PodFailed), Shown: statusmgr.Itself(p), Runs: observed.Yes})
		synctest.Wait()
		if len(sink.deletes) != 0 {
			t.Error("deleted before its end")
		}
		m.Terminate(p)
		synctest.Wait()
		if got := sink.told(); got != "p Running, p Failed" {
			t.Errorf("sink was told %q", got)
		}
		if len(sink.deletes) != 1 {
			t.Errorf("deleted %v", sink.deletes)
		}
		st, _ := m.Get("p")
		if st.ContainerStatuses[0].State.Terminated == nil || st.ContainerStatuses[0].State.Terminated.ExitCode != 137 {
			t.Errorf("container %+v, want an end", st.ContainerStatuses[0].State)
		}
	})
}

func TestImpossibleChangesAreLeftOut(t *testing.T) {
	run(t, statusmgr.Config{}, func(m *statusmgr.Manager) {
		p := newPod("p")
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: "d"})
		ended := status(v1.PodRunning)
		ended.ContainerStatuses[0].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 1}}
		m.Set(p, ended)
		alive := status(v1.PodRunning)
		alive.ContainerStatuses = append(alive.ContainerStatuses, v1.ContainerStatus{Name: "d", Ready: true})
		m.Set(p, alive)
		st, _ := m.Get("p")
		if st.ContainerStatuses[0].State.Terminated == nil {
			t.Error("a container that ended for good lives")
		}
		if len(st.ContainerStatuses) != 2 || !st.ContainerStatuses[1].Ready {
			t.Error("what was possible was left out as well")
		}
		m.Set(p, status(v1.PodSucceeded))
		m.Set(p, status(v1.PodRunning))
		if ph, _ := m.Phase("p"); ph != v1.PodSucceeded {
			t.Errorf("phase %s after Succeeded", ph)
		}
	})
}

// Where one container has all start over, those that ended live again.
func TestAPodThatStartsOverLives(t *testing.T) {
	run(t, statusmgr.Config{}, func(m *statusmgr.Manager) {
		p := newPod("p")
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: "d", RestartPolicyRules: []v1.ContainerRestartRule{
			{Action: v1.ContainerRestartRuleActionRestartAllContainers}}})
		ended := status(v1.PodRunning)
		ended.ContainerStatuses[0].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 1}}
		m.Set(p, ended)
		m.Set(p, status(v1.PodRunning))
		if st, _ := m.Get("p"); st.ContainerStatuses[0].State.Terminated != nil {
			t.Error("it stays ended")
		}
		m.Set(p, status(v1.PodFailed))
		m.Set(p, status(v1.PodRunning))
		if ph, _ := m.Phase("p"); ph != v1.PodFailed {
			t.Errorf("phase %s after Failed", ph)
		}
	})
}

// A resize that waits for another reason has waited for it since then.
func TestResizesAreDatedByTheirReason(t *testing.T) {
	run(t, statusmgr.Config{}, func(m *statusmgr.Manager) {
		p := newPod("p")
		began := time.Now().Truncate(time.Second)
		for i, reason := range []string{v1.PodReasonDeferred, v1.PodReasonInfeasible} {
			at := began.Add(time.Duration(i) * time.Minute)
			st := status(v1.PodRunning)
			st.Conditions = append(st.Conditions, v1.PodCondition{
				Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.NewTime(at),
			})
			m.Set(p, st)
			got, _ := m.Get("p")
			for _, c := range got.Conditions {
				if c.Type == v1.PodResizePending && !c.LastTransitionTime.Time.Equal(at) {
					t.Errorf("%s since %v, want %v", reason, c.LastTransitionTime, at)
				}
			}
		}
	})
}

func TestReadinessSetters(t *testing.T) {
	run(t, statusmgr.Config{}, func(m *statusmgr.Manager) {
		p := newPod("p")
		m.SetReady("p", "id", true) // unknown: ignored
		m.Set(p, status(v1.PodRunning))
		m.SetReady("p", "other", true)
		m.SetReady("p", "id", true)
		m.SetStarted("p", "containerd://id", true)
		st, _ := m.Get("p")
		if !st.ContainerStatuses[0].Ready || !*st.ContainerStatuses[0].Started {
			t.Errorf("status %+v", st.ContainerStatuses[0])
		}
		for _, c := range st.Conditions {
			if c.Status != v1.ConditionTrue {
				t.Errorf("condition %+v", c)
			}
		}
	})
}

func TestSubscribersSeeEverythingInOrder(t *testing.T) {
	run(t, statusmgr.Config{}, func(m *statusmgr.Manager) {
		var got []string
		cancel := m.Subscribe(func(c statusmgr.Change) {
			time.Sleep(time.Second) // slow, and nobody waits for it
			if c.Removed {
				got = append(got, "removed")
			} else {
				got = append(got, string(c.Status.Phase))
			}
		})
		p := newPod("p")
		for _, ph := range []v1.PodPhase{v1.PodPending, v1.PodRunning, v1.PodSucceeded} {
			m.Set(p, status(ph))
		}
		m.Retain(func(types.UID) bool { return false })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		cancel()
		if s := strings.Join(got, " "); s != "Pending Running Succeeded removed" {
			t.Errorf("seen %q", s)
		}
	})
}

func TestMessagesAreCutBetweenCharacters(t *testing.T) {
	run(t, statusmgr.Config{}, func(m *statusmgr.Manager) {
		st := status(v1.PodFailed)
		st.ContainerStatuses[0].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Message: strings.Repeat("ä", 10000)}}
		m.Set(newPod("p"), st)
		got, _ := m.Get("p")
		msg := got.ContainerStatuses[0].State.Terminated.Message
		if len(msg) > 12<<10 || len(msg) < 12<<10-2 || !utf8.ValidString(msg) {
			t.Errorf("message of %d bytes, valid %v", len(msg), utf8.ValidString(msg))
		}
	})
}
