package resources_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/resources"
	"github.com/nodewright/nodewright/cpumgr"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/topology"
)

// newNUMANode places memory, and no CPUs. It has two NUMA nodes with 3 and 4 GiB to
// give.
func newNUMANode(t *testing.T) *placementNode {
	n := newNode(t)
	n.fit = fit.PlacementConfig{
		Machine: numa.Uniform(2, 1, 4, 1, 4<<30), PodLevel: true,
		MemoryPolicy: memmgr.StaticName, ReservedMemory: memmgr.Reserved{0: {memmgr.Memory: 1 << 30}},
		TopologyPolicy: topology.NameBestEffort, TopologyScope: topology.PodScope,
	}
	n.kubelet = t.TempDir()
	return n
}

// takes is a pod whose container asks for some GiB.
func takes(name string, gi int) *v1.Pod {
	return newPlacementPod(name, sized(name, "1", fmt.Sprintf("%dGi", gi)))
}

// divides is a pod that asks for some GiB as a whole, of which one container has one
// for itself.
func divides(name string, gi int) *v1.Pod {
	pod := newPlacementPod(name, sized(name, "1", "1Gi"), v1.Container{Name: name + "-too"})
	asks := v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse(fmt.Sprintf("%dGi", gi))}
	pod.Spec.Resources = &v1.ResourceRequirements{Requests: asks, Limits: asks}
	return pod
}

