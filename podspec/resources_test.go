package podspec

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestShares(t *testing.T) {
	for _, tc := range []struct{ milli, want int64 }{
		{0, 2}, {1, 2}, {2, 2}, {3, 3}, {100, 102}, {250, 256}, {1000, 1024}, {1500, 1536},
		{256000, 262144}, {256001, 262144}, {math.MaxInt64, 262144},
	} {
		if got := shares(tc.milli); got != tc.want {
			t.Errorf("shares(%dm) = %d, want %d", tc.milli, got, tc.want)
		}
	}
}

func TestQuota(t *testing.T) {
	for _, tc := range []struct{ milli, period, want int64 }{
		{0, 100000, 0}, {1, 100000, 1000}, {9, 100000, 1000}, {10, 100000, 1000}, {11, 100000, 1100},
		{500, 100000, 50000}, {1000, 100000, 100000}, {2500, 100000, 250000},
		{0, 5000, 0}, {199, 5000, 1000}, {200, 5000, 1000}, {300, 5000, 1500}, {2000, 5000, 10000},
	} {
		if got := quota(tc.milli, tc.period); got != tc.want {
			t.Errorf("quota(%dm) of %d us = %d, want %d", tc.milli, tc.period, got, tc.want)
		}
	}
	for _, period := range []int64{1000, 100000, 1000000} {
		if got := quota(math.MaxInt64, period); got < quota(1<<40, period) {
			t.Errorf("of %d us: the largest limit has the quota %d, less than a smaller one", period, got)
		}
	}
}

// values formats a container's resources in one line.
func values(r *runtimeapi.LinuxContainerResources) string {
	return fmt.Sprintf("shares %d quota %d/%d memory %d", r.CpuShares, r.CpuQuota, r.CpuPeriod, r.MemoryLimitInBytes)
}

func TestContainerResources(t *testing.T) {
	for _, tc := range []struct{ name, pod, container, want string }{
		{"none", "", "", "shares 2 quota 0/100000 memory 0"},
		{"requests", "", "requests: {cpu: 500m, memory: 1Ki}", "shares 512 quota 0/100000 memory 0"},
		{"limits", "", "limits: {cpu: 500m, memory: 1Ki}", "shares 512 quota 50000/100000 memory 1024"},
		{"both", "", "requests: {cpu: 100m, memory: 1Ki}, limits: {cpu: 2, memory: 2Ki}", "shares 102 quota 200000/100000 memory 2048"},
		{"a request of nothing", "", "requests: {cpu: 0}, limits: {cpu: 2}", "shares 2 quota 200000/100000 memory 0"},
		{"a limit of next to nothing", "", "limits: {cpu: 1m}", "shares 2 quota 1000/100000 memory 0"},
		{"a limit of nothing", "", "limits: {cpu: 0, memory: 0}", "shares 2 quota 0/100000 memory 0"},
		{"the pod's memory limit", "limits: {memory: 4Ki}", "", "shares 2 quota 0/100000 memory 4096"},
		{"its own before the pod's", "limits: {memory: 4Ki}", "limits: {memory: 1Ki}", "shares 2 quota 0/100000 memory 1024"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := input(t, "{resources: {"+tc.pod+"}, containers: [{name: app, image: i, resources: {"+tc.container+"}}]}")
			if got := values(compile(t, in, "app").Linux.Resources); got != tc.want {
				t.Errorf("resources = %s, want %s", got, tc.want)
			}
		})
	}
}

func TestOOMGroup(t *testing.T) {
	in := input(t, "{containers: [{name: app, image: i}]}")
	if got := compile(t, in, "app").Linux.Resources.Unified; len(got) != 0 {
		t.Errorf("cgroup v1: unified = %v, want none", got)
	}
	in.Node.CgroupV2 = true
	if got := compile(t, in, "app").Linux.Resources.Unified["memory.oom.group"]; got != "1" {
		t.Errorf("cgroup v2: memory.oom.group = %q, want 1", got)
	}
	in.Node.SingleProcessOOMKill = true
	if got := compile(t, in, "app").Linux.Resources.Unified; len(got) != 0 {
		t.Errorf("one process at a time: unified = %v, want none", got)
	}
	in.Node.Swap = &Swap{}
	if got := compile(t, in, "app").Linux.Resources.Unified; len(got) != 1 || got["memory.swap.max"] != "0" {
		t.Errorf("one process at a time, no swap: unified = %v, want no swap", got)
	}
}

