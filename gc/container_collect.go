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

// The passes: each reads the state of the runtime and of the disk, has decide.go judge it,
// and removes one thing after the other. Whatever belongs to a pod is taken from the hold
// table before it is removed, so that a pod is not started on top of something that is about
// to go.

// containerRound is one pass under way. It is made by begin, and its holds must be ended, or the
// table would remember every release for ever.
type containerRound struct {
	m         *ContainerCollector
	holds     *hold.Pass[types.UID]
	situation situation
	// removed counts what is gone, of all kinds; removals run side by side.
	removed atomic.Int64

	// mu guards the fields below.
	mu   sync.Mutex
	gone map[string]bool // what was removed, by ID or path
	// errs are the failed removals that failures has not returned yet.
	errs []error
}

// Collect makes a pass over all pods: dead containers, then sandboxes, log
// directories and links. It returns how many things it removed, and what went
// wrong, which stops none of the rest.
func (m *ContainerCollector) Collect(ctx context.Context) (removed int, err error) {
	return m.pass(ctx, false)
}

// Reclaim is Collect that spares nothing of pods that are over, terminated ones included:
// neither Policy.MaxPerContainer nor the newest sandbox counts for them. It is for a node
// that is short of disk space. Policy.MinAge still holds.
func (m *ContainerCollector) Reclaim(ctx context.Context) (removed int, err error) {
	return m.pass(ctx, true)
}

// pass makes a whole pass; all is situation.All. It blocks until every removal has ended or
// run into its deadline. A runtime that cannot be listed does not keep sweep from being
// tried.
func (m *ContainerCollector) pass(ctx context.Context, all bool) (int, error) {
	r := m.begin(all)
	defer r.holds.End()
	err := errors.Join(r.collect(ctx, ""), r.sweep(ctx))
	if err != nil {
		err = fmt.Errorf("containergc: %w", err)
	}
	return int(r.removed.Load()), err
}

// Sweep is the end of Collect: it removes the log directories of pods that are
// gone, and the links to logs that are not there any more. The runtime is asked
// only if there are any.
func (m *ContainerCollector) Sweep(ctx context.Context) (removed int, err error) {
	r := m.begin(false)
	defer r.holds.End()
	if err = r.sweep(ctx); err != nil {
		err = fmt.Errorf("containergc: %w", err)
	}
	return int(r.removed.Load()), err
}

// sweep is the part of a pass that works on the disk. Each of its steps goes on when another
// one has failed; without the list of containers nothing is removed.
func (r *containerRound) sweep(ctx context.Context) error {
	// What is on the disk is listed first: what comes later belongs to
	// containers that are listed then.
	dirs, derr := r.logDirs(ctx)
	links, lerr := r.m.dangling(ctx)
	// Mostly there is nothing, and the runtime is spared two lists.
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

// failures are the removals that failed since the last call. They are handed out once:
// collect and sweep of the same pass each return their own.
func (r *containerRound) failures() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := errors.Join(r.errs...)
	r.errs = nil
	return err
}

// begin opens a pass. The holds come first: what a pod does between here and the lists is
// then known to Take, which refuses a pod that was let go since.
func (m *ContainerCollector) begin(all bool) *containerRound {
	r := &containerRound{m: m, holds: m.holds.Begin(), gone: map[string]bool{}}
	r.situation = situation{All: all, Now: time.Now()}
	// Before all sources have spoken, a pod that nobody has named yet looks deleted. Pods
	// stays nil for the whole pass then, which has every pod count as one that lives.
	if m.cfg.Pods.Ready() {
		r.situation.Pods = m.cfg.Pods.State
	}
	return r
}

// list asks the runtime, for no longer than ContainerConfig.Timeout, about one pod or with "" about
// all.
func (m *ContainerCollector) list(ctx context.Context, pod types.UID) ([]Sandbox, []Container, error) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Timeout)
	defer cancel()
	sandboxes, containers, err := m.cfg.Runtime.List(ctx, pod)
	if err != nil {
		return nil, nil, fmt.Errorf("list containers: %w", err)
	}
	return sandboxes, containers, nil
}

