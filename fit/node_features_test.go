package fit

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmeta"
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
		{"declared", restarts, []string{podmeta.FeatureRestartAllContainers}, ""},
		{"not declared", restarts, []string{"Other"}, podmeta.FeatureRestartAllContainers},
		{"nobody declares", restarts, nil, ""},
		{"host network with users of its own", hostNetwork, []string{podmeta.FeatureRestartAllContainers}, podmeta.FeatureHostNetworkUserNS},
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
