package podmeta_test

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/podmeta"
)

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
		{version("", "1", "1"), version("", "2", "1"), []string{podmeta.FeatureResizeInitContainers}},
		{version("1", "1", "1"), version("2", "2", "1"), []string{podmeta.FeatureResizePods, podmeta.FeatureResizeInitContainers}},
		{&v1.Pod{}, version("", "2", "1"), nil},
	} {
		if got := podmeta.FeaturesOfUpdate(tc.from, tc.to); !slices.Equal(got, tc.want) {
			t.Errorf("%v, want %v", got, tc.want)
		}
	}
}
