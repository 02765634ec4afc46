package predicates

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// A pod that needs a feature that the node does not declare is rejected by its name;
// a node that declares none at all is not asked.
func TestFeatures(t *testing.T) {
	restarts := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{RestartPolicyRules: []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestartAllContainers}}}}}}
	hostNetwork := &v1.Pod{Spec: v1.PodSpec{HostNetwork: true, HostUsers: new(false)}}
	for _, tc := range []struct {
		name     string
		pod      *v1.Pod
		features []string
		lacks    string
	}{
		{"none is needed", &v1.Pod{}, []string{}, ""},
		{"declared", restarts, []string{RestartAllContainers}, ""},
		{"not declared", restarts, []string{"Other"}, RestartAllContainers},
		{"nobody declares", restarts, nil, ""},
		{"host network with users of its own", hostNetwork, []string{RestartAllContainers}, HostNetworkUserNS},
		{"host network with the node's users", &v1.Pod{Spec: v1.PodSpec{HostNetwork: true, HostUsers: new(true)}}, []string{}, ""},
	} {
		n := &Node{Features: tc.features}
		want := ""
		if tc.lacks != "" {
			want = "pod needs features that the node does not declare: " + tc.lacks
		}
		r := n.features(tc.pod, nil)
		if (r == nil) != (want == "") || r != nil && (r.Message != want || r.Reason != "PodFeatureUnsupported" || !r.Final) {
			t.Errorf("%s: %+v, want %q", tc.name, r, want)
		}
	}
}

func TestFeaturesOfUpdates(t *testing.T) {
	amount := func(cpu string) v1.ResourceRequirements {
		return v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}}
	}
	always := v1.ContainerRestartPolicyAlways
	version := func(pod, init, sidecar string) *v1.Pod {
		p := &v1.Pod{Spec: v1.PodSpec{InitContainers: []v1.Container{
			{Name: "i", Resources: amount(init)}, {Name: "s", Resources: amount(sidecar), RestartPolicy: &always},
		}}}
		if pod != "" {
			r := amount(pod)
			p.Spec.Resources = &r
		}
		return p
	}
	for _, tc := range []struct {
		from, to *v1.Pod
		want     []string
	}{
		{version("", "1", "1"), version("", "1000m", "1"), nil},
		{version("", "1", "1"), version("", "1", "2"), nil},
		{version("", "1", "1"), version("", "2", "1"), []string{ResizeInitContainers}},
		{version("1", "1", "1"), version("2", "2", "1"), []string{ResizePods, ResizeInitContainers}},
		{&v1.Pod{}, version("", "2", "1"), nil},
	} {
		if got := FeaturesOfUpdate(tc.from, tc.to); !slices.Equal(got, tc.want) {
			t.Errorf("%v, want %v", got, tc.want)
		}
	}
}
