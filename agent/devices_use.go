package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/podruntime"
	"github.com/nodewright/nodewright/podspec"
)

// preparePatience is how long the start of a container waits for plugins to make
// its devices ready. After that the start is tried again when they are: pods that
// start are few at a time, and the others should not wait for it.
const preparePatience = time.Second

// attached is what the containers of a pod get with their devices. What a
// container is missing is told when it is about to start.
func (a *Agent) attached(pod *v1.Pod) map[string]podspec.Attachment {
	if a.cfg.Devices == nil {
		return nil
	}
	out := map[string]podspec.Attachment{}
	for _, name := range containerNames(pod) {
		if got, err := a.cfg.Devices.Attachment(pod, name); err == nil {
			out[name] = attachmentOf(got)
		}
	}
	return out
}

func attachmentOf(a devicemgr.Attachment) podspec.Attachment {
	out := podspec.Attachment{Env: a.Env, CDI: a.CDI, Annotations: a.Annotations}
	for _, m := range a.Mounts {
		out.Mounts = append(out.Mounts, &runtimeapi.Mount{ContainerPath: m.ContainerPath, HostPath: m.HostPath, Readonly: m.ReadOnly})
	}
	for _, d := range a.Nodes {
		out.Devices = append(out.Devices, &runtimeapi.Device{ContainerPath: d.ContainerPath, HostPath: d.HostPath, Permissions: d.Permissions})
	}
	return out
}

// preparing is the runtime with which containers are made whose devices are
// ready.
func (a *Agent) preparing(rt podruntime.Runtime) podruntime.Runtime {
	if a.cfg.Devices == nil || rt == nil {
		return rt
	}
	return preparingRuntime{rt, a}
}

type preparingRuntime struct {
	podruntime.Runtime
	a *Agent
}

func (r preparingRuntime) CreateContainer(ctx context.Context, sandbox string, conf *runtimeapi.ContainerConfig, sandboxConf *runtimeapi.PodSandboxConfig) (string, error) {
	uid, name := types.UID(conf.GetLabels()[cri.LabelPodUID]), conf.GetLabels()[cri.LabelContainerName]
	if err := r.a.prepare(ctx, uid, name); err != nil {
		return "", err
	}
	return r.Runtime.CreateContainer(ctx, sandbox, conf, sandboxConf)
}

// prepare makes the devices of a container ready for its start.
func (a *Agent) prepare(ctx context.Context, uid types.UID, container string) error {
	pod, ok := a.pods.Pod(uid)
	if !ok {
		return nil // it goes, and is not started
	}
	_, missing := a.cfg.Devices.Attachment(pod, container)
	if missing == nil && len(a.cfg.Devices.Holdings(uid, container)) == 0 {
		return nil
	}
	err := a.prepares.do(ctx, uid, container, func() error {
		return a.cfg.Devices.PreStart(a.decisions.ctx, pod, container)
	}, func() {
		a.runtime.Retry(uid)
		a.workers.Resync(uid)
	})
	if err != nil {
		return fmt.Errorf("devices: %w", err)
	}
	if missing != nil {
		// It was compiled without them.
		return errors.New("devices: the container was given new ones, and is made with them next")
	}
	return nil
}

// prepares are the calls to plugins that go before the start of a container.
type prepares struct {
	start func(func()) // as a goroutine that is waited for

	mu    sync.Mutex
	calls map[types.UID]map[string]*preparation // by container
	wait  map[types.UID]bool                    // pods of which one failed
}

type preparation struct {
	done chan struct{} // closed when err is set
	err  error
	left bool // the start did not wait
}

func newPrepares(start func(func())) *prepares {
	return &prepares{start: start, calls: map[types.UID]map[string]*preparation{}, wait: map[types.UID]bool{}}
}

// errPreparing is for a start that does not wait any longer.
var errPreparing = errors.New("the plugin has not made them ready yet")

// do makes a call, or takes up the one that is under way, and waits for it for a
// while. If it did not wait for the end, it calls later at the end.
func (p *prepares) do(ctx context.Context, uid types.UID, container string, call func() error, later func()) error {
	p.mu.Lock()
	c := p.calls[uid][container]
	if c == nil {
		c = &preparation{done: make(chan struct{})}
		if p.calls[uid] == nil {
			p.calls[uid] = map[string]*preparation{}
		}
		p.calls[uid][container] = c
		p.start(func() {
			err := call() // its calls have deadlines
			p.mu.Lock()
			c.err = err
			close(c.done)
			left := c.left
			p.mu.Unlock()
			if left {
				later()
			}
		})
	}
	p.mu.Unlock()
	t := time.NewTimer(preparePatience)
	defer t.Stop()
	select {
	case <-c.done:
	case <-t.C:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-c.done:
	default:
		c.left = true
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return errPreparing
	}
	if p.calls[uid][container] == c {
		delete(p.calls[uid], container)
	}
	if len(p.calls[uid]) == 0 {
		delete(p.calls, uid)
	}
	delete(p.wait, uid)
	if c.err != nil {
		p.wait[uid] = true
	}
	return c.err
}

// changed calls fn for each pod of which a start failed: the plugin may be back.
func (p *prepares) changed(fn func(types.UID)) {
	p.mu.Lock()
	var uids []types.UID
	for uid := range p.wait {
		uids = append(uids, uid)
	}
	p.mu.Unlock()
	for _, uid := range uids {
		fn(uid)
	}
}

// forget drops what there is of a pod that is over.
func (p *prepares) forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.calls, uid)
	delete(p.wait, uid)
}
