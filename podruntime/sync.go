package podruntime

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podspec"
)

// maxParallel bounds the containers of one pod that are started, killed or
// removed at a time.
const maxParallel = 8

// syncing is the state of one call of Sync.
type syncing struct {
	// Only Sync's own goroutine uses the fields below, except those that mu guards.
	m   *Manager
	req Request
	pod *v1.Pod
	in  podspec.Input // Request.Spec, with the addresses of the sandbox
	obs *observed.Pod // the observation of the pod, changed by what this sync did

	// sandboxID is the sandbox that containers are made in, and sandboxConf its
	// compiled configuration, which the runtime wants repeated for each
	// container.
	sandboxID   string
	sandboxConf *runtimeapi.PodSandboxConfig
	// prefetched has the images that are being pulled, by container name. mu guards the map while
	// containers start.
	prefetched map[string]*imageFuture
	imageErrs  map[string]error // errors of image volumes, by the volume's name; nil for a volume whose image is on the node
	alive      map[string]bool  // containers that could not be killed
	tried      map[string]bool  // containers whose start failed, or has to wait
	held       map[string]error // why containers wait, by name, from the last plan's calls of waits
	broken     []string         // IDs of runs that the observation contradicted

	mu  sync.Mutex // guards obs.Containers and res while containers start
	res Result
}

// Sync changes the pod in the runtime to match its spec: it executes a plan, and plans again
// until the next step depends on time or on an event. Errors are in the result. An error does
// not keep independent actions from being executed.
func (m *Manager) Sync(ctx context.Context, req Request) Result {
	s := &syncing{
		m: m, req: req, pod: req.Spec.Pod, in: req.Spec,
		prefetched: map[string]*imageFuture{}, imageErrs: map[string]error{},
		alive: map[string]bool{}, tried: map[string]bool{}, held: map[string]error{},
	}
	s.obs = copyPod(req.Observed, s.pod)
	m.runs.change(s.pod.UID, func(p *podRuns) {
		p.begin(s.in.Life)
		s.broken = p.learn(s.obs, time.Now())
	})
	// Each round starts at least one container, clears the way for a new
	// beginning, or is the last.
	rounds := len(s.pod.Spec.InitContainers) + len(s.pod.Spec.Containers) + 3
	for range rounds {
		in := m.planInput(req, s.obs)
		in.Waits = s.waits
		if m.cfg.Decide != nil {
			in.Decide = func(k podlife.Knowledge) podlife.Decision {
				return m.cfg.Decide(podlife.Life{UID: s.pod.UID, N: s.in.Life}, k)
			}
		}
		a := Plan(in)
		s.wait(a.Wait)
		// The pod's cgroup may be all that differs: pods can have resources of
		// their own (KEP-5419).
		pool, known := m.poolDiffers(req.Spec, s.obs)
		s.res.Resizes = s.res.Resizes || a.resizes() || known
		if a.Empty() && !pool || !s.round(ctx, a) || ctx.Err() != nil {
			break
		}
		if len(a.Init) == 0 && len(a.Reset) == 0 {
			break // regular containers lead to nothing further
		}
	}
	// One write for all restarts of this sync.
	m.saveLoops(s.pod.UID, time.Now())
	// A pod at rest costs no call: remains are removed only after something was
	// changed.
	if len(s.res.Actions) > 0 && s.res.Changed() && ctx.Err() == nil {
		s.prune(ctx)
	}
	return s.res
}

// copyPod returns a copy of p whose sandboxes and containers the sync may change. If p is nil, the
// copy has the identity of pod and nothing else.
func copyPod(p *observed.Pod, pod *v1.Pod) *observed.Pod {
	if p == nil {
		return &observed.Pod{UID: pod.UID, Name: pod.Name, Namespace: pod.Namespace}
	}
	// A start that was abandoned is no failure of the container: it is planned as
	// one that was never started.
	p = p.Settled()
	c := *p
	c.Sandboxes, c.Containers = slices.Clone(p.Sandboxes), slices.Clone(p.Containers)
	return &c
}

