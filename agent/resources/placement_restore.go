package resources

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cpumgr"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/numa"
)

// Restore implements part.Restorer. It reads the allocations from the checkpoints. For pods
// without a checkpoint, it takes them from the running containers. Afterwards waiting pods are
// admitted. Containers whose allocations are unknown are not changed.
func (p *Placement) Restore(ctx context.Context) error {
	if p.idle {
		return nil
	}
	p.look(ctx)
	p.fromKubelet()
	found, err := p.readAll(ctx)
	if ctx.Err() != nil {
		return ctx.Err() // the result is incomplete
	}
	r := p.takeOver(found)
	p.cfg.Log.Info("placement restored", zap.Int("checkpoints", r.recorded), zap.Int("fromContainers", r.guessed), zap.Int("liveContainers", r.live))
	for _, problem := range r.problems {
		p.cfg.Log.Warn("pod cannot keep the CPUs or memory that it had before the restart", zap.Error(problem))
	}
	for _, uid := range r.adopted {
		p.host.Retry(uid) // its Prepare has failed until now
	}
	p.host.Readmit()
	return errors.Join(err, p.apply(ctx, false))
}

// readAll reads the checkpoints. Those with an unknown content are renamed, and the runtime's state
// is used.
func (p *Placement) readAll(ctx context.Context) ([]placementRecord, error) {
	if p.cfg.Store == nil {
		return nil, nil
	}
	keys, err := p.cfg.Store.Keys()
	if err != nil {
		err = fmt.Errorf("list checkpoints: %w", err)
	}
	unlisted, unread := err != nil, map[types.UID]bool{}
	if i := slices.Index(keys, placementKubeletKey); i >= 0 {
		keys = slices.Delete(keys, i, i+1)
		if p.cfg.Fit.Idle() {
			p.logged("failed to remove stale checkpoint", part.Delete(ctx, p.cfg.Store, placementKubeletKey))
		}
	}
	var found []placementRecord
	for _, key := range keys {
		c, rerr := p.read(key)
		if rerr == nil {
			found = append(found, c)
			continue
		}
		p.cfg.Log.Error("ignored checkpoint of a pod's CPUs and memory; using the placement that the runtime reports", zap.String("uid", key), zap.Error(rerr))
		if errors.Is(rerr, errForeign) {
			p.logged("failed to set checkpoint aside", part.SetAside(p.cfg.Store, key, rerr), zap.String("uid", key))
		} else {
			unread[types.UID(key)] = true
		}
	}
	p.mu.Lock()
	p.unlisted, p.unread = unlisted, unread
	p.mu.Unlock()
	if d, ok := p.cfg.Store.(part.DirStore); ok && p.cfg.Fit.Idle() && len(keys) == 0 {
		_ = os.Remove(d.Dir()) // so that the next process does not read it; fails if damaged files are in it
	}
	return found, err
}

