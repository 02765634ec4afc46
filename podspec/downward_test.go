package podspec

import (
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestFieldValue(t *testing.T) {
	for _, tc := range []struct{ path, want string }{
		{"metadata.name", "web"},
		{"metadata.namespace", "prod"},
		{"metadata.uid", "u1"},
		{"metadata.labels", "app=\"web\"\ntier=\"a \\\"b\\\"\""},
		{"metadata.annotations", "example.org/note=\"two\\nlines\""},
		{"metadata.labels['app']", "web"},
		{"metadata.labels['none']", ""},
		{"metadata.annotations['example.org/note']", "two\nlines"},
		{"metadata.annotations['none']", ""},
		{"spec.nodeName", "node1"},
		{"spec.serviceAccountName", "robot"},
		{"status.hostIP", "192.0.2.1"},
		{"status.hostIPs", "192.0.2.1,2001:db8::1"},
		{"status.podIP", "10.1.0.7"},
		{"status.podIPs", "10.1.0.7,fd00::7"},
	} {
		in := input(t, "{serviceAccountName: robot}")
		in.Pod.Labels = map[string]string{"tier": `a "b"`, "app": "web"}
		in.Pod.Annotations = map[string]string{"example.org/note": "two\nlines"}
		in.PodIPs = []string{"10.1.0.7", "fd00::7"}
		if got, err := fieldValue(in, tc.path); err != nil || got != tc.want {
			t.Errorf("%s = %q (%v), want %q", tc.path, got, err, tc.want)
		}
	}
}

func TestFieldValueOfAddresses(t *testing.T) {
	host := input(t, "{hostNetwork: true}")
	host.PodIPs = []string{"10.1.0.7"}
	bare := input(t, "{}")
	bare.Node.IPs = nil
	for _, tc := range []struct {
		name, path, want string
		in               Input
	}{
		{"host network", "status.podIP", "192.0.2.1", host},
		{"host network", "status.podIPs", "192.0.2.1,2001:db8::1", host},
		{"no sandbox", "status.podIP", "", bare},
		{"no sandbox", "status.podIPs", "", bare},
		{"no node address", "status.hostIP", "", bare},
		{"no node address", "status.hostIPs", "", bare},
	} {
		if got, err := fieldValue(tc.in, tc.path); err != nil || got != tc.want {
			t.Errorf("%s: %s = %q (%v), want %q", tc.name, tc.path, got, err, tc.want)
		}
	}
}

func TestFieldValueProblems(t *testing.T) {
	in := input(t, "{}")
	for _, path := range []string{
		"", "metadata", "metadata.foo", "status.phase", "spec.nodename", "metadata.labels[app]", "metadata.labels['app'",
		"metadata.labels['app']x", "metadata.name['a']",
	} {
		if got, err := fieldValue(in, path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q = %q (%v), want an error that names it", path, got, err)
		}
	}
}

func TestResourceValue(t *testing.T) {
	const spec = `{containers: [
		{name: app, image: i, resources: {requests: {cpu: 250m, memory: 100Mi, ephemeral-storage: 1Gi}, limits: {cpu: 1200m, memory: 1Gi, hugepages-2Mi: 4Mi}}},
		{name: bare, image: i}], initContainers: [{name: init, image: i, resources: {limits: {cpu: 3}}}]}`
	for _, tc := range []struct {
		name, container, resource, divisor string
		want                               string
	}{
		{"cpu is rounded up", "app", "limits.cpu", "0", "2"},
		{"cpu by one", "app", "limits.cpu", "1", "2"},
		{"cpu by thousandths", "app", "limits.cpu", "1m", "1200"},
		{"cpu request", "app", "requests.cpu", "1m", "250"},
		{"cpu request rounded up", "app", "requests.cpu", "1", "1"},
		{"memory", "app", "limits.memory", "0", "1073741824"},
		{"memory by Mi", "app", "limits.memory", "1Mi", "1024"},
		{"memory by k", "app", "requests.memory", "1k", "104858"},
		{"memory rounded up", "app", "requests.memory", "1Gi", "1"},
		{"storage", "app", "requests.ephemeral-storage", "1Mi", "1024"},
		{"huge pages", "app", "limits.hugepages-2Mi", "1Mi", "4"},
		{"no request", "bare", "requests.memory", "0", "0"},
		{"no cpu limit is what the node has", "bare", "limits.cpu", "1m", "7500"},
		{"no memory limit is what the node has", "bare", "limits.memory", "1Mi", "900"},
		{"no storage limit is what the node has", "bare", "limits.ephemeral-storage", "1Gi", "90"},
		{"no huge pages on the node", "bare", "limits.hugepages-1Gi", "0", "0"},
		{"of an init container", "init", "limits.cpu", "0", "3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := input(t, spec)
			ref := &v1.ResourceFieldSelector{ContainerName: tc.container, Resource: tc.resource, Divisor: resource.MustParse(tc.divisor)}
			if got, err := resourceValue(in, &in.Pod.Spec.Containers[1], ref); err != nil || got != tc.want {
				t.Errorf("%s by %s = %q (%v), want %q", tc.resource, tc.divisor, got, err, tc.want)
			}
		})
	}
	t.Run("of the container itself", func(t *testing.T) {
		in := input(t, spec)
		got, err := resourceValue(in, &in.Pod.Spec.Containers[0], &v1.ResourceFieldSelector{Resource: "requests.cpu", Divisor: resource.MustParse("1m")})
		if err != nil || got != "250" {
			t.Errorf("requests.cpu = %q (%v), want 250", got, err)
		}
	})
	t.Run("the pod's limit before the node's", func(t *testing.T) {
		in := input(t, "{resources: {limits: {memory: 64Mi}}, containers: [{name: app, image: i}]}")
		for name, want := range map[string]string{"limits.memory": "67108864", "limits.cpu": "8"} {
			if got, err := resourceValue(in, &in.Pod.Spec.Containers[0], &v1.ResourceFieldSelector{Resource: name}); err != nil || got != want {
				t.Errorf("%s = %q (%v), want %s", name, got, err, want)
			}
		}
	})
	t.Run("as large as can be", func(t *testing.T) {
		in := input(t, "{containers: [{name: app, image: i, resources: {limits: {memory: 9223372036854775807}}}]}")
		got, err := resourceValue(in, &in.Pod.Spec.Containers[0], &v1.ResourceFieldSelector{Resource: "limits.memory", Divisor: resource.MustParse("1Gi")})
		if want := "8589934592"; err != nil || got != want {
			t.Errorf("limits.memory = %q (%v), want %s", got, err, want)
		}
	})
}

