package gc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/gc/internal/hold"
)

// The passes. Each reads the state of the runtime and of the disk, decides
// (container_decide.go), and removes one item after the other. Before an item of a pod is
// removed it is taken in the hold table, so that no sync starts to use it.

// Kinds of removed items: words in the log.
const (
	container    = "container"
	sandbox      = "sandbox"
	logDirectory = "log_directory"
)

// containerRound is one pass, created by begin. The caller has to end its holds; otherwise the
// hold table keeps every release for ever.
type containerRound struct {
	m         *ContainerCollector
	holds     *hold.Pass[types.UID]
	situation situation
	// removed counts the removed items of all kinds.
	removed atomic.Int64

	// mu guards the fields below.
	mu   sync.Mutex
	gone map[string]bool // removed items, by ID or path
	// errs has errors of removals that failures has not returned yet.
	errs []error
}

// Collect makes a pass over all pods: dead containers, then sandboxes, log directories and
// links. It returns the number of removed items, and the joined errors; an error does not stop
// the pass.
func (m *ContainerCollector) Collect(ctx context.Context) (removed int, err error) {
	return m.pass(ctx, false)
}

// Reclaim makes a pass like Collect, for a node that is short of disk space. It also removes all
// dead containers and sandboxes of terminated pods, regardless of Policy.MaxPerContainer.
// Policy.MinAge still applies.
func (m *ContainerCollector) Reclaim(ctx context.Context) (removed int, err error) {
	return m.pass(ctx, true)
}

// pass makes a pass over all pods. The argument all is the value of situation.All. It blocks until
// every removal has ended or timed out. It calls sweep even if the runtime cannot be listed.
func (m *ContainerCollector) pass(ctx context.Context, all bool) (int, error) {
	r := m.begin(all)
	defer r.holds.End()
	err := errors.Join(r.collect(ctx, ""), r.sweep(ctx))
	if err != nil {
		err = fmt.Errorf("containergc: %w", err)
	}
	return int(r.removed.Load()), err
}

// Sweep is the last part of Collect: it removes the log directories of deleted pods, and links
// to missing logs. It calls the runtime only if there are any.
func (m *ContainerCollector) Sweep(ctx context.Context) (removed int, err error) {
	r := m.begin(false)
	defer r.holds.End()
	if err = r.sweep(ctx); err != nil {
		err = fmt.Errorf("containergc: %w", err)
	}
	return int(r.removed.Load()), err
}

// sweep is the part of a pass that works on the disk. It continues after the error of a step;
// without the list of containers it removes nothing.
func (r *containerRound) sweep(ctx context.Context) error {
	// The disk is listed first: later directories and links belong to containers that are listed
	// then.
	dirs, derr := r.logDirs(ctx)
	links, lerr := r.m.dangling(ctx)
	// Mostly there is nothing to remove, which saves two lists of the runtime.
	if len(dirs)+len(links) == 0 {
		return errors.Join(derr, lerr)
	}
	_, containers, err := r.m.list(ctx, "")
	if err != nil {
		return errors.Join(derr, lerr, err)
	}
	r.removeDirs(ctx, dirs, containers)
	n, err := r.m.removeLinks(ctx, links, containers)
	r.removed.Add(int64(n))
	return errors.Join(derr, lerr, err, r.failures())
}

// failures returns the errors of removals since its last call. So collect and sweep return only
// the errors of their own removals.
func (r *containerRound) failures() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := errors.Join(r.errs...)
	r.errs = nil
	return err
}

// begin returns a new pass. It calls Begin of the hold table before the lists are read, so that
// Take refuses pods that were held since then.
func (m *ContainerCollector) begin(all bool) *containerRound {
	r := &containerRound{m: m, holds: m.holds.Begin(), gone: map[string]bool{}}
	r.situation = situation{All: all, Now: time.Now()}
	// Until all sources have delivered, an unknown pod looks deleted. Pods stays nil for this
	// pass then, so that every pod counts as live.
	if m.cfg.Pods.Ready() {
		r.situation.Pods = m.cfg.Pods.State
	}
	return r
}

// list calls Runtime.List for one pod, or for all pods if pod is "", within
// callTimeout.
func (m *ContainerCollector) list(ctx context.Context, pod types.UID) ([]Sandbox, []Container, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	sandboxes, containers, err := m.cfg.Runtime.List(ctx, pod)
	if err != nil {
		return nil, nil, fmt.Errorf("list containers: %w", err)
	}
	return sandboxes, containers, nil
}