// lookAgain handles checkpoints that could not be read at the start: it removes the checkpoints of
// pods that are gone, and writes the others again. Otherwise the next process would use their
// content, which is older than the decisions since. Checkpoints of pods that wait for their
// placement are kept.
func (p *Placement) lookAgain(known func(types.UID) bool) error {
	p.mu.Lock()
	unlisted := p.unlisted
	p.mu.Unlock()
	var keys []string
	if unlisted {
		var err error
		if keys, err = p.cfg.Store.Keys(); err != nil {
			return fmt.Errorf("list checkpoints: %w", err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unlisted = false
	for _, key := range keys {
		if key != placementKubeletKey && p.files[types.UID(key)] == nil {
			p.unread[types.UID(key)] = true
		}
	}
	for uid := range p.unread {
		if p.pods[uid] == nil && known(uid) {
			continue
		}
		if p.files[uid] == nil {
			p.files[uid] = newFile(nil)
			p.files[uid].torn = true
		}
		p.stale[uid] = true
		delete(p.unread, uid)
	}
	return nil
}

// restoration says how many pods Restore found with a record and without one, and what it could not
// keep.
type restoration struct {
	recorded, guessed int         // pods
	live              int         // containers
	adopted           []types.UID // pods that were adopted during Restore
	problems          []error     // one for each resource that a pod cannot keep
}

// takeOver uses the restored allocations as the state.
func (p *Placement) takeOver(found []placementRecord) (r restoration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid := range p.early.stopped {
		p.dropLive(uid)
	}
	pods, running, problems := p.fromCheckpoints(found)
	r.recorded, r.live = len(pods), len(p.live)
	for _, g := range append(p.kubeletPods(), p.guesses()...) {
		uid := types.UID(g.UID)
		if p.pods[uid] != nil {
			continue
		}
		pods, running[g.UID] = append(pods, g), p.withKubelet(uid, p.liveOf(uid))
		p.pods[uid] = &placed{pod: g, from: fromContainers}
		r.guessed++
	}
	// If two pods claim the same CPUs, one of them ended and its checkpoint was not removed: the
	// running one comes first.
	slices.SortStableFunc(pods, func(a, b numa.Pod) int {
		return trueFirst(p.anyLive(types.UID(a.UID)), p.anyLive(types.UID(b.UID)))
	})
	s, more := p.node.Adopt(pods, running)
	r.problems = append(problems, more...)
	for _, pod := range pods {
		uid := types.UID(pod.UID)
		if _, has := s.CPU.Pod(pod.UID); !has && len(running[pod.UID].CPUs) > 0 && !p.anyLive(uid) {
			p.pods[uid].from = fromContainers // it is placed again if a source wants it
		}
	}
	p.decide(s)
	p.restored = true
	for _, pod := range p.early.adopted {
		r.problems = append(r.problems, p.adopt(pod)...)
		r.adopted = append(r.adopted, pod.UID)
	}
	p.early = earlyPlacement{}
	return r
}

// fromCheckpoints records the pods with a checkpoint. The caller holds p.mu.
func (p *Placement) fromCheckpoints(found []placementRecord) (pods []numa.Pod, running map[string]fit.Running, problems []error) {
	running = map[string]fit.Running{}
	for _, c := range found {
		uid := types.UID(c.Pod.UID)
		p.files[uid] = newFile(c.raw)
		if p.early.stopped[uid] {
			p.stale[uid] = true
			continue
		}
		r := p.withKubelet(uid, p.liveOf(uid)) // newer than the checkpoint
		if p.kubelet.cpus == nil {
			cpus, more := p.had(c, r.CPUs)
			r.CPUs, problems = cpus, append(problems, more...)
		}
		if p.kubelet.memory != nil && len(r.CPUs)+len(r.Nodes) == 0 && !p.anyLive(uid) {
			// The kubelet has ended the pod. If a source wants it, it is placed again.
			p.pods[uid] = &placed{pod: c.Pod, from: fromContainers}
			continue
		}
		if p.kubelet.memory == nil && c.Memory != nil {
			next, err := p.node.State.Memory.DecodePod(c.Pod.UID, p.cfg.Fit.MemoryPolicy, c.Memory)
			if err != nil {
				problems = append(problems, fmt.Errorf("pod %s: memory in its checkpoint: %w", uid, err))
			}
			p.node.State.Memory = next
		}
		pods, running[c.Pod.UID] = append(pods, c.Pod), r
		p.pods[uid] = &placed{pod: c.Pod, from: fromCheckpoint}
	}
	return pods, running, problems
}

// had returns the CPUs that a pod had: those in its checkpoint. If a container runs on other
// CPUs, but as many as in the checkpoint, it has those on which it runs. The checkpoint of
// another policy is ignored.
func (p *Placement) had(c placementRecord, live map[string]numa.CPUSet) (map[string]numa.CPUSet, []error) {
	if c.CPUs == nil || c.Policy != p.cfg.Fit.CPUPolicy {
		return live, nil
	}
	pod, err := cpumgr.DecodePod(c.CPUs)
	if err == nil && pod.UID != c.Pod.UID {
		err = fmt.Errorf("the checkpoint has the CPUs of pod %q", pod.UID)
	}
	if err != nil {
		return live, []error{fmt.Errorf("pod %s: CPUs in its checkpoint: %w", c.Pod.UID, err)}
	}
	has := pod.ByContainer()
	if !pod.Pool.Empty() {
		return has, nil
	}
	var moved []error
	for _, name := range slices.Sorted(maps.Keys(live)) {
		was, ok := has[name]
		if cpus := live[name]; ok && !was.Equal(cpus) && was.Len() == cpus.Len() {
			moved = append(moved, fmt.Errorf("pod %s, container %s: runs on CPUs %s, which it keeps, and not on %s as in its checkpoint", c.Pod.UID, name, cpus, was))
			has[name] = cpus
		}
	}
	return has, moved
}

// guesses returns the running pods without a checkpoint, with the resources with which their
// containers were created. Their specs may come much later, and until then no other pod may get
// their CPUs. The caller holds p.mu.
func (p *Placement) guesses() []numa.Pod {
	byUID := map[types.UID]*numa.Pod{}
	for _, id := range slices.Sorted(maps.Keys(p.live)) {
		c := p.live[id]
		if p.pods[c.uid] != nil || c.asks == nil {
			continue
		}
		g := byUID[c.uid]
		if g == nil {
			g = &numa.Pod{UID: string(c.uid), Guaranteed: true}
			byUID[c.uid] = g
		}
		g.Guaranteed = g.Guaranteed && c.asks.Bound
		g.Containers = append(g.Containers, numa.Container{Name: c.name, Resources: *c.asks})
	}
	var out []numa.Pod
	for _, uid := range slices.Sorted(maps.Keys(byUID)) {
		out = append(out, *byUID[uid])
	}
	return out
}

// trueFirst compares two values for a sort in which true comes before false.
func trueFirst(x, y bool) int {
	switch {
	case x == y:
		return 0
	case x:
		return -1
	default:
		return 1
	}
}
