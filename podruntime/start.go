package podruntime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/internal/callerror"
	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podspec"
)

// start starts one container and records the outcome.
func (s *syncing) start(ctx context.Context, c *v1.Container, g podspec.Group) error {
	return s.outcome(ctx, c, g, s.startContainer(ctx, c))
}

// waits returns the time until which a container may not be started. kind is the reason: the
// crash-loop back-off after the container's last instance, or the wait after a failed start.
// [Plan] calls it.
func (s *syncing) waits(c *v1.Container, last *observed.Container) (until time.Time, kind podlife.Kind) {
	now := time.Now()
	delete(s.held, c.Name)
	if until, delay := s.m.heldUntil(s.pod, c, last, now); !until.IsZero() {
		s.held[c.Name] = &crashLoopError{name: c.Name, pod: podName(s.pod), delay: delay, until: until}
		return until, podlife.CrashLoop
	}
	if err := s.m.runs.held(s.pod.UID, c.Name, now); err != nil {
		s.held[c.Name] = err
		return err.until, kindOf(err)
	}
	return time.Time{}, ""
}

// wait adds the containers in list, whose start has to wait, to the result of the sync. Each
// container is added once in a sync.
func (s *syncing) wait(list []Wait) {
	for _, w := range list {
		if s.tried[w.Name] {
			continue
		}
		s.tried[w.Name] = true
		err := s.held[w.Name]
		if w.Why == podlife.CrashLoop { // other failures were reported when they happened
			s.m.causeEvent(s.pod, w.Name, podlife.Cause{Kind: podlife.CrashLoop})
			s.m.runs.note(s.pod.UID, w.Name, err)
			err = fmt.Errorf("container %q: %w", w.Name, err)
		}
		s.result(w.Name, err)
	}
}

// waitAfter reports the wait of a container that this sync has just ended. The plan has no such
// wait, since it was made before the end.
func (s *syncing) waitAfter(name string) {
	c, _, _, err := podspec.Find(s.pod, name)
	if err != nil {
		return // of an older spec
	}
	if until, why := s.waits(c, s.obs.Newest(name)); !until.IsZero() {
		s.wait([]Wait{{Name: name, Until: until, Why: why}})
	}
}

// outcome records the outcome of the start of a container: in the metrics, in the errors of
// StartErrors, and in the result of the sync. It returns err with the container's name.
func (s *syncing) outcome(ctx context.Context, c *v1.Container, g podspec.Group, err error) error {
	// The values of the label container_type are the kubelet's, in the order of
	// podspec.Group.
	kind := [...]string{"container", "init_container", "ephemeral_container"}[g]
	switch {
	case errors.As(err, new(*heldError)):
		s.result(c.Name, err)
		return err // it was noted when it happened
	case err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()):
		// Interrupted to make way for the pod's end; nothing failed.
		s.result(c.Name, ctx.Err())
		return err
	default:
		s.m.met.startedContainer(kind, s.imageVolumesOf(c), err)
	}
	// Success is noted too: it ends the reason for which the container was shown
	// as waiting.
	s.m.runs.note(s.pod.UID, c.Name, err)
	if err != nil {
		err = fmt.Errorf("container %q: %w", c.Name, err)
	}
	s.result(c.Name, err)
	return err
}

// startContainer makes a new instance of a container and runs it, its postStart hook included. It
// blocks for as long as images, disks, the runtime and the hook take. Its errors have the reason
// that the container's waiting state shows.
func (s *syncing) startContainer(ctx context.Context, c *v1.Container) error {
	m, pod := s.m, s.pod
	last := s.newest(c.Name)
	// Before the image: a container that may not start yet must not cost a pull.
	if err := s.checkPrevious(ctx, c); err != nil {
		return err
	}
	plan, restarts, err := s.prepareContainer(ctx, c, last)
	if err != nil {
		return err
	}
	// The instance that was never started goes only now: while the steps above
	// fail, it carries the restart count.
	if last != nil && last.State == observed.Created {
		if err := s.replace(ctx, last, plan.Config.GetMetadata()); err != nil {
			return s.failed(ctx, c, last.ID, podlife.CreateFailed, fmt.Errorf("replace container that was never started: %w", err))
		}
	}
	id, err := s.create(ctx, plan)
	if err != nil {
		return s.failed(ctx, c, id, podlife.CreateFailed, err)
	}
	m.runs.change(pod.UID, func(p *podRuns) { p.made(c.Name, id, created, time.Now()) })
	m.containerEvent(pod, c.Name, v1.EventTypeNormal, "Created", "Container created")
	err = s.run(ctx, c.Name, id)
	m.restarted(pod, c, last) // as a start that fails is too
	if err != nil {
		// The container is kept as one that has ended: the restart policy decides
		// whether it is tried again, and the crash-loop back-off when.
		return s.failed(ctx, c, id, podlife.RunFailed, err)
	}
	// From here the runtime has promised that the container runs: an observation
	// that does not show it is a failure, and not a reason to start another at
	// once.
	m.runs.change(pod.UID, func(p *podRuns) { p.started(c.Name, id, time.Now()) })
	m.containerEvent(pod, c.Name, v1.EventTypeNormal, "Started", "Container started")
	s.started(id, c, plan, restarts)
	s.linkLog(ctx, id, c.Name, plan.Config.GetLogPath())
	return s.postStart(ctx, c, id)
}