// The node's setting for CPU limits applies to containers and to the sandbox.
func TestCPUQuotaOfTheNode(t *testing.T) {
	const spec = "{overhead: {cpu: 500m}, containers: [{name: app, image: i, resources: {requests: {cpu: 1}, limits: {cpu: 2}}}]}"
	for _, tc := range []struct {
		name                string
		node                Node
		container, overhead string
	}{
		{"as usual", Node{}, "shares 1024 quota 200000/100000 memory 0", "shares 512 quota 50000/100000 memory 0"},
		{"another period", Node{CPUPeriod: 20 * time.Millisecond}, "shares 1024 quota 40000/20000 memory 0", "shares 512 quota 10000/20000 memory 0"},
		{"no quota", Node{NoCPUQuota: true, CPUPeriod: 20 * time.Millisecond}, "shares 1024 quota 0/0 memory 0", "shares 512 quota 0/0 memory 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := input(t, spec)
			in.Node.NoCPUQuota, in.Node.CPUPeriod = tc.node.NoCPUQuota, tc.node.CPUPeriod
			lx := sandbox(t, in).Linux
			for _, r := range []*runtimeapi.LinuxContainerResources{compile(t, in, "app").Linux.Resources, lx.Resources} {
				if got := values(r); got != tc.container {
					t.Errorf("resources = %s, want %s", got, tc.container)
				}
			}
			if got := values(lx.Overhead); got != tc.overhead {
				t.Errorf("overhead = %s, want %s", got, tc.overhead)
			}
		})
	}
}

func TestHugepages(t *testing.T) {
	for _, tc := range []struct{ name, node, limits, want, pod string }{
		{name: "the pod's", node: "hugepages-2Mi", pod: "hugepages-2Mi: 8Mi, hugepages-1Gi: 1Gi, memory: 1Gi", want: "2MB=8388608 1GB=1073741824"},
		{name: "its own before the pod's", pod: "hugepages-2Mi: 8Mi, hugepages-1Gi: 1Gi", limits: "hugepages-2048Ki: 2Mi", want: "2MB=2097152 1GB=1073741824"},
		{name: "none of its own, though the pod has", pod: "hugepages-2Mi: 8Mi", limits: "hugepages-2Mi: 0", want: "2MB=0"},
		{name: "none"},
		{name: "in order", limits: "hugepages-2Mi: 4Mi, hugepages-1Gi: 1Gi, hugepages-64Ki: 64Ki", want: "64KB=65536 2MB=4194304 1GB=1073741824"},
		{name: "other spellings", limits: "hugepages-2048Ki: 4Mi, hugepages-1073741824: 2Gi", want: "2MB=4194304 1GB=2147483648"},
		{name: "all sizes that the node has", node: "hugepages-2Mi hugepages-1Gi", want: "2MB=0 1GB=0"},
		{name: "one of them is used", node: "hugepages-2Mi hugepages-1Gi", limits: "hugepages-2Mi: 4Mi", want: "2MB=4194304 1GB=0"},
		{name: "no size", node: "hugepages-big", limits: "hugepages-none: 1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := input(t, "{resources: {limits: {"+tc.pod+"}}, containers: [{name: app, image: i, resources: {limits: {"+tc.limits+"}}}]}")
			for _, name := range strings.Fields(tc.node) {
				in.Node.Capacity[v1.ResourceName(name)] = in.Node.Capacity[v1.ResourceMemory]
			}
			for range 10 { // a map's order is another one each time
				var got []string
				for _, l := range compile(t, in, "app").Linux.Resources.HugepageLimits {
					got = append(got, fmt.Sprintf("%s=%d", l.PageSize, l.Limit))
				}
				if got := strings.Join(got, " "); got != tc.want {
					t.Fatalf("huge pages = %q, want %q", got, tc.want)
				}
			}
		})
	}
}

