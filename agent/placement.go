package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	criapi "k8s.io/cri-api/pkg/apis"

	"github.com/nodewright/nodewright/agent/fit"
	"github.com/nodewright/nodewright/cpumgr"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podruntime"
	"github.com/nodewright/nodewright/podspec"
	"github.com/nodewright/nodewright/topology"
)

// placement keeps which containers have CPUs and memory of their own, and sees
// to it that their cpusets say so. Package fit decides; here it becomes true, in
// this order: the decision, its checkpoint, the other containers' departure from
// the CPUs, the new owner's start.
//
// A nil placement places nothing, and costs nothing.
type placement struct {
	cfg     fit.Config
	runtime criapi.RuntimeService
	store   *lazyStore
	log     *zap.Logger
	met     *placementMetrics
	freed   func() // something was given back; it must not block

	// pinning is taken by one by who makes a container, and as a whole by who
	// changes the cpusets of all: so none is missed between the two.
	pinning *semaphore.Weighted

	mu   sync.Mutex
	node fit.Node // its State is what was decided
	pods map[types.UID]*placed
	live map[string]*pinned // by the container's ID
}

// placed is a pod that was decided on. Containers of others are left alone.
type placed struct {
	pod   numa.Pod
	spec  bool   // pod is what its spec says, and not a guess
	saved []byte // what its checkpoint says; nil for none
	clear bool   // others have left the CPUs that are its own
}

