package agent

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/images"
	"github.com/nodewright/nodewright/podruntime"
	"github.com/nodewright/nodewright/podspec"
	"github.com/nodewright/nodewright/podworker"
)

// heldSyncer calls another Syncer with all of the pod held: nothing of it is
// removed meanwhile by the collectors, neither its containers nor the images
// that its containers are being made of.
type heldSyncer struct {
	podworker.Syncer
	g *garbage
}

// SyncPod holds the pod, and every image that the sync asks for until it has
// ended: by then the runtime shows the containers that were made of them.
func (s heldSyncer) SyncPod(ctx context.Context, w podworker.Work) (podworker.Outcome, error) {
	uid := w.Pod.UID
	release, err := s.g.hold(ctx, uid, &w)
	if err != nil {
		return podworker.Outcome{}, err
	}
	defer release()
	defer s.g.holdImages(uid)()
	return s.Syncer.SyncPod(ctx, w)
}

// SyncTerminatingPod holds the pod.
func (s heldSyncer) SyncTerminatingPod(ctx context.Context, w podworker.Work) error {
	release, err := s.g.hold(ctx, w.Pod.UID, &w)
	if err != nil {
		return err
	}
	defer release()
	return s.Syncer.SyncTerminatingPod(ctx, w)
}

// SyncTerminatingRuntimePod holds the pod.
func (s heldSyncer) SyncTerminatingRuntimePod(ctx context.Context, w podworker.Work) error {
	release, err := s.g.hold(ctx, w.RuntimePod.UID, &w)
	if err != nil {
		return err
	}
	defer release()
	return s.Syncer.SyncTerminatingRuntimePod(ctx, w)
}

// SyncTerminatedPod holds the pod.
func (s heldSyncer) SyncTerminatedPod(ctx context.Context, w podworker.Work) error {
	release, err := s.g.hold(ctx, w.Pod.UID, &w)
	if err != nil {
		return err
	}
	defer release()
	return s.Syncer.SyncTerminatedPod(ctx, w)
}

// hold waits until nothing of a pod is being removed, and keeps it so. If
// something was, the work asks for an observation that knows.
func (g *garbage) hold(ctx context.Context, uid types.UID, w *podworker.Work) (release func(), err error) {
	release, err = g.containers.Hold(ctx, uid)
	if err != nil {
		return nil, fmt.Errorf("wait for the removal of dead containers: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if at, ok := g.stale[uid]; ok && at.After(w.NewerThan) {
		w.NewerThan = at
	}
	delete(g.stale, uid)
	return release, nil
}

// removed notes that something of a pod was removed.
func (g *garbage) removed(uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stale[uid] = time.Now()
}

// holdImages has a pod hold the images that it asks for, until the function
// returned is called.
func (g *garbage) holdImages(uid types.UID) (release func()) {
	h := g.images.Hold()
	g.mu.Lock()
	g.holds[uid] = h
	g.mu.Unlock()
	return func() {
		g.mu.Lock()
		if g.holds[uid] == h {
			delete(g.holds, uid)
		}
		g.mu.Unlock()
		h.Release()
	}
}

// imageAdapter lets podruntime ask images, and the pod hold them.
type imageAdapter struct{ a *Agent }

func (i imageAdapter) Ensure(ctx context.Context, r podruntime.ImageRequest) (podspec.ImageFacts, error) {
	g := i.a.gc
	g.mu.Lock()
	h := g.holds[r.Pod.UID]
	g.mu.Unlock()
	if h == nil { // of a sync that is over; nobody uses it
		return i.ensure(ctx, r)
	}
	look, err := h.Name(ctx, r.Image)
	if err != nil {
		return podspec.ImageFacts{}, fmt.Errorf("wait for the removal of image %q: %w", r.Image, err)
	}
	for {
		facts, err := i.ensure(ctx, r)
		if err != nil {
			return facts, err
		}
		// What went under another name meanwhile is asked for again.
		if intact, err := look.Got(ctx, facts.Ref); intact || err != nil {
			return facts, err
		}
	}
}

func (i imageAdapter) ensure(ctx context.Context, r podruntime.ImageRequest) (podspec.ImageFacts, error) {
	img, err := i.a.images.Ensure(ctx, images.Request{
		Pod: r.Pod, Image: r.Image, Policy: r.Policy, RuntimeHandler: r.RuntimeHandler,
		Sandbox: r.Sandbox, Secrets: r.Secrets,
	})
	return podspec.ImageFacts{Ref: img.Ref, UID: img.UID, User: img.User}, err
}
