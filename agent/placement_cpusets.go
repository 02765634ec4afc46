package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent/fit"
	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/numa"
)

const (
	// allPins is how many containers may be made at the same time at most.
	allPins = 1 << 30
	// pinTimeout bounds a call of the runtime about one container's cpuset.
	pinTimeout = 10 * time.Second
)

// pinned is a container that was made and has not ended, as far as is known.
type pinned struct {
	uid  types.UID
	name string
	// cpus are those it was told last; all of the machine if it was told none.
	cpus numa.CPUSet
	// unknown tells that it could not be found out what it was told.
	unknown bool
	// told tells that it was told CPUs at all, and mems which nodes.
	told bool
	mems numa.NodeSet
	// asks are the resources it was made with, if that was written down.
	asks *numa.Resources
}

// pinningRuntime is a runtime whose containers start on the CPUs that are theirs
// at that moment: between the compiling of a container and its making, others
// may have been given some of what it was to share.
type pinningRuntime struct {
	criapi.RuntimeService
	p *placement
}

func (r pinningRuntime) CreateContainer(ctx context.Context, sandbox string, conf *runtimeapi.ContainerConfig, sandboxConf *runtimeapi.PodSandboxConfig) (string, error) {
	p := r.p
	if err := p.pinning.Acquire(ctx, 1); err != nil {
		return "", err
	}
	defer p.pinning.Release(1)
	c := &pinned{uid: types.UID(conf.GetLabels()[cri.LabelPodUID]), name: conf.GetLabels()[cri.LabelContainerName]}
	p.mu.Lock()
	pin := p.pin(c.uid, c.name)
	c.cpus, c.told = p.cpusOf(pin.CPUs)
	p.mu.Unlock()
	if res := conf.GetLinux().GetResources(); res != nil {
		res.CpusetCpus, res.CpusetMems = pin.CPUs, pin.MemoryNodes
	}
	id, err := r.RuntimeService.CreateContainer(ctx, sandbox, conf, sandboxConf)
	if err == nil {
		p.mu.Lock()
		p.live[id] = c
		p.mu.Unlock()
	}
	return id, err
}

func (r pinningRuntime) StartContainer(ctx context.Context, id string) error {
	err := r.RuntimeService.StartContainer(ctx, id)
	if err == nil {
		r.p.started(id)
	}
	return err
}

func (r pinningRuntime) RemoveContainer(ctx context.Context, id string) error {
	err := r.RuntimeService.RemoveContainer(ctx, id)
	if err == nil {
		r.p.ended(id)
	}
	return err
}

// started takes back the memory of the init containers before a container.
func (p *placement) started(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.live[id]; c != nil {
		p.node.State.Memory = p.node.State.Memory.Started(string(c.uid), c.name)
	}
}

func (p *placement) ended(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.live, id)
}

// seen forgets the containers of a pod that have ended.
func (p *placement) seen(obs *observed.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range obs.Containers {
		if obs.Containers[i].State == observed.Exited {
			delete(p.live, obs.Containers[i].ID)
		}
	}
}

// cpusOf reads a cpuset; none is the whole machine.
func (p *placement) cpusOf(s string) (cpus numa.CPUSet, told bool) {
	cpus, err := numa.ParseCPUs(s)
	if err != nil || cpus.Empty() {
		return p.cfg.Machine.AllCPUs(), false
	}
	return cpus, true
}

// liveOf is what runs of a pod. p.mu is held.
func (p *placement) liveOf(uid types.UID) fit.Running {
	var r fit.Running
	for _, c := range p.live {
		if c.uid != uid || c.unknown {
			continue
		}
		if r.CPUs == nil {
			r.CPUs, r.Nodes = map[string]numa.CPUSet{}, map[string]numa.NodeSet{}
		}
		r.CPUs[c.name], r.Nodes[c.name] = c.cpus, c.mems
	}
	return r
}

// step is a cpuset to be set.
type step struct {
	id   string
	cpus numa.CPUSet
}

// steps lists what live containers have to be told: first all that lose CPUs,
// then those that move, then those that get more (cpumgr.Diff has the same order,
// for those who know from which state they come).
func (p *placement) steps() []step {
	p.mu.Lock()
	defer p.mu.Unlock()
	var shrink, move, grow []step
	for _, id := range slices.Sorted(maps.Keys(p.live)) {
		c := p.live[id]
		want, ok := p.wants(c)
		if !ok || want.Equal(c.cpus) && !c.unknown {
			continue
		}
		both := want.Intersect(c.cpus)
		switch {
		case c.unknown, both.Empty():
			move = append(move, step{id, want})
			continue
		case !both.Equal(c.cpus):
			shrink = append(shrink, step{id, both})
		}
		if !both.Equal(want) {
			grow = append(grow, step{id, want})
		}
	}
	return slices.Concat(shrink, move, grow)
}

