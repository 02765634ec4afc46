package podruntime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podspec"
)

// start starts one container and notes how that went.
func (s *syncing) start(ctx context.Context, c *v1.Container, g podspec.Group) error {
	err := s.startContainer(ctx, c)
	kind := [...]string{"container", "init_container", "ephemeral_container"}[g]
	switch {
	case errors.As(err, new(*heldError)):
		s.result("StartContainer", c.Name, err)
		return err // it was noted when it happened
	case err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()):
		// Interrupted to make way for the pod's end; nothing failed.
		s.result("StartContainer", c.Name, ctx.Err())
		return err
	case !errors.As(err, new(*crashLoopError)):
		s.m.met.startedContainer(kind, s.imageVolumesOf(c), err)
	}
	if err != nil {
		err = fmt.Errorf("container %q: %w", c.Name, err)
	}
	s.m.noteStart(s.pod.UID, c.Name, err)
	s.result("StartContainer", c.Name, err)
	return err
}

func (s *syncing) startContainer(ctx context.Context, c *v1.Container) error {
	m, pod := s.m, s.pod
	last := s.newest(c.Name)
	if err := s.crashLoop(c, last); err != nil {
		return err
	}
	if err := m.tries.held(pod.UID, c.Name, time.Now()); err != nil {
		return err
	}
	facts, err := s.image(ctx, c)
	if err == nil {
		err = s.imageVolumeErr(c)
	}
	if err != nil {
		return newImageError(err, time.Now())
	}
	restarts := m.restartCount(s.in, c, last)
	plan, err := podspec.Container(s.in, c.Name, podspec.ContainerOptions{
		RestartCount: restarts, Image: facts, TargetID: s.target(c.Name),
	})
	if err != nil {
		return s.failed(ctx, c, "", ReasonContainerConfig, err)
	}
	s.warn(plan.Warnings)
	if err := materialize(plan); err != nil {
		return s.failed(ctx, c, "", ReasonContainerConfig, err)
	}
	if err := s.subPaths(ctx, c, plan); err != nil {
		return s.failed(ctx, c, "", ReasonContainerConfig, err)
	}
	if last != nil && last.State == observed.Created {
		// An earlier sync got no further. Its configuration may be old. Its
		// log goes first: without the container it would count as a restart.
		err := m.removeLogs(last)
		if err == nil {
			err = m.removeContainer(ctx, last)
		}
		if err != nil {
			return s.failed(ctx, c, last.ID, ReasonCreateContainer, fmt.Errorf("replace container that was never started: %w", err))
		}
		s.drop(last.ID)
	}
	id, err := s.create(ctx, plan)
	if err != nil {
		return s.failed(ctx, c, id, ReasonCreateContainer, err)
	}
	m.event(pod, v1.EventTypeNormal, "Created", "Container created")
	err = s.run(ctx, id)
	m.crash.restarted(pod, c, last) // as a start that fails is too
	if err != nil {
		// It stays, as one that has ended: whether it is tried again is for
		// the restart policy to say, and when for the crash-loop back-off.
		return s.failed(ctx, c, id, ReasonRunContainer, err)
	}
	_ = m.tries.note(pod.UID, c.Name, nil, time.Now())
	m.event(pod, v1.EventTypeNormal, "Started", "Container started")
	s.started(id, c, plan, restarts)
	s.linkLog(id, c.Name, plan.Config.GetLogPath())
	if c.Lifecycle != nil && c.Lifecycle.PostStart != nil {
		if err := m.runHook(ctx, pod, s.in.PodIPs, c, id, c.Lifecycle.PostStart); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			m.event(pod, v1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed")
			_ = m.killContainer(ctx, pod, s.in.PodIPs, &observed.Container{ID: id, Name: c.Name, State: observed.Running},
				KillHook, "FailedPostStartHook", nil, nil)
			return &reasonError{ReasonPostStart, err}
		}
	}
	return nil
}

