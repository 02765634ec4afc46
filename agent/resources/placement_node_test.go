package resources_test

import (
	"context"
	"maps"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/resources"
	"github.com/nodewright/nodewright/checkpoint"
	"github.com/nodewright/nodewright/cpumgr"
	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/podspec"
)

const image = "localhost/app:1"

// placementNode does with a part what an agent does, for pods of which each container has
// the name of nothing else on the node.
type placementNode struct {
	t         *testing.T
	rt        *critest.Runtime
	dir       string // of the checkpoints
	kubelet   string // root directory of a kubelet
	store     part.Store
	fit       fit.PlacementConfig
	metrics   prometheus.Registerer
	sandboxes map[types.UID]string
	ids       map[string]string // of containers
	forgetful bool              // containers do not say what they ask for

	host *agenttest.Host
	p    *resources.Placement
}

// newNode has 8 CPUs without siblings on one NUMA node; CPU 0 is reserved.
func newNode(t *testing.T) *placementNode {
	n := &placementNode{
		t: t, rt: critest.New(), dir: filepath.Join(t.TempDir(), "placement"),
		fit: fit.PlacementConfig{
			Machine: numa.Uniform(1, 1, 8, 1, 4<<30), CPUPolicy: fit.CPUStatic,
			ReservedCPUs: cpumgr.Reservation{CPUs: numa.CPUs(0)},
		},
		sandboxes: map[types.UID]string{}, ids: map[string]string{},
	}
	n.rt.AddImage(image)
	return n
}

// join makes the part anew, as a new process of the agent does.
func (n *placementNode) join() {
	n.t.Helper()
	store := n.store
	if store == nil {
		store = part.OpenStore(n.dir, nil)
	}
	var err error
	n.p, err = resources.NewPlacement(resources.PlacementConfig{Fit: n.fit, Runtime: n.rt, Store: store, KubeletDir: n.kubelet, Metrics: n.metrics})
	if err != nil {
		n.t.Fatal(err)
	}
	n.host = agenttest.NewHost(n.t)
	if err := n.p.Join(n.host); err != nil {
		n.t.Fatal(err)
	}
}

// start is join, and restores what there is.
func (n *placementNode) start() {
	n.t.Helper()
	n.join()
	if err := n.p.Restore(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
}

func (n *placementNode) reserve(pod *v1.Pod) (part.Reservation, *part.Rejection) {
	n.t.Helper()
	if n.p.Waits(pod) {
		n.t.Errorf("%s has to wait", pod.Name)
	}
	r, no := n.p.Reserve(n.t.Context(), part.Request{Pod: pod})
	if no == nil {
		if err := r.Commit(n.t.Context()); err != nil {
			n.t.Error(err)
		}
	}
	return r, no
}

// run admits a pod and starts it.
func (n *placementNode) run(pod *v1.Pod) {
	n.t.Helper()
	if _, no := n.reserve(pod); no != nil {
		n.t.Fatalf("%s: %v", pod.Name, no)
	}
	if err := n.sync(pod); err != nil {
		n.t.Fatalf("%s: %v", pod.Name, err)
	}
}

// sync starts the containers of a pod that do not run.
func (n *placementNode) sync(pod *v1.Pod) error {
	n.t.Helper()
	ctx := n.t.Context()
	if err := n.p.Prepare(ctx, pod, &observed.Pod{UID: pod.UID}); err != nil {
		return err
	}
	in := podspec.Input{Pod: pod}
	if err := n.p.Compile(pod, &in); err != nil {
		return err
	}
	for i := range pod.Spec.InitContainers {
		if err := n.create(ctx, pod, &pod.Spec.InitContainers[i], in); err != nil {
			return err
		}
	}
	for i := range pod.Spec.Containers {
		if err := n.create(ctx, pod, &pod.Spec.Containers[i], in); err != nil {
			return err
		}
	}
	return nil
}

func (n *placementNode) create(ctx context.Context, pod *v1.Pod, c *v1.Container, in podspec.Input) error {
	if n.ids[c.Name] != "" {
		return nil
	}
	if n.sandboxes[pod.UID] == "" {
		id, err := n.rt.RunPodSandbox(ctx, &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: pod.Name, Uid: string(pod.UID)}}, "")
		if err != nil {
			return err
		}
		n.sandboxes[pod.UID] = id
	}
	conf := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: c.Name}, Image: &runtimeapi.ImageSpec{Image: image}, Args: []string{"sleep", "forever"},
		Labels: map[string]string{cri.LabelPodUID: string(pod.UID), cri.LabelContainerName: c.Name},
		Linux:  &runtimeapi.LinuxContainerConfig{Resources: podspec.Resources(in, c, c.Resources)},
	}
	if !n.forgetful {
		conf.Annotations = map[string]string{cri.AnnotationResources: marshal(n.t, c.Resources)}
	}
	which := part.Container{Pod: pod, Name: c.Name}
	created, err := n.p.BeforeCreate(ctx, which, conf)
	if err != nil {
		return err
	}
	id, err := n.rt.CreateContainer(ctx, n.sandboxes[pod.UID], conf, nil)
	if created != nil {
		created(id, err)
	}
	if err != nil {
		return err
	}
	n.ids[c.Name] = id
	if err := n.rt.StartContainer(ctx, id); err != nil {
		return err
	}
	n.p.ContainerStarted(which, id)
	return nil
}

// end ends a pod.
func (n *placementNode) end(pod *v1.Pod) {
	n.t.Helper()
	n.remove(pod)
	if err := n.p.Stopped(n.t.Context(), part.RefOf(pod)); err != nil {
		n.t.Error(err)
	}
}

// remove has the runtime forget a pod.
func (n *placementNode) remove(pod *v1.Pod) {
	n.t.Helper()
	if err := n.rt.RemovePodSandbox(n.t.Context(), n.sandboxes[pod.UID]); err != nil {
		n.t.Error(err)
	}
	delete(n.sandboxes, pod.UID)
	for i := range pod.Spec.Containers {
		delete(n.ids, pod.Spec.Containers[i].Name)
	}
}

// cpusets are those of the containers that run, by name.
func (n *placementNode) cpusets() map[string]string {
	n.t.Helper()
	out := map[string]string{}
	for name, id := range n.ids {
		st, err := n.rt.ContainerStatus(context.Background(), id, false)
		if err != nil {
			n.t.Fatal(err)
		}
		if st.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
			out[name] = st.GetStatus().GetResources().GetLinux().GetCpusetCpus()
		}
	}
	return out
}

func (n *placementNode) wantCPUs(want map[string]string) {
	n.t.Helper()
	if got := n.cpusets(); !maps.Equal(got, want) {
		n.t.Errorf("cpusets %v, want %v", got, want)
	}
}

// checkpoints are the files that there are.
func (n *placementNode) checkpoints() []string {
	n.t.Helper()
	keys, err := checkpoint.NewLazy(checkpoint.Config{Dir: n.dir}).Keys()
	if err != nil {
		n.t.Fatal(err)
	}
	return keys
}

func newPlacementPod(name string, containers ...v1.Container) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)},
		Spec:       v1.PodSpec{Containers: containers},
	}
}

// shares is a pod whose container has no CPUs of its own.
func shares(name string) *v1.Pod { return newPlacementPod(name, v1.Container{Name: name}) }

// owns is one whose container has.
func owns(name, cpus string) *v1.Pod { return newPlacementPod(name, sized(name, cpus, "64Mi")) }

func sized(name, cpu, memory string) v1.Container {
	asks := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	return v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: asks, Limits: asks}}
}
