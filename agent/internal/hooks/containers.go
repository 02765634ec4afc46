package hooks

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/images"
	"github.com/nodewright/nodewright/podruntime"
	"github.com/nodewright/nodewright/podspec"
)

// Lifecycle calls the parts around the creation, start and removal of containers.
type Lifecycle struct {
	Guard *Guard
	Hooks *Hooks
}

// Creating implements podruntime.Lifecycle. It calls BeforeCreate of the parts. Each part that
// was called gets the outcome, even if a later part prevents the creation.
func (l Lifecycle) Creating(ctx context.Context, pod *v1.Pod, name string, conf *runtimeapi.ContainerConfig) (func(string, error), error) {
	if len(l.Hooks.Creators) == 0 {
		return nil, nil
	}
	var all []Of[func(string, error)]
	created := func(id string, err error) {
		Each(l.Guard, all, func(fn func(string, error)) { fn(id, err) })
	}
	for _, h := range l.Hooks.Creators {
		err := l.Guard.Call(h.Name, func() error {
			fn, err := h.Hook.BeforeCreate(ctx, part.Container{Pod: pod, Name: name}, conf)
			if fn != nil {
				all = append(all, Of[func(string, error)]{h.Name, fn})
			}
			return err
		})
		if err != nil {
			created("", err)
			return nil, err
		}
	}
	return created, nil
}

// Started implements podruntime.Lifecycle.
func (l Lifecycle) Started(pod *v1.Pod, name, id string) {
	Each(l.Guard, l.Hooks.Containers, func(w part.ContainerWatcher) { w.ContainerStarted(part.Container{Pod: pod, Name: name}, id) })
}

// Removed implements podruntime.Lifecycle.
func (l Lifecycle) Removed(id string) {
	Each(l.Guard, l.Hooks.Containers, func(w part.ContainerWatcher) { w.ContainerRemoved(id) })
}

// Hold prevents the removal of a pod's dead containers until release is called. It returns how new
// an observation of the pod has to be.
func (h *Hooks) Hold(ctx context.Context, g *Guard, uid types.UID, newerThan time.Time) (_ time.Time, release func(), err error) {
	var held []func()
	release = func() {
		for _, fn := range held {
			fn()
		}
	}
	err = InTurn(g, h.Holders, func(p part.Holder) error {
		since, done, err := p.Hold(ctx, uid)
		if err != nil {
			return err
		}
		held = append(held, done)
		if since.After(newerThan) {
			newerThan = since
		}
		return nil
	})
	if err != nil {
		release()
		return newerThan, nil, err
	}
	return newerThan, release, nil
}

// KeepDead returns how many dead instances of a container a sync keeps: the largest number that a
// part returns, or podruntime's default.
func (h *Hooks) KeepDead(g *Guard) (n int) {
	Each(g, h.Holders, func(p part.Holder) {
		if k := p.KeepDead(); n >= 0 && (k < 0 || k > n) {
			n = k
		}
	})
	return n
}

// Images passes podruntime's requests for images on, and reports them to the parts.
type Images struct {
	Guard  *Guard
	Hooks  *Hooks
	Images *images.Manager
}

// pulling reports to the parts that a pod waits for an image. The returned function reports the end
// of the wait.
func (i Images) pulling(pod *v1.Pod) (ended func()) {
	var all []Of[func()]
	for _, h := range i.Hooks.Pulls {
		if fn := Ask(i.Guard, h, func(w part.PullWatcher) func() { return w.PullBegan(pod) }); fn != nil {
			all = append(all, Of[func()]{h.Name, fn})
		}
	}
	return func() { Each(i.Guard, all, func(fn func()) { fn() }) }
}

// Ensure implements podruntime.Images.
func (i Images) Ensure(ctx context.Context, r podruntime.ImageRequest) (facts podspec.ImageFacts, err error) {
	ensure := func(ctx context.Context) (string, error) {
		img, err := i.Images.Ensure(ctx, images.Request{
			Pod: r.Pod, Container: r.Container, Image: r.Image, Policy: r.Policy, RuntimeHandler: r.RuntimeHandler,
			Sandbox: r.Sandbox, Secrets: r.Secrets, Pulling: func() func() { return i.pulling(r.Pod) },
		})
		facts = podspec.ImageFacts{Ref: img.Ref, UID: img.UID, User: img.User}
		return img.Ref, err
	}
	for _, h := range i.Hooks.Holders {
		next := ensure
		ensure = func(ctx context.Context) (string, error) {
			return facts.Ref, h.Hook.HoldImage(ctx, r.Pod.UID, r.Image, next)
		}
	}
	_, err = ensure(ctx)
	return facts, err
}
