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

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/statusmgr"
)

func terminated(phase v1.PodPhase, code int32) v1.PodStatus {
	st := status(phase)
	st.ContainerStatuses[0].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code, Reason: "Error"}}
	return st
}

func TestWhoMayLiveAfterItsEnd(t *testing.T) {
	own := func(p v1.ContainerRestartPolicy) *v1.ContainerRestartPolicy { return &p }
	rule := []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestart, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
		Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42},
	}}}
	for _, tc := range []struct {
		name   string
		policy v1.RestartPolicy
		own    *v1.ContainerRestartPolicy
		rules  []v1.ContainerRestartRule
		code   int32
		lives  bool
	}{
		{name: "always", policy: v1.RestartPolicyAlways, lives: true},
		{name: "never", policy: v1.RestartPolicyNever, code: 1},
		{name: "on failure, failed", policy: v1.RestartPolicyOnFailure, code: 1, lives: true},
		{name: "on failure, succeeded", policy: v1.RestartPolicyOnFailure},
		{name: "own policy over the pod's", policy: v1.RestartPolicyNever, own: own(v1.ContainerRestartPolicyAlways), lives: true},
		{name: "own never over always", policy: v1.RestartPolicyAlways, own: own(v1.ContainerRestartPolicyNever), code: 1},
		{name: "by a rule", policy: v1.RestartPolicyNever, own: own(v1.ContainerRestartPolicyNever), rules: rule, code: 42, lives: true},
		{name: "no rule for it", policy: v1.RestartPolicyNever, own: own(v1.ContainerRestartPolicyNever), rules: rule, code: 41},
	} {
		t.Run(tc.name, func(t *testing.T) {
			core, logs := observer.New(zap.ErrorLevel)
			run(t, statusmgr.Config{Log: zap.New(core)}, func(m *statusmgr.Manager) {
				p := newPod("p")
				p.Spec.RestartPolicy = tc.policy
				p.Spec.Containers[0].RestartPolicy, p.Spec.Containers[0].RestartPolicyRules = tc.own, tc.rules
				m.Set(p, terminated(v1.PodRunning, tc.code))
				m.Set(p, status(v1.PodRunning))
				st, _ := m.Get("p")
				if lives := st.ContainerStatuses[0].State.Running != nil; lives != tc.lives {
					t.Errorf("lives %v, want %v", lives, tc.lives)
				}
				want := map[bool]int{true: 0, false: 1}[tc.lives]
				if n := logs.FilterMessage("rejected impossible status change").Len(); n != want {
					t.Errorf("%d impossible changes logged, want %d", n, want)
				}
			})
		})
	}
}

// total sums a metric over its labels: a counter's value, a histogram's count.
func total(t *testing.T, reg *prometheus.Registry, name string) (sum float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if f.GetType() == dto.MetricType_HISTOGRAM {
				sum += float64(m.GetHistogram().GetSampleCount())
			} else {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func TestTerminalPhases(t *testing.T) {
	for _, was := range []v1.PodPhase{v1.PodSucceeded, v1.PodFailed} {
		for _, next := range []v1.PodPhase{v1.PodPending, v1.PodRunning, v1.PodSucceeded, v1.PodFailed} {
			run(t, statusmgr.Config{}, func(m *statusmgr.Manager) {
				known, set := newPod("known"), newPod("set")
				known.Status.Phase = was // by the API, before this manager was
				m.Set(set, status(was))
				for _, p := range []*v1.Pod{known, set} {
					st := status(next)
					st.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}, {Type: v1.ContainersReady, Status: v1.ConditionTrue}}
					m.Set(p, st)
					got, _ := m.Get(p.UID)
					if got.Phase != was {
						t.Errorf("%s: phase %s after %s", p.Name, got.Phase, was)
					}
					for _, c := range got.Conditions {
						if c.Status == v1.ConditionTrue {
							t.Errorf("%s: %s in phase %s", p.Name, c.Type, got.Phase)
						}
					}
				}
			})
		}
	}
}

func TestTerminateEndsReadiness(t *testing.T) {
	run(t, statusmgr.Config{}, func(m *statusmgr.Manager) {
		p := newPod("p")
		m.Set(p, status(v1.PodRunning))
		m.SetReady("p", "id", true)
		m.Terminate(p)
		m.SetReady("p", "id", true) // a probe's last word
		st, _ := m.Get("p")
		for _, c := range st.Conditions {
			if c.Status != v1.ConditionFalse || c.Reason != "PodFailed" {
				t.Errorf("condition %+v of a failed pod", c)
			}
		}
		if len(st.Conditions) != 2 {
			t.Errorf("conditions %+v", st.Conditions)
		}
	})
}

