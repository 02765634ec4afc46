package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri/critest"
)

// fault is what goes wrong with calls of a method for a pod, or for all.
type fault struct {
	method string // "*" is any
	mode   string // fail, hang, or lost: the call does its work, and its answer is an error
	pod    string // "*" is any
	healed chan struct{}
}

var errInjected = status.Error(codes.Unknown, "injected failure")

// gate is the runtime as one process of the agent sees it. Every call passes
// the faults, and every change of the runtime the judgement of what may be done.
type gate struct {
	*critest.Runtime
	l *life
}

// call does one call; judge, which may be nil, looks at it before its work, under
// machine.mu.
func (g *gate) call(ctx context.Context, method, pod string, effect bool, judge func(), do func() error) error {
	m := g.l.m
	if effect {
		if err := g.l.effect(method, pod); err != nil {
			return err
		}
	} else if g.l.isDead() {
		return errDead
	}
	m.mu.Lock()
	if m.down {
		m.mu.Unlock()
		return status.Error(codes.Unavailable, "the runtime is down")
	}
	var found *fault
	for i := range m.faults {
		if f := &m.faults[i]; (f.method == "*" || f.method == method) && (f.pod == "*" || f.pod == pod && pod != "") {
			c := *f
			found = &c
			break
		}
	}
	if judge != nil { // also of a call that fails: it was meant
		judge()
	}
	m.mu.Unlock()
	if found != nil {
		switch found.mode {
		case "fail":
			return errInjected
		case "hang":
			select {
			case <-found.healed:
			case <-ctx.Done():
				return status.FromContextError(ctx.Err()).Err()
			}
			if g.l.isDead() || ctx.Err() != nil {
				return errDead
			}
		}
	}
	err := do()
	if err == nil && found != nil && found.mode == "lost" {
		return errInjected
	}
	return err
}

// fails reports whether calls of a method for a pod fail. m.mu is not held.
func (m *machine) fails(method, pod string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.faults, func(f fault) bool {
		return (f.method == "*" || f.method == method) && (f.pod == "*" || f.pod == pod)
	})
}

// nameOf is the name of the pod that a container or a sandbox is of.
func (m *machine) nameOf(id string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	uid, ok := m.boxes[id]
	if i := m.instanceOf(id); i != nil {
		uid, ok = i.uid, true
	}
	if p := m.pods[uid]; ok && p != nil {
		return p.object.Name
	}
	return ""
}

func (g *gate) RunPodSandbox(ctx context.Context, conf *runtimeapi.PodSandboxConfig, handler string) (id string, err error) {
	m, uid := g.l.m, types.UID(conf.GetMetadata().GetUid())
	err = g.call(ctx, "RunPodSandbox", plainName(conf), true, func() {
		m.judgeSandbox(uid)
		m.judgeAdmission(m.pods[uid])
	}, func() error {
		id, err = g.Runtime.RunPodSandbox(context.WithoutCancel(ctx), conf, handler)
		if err == nil {
			m.mu.Lock()
			m.boxes[id] = uid
			m.judgeUsers(m.pods[uid], conf)
			m.mu.Unlock()
		}
		return err
	})
	return id, err
}

func (g *gate) StopPodSandbox(ctx context.Context, id string) error {
	m := g.l.m
	return g.call(ctx, "StopPodSandbox", m.nameOf(id), true, func() { m.judgeEndOfSandbox(id, "StopPodSandbox") }, func() error {
		return g.Runtime.StopPodSandbox(ctx, id)
	})
}

func (g *gate) RemovePodSandbox(ctx context.Context, id string) error {
	m := g.l.m
	return g.call(ctx, "RemovePodSandbox", m.nameOf(id), true, func() { m.judgeEndOfSandbox(id, "RemovePodSandbox") }, func() error {
		return g.Runtime.RemovePodSandbox(ctx, id)
	})
}

func (g *gate) CreateContainer(ctx context.Context, box string, conf *runtimeapi.ContainerConfig, boxConf *runtimeapi.PodSandboxConfig) (id string, err error) {
	m := g.l.m
	uid := types.UID(boxConf.GetMetadata().GetUid())
	err = g.call(ctx, "CreateContainer", plainName(boxConf), true, nil, func() error {
		id, err = g.Runtime.CreateContainer(context.WithoutCancel(ctx), box, conf, boxConf)
		if err == nil {
			m.mu.Lock()
			m.noteContainer(id, box, uid, conf)
			m.mu.Unlock()
		}
		return err
	})
	return id, err
}

func (g *gate) StartContainer(ctx context.Context, id string) error {
	m := g.l.m
	return g.call(ctx, "StartContainer", m.nameOf(id), true, func() { m.judgeStart(id) }, func() error {
		err := g.Runtime.StartContainer(ctx, id)
		if err == nil {
			m.mu.Lock()
			m.noteStart(id)
			m.mu.Unlock()
		}
		return err
	})
}