// prepareContainer gets the image of a container and makes what the runtime needs to create it. It
// also returns the restart count. last is the newest instance, which may be nil.
func (s *syncing) prepareContainer(ctx context.Context, c *v1.Container, last *observed.Container) (*podspec.ContainerPlan, int32, error) {
	m, pod := s.m, s.pod
	// The image comes before the configuration, which takes the user from it
	// where the spec names none.
	facts, err := s.image(ctx, c)
	if err == nil {
		err = s.imageVolumeErr(c)
	}
	if err != nil {
		err = newImageError(err, time.Now())
		// A pull that was interrupted for the pod's end is no failure to tell users
		// of.
		if ctx.Err() == nil {
			m.causeEvent(pod, c.Name, causeOf(err))
		}
		return nil, 0, err
	}
	restarts, err := m.restartCount(ctx, s.in, c, last)
	if err != nil {
		return nil, 0, s.failed(ctx, c, "", podlife.CreateFailed, err)
	}
	plan, err := s.compile(ctx, c, podspec.ContainerOptions{
		RestartCount: restarts, Image: facts, TargetID: s.target(c.Name),
	})
	if err != nil {
		return nil, 0, s.failed(ctx, c, "", podlife.ConfigFailed, err)
	}
	s.warn(plan.Warnings)
	// The instance's name in the runtime is made from Attempt, which must be new
	// even where the restart count is not: the runtime refuses a name that it
	// knows.
	plan.Config.Metadata.Attempt = attemptAfter(plan.Config.GetMetadata().GetAttempt(), last)
	// The runtime mounts these files and parts of volumes when it creates the
	// container: it makes a directory of each that is missing, or fails.
	if err := s.materialize(ctx, plan); err != nil {
		return nil, 0, s.failed(ctx, c, "", podlife.ConfigFailed, err)
	}
	if err := s.subPaths(ctx, c, plan); err != nil {
		return nil, 0, s.failed(ctx, c, "", podlife.ConfigFailed, err)
	}
	return plan, restarts, nil
}

// postStart runs the postStart hook of a container, if it has one. The hook runs beside the
// container's own process, which may not be ready: Kubernetes promises no order between them. If
// the hook fails, the container is killed.
func (s *syncing) postStart(ctx context.Context, c *v1.Container, id string) error {
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return nil
	}
	m, pod := s.m, s.pod
	err := m.runHook(ctx, pod, s.in.PodIPs, c, id, c.Lifecycle.PostStart)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	why := podlife.Cause{Kind: podlife.HookFailed}
	m.causeEvent(pod, c.Name, why)
	// The hook's error is the one to show. If the kill fails, the next
	// observation shows a container that runs, which is kept.
	_ = m.killContainer(ctx, pod, &observed.Pod{UID: pod.UID, Sandboxes: []observed.Sandbox{{IPs: s.in.PodIPs}}}, &observed.Container{ID: id, Name: c.Name, State: observed.Running},
		why, "FailedPostStartHook", nil)
	return as(podlife.HookFailed, err)
}

// replace removes last, a container that was never started and whose configuration may be out of
// date. next is the metadata of the container that takes its place. If the start of last was
// interrupted and the runtime refuses to remove it, replace leaves it to later tries, and sets
// next.Attempt to a higher number than last.Attempt.
func (s *syncing) replace(ctx context.Context, last *observed.Container, next *runtimeapi.ContainerMetadata) error {
	// Its log goes first: without the container it would count as a restart.
	if err := s.m.removeLogs(ctx, last); err != nil {
		return err
	}
	err := s.m.removeContainer(ctx, s.pod.UID, last)
	switch {
	case err == nil:
		s.drop(last.ID)
	case refusedAbandoned(ctx, err, last) && last.Attempt < math.MaxUint32:
		s.m.cfg.Log.Warn("runtime refuses to remove a container whose start was interrupted; creating the next one",
			zap.String("container", last.ID), zap.Error(err))
		// The runtime still reserves the name of the lost one.
		next.Attempt = max(next.GetAttempt(), last.Attempt+1)
	default:
		return err
	}
	return nil
}