func TestStaticPods(t *testing.T) {
	run(t, statusmgr.Config{}, func(m *statusmgr.Manager) {
		p := newPod("p")
		p.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		var finished []bool
		m.Subscribe(func(c statusmgr.Change) { finished = append(finished, c.Finished) })
		p.Spec.RestartPolicy = v1.RestartPolicyAlways
		m.Set(p, status(v1.PodRunning))
		m.Terminate(p)
		if ph, _ := m.Phase("p"); ph != v1.PodRunning {
			t.Errorf("phase %s of a static pod, want what it was", ph)
		}
		again := status(v1.PodRunning)
		again.ContainerStatuses[0].RestartCount = 1
		m.Set(p, again)
		synctest.Wait()
		if got := fmt.Sprint(finished); got != "[false true false]" {
			t.Errorf("finished %s: it came back under its UID", got)
		}
	})
}

func TestTimesStay(t *testing.T) {
	run(t, statusmgr.Config{}, func(m *statusmgr.Manager) {
		p := newPod("p")
		foreign := metav1.NewTime(time.Now().Add(-time.Hour))
		with := func(ready v1.ConditionStatus, phase v1.PodPhase) v1.PodStatus {
			st := status(phase)
			st.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: ready}, {Type: "foreign", Status: ready, LastTransitionTime: foreign}}
			return st
		}
		began := time.Now().Truncate(time.Second)
		for i, tc := range []struct {
			ready v1.ConditionStatus
			phase v1.PodPhase
			since time.Duration // the start, when Ready changed
		}{
			{v1.ConditionFalse, v1.PodPending, 0},
			{v1.ConditionFalse, v1.PodRunning, 0},
			{v1.ConditionTrue, v1.PodRunning, 2 * time.Minute},
			{v1.ConditionTrue, v1.PodPending, 2 * time.Minute},
		} {
			if !m.Set(p, with(tc.ready, tc.phase)) {
				t.Errorf("step %d was no news", i)
			}
			st, _ := m.Get("p")
			if !st.StartTime.Time.Equal(began) {
				t.Errorf("step %d: start time %v, want %v", i, st.StartTime, began)
			}
			if got := st.Conditions[0].LastTransitionTime.Sub(began); got != tc.since {
				t.Errorf("step %d: Ready changed after %v, want %v", i, got, tc.since)
			}
			if got := st.Conditions[1].LastTransitionTime; !got.Equal(&metav1.Time{Time: foreign.Truncate(time.Second)}) {
				t.Errorf("step %d: a foreign condition changed at %v, want %v", i, got, foreign)
			}
			time.Sleep(time.Minute)
		}
	})
}

func TestOthersConditionsAreNoNews(t *testing.T) {
	sink := &fakeSink{t: t}
	run(t, statusmgr.Config{Sink: sink}, func(m *statusmgr.Manager) {
		p := newPod("p")
		m.Set(p, status(v1.PodRunning))
		st := status(v1.PodRunning)
		st.Conditions = []v1.PodCondition{{Type: "foreign", Status: v1.ConditionTrue}}
		if m.Set(p, st) {
			t.Error("what others said is news")
		}
		synctest.Wait()
		if got := sink.told(); got != "p Running" {
			t.Errorf("sink was told %q", got)
		}
		if st, _ := m.Get("p"); len(st.Conditions) != 1 {
			t.Errorf("conditions %+v, want the newest", st.Conditions)
		}
	})
}

func TestChangesBeforeTheWriteAreOne(t *testing.T) {
	sink := &fakeSink{t: t}
	reg := prometheus.NewRegistry()
	run(t, statusmgr.Config{Sink: sink, Parallel: 1, Metrics: reg}, func(m *statusmgr.Manager) {
		sink.hang = map[string]chan struct{}{"first": make(chan struct{})} // of this bubble
		m.Set(newPod("first"), status(v1.PodRunning))
		for range 5 {
			m.Set(newPod("p"), status(v1.PodPending))
			m.Set(newPod("p"), status(v1.PodRunning))
		}
		m.Set(newPod("first"), status(v1.PodPending)) // while its write hangs
		close(sink.hang["first"])
		synctest.Wait()
		if got := sink.told(); got != "first Running, p Running, first Pending" {
			t.Errorf("sink was told %q", got)
		}
		if n := total(t, reg, "kubelet_pod_status_sync_duration_seconds"); n != 3 {
			t.Errorf("%v durations, want one for each write", n)
		}
	})
}

