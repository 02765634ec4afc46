package devicemgr_test

import (
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/numa"
)

// wholePod is a node with a pod that has CPUs and memory as a whole: one of its containers
// has its own of them, and the other one shares the rest.
type wholePod struct{}

func (wholePod) ActivePods() []*v1.Pod {
	own := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("1Ki")}
	return []*v1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "w", UID: "1"}, Spec: v1.PodSpec{Containers: []v1.Container{
		{Name: "own", Resources: v1.ResourceRequirements{Limits: own}}, {Name: "rest"},
	}}}}
}

type wholeCPUs struct{}

func (wholeCPUs) Allocatable() numa.CPUSet    { return numa.CPUs(1, 2, 3) }
func (wholeCPUs) OfPod(types.UID) numa.CPUSet { return numa.CPUs(1, 2) }
func (wholeCPUs) Exclusive(_ types.UID, container string) numa.CPUSet {
	if container == "own" {
		return numa.CPUs(1)
	}
	return numa.CPUSet{}
}

type wholeMemory struct{}

func (wholeMemory) Allocatable() []devicemgr.MemoryBlock { return nil }
func (wholeMemory) BlocksOfPod(types.UID) []devicemgr.MemoryBlock {
	return []devicemgr.MemoryBlock{{Type: "memory", Bytes: 3 << 10, Nodes: numa.Nodes(0)}}
}

// Blocks also returns memory that a container of the shared pool may use.
func (wholeMemory) Blocks(_ types.UID, container string) []devicemgr.MemoryBlock {
	bytes := map[string]uint64{"own": 1 << 10, "rest": 2 << 10}[container]
	return []devicemgr.MemoryBlock{{Type: "memory", Bytes: bytes, Nodes: numa.Nodes(0)}}
}

// Pods that have resources as a whole are shown with them, and what their containers share
// is none of these containers' (KEP-5526, podresources v1 of Kubernetes 1.37).
func TestPodsWithResourcesAsAWhole(t *testing.T) {
	s, err := devicemgr.NewPodResources(devicemgr.PodResourcesConfig{
		Socket: filepath.Join(t.TempDir(), "s"), Pods: wholePod{}, CPUs: wholeCPUs{}, Memory: wholeMemory{},
	})
	if err != nil {
		t.Fatal(err)
	}
	node0 := &api.TopologyInfo{Nodes: []*api.NUMANode{{}}}
	want := &api.PodResources{
		Namespace: "a", Name: "w", CpuIds: []int64{1, 2}, Memory: []*api.ContainerMemory{{MemoryType: "memory", Size: 3 << 10, Topology: node0}},
		Containers: []*api.ContainerResources{
			{Name: "own", CpuIds: []int64{1}, Memory: []*api.ContainerMemory{{MemoryType: "memory", Size: 1 << 10, Topology: node0}}},
			{Name: "rest"},
		},
	}
	list, err := s.List(t.Context(), &api.ListPodResourcesRequest{})
	if err != nil || len(list.GetPodResources()) != 1 || !proto.Equal(list.GetPodResources()[0], want) {
		t.Errorf("List = %v, %v; want %v", list, err, want)
	}
	got, err := s.Get(t.Context(), &api.GetPodResourcesRequest{PodNamespace: "a", PodName: "w"})
	if err != nil || !proto.Equal(got.GetPodResources(), want) {
		t.Errorf("Get = %v, %v; want %v", got, err, want)
	}
}