// refusedAbandoned reports whether err is the runtime's refusal to remove c because the start of c
// was interrupted. containerd 2.4 loses track of the task of such a container until containerd
// restarts.
func refusedAbandoned(ctx context.Context, err error, c *observed.Container) bool {
	return c.Abandoned && cri.IsRefused(err) && ctx.Err() == nil
}

// crashLoop returns an error while the crash-loop back-off delays the restart of a container that
// has ended.
func (s *syncing) crashLoop(c *v1.Container, last *observed.Container) error {
	until, delay := s.m.heldUntil(s.pod, c, last, time.Now())
	if until.IsZero() {
		return nil
	}
	s.m.causeEvent(s.pod, c.Name, podlife.Cause{Kind: podlife.CrashLoop})
	return &crashLoopError{name: c.Name, pod: podName(s.pod), delay: delay, until: until}
}

// create makes the container. If the runtime says that the name is taken, an earlier call made
// the container and its answer was lost, or a removal failed. create then tries again with
// another attempt number.
func (s *syncing) create(ctx context.Context, plan *podspec.ContainerPlan) (id string, err error) {
	created, err := s.m.cfg.Lifecycle.Creating(ctx, s.pod, plan.Config.GetMetadata().GetName(), plan.Config)
	if err != nil {
		return "", err
	}
	// Deferred: the callback hears once, of the last try, with the values that
	// are returned.
	if created != nil {
		defer func() { created(id, err) }()
	}
	ctx, cancel := lasting(ctx)
	defer cancel()
	// These are containerd's words; the CRI has no code of its own for a reserved
	// name.
	for range 3 {
		id, err = s.m.rt.CreateContainer(ctx, s.sandboxID, plan.Config, s.sandboxConf)
		if err == nil || !strings.Contains(err.Error(), "is reserved for") {
			break
		}
		plan.Config.Metadata.Attempt++
	}
	return id, err
}

// run calls StartContainer for the container id and, after a success, Lifecycle.Started.
func (s *syncing) run(ctx context.Context, name, id string) error {
	ctx, cancel := lasting(ctx)
	defer cancel()
	err := s.m.rt.StartContainer(ctx, id)
	if err == nil {
		s.m.cfg.Lifecycle.Started(s.pod, name, id)
	}
	return err
}

// finishing is the time that a call of the runtime that makes something gets after its caller's
// context has ended. A runtime that is interrupted may leave a half-made container, which counts
// as failed, or a cgroup without a container. A runtime that hangs delays the end of a sync by at
// most finishing.
const finishing = 5 * time.Second

// lasting returns a context that ends finishing later than ctx.
func lasting(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	// Nothing ends the call before its caller gives up: only then does the timer
	// start. It is stopped when the call returns first.
	stop := context.AfterFunc(ctx, func() {
		t := time.AfterFunc(finishing, cancel)
		context.AfterFunc(longer, func() { t.Stop() })
	})
	return longer, func() { stop(); cancel() }
}

// attemptAfter returns the attempt number of a container's next instance. It is the restart count,
// or the attempt number of the instance last + 1 if that is higher, since attempt numbers order
// instances. If last was never started, its number is used again after its removal.
func attemptAfter(restarts uint32, last *observed.Container) uint32 {
	switch {
	case last == nil || last.Attempt == math.MaxUint32:
		return restarts
	case last.State == observed.Created:
		return max(restarts, last.Attempt)
	default:
		return max(restarts, last.Attempt+1)
	}
}

// drop removes a container from s.obs, from which this sync makes its plans. The runtime has
// already removed it.
func (s *syncing) drop(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.obs.Containers {
		if s.obs.Containers[i].ID == id {
			s.obs.Containers = append(s.obs.Containers[:i:i], s.obs.Containers[i+1:]...)
			return
		}
	}
}

// failed reports an event for a start that failed, begins the wait before the next try, and returns
// err with the reason of kind. If ctx has ended, the start was interrupted, and failed only returns
// ctx.Err(). In the event's text the container's name replaces its ID id, so that the events of all
// instances are counted as one. id is "" if the container has none yet.
func (s *syncing) failed(ctx context.Context, c *v1.Container, id string, kind podlife.Kind, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	message := callerror.Shown(err)
	if id != "" {
		message = strings.ReplaceAll(message, id, c.Name)
	}
	s.m.causeEvent(s.pod, c.Name, podlife.Cause{Kind: kind, Message: message})
	return s.m.runs.fail(s.pod.UID, c.Name, as(kind, err), time.Now())
}

