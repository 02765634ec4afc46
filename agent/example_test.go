package agent_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/cri/critest"
	nodeblock "github.com/nodewright/nodewright/node"
	"github.com/nodewright/nodewright/podmgr"
)

// plane is a control plane of one's own: it says which pods this node is to
// run, and hears what became of them. A message queue, a database or a file on
// a stick could stand behind it.
type plane struct {
	orders  chan []*v1.Pod
	reports chan string
}

// Name implements podmgr.Source.
func (p *plane) Name() string { return "orders" }

// Kind implements podmgr.Kinder: pods get defaults and are validated, they end when they are not
// ordered any more, and the sink hears when nothing is left.
func (p *plane) Kind() podmgr.Kind { return podmgr.Managed }

// Run implements podmgr.Source: each order is the whole of what is wanted.
func (p *plane) Run(ctx context.Context, deliver func(podmgr.Snapshot)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case pods := <-p.orders:
			deliver(podmgr.Snapshot{Pods: pods})
		}
	}
}

// Update implements statusmgr.Sink.
func (p *plane) Update(_ context.Context, pod *v1.Pod, status v1.PodStatus) error {
	if len(status.ContainerStatuses) == 1 {
		c := status.ContainerStatuses[0]
		p.reports <- fmt.Sprintf("%s: running %t, ready %t", pod.Name, c.State.Running != nil, c.Ready)
	}
	return nil
}

// Delete implements statusmgr.Sink.
func (p *plane) Delete(_ context.Context, pod *v1.Pod) error {
	p.reports <- pod.Name + ": nothing is left"
	return nil
}

// An agent that is fed by, and reports to, a control plane of one's own.
func Example_ownControlPlane() {
	dir, err := os.MkdirTemp("", "own-plane")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	runtime := critest.New() // a real one: cri.New(cri.Config{Endpoint: "unix:///run/containerd/containerd.sock"})
	runtime.AddImage("registry.example/sensor:1")

	p := &plane{orders: make(chan []*v1.Pod, 1), reports: make(chan string, 100)}
	a, err := agent.New(agent.Config{
		Node: nodeblock.Machine{Name: "edge-7", Capacity: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi"), v1.ResourcePods: resource.MustParse("10"),
		}},
		Paths:   agent.Paths{Root: filepath.Join(dir, "root"), PodLogs: filepath.Join(dir, "logs")},
		Runtime: runtime, Images: agent.Images{Service: runtime}, DNS: agent.DNS{ResolvConf: "-"},
		Sources: []podmgr.Source{p}, Status: agent.Status{Sink: p},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- a.Run(ctx) }()

	grace := int64(1)
	sensor := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "factory", Name: "sensor", UID: "order-4711"},
		Spec: v1.PodSpec{
			RestartPolicy: v1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace, DNSPolicy: v1.DNSDefault,
			Containers: []v1.Container{{Name: "c", Image: "registry.example/sensor:1", ImagePullPolicy: v1.PullIfNotPresent, Args: []string{"sleep", "forever"}}},
		},
	}
	p.orders <- []*v1.Pod{sensor}
	told := map[string]bool{}
	until := func(want string) {
		for !told[want] {
			told[<-p.reports] = true
		}
		fmt.Println(want)
	}
	until("sensor: running true, ready true")
	p.orders <- nil
	until("sensor: nothing is left")

	cancel()
	fmt.Println("stopped:", <-ended)
	// Output:
	// sensor: running true, ready true
	// sensor: nothing is left
	// stopped: <nil>
}

// A CI runner: one pod to its end, with its log and exit code.
func ExampleRunToCompletion() {
	dir, err := os.MkdirTemp("", "ci")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	runtime := critest.New() // a real one: localcri.NewInProcess, and RunWith around the call
	runtime.AddImage("registry.example/build:1")
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "build-17"},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name: "build", Image: "registry.example/build:1", ImagePullPolicy: v1.PullIfNotPresent, Args: []string{"out", "2 tests failed", "exit", "3"},
		}}},
	}
	status, err := agent.RunToCompletion(context.Background(), agent.Config{
		Node: nodeblock.Machine{Name: "runner", Capacity: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi"), v1.ResourcePods: resource.MustParse("10"),
		}},
		Paths:   agent.Paths{Root: filepath.Join(dir, "root"), PodLogs: filepath.Join(dir, "logs")},
		Runtime: runtime, Images: agent.Images{Service: runtime}, DNS: agent.DNS{ResolvConf: "-"},
	}, pod, func(container string) io.Writer { return os.Stdout })
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(status.Phase, status.ContainerStatuses[0].State.Terminated.ExitCode)
	// Output:
	// 2 tests failed
	// Failed 3
}