// newPlacement returns nil if there is nothing to place, and nothing was: what an
// earlier life of the agent bound has to be set free.
func newPlacement(c *Config, freed func()) (*placement, error) {
	p := &placement{
		cfg: c.Placement, runtime: c.Runtime, freed: freed, log: c.Log.Named("placement"),
		store:   &lazyStore{dir: filepath.Join(c.RootDir, "placement"), log: c.Log.Named("placement")},
		pinning: semaphore.NewWeighted(allPins),
		pods:    map[types.UID]*placed{}, live: map[string]*pinned{},
	}
	node, err := fit.New(c.Placement)
	if err == nil && c.Placement.CPUOptions.ResizeExclusive {
		err = errors.New("CPUOptions.ResizeExclusive is true; want false: the agent does not move CPUs of running containers")
	}
	if err != nil {
		return nil, fmt.Errorf("placement: %w", err)
	}
	p.node = node
	if c.Placement.Idle() && (len(c.Placement.Machine.CPUs) == 0 || !exists(p.store.dir)) {
		return nil, nil
	}
	if p.met, err = newPlacementMetrics(c.Metrics); err != nil {
		return nil, err
	}
	p.met.gauges(p.node)
	return p, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// admit gives a pod its resources, or tells why it cannot have them.
func (p *placement) admit(pod *v1.Pod) *Rejection {
	n := fit.Pod(pod)
	p.mu.Lock()
	defer p.mu.Unlock()
	start := time.Now()
	result, err := p.node.Place(n)
	p.met.admission(p, n, result, err, time.Since(start))
	if err != nil {
		return placementRejection(err)
	}
	p.decide(result.State)
	p.know(pod.UID, n)
	return nil
}

// placementRejection has the reason and the message of the kubelet, and what was in the way.
func placementRejection(err error) *Rejection {
	var r *topology.Rejection
	if !errors.As(err, &r) {
		return &Rejection{Reason: topology.ReasonUnexpected, Message: err.Error()}
	}
	return &Rejection{Reason: r.Reason(), Message: r.Error()}
}

// fits tells whether a pod could be placed if some others were gone.
func (p *placement) fits(pod *v1.Pod, gone []types.UID) bool {
	p.mu.Lock()
	node := p.node
	p.mu.Unlock()
	for _, uid := range gone {
		node.State = node.Without(string(uid))
	}
	_, err := fit.Fit(node, pod)
	return err == nil
}

// decide makes a state the one that counts. p.mu is held.
func (p *placement) decide(s fit.State) {
	p.node.State = s
	p.met.gauges(p.node)
}

// know notes what a pod asks. p.mu is held.
func (p *placement) know(uid types.UID, n numa.Pod) {
	e := p.pods[uid]
	if e == nil {
		e = &placed{}
		p.pods[uid] = e
	}
	e.pod, e.spec, e.clear = n, true, false
}

// adopt takes up a pod that runs already. It keeps what it has.
func (p *placement) adopt(pod *v1.Pod) {
	n := fit.Pod(pod)
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.pods[pod.UID]
	if e != nil && (e.spec || e.saved != nil) {
		e.pod, e.spec = n, true
		return
	}
	// All that is known of it is what runs.
	live := p.liveOf(pod.UID)
	node := p.node
	node.State = node.Without(string(pod.UID))
	s, problems := node.Adopt([]numa.Pod{n}, map[string]fit.Running{n.UID: live})
	for _, err := range problems {
		p.log.Warn("a running container does not keep what it has", zap.String("pod", pod.Namespace+"/"+pod.Name), zap.Error(err))
	}
	node.State = s
	if len(live.CPUs) == 0 && !p.anyLive(pod.UID) { // a sandbox without containers: it is about to start
		if r, err := node.Place(n); err == nil {
			s = r.State
		}
	} else {
		s.CPU = resume(node.CPU, s.CPU, n, live.CPUs)
	}
	p.decide(s)
	p.know(pod.UID, n)
}

// anyLive tells that containers of a pod may run. p.mu is held.
func (p *placement) anyLive(uid types.UID) bool {
	for _, c := range p.live {
		if c.uid == uid {
			return true
		}
	}
	return false
}

// resume gives CPUs to containers of a running pod that are between two starts.
// Init containers are over, as far as anybody can tell.
func resume(policy cpumgr.Policy, s cpumgr.State, pod numa.Pod, live map[string]numa.CPUSet) cpumgr.State {
	for i, c := range pod.Containers {
		if _, runs := live[c.Name]; runs || c.Kind == numa.Init {
			continue
		}
		if next, err := policy.Allocate(s, pod, i, numa.Hint{}); err == nil {
			s = next
		}
	}
	return s
}

// release takes back all that a pod has: its containers have stopped.
func (p *placement) release(uid types.UID) {
	if p == nil {
		return
	}
	p.mu.Lock()
	e := p.pods[uid]
	if e != nil {
		p.decide(p.node.Without(string(uid)))
		delete(p.pods, uid)
	}
	for id, c := range p.live {
		if c.uid == uid {
			delete(p.live, id)
		}
	}
	p.mu.Unlock()
	if e == nil {
		return
	}
	if e.saved != nil {
		if err := p.store.Delete(string(uid)); err != nil {
			p.log.Warn("the checkpoint of a pod that is gone stays", zap.String("uid", string(uid)), zap.Error(err))
		}
	}
	p.freed()
}

// retain releases the pods that nothing knows.
func (p *placement) retain(known func(types.UID) bool) {
	p.mu.Lock()
	var gone []types.UID
	for uid := range p.pods {
		if !known(uid) {
			gone = append(gone, uid)
		}
	}
	p.mu.Unlock()
	slices.Sort(gone)
	for _, uid := range gone {
		p.release(uid)
	}
}

// pins say where the containers of a pod run.
func (p *placement) pins(pod *v1.Pod) map[string]podspec.Pinning {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]podspec.Pinning{}
	for _, name := range containerNames(pod) {
		out[name] = p.pin(pod.UID, name)
	}
	return out
}

// pin says where a container runs. p.mu is held.
func (p *placement) pin(uid types.UID, name string) podspec.Pinning {
	s := p.node.State
	out := podspec.Pinning{
		CPUs:    s.CPU.Wanted(string(uid), name).String(),
		NoQuota: s.CPU.Isolation(string(uid), name) == cpumgr.OwnCPUs,
	}
	if nodes := s.Memory.Nodes(string(uid), name); nodes != 0 {
		out.MemoryNodes = nodes.String()
	}
	return out
}