// crashLoop tells whether a container that ended, ended too often to be started
// again now.
func (s *syncing) crashLoop(c *v1.Container, last *observed.Container) error {
	until, delay := s.m.crash.heldUntil(s.pod, c, last, time.Now())
	if until.IsZero() {
		return nil
	}
	s.m.event(s.pod, v1.EventTypeWarning, "BackOff", "Back-off restarting failed container %s in pod %s", c.Name, podName(s.pod))
	return &crashLoopError{name: c.Name, pod: podName(s.pod), delay: delay, until: until}
}

// create makes the container. A name that is taken belongs to a call whose
// answer nobody heard, or to a container that did not go; the next attempt
// has another name.
func (s *syncing) create(ctx context.Context, plan *podspec.ContainerPlan) (string, error) {
	ctx, cancel := lasting(ctx)
	defer cancel()
	var id string
	var err error
	for range 3 {
		id, err = s.m.rt.CreateContainer(ctx, s.sandboxID, plan.Config, s.sandboxConf)
		if err == nil || !strings.Contains(err.Error(), "is reserved for") {
			break
		}
		plan.Config.Metadata.Attempt++
	}
	return id, err
}

// run starts a container that was made.
func (s *syncing) run(ctx context.Context, id string) error {
	ctx, cancel := lasting(ctx)
	defer cancel()
	return s.m.rt.StartContainer(ctx, id)
}

// finishing is how long a call that makes something goes on after its caller
// gave up. What a runtime is interrupted at it may leave half made: a container
// that counts as failed, a cgroup of nobody. The next step waits no longer
// than that for a runtime that hangs.
const finishing = 5 * time.Second

// lasting returns a context that ends a while after ctx.
func lasting(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		t := time.AfterFunc(finishing, cancel)
		context.AfterFunc(longer, func() { t.Stop() })
	})
	return longer, func() { stop(); cancel() }
}

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

// failed tells of a start that failed, and names it. One that was interrupted
// did not fail. id is the container's, or "" if there is none yet: the event has
// its name instead, so that those of all instances are one.
func (s *syncing) failed(ctx context.Context, c *v1.Container, id, reason string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	message := err.Error()
	if id != "" {
		message = strings.ReplaceAll(message, id, c.Name)
	}
	s.m.event(s.pod, v1.EventTypeWarning, "Failed", "Error: %s", message)
	return s.m.tries.note(s.pod.UID, c.Name, &reasonError{reason, err}, time.Now())
}

func podName(pod *v1.Pod) string { return pod.Name + "_" + pod.Namespace + "(" + string(pod.UID) + ")" }

// imageVolumesOf counts the image volumes that a container mounts.
func (s *syncing) imageVolumesOf(c *v1.Container) int {
	n := 0
	for i := range s.pod.Spec.Volumes {
		v := &s.pod.Spec.Volumes[i]
		if v.Image != nil && slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == v.Name }) {
			n++
		}
	}
	return n
}

// target is the container whose processes an ephemeral container wants to see.
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

// restartCount counts a container's instances before the one to be made: by
// the last one that the runtime has, or else by the log files that are left.
func (m *Manager) restartCount(in podspec.Input, c *v1.Container, last *observed.Container) int32 {
	switch {
	case last != nil && last.State == observed.Created:
		return last.RestartCount
	case last != nil:
		return last.RestartCount + 1
	}
	entries, err := os.ReadDir(filepath.Join(podspec.LogDirectory(m.cfg.PodLogsDir, in.Pod), c.Name))
	if err != nil {
		return 0
	}
	count := int32(0)
	for _, e := range entries {
		if n, ok := logNumber(e); ok {
			count = max(count, n+1)
		}
	}
	return count
}

// logNumber reads N of a log file N.log or N.log.*.
func logNumber(e fs.DirEntry) (int32, bool) {
	number, rest, ok := strings.Cut(e.Name(), ".")
	if !ok || e.IsDir() || (rest != "log" && !strings.HasPrefix(rest, "log.")) {
		return 0, false
	}
	n, err := strconv.ParseInt(number, 10, 32)
	return int32(n), err == nil && n >= 0
}