// podName returns the name of a pod in the kubelet's messages: name_namespace(UID).
func podName(pod *v1.Pod) string { return pod.Name + "_" + pod.Namespace + "(" + string(pod.UID) + ")" }

// imageVolumesOf counts the image volumes that a container mounts.
func (s *syncing) imageVolumesOf(c *v1.Container) int {
	n := 0
	for i := range s.pod.Spec.Volumes {
		v := &s.pod.Spec.Volumes[i]
		// A volume counts once, however many mounts of the container name it.
		if v.Image != nil && slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == v.Name }) {
			n++
		}
	}
	return n
}

// target returns the ID of the newest instance of the target of the ephemeral container name. It
// returns "" if there is no target, or if the target has no instance: the ephemeral container then
// sees its own processes only.
func (s *syncing) target(name string) string {
	for i := range s.pod.Spec.EphemeralContainers {
		if e := &s.pod.Spec.EphemeralContainers[i]; e.Name == name && e.TargetContainerName != "" {
			if c := s.newest(e.TargetContainerName); c != nil {
				return c.ID
			}
		}
	}
	return ""
}

// compile makes the runtime's configuration of a container. It waits at most fileTimeout for all
// files in volumes that have values of environment variables.
func (s *syncing) compile(ctx context.Context, c *v1.Container, o podspec.ContainerOptions) (*podspec.ContainerPlan, error) {
	in := s.in
	// A reader that the caller gave has limits of its own.
	if in.ReadFile == nil {
		ctx, cancel := context.WithTimeoutCause(ctx, fileTimeout, fmt.Errorf("%s did not answer within %v", inVolumes, fileTimeout))
		defer cancel()
		in.ReadFile = func(dir, path string) ([]byte, error) {
			return onDisk(ctx, &s.m.disk, s.pod.UID, inVolumes, func() ([]byte, error) { return readVolumeFile(dir, path) })
		}
	}
	return podspec.Container(in, c.Name, o)
}

// restartCount returns the restart count of the next instance: the count of the previous
// instance, last, plus one. If the runtime has no instance, the names of the remaining log files
// give the count.
func (m *Manager) restartCount(ctx context.Context, in podspec.Input, c *v1.Container, last *observed.Container) (int32, error) {
	switch {
	// An instance that was never started did not count as a restart, and its
	// successor takes over its number.
	case last != nil && last.State == observed.Created:
		return last.RestartCount, nil
	case last != nil:
		return following(last.RestartCount), nil
	}
	// Where the runtime has no instance any more, as after garbage collection,
	// only the names of log files know the count. A number that is used twice
	// would mix two instances in one log.
	logs, dir := m.cfg.PodLogsDir, filepath.Join(podspec.LogDirectory(m.cfg.PodLogsDir, in.Pod), c.Name)
	return onDisk(ctx, &m.disk, in.Pod.UID, inLogs, func() (int32, error) { return countLogs(logs, dir) })
}

// countLogs returns the highest number of the log files in a directory plus one, or 0 if there
// are none.
func countLogs(logsDir, dir string) (int32, error) {
	held, err := openBelow(logsDir, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = held.Close() }()
	// A pod that mounts the directory can put any number of files there. Those
	// that were read count: too many of them must not keep the container from
	// starting.
	entries, err := held.Entries(maxLogNames)
	if err != nil && !errors.Is(err, safefile.ErrTooMany) {
		return 0, err
	}
	count := int32(0)
	for _, e := range entries {
		if n, ok := logNumber(e); ok {
			count = max(count, following(n))
		}
	}
	return count, nil
}

// openBelow opens the directory at path, which is below root. It follows no link below root, since
// pods can put links there.
func openBelow(root, path string) (*safefile.Dir, error) {
	rel, err := below(root, path)
	if err != nil {
		return nil, err
	}
	return safefile.OpenDir(root, rel)
}

// following returns n+1, or n if n is the largest int32.
func following(n int32) int32 { return max(n, n+1) }

// logNumber returns N of a log file named N.log or N.log.*. It returns false for other names.
func logNumber(e fs.DirEntry) (int32, bool) {
	number, rest, ok := strings.Cut(e.Name(), ".")
	if !ok || e.IsDir() || (rest != "log" && !strings.HasPrefix(rest, "log.")) {
		return 0, false
	}
	n, err := strconv.ParseInt(number, 10, 32)
	return int32(n), err == nil && n >= 0
}