// round executes one plan. more reports that another plan may follow.
func (s *syncing) round(ctx context.Context, a Actions) (more bool) {
	if len(a.Reset) > 0 {
		return s.restartAll(ctx, a.Reset)
	}
	if a.CreateSandbox {
		// What delays the new sandbox delays the end of the old one as well: the
		// pod keeps what runs until it can be replaced.
		if err := s.m.runs.held(s.pod.UID, "", time.Now()); err != nil {
			s.res.add("CreatePodSandbox", s.pod.Name, err)
			return false
		}
		if err := s.checkPreviousSandbox(ctx); err != nil {
			s.res.add("CreatePodSandbox", s.pod.Name, err)
			return false
		}
	}
	if !s.kills(ctx, a) {
		return false
	}
	if a.KillPod && !a.CreateSandbox {
		return false
	}
	s.sandboxID = a.SandboxID
	plan, err := podspec.Sandbox(s.in, a.Attempt)
	if err != nil {
		s.failSandbox(err)
		return false
	}
	s.sandboxConf = plan.Config
	// Pulls that no container waits for any more end with the round.
	pctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if a.CreateSandbox {
		s.warn(plan.Warnings)
		s.prefetch(pctx, a)
		// The pod's cgroup was made for the first sandbox, with the resources of
		// this spec. Later sandboxes are put into a cgroup that may still have
		// older ones.
		first := len(s.obs.Sandboxes) == 0
		if !s.createSandbox(ctx) {
			return false
		}
		if first {
			s.m.madePool(s.in)
		}
	} else {
		s.in.PodIPs = s.obs.IPs()
	}
	return s.starts(ctx, a)
}