func TestBackoffDoublesAndEnds(t *testing.T) {
	sink := &countingSink{err: errors.New("down")}
	run(t, statusmgr.Config{Sink: sink, MaxBackoff: 8 * time.Second}, func(m *statusmgr.Manager) {
		m.Set(newPod("p"), status(v1.PodPending))
		m.Set(newPod("p"), status(v1.PodRunning))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		for i, want := range []time.Duration{1, 2, 4, 8, 8, 8} {
			want *= time.Second
			if got := sink.at[i+1].Sub(sink.at[i]); got < want || got > want+want/2 {
				t.Errorf("try %d came after %v, want %v and at most half as much again", i+1, got, want)
			}
		}
		sink.mu.Lock()
		sink.err = nil
		sink.mu.Unlock()
		time.Sleep(12 * time.Second)
		synctest.Wait()
		n := len(sink.at)
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(sink.at) != n {
			t.Errorf("%d writes after the one that succeeded", len(sink.at)-n)
		}
		// Success starts the count afresh, and news is told at once.
		before := time.Now()
		m.Set(newPod("p"), status(v1.PodPending))
		synctest.Wait()
		if got := sink.at[len(sink.at)-1]; len(sink.at) != n+1 || !got.Equal(before) {
			t.Errorf("%d writes, the last at %v, want one at %v", len(sink.at)-n, got, before)
		}
	})
}

// countingSink notes when it is called.
type countingSink struct {
	mu  sync.Mutex
	err error
	at  []time.Time
}

func (s *countingSink) Update(context.Context, *v1.Pod, v1.PodStatus) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = append(s.at, time.Now())
	return s.err
}

func (s *countingSink) Delete(context.Context, *v1.Pod) error { return nil }

func TestDroppedAndSetAgainDuringAWrite(t *testing.T) {
	sink := &fakeSink{t: t}
	run(t, statusmgr.Config{Sink: sink}, func(m *statusmgr.Manager) {
		sink.hang = map[string]chan struct{}{"p": make(chan struct{})} // of this bubble
		m.Set(newPod("p"), status(v1.PodPending))
		synctest.Wait()
		m.Retain(func(types.UID) bool { return false })
		m.Set(newPod("p"), status(v1.PodRunning))
		synctest.Wait() // the sink complains of a second call
		close(sink.hang["p"])
		synctest.Wait()
		if got := sink.told(); got != "p Pending, p Running" {
			t.Errorf("sink was told %q", got)
		}
	})
}

func TestWhoIsDeleted(t *testing.T) {
	deleted := metav1.Now()
	for _, tc := range []struct {
		name     string
		phase    v1.PodPhase
		change   func(*v1.Pod)
		finished bool
		want     int
	}{
		{"failed, not finished", v1.PodFailed, func(p *v1.Pod) { p.DeletionTimestamp = &deleted }, false, 0},
		{"finished", v1.PodRunning, func(p *v1.Pod) { p.DeletionTimestamp = &deleted }, true, 1},
		{"finished, not to be deleted", v1.PodRunning, func(*v1.Pod) {}, true, 0},
		{"a mirror", v1.PodRunning, func(p *v1.Pod) {
			p.DeletionTimestamp, p.Annotations = &deleted, map[string]string{"kubernetes.io/config.mirror": "h"}
		}, true, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sink := &fakeSink{t: t}
			// The worker that ends the pod counts as alive until it returns.
			run(t, statusmgr.Config{Sink: sink}, func(m *statusmgr.Manager) {
				p := newPod("p")
				tc.change(p)
				show := func(st v1.PodStatus) {
					m.Show(p, statusmgr.Report{Status: st, Shown: statusmgr.Itself(p), Runs: observed.Yes})
				}
				show(status(tc.phase))
				if tc.finished {
					m.Terminate(p)
				}
				show(terminated(v1.PodFailed, 137))
				time.Sleep(time.Minute)
				synctest.Wait()
				if len(sink.deletes) != tc.want {
					t.Errorf("deleted %d times, want %d", len(sink.deletes), tc.want)
				}
				if got := sink.told(); tc.want > 0 && !strings.HasSuffix(got, "p Failed") {
					t.Errorf("sink was told %q before the deletion", got)
				}
			})
		})
	}
}