func (g *gate) StopContainer(ctx context.Context, id string, timeout int64) error {
	m := g.l.m
	m.noteChosen(id)
	return g.call(ctx, "StopContainer", m.nameOf(id), true, func() { m.judgeEnd(id, "StopContainer", time.Duration(timeout)*time.Second) }, func() error {
		return g.Runtime.StopContainer(ctx, id, timeout)
	})
}

func (g *gate) RemoveContainer(ctx context.Context, id string) error {
	m := g.l.m
	return g.call(ctx, "RemoveContainer", m.nameOf(id), true, func() {
		m.judgeEnd(id, "RemoveContainer", 0)
	}, func() error {
		return g.Runtime.RemoveContainer(ctx, id)
	})
}

func (g *gate) UpdateContainerResources(ctx context.Context, id string, r *runtimeapi.ContainerResources) error {
	return g.call(ctx, "UpdateContainerResources", g.l.m.nameOf(id), true, nil, func() error {
		return g.Runtime.UpdateContainerResources(ctx, id, r)
	})
}

func (g *gate) PullImage(ctx context.Context, i *runtimeapi.ImageSpec, a *runtimeapi.AuthConfig, s *runtimeapi.PodSandboxConfig) (ref string, err error) {
	err = g.call(ctx, "PullImage", plainName(s), true, nil, func() error {
		ref, err = g.Runtime.PullImage(ctx, i, a, s)
		return err
	})
	return ref, err
}

func (g *gate) ListPodSandbox(ctx context.Context, f *runtimeapi.PodSandboxFilter) (out []*runtimeapi.PodSandbox, err error) {
	err = g.call(ctx, "ListPodSandbox", "", false, nil, func() error {
		out, err = g.Runtime.ListPodSandbox(ctx, f)
		return err
	})
	return out, err
}

func (g *gate) ListContainers(ctx context.Context, f *runtimeapi.ContainerFilter) (out []*runtimeapi.Container, err error) {
	err = g.call(ctx, "ListContainers", "", false, nil, func() error {
		out, err = g.Runtime.ListContainers(ctx, f)
		return err
	})
	return out, err
}

func (g *gate) ContainerStatus(ctx context.Context, id string, verbose bool) (out *runtimeapi.ContainerStatusResponse, err error) {
	err = g.call(ctx, "ContainerStatus", g.l.m.nameOf(id), false, nil, func() error {
		out, err = g.Runtime.ContainerStatus(ctx, id, verbose)
		return err
	})
	return out, err
}

func (g *gate) PodSandboxStatus(ctx context.Context, id string, verbose bool) (out *runtimeapi.PodSandboxStatusResponse, err error) {
	err = g.call(ctx, "PodSandboxStatus", g.l.m.nameOf(id), false, nil, func() error {
		out, err = g.Runtime.PodSandboxStatus(ctx, id, verbose)
		return err
	})
	return out, err
}

func (g *gate) ImageStatus(ctx context.Context, i *runtimeapi.ImageSpec, verbose bool) (out *runtimeapi.ImageStatusResponse, err error) {
	err = g.call(ctx, "ImageStatus", "", false, nil, func() error {
		out, err = g.Runtime.ImageStatus(ctx, i, verbose)
		return err
	})
	return out, err
}

// GetContainerEvents ends when the runtime goes down.
func (g *gate) GetContainerEvents(ctx context.Context, ch chan *runtimeapi.ContainerEventResponse, opened func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	streaming, end := context.WithCancel(ctx)
	defer end()
	g.l.mu.Lock()
	g.l.events = end
	g.l.mu.Unlock()
	err := g.call(streaming, "GetContainerEvents", "", false, nil, func() error { return g.Runtime.GetContainerEvents(streaming, ch, opened) })
	if ctx.Err() == nil && errors.Is(err, context.Canceled) {
		return status.Error(codes.Unavailable, "the runtime is down")
	}
	return err
}

// endEvents ends the stream of events, as a runtime does that goes down.
func (l *life) endEvents() {
	l.mu.Lock()
	end := l.events
	l.mu.Unlock()
	if end != nil {
		end()
	}
}

// heal ends all faults of calls. m.mu is held.
func (m *machine) heal() {
	for _, f := range m.faults {
		close(f.healed)
		if p := m.newest(f.pod); p != nil {
			p.trouble = time.Now()
		}
	}
	m.faults = nil
	m.trouble("calls", false)
	m.healed = time.Now()
}

func (m *machine) inject(method, mode, pod string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if slices.ContainsFunc(m.faults, func(f fault) bool { return f.method == method && f.pod == pod }) {
		return
	}
	m.faults = append(m.faults, fault{method: method, mode: mode, pod: pod, healed: make(chan struct{})})
	if pod == "*" {
		m.trouble("calls", true)
	} else if p := m.newest(pod); p != nil {
		p.trouble = time.Now()
	}
}
