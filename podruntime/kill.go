package podruntime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podspec"
)

// minGrace is the least time, in seconds, that a container gets between TERM
// and KILL (the kubelet's value).
const minGrace = 2

// Kill stops the containers of a pod, in order, and then its sandboxes. pod is nil if its spec
// is not known; hooks and grace periods then come from the containers' annotations. grace, in
// seconds, overrides the grace period of the spec. Kill returns nil when the runtime has
// confirmed every stop.
//
// StopPodSandbox kills the containers in a sandbox at once. If a container could not be stopped,
// its sandbox is stopped only after the grace period, which begins with the first Kill of the
// pod that reached the runtime.
func (m *Manager) Kill(ctx context.Context, pod *v1.Pod, obs *observed.Pod, grace *int64) error {
	// An instance that was only created, or has ended, needs no grace: it goes
	// with its sandbox. One in an unknown state may run.
	var live []*observed.Container
	for i := range obs.Containers {
		if c := &obs.Containers[i]; c.State.Runs() != observed.No {
			live = append(live, c)
		}
	}
	turns := newTurns(pod, live)
	errs := make([]error, len(live))
	done := make(chan struct{}, len(live))
	for i, c := range live {
		go func() {
			defer func() { done <- struct{}{} }()
			defer turns.ended(c.Name) // also after a failure: the others must go on
			errs[i] = m.killContainer(ctx, pod, obs, c, podlife.Cause{Grace: grace}, "Stopping container "+c.Name, turns)
		}()
	}
	for range live {
		<-done
	}
	// To stop a sandbox is to kill what is in it. While a container could not be
	// stopped and has time left, its sandbox is spared.
	spared := map[string]bool{}
	for i, c := range live {
		p, spec := specOf(pod, c)
		if errs[i] != nil && !m.overdue(obs.UID, c.ID, podlife.Grace(p, spec, podlife.Cause{Grace: grace})) {
			spared[c.SandboxID] = true
		}
	}
	var up []string
	for i := range obs.Sandboxes {
		// One that is not ready may still hold its network: addresses, ports.
		if id := obs.Sandboxes[i].ID; !spared[id] {
			up = append(up, id)
		}
	}
	errs = append(errs, parallel(up, func(id string) error {
		if err := m.rt.StopPodSandbox(ctx, id); err != nil && !cri.IsNotFound(err) {
			return fmt.Errorf("stop sandbox %s: %w", id, err)
		}
		m.runs.change(obs.UID, func(p *podRuns) { p.stopped("", id, time.Now()) })
		return nil
	})...)
	return errors.Join(errs...)
}

// overdue reports whether a container has been ending for longer than its grace period. The grace
// period begins with the first Kill of the container. If each Kill began a new one, a sandbox
// whose containers cannot be stopped would never be stopped.
func (m *Manager) overdue(uid types.UID, id string, grace time.Duration) (late bool) {
	m.runs.see(uid, func(p *podRuns) {
		r := p.byID(id)
		late = r != nil && r.State == ending && time.Since(r.Since) >= grace
	})
	return late
}

// turns orders the end of the containers of a pod with sidecars: each sidecar waits for the regular
// containers and for the sidecars that come after it in the spec.
type turns struct {
	// mu guards left. The other maps are complete when newTurns returns.
	mu   sync.Mutex
	left map[string]int // by container name, the number of instances that have not ended
	// over has a channel for each container that runs. The channel is closed when the container's
	// last instance has ended.
	over map[string]chan struct{}
	// waits has the containers that must end before a sidecar, by the name of the sidecar. Other
	// containers do not wait.
	waits map[string][]string
}

// newTurns derives the order from the spec (KEP-753: sidecars end in reverse order, after the
// regular containers). Without a spec it is not known which containers are sidecars, and all
// containers end at once.
func newTurns(pod *v1.Pod, live []*observed.Container) *turns {
	t := &turns{left: map[string]int{}, over: map[string]chan struct{}{}, waits: map[string][]string{}}
	for _, c := range live {
		t.left[c.Name]++
		if t.over[c.Name] == nil {
			t.over[c.Name] = make(chan struct{})
		}
	}
	if pod == nil {
		return t
	}
	// From the last sidecar to the first, each waits for all names collected so
	// far.
	var before []string
	for i := range pod.Spec.Containers {
		before = append(before, pod.Spec.Containers[i].Name)
	}
	for i := len(pod.Spec.InitContainers) - 1; i >= 0; i-- {
		if c := &pod.Spec.InitContainers[i]; podmeta.IsSidecar(c) {
			t.waits[c.Name] = append([]string(nil), before...)
			before = append(before, c.Name)
		}
	}
	return t
}