func TestCancelledSubscribersHearNoMore(t *testing.T) {
	run(t, statusmgr.Config{}, func(m *statusmgr.Manager) {
		calls := 0
		cancel := m.Subscribe(func(statusmgr.Change) { calls++; time.Sleep(time.Second) })
		for _, ph := range []v1.PodPhase{v1.PodPending, v1.PodRunning, v1.PodPending} {
			m.Set(newPod("p"), status(ph))
		}
		synctest.Wait()
		cancel()
		cancel()
		time.Sleep(time.Minute)
		synctest.Wait()
		if calls != 1 {
			t.Errorf("%d calls, want the one under way", calls)
		}
	})
}

func TestSubscribeAfterRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a goroutine left behind fails it
		m, err := statusmgr.New(statusmgr.Config{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := m.Run(ctx); err != nil {
			t.Error(err)
		}
		m.Subscribe(func(statusmgr.Change) { t.Error("called") })()
		m.Set(newPod("p"), status(v1.PodRunning))
	})
}

func TestEndsAreCountedOnce(t *testing.T) {
	reg := prometheus.NewRegistry()
	run(t, statusmgr.Config{Metrics: reg}, func(m *statusmgr.Manager) {
		p := newPod("p")
		m.Set(p, status(v1.PodRunning))
		for range 3 {
			m.Set(p, terminated(v1.PodFailed, 1))
			m.Terminate(p)
		}
		known := newPod("known") // ended before this manager was
		known.Status = terminated(v1.PodFailed, 1)
		m.Set(known, terminated(v1.PodFailed, 1))
		if n := total(t, reg, "kubelet_terminated_containers_total"); n != 1 {
			t.Errorf("%v ends counted, want 1", n)
		}
	})
}

func TestMessagesShareTheirBudget(t *testing.T) {
	run(t, statusmgr.Config{}, func(m *statusmgr.Manager) {
		p, st := newPod("p"), v1.PodStatus{Phase: v1.PodRunning}
		p.Spec.Containers = nil
		ended := &v1.ContainerStateTerminated{Message: strings.Repeat("x", 1000)} // shared, by whatever
		long := v1.ContainerState{Terminated: ended}
		for i := range 24 {
			name := fmt.Sprintf("c%02d", 23-i)
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: name})
			st.ContainerStatuses = append(st.ContainerStatuses, v1.ContainerStatus{Name: name, State: long, LastTerminationState: long})
		}
		m.Set(p, st)
		got, _ := m.Get("p")
		for i, c := range got.ContainerStatuses {
			if a, b := len(c.State.Terminated.Message), len(c.LastTerminationState.Terminated.Message); a != 512 || b != 512 {
				t.Errorf("%s: messages of %d and %d bytes, want 512", c.Name, a, b)
			}
			if want := fmt.Sprintf("c%02d", i); c.Name != want {
				t.Errorf("%s in the place of %s", c.Name, want)
			}
		}
		if len(ended.Message) != 1000 {
			t.Error("what the status pointed to was changed")
		}
	})
}

// seen is what subscribers saw of one pod.
func seen(m *statusmgr.Manager) *[]statusmgr.Change {
	list := new([]statusmgr.Change)
	m.Subscribe(func(c statusmgr.Change) { *list = append(*list, c) })
	return list
}

func TestSettersSayWhatIsNew(t *testing.T) {
	no := false
	for _, tc := range []struct {
		name  string
		set   func(m *statusmgr.Manager)
		news  int
		ready v1.ConditionStatus // of the pod, afterwards
	}{
		{"ready, unknown container", func(m *statusmgr.Manager) { m.SetReady("p", "other", true) }, 0, ""},
		{"ready, no container ID", func(m *statusmgr.Manager) { m.SetReady("p", "", true) }, 0, ""},
		{"ready, unknown pod", func(m *statusmgr.Manager) { m.SetReady("q", "id", true) }, 0, ""},
		{"ready, the same", func(m *statusmgr.Manager) { m.SetReady("p", "id", false) }, 0, ""},
		{"ready", func(m *statusmgr.Manager) { m.SetReady("p", "id", true) }, 1, v1.ConditionTrue},
		{"ready and not", func(m *statusmgr.Manager) { m.SetReady("p", "id", true); m.SetReady("p", "id", false) }, 2, v1.ConditionFalse},
		{"an init container", func(m *statusmgr.Manager) { m.SetReady("p", "init", true) }, 1, v1.ConditionFalse},
		{"started, unknown container", func(m *statusmgr.Manager) { m.SetStarted("p", "other", true) }, 0, ""},
		{"not started, where nothing was known", func(m *statusmgr.Manager) { m.SetStarted("p", "id", false) }, 1, ""},
		{"started, the same", func(m *statusmgr.Manager) { m.SetStarted("p", "init", false) }, 0, ""},
		{"started", func(m *statusmgr.Manager) { m.SetStarted("p", "init", true) }, 1, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			run(t, statusmgr.Config{}, func(m *statusmgr.Manager) {
				p := newPod("p")
				p.Spec.InitContainers = []v1.Container{{Name: "i"}}
				st := status(v1.PodRunning)
				st.InitContainerStatuses = []v1.ContainerStatus{{Name: "i", ContainerID: "containerd://init", Started: &no}}
				m.Set(p, st)
				changes := seen(m)
				tc.set(m)
				synctest.Wait()
				if len(*changes) != tc.news {
					t.Errorf("%d changes, want %d", len(*changes), tc.news)
				}
				got, _ := m.Get("p")
				var ready v1.ConditionStatus
				for _, c := range got.Conditions {
					if c.Type == v1.PodReady {
						ready = c.Status
					}
				}
				if ready != tc.ready {
					t.Errorf("pod is ready: %q, want %q", ready, tc.ready)
				}
			})
		})
	}
}

