package lifecycle_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/lifecycle"
	"github.com/nodewright/nodewright/cri/observed"
)

const (
	duration = "kubelet_pod_start_duration_seconds"
	total    = "kubelet_pod_start_total_duration_seconds"
	sli      = "kubelet_pod_start_sli_duration_seconds"
	network  = "kubelet_first_network_pod_start_sli_duration_seconds"
)

type lab struct {
	*lifecycle.PodStarts
	t    *testing.T
	host *agenttest.Host
	reg  *prometheus.Registry
}

func newLab(t *testing.T, echoed bool, before ...types.UID) *lab {
	t.Helper()
	l := &lab{t: t, host: agenttest.NewHost(t), reg: prometheus.NewRegistry()}
	var err error
	if l.PodStarts, err = lifecycle.NewPodStarts(lifecycle.PodStartsConfig{Echoed: echoed, Metrics: l.reg}); err != nil {
		t.Fatal(err)
	}
	if err := l.Join(l.host); err != nil {
		t.Fatal(err)
	}
	for _, uid := range before {
		l.host.SetObserved(&observed.Pod{UID: uid})
	}
	if err := l.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l
}

// wants checks how many starts a metric has seen, and the sum of their seconds; of
// the gauge, its value.
func (l *lab) wants(name string, n uint64, sum float64) {
	l.t.Helper()
	all, err := l.reg.Gather()
	if err != nil {
		l.t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() != name {
			continue
		}
		m := f.GetMetric()[0]
		if f.GetType() == dto.MetricType_GAUGE {
			if m.GetGauge().GetValue() != sum {
				l.t.Errorf("%s = %v, want %v", name, m.GetGauge().GetValue(), sum)
			}
			return
		}
		h := m.GetHistogram()
		if h.GetSampleCount() != n || h.GetSampleSum() != sum {
			l.t.Errorf("%s: %d starts of %v s, want %d of %v s", name, h.GetSampleCount(), h.GetSampleSum(), n, sum)
		}
		if b := h.GetBucket(); len(b) != 25 || b[0].GetUpperBound() != 0.5 || b[24].GetUpperBound() != 3600 {
			l.t.Errorf("%s has the buckets %v", name, b)
		}
		return
	}
	l.t.Errorf("there is no %s", name)
}

func pod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name), CreationTimestamp: metav1.Now()},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c"}}},
	}
}

// runs is the status of a pod whose containers have started; init is what its init
// container took, up to now.
func runs(init time.Duration) *v1.PodStatus {
	st := &v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{{
		Name: "c", State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.Now()}},
	}}}
	if init > 0 {
		st.InitContainerStatuses = []v1.ContainerStatus{{Name: "i", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			StartedAt: metav1.NewTime(time.Now().Add(-init)), FinishedAt: metav1.Now(),
		}}}}
	}
	return st
}

func TestStartOfAPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, true)
		p := pod("a")
		time.Sleep(time.Second) // on its way to the node
		if r := l.Admit(p, nil); r != nil {
			t.Fatal(r)
		}
		l.Housekeep([]*v1.Pod{p})
		first, second := l.PullBegan(p), l.PullBegan(p)
		time.Sleep(2 * time.Second)
		first()
		time.Sleep(3 * time.Second)
		second()
		time.Sleep(4 * time.Second)
		third := l.PullBegan(p) // half of it while the init container runs
		time.Sleep(10 * time.Second)
		third()
		time.Sleep(5 * time.Second)
		l.Report(p, &v1.PodStatus{Phase: v1.PodPending})
		st := runs(10 * time.Second)
		l.Report(p, st)
		l.wants(duration, 1, 24)
		l.wants(total, 0, 0)
		time.Sleep(time.Second)
		seen := p.DeepCopy()
		seen.Status = *st
		l.Housekeep([]*v1.Pod{seen})
		// 26 s, of which 5 and 10 are pulls, and 5 more the init container alone.
		l.wants(total, 1, 26)
		l.wants(sli, 1, 6)
		l.wants(network, 0, 6)
		time.Sleep(time.Hour)
		l.Report(seen, st) // it goes on
		l.Housekeep([]*v1.Pod{seen})
		l.wants(duration, 1, 24)
		l.wants(total, 1, 26)
		l.wants(sli, 1, 6)
	})
}

