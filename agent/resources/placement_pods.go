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

// origin describes where it is known from what a pod asks for.
type origin int

const (
	fromContainers origin = iota // what its containers were created with; a guess
	fromCheckpoint
	fromSpec // the pod was admitted, or adopted, by this process
)

// placed is a pod that was decided on. The containers of others are left alone.
type placed struct {
	pod   numa.Pod
	from  origin
	clear bool // other containers have left the CPUs that are its own
}

// decide makes a state the one that counts. p.mu is held.
func (p *Placement) decide(s fit.State) {
	p.node.State = s
	p.version++
	p.met.gauges(s.CPU)
	p.tell()
}

// know notes what a pod asks for. p.mu is held.
func (p *Placement) know(n numa.Pod) {
	p.pods[types.UID(n.UID)] = &placed{pod: n, from: fromSpec}
	p.kubelet.forget(types.UID(n.UID))
}

// release takes back all that some pods have, in memory: their checkpoints are
// stale from then on. It reports whether there was anything to take back.
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
		p.host.Housekeep() // which sweeps: other containers get the CPUs back
	}
	return found
}

// releaseEnded takes back what pods have that came to their end while no agent
// was there to see it: a checkpoint has survived, and nothing of them runs. It
// reports whether there were any.
func (p *Placement) releaseEnded() bool {
	var ended []types.UID
	for _, uid := range p.unclaimed() {
		if phase, ok := p.host.Phase(uid); ok && podmeta.IsTerminal(phase) {
			ended = append(ended, uid)
		}
	}
	return p.release(ended...)
}

// unclaimed are the pods that were restored, have neither been admitted nor
// adopted since, and of which nothing runs.
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

// Stopped implements part.Stopper: the pod gives back what it has, and other
// containers get its CPUs.
func (p *Placement) Stopped(ctx context.Context, pod part.Ref) error {
	p.stopEarly(pod.UID)
	p.release(pod.UID)
	p.logged("failed to update cpusets of containers", p.apply(ctx, false))
	if err := p.write(ctx, pod.UID); err != nil { // tried again by Sweep
		p.logged("failed to remove stale checkpoint", err, zap.String("uid", string(pod.UID)))
	}
	return nil
}

// Sweep implements part.Sweeper: it releases the pods that are not known, and does
// what is left over from calls that may not block.
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
