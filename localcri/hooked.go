//go:build linux

package localcri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/localcri/internal/life"
	"github.com/nodewright/nodewright/localcri/internal/ocispec"
)

// hookUpdateTimeout limits an update that hooks request. An update of a container that is being
// started waits for the start.
const hookUpdateTimeout = time.Minute

// hookStage is the last event of an object that its hooks have heard of, in the order of its life.
type hookStage uint8

const (
	untold hookStage = iota // it is being created
	toldLife
	toldEnd
	toldRemoval
)

// toldBefore returns what hooks have heard of an object that is in a phase. What an earlier
// process told is not recorded: Run of the hooks begins with a snapshot.
func toldBefore(p life.Phase) hookStage {
	switch p {
	case life.Making, life.Intent:
		return untold
	case life.Exited, life.Stopping, life.Stopped:
		return toldEnd
	case life.Removing, life.Gone:
		return toldRemoval
	}
	return toldLife
}

// advance reports whether hooks have to hear of an event that belongs to a later part of the
// object's life. An object whose creation they have not heard of has none.
func (t *hookStage) advance(to hookStage) bool {
	if *t == untold || *t >= to {
		return false
	}
	*t = to
	return true
}

// runHooks runs the hooks until ctx ends.
func (r *Runtime) runHooks(ctx context.Context) {
	const timeout = 10 * time.Second
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case <-r.whole:
	case <-t.C: // a monitor that hangs must not keep all other containers from being created
	case <-ctx.Done():
		return
	}
	r.persistFrom(ctx, "hooks failed", "", func(ctx context.Context) error {
		err := r.cfg.Hooks.Run(ctx, hookHost{r})
		if err == nil && ctx.Err() == nil {
			err = errors.New("Run returned before its context ended")
		}
		return err
	})
}

// hookHost implements HookHost.
type hookHost struct{ r *Runtime }

func (h hookHost) Snapshot(context.Context) ([]HookPod, []HookContainer) {
	var pods []HookPod
	var containers []HookContainer
	all := h.r.allPods()
	slices.Reverse(all)
	for _, p := range all {
		select {
		case <-p.known:
		default:
			continue // its state is not known yet
		}
		if !p.settled() {
			continue
		}
		pods = append(pods, p.hookPod())
		for _, c := range p.list() {
			if phase := c.phase(); phase != life.Making && phase != life.Removing && phase != life.Gone {
				containers = append(containers, c.hookContainer(nil))
			}
		}
	}
	return pods, containers
}

func (h hookHost) Update(ctx context.Context, u HookUpdate) error {
	ctx, cancel := context.WithTimeoutCause(ctx, hookUpdateTimeout, fmt.Errorf("the update took longer than %v", hookUpdateTimeout))
	defer cancel()
	c, err := h.r.lookContainer(ctx, u.ContainerID)
	if err != nil {
		return err
	}
	o, err := c.beginUpdate(ctx, proto.CloneOf(u.Resources))
	if err != nil {
		return err
	}
	return o.wait(ctx)
}

func (h hookHost) Inject(ctx context.Context, spec *specs.Spec, names []string) error {
	if h.r.cfg.CDI == nil {
		return errorf(codes.FailedPrecondition, "CDI_devices %.200q: no CDI devices are configured", names)
	}
	return h.r.cfg.CDI.Inject(ctx, spec, names)
}

// updateAll makes the updates that hooks request.
func (r *Runtime) updateAll(ctx context.Context, updates []HookUpdate) error {
	for _, u := range updates {
		err := hookHost{r}.Update(ctx, u)
		if err != nil && !u.IgnoreFailure {
			return fmt.Errorf("update container %.128q as hooks request: %w", u.ContainerID, err)
		}
		if err != nil {
			r.log.Warn("failed to update container as hooks request", zap.String("container", u.ContainerID), zap.Error(err))
		}
	}
	return nil
}

// settled reports whether the sandbox is complete, and is not being removed.
func (p *pod) settled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.life.Phase() != life.Intent && !p.life.Going()
}

func (p *pod) hookPod() HookPod {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := HookPod{ID: p.id, Config: proto.CloneOf(p.config), Handler: p.handler, Netns: p.record.Netns, IPs: slices.Clone(p.record.IPs)}
	read := func(b []byte) *runtimeapi.LinuxContainerResources {
		r := &runtimeapi.LinuxContainerResources{}
		if len(b) == 0 || proto.Unmarshal(b, r) != nil {
			return nil
		}
		return r
	}
	out.Overhead, out.Resources = read(p.record.Overhead), read(p.record.Resources)
	return out
}

// hookContainer returns the container for hooks. If spec is nil, config.json is read.
func (c *container) hookContainer(spec *specs.Spec) HookContainer {
	if spec == nil {
		spec = c.presentSpec()
	}
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	out := HookContainer{PodID: c.pod.id, Config: proto.CloneOf(c.config), Status: proto.CloneOf(c.statusLocked()), Spec: spec}
	if process := c.life.Record().Process; process != nil && c.life.Phase() == life.Running {
		out.PID = process.PID
	}
	return out
}

// presentSpec returns the container's configuration with its present resources, or nil.
func (c *container) presentSpec() *specs.Spec {
	const most = 16 << 20
	b, err := safefile.ReadFile(c.bundle(configFile), most)
	if err != nil {
		return nil
	}
	var spec specs.Spec
	if json.Unmarshal(b, &spec) != nil || spec.Linux == nil || spec.Process == nil {
		return nil
	}
	delete(spec.Annotations, recordAnnotation)
	c.pod.mu.Lock()
	resources := proto.CloneOf(c.resources)
	c.pod.mu.Unlock()
	if machine, err := c.rt().facts.Machine(c.rt().base); err == nil {
		if r, err := ocispec.Resources(resources, machine); err == nil {
			spec.Linux.Resources = ocispec.KeepRest(r, spec.Linux.Resources)
		}
	}
	return &spec
}

