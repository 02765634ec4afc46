package podmeta

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestFilledRequests(t *testing.T) {
	for _, c := range []struct{ spec, want string }{
		{"{containers: [{name: a, resources: {limits: {cpu: 1}}}]}", "cpu 1"},
		{"{containers: [{name: a, resources: {requests: {cpu: 500m}, limits: {cpu: 1, memory: 1Mi}}}]}", "cpu 500m, memory 1Mi"},
		{"{containers: [{name: a}], resources: {limits: {cpu: 2}}}", "cpu 2"},
		{"{containers: [{name: a, resources: {requests: {cpu: 1}}}], resources: {limits: {cpu: 2, memory: 1Mi}}}", "cpu 1, memory 1Mi"},
		{"{containers: [{name: a}], resources: {requests: {cpu: 1}, limits: {cpu: 2}}, overhead: {cpu: 100m}}", "cpu 1100m"},
		{"{containers: [{name: a}], initContainers: [{name: i, resources: {limits: {cpu: 3}}}]}", "cpu 3"},
	} {
		p := pod(t, c.spec)
		before := p.DeepCopy()
		if got := list(FilledRequests(p)); got != c.want {
			t.Errorf("%s: %s, want %s", c.spec, got, c.want)
		}
		if p.String() != before.String() {
			t.Errorf("%s: the pod was changed", c.spec)
		}
	}
}

func TestLeftOfMemory(t *testing.T) {
	for _, c := range []struct{ capacity, want string }{
		{"", ""},
		{"memory=4Gi", "memory 4Gi"},
		{"hugepages-1Gi=1Gi hugepages-2Mi=512Mi memory=4Gi", "hugepages-1Gi 1Gi, hugepages-2Mi 512Mi, memory 2560Mi"},
		{"hugepages-1Gi=2Gi memory=1Gi", "hugepages-1Gi 2Gi, memory 0"},
	} {
		capacity := v1.ResourceList{}
		for _, f := range strings.Fields(c.capacity) {
			name, q, _ := strings.Cut(f, "=")
			capacity[v1.ResourceName(name)] = resource.MustParse(q)
		}
		if got := list(LeftOfMemory(capacity.DeepCopy(), capacity)); got != c.want {
			t.Errorf("%s: %s, want %s", c.capacity, got, c.want)
		}
	}
}
