package devicemgr_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/internal/testrun"
)

const gpu = "example.com/gpu"

// plugin is one in memory. die ends its watch and makes its calls fail.
type plugin struct {
	mu       sync.Mutex
	options  devicemgr.Options
	devices  []devicemgr.Device
	changed  chan struct{} // closed at each change; made where it is waited for, in the bubble
	dead     bool
	silent   bool // lists nothing
	calls    []string
	closed   int
	allocate func(ctx context.Context, ids []string) (devicemgr.Attachment, error)
	prefer   func(available, must []string, size int) ([]string, error)
	preStart func(ctx context.Context, ids []string) error
}

func newPlugin(devices ...devicemgr.Device) *plugin {
	return &plugin{devices: devices}
}

func healthyDevices(ids ...string) []devicemgr.Device {
	list := make([]devicemgr.Device, len(ids))
	for i, id := range ids {
		list[i] = devicemgr.Device{ID: id, Healthy: true}
	}
	return list
}

// change changes it and has its watches notice.
func (p *plugin) change(fn func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fn()
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

func (p *plugin) set(devices ...devicemgr.Device) { p.change(func() { p.devices = devices }) }
func (p *plugin) die()                            { p.change(func() { p.dead = true }) }
func (p *plugin) revive()                         { p.change(func() { p.dead = false }) }

func (p *plugin) call(what string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, what)
	if p.dead {
		return devicemgr.ErrAway
	}
	return nil
}

func (p *plugin) called() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}

// closes counts the calls of Close.
func (p *plugin) closes() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

func (p *plugin) Options(context.Context) (devicemgr.Options, error) {
	err := p.call("options")
	return p.options, err
}

func (p *plugin) Watch(ctx context.Context, list func([]devicemgr.Device)) error {
	for {
		p.mu.Lock()
		if p.changed == nil {
			p.changed = make(chan struct{})
		}
		dead, silent, devices, changed := p.dead, p.silent, slices.Clone(p.devices), p.changed
		p.mu.Unlock()
		if dead {
			return devicemgr.ErrAway
		}
		if !silent {
			list(devices)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

func (p *plugin) Prefer(_ context.Context, available, must []string, size int) ([]string, error) {
	if err := p.call("prefer " + strings.Join(available, ",") + " must " + strings.Join(must, ",")); err != nil {
		return nil, err
	}
	return p.prefer(available, must, size)
}

func (p *plugin) Allocate(ctx context.Context, ids []string) (devicemgr.Attachment, error) {
	if err := p.call("allocate " + strings.Join(ids, ",")); err != nil {
		return devicemgr.Attachment{}, err
	}
	if p.allocate != nil {
		return p.allocate(ctx, ids)
	}
	return devicemgr.Attachment{Env: []v1.EnvVar{{Name: "DEVICES", Value: strings.Join(ids, ",")}}}, nil
}

func (p *plugin) PreStart(ctx context.Context, ids []string) error {
	if err := p.call("prestart " + strings.Join(ids, ",")); err != nil {
		return err
	}
	if p.preStart != nil {
		return p.preStart(ctx, ids)
	}
	return nil
}

func (p *plugin) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed++
	return nil
}

// pod asks for devices: "main=1", "init:setup=2", "sidecar:proxy=1". Containers
// ask for gpu, or for what stands before a colon-free '@': "main=1@example.com/nic".
func pod(uid string, containers ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: uid, UID: types.UID(uid)}}
	for _, s := range containers {
		kind, rest, ok := strings.Cut(s, ":")
		if !ok {
			kind, rest = "", s
		}
		name, wants, _ := strings.Cut(rest, "=")
		c := v1.Container{Name: name, Resources: v1.ResourceRequirements{Limits: v1.ResourceList{}}}
		for want := range strings.SplitSeq(wants, "+") {
			if want == "" {
				continue
			}
			n, res, _ := strings.Cut(want, "@")
			c.Resources.Limits[v1.ResourceName(cmp.Or(res, gpu))] = resource.MustParse(n)
		}
		switch kind {
		case "init":
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		case "sidecar":
			always := v1.ContainerRestartPolicyAlways
			c.RestartPolicy = &always
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		default:
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
	}
	return p
}

// life is one life of an agent's device manager.
type life struct {
	*devicemgr.Manager
	stop func()
}

// start starts one over a store; in a bubble, for Run ends only with stop.
func start(t *testing.T, cfg devicemgr.Config, running map[types.UID][]string) *life {
	t.Helper()
	m, err := devicemgr.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Restore(running); err != nil {
		t.Fatal(err)
	}
	return &life{Manager: m, stop: testrun.Start(t, m.Run)}
}

// has names a container's devices of gpu.
func (l *life) has(uid, container string) string {
	var all []string
	for _, h := range l.Holdings(types.UID(uid), container) {
		for _, d := range h.Devices {
			all = append(all, d.ID)
		}
	}
	return strings.Join(all, ",")
}

var errBroken = errors.New("disk is broken")
