package devicemgr_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/numa"
)

var _ devicemgr.AssignedDevices = (*devicemgr.Manager)(nil)

// node is all that the service asks.
type node struct{}

func (node) ActivePods() []*v1.Pod {
	always := v1.ContainerRestartPolicyAlways
	return []*v1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "x", UID: "2"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "only"}}}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "y", UID: "1"}, Spec: v1.PodSpec{
			InitContainers: []v1.Container{{Name: "init"}, {Name: "side", RestartPolicy: &always}},
			Containers:     []v1.Container{{Name: "main"}},
			EphemeralContainers: []v1.EphemeralContainer{
				{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}},
			},
		}},
	}
}

func (node) Holdings(uid types.UID, container string) []devicemgr.Holding {
	if uid != "1" || container == "side" {
		return nil
	}
	return []devicemgr.Holding{{Container: container, Resource: "example.com/gpu", Devices: []devicemgr.HeldDevice{
		{ID: "a", Nodes: numa.Nodes(0)}, {ID: "b"}, {ID: "c", Nodes: numa.Nodes(0)}, {ID: "d", Nodes: numa.Nodes(0, 1)},
	}}}
}

func (node) Devices() map[string][]devicemgr.Device {
	return map[string][]devicemgr.Device{"example.com/nic": {{ID: "n"}}, "example.com/gpu": {{ID: "a", Nodes: numa.Nodes(1)}}}
}

func (node) Exclusive(uid types.UID, container string) numa.CPUSet {
	if container == "main" {
		return numa.CPUs(3, 2)
	}
	return numa.CPUSet{}
}

type cpus struct{ node }

func (cpus) Allocatable() numa.CPUSet { return numa.CPUs(1, 2, 3) }

type podResourcesMemory struct{ node }

func (podResourcesMemory) Blocks(_ types.UID, container string) []devicemgr.MemoryBlock {
	if container == "main" {
		return []devicemgr.MemoryBlock{{Type: "memory", Bytes: 1024, Nodes: numa.Nodes(1)}}
	}
	return nil
}

func (podResourcesMemory) Allocatable() []devicemgr.MemoryBlock {
	return []devicemgr.MemoryBlock{{Type: "hugepages-2Mi", Bytes: 4096, Nodes: numa.Nodes(0)}}
}

type claims struct{}

func (claims) Dynamic(_ *v1.Pod, container string) []*api.DynamicResource {
	if container != "side" {
		return nil
	}
	return []*api.DynamicResource{{ClaimName: "claim", ClaimNamespace: "a"}}
}

// client is the one that node agents' users have, of k8s.io/kubelet.
func client(t *testing.T, cfg devicemgr.PodResourcesConfig) api.PodResourcesListerClient {
	t.Helper()
	return api.NewPodResourcesListerClient(connect(t, cfg))
}

