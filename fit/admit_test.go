package fit_test

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cpumgr"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/topology"
)

const gpu = "example.com/gpu"

// twoSockets is a node with 16 CPUs, 8 GiB and 2 GPUs in each of two NUMA nodes.
func twoSockets(t testing.TB) *fit.Node {
	machine := numa.Uniform(2, 1, 8, 2, 8<<30)
	placement, err := fit.NewPlacement(fit.PlacementConfig{
		Machine: machine, CPUPolicy: fit.CPUStatic, ReservedCPUs: cpumgr.Reservation{MilliCPU: 2000},
		MemoryPolicy: memmgr.StaticName, ReservedMemory: memmgr.Reserved{0: {memmgr.Memory: 1 << 30}},
		TopologyPolicy: topology.NameSingleNUMANode,
	})
	if err != nil {
		t.Fatal(err)
	}
	return &fit.Node{
		Name: "n", Labels: map[string]string{v1.LabelOSStable: "linux"}, Machine: machine, Placement: &placement,
		Allocatable: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("30"), v1.ResourceMemory: resource.MustParse("15Gi"), v1.ResourcePods: resource.MustParse("3"),
			gpu: resource.MustParse("4"),
		},
		Devices: fit.Devices{gpu: {0: {Total: 2, Free: 2}, 1: {Total: 2, Free: 2}}},
	}
}

func asking(name string, asks map[v1.ResourceName]string, change ...func(*v1.PodSpec)) *v1.Pod {
	list := v1.ResourceList{}
	for resourceName, q := range asks {
		list[resourceName] = resource.MustParse(q)
	}
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name: "main", Image: "i", Resources: v1.ResourceRequirements{Requests: list, Limits: list},
		}}},
	}
	for _, c := range change {
		c(&p.Spec)
	}
	return p
}

func TestAdmit(t *testing.T) {
	burstable := func(s *v1.PodSpec) { s.Containers[0].Resources.Limits = nil }
	port := func(s *v1.PodSpec) { s.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80, ContainerPort: 80}} }
	noExecute := func() []v1.Taint { return []v1.Taint{{Key: "down", Effect: v1.TaintEffectNoExecute}} }
	for _, tc := range []struct {
		name   string
		pod    *v1.Pod
		others []*v1.Pod
		change func(*fit.Node)
		reason string
	}{
		{"fits", asking("p", map[v1.ResourceName]string{"cpu": "4", "memory": "2Gi", gpu: "2"}), nil, nil, ""},
		{"a burstable pod of 1000 CPUs", asking("p", map[v1.ResourceName]string{"cpu": "1000"}, burstable), nil, nil, "OutOfcpu"},
		{"beside others", asking("p", map[v1.ResourceName]string{"memory": "8Gi"}, burstable), []*v1.Pod{asking("o", map[v1.ResourceName]string{"memory": "8Gi"})}, nil, "OutOfmemory"},
		{"too many pods", asking("p", nil), []*v1.Pod{asking("a", nil), asking("b", nil), asking("c", nil)}, nil, "OutOfpods"},
		{"host port", asking("p", nil, port), []*v1.Pod{asking("o", nil, port)}, nil, "NodePorts"},
		{"taint", asking("p", nil), nil, func(n *fit.Node) { n.Taints = noExecute }, "TaintToleration"},
		{"sysctl", asking("p", nil, func(s *v1.PodSpec) {
			s.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: "kernel.msgmax", Value: "1"}}}
		}), nil, nil, "SysctlForbidden"},
		{"label", asking("p", nil, func(s *v1.PodSpec) { s.NodeSelector = map[string]string{"disk": "ssd"} }), nil, nil, "NodeAffinity"},
		{"more devices than there are", asking("p", map[v1.ResourceName]string{gpu: "5"}), nil, nil, "OutOf" + gpu},
		{"devices of two NUMA nodes", asking("p", map[v1.ResourceName]string{gpu: "3"}), nil, nil, "TopologyAffinityError"},
		{"CPUs of two NUMA nodes", asking("p", map[v1.ResourceName]string{"cpu": "18", "memory": "1Gi"}), nil, nil, "TopologyAffinityError"},
		{"nobody places anything", asking("p", map[v1.ResourceName]string{"cpu": "18", "memory": "1Gi", gpu: "3"}), nil, func(n *fit.Node) { n.Placement = nil }, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := twoSockets(t)
			if tc.change != nil {
				tc.change(n)
			}
			_, r := fit.Admit(n, tc.pod, tc.others)
			if got := reasonOf(r); got != tc.reason {
				t.Errorf("%q (%+v), want %q", got, r, tc.reason)
			}
		})
	}
}

func reasonOf(r *fit.Rejection) string {
	if r == nil {
		return ""
	}
	return r.Reason
}

// CPUs, memory and devices of a pod come from one NUMA node, and what one pod has the
// next one does not get.
func TestAdmitTogether(t *testing.T) {
	n := twoSockets(t)
	var others []*v1.Pod
	admit := func(name, gpus string) (numa.NodeSet, *fit.Rejection) {
		pod := asking(name, map[v1.ResourceName]string{"cpu": "2", "memory": "1Gi", gpu: gpus})
		result, r := fit.Admit(n, pod, others)
		if r != nil {
			return 0, r
		}
		after := *n.Placement
		after.State = result.State
		n.Placement, n.Devices = &after, result.Devices
		others = append(others, pod)
		return result.Containers[0].Nodes, nil
	}
	for i, gpus := range []string{"1", "2"} {
		if nodes, r := admit(fmt.Sprint(i), gpus); r != nil || nodes != numa.Nodes(i) {
			t.Fatalf("pod %d with %s devices is on %v, %v", i, gpus, nodes, r)
		}
	}
	if left := n.Devices[gpu]; left[0].Free != 1 || left[1].Free != 0 {
		t.Errorf("left are %+v", left)
	}
	if _, r := admit("2", "2"); reasonOf(r) != "OutOf"+gpu {
		t.Errorf("a third pod: %+v", r)
	}
}

