package part_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/node"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/podruntime"
	"github.com/nodewright/nodewright/podspec"
)

// witness does nothing but print the first call of each of its hooks.
type witness struct {
	mu   sync.Mutex
	seen map[string]bool

	synced, gone chan struct{}
}

func (w *witness) saw(where, hook string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.seen[hook] {
		w.seen[hook] = true
		fmt.Printf("%-7s %s\n", where, hook)
	}
}

func (*witness) Name() string                    { return "witness" }
func (w *witness) Join(part.Host) error          { w.saw("New", "Join"); return nil }
func (w *witness) Restore(context.Context) error { w.saw("start", "Restore"); return nil }

func (w *witness) Admit(*v1.Pod, []*v1.Pod) *part.Rejection { w.saw("loop", "Admit"); return nil }
func (w *witness) Adopt(*v1.Pod)                            { w.saw("loop", "Adopt") }
func (w *witness) Waits(*v1.Pod) bool                       { w.saw("loop", "Waits"); return true }

func (w *witness) Reserve(context.Context, part.Request) (part.Reservation, *part.Rejection) {
	w.saw("beside", "Reserve")
	return reservation{w}, nil
}

type reservation struct{ *witness }

func (r reservation) Commit(context.Context) error { r.saw("beside", "Commit"); return nil }
func (r reservation) Release()                     { r.saw("beside", "Release") }

func (w *witness) Hold(context.Context, types.UID) (time.Time, func(), error) {
	w.saw("worker", "Hold")
	return time.Time{}, func() {}, nil
}

func (w *witness) HoldImage(ctx context.Context, _ types.UID, _ string, ensure func(context.Context) (string, error)) error {
	w.saw("worker", "HoldImage")
	_, err := ensure(ctx)
	return err
}
func (*witness) KeepDead() int { return 1 }

func (w *witness) Syncing(*v1.Pod)                         { w.saw("worker", "Syncing") }
func (w *witness) Report(*v1.Pod, *v1.PodStatus)           { w.saw("worker", "Report") }
func (w *witness) Compile(*v1.Pod, *podspec.Input) error   { w.saw("worker", "Compile"); return nil }
func (w *witness) ContainerStarted(part.Container, string) { w.saw("worker", "ContainerStarted") }
func (w *witness) ContainerRemoved(string)                 { w.saw("worker", "ContainerRemoved") }

func (w *witness) Prepare(context.Context, *v1.Pod, *observed.Pod) error {
	w.saw("worker", "Prepare")
	return nil
}

func (w *witness) BeforeCreate(context.Context, part.Container, *runtimeapi.ContainerConfig) (func(string, error), error) {
	w.saw("worker", "BeforeCreate")
	return func(string, error) { w.saw("worker", "created") }, nil
}

func (w *witness) Synced(*v1.Pod, *podruntime.Result, func() bool) bool {
	w.saw("worker", "Synced")
	select {
	case w.synced <- struct{}{}:
	default:
	}
	return false
}
func (w *witness) Stopped(context.Context, part.Ref) error { w.saw("worker", "Stopped"); return nil }

func (w *witness) Sweep(_ context.Context, known func(types.UID) bool) error {
	if !known("uid-web") {
		w.saw("sweep", "Sweep")
	}
	return nil
}

func (w *witness) Gone(context.Context, part.Ref) error {
	w.saw("sweep", "Gone")
	close(w.gone)
	return nil
}

// pods is a source that says once what is wanted, and then that nothing is.
type pods struct {
	pod    *v1.Pod
	delete chan struct{}
}

func (pods) Name() string { return "file" }

func (p pods) Run(ctx context.Context, deliver func(podmgr.Snapshot)) error {
	deliver(podmgr.Snapshot{Pods: []*v1.Pod{p.pod}})
	<-p.delete
	deliver(podmgr.Snapshot{})
	<-ctx.Done()
	return nil
}

// The hooks of a part in the life of a pod, each when it is called first.
func Example() {
	dir, err := os.MkdirTemp("", "part")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	runtime := critest.New() // a real one: a *cri.Client
	runtime.AddImage("localhost/app:1")
	grace := int64(1)
	source := pods{delete: make(chan struct{}), pod: &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "uid-web"},
		Spec: v1.PodSpec{
			TerminationGracePeriodSeconds: &grace, DNSPolicy: v1.DNSDefault,
			Containers: []v1.Container{{Name: "c", Image: "localhost/app:1", ImagePullPolicy: v1.PullIfNotPresent, Args: []string{"sleep", "forever"}}},
		},
	}}
	w := &witness{seen: map[string]bool{}, synced: make(chan struct{}), gone: make(chan struct{})}
	a, err := agent.New(agent.Config{
		Node: node.Machine{Name: "edge-7", Capacity: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi"), v1.ResourcePods: resource.MustParse("10"),
		}},
		Paths:   agent.Paths{Root: filepath.Join(dir, "root"), PodLogs: filepath.Join(dir, "logs")},
		Runtime: runtime, Images: agent.Images{Service: runtime}, DNS: agent.DNS{ResolvConf: "-"},
		Sources: []podmgr.Source{source}, Parts: []part.Part{w},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- a.Run(ctx) }()
	<-w.synced
	close(source.delete)
	<-w.gone
	cancel()
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
	// Output:
	// New     Join
	// start   Restore
	// loop    Admit
	// loop    Waits
	// beside  Reserve
	// beside  Commit
	// worker  Hold
	// worker  Report
	// worker  Syncing
	// worker  Prepare
	// worker  Compile
	// worker  HoldImage
	// worker  BeforeCreate
	// worker  created
	// worker  ContainerStarted
	// worker  Synced
	// worker  Stopped
	// worker  ContainerRemoved
	// sweep   Sweep
	// sweep   Gone
}
