package podspec

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"
)

// input is the pod prod/web of that spec, in YAML, on a small node.
func input(t testing.TB, spec string) Input {
	t.Helper()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "prod", UID: "u1"}}
	if err := yaml.UnmarshalStrict([]byte(spec), &pod.Spec); err != nil {
		t.Fatalf("spec %s: %v", spec, err)
	}
	return Input{
		Pod: pod,
		Node: Node{
			Name: "node1", IPs: []string{"192.0.2.1", "2001:db8::1"},
			Capacity:      quantities("cpu", "8", "memory", "1000Mi", "ephemeral-storage", "100Gi"),
			Allocatable:   quantities("cpu", "7500m", "memory", "900Mi", "ephemeral-storage", "90Gi"),
			ResolvConf:    "nameserver 192.0.2.53\nsearch corp.example\noptions rotate\n",
			HostsFile:     "127.0.0.1 localhost node1\n",
			ClusterDomain: "cluster.local", ClusterDNS: []string{"10.0.0.10"},
			PodLogsDir: "/var/log/pods", SeccompDir: "/var/lib/seccomp",
		},
		PodDir: "/pods/u1",
	}
}

// quantities reads name, value, name, value …
func quantities(pairs ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

// compile compiles a container that is to have no problem.
func compile(t testing.TB, in Input, name string) *runtimeapi.ContainerConfig {
	t.Helper()
	plan, err := Container(in, name, ContainerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return plan.Config
}

// text is what an error says, "" if there is none.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// sandbox compiles the sandbox, which is to have no problem.
func sandbox(t testing.TB, in Input) *runtimeapi.PodSandboxConfig {
	t.Helper()
	plan, err := Sandbox(in, 0)
	if err != nil {
		t.Fatal(err)
	}
	return plan.Config
}