// hook tells the hooks of an event of the sandbox.
func (p *pod) hook(ctx context.Context, e HookEvent) error {
	if p.rt.cfg.Hooks == nil {
		return nil
	}
	return p.rt.hook(ctx, e, p.hookPod(), nil)
}

// hook tells the hooks of an event of the container.
func (c *container) hook(ctx context.Context, e HookEvent) error {
	if c.rt().cfg.Hooks == nil {
		return nil
	}
	out := c.hookContainer(nil)
	return c.rt().hook(ctx, e, c.pod.hookPod(), &out)
}

func (r *Runtime) hook(ctx context.Context, e HookEvent, p HookPod, c *HookContainer) error {
	updates, err := r.cfg.Hooks.Event(ctx, e, p, c)
	if err != nil && e.Refusable() {
		return fmt.Errorf("%s: %w", e, err)
	}
	if err != nil {
		id := p.ID
		if c != nil {
			id = c.Status.GetId()
		}
		r.log.Warn("hook failed", zap.String("event", string(e)), zap.String("id", id), zap.Error(err))
	}
	if len(updates) > 0 {
		// The containers to update may wait for an end of this one.
		r.do(func(ctx context.Context) {
			if err := r.updateAll(ctx, updates); err != nil {
				r.log.Warn("failed to update containers as hooks request", zap.String("event", string(e)), zap.Error(err))
			}
		})
	}
	return nil
}

// hookEnd tells the hooks once that the sandbox's containers have ended.
func (p *pod) hookEnd(ctx context.Context) {
	p.mu.Lock()
	tell := p.told.advance(toldEnd)
	p.mu.Unlock()
	if tell {
		_ = p.hook(ctx, HookPodStop)
	}
}

// hookRemoval tells the hooks once that the sandbox is removed.
func (p *pod) hookRemoval(ctx context.Context) {
	p.mu.Lock()
	tell := p.told.advance(toldRemoval)
	p.mu.Unlock()
	if tell {
		_ = p.hook(ctx, HookPodRemove)
	}
}

// hookEnd tells the hooks once that the container has ended.
func (c *container) hookEnd(ctx context.Context) {
	c.pod.mu.Lock()
	tell := c.told.advance(toldEnd)
	c.pod.mu.Unlock()
	if tell {
		_ = c.hook(ctx, HookStop)
	}
}

// hookRemoval tells the hooks once that the container is removed. Of a container whose creation
// failed they hear its end as well.
func (c *container) hookRemoval(ctx context.Context, failed bool) {
	if failed {
		c.hookEnd(ctx)
	}
	c.pod.mu.Lock()
	tell := c.told.advance(toldRemoval)
	c.pod.mu.Unlock()
	if tell {
		_ = c.hook(ctx, HookRemove)
	}
}

// changed asks the hooks how to change the configuration of a container that is being created. It
// returns spec if they do not change it.
func (c *container) changed(ctx context.Context, spec *specs.Spec, in *ocispec.Input) (*specs.Spec, error) {
	r := c.rt()
	if r.cfg.Hooks == nil {
		return spec, nil
	}
	given, err := clone(spec)
	if err != nil {
		return nil, err
	}
	c.pod.mu.Lock()
	c.told = toldLife
	c.pod.mu.Unlock()
	change, err := r.cfg.Hooks.Create(ctx, c.pod.hookPod(), c.hookContainer(given))
	if err != nil {
		return nil, fmt.Errorf("CreateContainer: %w", err)
	}
	if err := r.updateAll(ctx, change.Updates); err != nil {
		return nil, err
	}
	if change.Spec == nil {
		return spec, nil
	}
	refused := func(err error) error {
		return errorf(codes.FailedPrecondition, "%.300s: %s", change.By, shown(err.Error()))
	}
	if err := errors.Join(ocispec.CheckChanged(spec, change.Spec), ocispec.CheckEdited(change.Spec, in.Handler)); err != nil {
		return nil, refused(err)
	}
	if err := c.changeResources(spec, change.Spec, in.Machine); err != nil {
		return nil, refused(err)
	}
	change.Spec.Version = ocispec.LeastVersion(change.Spec)
	return change.Spec, nil
}

// changeResources makes the resources that hooks have changed those of the container, so that
// later updates begin with them.
func (c *container) changeResources(from, to *specs.Spec, m ocispec.Machine) error {
	if reflect.DeepEqual(from.Linux.Resources, to.Linux.Resources) && reflect.DeepEqual(from.Process.OOMScoreAdj, to.Process.OOMScoreAdj) {
		return nil
	}
	changes, err := ocispec.ChangedResources(from.Linux.Resources, to.Linux.Resources)
	if err != nil {
		return err
	}
	if a := to.Process.OOMScoreAdj; a != nil {
		changes.OomScoreAdj = int64(*a)
	}
	c.pod.mu.Lock()
	merged := merge(c.resources, changes)
	c.pod.mu.Unlock()
	resources, err := ocispec.Resources(merged, m)
	if err != nil {
		return err
	}
	b, err := proto.Marshal(merged)
	if err != nil {
		return err
	}
	to.Linux.Resources = ocispec.KeepRest(resources, to.Linux.Resources)
	c.pod.mu.Lock()
	c.resources, c.record.Resources = merged, b
	c.pod.mu.Unlock()
	return nil
}

// clone makes a deep copy of a configuration.
func clone(s *specs.Spec) (*specs.Spec, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	var out specs.Spec
	return &out, json.Unmarshal(b, &out)
}
