package agent_test

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent/resources"
	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/internal/devicetest"
	"github.com/nodewright/nodewright/numa"
)

const thing = "example.com/thing"

// fakeDevices is what of a node's devices outlives the agent: the store, and the
// plugins.
type fakeDevices struct {
	checkpointtest.Disk

	machine numa.Machine

	mu      sync.Mutex
	current *devicemgr.Manager // of the agent that runs
	made    []*runtimeapi.ContainerConfig
}

// recording is a runtime that keeps what containers were made with.
type recording struct {
	criapi.RuntimeService
	f *fakeDevices
}

func (r recording) CreateContainer(ctx context.Context, sandbox string, conf *runtimeapi.ContainerConfig, sandboxConf *runtimeapi.PodSandboxConfig) (string, error) {
	r.f.mu.Lock()
	r.f.made = append(r.f.made, conf)
	r.f.mu.Unlock()
	return r.RuntimeService.CreateContainer(ctx, sandbox, conf, sandboxConf)
}

func newFakeDevices() *fakeDevices { return &fakeDevices{} }

func (f *fakeDevices) manager(n *node) resources.DeviceManager {
	if f == nil {
		return nil
	}
	var store devicemgr.Store = f
	if n.hung != nil {
		store = n.hung
	}
	m, err := devicemgr.New(devicemgr.Config{Store: store, Machine: f.machine})
	if err != nil {
		n.t.Fatal(err)
	}
	f.current = m
	return m
}

// offer brings a plugin to the agent that runs.
func (l *life) offer(name string, p *devicetest.Plugin) {
	l.n.t.Helper()
	time.Sleep(time.Millisecond) // until it runs
	if err := l.n.devices.current.Offer(context.Background(), name, p); err != nil {
		l.n.t.Fatal(err)
	}
}

// wants is a container with a limit of one device, or more, of a resource.
func wants(name, res, n string) v1.Container {
	c := runs(name)
	c.Resources.Limits = v1.ResourceList{v1.ResourceName(res): resource.MustParse(n)}
	c.Resources.Requests = c.Resources.Limits.DeepCopy() // as the API's defaults have it
	return c
}
