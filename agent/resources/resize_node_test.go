package resources_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/resources"
	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/podruntime"
)

func memory(size string) v1.ResourceRequirements {
	list := v1.ResourceList{v1.ResourceMemory: resource.MustParse(size)}
	return v1.ResourceRequirements{Requests: list, Limits: list.DeepCopy()}
}

// resizeSized is a pod with one container that asks for that much memory.
func resizeSized(name, size string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Resources: memory(size)}}},
	}
}

func sizeOf(pod *v1.Pod) string {
	return pod.Spec.Containers[0].Resources.Requests.Memory().String()
}

// runs is a pod whose container was made with that much memory.
func runs(pod *v1.Pod, size string) *observed.Pod {
	raw, err := json.Marshal(memory(size))
	if err != nil {
		panic(err)
	}
	return &observed.Pod{UID: pod.UID, Containers: []observed.Container{{
		ID: "id", Name: "c", State: observed.Running, Annotations: map[string]string{cri.AnnotationResources: string(raw)},
	}}}
}

// nothing runs of the pod.
func nothing(pod *v1.Pod) *observed.Pod { return &observed.Pod{UID: pod.UID} }

// resizeNode is a run of an agent with the part, on a node with 4Gi of memory.
type resizeNode struct {
	*resources.Resize
	t    *testing.T
	host *agenttest.Host
	reg  *prometheus.Registry
	stop func()
}

// resizeStart returns a node whose sources have spoken, and whose records have been
// read unless the disk hangs.
func resizeStart(t *testing.T, store part.Store) *resizeNode {
	t.Helper()
	return startBeside(t, store, "")
}

// startBeside is start in the place of a kubelet, which had that root directory.
func startBeside(t *testing.T, store part.Store, kubelet string) *resizeNode {
	t.Helper()
	n := &resizeNode{t: t, host: agenttest.NewHost(t), reg: prometheus.NewRegistry()}
	var err error
	if n.Resize, err = resources.NewResize(resources.ResizeConfig{Store: store, KubeletDir: kubelet, Metrics: n.reg}); err != nil {
		t.Fatal(err)
	}
	if err := n.Join(n.host); err != nil {
		t.Fatal(err)
	}
	n.host.OnCheckResize(n.fits)
	n.host.Settle()
	n.stop = testrun.Start(t, n.Run)
	return n
}

// restored is start with Restore.
func restored(t *testing.T, store part.Store) *resizeNode {
	t.Helper()
	n := resizeStart(t, store)
	if err := n.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	return n
}

// restoredBeside is startBeside with Restore.
func restoredBeside(t *testing.T, store part.Store, kubelet string) *resizeNode {
	t.Helper()
	n := startBeside(t, store, kubelet)
	if err := n.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *resizeNode) fits(_, asks *v1.Pod) (reason, message string) {
	capacity := resource.MustParse("4Gi")
	sum := asks.Spec.Containers[0].Resources.Requests.Memory().DeepCopy()
	if sum.Cmp(capacity) > 0 {
		return v1.PodReasonInfeasible, "the node has 4Gi"
	}
	for _, other := range n.host.Pods() {
		if other.UID != asks.UID {
			sum.Add(*n.Allocated(other).Spec.Containers[0].Resources.Requests.Memory())
		}
	}
	if sum.Cmp(capacity) > 0 {
		return v1.PodReasonDeferred, "not enough memory"
	}
	return "", ""
}

// edit changes what a source wants of a pod, and returns the version that runs.
func (n *resizeNode) edit(pod *v1.Pod) *v1.Pod {
	n.host.SetPods(append(slices.DeleteFunc(n.host.Pods(), func(p *v1.Pod) bool { return p.UID == pod.UID }), pod)...)
	return n.Changed(pod)
}

// conditions of a pod, as "type reason message".
func (n *resizeNode) conditions(uid types.UID) string {
	var out []string
	for _, c := range n.Conditions(uid) {
		out = append(out, strings.Join(strings.Fields(fmt.Sprint(c.Type, " ", c.Reason, " ", c.Message)), " "))
	}
	return strings.Join(out, "; ")
}

func (n *resizeNode) wantConditions(uid types.UID, want string) {
	n.t.Helper()
	if got := n.conditions(uid); got != want {
		n.t.Errorf("conditions of %s: %q, want %q", uid, got, want)
	}
}

// wantCalls compares what was asked of the host since the last time.
func (n *resizeNode) wantCalls(want ...string) {
	n.t.Helper()
	if got := n.host.Calls(); !slices.Equal(got, want) {
		n.t.Errorf("asked the host for\n%q, want\n%q", got, want)
	}
}

func (n *resizeNode) wantRuns(pod *v1.Pod, size string) {
	n.t.Helper()
	if got := sizeOf(pod); got != size {
		n.t.Errorf("%s runs with %s, want %s", pod.Name, got, size)
	}
}

func (n *resizeNode) prepare(pod *v1.Pod) {
	n.t.Helper()
	if err := n.Prepare(n.t.Context(), n.Allocated(pod), nil); err != nil {
		n.t.Fatalf("prepare %s: %v", pod.Name, err)
	}
}

// sync is a sync of a pod that did that.
func (n *resizeNode) sync(pod *v1.Pod, res podruntime.Result, more bool) (news bool) {
	return n.Synced(n.Allocated(pod), &res, func() bool { return more })
}

// value is that of a metric, as "name{label,label}".
func (n *resizeNode) value(metric string) float64 {
	n.t.Helper()
	families, err := n.reg.Gather()
	if err != nil {
		n.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			if f.GetName()+"{"+strings.Join(labels, ",")+"}" == metric {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}