// The node of these tests has 1000Mi, so a Mi is worth one point.
func TestOOMScoreAdj(t *testing.T) {
	const (
		never  = "restartPolicy: Never"
		always = "restartPolicy: Always"
	)
	for _, tc := range []struct {
		name, spec string
		want       map[string]int64
	}{
		{"best effort", "{containers: [{name: a, image: i}]}", map[string]int64{"a": 1000}},
		{"guaranteed", "{containers: [{name: a, image: i, resources: {limits: {cpu: 1, memory: 1Mi}}}]}", map[string]int64{"a": -997}},
		{"half", "{containers: [{name: a, image: i, resources: {requests: {memory: 500Mi}}}]}", map[string]int64{"a": 500}},
		{"nothing", "{containers: [{name: a, image: i, resources: {requests: {cpu: 1}}}]}", map[string]int64{"a": 999}},
		{"less than a point", "{containers: [{name: a, image: i, resources: {requests: {memory: 1Ki}}}]}", map[string]int64{"a": 999}},
		{"one point", "{containers: [{name: a, image: i, resources: {requests: {memory: 1Mi}}}]}", map[string]int64{"a": 999}},
		{"two points", "{containers: [{name: a, image: i, resources: {requests: {memory: 2Mi}}}]}", map[string]int64{"a": 998}},
		{"the least", "{containers: [{name: a, image: i, resources: {requests: {memory: 997Mi}}}]}", map[string]int64{"a": 3}},
		{"below the least", "{containers: [{name: a, image: i, resources: {requests: {memory: 998Mi}}}]}", map[string]int64{"a": 3}},
		{"more than there is", "{containers: [{name: a, image: i, resources: {requests: {memory: 5Gi}}}]}", map[string]int64{"a": 3}},
		{"as much as can be", "{containers: [{name: a, image: i, resources: {requests: {memory: 9223372036854775807}}}]}", map[string]int64{"a": 3}},
		{"each its own", "{containers: [{name: a, image: i, resources: {requests: {memory: 100Mi}}}, {name: b, image: i}]}", map[string]int64{"a": 900, "b": 999}},

		{"node-critical", "{priority: 2000001000, containers: [{name: a, image: i}]}", map[string]int64{"a": -997}},
		{"cluster-critical", "{priority: 2000000000, containers: [{name: a, image: i}]}", map[string]int64{"a": 1000}},

		{
			"a sidecar goes no sooner than what it serves",
			"{initContainers: [{name: s, image: i, " + always + ", resources: {requests: {memory: 10Mi}}}], containers: [{name: a, image: i, resources: {requests: {memory: 300Mi}}}, {name: b, image: i, resources: {requests: {memory: 200Mi}}}]}",
			map[string]int64{"s": 800, "a": 700, "b": 800},
		},
		{
			"a sidecar that asks for more keeps its own",
			"{initContainers: [{name: s, image: i, " + always + ", resources: {requests: {memory: 500Mi}}}], containers: [{name: a, image: i, resources: {requests: {memory: 300Mi}}}]}",
			map[string]int64{"s": 500, "a": 700},
		},
		{
			"an init container has its own, whatever it is",
			"{initContainers: [{name: one, image: i, resources: {requests: {memory: 10Mi}}}, {name: two, image: i, " + never + "}], containers: [{name: a, image: i, resources: {requests: {memory: 300Mi}}}]}",
			map[string]int64{"one": 990, "two": 999, "a": 700},
		},

		{
			"the pod's rest is shared",
			"{resources: {requests: {memory: 300Mi}}, containers: [{name: a, image: i, resources: {requests: {memory: 100Mi}}}, {name: b, image: i}]}",
			map[string]int64{"a": 800, "b": 900},
		},
		{
			"with sidecars",
			"{resources: {requests: {memory: 400Mi}}, initContainers: [{name: s, image: i, " + always + ", resources: {requests: {memory: 100Mi}}}], containers: [{name: a, image: i}]}",
			map[string]int64{"s": 750, "a": 850},
		},
		{
			"an init container counts for what it needs beyond the others",
			"{resources: {requests: {memory: 400Mi}}, initContainers: [{name: one, image: i, resources: {requests: {memory: 100Mi}}}], containers: [{name: a, image: i, resources: {requests: {memory: 50Mi}}}]}",
			map[string]int64{"one": 750, "a": 800},
		},
		{
			"its own restart policy makes it no sidecar",
			"{resources: {requests: {memory: 400Mi}}, initContainers: [{name: one, image: i, " + never + ", resources: {requests: {memory: 100Mi}}}], containers: [{name: a, image: i, resources: {requests: {memory: 100Mi}}}]}",
			map[string]int64{"one": 750, "a": 750},
		},
		{
			"no rest",
			"{resources: {requests: {memory: 100Mi}}, containers: [{name: a, image: i, resources: {requests: {memory: 100Mi}}}]}",
			map[string]int64{"a": 900},
		},
		{
			"only the pod has any",
			"{resources: {limits: {memory: 100Mi, cpu: 1}, requests: {cpu: 500m}}, containers: [{name: a, image: i}]}",
			map[string]int64{"a": 999},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := input(t, tc.spec)
			for name, want := range tc.want {
				if got := compile(t, in, name).Linux.Resources.OomScoreAdj; got != want {
					t.Errorf("%s: oom_score_adj = %d, want %d", name, got, want)
				}
			}
		})
	}
	t.Run("a node that does not tell what it has", func(t *testing.T) {
		in := input(t, "{containers: [{name: a, image: i, resources: {requests: {memory: 1Mi}}}]}")
		in.Node.Capacity = nil
		if got := compile(t, in, "a").Linux.Resources.OomScoreAdj; got != 999 {
			t.Errorf("oom_score_adj = %d, want 999", got)
		}
	})
}

