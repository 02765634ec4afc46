package fit_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/cpumgr"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/topology"
)

// amounts reads "cpu=1 memory=1Gi" into a list.
func amounts(s string) v1.ResourceList {
	out := v1.ResourceList{}
	for part := range strings.FieldsSeq(s) {
		name, q, _ := strings.Cut(part, "=")
		out[v1.ResourceName(name)] = resource.MustParse(q)
	}
	return out
}

// asks reads "requests|limits".
func asks(s string) v1.ResourceRequirements {
	requests, limits, _ := strings.Cut(s, "|")
	return v1.ResourceRequirements{Requests: amounts(requests), Limits: amounts(limits)}
}

func TestResources(t *testing.T) {
	const huge = 2 << 20
	for _, c := range []struct {
		asks string
		want numa.Resources
	}{
		{"|", numa.Resources{}},
		{"cpu=500m memory=1Ki|", numa.Resources{MilliCPU: 500, Memory: 1024}},
		{"cpu=2 memory=1Ki|cpu=2 memory=1Ki", numa.Resources{MilliCPU: 2000, Memory: 1024, Bound: true}},
		{"|cpu=2 memory=1Ki", numa.Resources{MilliCPU: 2000, Memory: 1024, Bound: true}},
		{"cpu=1|cpu=2 memory=1Ki", numa.Resources{MilliCPU: 1000, Memory: 1024}},
		{"|cpu=2", numa.Resources{MilliCPU: 2000}},
		{"cpu=0 memory=0|cpu=0 memory=0", numa.Resources{}},
		{"|hugepages-2Mi=4Mi", numa.Resources{HugePages: map[uint64]uint64{huge: 4 << 20}}},
		{"hugepages-2Mi=4Mi|hugepages-2048Ki=2Mi", numa.Resources{HugePages: map[uint64]uint64{huge: 6 << 20}}},
		{"hugepages-2Mi=4Mi|hugepages-2Mi=4Mi", numa.Resources{HugePages: map[uint64]uint64{huge: 4 << 20}}},
		{"hugepages-=4Mi hugepages-x=1|hugepages-2Mi=0", numa.Resources{}},
		{"cpu=100E|", numa.Resources{MilliCPU: 1<<63 - 1}},
		{"cpu=-1 memory=-1|", numa.Resources{}},
	} {
		if got := fit.Resources(asks(c.asks)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.asks, got, c.want)
		}
	}
}

func TestPod(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	const one, two = "cpu=1 memory=1Ki|cpu=1 memory=1Ki", "cpu=2 memory=1Ki|cpu=2 memory=1Ki"
	pod := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{{Name: "i", Resources: asks(one)}, {Name: "s", Resources: asks(one), RestartPolicy: &always}},
		Containers:     []v1.Container{{Name: "c", Resources: asks(two)}},
	}}
	pod.UID = "u"
	got := fit.Pod(pod)
	if got.UID != "u" || !got.Guaranteed || got.Resources != nil || len(got.Containers) != 3 {
		t.Fatalf("%+v", got)
	}
	for i, want := range []numa.Container{{Name: "i", Kind: numa.Init}, {Name: "s", Kind: numa.Sidecar}, {Name: "c"}} {
		if c := got.Containers[i]; c.Name != want.Name || c.Kind != want.Kind || !c.Bound {
			t.Errorf("%+v, want %+v", c, want)
		}
	}
	r := asks("cpu=4 memory=1Ki|cpu=4 memory=2Ki")
	pod.Spec.Resources = &r
	if got = fit.Pod(pod); got.Guaranteed || got.Resources == nil || got.Resources.MilliCPU != 4000 || got.Resources.Bound {
		t.Errorf("%+v", got)
	}
	pod.Spec.Resources = &v1.ResourceRequirements{}
	if got = fit.Pod(pod); !got.Guaranteed || got.Resources != nil {
		t.Errorf("%+v", got)
	}
}

var machine = numa.Uniform(2, 1, 4, 2, 4<<30) // 16 CPUs on two nodes

