package preempt_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/internal/preempt"
	"github.com/nodewright/nodewright/podmeta"
)

const (
	nodeCritical    = 2_000_001_000
	clusterCritical = 2_000_000_000
)

// list reads "cpu=1 memory=10Mi pods=1".
func list(text string) v1.ResourceList {
	out := v1.ResourceList{}
	for _, f := range strings.Fields(text) {
		name, value, _ := strings.Cut(f, "=")
		out[v1.ResourceName(name)] = resource.MustParse(value)
	}
	return out
}

// pod has a class by its name's beginning: best-effort, burstable or guaranteed.
func pod(name string, priority int32, requests string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
	p.Annotations = map[string]string{podmeta.AnnotationSource: podmeta.SourceAPI}
	p.Spec.Priority = &priority
	c := v1.Container{Name: "c", Resources: v1.ResourceRequirements{Requests: list(requests)}}
	if strings.HasPrefix(name, "guaranteed") {
		c.Resources.Limits = c.Resources.Requests
	}
	p.Spec.Containers = []v1.Container{c}
	return p
}

func names(pods []*v1.Pod) string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return strings.Join(out, " ")
}

func TestChoose(t *testing.T) {
	var (
		bestEffort  = pod("best-effort", 0, "")
		tiny        = pod("burstable-tiny", 0, "cpu=1 memory=1Mi")
		burstable   = pod("burstable", 0, "cpu=100m memory=100Mi")
		highRequest = pod("burstable-high", 0, "cpu=300m memory=300Mi")
		guaranteed  = pod("guaranteed", 0, "cpu=100m memory=100Mi")
		large       = pod("guaranteed-large", 0, "cpu=800m memory=800Mi")
		cluster     = pod("burstable-cluster-critical", clusterCritical, "cpu=100m memory=100Mi")
		node        = pod("burstable-node-critical", nodeCritical, "cpu=100m memory=100Mi")
		critical    = pod("critical", clusterCritical, "")
		nodewide    = pod("nodewide", nodeCritical, "")
	)
	for _, tc := range []struct {
		name    string
		pod     *v1.Pod
		others  []*v1.Pod
		missing string
		want    string // "-": there is not enough
	}{
		{"nothing is missing", critical, []*v1.Pod{burstable}, "", ""},
		{"nobody is there", critical, nil, "cpu=100m", "-"},
		{"one fits exactly", critical, []*v1.Pod{bestEffort, burstable}, "cpu=100m memory=100Mi", "burstable"},
		{"there is too little", critical, []*v1.Pod{bestEffort, burstable, guaranteed}, "cpu=1", "-"},
		{"one resource of two is not there", critical, []*v1.Pod{highRequest}, "cpu=100m nvidia.com/gpu=1", "-"},
		{"best effort first, for a place", critical, []*v1.Pod{guaranteed, burstable, bestEffort}, "pods=1", "best-effort"},
		{"burstable before guaranteed", critical, []*v1.Pod{guaranteed, burstable}, "cpu=100m", "burstable"},
		{"the smaller if it is enough", critical, []*v1.Pod{highRequest, burstable, guaranteed}, "cpu=50m memory=50Mi", "burstable"},
		{"the larger if the smaller is not enough", critical, []*v1.Pod{burstable, highRequest, guaranteed}, "cpu=150m memory=150Mi", "burstable-high"},
		{"several", critical, []*v1.Pod{burstable, highRequest}, "cpu=400m", "burstable-high burstable"},
		{"a guaranteed one, and none in vain", critical, []*v1.Pod{bestEffort, burstable, large}, "cpu=700m", "guaranteed-large"},
		{"a guaranteed one and a burstable one", critical, []*v1.Pod{burstable, highRequest, large}, "cpu=1 memory=900Mi", "guaranteed-large burstable-high"},
		{"less memory goes at one distance", critical, []*v1.Pod{burstable, tiny}, "cpu=100m", "burstable-tiny"},
		{"critical ones stay", critical, []*v1.Pod{cluster, node}, "cpu=100m", "-"},
		{"a higher priority ends a lower one", nodewide, []*v1.Pod{cluster, node}, "cpu=100m", "burstable-cluster-critical"},
		{"never the reverse", critical, []*v1.Pod{node}, "cpu=100m", "-"},
		{"not itself", critical, []*v1.Pod{critical}, "pods=1", "-"},
		{"an ordinary pod ends lower ones alone", pod("p", 5, ""), []*v1.Pod{pod("burstable-low", 4, "cpu=1"), pod("burstable-same", 5, "cpu=1")}, "cpu=1", "burstable-low"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			victims, err := preempt.Choose(tc.pod, tc.others, list(tc.missing), preempt.Critical)
			var no *preempt.NotEnoughError
			if tc.want == "-" {
				if !errors.As(err, &no) || len(victims) > 0 {
					t.Errorf("%s, %v; want none", names(victims), err)
				}
				return
			}
			if got := names(victims); err != nil || got != tc.want {
				t.Errorf("%q, %v; want %q", got, err, tc.want)
			}
		})
	}
}