// A cluster's pods that are no starts, or not of the kind that the objective is
// about.
func TestWhatCountsAsAStart(t *testing.T) {
	for name, tc := range map[string]struct {
		change               func(*v1.Pod)
		status               func(*v1.PodStatus)
		before               bool
		duration, total, sli uint64
	}{
		"a pod":                 {duration: 1, total: 1, sli: 1},
		"on the host's network": {change: func(p *v1.Pod) { p.Spec.HostNetwork = true }, duration: 1, total: 1, sli: 1},
		"with a claim": {change: func(p *v1.Pod) {
			p.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}}}
		}, duration: 1, total: 1},
		"with a secret": {change: func(p *v1.Pod) {
			p.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}}}
		}, duration: 1, total: 1, sli: 1},
		"static":        {change: func(p *v1.Pod) { p.Annotations = map[string]string{"kubernetes.io/config.source": "file"} }, duration: 1},
		"never created": {change: func(p *v1.Pod) { p.CreationTimestamp = metav1.Time{} }, duration: 1},
		"not schedulable": {change: func(p *v1.Pod) {
			p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: "Unschedulable"}}
		}, duration: 1},
		"started before, by another agent": {change: func(p *v1.Pod) { p.Status.StartTime = &p.CreationTimestamp }, duration: 1},
		"running before":                   {before: true},
		"ended already":                    {change: func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }},
		"over at once":                     {status: func(st *v1.PodStatus) { st.Phase = v1.PodSucceeded }},
		"half of it":                       {status: func(st *v1.PodStatus) { st.ContainerStatuses[0].State = v1.ContainerState{} }, duration: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var before []types.UID
				if tc.before {
					before = []types.UID{"a"}
				}
				l, p := newLab(t, true, before...), pod("a")
				if tc.change != nil {
					tc.change(p)
				}
				l.Housekeep([]*v1.Pod{p})
				time.Sleep(time.Second)
				st := runs(0)
				if tc.status != nil {
					tc.status(st)
				}
				l.Report(p, st)
				seen := p.DeepCopy()
				seen.Status.Phase, seen.Status.ContainerStatuses = st.Phase, st.ContainerStatuses
				l.Housekeep([]*v1.Pod{seen})
				l.wants(duration, tc.duration, float64(tc.duration))
				l.wants(total, tc.total, float64(tc.total))
				l.wants(sli, tc.sli, float64(tc.sli))
			})
		})
	}
}

// Where nobody shows the statuses again, the agent's own count.
func TestStartAsTheAgentSeesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := newLab(t, false), pod("a")
		l.Admit(p, nil)
		time.Sleep(time.Second)
		l.Report(p, runs(0))
		l.wants(total, 1, 1)
		l.wants(sli, 1, 1)
	})
}

// An image that cannot be had for days costs nothing, and a clock that was behind
// makes no start negative.
func TestStartIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := newLab(t, false), pod("a")
		l.Admit(p, nil)
		for range 10_000 {
			done := l.PullBegan(p)
			time.Sleep(time.Second)
			done()
			time.Sleep(time.Second)
		}
		l.Report(p, runs(0))
		l.wants(total, 1, 20_000)
		l.wants(sli, 1, 10_000)

		early := pod("b")
		early.CreationTimestamp = metav1.NewTime(time.Now().Add(time.Hour))
		l.Admit(early, nil)
		l.Report(early, runs(0))
		l.wants(total, 2, 20_000)
		l.Housekeep(nil)
		if done := l.PullBegan(p); done != nil {
			t.Error("a pod that is gone is remembered")
		}
	})
}

func TestJoinOnce(t *testing.T) {
	if err := newLab(t, false).Join(agenttest.NewHost(t)); err == nil {
		t.Error("it belongs to two agents")
	}
}
