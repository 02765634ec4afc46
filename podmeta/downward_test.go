package podmeta

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestField(t *testing.T) {
	p := pod(t, "{}")
	p.Name, p.Namespace, p.UID = "web", "shop", "u"
	p.Labels, p.Annotations = map[string]string{"b": "2", "a": "1"}, map[string]string{"k": "say \"hi\"\n"}
	for path, want := range map[string]string{
		"metadata.name": "web", "metadata.namespace": "shop", "metadata.uid": "u",
		"metadata.labels": "a=\"1\"\nb=\"2\"", "metadata.annotations": `k="say \"hi\"\n"`,
		"metadata.labels['a']": "1", "metadata.labels['none']": "", "metadata.annotations['k']": "say \"hi\"\n",
	} {
		if got, ok := Field(p, path); !ok || got != want {
			t.Errorf("%s = %q, %t; want %q", path, got, ok, want)
		}
	}
	for _, path := range []string{"", "metadata", "metadata.labels[a]", "metadata.labels['a'", "metadata.name['a']", "spec.nodeName"} {
		if got, ok := Field(p, path); ok {
			t.Errorf("%q = %q, want no field", path, got)
		}
	}
}

func TestResource(t *testing.T) {
	p := pod(t, `{resources: {limits: {hugepages-2Mi: 8Mi}}, containers: [{name: c, resources: {requests: {memory: 100Mi}, limits: {cpu: 1500m}}}]}`)
	node := v1.ResourceList{"memory": resource.MustParse("1Gi")}
	for _, c := range []struct{ name, divisor, want string }{
		{"limits.cpu", "0", "2"},
		{"limits.cpu", "1m", "1500"},
		{"limits.memory", "1Mi", "1024"},         // the node's
		{"limits.hugepages-2Mi", "0", "8388608"}, // the pod's
		{"requests.memory", "1Mi", "100"},
		{"requests.cpu", "1", "0"},
		{"limits.cpu", "-1", "error: divisor -1"},
		{"limits.pods", "1", "error: limits.pods"},
		{"cpu", "1", "error: cpu"},
		{"usage.cpu", "1", "error: usage.cpu"},
	} {
		got, err := Resource(p, &p.Spec.Containers[0], &v1.ResourceFieldSelector{Resource: c.name, Divisor: resource.MustParse(c.divisor)}, node)
		if say, fails := strings.CutPrefix(c.want, "error: "); fails {
			if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), `"`, ""), say) {
				t.Errorf("%s by %s: %q, %v; want an error with %q", c.name, c.divisor, got, err, say)
			}
		} else if err != nil || got != c.want {
			t.Errorf("%s by %s = %q, %v; want %q", c.name, c.divisor, got, err, c.want)
		}
	}
}