func TestResourceValueProblems(t *testing.T) {
	in := input(t, "{containers: [{name: app, image: i}]}")
	for _, tc := range []struct{ container, resource, want string }{
		{"", "limits.pods", "limits.pods"},
		{"", "limits.example.org/gpu", "limits.example.org/gpu"},
		{"", "limits", "limits"},
		{"", "usage.cpu", "usage.cpu"},
		{"", "cpu", "cpu"},
		{"none", "limits.cpu", `container "none"`},
	} {
		ref := &v1.ResourceFieldSelector{ContainerName: tc.container, Resource: tc.resource}
		if got, err := resourceValue(in, &in.Pod.Spec.Containers[0], ref); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s of %q = %q (%v), want an error that names %s", tc.resource, tc.container, got, err, tc.want)
		}
	}
}

// Dividing amounts rounds up, for any amount.
func FuzzDivisor(f *testing.F) {
	f.Add("1500m", "1")
	f.Add("100Mi", "1Gi")
	f.Add("0", "1m")
	f.Add("9223372036854775807", "1m")
	f.Add("1E", "1n")
	f.Fuzz(func(t *testing.T, amount, divisor string) {
		q, err := resource.ParseQuantity(amount)
		if err != nil || q.Sign() < 0 {
			return
		}
		d, err := resource.ParseQuantity(divisor)
		if err != nil || d.Sign() < 0 {
			return
		}
		c := v1.Container{Name: "c", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": q, "memory": q}}}
		in := Input{Pod: &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{c}}}}
		for _, name := range []string{"requests.cpu", "requests.memory"} {
			got, err := resourceValue(in, &c, &v1.ResourceFieldSelector{Resource: name, Divisor: d})
			if err != nil {
				t.Fatalf("%s of %s by %s: %v", name, amount, divisor, err)
			}
			n, err := strconv.ParseInt(got, 10, 64)
			if err != nil || n < 0 {
				t.Fatalf("%s of %s by %s: %q is no whole number", name, amount, divisor, got)
			}
		}
	})
}