func TestSandboxResources(t *testing.T) {
	for _, tc := range []struct{ name, spec, want, overhead string }{
		{"none", "{containers: [{name: a, image: i}]}", "shares 2 quota 0/100000 memory 0", "shares 0 quota 0/0 memory 0"},
		{
			"sums", "{containers: [{name: a, image: i, resources: {requests: {cpu: 1}, limits: {cpu: 2, memory: 1Ki}}}, {name: b, image: i, resources: {requests: {cpu: 500m}, limits: {cpu: 500m, memory: 2Ki}}}]}",
			"shares 1536 quota 250000/100000 memory 3072", "shares 0 quota 0/0 memory 0",
		},
		{
			"sidecars run beside the rest",
			"{initContainers: [{name: s, image: i, restartPolicy: Always, resources: {requests: {cpu: 1}, limits: {memory: 1Ki}}}], containers: [{name: a, image: i, resources: {requests: {cpu: 1}, limits: {memory: 1Ki}}}]}",
			"shares 2048 quota 0/100000 memory 2048", "shares 0 quota 0/0 memory 0",
		},
		{
			"the neediest init container runs alone",
			"{initContainers: [{name: one, image: i, resources: {limits: {memory: 3Ki}}}, {name: two, image: i, resources: {limits: {memory: 5Ki}}}], containers: [{name: a, image: i, resources: {limits: {memory: 4Ki}}}]}",
			"shares 2 quota 0/100000 memory 5120", "shares 0 quota 0/0 memory 0",
		},
		{
			"the pod's own replace them",
			"{resources: {requests: {cpu: 3}, limits: {cpu: 4, memory: 8Ki}}, containers: [{name: a, image: i, resources: {requests: {cpu: 1}, limits: {memory: 1Ki}}}]}",
			"shares 3072 quota 400000/100000 memory 8192", "shares 0 quota 0/0 memory 0",
		},
		{
			"overhead", "{overhead: {cpu: 250m, memory: 1Ki}, containers: [{name: a, image: i}]}",
			"shares 2 quota 0/100000 memory 0", "shares 256 quota 25000/100000 memory 1024",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			lx := sandbox(t, input(t, tc.spec)).Linux
			if got := values(lx.Resources); got != tc.want {
				t.Errorf("resources = %s, want %s", got, tc.want)
			}
			if got := values(lx.Overhead); got != tc.overhead {
				t.Errorf("overhead = %s, want %s", got, tc.overhead)
			}
		})
	}
}

// Where a container runs is said to the runtime, and CPUs of its own are used up
// without a quota.
func TestPinned(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{
		{Name: "own", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}}},
		{Name: "free"},
	}}}
	in := Input{Pod: pod, Pinned: map[string]Pinning{"own": {CPUs: "2-3", MemoryNodes: "0", NoQuota: true}}}
	for i, want := range []struct {
		cpus, mems string
		quota      int64
	}{{"2-3", "0", -1}, {"", "", 0}} {
		c := &pod.Spec.Containers[i]
		r := Resources(in, c, c.Resources)
		if r.CpusetCpus != want.cpus || r.CpusetMems != want.mems || r.CpuQuota != want.quota || r.CpuPeriod != 100000 {
			t.Errorf("%s: %v", c.Name, r)
		}
	}
	in.Node.NoCPUQuota = true
	if r := Resources(in, &pod.Spec.Containers[0], pod.Spec.Containers[0].Resources); r.CpuQuota != 0 || r.CpusetCpus != "2-3" {
		t.Errorf("without quotas: %v", r)
	}
	in.Node.NoCPUQuota, in.Pinned["own"] = false, Pinning{CPUs: "0-3"}
	if r := Resources(in, &pod.Spec.Containers[0], pod.Spec.Containers[0].Resources); r.CpuQuota != 200000 {
		t.Errorf("shared CPUs: %v", r)
	}
}
