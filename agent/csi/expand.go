package csi

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	block "github.com/nodewright/nodewright/csi"
	"github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/volumemgr"
)

// The first and the longest pause between two tries to expand a volume, and the limit
// of concurrent expansions.
const (
	firstExpand    = time.Second
	lastExpand     = 2 * time.Minute
	parallelExpand = 64 // a call that hangs ends after two minutes
)

// Reasons of events, as in the kubelet.
const (
	reasonExpanded    = "FileSystemResizeSuccessful"
	reasonNotExpanded = "VolumeResizeFailed"
)

// expands expands volumes whose claims request a larger size, after each change, and again after
// failures. A slow expansion does not delay others.
func (p *Part) expands(ctx context.Context) {
	x := &expansions{slots: make(chan struct{}, parallelExpand), volumes: map[block.Volume]*try{}}
	defer x.wg.Wait()
	for {
		timer := time.NewTimer(p.expandAll(ctx, x))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-p.look:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// expansions holds the volumes to expand.
type expansions struct {
	slots chan struct{}
	wg    sync.WaitGroup

	mu      sync.Mutex
	volumes map[block.Volume]*try
}

// try is the state of one volume's expansion: its failures in a row, when it is tried
// again, and whether it is running.
type try struct {
	failures int
	until    time.Time
	running  bool
}

// expandAll starts the expansions that are due, and returns the time until the next one.
func (p *Part) expandAll(ctx context.Context, x *expansions) time.Duration {
	needed := map[block.Volume]block.Expansion{}
	for _, pod := range p.host.Pods() {
		for _, e := range p.expansions(pod) {
			if v, ok := block.VolumeOf(e.Spec); ok && p.manager.Needed(e) {
				needed[v] = e
			}
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	next := time.Hour
	for v, t := range x.volumes {
		if _, ok := needed[v]; !ok && !t.running {
			delete(x.volumes, v)
		}
	}
	for v, e := range needed {
		t := x.volumes[v]
		if t == nil {
			t = &try{}
			x.volumes[v] = t
		}
		if left := time.Until(t.until); !t.running && left > 0 {
			next = min(next, left)
		} else if !t.running {
			t.running = true
			x.wg.Go(func() { p.try(ctx, x, t, e) })
		}
	}
	return next
}

func (p *Part) try(ctx context.Context, x *expansions, t *try, e block.Expansion) {
	x.slots <- struct{}{}
	done, err := p.expand(ctx, e)
	<-x.slots
	x.mu.Lock()
	t.running = false
	if err == nil && done {
		t.failures, t.until = 0, time.Now().Add(firstExpand) // the change of the claim has been observed by then
	} else {
		t.failures++
		t.until = time.Now().Add(retry.Backoff{First: firstExpand, Max: lastExpand}.After(t.failures))
	}
	x.mu.Unlock()
	p.Housekeep(nil)
}

// expand expands a volume, and sends an event. It returns false if the claim at the API
// server needs no expansion: the claim in memory may be older.
func (p *Part) expand(ctx context.Context, e block.Expansion) (bool, error) {
	name := e.Spec.Name()
	done, err := p.manager.Expand(ctx, e, p.cfg.Claims)
	switch {
	case !done || ctx.Err() != nil:
		return done, err
	case err != nil:
		p.cfg.Log.Warn("failed to make volume larger", zap.String("volume", name), zap.String("uid", string(e.Pod.UID)), zap.Error(err))
		p.host.Event(e.Pod, nil, v1.EventTypeWarning, reasonNotExpanded, fmt.Sprintf("NodeExpandVolume failed for volume %q : %v", name, err))
	default:
		p.host.Event(e.Pod, nil, v1.EventTypeNormal, reasonExpanded, fmt.Sprintf("MountVolume.NodeExpandVolume succeeded for volume %q", name))
	}
	return done, err
}

// expansions returns the volumes of a pod that have claims.
func (p *Part) expansions(pod *v1.Pod) (out []block.Expansion) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		name := claimOf(pod, v)
		if name == "" {
			continue
		}
		claim, ok := p.storage.Claim(pod.Namespace, name)
		if !ok {
			continue
		}
		pv, ok := p.storage.Volume(claim.Spec.VolumeName)
		if !ok {
			continue
		}
		readOnly := v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly
		out = append(out, block.Expansion{Pod: pod, Claim: claim, Spec: &volumemgr.Spec{PersistentVolume: pv, ReadOnly: readOnly}})
	}
	return out
}