// fromNode is a state in which each of some pods has what it asks for from a NUMA node.
func fromNode(t *testing.T, node int, s memmgr.State, pods ...*v1.Pod) memmgr.State {
	t.Helper()
	for _, pod := range pods {
		c, asks := 0, pod.Spec.Containers[0].Resources.Requests
		if pod.Spec.Resources != nil {
			c, asks = -1, pod.Spec.Resources.Requests
		}
		var err error
		s, err = s.Give(fit.Pod(pod), c, memmgr.Block{Nodes: numa.Nodes(node), Amount: memmgr.Amount{Resource: memmgr.Memory, Bytes: uint64(asks.Memory().Value())}})
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (n *placementNode) memoryFile() string { return filepath.Join(n.kubelet, "memory_manager_state") }

// encodeMemory is a kubelet's file for this node.
func (n *placementNode) encodeMemory(s memmgr.State) []byte {
	n.t.Helper()
	placement, err := fit.NewPlacement(n.fit)
	n.must(err)
	b, err := s.EncodeKubelet(placement.Memory)
	n.must(err)
	return b
}

// flush has the part end, which writes what is to be written.
func (n *placementNode) flush() {
	n.t.Helper()
	ctx, cancel := context.WithCancel(n.t.Context())
	cancel()
	n.must(n.p.Run(ctx))
}

func (n *placementNode) wantMemoryFile(want memmgr.State) {
	n.t.Helper()
	n.flush()
	got, err := os.ReadFile(n.memoryFile())
	if b := n.encodeMemory(want); err != nil || string(got) != string(b) {
		n.t.Errorf("the kubelet's file says %s, %v; want %s", got, err, b)
	}
}

// wantNodes compares the NUMA nodes of the memory of containers that run.
func (n *placementNode) wantNodes(want map[string]string) {
	n.t.Helper()
	for name, nodes := range want {
		st, err := n.rt.ContainerStatus(n.t.Context(), n.ids[name], false)
		if err != nil {
			n.t.Errorf("%s: %v", name, err)
			continue
		}
		if got := st.GetStatus().GetResources().GetLinux().GetCpusetMems(); got != nodes {
			n.t.Errorf("%s has memory of nodes %q, want %q", name, got, nodes)
		}
	}
}

// What a kubelet gave stays with its pods: those that run, and those that are between
// two starts. The kubelet finds what was given since.
func TestKubeletMemory(t *testing.T) {
	n := newNUMANode(t)
	n.forgetful = true // a kubelet's containers do not tell
	n.start()
	a, b, waits, gone := takes("a", 1), takes("b", 2), takes("waits", 2), takes("gone", 1)
	n.run(a)
	n.wantNodes(map[string]string{"a": "0"})
	n.must(os.RemoveAll(n.dir)) // as if a kubelet had run it
	n.must(os.WriteFile(n.memoryFile(), n.encodeMemory(fromNode(t, 1, fromNode(t, 0, memmgr.State{}, a, gone), waits)), 0o600))

	n.start()
	n.run(b) // before anybody else is named: node 0 has 1 GiB left
	n.p.Adopt(a)
	n.p.Adopt(waits)
	n.must(n.sync(waits))
	n.wantNodes(map[string]string{"a": "0", "b": "1", "waits": "1"})
	n.must(n.p.Sweep(t.Context(), func(uid types.UID) bool { return uid != "uid-gone" }))
	all := fromNode(t, 1, fromNode(t, 0, memmgr.State{}, a), b, waits)
	n.wantMemoryFile(all)

	// The own checkpoints are newer now, and the kubelet's file after its next life.
	n.start()
	for _, pod := range []*v1.Pod{a, b, waits} {
		n.p.Adopt(pod)
	}
	n.wantMemoryFile(all)
	n.remove(b)
	n.remove(waits)
	n.must(os.WriteFile(n.memoryFile(), n.encodeMemory(fromNode(t, 0, memmgr.State{}, a, waits)), 0o600))
	n.start()
	n.p.Adopt(a)
	n.p.Adopt(waits)
	n.must(n.sync(waits))
	n.wantNodes(map[string]string{"a": "0", "waits": "0"})
	n.wantMemoryFile(fromNode(t, 0, memmgr.State{}, a, waits))
	n.p.Adopt(b) // which the kubelet had ended, and somebody still wants
	n.must(n.sync(b))
	n.wantMemoryFile(fromNode(t, 1, fromNode(t, 0, memmgr.State{}, a, waits), b))
	if _, err := os.Stat(n.kubeletFile()); err == nil {
		t.Error("the file of CPUs was made, which are not placed")
	}
}

// A pod that has its memory as a whole has it before its spec is there, and after.
func TestKubeletMemoryOfPods(t *testing.T) {
	n := newNUMANode(t)
	pod, next := divides("whole", 3), takes("next", 2)
	gave := fromNode(t, 1, memmgr.State{}, pod)
	n.must(os.WriteFile(n.memoryFile(), n.encodeMemory(gave), 0o600))
	n.start()
	n.wantMemoryFile(gave)
	n.run(next) // which would fit beside it if it had no more than its containers' own
	n.p.Adopt(pod)
	n.must(n.sync(pod))
	n.wantNodes(map[string]string{"next": "0", "whole": "1", "whole-too": "1"})
	n.wantMemoryFile(fromNode(t, 0, gave, next))
}

// Memory of init containers is the pod's again when the next one has started, for a
// kubelet as well.
func TestKubeletMemoryOfInitContainers(t *testing.T) {
	n := newNUMANode(t)
	n.start()
	pod := takes("a", 1)
	pod.Spec.InitContainers = []v1.Container{sized("init", "1", "2Gi")}
	n.run(pod)
	s, err := fromNode(t, 0, memmgr.State{}, takes("a", 1)).Give(fit.Pod(pod), 1, memmgr.Block{Nodes: numa.Nodes(0), Amount: memmgr.Amount{Resource: memmgr.Memory, Bytes: 1 << 30}})
	n.must(err)
	n.wantMemoryFile(s)
}

// An agent of v0.1 left the kubelet's file as it was; what it gave is in its
// checkpoints.
func TestKubeletMemoryBeforeAnOlderAgent(t *testing.T) {
	for name, tc := range map[string]struct {
		record string
		want   string
	}{
		"an agent of v0.1":                   {"1f2e3d4c", "0"},
		"one that placed no memory":          {"1f2e3d4c -", "1"},
		"one that wrote another file before": {"- 1f2e3d4c", "1"},
		"no agent":                           {"", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNUMANode(t)
			n.must(os.WriteFile(n.memoryFile(), n.encodeMemory(fromNode(t, 0, memmgr.State{}, takes("gone", 3))), 0o600))
			if tc.record != "" {
				n.must(part.OpenStore(n.dir, nil).Write("kubelet", []byte(tc.record)))
			}
			n.start()
			n.run(takes("a", 1))
			n.wantNodes(map[string]string{"a": tc.want})
		})
	}
}

// Files are made for policies that place something, as tools look for them, and kept up
// to date where they are there.
func TestWhichKubeletFilesAreMade(t *testing.T) {
	both := []string{"cpu_manager_state", "memory_manager_state"}
	for name, tc := range map[string]struct {
		cpus, memory string
		before, want []string
	}{
		"none":                    {"", "", nil, nil},
		"CPUs":                    {fit.CPUStatic, "", nil, both[:1]},
		"memory":                  {"", memmgr.StaticName, nil, both[1:]},
		"both":                    {fit.CPUStatic, memmgr.StaticName, nil, both},
		"CPUs, with a kubelet":    {fit.CPUStatic, "", both, both},
		"memory, with a kubelet":  {fit.CPUNone, memmgr.StaticName, both, both},
		"none, after the kubelet": {"", memmgr.NoneName, both, both},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNUMANode(t)
			n.fit.CPUPolicy, n.fit.MemoryPolicy = tc.cpus, tc.memory
			n.fit.ReservedCPUs = cpumgr.Reservation{CPUs: numa.CPUs(0)}
			for _, name := range tc.before {
				n.must(os.WriteFile(filepath.Join(n.kubelet, name), []byte("damaged"), 0o600))
			}
			n.start()
			n.flush()
			var got []string
			for _, name := range both {
				b, err := os.ReadFile(filepath.Join(n.kubelet, name))
				if err != nil {
					continue
				}
				got = append(got, name)
				if idle := n.fit.Idle(); (string(b) == "damaged") != idle {
					t.Errorf("%s says %s", name, b)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("there are %q, want %q", got, tc.want)
			}
		})
	}
}

