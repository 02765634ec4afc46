package cgroups

import (
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestNode(t *testing.T) {
	n := Node{
		Capacity:       list("memory=10Gi cpu=10"),
		SystemReserved: list("memory=50Mi"), KubeReserved: list("memory=100Mi"),
		HardEviction: map[string]string{"memory.available": "5%", "nodefs.inodesFree": "5%", "imagefs.available": "15%"},
	}
	reserved := n.Reserved()
	// The kubelet comes to 8 bytes more: it counts percentages in single precision.
	if got := reserved.Memory().Value(); got != 694157312 {
		t.Errorf("reserved memory = %d, want 694157312", got)
	}
	if _, ok := reserved[v1.ResourceCPU]; ok {
		t.Error("a reservation of 0 CPUs is told of")
	}
	forPods := n.ForPods()
	if got, want := forPods.Memory().Value(), int64(10*1024-150)<<20; got != want {
		t.Errorf("memory for pods = %d, want %d", got, want)
	}
	if err := n.validate(); err != nil {
		t.Error(err)
	}
}

func TestAllocatable(t *testing.T) {
	for _, tc := range []struct {
		name           string
		n              Node
		memory, forPod int64
	}{
		{"nothing reserved", Node{Capacity: list("memory=10Mi")}, 10 << 20, 10 << 20},
		{"huge pages are no memory", Node{Capacity: list("memory=10Mi hugepages-2Mi=4Mi")}, 6 << 20, 10 << 20},
		{"more huge pages than memory", Node{Capacity: list("memory=2Mi hugepages-2Mi=4Mi")}, 0, 2 << 20},
		{"more reserved than there is", Node{Capacity: list("memory=2Mi"), KubeReserved: list("memory=3Mi")}, 0, 0},
		{"a threshold in bytes", Node{Capacity: list("memory=10Mi"), HardEviction: map[string]string{"memory.available": "1Mi"}}, 9 << 20, 10 << 20},
	} {
		a, p := tc.n.Allocatable(), tc.n.ForPods()
		if got := a.Memory().Value(); got != tc.memory {
			t.Errorf("%s: allocatable %d, want %d", tc.name, got, tc.memory)
		}
		if got := p.Memory().Value(); got != tc.forPod {
			t.Errorf("%s: for pods %d, want %d", tc.name, got, tc.forPod)
		}
	}
}

func TestConfigSaysAllMistakes(t *testing.T) {
	for _, tc := range []struct {
		name string
		cfg  Config
		want []string // parts of the error; none: it is right
	}{
		{"nothing", Config{}, nil},
		{"systemd without systemd", Config{Driver: Systemd}, []string{"Config.Units"}},
		{"another driver", Config{Driver: "cgroups"}, []string{`Config.Driver is "cgroups"`, "systemd"}},
		{"relative root", Config{Root: "a/../b", Version: 3}, []string{"Config.Root", "Config.Version is 3"}},
		{"period", Config{PodOptions: PodOptions{CPUPeriod: 2e9}}, []string{"Config.CPUPeriod is 2s"}},
		{"more reserved than there is", Config{Node: Node{Capacity: list("cpu=1"), KubeReserved: list("cpu=2 memory=1Gi")}}, []string{"2 of cpu"}},
		{"what the machine has not is not looked at", Config{Node: Node{KubeReserved: list("cpu=2")}}, nil},
		{"threshold", Config{Node: Node{HardEviction: map[string]string{"memory.available": "101%"}}}, []string{"HardEviction[memory.available]", "101%"}},
		{"unknown enforcement", Config{Enforce: []Enforcement{"pod"}}, []string{`"pod"`, "pods"}},
		{"twice", Config{Enforce: []Enforcement{EnforcePods, EnforcePods}}, []string{"twice"}},
		{"none with others", Config{Enforce: []Enforcement{EnforceNone, EnforcePods}}, []string{"cannot be combined"}},
		{"none alone", Config{Enforce: []Enforcement{EnforceNone}}, nil},
		{"plain with compressible", Config{Enforce: []Enforcement{EnforceSystem, EnforceSystemCompressible}, SystemReservedCgroup: "/s"},
			[]string{"cannot be combined"}},
		{"no cgroup", Config{Enforce: []Enforcement{EnforceKube}}, []string{"Config.Enforce requires Config.KubeReservedCgroup"}},
		{"no pods, no enforcement", Config{NoPodCgroups: true, Enforce: []Enforcement{EnforcePods}}, []string{"NoPodCgroups"}},
		{"qos: not empty", Config{QOSReserved: map[v1.ResourceName]string{"memory": ""}}, []string{"QOSReserved[memory]"}},
		{"qos: a", Config{QOSReserved: map[v1.ResourceName]string{"memory": "a"}}, []string{`"a"`}},
		{"qos: a%", Config{QOSReserved: map[v1.ResourceName]string{"memory": "a%"}}, []string{`"a%"`}},
		{"qos: 200%", Config{QOSReserved: map[v1.ResourceName]string{"memory": "200%"}}, []string{"0% to 100%"}},
		{"qos: cpu", Config{QOSReserved: map[v1.ResourceName]string{"cpu": "20%"}}, []string{`"cpu"`}},
		{"qos: 0%", Config{QOSReserved: map[v1.ResourceName]string{"memory": "0%"}}, nil},
		{"qos: 100%", Config{QOSReserved: map[v1.ResourceName]string{"memory": "100%"}}, nil},
	} {
		_, err := New(tc.cfg)
		if (err == nil) != (tc.want == nil) {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		for _, part := range tc.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", tc.name, err, part)
			}
		}
	}
}