func static(t *testing.T, more func(*fit.PlacementConfig)) fit.Placement {
	t.Helper()
	cfg := fit.PlacementConfig{
		Machine: machine, CPUPolicy: fit.CPUStatic, ReservedCPUs: cpumgr.Reservation{CPUs: numa.CPUs(0)},
		MemoryPolicy: memmgr.StaticName, ReservedMemory: memmgr.Reserved{0: {memmgr.Memory: 1 << 30}},
	}
	if more != nil {
		more(&cfg)
	}
	n, err := fit.NewPlacement(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestMistakes(t *testing.T) {
	for want, c := range map[string]fit.PlacementConfig{
		`CPUPolicy is "fast"`: {CPUPolicy: "fast"},
		`"fast"`:              {MemoryPolicy: "fast"},
		`"slow"`:              {TopologyPolicy: "slow"},
		`Scope is "node"`:     {TopologyScope: "node"},
		"no options":          {CPUOptions: cpumgr.Options{FullPCPUsOnly: true}},
		"reservation of 0m":   {Machine: machine, CPUPolicy: fit.CPUStatic},
		"socket": {
			Machine: machine, CPUPolicy: fit.CPUStatic, CPUOptions: cpumgr.Options{AlignBySocket: true},
			ReservedCPUs: cpumgr.Reservation{MilliCPU: 1}, TopologyPolicy: topology.NameSingleNUMANode,
		},
	} {
		if _, err := fit.NewPlacement(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", c, err, want)
		}
	}
	_, err := fit.NewPlacement(fit.PlacementConfig{CPUPolicy: "fast", MemoryPolicy: "fast", TopologyPolicy: "slow"})
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("not all mistakes: %v", err)
	}
}

// The zero Config takes every pod, anywhere.
func TestNothingIsPlaced(t *testing.T) {
	n, err := fit.NewPlacement(fit.PlacementConfig{})
	if err != nil || !(fit.PlacementConfig{}).Idle() {
		t.Fatal(err)
	}
	r, err := fit.Fit(n, guaranteed("a", "100", "1Ti"))
	if err != nil || len(r.Containers) != 1 || r.Containers[0].Own || !r.Containers[0].CPUs.Empty() || r.Containers[0].Nodes != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// A query allocates nothing; released resources are available again; a repeated query for
// allocated resources changes nothing.
func TestTakeAndGiveBack(t *testing.T) {
	n := static(t, func(c *fit.PlacementConfig) { c.TopologyPolicy = topology.NameRestricted })
	first, err := fit.Fit(n, guaranteed("a", "4", "1Gi"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := fit.Fit(n, guaranteed("a", "4", "1Gi"))
	if err != nil || !reflect.DeepEqual(first.Containers, again.Containers) {
		t.Errorf("first %+v, then %+v, %v", first.Containers, again.Containers, err)
	}
	n.State = first.State
	held, err := fit.Fit(n, guaranteed("a", "4", "1Gi"))
	if err != nil || !reflect.DeepEqual(held.Containers[0].CPUs, first.Containers[0].CPUs) || !held.State.CPU.Equal(first.State.CPU) {
		t.Errorf("held %+v, %v", held.Containers, err)
	}
	if back := n.Without("a"); len(back.CPU.Pods())+len(back.Memory.Pods()) != 0 || !back.CPU.Shared().Equal(machine.AllCPUs()) {
		t.Errorf("%+v", back)
	}
	r, err := fit.Fit(n, guaranteed("b", "12", "1Gi"))
	var no *topology.Rejection
	if !errors.As(err, &no) || len(r.Containers) > 0 || !r.State.CPU.Equal(n.State.CPU) || len(r.State.Memory.Pods()) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// gpus is another resource: one on each NUMA node.
type gpus struct{ free numa.NodeSet }

func (g gpus) Hints(int) []numa.Hints {
	h := numa.Hints{Resource: "example.com/gpu"}
	for id := range g.free.All() {
		h.List = append(h.List, numa.Hint{Nodes: numa.Nodes(id), Preferred: true})
	}
	return []numa.Hints{h}
}

func (g gpus) Allocate(_ int, h numa.Hint) (topology.Provider, error) {
	g.free &^= h.Nodes
	return g, nil
}

func TestOtherResources(t *testing.T) {
	n := static(t, func(c *fit.PlacementConfig) { c.TopologyPolicy = topology.NameSingleNUMANode })
	r, err := fit.Fit(n, guaranteed("a", "2", "1Gi"), gpus{numa.Nodes(1)})
	if err != nil || r.Containers[0].Hint.Nodes != numa.Nodes(1) || !r.Containers[0].CPUs.SubsetOf(machine.CPUsOf(numa.Nodes(1))) || r.Containers[0].Nodes != numa.Nodes(1) {
		t.Errorf("%+v, %v", r.Containers, err)
	}
}

func TestAdopt(t *testing.T) {
	n := static(t, nil)
	a, b, c := fit.Pod(guaranteed("a", "2", "1Gi")), fit.Pod(guaranteed("b", "2", "1Gi")), fit.Pod(guaranteed("c", "1", "1Gi"))
	one := func(cpus numa.CPUSet, nodes numa.NodeSet) fit.Running {
		return fit.Running{CPUs: map[string]numa.CPUSet{"main": cpus}, Nodes: map[string]numa.NodeSet{"main": nodes}}
	}
	s, problems := n.Adopt([]numa.Pod{a, b, c}, map[string]fit.Running{
		"a": one(numa.CPUs(4, 12), numa.Nodes(1)), "b": one(numa.CPUs(4, 5), numa.Nodes(1)), "c": one(numa.CPUs(0), 0),
	})
	if got := s.CPU.Exclusive("a", "main"); got.String() != "4,12" {
		t.Errorf("a has %s", got)
	}
	if got := s.CPU.Pods(); !reflect.DeepEqual(got, []string{"a"}) {
		t.Errorf("pods %v", got)
	}
	if s.Memory.Nodes("a", "main") != numa.Nodes(1) || s.Memory.Nodes("b", "main") != numa.Nodes(1) || s.Memory.Nodes("c", "main") != 0 {
		t.Errorf("memory of a on %s, of b on %s", s.Memory.Nodes("a", "main"), s.Memory.Nodes("b", "main"))
	}
	text := errors.Join(problems...).Error()
	for _, want := range []string{"pod b", "those of pod a", "pod c", "reserved", "any node"} {
		if !strings.Contains(text, want) {
			t.Errorf("problems %s, want %s", text, want)
		}
	}
	n.State = s
	if r, err := fit.Fit(n, guaranteed("d", "8", "1Gi")); err != nil || r.Containers[0].CPUs.IntersectLen(numa.CPUs(0, 4, 12)) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// A pod with resources of its own whose containers leave nothing to the one that
// shares them, as in Kubernetes' specs of managers for such pods: the reason depends
// on the topology policy, since in the scope of pods no NUMA node would do, and only
// policies that need one say so. Containers that are placed one by one share nothing.
func TestEmptySharedPool(t *testing.T) {
	topologies := map[string]string{
		topology.NameNone: "", topology.NameBestEffort: "EmptyPodSharedPoolError",
		topology.NameRestricted: "TopologyAffinityError", topology.NameSingleNUMANode: "TopologyAffinityError",
	}
	pods := map[string]*v1.Pod{}
	for name, a := range map[string]struct{ own, shares, whole string }{
		"CPUs":   {"cpu=2 memory=1Gi", "memory=1Gi", "cpu=2 memory=4Gi"},
		"memory": {"cpu=1 memory=2Gi", "cpu=1", "cpu=2 memory=2Gi"},
	} {
		whole := asks(a.whole + "|" + a.whole)
		pods[name] = &v1.Pod{Spec: v1.PodSpec{Resources: &whole, Containers: []v1.Container{
			{Name: "own", Resources: asks(a.own + "|" + a.own)},
			{Name: "shares", Resources: asks(a.shares + "|" + a.shares)},
		}}}
	}
	for policy, want := range topologies {
		for name, pod := range pods {
			for _, scope := range []topology.Scope{topology.PodScope, topology.ContainerScope} {
				n := static(t, func(c *fit.PlacementConfig) { c.TopologyPolicy, c.TopologyScope, c.PodLevel = policy, scope, true })
				_, err := fit.Fit(n, pod)
				got := ""
				var r *topology.Rejection
				if errors.As(err, &r) {
					got = r.Reason()
				}
				want := want
				if scope == topology.ContainerScope {
					want = ""
				}
				if got != want {
					t.Errorf("%s, topology policy %s, scope %s: %v, want %q", name, policy, scope, err, want)
				}
				if got == topology.ReasonAffinity && !strings.Contains(err.Error(), "pod with pod-level resources failed admission under pod-scope topology manager") {
					t.Errorf("%s, topology policy %s: %v", name, policy, err)
				}
			}
		}
	}
}