// What is wrong with a file is logged, and holds up neither pods nor the other file.
func TestKubeletMemoryIgnored(t *testing.T) {
	other, err := memmgr.State{}.EncodeKubelet(memmgr.None{})
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"damaged": []byte("{"), "another policy": other, "too large": make([]byte, 5<<20)} {
		t.Run(name, func(t *testing.T) {
			n := newNUMANode(t)
			n.must(os.WriteFile(n.memoryFile(), b, 0o600))
			n.start()
			a := takes("a", 1)
			n.run(a)
			n.wantMemoryFile(fromNode(t, 0, memmgr.State{}, a))
		})
	}
	t.Run("cannot be written", func(t *testing.T) {
		n := newNUMANode(t)
		n.fit.CPUPolicy, n.fit.ReservedCPUs = fit.CPUStatic, cpumgr.Reservation{CPUs: numa.CPUs(0)}
		n.must(os.MkdirAll(filepath.Join(n.memoryFile(), "in the way"), 0o700))
		core, logs := observer.New(zap.InfoLevel)
		p, err := resources.NewPlacement(resources.PlacementConfig{Fit: n.fit, Runtime: n.rt, KubeletDir: n.kubelet, Log: zap.New(core)})
		n.must(err)
		n.p = p
		n.must(n.p.Join(agenttest.NewHost(t)))
		n.must(n.p.Restore(t.Context()))
		n.flush()
		if _, err := os.Stat(n.kubeletFile()); err != nil {
			t.Error(err)
		}
		if logs.FilterMessage("failed to write the kubelet's state files").Len() != 1 {
			t.Errorf("logged %v", logs.All())
		}
	})
}