func TestReservedCgroups(t *testing.T) {
	cfg := Config{
		Node:                 Node{SystemReserved: list("cpu=1 memory=1Mi pid=10")},
		Enforce:              []Enforcement{EnforceSystem, EnforceKubeCompressible},
		SystemReservedCgroup: "/sys", KubeReservedCgroup: "/kube",
		PodOptions: PodOptions{ReserveMemory: true},
	}
	got := cfg.reservedCgroups()
	if len(got) != 2 {
		t.Fatalf("%d reserved cgroups, want 2", len(got))
	}
	if want := (shown{shares: 1024, memory: 1 << 20, pids: 10, unified: "memory.min=1048576"}); show(got[0].resources) != want {
		t.Errorf("system: %+v, want %+v", show(got[0].resources), want)
	}
	if got[1].err == nil {
		t.Error("kube: nothing is reserved, and it is no error")
	}
	cfg.Node.KubeReserved = list("cpu=2 memory=1Mi pid=5")
	if r := cfg.reservedCgroups()[1]; r.err != nil || show(r.resources) != (shown{shares: 2048}) || r.resources.OtherHugepages != nil {
		t.Errorf("kube, compressible: %+v, %v; want shares alone", show(r.resources), r.err)
	}
	if r := OfList(nil); r.CPUShares != nil || r.OtherHugepages != nil {
		t.Errorf("of no list: %+v, want nothing", r)
	}
}

func TestTiers(t *testing.T) {
	s := newSums()
	get := func(p tierPolicy, class v1.PodQOSClass) shown { return show(p.resources(s.totals())[class]) }
	plain, reserve := tierPolicy{percent: -1}, tierPolicy{percent: -1, reserve: true}
	s.set("g", shareOf(podWith("g", "cpu=1 memory=3Mi/cpu=1 memory=3Mi")))
	if got, want := get(plain, v1.PodQOSBurstable), (shown{shares: 2, unified: "memory.low=0"}); got != want {
		t.Errorf("burstable with Guaranteed pods alone: %+v, want %+v", got, want)
	}
	s.set("b1", shareOf(podWith("b1", "cpu=100m memory=1Mi/")))
	s.set("b2", shareOf(podWith("b2", "cpu=200m memory=1Mi/")))
	if news := s.set("b2", shareOf(podWith("b2", "cpu=200m memory=1Mi/"))); news {
		t.Error("the same pod again is news")
	}
	for _, tc := range []struct {
		name  string
		p     tierPolicy
		class v1.PodQOSClass
		want  shown
	}{
		{"burstable", plain, v1.PodQOSBurstable, shown{shares: 307, unified: "memory.low=0"}},
		{"best effort", plain, v1.PodQOSBestEffort, shown{shares: 2}},
		{"node: its share is not touched", plain, v1.PodQOSGuaranteed, shown{unified: "memory.min=0"}},
		{"node, reserved", reserve, v1.PodQOSGuaranteed, shown{unified: "memory.min=5242880"}},
		{"burstable, reserved", reserve, v1.PodQOSBurstable, shown{shares: 307, unified: "memory.low=2097152"}},
		{"kept from burstable", tierPolicy{percent: 50, allocatable: 10 << 20}, v1.PodQOSBurstable,
			shown{shares: 307, memory: 10<<20 - 3<<19, unified: "memory.low=0"}},
		{"kept from best effort", tierPolicy{percent: 100, allocatable: 10 << 20}, v1.PodQOSBestEffort, shown{shares: 2, memory: 5 << 20}},
		{"nothing is left", tierPolicy{percent: 100, allocatable: 1 << 20}, v1.PodQOSBestEffort, shown{shares: 2, memory: 0}},
		{"allocatable is not known", tierPolicy{percent: 100}, v1.PodQOSBurstable, shown{shares: 307, unified: "memory.low=0"}},
	} {
		if got := get(tc.p, tc.class); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
	for _, uid := range []string{"g", "b1", "b2"} {
		s.remove(podWith(uid).UID)
	}
	if s.totals() != (totals{}) || s.remove("g") {
		t.Errorf("with all pods gone: %+v", s.totals())
	}
	if got := get(reserve, v1.PodQOSGuaranteed); got.unified != "memory.min=0" {
		t.Errorf("node without pods: %+v", got)
	}
}

func TestControllerErrorSaysWhere(t *testing.T) {
	err := error(&ControllerError{"pids", "/kubepods"})
	var lacks *ControllerError
	if !errors.As(err, &lacks) || !strings.Contains(err.Error(), "pids is missing in /kubepods") {
		t.Error(err)
	}
}