// Devices of an init container are used again, and a sidecar keeps its devices.
func TestDevicesOfInitContainers(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	container := func(name string, gpus int64, policy *v1.ContainerRestartPolicy) v1.Container {
		q := v1.ResourceList{gpu: *resource.NewQuantity(gpus, resource.DecimalSI)}
		return v1.Container{Name: name, Image: "i", RestartPolicy: policy, Resources: v1.ResourceRequirements{Requests: q, Limits: q}}
	}
	for _, tc := range []struct {
		name  string
		inits []v1.Container
		app   int64
		left  int
		fails bool
	}{
		{"used again", []v1.Container{container("init", 3, nil)}, 4, 0, false},
		{"init has more", []v1.Container{container("init", 3, nil)}, 1, 1, false},
		{"a sidecar keeps its own", []v1.Container{container("side", 1, &always)}, 3, 0, false},
		{"a sidecar and an init container after it", []v1.Container{container("side", 1, &always), container("init", 3, nil)}, 3, 0, false},
		{"one too many", []v1.Container{container("side", 1, &always)}, 4, 0, true},
	} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "u"}, Spec: v1.PodSpec{InitContainers: tc.inits, Containers: []v1.Container{container("app", tc.app, nil)}}}
		for _, scope := range []topology.Scope{topology.ContainerScope, topology.PodScope} {
			placement, err := fit.NewPlacement(fit.PlacementConfig{TopologyScope: scope})
			if err != nil {
				t.Fatal(err)
			}
			n := &fit.Node{
				Labels: map[string]string{}, Placement: &placement, Devices: fit.Devices{gpu: {fit.NoNUMANode: {Total: 4, Free: 4}}},
				Allocatable: v1.ResourceList{gpu: resource.MustParse("4")},
			}
			result, r := fit.Admit(n, pod, nil)
			if (r != nil) != tc.fails {
				t.Errorf("%s, scope %s: %+v", tc.name, scope, r)
			}
			if r == nil && result.Devices[gpu][fit.NoNUMANode].Free != tc.left {
				t.Errorf("%s, scope %s: left are %+v, want %d", tc.name, scope, result.Devices, tc.left)
			}
		}
	}
}

func ExampleAdmit() {
	node := &fit.Node{
		Name: "edge-1",
		Allocatable: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("8Gi"), v1.ResourcePods: resource.MustParse("110"),
		},
	}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "big", Namespace: "default", UID: "1"},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name: "c", Image: "i", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1000")}},
		}}},
	}
	_, rejection := fit.Admit(node, pod, nil)
	fmt.Println(rejection)
	// Output: OutOfcpu: Node didn't have enough resource: cpu, requested: 1000000, used: 0, capacity: 4000
}

// Pods start and end in any order; after the last one ends the state is the initial one, and
// earlier values do not change.
func TestNodeAfterAndWithout(t *testing.T) {
	machine := numa.Uniform(2, 1, 8, 2, 64<<30)
	placement, err := fit.NewPlacement(fit.PlacementConfig{
		Machine: machine, CPUPolicy: fit.CPUStatic, ReservedCPUs: cpumgr.Reservation{MilliCPU: 2000}, TopologyPolicy: topology.NameBestEffort,
	})
	if err != nil {
		t.Fatal(err)
	}
	all := fit.Devices{"example.com/gpu": {0: {Total: 2, Free: 2}, 1: {Total: 2, Free: 1}}}
	empty := &fit.Node{
		Allocatable: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("30"), v1.ResourceMemory: resource.MustParse("120Gi"), v1.ResourcePods: resource.MustParse("110"),
			"example.com/gpu": resource.MustParse("3"),
		},
		Placement: &placement, Machine: machine, Devices: all,
	}
	want := fmt.Sprint(empty.Devices, placement.State)
	node, there := empty, []*v1.Pod(nil)
	for _, name := range []string{"a", "b", "c"} {
		p := guaranteed(name, "2", "1Gi")
		p.Namespace = "default"
		p.Spec.Containers[0].Resources.Limits["example.com/gpu"] = resource.MustParse("1")
		r, rejection := fit.Admit(node, p, there)
		if rejection != nil {
			t.Fatal(rejection)
		}
		node, there = node.After(p, r), append(there, p)
	}
	free := 0
	for _, n := range node.Devices["example.com/gpu"] {
		free += n.Free
	}
	if free != 0 || node.Without("nobody").Devices["example.com/gpu"][0] != node.Devices["example.com/gpu"][0] {
		t.Errorf("%d devices are free, want 0", free)
	}
	for _, uid := range []types.UID{"b", "c", "a", "a"} {
		node = node.Without(uid)
	}
	if got := fmt.Sprint(node.Devices, node.Placement.State); got != want {
		t.Errorf("at the end %s\nwant       %s", got, want)
	}
	if got := fmt.Sprint(empty.Devices, placement.State); got != want {
		t.Errorf("the first value has changed: %s", got)
	}
}