// collect removes the containers and sandboxes of a pod, or with "" of all,
// that are to go.
func (r *containerRound) collect(ctx context.Context, pod types.UID) error {
	sandboxes, containers, err := r.m.list(ctx, pod)
	if err != nil {
		return err
	}
	// The limit over all containers would be compared with those of one pod alone.
	policy := r.m.policy
	if pod != "" {
		policy.MaxContainers = -1 // is not for one pod to tell
	}
	// By pod, so that one that hangs holds up its own removals and no other. Within a pod
	// the oldest instance goes first, as decideContainers orders them: whatever interrupts
	// the pass, the newest stay.
	doomed := map[types.UID][]containerVerdict{}
	ids := map[string]bool{}
	for _, v := range decideContainers(policy, r.situation, containers) {
		if v.Fate == fateRemove {
			doomed[v.Pod] = append(doomed[v.Pod], v)
			ids[v.ID] = true
		}
	}
	each(r.m, doomed, func(uid types.UID) {
		for _, v := range doomed[uid] {
			r.do(ctx, uid, container, v.ID, func(ctx context.Context) error { return r.m.remove(ctx, v) })
		}
	})
	// A sandbox may go in the same pass as its last container. One that could not be removed
	// still counts as there: its sandbox must not be taken from under it. The slice is the
	// runtime's, so a copy is changed.
	containers = slices.DeleteFunc(slices.Clone(containers), func(c Container) bool { return r.gone[c.ID] })
	empty := map[types.UID][]Sandbox{}
	for _, sb := range decideSandboxes(r.situation, sandboxes, containers) {
		empty[sb.Pod] = append(empty[sb.Pod], sb)
	}
	each(r.m, empty, func(uid types.UID) {
		for _, sb := range empty[uid] {
			r.do(ctx, uid, sandbox, sb.ID, func(ctx context.Context) error { return r.m.cfg.Runtime.RemoveSandbox(ctx, sb.ID) })
		}
	})
	maps.DeleteFunc(ids, func(id string, _ bool) bool { return !r.gone[id] })
	return errors.Join(r.failures(), r.unlinkLogsOf(ctx, ids))
}

// each calls f for each pod, for ContainerConfig.Parallel of them at a time, and returns when all
// calls have. The order is that of a map: no pod is always the last.
func each[V any](m *ContainerCollector, pods map[types.UID]V, f func(types.UID)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, m.cfg.Parallel)
	for uid := range pods {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f(uid)
		})
	}
	wg.Wait()
}

// remove removes a container, within the deadline that do has set for both steps.
func (m *ContainerCollector) remove(ctx context.Context, v containerVerdict) error {
	if v.StopFirst {
		if err := m.cfg.Runtime.StopContainer(ctx, v.ID); err != nil {
			// Removed without a stop, its process might go on without anybody who knows of
			// it.
			return fmt.Errorf("stop: %w", err)
		}
	}
	return m.cfg.Runtime.RemoveContainer(ctx, v.Container)
}

// do removes one thing of a pod, unless the pod is held. name is an ID or, of directories, a
// path. A failure is counted and noted, for failures to return. At the end of ctx it does
// nothing, without an error.
func (r *containerRound) do(ctx context.Context, uid types.UID, kind, name string, remove func(context.Context) error) {
	if ctx.Err() != nil {
		return
	}
	done, ok := r.holds.Take(uid)
	if !ok {
		// No failure: the pod is looked at again once it is let go.
		r.m.skip(uid)
		return
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, r.m.cfg.Timeout)
	defer cancel()
	// Until done is called, Hold of this pod waits; the deadline bounds that.
	err := remove(ctx)
	// Still before done: whoever waits in Hold then finds old knowledge of the pod dropped.
	// Directories and links are not part of it.
	if hook := r.m.cfg.Removed; hook != nil && (kind == container || kind == sandbox) {
		hook(uid) // it may be gone whatever the runtime said
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.m.met.failed(kind)
		r.errs = append(r.errs, fmt.Errorf("remove %s %s: %w", kind, name, err))
		return
	}
	r.m.met.removed(kind)
	r.removed.Add(1)
	r.gone[name] = true
	r.m.cfg.Log.Info("removed", zap.String("kind", kind), zap.String("id", name), zap.String("uid", string(uid)))
}

// skip has a pod that is held looked at again when it is not any more. The mark comes before
// the question whether the pod is free: asked the other way round, a release between the two
// would find no mark, and the pod would wait for the next pass over all.
func (m *ContainerCollector) skip(uid types.UID) {
	m.mu.Lock()
	m.skipped[uid] = true
	m.mu.Unlock()
	p := m.holds.Begin()
	free := p.Free(uid)
	p.End()
	if free { // it was let go meanwhile
		m.resume(uid)
	}
}

// resume has a pod that was skipped looked at again. It is called at the end of each hold;
// if another hold of the pod is left, the pod is skipped once more.
func (m *ContainerCollector) resume(uid types.UID) {
	m.mu.Lock()
	again := m.skipped[uid]
	delete(m.skipped, uid)
	m.mu.Unlock()
	if again {
		m.Died(uid)
	}
}

// removeDirs removes the log directories of pods that are gone and have no
// containers any more.
func (r *containerRound) removeDirs(ctx context.Context, dirs map[types.UID][]string, containers []Container) {
	// The directories were listed before the containers, so a pod that came back since has
	// containers here, or is held, or is not deleted any more: its state is asked once more.
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