// collect decides on the containers and sandboxes of a pod, or of all pods if pod is "", and
// removes them.
func (r *containerRound) collect(ctx context.Context, pod types.UID) error {
	sandboxes, containers, err := r.m.list(ctx, pod)
	if err != nil {
		return err
	}
	// The limit over all containers cannot be applied to one pod.
	policy := r.m.policy
	if pod != "" {
		policy.MaxContainers = -1
	}
	// By pod, so that a hung removal delays only its pod. Within a pod the oldest instance is
	// removed first, so that the newest stay if the pass is interrupted.
	toRemove := map[types.UID][]judgedContainer{}
	ids := map[string]bool{}
	for _, v := range decideContainers(policy, r.situation, containers) {
		if v.Verdict == containerRemove {
			toRemove[v.Pod] = append(toRemove[v.Pod], v)
			ids[v.ID] = true
		}
	}
	each(toRemove, func(uid types.UID) {
		for _, v := range toRemove[uid] {
			r.do(ctx, uid, container, v.ID, func(ctx context.Context) error { return r.m.remove(ctx, v) })
		}
	})
	// A sandbox may be removed in the same pass as its last container, but not if a container
	// could not be removed. The slice belongs to the runtime, so a copy is changed.
	containers = slices.DeleteFunc(slices.Clone(containers), func(c Container) bool { return r.gone[c.ID] })
	empty := map[types.UID][]Sandbox{}
	for _, sb := range decideSandboxes(r.situation, sandboxes, containers) {
		empty[sb.Pod] = append(empty[sb.Pod], sb)
	}
	each(empty, func(uid types.UID) {
		for _, sb := range empty[uid] {
			r.do(ctx, uid, sandbox, sb.ID, func(ctx context.Context) error { return r.m.cfg.Runtime.RemoveSandbox(ctx, sb.ID) })
		}
	})
	maps.DeleteFunc(ids, func(id string, _ bool) bool { return !r.gone[id] })
	return errors.Join(r.failures(), r.unlinkLogsOf(ctx, ids))
}

// each calls f for every pod, at most containerParallel at a time, in random order, and
// waits for all calls.
func each[V any](pods map[types.UID]V, f func(types.UID)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, containerParallel)
	for uid := range pods {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f(uid)
		})
	}
	wg.Wait()
}

// remove stops a container if needed, and removes it.
func (m *ContainerCollector) remove(ctx context.Context, v judgedContainer) error {
	if v.StopFirst {
		if err := m.cfg.Runtime.StopContainer(ctx, v.ID); err != nil {
			// Without a stop, its process could continue unnoticed.
			return fmt.Errorf("stop container: %w", err)
		}
	}
	return m.cfg.Runtime.RemoveContainer(ctx, v.Container)
}

// do removes one item of a pod, unless the pod is held. name is an ID or a path. An error is
// counted and stored for failures. Once ctx has ended it does nothing.
func (r *containerRound) do(ctx context.Context, uid types.UID, kind, name string, remove func(context.Context) error) {
	if ctx.Err() != nil {
		return
	}
	done, ok := r.holds.Take(uid)
	if !ok {
		// No error: a pass over the pod follows its release.
		r.m.skip(uid)
		return
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	// Hold of this pod waits until done is called.
	err := remove(ctx)
	// Before done, so that a caller of Hold does not use an old observation of the pod.
	if hook := r.m.cfg.Removed; hook != nil && (kind == container || kind == sandbox) {
		hook(uid) // also after an error: the item may be gone
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.errs = append(r.errs, fmt.Errorf("remove %s %s: %w", kind, name, err))
		return
	}
	r.removed.Add(1)
	r.gone[name] = true
	r.m.cfg.Log.Info("removed unused item of pod", zap.String("kind", kind), zap.String("id", name), zap.String("uid", string(uid)))
}

// skip schedules a pass over a held pod after its release. It marks the pod before it checks
// whether the pod is free, so that a release in between finds the mark.
func (m *ContainerCollector) skip(uid types.UID) {
	m.mu.Lock()
	m.skipped[uid] = true
	m.mu.Unlock()
	p := m.holds.Begin()
	free := p.Free(uid)
	p.End()
	if free { // it was released meanwhile
		m.resume(uid)
	}
}

// resume schedules a pass over a skipped pod. It is called at the end of each hold. If another
// hold is left, the pod is skipped again.
func (m *ContainerCollector) resume(uid types.UID) {
	m.mu.Lock()
	again := m.skipped[uid]
	delete(m.skipped, uid)
	m.mu.Unlock()
	if again {
		m.Died(uid)
	}
}

// removeDirs removes the log directories of deleted pods without containers.
func (r *containerRound) removeDirs(ctx context.Context, dirs map[types.UID][]string, containers []Container) {
	// The directories were listed before the containers: a pod that came back since has
	// containers, is held, or is not Deleted any more. So its state is read again.
	has := make(map[types.UID]bool, len(containers))
	for i := range containers {
		has[containers[i].Pod] = true
	}
	for uid, paths := range dirs {
		if has[uid] || r.situation.pod(uid) != Deleted {
			continue
		}
		for _, path := range paths {
			r.do(ctx, uid, logDirectory, path, func(ctx context.Context) error { return r.m.removeDir(ctx, path) })
		}
	}
}
