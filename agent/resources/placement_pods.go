package resources

import (
	"context"
	"errors"
	"slices"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/podmeta"
)

// origin is the source from which the requests of a pod are known.
type origin int

const (
	fromContainers origin = iota // the resources with which its containers were created; a guess
	fromCheckpoint
	fromSpec // the pod was admitted, or adopted, by this process
)

// placed is a pod with a decision. Containers of other pods are not changed.
type placed struct {
	pod   numa.Pod
	from  origin
	clear bool // other containers have left its exclusive CPUs
}

// decide replaces the state of the placement by s. The caller holds p.mu.
func (p *Placement) decide(s fit.State) {
	p.node.State = s
	p.version++
	p.met.gauges(s.CPU)
	p.kubelet.outdated.Set()
}

// know records the requests of a pod. The caller holds p.mu.
func (p *Placement) know(n numa.Pod) {
	p.pods[types.UID(n.UID)] = &placed{pod: n, from: fromSpec}
	p.kubelet.forget(types.UID(n.UID))
}

// release releases the resources of pods in memory, so that their checkpoints are outdated. It
// reports whether a pod had any.
func (p *Placement) release(uids ...types.UID) bool {
	p.mu.Lock()
	found := false
	for _, uid := range uids {
		p.dropLive(uid)
		if p.pods[uid] == nil {
			continue
		}
		found = true
		p.decide(p.node.Without(string(uid)))
		delete(p.pods, uid)
		p.kubelet.forget(uid)
		if p.files[uid] != nil {
			p.stale[uid] = true
		}
	}
	p.mu.Unlock()
	if found {
		p.host.Housekeep() // which leads to a sweep: other containers get the CPUs back
	}
	return found
}

// releaseEnded releases the resources of pods that ended while no agent ran: they have a
// checkpoint, but no running container. It reports whether there were any.
func (p *Placement) releaseEnded() bool {
	var ended []types.UID
	for _, uid := range p.unclaimed() {
		if phase, ok := p.host.Phase(uid); ok && podmeta.IsTerminal(phase) {
			ended = append(ended, uid)
		}
	}
	return p.release(ended...)
}

// unclaimed returns the pods that were restored, have neither been admitted nor adopted since, and
// have no running container.
func (p *Placement) unclaimed() []types.UID {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []types.UID
	for uid, e := range p.pods {
		if e.from != fromSpec && !p.anyLive(uid) {
			out = append(out, uid)
		}
	}
	return out
}

// Stopped implements part.Stopper: it releases the pod's resources, and other containers get its
// CPUs.
func (p *Placement) Stopped(ctx context.Context, pod part.Ref) error {
	p.stopEarly(pod.UID)
	p.release(pod.UID)
	p.logged("failed to update cpusets of containers", p.apply(ctx, false))
	if err := p.write(ctx, pod.UID); err != nil { // tried again by Sweep
		p.logged("failed to remove stale checkpoint", err, zap.String("uid", string(pod.UID)))
	}
	return nil
}

// Sweep implements part.Sweeper: it releases unknown pods, and completes work that hooks on the
// loop could not do.
func (p *Placement) Sweep(ctx context.Context, known func(types.UID) bool) error {
	p.mu.Lock()
	gone := make([]types.UID, 0, len(p.pods))
	for uid := range p.pods {
		gone = append(gone, uid)
	}
	p.mu.Unlock()
	gone = slices.DeleteFunc(gone, known)
	slices.Sort(gone)
	p.release(gone...)
	err := p.lookAgain(known)
	return errors.Join(err, p.apply(ctx, false), p.writeStale(ctx))
}