// wants is the cpuset that a live container is to have, and whether it is known.
// p.mu is held.
func (p *placement) wants(c *pinned) (numa.CPUSet, bool) {
	if p.pods[c.uid] == nil {
		return numa.CPUSet{}, false // nobody knows yet what it is
	}
	want := p.node.State.CPU.Wanted(string(c.uid), c.name)
	switch {
	case !want.Empty():
		return want, true
	case p.cfg.CPUPolicy == "" || p.cfg.CPUPolicy == fit.CPUNone:
		return p.cfg.Machine.AllCPUs(), c.told // what another policy bound is free again
	default:
		return want, false // no CPU is left to share; the kernel has no such cpuset
	}
}

// errMaking means that containers were being made all the time, so that it is
// not known what they run on.
var errMaking = errors.New("containers are being made, and do not get done")

// apply tells live containers their cpusets, after all that are being made are
// made; with barrier it waits for these in any case. What fails is tried again by
// the next one who calls.
func (p *placement) apply(ctx context.Context, barrier bool) error {
	if !barrier && len(p.steps()) == 0 {
		return nil
	}
	actx, cancel := context.WithTimeout(ctx, pinTimeout)
	defer cancel()
	if err := p.pinning.Acquire(actx, allPins); err != nil {
		return errors.Join(ctx.Err(), errMaking)
	}
	defer p.pinning.Release(allPins)
	var errs []error
	failed := map[string]bool{}
	for _, s := range p.steps() { // as it is by now
		if failed[s.id] {
			continue
		}
		if err := p.tell(ctx, s); err != nil {
			errs, failed[s.id] = append(errs, err), true
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return errors.Join(errs...)
}

// tell sets one cpuset.
func (p *placement) tell(ctx context.Context, s step) error {
	ctx, cancel := context.WithTimeout(ctx, pinTimeout)
	defer cancel()
	err := p.runtime.UpdateContainerResources(ctx, s.id, &runtimeapi.ContainerResources{
		Linux: &runtimeapi.LinuxContainerResources{CpusetCpus: s.cpus.String()},
	})
	if err != nil && p.hasEnded(ctx, s.id, err) {
		p.ended(s.id)
		return nil
	}
	if err != nil {
		return fmt.Errorf("cpuset %s of container %s: %w", s.cpus, s.id, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.live[s.id]; c != nil {
		c.cpus, c.told, c.unknown = s.cpus, true, false
	}
	return nil
}

// hasEnded tells whether a container that could not be told has ended.
func (p *placement) hasEnded(ctx context.Context, id string, err error) bool {
	if status.Code(err) == codes.NotFound {
		return true
	}
	st, err := p.runtime.ContainerStatus(ctx, id, false)
	return status.Code(err) == codes.NotFound || err == nil && st.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
}

// ready makes what was decided on a pod hold, before its containers start: it is
// written down, and nobody else runs on the CPUs that are its own.
func (p *placement) ready(ctx context.Context, uid types.UID, obs *observed.Pod) error {
	if p == nil {
		return nil
	}
	p.seen(obs)
	if err := p.save(uid); err != nil {
		return fmt.Errorf("what the pod was given is not written down: %w", err)
	}
	own := p.unclear(uid)
	err := p.apply(ctx, !own.Empty())
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		p.log.Warn("not all containers were told their CPUs", zap.Error(err))
	}
	if own.Empty() {
		return nil
	}
	return p.clear(uid, own, err)
}

// unclear are CPUs of a pod's own that others may not have left yet.
func (p *placement) unclear(uid types.UID) numa.CPUSet {
	p.mu.Lock()
	defer p.mu.Unlock()
	var own numa.CPUSet
	if e := p.pods[uid]; e == nil || e.clear {
		return own
	}
	pod, _ := p.node.State.CPU.Pod(string(uid))
	own = pod.Pool
	for _, c := range pod.Containers {
		own = own.Union(c.CPUs)
	}
	return own
}

// clear notes that nobody else runs on a pod's own CPUs, or tells who does. Once
// they have left, nobody comes back: containers are made with what is theirs by
// then.
func (p *placement) clear(uid types.UID, own numa.CPUSet, cause error) error {
	if errors.Is(cause, errMaking) {
		return fmt.Errorf("others may still run on CPUs %s: %w", own, cause)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, c := range p.live {
		if c.uid == uid || c.cpus.IntersectLen(own) == 0 && !c.unknown {
			continue
		}
		if _, known := p.wants(c); known {
			return fmt.Errorf("container %s of pod %s (%s) still runs on CPUs %s: %w", c.name, c.uid, id, c.cpus.Intersect(own), cause)
		}
	}
	if e := p.pods[uid]; e != nil {
		e.clear = true
	}
	return nil
}
