package parity_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	cadvisor "github.com/google/cadvisor/lib/model"
	"github.com/google/cadvisor/lib/utils/sysfs"
	"github.com/google/cadvisor/lib/utils/sysinfo"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"

	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
)

const memoryState = "memory_manager_state"

var silent klog.Logger

// memoryNode is a machine with two NUMA nodes, as the kubelet sees it and as the agent
// does.
type memoryNode struct {
	t      *testing.T
	dir    string
	theirs memorymanager.Policy
	ours   *memmgr.Static
}

func newMemoryNode(t *testing.T) memoryNode {
	t.Helper()
	const reserved = 1 << 30
	var info cadvisor.MachineInfo
	machine := numa.Uniform(2, 1, 2, 1, 0)
	for id, gi := range []uint64{8, 9} {
		info.Topology = append(info.Topology, cadvisor.Node{
			Id: id, Memory: gi << 30, HugePages: []cadvisor.HugePagesInfo{{PageSize: 2048, NumPages: 512}, {PageSize: 1 << 20}},
		})
		machine.Nodes[id].Memory, machine.Nodes[id].HugePages = gi<<30, map[uint64]uint64{2 << 20: 512, 1 << 30: 0}
	}
	theirs, err := memorymanager.NewPolicyStatic(silent, &info, map[int]map[v1.ResourceName]uint64{0: {v1.ResourceMemory: reserved}}, topologymanager.NewFakeManager(silent))
	if err != nil {
		t.Fatal(err)
	}
	ours, err := memmgr.NewStatic(memmgr.Config{Machine: machine, Reserved: memmgr.Reserved{0: {memmgr.Memory: reserved}}, PodLevel: true})
	if err != nil {
		t.Fatal(err)
	}
	return memoryNode{t, t.TempDir(), theirs, ours}
}

