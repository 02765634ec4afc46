package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent/fit"
	"github.com/nodewright/nodewright/cpumgr"
	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
)

// savedPlacement is the checkpoint of one pod. What stands in it is only ever
// taken for what the pod had: whether it can have it is decided anew.
type savedPlacement struct {
	Version int             `json:"version"`
	Pod     numa.Pod        `json:"pod"`
	Policy  string          `json:"cpuPolicy"`
	CPUs    json.RawMessage `json:"cpus,omitempty"`
	Memory  json.RawMessage `json:"memory,omitempty"` // names its policy itself
}

const placementVersion = 1

// save writes down what a pod has, if that is other than what is written.
func (p *placement) save(uid types.UID) error {
	p.mu.Lock()
	e := p.pods[uid]
	var b []byte
	var err error
	if e != nil {
		b, err = p.encode(e.pod, p.node.State)
	}
	p.mu.Unlock()
	if e == nil || err != nil || bytes.Equal(b, e.saved) {
		return err
	}
	if b == nil {
		err = p.store.Delete(string(uid))
	} else {
		err = p.store.Write(string(uid), b)
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	e.saved = b
	p.mu.Unlock()
	return nil
}

// encode is the checkpoint of a pod, or nil if it has nothing.
func (p *placement) encode(pod numa.Pod, s fit.State) ([]byte, error) {
	out := savedPlacement{Version: placementVersion, Pod: pod, Policy: p.cfg.CPUPolicy}
	var err error
	if _, ok := s.CPU.Pod(pod.UID); ok {
		if out.CPUs, err = s.CPU.EncodePod(pod.UID); err != nil {
			return nil, err
		}
	}
	if out.Memory, err = s.Memory.EncodePod(pod.UID, p.cfg.MemoryPolicy); err != nil {
		return nil, err
	}
	if out.CPUs == nil && out.Memory == nil {
		return nil, nil
	}
	return json.Marshal(out)
}

// restore finds out who has what: from the checkpoints, and where these do not
// tell, from the containers that run. It never fails: what is not known is not
// touched.
func (p *placement) restore(ctx context.Context) {
	if p == nil {
		return
	}
	p.look(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	var pods []numa.Pod
	running := map[string]fit.Running{}
	node := p.node
	keys, err := p.store.Keys()
	if err != nil {
		p.log.Error("checkpoints cannot be listed", zap.Error(err))
	}
	for _, key := range keys {
		saved, b, err := p.load(key)
		if err != nil {
			p.log.Error("a checkpoint tells nothing; what runs does", zap.String("uid", key), zap.Error(err))
			if err := p.store.Delete(key); err != nil {
				p.log.Warn("a checkpoint that tells nothing stays", zap.String("uid", key), zap.Error(err))
			}
			continue
		}
		r := p.liveOf(types.UID(key))
		r.CPUs = p.had(saved, r.CPUs)
		if saved.Memory != nil {
			next, err := node.State.Memory.DecodePod(key, p.cfg.MemoryPolicy, saved.Memory)
			if err != nil {
				p.log.Warn("a checkpoint does not tell of memory; what runs does", zap.String("uid", key), zap.Error(err))
			}
			node.State.Memory = next
		}
		pods, running[key] = append(pods, saved.Pod), r
		p.pods[types.UID(key)] = &placed{pod: saved.Pod, saved: b}
	}
	if p.cfg.Idle() && len(keys) == 0 {
		_ = os.Remove(p.store.dir) // the next life need not look; damaged files keep it
	}
	guesses := p.guesses()
	for _, g := range guesses {
		pods, running[g.UID] = append(pods, g), p.liveOf(types.UID(g.UID))
		p.pods[types.UID(g.UID)] = &placed{pod: g}
	}
	s, problems := node.Adopt(pods, running)
	for _, err := range problems {
		p.log.Warn("what a pod had cannot be kept", zap.Error(err))
	}
	p.decide(s)
	p.log.Info("placement restored", zap.Int("checkpoints", len(pods)-len(guesses)), zap.Int("fromContainers", len(guesses)), zap.Int("liveContainers", len(p.live)))
}

// load reads a checkpoint.
func (p *placement) load(key string) (savedPlacement, []byte, error) {
	b, err := p.store.Read(key)
	if err != nil {
		return savedPlacement{}, nil, err
	}
	var out savedPlacement
	if err := json.Unmarshal(b, &out); err != nil {
		return savedPlacement{}, nil, err
	}
	if out.Version != placementVersion || out.Pod.UID != key {
		return savedPlacement{}, nil, fmt.Errorf("version %d of pod %q; want version %d of pod %q", out.Version, out.Pod.UID, placementVersion, key)
	}
	return out, b, nil
}

// had are the CPUs that a pod had: what its checkpoint says, except for those
// containers that run elsewhere, on as many CPUs. A checkpoint of another policy
// tells nothing.
func (p *placement) had(saved savedPlacement, live map[string]numa.CPUSet) map[string]numa.CPUSet {
	if saved.CPUs == nil || saved.Policy != p.cfg.CPUPolicy {
		return live
	}
	pod, err := cpumgr.DecodePod(saved.CPUs)
	if err != nil || pod.UID != saved.Pod.UID {
		p.log.Warn("a checkpoint does not tell of CPUs; what runs does", zap.String("uid", saved.Pod.UID), zap.Error(err))
		return live
	}
	has := pod.ByContainer()
	if !pod.Pool.Empty() {
		return has
	}
	for name, cpus := range live {
		if was, ok := has[name]; ok && !was.Equal(cpus) && was.Len() == cpus.Len() {
			p.log.Warn("a container runs on other CPUs than its checkpoint says, and keeps them", zap.String("uid", saved.Pod.UID),
				zap.String("container", name), zap.Stringer("runs", cpus), zap.Stringer("checkpoint", was))
			has[name] = cpus
		}
	}
	return has
}

// guesses are the pods that run and have no checkpoint, as far as their
// containers tell what they were made with. The specs may come much later, and
// until then nobody else may get their CPUs.
func (p *placement) guesses() []numa.Pod {
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

// looksAtATime is how many containers the runtime is asked about at a time.
const looksAtATime = 8

// Pauses between tries to ask the runtime.
const (
	lookAgain = time.Second
	lookTries = 3 // at one container
)

// list asks until it is answered: without knowing who runs, nobody new may.
func (p *placement) list(ctx context.Context) []*runtimeapi.Container {
	for ctx.Err() == nil {
		lctx, cancel := context.WithTimeout(ctx, pinTimeout)
		list, err := p.runtime.ListContainers(lctx, nil)
		cancel()
		if err == nil {
			return list
		}
		p.log.Error("containers cannot be listed; pods wait until it is known what runs where", zap.Error(err))
		sleep(ctx, lookAgain)
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// look asks the runtime for its containers and their cpusets.
func (p *placement) look(ctx context.Context) {
	var g errgroup.Group
	g.SetLimit(looksAtATime)
	for _, c := range p.list(ctx) {
		uid := types.UID(c.GetLabels()[cri.LabelPodUID])
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED || uid == "" {
			continue
		}
		g.Go(func() error {
			pin := &pinned{uid: uid, name: c.GetLabels()[cri.LabelContainerName], unknown: true}
			var r v1.ResourceRequirements
			if json.Unmarshal([]byte(c.GetAnnotations()[cri.AnnotationResources]), &r) == nil {
				asks := fit.Resources(r)
				pin.asks = &asks
			}
			there := true
			for try := 0; there && pin.unknown && try < lookTries && ctx.Err() == nil; try++ {
				if try > 0 {
					sleep(ctx, lookAgain)
				}
				there = p.lookAt(ctx, c.GetId(), pin)
			}
			if there {
				p.mu.Lock()
				p.live[c.GetId()] = pin
				p.mu.Unlock()
			}
			return nil
		})
	}
	_ = g.Wait()
}

// lookAt fills in what a container runs on, and tells whether it is there.
func (p *placement) lookAt(ctx context.Context, id string, pin *pinned) bool {
	ctx, cancel := context.WithTimeout(ctx, pinTimeout)
	defer cancel()
	st, err := p.runtime.ContainerStatus(ctx, id, false)
	if err != nil {
		if status.Code(err) != codes.NotFound && !errors.Is(err, context.Canceled) {
			p.log.Error("it is not known what a container runs on", zap.String("container", id), zap.Error(err))
		}
		return status.Code(err) != codes.NotFound
	}
	pin.unknown = false
	res := st.GetStatus().GetResources().GetLinux()
	pin.cpus, pin.told = p.cpusOf(res.GetCpusetCpus())
	if mems, err := numa.ParseCPUs(res.GetCpusetMems()); err == nil { // the same format
		for node := range mems.All() {
			if node < numa.MaxNodes {
				pin.mems = pin.mems.With(node)
			}
		}
	}
	return st.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_EXITED
}

// placesMemory tells whether memory is anybody's own.
func (p *placement) placesMemory() bool {
	return p.cfg.MemoryPolicy != "" && p.cfg.MemoryPolicy != memmgr.NoneName
}