func TestGenerationsDoNotDecrease(t *testing.T) {
	run(t, statusmgr.Config{}, func(m *statusmgr.Manager) {
		for _, g := range []int64{3, 5, 4} {
			p := newPod("p")
			p.Generation = g
			m.Set(p, status(v1.PodRunning))
		}
		if st, _ := m.Get("p"); st.ObservedGeneration != 5 {
			t.Errorf("observed generation %d, want the greatest", st.ObservedGeneration)
		}
	})
}

func TestOnceFinishedAlwaysFinished(t *testing.T) {
	run(t, statusmgr.Config{}, func(m *statusmgr.Manager) {
		p := newPod("p")
		m.Set(p, status(v1.PodRunning))
		changes := seen(m)
		m.Terminate(p)
		m.Terminate(p) // nothing new
		late := terminated(v1.PodFailed, 137)
		late.HostIP = "10.0.0.1"
		m.Set(p, late)
		synctest.Wait()
		if len(*changes) != 2 || !(*changes)[0].Finished || !(*changes)[1].Finished {
			t.Errorf("changes %+v, want two of a finished pod", *changes)
		}
	})
}

// Whether containers ran is judged by what the manager knows, not by what the
// API last showed.
func TestTerminateGoesByTheNewestStatus(t *testing.T) {
	run(t, statusmgr.Config{}, func(m *statusmgr.Manager) {
		p := newPod("p")
		p.Spec.InitContainers = []v1.Container{{Name: "i"}}
		waiting := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}
		p.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "i", State: waiting}}
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", State: waiting}}
		unknown := p.DeepCopy()
		unknown.UID = "unknown"
		m.Terminate(unknown)
		m.Set(p, status(v1.PodRunning))
		m.Terminate(p)
		for uid, want := range map[string]bool{"unknown": false, "p": true} {
			st, _ := m.Get(types.UID(uid))
			if ended := st.ContainerStatuses[0].State.Terminated != nil; ended != want {
				t.Errorf("%s: the container has an end: %v, want %v", uid, ended, want)
			}
		}
	})
}

// Of a pod that is over, no container lives again; an init container of one
// that is not may, in a new sandbox.
func TestInitContainersMayRunAgain(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	for _, tc := range []struct {
		name    string
		phase   v1.PodPhase
		sidecar bool
		lives   bool
	}{
		{"running", v1.PodRunning, false, true},
		{"over", v1.PodFailed, false, false},
		{"a sidecar of a pod that is over", v1.PodFailed, true, true},
	} {
		run(t, statusmgr.Config{}, func(m *statusmgr.Manager) {
			p := newPod("p")
			p.Spec.InitContainers = []v1.Container{{Name: "i"}}
			if tc.sidecar {
				p.Spec.InitContainers[0].RestartPolicy = &always
			}
			for _, state := range []v1.ContainerState{
				{Terminated: &v1.ContainerStateTerminated{}}, {Running: &v1.ContainerStateRunning{}},
			} {
				m.Set(p, v1.PodStatus{Phase: tc.phase, InitContainerStatuses: []v1.ContainerStatus{{Name: "i", State: state}}})
			}
			st, _ := m.Get("p")
			if lives := st.InitContainerStatuses[0].State.Running != nil; lives != tc.lives {
				t.Errorf("%s: lives %v, want %v", tc.name, lives, tc.lives)
			}
		})
	}
}