// OwnCPUs tells whether a container of the pod has CPUs of its own. A quota on the
// pod's cgroup would only take time from them (kubelet:
// DisableCPUQuotaWithExclusiveCPUs); see cgroups.PodOptions.ExclusiveCPUs.
func (a *Agent) OwnCPUs(pod *v1.Pod) bool {
	p := a.placement
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	has, _ := p.node.State.CPU.Pod(string(pod.UID))
	return slices.ContainsFunc(has.Containers, func(c cpumgr.ContainerCPUs) bool { return !c.Pooled })
}

// resizable tells why a pod cannot have other resources, or nil.
func (p *placement) resizable(has, asks *v1.Pod) error {
	if p == nil {
		return nil
	}
	have, want := fit.Pod(has), fit.Pod(asks)
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, c := range have.Containers {
		j := slices.IndexFunc(want.Containers, func(w numa.Container) bool { return w.Name == c.Name })
		if j < 0 {
			continue
		}
		if _, err := p.node.CPU.Resize(p.node.State.CPU, have, i, want.Containers[j].MilliCPU); err != nil {
			return err
		}
	}
	if m, ok := p.node.Memory.(memmgr.Resizer); ok {
		return m.Resize(p.node.State.Memory, have, want)
	}
	return nil
}

// around is the runtime that containers are made with.
func (p *placement) around(rt criapi.RuntimeService) podruntime.Runtime {
	if p == nil || rt == nil {
		return rt
	}
	return pinningRuntime{rt, p}
}

// restorePlacement finds out who has what, and closes the channel when that is
// known.
func (a *Agent) restorePlacement(ctx context.Context) <-chan struct{} {
	done := make(chan struct{})
	if a.placement == nil {
		close(done)
		return done
	}
	a.sweeps.Go(func() {
		defer close(done)
		a.placement.restore(ctx)
		a.logged("not all containers were told their CPUs", a.placement.apply(ctx, false))
	})
	return done
}

// unplace takes back what a pod had whose containers have stopped, and lets the
// others have its CPUs.
func (a *Agent) unplace(ctx context.Context, uid types.UID) {
	if a.placement != nil {
		a.placement.release(uid)
		a.logged("not all containers were told their CPUs", a.placement.apply(ctx, false))
	}
}

// sweepPlacement takes back what pods had that nothing knows.
func (a *Agent) sweepPlacement(ctx context.Context, known map[types.UID]bool) {
	if a.placement != nil {
		a.placement.retain(func(uid types.UID) bool { return known[uid] || a.wanted(uid) })
		a.logged("not all containers were told their CPUs", a.placement.apply(ctx, false))
	}
}

// adoptRunning takes up those of some pods that run already, before any other of
// them is given what these have.
func (a *Agent) adoptRunning(pods []*v1.Pod) {
	if a.placement == nil {
		return
	}
	for _, pod := range pods {
		if obs, _ := a.pleg.Get(pod.UID); obs.AnyRunning() && !a.workers.TerminationRequested(pod.UID) {
			a.grants.recall(pod, obs)
			a.placement.adopt(a.grants.of(pod))
		}
	}
}

// place is the last of admission: a pod gets its resources, or keeps them.
func (a *Agent) place(pod *v1.Pod, obs *observed.Pod) *Rejection {
	p := a.placement
	if p == nil {
		return nil
	}
	if obs.AnyRunning() {
		p.adopt(pod)
		return nil
	}
	if st, ok := a.statuses.Get(pod.UID); ok && podmeta.IsTerminal(st.Phase) && !wasRejected(&st) {
		p.release(pod.UID) // it has come to its end
		return nil
	}
	return p.admit(pod)
}
