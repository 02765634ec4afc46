package agent_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent/resources"
	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/devicemgr"
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

// plugin is a device plugin in this process.
type plugin struct {
	options  devicemgr.Options
	allocate func(ctx context.Context, ids []string) error
	preStart func(ctx context.Context) error
	prefer   func(available []string) []string

	lists chan []devicemgr.Device
	died  chan struct{}

	mu    sync.Mutex
	calls []string
}

func newPlugin(list ...devicemgr.Device) *plugin {
	p := &plugin{lists: make(chan []devicemgr.Device, 10), died: make(chan struct{})}
	p.lists <- list
	return p
}

// of are healthy devices.
func of(ids ...string) []devicemgr.Device {
	var list []devicemgr.Device
	for _, id := range ids {
		list = append(list, devicemgr.Device{ID: id, Healthy: true})
	}
	return list
}

func (p *plugin) note(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, what)
}

func (p *plugin) count(what string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		if strings.HasPrefix(c, what) {
			n++
		}
	}
	return n
}

func (p *plugin) Options(context.Context) (devicemgr.Options, error) { return p.options, nil }

func (p *plugin) Watch(ctx context.Context, list func([]devicemgr.Device)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.died:
			return errors.New("it died")
		case l := <-p.lists:
			list(l)
		}
	}
}

func (p *plugin) Prefer(_ context.Context, available, _ []string, _ int) ([]string, error) {
	p.note("Prefer")
	return p.prefer(available), nil
}

func (p *plugin) Allocate(ctx context.Context, ids []string) (devicemgr.Attachment, error) {
	p.note("Allocate " + strings.Join(ids, ","))
	if p.allocate != nil {
		if err := p.allocate(ctx, ids); err != nil {
			return devicemgr.Attachment{}, err
		}
	}
	return devicemgr.Attachment{
		Env:         []v1.EnvVar{{Name: "DEVICES", Value: strings.Join(ids, ",")}},
		Mounts:      []devicemgr.Mount{{ContainerPath: "/lib/things", HostPath: "/opt/things", ReadOnly: true}},
		Nodes:       []devicemgr.DeviceNode{{ContainerPath: "/dev/thing", HostPath: "/dev/null", Permissions: "rw"}},
		Annotations: map[string]string{"example.com/from": "plugin"},
		CDI:         []string{"example.com/thing=" + ids[0]},
	}, nil
}

func (p *plugin) PreStart(ctx context.Context, ids []string) error {
	p.note("PreStart " + strings.Join(ids, ","))
	if p.preStart != nil {
		return p.preStart(ctx)
	}
	return nil
}

func (p *plugin) Close() error { return nil }

// offer brings a plugin to the agent that runs.
func (l *life) offer(name string, p *plugin) {
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

// hang does not answer before ctx ends.
func hang(ctx context.Context, _ []string) error {
	<-ctx.Done()
	return ctx.Err()
}