// The error says what is missing even without all of them.
func TestNotEnough(t *testing.T) {
	_, err := preempt.Choose(pod("p", clusterCritical, ""), []*v1.Pod{pod("burstable", 0, "cpu=100m memory=1Mi")}, list("cpu=1500m memory=2Mi"), preempt.Critical)
	if want := "still missing cpu 1400m, memory 1Mi"; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want ...%s", err, want)
	}
}

// Where all pods are static, the priority of system pods counts.
func TestWhereAllPodsAreStatic(t *testing.T) {
	static := func(name string, priority int32) *v1.Pod {
		p := pod(name, priority, "cpu=1")
		p.Annotations[podmeta.AnnotationSource] = "file"
		return p
	}
	system, plain := static("system", nodeCritical), static("burstable-plain", 0)
	for _, tc := range []struct {
		pod, other *v1.Pod
		critical   func(*v1.Pod) bool
		want       bool
	}{
		{system, plain, preempt.SystemPriority, true}, {plain, system, preempt.SystemPriority, false},
		{plain, static("burstable-other", 0), preempt.SystemPriority, false}, {plain, static("burstable-other", 0), preempt.Critical, false},
	} {
		if got := preempt.MayEnd(tc.other, tc.pod, tc.critical); got != tc.want {
			t.Errorf("%s ends for %s: %v, want %v", tc.other.Name, tc.pod.Name, got, tc.want)
		}
	}
}

// Whatever the pods are: what is chosen is enough, nobody is chosen twice or without
// the right to, the order of the pods does not matter, and an error is no less than
// the truth.
func TestChoiceIsEnoughAndStable(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		var others []*v1.Pod
		for i := range r.IntN(12) {
			class := []string{"guaranteed", "burstable", "best-effort"}[r.IntN(3)]
			requests := fmt.Sprintf("cpu=%dm memory=%dMi", 1+r.IntN(1000), 1+r.IntN(1000))
			if class == "best-effort" {
				requests = ""
			}
			others = append(others, pod(fmt.Sprintf("%s-%d", class, i), []int32{0, 1000, clusterCritical}[r.IntN(3)], requests))
		}
		missing := list(fmt.Sprintf("cpu=%dm memory=%dMi pods=%d", r.IntN(2000), r.IntN(2000), r.IntN(3)))
		me := pod("me", nodeCritical, "")
		victims, err := preempt.Choose(me, others, missing, preempt.Critical)
		enough := func(gone []*v1.Pod) bool {
			left := missing.DeepCopy()
			for name, q := range left {
				for _, p := range gone {
					if name == v1.ResourcePods {
						q.Sub(resource.MustParse("1"))
					} else {
						q.Sub(podmeta.Requests(p)[name])
					}
				}
				if q.Sign() > 0 {
					return false
				}
			}
			return true
		}
		if (err == nil) != enough(others) || err == nil && !enough(victims) {
			t.Fatalf("seed %d: chosen %s: %v", seed, names(victims), err)
		}
		seen := map[types.UID]bool{}
		for _, v := range victims {
			if seen[v.UID] || !preempt.MayEnd(v, me, preempt.Critical) {
				t.Fatalf("seed %d: %s was chosen twice, or without the right to", seed, v.Name)
			}
			seen[v.UID] = true
		}
		slices.Reverse(others)
		if again, _ := preempt.Choose(me, others, missing, preempt.Critical); names(again) != names(victims) {
			t.Fatalf("seed %d: %s, and in another order %s", seed, names(victims), names(again))
		}
	}
}