// ended records that an instance of the container name has ended, or could not be ended. It is
// called once for each of the live instances.
func (t *turns) ended(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.left[name]--; t.left[name] == 0 {
		close(t.over[name])
	}
}

// await blocks until the containers that must end before the container name have ended, limit has
// passed, or ctx ends.
func (t *turns) await(ctx context.Context, name string, limit time.Duration) {
	// A nil t is for a container that is killed alone.
	if t == nil || len(t.waits[name]) == 0 {
		return
	}
	// One limit for all names together: the sidecar's own grace period goes on
	// meanwhile.
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for _, other := range t.waits[name] {
		over := t.over[other]
		if over == nil {
			continue // does not run
		}
		select {
		case <-over:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// killContainer runs the preStop hook, waits for the containers that end before this one, and
// stops the container, all within its grace period. If t is nil, it waits for no other container.
func (m *Manager) killContainer(ctx context.Context, pod *v1.Pod, obs *observed.Pod, o *observed.Container, cause podlife.Cause, message string, t *turns) error {
	p, c := specOf(pod, o)
	grace := podlife.Grace(p, c, cause)
	m.containerEvent(pod, o.Name, v1.EventTypeNormal, "Killing", "%s", message)
	start := time.Now()
	var before run
	m.runs.change(obs.UID, func(p *podRuns) { before = p.end(o.Name, o.ID, cause.Kind, start) })
	// Hook, turn and stop signal share one grace period, which began with the
	// call.
	left := func() time.Duration { return grace - time.Since(start) }
	// Deferred: a hook that overruns its time goes on until the container is
	// gone, as its command may wait for just that.
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil && grace > 0 {
		defer m.preStop(ctx, pod, obs.IPs(), c, o.ID, grace)()
	}
	if grace > 0 {
		t.await(ctx, o.Name, left())
	}
	// A wait that was cancelled was no turn: to stop a sidecar now would take it
	// from the containers that still use it.
	if err := ctx.Err(); err != nil {
		return err
	}
	// The CRI counts whole seconds. Rounded down, the last part of a second would
	// be a kill at once.
	force := max(int64((left()+time.Second-1)/time.Second), minGrace)
	err := m.rt.StopContainer(ctx, o.ID, force)
	m.runs.change(obs.UID, func(p *podRuns) {
		switch {
		case err == nil, cri.IsNotFound(err):
			err = nil
			p.stopped(o.Name, o.ID, time.Now())
		case cri.IsUnavailable(err):
			p.unheard(before)
		}
	})
	if err != nil {
		return fmt.Errorf("stop container %s: %w", o.Name, err)
	}
	return nil
}

// preStop runs the hook and waits for it as long as the grace period allows. A hook that takes
// longer continues until the caller calls end. The caller does that when the container has
// stopped.
func (m *Manager) preStop(ctx context.Context, pod *v1.Pod, ips []string, c *v1.Container, id string, grace time.Duration) (end func()) {
	// The container itself lasts no longer than its grace and the least time
	// before KILL.
	ctx, cancel := context.WithTimeout(ctx, grace+minGrace*time.Second)
	// Buffered: the hook may end when nobody waits for its error any more.
	failed := make(chan error, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		failed <- m.runHook(ctx, pod, ips, c, id, c.Lifecycle.PreStop)
	}()
	late := time.NewTimer(grace)
	defer late.Stop()
	var err error
	select {
	case err = <-failed:
	case <-late.C:
		err = context.DeadlineExceeded
	}
	// A caller that gave up is no failure of the hook. The event has no details,
	// as the kubelet's: the output of a command goes into the log alone.
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		m.containerEvent(pod, c.Name, v1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
	}
	return func() {
		// The goroutine ends before the container counts as ended: no hook outlives
		// its Kill.
		cancel()
		<-ended
	}
}

// specOf returns the parts of the specs of a pod and of a container that say how the container
// ends: grace periods and hooks. If pod is nil or does not have the container, they are read from
// the annotations of the container, o.
func specOf(pod *v1.Pod, o *observed.Container) (*v1.Pod, *v1.Container) {
	if pod == nil {
		return restoredPod(o), restored(o)
	}
	if c, _, _, err := podspec.Find(pod, o.Name); err == nil {
		return pod, c
	}
	return pod, restored(o) // of an older spec
}

// restoredPod returns a pod with the grace periods that a container's annotations carry.
func restoredPod(o *observed.Container) *v1.Pod {
	period := func(key string) *int64 {
		n, err := strconv.ParseInt(o.Annotations[key], 10, 64)
		if err != nil {
			return nil
		}
		return &n
	}
	pod := &v1.Pod{}
	pod.DeletionGracePeriodSeconds = period(cri.AnnotationPodDeletionGracePeriod)
	pod.Spec.TerminationGracePeriodSeconds = period(cri.AnnotationPodTerminationGracePeriod)
	return pod
}

// maxAnnotation is the largest annotation that is decoded, in bytes. It is the API's limit for all
// annotations of an object together.
const maxAnnotation = 256 << 10

// restored returns a container with the part of the spec that the annotations of o carry.
func restored(o *observed.Container) *v1.Container {
	c := &v1.Container{
		Name: o.Name, Image: o.Image,
		TerminationMessagePath:   o.Annotations[cri.AnnotationTerminationMessagePath],
		TerminationMessagePolicy: v1.TerminationMessagePolicy(o.Annotations[cri.AnnotationTerminationMessagePolicy]),
	}
	var hook v1.LifecycleHandler
	// A hook that cannot be read is left out: the container has to end
	// nevertheless.
	if s := o.Annotations[cri.AnnotationPreStop]; s != "" && len(s) <= maxAnnotation && json.Unmarshal([]byte(s), &hook) == nil {
		c.Lifecycle = &v1.Lifecycle{PreStop: &hook}
	}
	if s := o.Annotations[cri.AnnotationPorts]; s != "" && len(s) <= maxAnnotation {
		_ = json.Unmarshal([]byte(s), &c.Ports) // a port by name is then unknown, which the hook reports
	}
	return c
}

// ErrLeftBehind is returned by [Manager.Remove] if the runtime refuses to remove a container
// that has no process: the runtime was interrupted while it started the container, and no
// longer tracks it. Only a restart of the runtime helps. Callers may treat the pod as gone.
var ErrLeftBehind = errors.New("the runtime lost a container while starting it")

// Remove removes every sandbox, container and log of a pod whose containers have stopped. It
// ignores objects that do not exist. It returns an error if the runtime lists an object again
// whose removal it has confirmed, and ErrLeftBehind if nothing is left but containers that the
// runtime cannot remove.
func (m *Manager) Remove(ctx context.Context, obs *observed.Pod) error {
	var ids []string
	// left is a refusal for what the runtime itself has lost. It is kept apart so
	// that everything else of the pod goes first.
	var left atomic.Pointer[error]
	inSandbox := map[string]bool{}
	for i := range obs.Sandboxes {
		ids = append(ids, obs.Sandboxes[i].ID)
		inSandbox[obs.Sandboxes[i].ID] = true
	}
	// A sandbox takes its containers with it.
	errs := parallel(ids, func(id string) error {
		var inside []string
		lost := false
		for i := range obs.Containers {
			if c := &obs.Containers[i]; c.SandboxID == id {
				inside = append(inside, c.ID)
				lost = lost || c.Abandoned
			}
		}
		err := m.removeOrReap(ctx, func() error { return m.rt.RemovePodSandbox(ctx, id) }, inside...)
		if err != nil {
			err = fmt.Errorf("remove sandbox %s: %w", id, err)
			if lost && cri.IsRefused(err) && ctx.Err() == nil {
				left.Store(&err)
				return nil
			}
			return err
		}
		for _, c := range inside {
			m.cfg.Lifecycle.Removed(c)
		}
		return nil
	})
	for i := range obs.Containers {
		// Its sandbox is gone already, or the runtime did not say which one it was
		// in.
		if c := &obs.Containers[i]; !inSandbox[c.SandboxID] {
			errs = append(errs, m.removeContainer(ctx, obs.UID, c))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	// The runtime has confirmed every removal: if it shows the same again, the
	// next call reports it and its caller slows down.
	if left.Load() == nil {
		if err := m.runs.goes(obs, time.Now()); err != nil {
			return err
		}
	}
	// Clones, as the function may go on for a hanging disk after this call has
	// returned.
	containers, dir := slices.Clone(obs.Containers), m.podLogs(obs)
	_, err := onDisk(ctx, &m.disk, obs.UID, inLogs, func() (struct{}, error) {
		for i := range containers {
			m.unlinkLog(&containers[i])
		}
		if dir == "" {
			return struct{}{}, nil
		}
		return struct{}{}, os.RemoveAll(dir)
	})
	if refusal := left.Load(); err == nil && refusal != nil {
		return fmt.Errorf("%w: %w", ErrLeftBehind, *refusal)
	}
	return err
}

// podLogs returns the directory of a pod's logs, or "" if it has none.
func (m *Manager) podLogs(obs *observed.Pod) string {
	if obs.Name == "" || obs.Namespace == "" {
		return "" // nothing was there, or it was no pod's
	}
	name := obs.Namespace + "_" + obs.Name + "_" + string(obs.UID)
	if strings.ContainsRune(name, filepath.Separator) {
		return "" // whoever labelled it so, these are no logs of ours
	}
	return filepath.Join(m.cfg.PodLogsDir, name)
}

// discard removes a dead container from the runtime.
func (m *Manager) discard(ctx context.Context, uid types.UID, id string) error {
	err := m.removeOrReap(ctx, func() error { return m.rt.RemoveContainer(ctx, id) }, id)
	if err == nil {
		m.runs.see(uid, func(p *podRuns) { p.discarded(id) })
		m.cfg.Lifecycle.Removed(id)
	}
	return err
}

// removeContainer removes a dead container from the runtime, and its logs.
func (m *Manager) removeContainer(ctx context.Context, uid types.UID, c *observed.Container) error {
	err := m.discard(ctx, uid, c.ID)
	if err != nil {
		return fmt.Errorf("remove container %s: %w", c.ID, err)
	}
	return m.removeLogs(ctx, c)
}

// After Config.Reap the removal is repeated up to reapTries, with reapPause between: the
// runtime has to notice first that the processes have exited.
const (
	reapTries = 10
	reapPause = 100 * time.Millisecond
)

// removeOrReap calls remove for dead containers or their sandbox. If the runtime refuses, it kills
// processes that the runtime no longer tracks (Config.Reap) and calls remove again: containerd,
// if it was interrupted while it started a container, reports that container as exited and
// neither stops nor removes it. NotFound is not an error.
func (m *Manager) removeOrReap(ctx context.Context, remove func() error, containers ...string) error {
	err := remove()
	if err == nil || cri.IsNotFound(err) {
		return nil
	}
	if m.cfg.Reap == nil || ctx.Err() != nil {
		return err
	}
	killed := 0
	for _, id := range containers {
		n, rerr := m.cfg.Reap(id)
		if rerr != nil {
			return errors.Join(err, rerr)
		}
		killed += n
	}
	// Nothing of the container ran, so the refusal has another reason. Another
	// request at once would meet the same one.
	if killed == 0 {
		return err
	}
	m.cfg.Log.Warn("killed processes of containers that the runtime could not remove", zap.Strings("containers", containers), zap.Int("processes", killed))
	for range reapTries {
		select {
		case <-ctx.Done():
			return err
		case <-time.After(reapPause):
		}
		if err = remove(); err == nil || cri.IsNotFound(err) {
			return nil
		}
	}
	return err
}

// removeLogs removes a container's log file, the files rotated from it, and the link to it. It does
// so even if ctx has ended, since nothing else removes them before the pod is removed.
func (m *Manager) removeLogs(ctx context.Context, c *observed.Container) error {
	root, path := m.cfg.PodLogsDir, filepath.Clean(c.LogPath)
	if _, err := below(root, path); err != nil {
		return nil //nolint:nilerr // whoever labelled it so, this is no log of ours
	}
	if pod, uid := filepath.Base(filepath.Dir(filepath.Dir(path))), podOf(c); uid != "" && !strings.HasSuffix(pod, "_"+string(uid)) {
		return nil // it is another pod's
	}
	is := *c // c may change when nobody waits any more
	_, err := onDisk(context.WithoutCancel(ctx), &m.disk, podOf(c), inLogs, func() (struct{}, error) {
		m.unlinkLog(&is)
		return struct{}{}, removeRotated(root, path)
	})
	return err
}

// podOf returns the UID of the pod in the container's labels, or "".
func podOf(c *observed.Container) types.UID { return types.UID(c.Labels[cri.LabelPodUID]) }

// removeRotated removes the log at path, which is below root, and the files rotated from it. It
// leaves directories with such names alone. It reads at most maxLogNames names: further files are
// removed with the pod's directory.
func removeRotated(root, path string) error {
	dir, err := openBelow(root, filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	base := filepath.Base(path)
	return dir.RemoveFiles(maxLogNames, func(name string) bool { return name == base || strings.HasPrefix(name, base+".") })
}