// kills ends the sandboxes and containers that the plan ends. It returns false if nothing else of
// the plan may be executed.
func (s *syncing) kills(ctx context.Context, a Actions) bool {
	if a.KillPod {
		// As the kubelet, without an event for the first sandbox, and none where
		// the pod's network mode is what changed.
		if a.CreateSandbox && a.SandboxID != "" && len(s.obs.Sandboxes) > 0 {
			s.m.event(s.pod, v1.EventTypeNormal, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
		}
		// Before a new sandbox the old one is stopped even if it is dead: it may
		// still hold addresses and ports of the pod.
		if s.obs.Runs() != observed.No || (a.CreateSandbox && len(s.obs.Sandboxes) > 0) {
			err := s.killPod(ctx)
			s.res.add("KillPod", s.pod.Name, err)
			if err != nil {
				return false
			}
			s.markStopped("")
		}
		if a.CreateSandbox {
			// In the next round's plan the old instances would count as done.
			s.removeInit(ctx)
		}
		return true
	}
	if len(a.Kill) == 0 {
		return true
	}
	// Side by side: one container with a long grace period must not hold back the
	// others. No turns are kept, as the rest of the pod goes on.
	errs := parallel(a.Kill, func(k Kill) error {
		if err := s.mayStop(k.ID, "container "+k.Name); err != nil {
			return err
		}
		return s.m.killContainer(ctx, s.pod, s.obs, byID(s.obs, k.ID), podlife.Cause{Kind: k.Why}, k.Message, nil)
	})
	for i, k := range a.Kill {
		s.res.add("KillContainer", k.Name, errs[i])
		if errs[i] == nil {
			s.markStopped(k.ID)
			s.waitAfter(k.Name)
			continue
		}
		// It may still run: another instance must not be started beside it.
		s.alive[k.Name] = true
	}
	// Containers other than those still start.
	return true
}

// killPod ends all containers and sandboxes of the pod. If one of them was stopped before and
// still runs, killPod returns an error until the wait before the next stop is over.
func (s *syncing) killPod(ctx context.Context) error {
	for i := range s.obs.Containers {
		if c := &s.obs.Containers[i]; c.State == observed.Running {
			if err := s.mayStop(c.ID, "container "+c.Name); err != nil {
				return err
			}
		}
	}
	for i := range s.obs.Sandboxes {
		if sb := &s.obs.Sandboxes[i]; sb.State == observed.Running {
			if err := s.mayStop(sb.ID, "sandbox "+sb.ID); err != nil {
				return err
			}
		}
	}
	return s.m.Kill(ctx, s.pod, s.obs, nil)
}

// markStopped sets the state of the container id in s.obs to exited, or of all containers and
// sandboxes if id is "", so that this sync can make its next plan. Exit codes are known only from
// the next observation.
func (s *syncing) markStopped(id string) {
	for i := range s.obs.Containers {
		// The crash-loop back-off counts from this end, since the end that the runtime reports is
		// not known yet.
		if c := &s.obs.Containers[i]; (id == "" || c.ID == id) && c.State != observed.Exited {
			c.State, c.FinishedAt = observed.Exited, time.Now()
		}
	}
	for i := range s.obs.Sandboxes {
		if id == "" {
			s.obs.Sandboxes[i].State = observed.Exited
		}
	}
}

// removeInit removes the init containers of earlier sandboxes, so that they run again in the new
// one.
func (s *syncing) removeInit(ctx context.Context) {
	init := map[string]bool{}
	for i := range s.pod.Spec.InitContainers {
		init[s.pod.Spec.InitContainers[i].Name] = true
	}
	// In place: the slice is this sync's own copy.
	kept := s.obs.Containers[:0]
	for _, c := range s.obs.Containers {
		if !init[c.Name] {
			kept = append(kept, c)
			continue
		}
		err := s.m.discard(ctx, s.pod.UID, c.ID)
		if err != nil {
			s.m.cfg.Log.Warn("failed to remove init container of an earlier sandbox", zap.String("container", c.ID), zap.Error(err))
			kept = append(kept, c)
		}
	}
	s.obs.Containers = kept
}

// byID returns the container with that ID, or nil. The result points into p.Containers and is valid
// until that slice changes.
func byID(p *observed.Pod, id string) *observed.Container {
	for i := range p.Containers {
		if p.Containers[i].ID == id {
			return &p.Containers[i]
		}
	}
	return nil
}

// makeLogDir makes the directory of the pod's logs, which the CRI leaves to the agent. The mode is
// the kubelet's and lets log collectors of other users read.
func (s *syncing) makeLogDir(ctx context.Context) error {
	root, dir := s.in.Node.PodLogsDir, podspec.Dir{Path: s.sandboxConf.GetLogDirectory(), Mode: 0o755}
	_, err := onDisk(ctx, &s.m.disk, s.pod.UID, inLogs, func() (struct{}, error) { return struct{}{}, makeDir(root, dir) })
	return err
}

// createSandbox makes a sandbox and reads its addresses. It returns false if that failed.
func (s *syncing) createSandbox(ctx context.Context) bool {
	handler, ownUsers := s.in.RuntimeHandler, s.in.UserNamespace != nil
	// Counted before all that can fail, so that errors never exceed starts.
	s.m.met.startsPod(ownUsers)
	if err := s.makeLogDir(ctx); err != nil {
		s.m.met.failsPod(ownUsers)
		s.failSandbox(err)
		return false
	}
	start := time.Now()
	// The duration covers only the runtime's call. A failed call has one, too.
	id, err := s.runSandbox(ctx, handler)
	s.m.met.sandbox.WithLabelValues(handler).Observe(time.Since(start).Seconds())
	if err != nil && ctx.Err() != nil {
		// Interrupted to make way for the pod's end; nothing failed.
		s.res.add("CreatePodSandbox", s.pod.Name, ctx.Err())
		return false
	}
	if err != nil {
		s.m.met.sandboxErrors.WithLabelValues(handler).Inc()
		s.m.met.failsPod(ownUsers)
		s.failSandbox(err)
		return false
	}
	s.m.runs.change(s.pod.UID, func(p *podRuns) { p.started("", id, time.Now()) })
	s.res.add("CreatePodSandbox", s.pod.Name, nil)
	s.sandboxID = id
	// The sync continues the observation by hand: another look would cost two
	// lists.
	sandbox := observed.Sandbox{
		ID: id, State: observed.Running, Attempt: s.sandboxConf.GetMetadata().GetAttempt(),
		CreatedAt: time.Now(), HostNetwork: s.pod.Spec.HostNetwork,
	}
	if !s.pod.Spec.HostNetwork {
		// A sandbox in the node's network has no addresses of its own.
		st, err := s.m.rt.PodSandboxStatus(ctx, id, false)
		if err != nil {
			if ctx.Err() == nil {
				s.m.event(s.pod, v1.EventTypeWarning, "FailedPodSandBoxStatus", "Unable to get pod sandbox status: %v", err)
			}
			s.res.add("PodSandboxStatus", s.pod.Name, fmt.Errorf("address of the new sandbox: %w", err))
			return false
		}
		// The pod's first address is of the family of the node's first one.
		node := ""
		if len(s.in.Node.IPs) > 0 {
			node = s.in.Node.IPs[0]
		}
		sandbox.IPs, _ = observed.Addresses(cri.AddressesOf(st.GetStatus()), node)
	}
	s.in.PodIPs = sandbox.IPs
	// Newest first, the order of observations.
	s.obs.Sandboxes = append([]observed.Sandbox{sandbox}, s.obs.Sandboxes...)
	return true
}

// runSandbox makes a sandbox and returns its ID. If the runtime says that the name is taken, an
// earlier call made the sandbox and its answer was lost. runSandbox then tries again with another
// attempt number.
func (s *syncing) runSandbox(ctx context.Context, handler string) (string, error) {
	ctx, cancel := lasting(ctx)
	defer cancel()
	var id string
	var err error
	for range 3 {
		id, err = s.m.rt.RunPodSandbox(ctx, s.sandboxConf, handler)
		if err == nil || !strings.Contains(err.Error(), "is reserved for") {
			break
		}
		s.sandboxConf.Metadata.Attempt++
	}
	return id, err
}

// failSandbox reports a sandbox that could not be made, and begins the wait
// before the next try.
func (s *syncing) failSandbox(err error) {
	s.m.causeEvent(s.pod, "", podlife.Cause{Kind: podlife.SandboxFailed, Message: err.Error()})
	err = as(podlife.SandboxFailed, fmt.Errorf("%w: %w", ErrCreateSandbox, err))
	s.res.add("CreatePodSandbox", s.pod.Name, s.m.runs.fail(s.pod.UID, "", err, time.Now()))
}

// starts starts the plan's containers. more reports that an init container was started, so that
// another plan may follow.
func (s *syncing) starts(ctx context.Context, a Actions) (more bool) {
	// Before the first start and for all containers at once: several may mount
	// one volume.
	s.imageVolumes(ctx, a)
	for _, i := range a.Ephemeral {
		// Ephemeral containers do not wait for init: a pod that hangs there is one
		// to look into.
		c := v1.Container(s.pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		_ = s.start(ctx, &c, podspec.Ephemeral) // it is in the result
	}
	// Before other containers start, so that the pod's cgroup has room for them:
	// with cgroup v1 the kernel refuses a container more CPU than its pod has.
	s.resize(ctx, a.Update, len(a.Init)+len(a.Regular) > 0)
	// In the order of the spec. An init container that cannot be started holds
	// back those after it, a sidecar does not.
	for _, i := range a.Init {
		c := &s.pod.Spec.InitContainers[i]
		if s.alive[c.Name] || s.tried[c.Name] {
			if !podmeta.IsSidecar(c) {
				return false
			}
			continue
		}
		if err := s.start(ctx, c, podspec.Init); err != nil {
			s.tried[c.Name] = true
			if !podmeta.IsSidecar(c) {
				return false
			}
			continue
		}
		more = true
	}
	// Containers whose earlier instance may still run, or whose start failed in
	// this sync, are left to the next one.
	var now []*v1.Container
	for _, i := range a.Regular {
		if c := &s.pod.Spec.Containers[i]; !s.alive[c.Name] && !s.tried[c.Name] {
			now = append(now, c)
		}
	}
	for _, some := range upToHooks(now) {
		for i, err := range parallel(some, func(c *v1.Container) error { return s.start(ctx, c, podspec.Regular) }) {
			s.tried[some[i].Name] = err != nil
		}
	}
	return more
}

// upToHooks splits containers into groups that start one after the other. A container with a
// postStart hook ends its group: the containers after it start when the hook has ended. Pods rely
// on that to have a proxy ready before its users.
func upToHooks(cs []*v1.Container) [][]*v1.Container {
	var all [][]*v1.Container
	begin := 0
	for i, c := range cs {
		if last := i == len(cs)-1; last || c.Lifecycle != nil && c.Lifecycle.PostStart != nil {
			all = append(all, cs[begin:i+1])
			begin = i + 1
		}
	}
	return all
}

// imageFuture is the pending result of Images.Ensure for one container.
type imageFuture struct {
	done chan struct{}
	// facts and err are written before done is closed, and read after it.
	facts podspec.ImageFacts
	err   error
}

// warn reports what podspec left out or changed when it made a configuration.
func (s *syncing) warn(warnings []podspec.Problem) {
	for _, w := range warnings {
		s.m.event(s.pod, v1.EventTypeWarning, w.Reason, "%s", w.Detail)
	}
}

// prefetch begins to check and pull images while the sandbox is being made.
func (s *syncing) prefetch(ctx context.Context, a Actions) {
	var cs []*v1.Container
	for _, i := range a.Init {
		cs = append(cs, &s.pod.Spec.InitContainers[i])
	}
	for _, i := range a.Regular {
		cs = append(cs, &s.pod.Spec.Containers[i])
	}
	// Copies: the addresses and the attempt are written while images come.
	in, conf := s.in, proto.Clone(s.sandboxConf).(*runtimeapi.PodSandboxConfig)
	for _, c := range cs {
		f := &imageFuture{done: make(chan struct{})}
		s.prefetched[c.Name] = f
		go func() {
			defer close(f.done)
			f.facts, f.err = s.m.ensure(ctx, in, c, conf)
		}()
	}
}

// ensure blocks until a container's image is on the node, cannot be provided, or ctx ends. conf
// must not change meanwhile.
func (m *Manager) ensure(ctx context.Context, in podspec.Input, c *v1.Container, conf *runtimeapi.PodSandboxConfig) (podspec.ImageFacts, error) {
	return m.cfg.Images.Ensure(ctx, ImageRequest{
		Pod: in.Pod, Container: c.Name, Image: c.Image, Policy: c.ImagePullPolicy, RuntimeHandler: in.RuntimeHandler,
		Sandbox: conf, Secrets: pullSecrets(in),
	})
}

// pullSecrets returns the pod's pull secrets that exist. Missing ones are skipped, as the API
// allows.
func pullSecrets(in podspec.Input) []*v1.Secret {
	var out []*v1.Secret
	for _, ref := range in.Pod.Spec.ImagePullSecrets {
		if s := in.Secrets[ref.Name]; s != nil {
			out = append(out, s)
		}
	}
	return out
}

// image waits for a container's image, which prefetch may have requested already.
func (s *syncing) image(ctx context.Context, c *v1.Container) (podspec.ImageFacts, error) {
	s.mu.Lock()
	// Each is used once: a later start in the same sync asks for the image as it
	// is by then.
	f := s.prefetched[c.Name]
	delete(s.prefetched, c.Name)
	s.mu.Unlock()
	if f == nil {
		return s.m.ensure(ctx, s.in, c, s.sandboxConf)
	}
	// The pull's context ends with the round's, so the wait ends with ctx.
	<-f.done
	return f.facts, f.err
}

// parallel calls fn for every item, several at a time, and returns the errors
// in the items' order.
func parallel[T any](items []T, fn func(T) error) []error {
	errs := make([]error, len(items))
	if len(items) == 1 {
		errs[0] = fn(items[0])
		return errs
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxParallel)
	for i, it := range items {
		slots <- struct{}{}
		// Each call has its own element of errs, so that they need no lock.
		wg.Go(func() {
			defer func() { <-slots }()
			errs[i] = fn(it)
		})
	}
	wg.Wait()
	return errs
}

// started adds a container that was just started to s.obs.
func (s *syncing) started(id string, c *v1.Container, plan *podspec.ContainerPlan, restarts int32) {
	if s.m.cfg.Resizer != nil {
		// What the container was created with is what the next resize starts from.
		for _, name := range resized {
			s.m.runs.give(s.pod.UID, id, name, only(plan.Config.GetLinux().GetResources(), name))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.obs.Containers = append([]observed.Container{{
		ID: id, Name: c.Name, SandboxID: s.sandboxID, State: observed.Running, Attempt: plan.Config.GetMetadata().GetAttempt(),
		CreatedAt: now, StartedAt: now, RestartCount: restarts, Hash: podspec.Hash(c), Image: c.Image,
		Annotations: plan.Config.GetAnnotations(),
	}}, s.obs.Containers...)
}

// result adds the start of a container to the result of the sync. It may be called from any
// goroutine that starts containers.
func (s *syncing) result(target string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.res.add("StartContainer", target, err)
}

// newest returns a copy of the newest instance of a container in s.obs, or nil if there is none.
func (s *syncing) newest(name string) *observed.Container {
	s.mu.Lock()
	defer s.mu.Unlock()
	// A copy: starts of other containers change the slice it is in.
	if c := s.obs.Newest(name); c != nil {
		cc := *c
		return &cc
	}
	return nil
}

// prune removes dead instances and old sandboxes. Of each container it keeps the newest
// Config.KeepDead dead instances. It removes instances that were never started and that a newer one
// replaces, and old sandboxes without a kept container. An instance in an unknown state counts as
// dead: if it is not the newest, the plan has ended it before.
func (s *syncing) prune(ctx context.Context) {
	keep := map[string]bool{}   // sandboxes in use
	dead := map[string]int{}    // by container name
	kept := map[string]string{} // containers kept, to their sandboxes
	newer := map[string]bool{}  // names seen
	var gone []observed.Container
	for _, c := range s.obs.Containers {
		old := false
		switch c.State {
		case observed.Exited, observed.Unknown:
			dead[c.Name]++
			old = s.m.cfg.KeepDead >= 0 && dead[c.Name] > s.m.cfg.KeepDead
		case observed.Created:
			old = newer[c.Name]
		}
		newer[c.Name] = true
		if old {
			gone = append(gone, c)
			continue
		}
		kept[c.ID] = c.SandboxID
	}
	// A sandbox is kept for its dead containers, too: the runtime removes both
	// together.
	for id := range maps.Values(kept) {
		keep[id] = true
	}
	for _, c := range gone {
		if err := s.m.removeContainer(ctx, s.pod.UID, &c); err != nil && !errors.Is(err, context.Canceled) {
			s.m.cfg.Log.Warn("failed to remove dead container", zap.String("container", c.ID), zap.Error(err))
		}
	}
	for i, sb := range s.obs.Sandboxes {
		// The newest sandbox stays in any state: the next one is numbered after it.
		if i == 0 || sb.State == observed.Running || keep[sb.ID] {
			continue
		}
		if err := s.m.rt.RemovePodSandbox(ctx, sb.ID); err != nil && !cri.IsNotFound(err) {
			s.m.cfg.Log.Warn("failed to remove old sandbox", zap.String("sandbox", sb.ID), zap.Error(err))
		}
	}
}