// open has the kubelet's code read the file, and check it as it does at its start.
func (n memoryNode) open() state.State {
	n.t.Helper()
	s, err := state.NewCheckpointState(silent, n.dir, memoryState, "Static")
	if err == nil {
		err = n.theirs.Start(silent, s)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	return s
}

func (n memoryNode) read() []byte {
	n.t.Helper()
	b, err := os.ReadFile(filepath.Join(n.dir, memoryState))
	if err != nil {
		n.t.Fatal(err)
	}
	return b
}

func (n memoryNode) write(b []byte) {
	n.t.Helper()
	if err := os.WriteFile(filepath.Join(n.dir, memoryState), b, 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// wantOurs compares the file with a state of the agent.
func (n memoryNode) wantOurs(want memmgr.State) {
	n.t.Helper()
	b, err := want.EncodeKubelet(n.ours)
	if err != nil {
		n.t.Fatal(err)
	}
	says, err := memmgr.DecodeKubelet(b)
	if err != nil {
		n.t.Fatal(err)
	}
	if got, err := memmgr.DecodeKubelet(n.read()); err != nil || !reflect.DeepEqual(got, says) {
		n.t.Errorf("the file says %+v, %v; want %+v", got, err, says)
	}
}

// memoryPods are pods of each kind that is given memory: with init containers, with
// huge pages, as a whole (divided), and on two nodes (wide).
func memoryPods(names ...string) []*v1.Pod {
	asks := func(more ...string) v1.ResourceRequirements {
		list := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
		for i := 0; i < len(more); i += 2 {
			list[v1.ResourceName(more[i])] = resource.MustParse(more[i+1])
		}
		return v1.ResourceRequirements{Requests: list, Limits: list}
	}
	pod := func(uid string, containers ...v1.Container) *v1.Pod {
		p := &v1.Pod{Spec: v1.PodSpec{Containers: containers}}
		p.Name, p.UID = uid, types.UID(uid)
		return p
	}
	starts := pod("starts", v1.Container{Name: "main", Resources: asks("memory", "1Gi")})
	starts.Spec.InitContainers = []v1.Container{{Name: "init", Resources: asks("memory", "2Gi")}, {Name: "next", Resources: asks("memory", "512Mi")}}
	divided := pod("divided", v1.Container{Name: "own", Resources: asks("memory", "512Mi")}, v1.Container{Name: "shares"}, v1.Container{Name: "too"})
	divided.Spec.InitContainers = []v1.Container{{Name: "init"}}
	whole := asks("memory", "2Gi")
	whole.Requests[v1.ResourceCPU] = resource.MustParse("2")
	divided.Spec.Resources = &whole
	all := map[string]*v1.Pod{
		"starts": starts, "divided": divided,
		"pages": pod("pages", v1.Container{Name: "main", Resources: asks("memory", "256Mi", "hugepages-2Mi", "64Mi")}),
		"wide":  pod("wide", v1.Container{Name: "main", Resources: asks("memory", "10Gi", "hugepages-2Mi", "1536Mi")}),
	}
	var out []*v1.Pod
	for _, name := range names {
		out = append(out, all[name])
	}
	return out
}

// place has both give the pods their memory, one after the other.
func (n memoryNode) place(s state.State, pods []*v1.Pod) memmgr.State {
	n.t.Helper()
	var ours memmgr.State
	for _, pod := range pods {
		var err error
		if pod.Spec.Resources != nil {
			err = n.theirs.AllocatePod(silent, s, pod, lifecycle.AddOperation)
		} else {
			for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
				if err == nil {
					err = n.theirs.Allocate(klog.NewContext(n.t.Context(), silent), s, pod, &c, lifecycle.AddOperation)
				}
			}
		}
		if err == nil {
			ours, err = n.ours.Allocate(ours, fit.Pod(pod), -1, numa.Hint{})
		}
		if err != nil {
			n.t.Fatalf("%s: %v", pod.Name, err)
		}
	}
	return ours
}

// The kubelet's own code starts with the memory_manager_state that the agent writes,
// and the agent reads that of the kubelet in each format. Both give the same pods
// the same memory.
func TestMemoryState(t *testing.T) {
	for name, tc := range map[string]struct {
		whole bool
		pods  []*v1.Pod
	}{
		"nothing":         {false, nil},
		"containers":      {false, memoryPods("starts", "pages")},
		"two nodes":       {false, memoryPods("wide")},
		"pods as a whole": {true, memoryPods("starts", "pages", "divided")},
	} {
		t.Run(name, func(t *testing.T) {
			whole := tc.whole
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.PodLevelResourceManagers, whole)
			n := newMemoryNode(t)
			ours := n.place(n.open(), tc.pods)
			n.wantOurs(ours)
			theirs := n.read()

			b, err := ours.EncodeKubelet(n.ours)
			if err != nil {
				t.Fatal(err)
			}
			n.write(b)
			s := n.open()
			n.wantOurs(ours)
			var kubelet state.MemoryManagerCheckpoint
			if err := kubelet.UnmarshalCheckpoint(theirs); err != nil {
				t.Fatal(err)
			}
			if got, want := s.GetMachineState(), kubelet.CheckpointData.MachineState; !reflect.DeepEqual(got, want) {
				t.Errorf("the kubelet counts %s from what the agent wrote, and %s by itself", asJSON(got), asJSON(want))
			}
			s.Delete("pages", "main") // it goes on from there
			n.wantOurs(ours.WithoutPod("pages"))

			for format, c := range map[string]interface{ MarshalCheckpoint() ([]byte, error) }{
				"1": &state.MemoryManagerCheckpointV1{PolicyName: "Static", MachineState: kubelet.CheckpointData.MachineState, Entries: kubelet.CheckpointData.Entries.Clone()},
				"2": &state.MemoryManagerCheckpointV2{PolicyName: "Static", MachineState: kubelet.CheckpointData.MachineState, Entries: kubelet.CheckpointData.Entries.Clone(), PodEntries: kubelet.CheckpointData.PodEntries.Clone()},
			} {
				older, err := c.MarshalCheckpoint()
				if err != nil {
					t.Fatal(err)
				}
				n.write(older)
				if format == "2" || !whole {
					n.open()
					n.write(older) // which that may have written anew
					n.wantOurs(ours)
				} else if got, err := memmgr.DecodeKubelet(older); err != nil || len(got.Pods) != len(ours.Pods()) || got.Pods["divided"][""] != nil {
					t.Errorf("format 1: %+v, %v", got, err)
				}
			}
			// A kubelet that knows the first format alone.
			first := state.MemoryManagerCheckpointV1{MachineState: state.NUMANodeMap{}, Entries: state.ContainerMemoryAssignments{}}
			if err := first.UnmarshalCheckpoint(b); err != nil || first.Checksum == 0 || first.VerifyChecksum() != nil || len(first.Entries) != len(ours.Pods()) {
				t.Errorf("the first format in it: %+v, %v, %v", first, err, first.VerifyChecksum())
			}
		})
	}
}

func asJSON(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// The kubelet counts the memory of this machine's nodes, and their huge pages, as the
// agent does: a file with other numbers would keep it from starting.
func TestMemoryOfThisMachine(t *testing.T) {
	theirs, _, err := sysinfo.GetNodesInfo(sysfs.NewRealSysFs())
	if err != nil {
		t.Skipf("the machine cannot be read: %v", err)
	}
	ours, err := numa.ReadSysfs(os.DirFS("/"))
	if err != nil {
		t.Fatal(err)
	}
	if len(theirs) != len(ours.Nodes) {
		t.Fatalf("%d nodes; the kubelet has %d", len(ours.Nodes), len(theirs))
	}
	for i, n := range ours.Nodes {
		pages := map[uint64]uint64{}
		for _, h := range theirs[i].HugePages {
			pages[h.PageSize<<10] = h.NumPages
		}
		if n.ID != theirs[i].Id || n.Memory != theirs[i].Memory || len(pages)+len(n.HugePages) > 0 && !reflect.DeepEqual(pages, n.HugePages) {
			t.Errorf("node %+v; the kubelet has %+v", n, theirs[i])
		}
	}
}
