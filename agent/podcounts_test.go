package agent_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/agent/lifecycle"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/podmgr"
)

// samples are the samples of a family by the values of its labels, of histograms
// the numbers of what they have seen.
func samples(t *testing.T, reg *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range all {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			out[strings.Join(labels, ",")] = m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}

// Pods are counted by what becomes of them, and their starts measured.
func TestPodCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, reg := newNode(t), prometheus.NewRegistry()
		n.metrics = reg
		starts, err := lifecycle.NewPodStarts(lifecycle.PodStartsConfig{Metrics: reg})
		if err != nil {
			t.Fatal(err)
		}
		pulls := &pulls{}
		n.parts = []part.Part{starts, pulls}
		n.rt.OfferImage(image)
		static, managed, src := newPod("static", runs("c")), newPod("managed", runs("c")), newAPISource()
		managed.CreationTimestamp = metav1.Now()
		managed.Spec.Containers[0].ImagePullPolicy = v1.PullAlways
		managed.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: image}}}
		ended := newPod("ended", runs("c", "exit", "0"))
		ended.Spec.RestartPolicy = v1.RestartPolicyNever
		n.want, n.more, n.sink = []*v1.Pod{static}, []podmgr.Source{src}, &follower{}
		src.kind = podmgr.API
		src.tell(managed, ended)
		l := n.start()
		defer l.stop()
		settle()
		settle()
		if got := samples(t, reg, "kubelet_managed_ephemeral_containers")[""]; got != 1 {
			t.Errorf("%v ephemeral containers", got)
		}
		working := samples(t, reg, "kubelet_working_pods")
		if len(working) != 15 || working["desired,sync,true"] != 1 || working["desired,sync,"] != 1 || working["desired,terminated,"] != 1 {
			t.Errorf("working %v", working)
		}
		if active := samples(t, reg, "kubelet_active_pods"); len(active) != 2 || active["true"] != 1 || active[""] != 1 {
			t.Errorf("active %v", active)
		}
		if got := samples(t, reg, "kubelet_pod_start_duration_seconds")[""]; got < 2 {
			t.Errorf("%v pods started", got)
		}
		if got := samples(t, reg, "kubelet_pod_start_sli_duration_seconds")[""]; got != 1 {
			t.Errorf("%v pods of those that were created started", got)
		}
		pulls.mu.Lock()
		defer pulls.mu.Unlock()
		pulls.heard = slices.DeleteFunc(pulls.heard, func(s string) bool { return !strings.HasPrefix(s, "managed ") })
		if !slices.Equal(pulls.heard, []string{"managed waits", "managed waits no more"}) {
			t.Errorf("heard of pulls: %q", pulls.heard)
		}
	})
}

// pulls is a part that hears of pulls.
type pulls struct {
	mu    sync.Mutex
	heard []string
}

func (*pulls) Name() string { return "pulls" }

func (p *pulls) PullBegan(pod *v1.Pod) func() {
	p.hear(pod.Name + " waits")
	return func() { p.hear(pod.Name + " waits no more") }
}

func (p *pulls) hear(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = append(p.heard, what)
}
