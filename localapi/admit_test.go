package localapi_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/localapi/store"
)

// A new pod has what the admission of a cluster gives it. These are nobody's fields, and who writes the pod again without them
// changes nothing.
func TestAdmittedPod(t *testing.T) {
	a := start(t, &store.Memory{})
	check := func(p v1.Pod, keys ...string) {
		t.Helper()
		var got []string
		for _, tol := range p.Spec.Tolerations {
			got = append(got, tol.Key)
		}
		if p.Spec.Priority == nil || *p.Spec.Priority != 0 || p.Spec.PreemptionPolicy == nil || *p.Spec.PreemptionPolicy != v1.PreemptLowerPriority || !slices.Equal(got, keys) {
			t.Errorf("%s: priority %v, preemption %v, tolerations %v, want of %v", p.Name, p.Spec.Priority, p.Spec.PreemptionPolicy, p.Spec.Tolerations, keys)
		}
		for _, e := range p.ManagedFields {
			if set := string(e.FieldsV1.GetRawBytes()); strings.Contains(set, "f:preemptionPolicy") || strings.Contains(set, "f:priority") {
				t.Errorf("%s has %s", e.Manager, set)
			}
		}
	}
	check(must[v1.Pod](a, "POST", pods, asJSON, pod("web")), v1.TaintNodeNotReady, v1.TaintNodeUnreachable)
	check(must[v1.Pod](a, "PUT", pods+"/web", asJSON, pod("web")), v1.TaintNodeNotReady, v1.TaintNodeUnreachable)

	own := pod("own")
	own.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	own.Spec.Tolerations = []v1.Toleration{{Key: v1.TaintNodeNotReady, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}}
	text, err := json.Marshal(own)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		p := must[v1.Pod](a, "PATCH", pods+"/own?fieldManager=me", "application/apply-patch+yaml", string(text))
		check(p, v1.TaintNodeNotReady, v1.TaintNodeUnreachable)
		if p.Spec.Tolerations[0].TolerationSeconds != nil || *p.Spec.Tolerations[1].TolerationSeconds != 300 {
			t.Errorf("%v", p.Spec.Tolerations)
		}
	}
	all := pod("all")
	all.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
	check(must[v1.Pod](a, "POST", pods, asJSON, all), "")

	never := pod("never")
	never.Spec.PreemptionPolicy = new(v1.PreemptNever)
	body, err := json.Marshal(never)
	if err != nil {
		t.Fatal(err)
	}
	a.refused("POST", pods, asJSON, string(body), 403, metav1.StatusReasonForbidden, "PreemptionPolicy")
}