// connect serves what cfg says.
func connect(t *testing.T, cfg devicemgr.PodResourcesConfig) *grpc.ClientConn {
	t.Helper()
	cfg.Socket = filepath.Join(t.TempDir(), "pod-resources", "kubelet.sock")
	if err := os.MkdirAll(filepath.Dir(cfg.Socket), 0o755); err != nil {
		t.Fatal(err)
	}
	old, err := net.ListenUnix("unix", &net.UnixAddr{Name: cfg.Socket})
	if err != nil {
		t.Fatal(err)
	}
	old.SetUnlinkOnClose(false) // a crash leaves it
	old.Close()
	cfg.Pods = node{}
	s, err := devicemgr.NewPodResources(cfg)
	if err != nil {
		t.Fatal(err)
	}
	testrun.Start(t, s.Run)
	conn, err := grpc.NewClient("unix://"+cfg.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// Old exporters get the devices, one entry for each resource.
func TestOldestVersion(t *testing.T) {
	reg := prometheus.NewRegistry()
	c := v1alpha1.NewPodResourcesListerClient(connect(t, devicemgr.PodResourcesConfig{Devices: node{}, CPUs: cpus{}, Memory: podResourcesMemory{}, Claims: claims{}, Metrics: reg}))
	list, err := c.List(call(t), &v1alpha1.ListPodResourcesRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	same(t, list, &v1alpha1.ListPodResourcesResponse{}, `{"podResources":[{"name":"y","namespace":"a","containers":[{"name":"side"},
		{"name":"main","devices":[{"resourceName":"example.com/gpu","deviceIds":["b","a","c","d"]}]}]},{"name":"x","namespace":"b","containers":[{"name":"only"}]}]}`)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "kubelet_pod_resources_endpoint_requests_total" && m.GetLabel()[0].GetValue() == "v1alpha1" && m.GetCounter().GetValue() == 1 {
				return
			}
		}
	}
	t.Error("the call was not counted under its version")
}

func call(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

func same(t *testing.T, got, want proto.Message, text string) {
	t.Helper()
	if err := protojson.Unmarshal([]byte(text), want); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got, want) {
		t.Errorf("answer\n%s\nwant\n%s", protojson.Format(got), protojson.Format(want))
	}
}

const podY = `{"name":"y","namespace":"a","containers":[
	{"name":"side","dynamicResources":[{"claimName":"claim","claimNamespace":"a"}]},
	{"name":"main","cpuIds":[2,3],"memory":[{"memoryType":"memory","size":1024,"topology":{"nodes":[{"ID":1}]}}],"devices":[
		{"resourceName":"example.com/gpu","deviceIds":["b"]},
		{"resourceName":"example.com/gpu","deviceIds":["a","c"],"topology":{"nodes":[{"ID":0}]}},
		{"resourceName":"example.com/gpu","deviceIds":["d"],"topology":{"nodes":[{"ID":0},{"ID":1}]}}]}]}`

func TestAnswers(t *testing.T) {
	reg := prometheus.NewRegistry()
	c := client(t, devicemgr.PodResourcesConfig{Devices: node{}, CPUs: cpus{}, Memory: podResourcesMemory{}, Claims: claims{}, Metrics: reg})
	wait := grpc.WaitForReady(true)

	list, err := c.List(call(t), &api.ListPodResourcesRequest{}, wait)
	if err != nil {
		t.Fatal(err)
	}
	same(t, list, &api.ListPodResourcesResponse{}, `{"podResources":[`+podY+`,{"name":"x","namespace":"b","containers":[{"name":"only"}]}]}`)

	get, err := c.Get(call(t), &api.GetPodResourcesRequest{PodName: "y", PodNamespace: "a"})
	if err != nil {
		t.Fatal(err)
	}
	same(t, get, &api.GetPodResourcesResponse{}, `{"podResources":`+podY+`}`)
	if _, err := c.Get(call(t), &api.GetPodResourcesRequest{PodName: "y", PodNamespace: "b"}); status.Code(err) != codes.NotFound {
		t.Errorf("a pod that is not there: %v, want NotFound", err)
	}

	all, err := c.GetAllocatableResources(call(t), &api.AllocatableResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	same(t, all, &api.AllocatableResourcesResponse{}, `{"cpuIds":[1,2,3],"memory":[{"memoryType":"hugepages-2Mi","size":4096,"topology":{"nodes":[{"ID":0}]}}],
		"devices":[{"resourceName":"example.com/gpu","deviceIds":["a"],"topology":{"nodes":[{"ID":1}]}},{"resourceName":"example.com/nic","deviceIds":["n"]}]}`)

	counts := map[string]float64{}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		counts[strings.TrimPrefix(f.GetName(), "kubelet_pod_resources_endpoint_")] = f.GetMetric()[0].GetCounter().GetValue()
	}
	for name, want := range map[string]float64{"requests_total": 4, "requests_list": 1, "requests_get": 2, "errors_get": 1, "requests_get_allocatable": 1, "errors_list": 0} {
		if counts[name] != want {
			t.Errorf("%s = %v, want %v", name, counts[name], want)
		}
	}
}

func TestNothingKnown(t *testing.T) {
	c := client(t, devicemgr.PodResourcesConfig{})
	all, err := c.GetAllocatableResources(call(t), &api.AllocatableResourcesRequest{}, grpc.WaitForReady(true))
	if err != nil || !proto.Equal(all, &api.AllocatableResourcesResponse{}) {
		t.Errorf("answer %v, %v, want nothing", all, err)
	}
}

func TestPodResourcesNewNamesMistakes(t *testing.T) {
	_, err := devicemgr.NewPodResources(devicemgr.PodResourcesConfig{Socket: "x"})
	for _, want := range []string{"Socket", "Pods"} {
		if err == nil || !strings.Contains(err.Error(), "Config."+want) {
			t.Errorf("New: %v, want it to name PodResourcesConfig.%s", err, want)
		}
	}
}
