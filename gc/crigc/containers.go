package crigc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/gc"
	"github.com/nodewright/nodewright/gc/logrotate"
	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/internal/safefile"
)

// Containers and their logs in a CRI runtime, for the collector of dead containers and for log
// rotation.

// ContainerService is the part of a container runtime that [Containers] uses; *cri.Client
// implements it.
type ContainerService interface {
	ContainerLister
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	StopContainer(ctx context.Context, id string, timeout int64) error
	RemoveContainer(ctx context.Context, id string) error
	StopPodSandbox(ctx context.Context, id string) error
	RemovePodSandbox(ctx context.Context, id string) error
}

// Containers is a gc.ContainerRuntime over a CRI runtime. Its methods may be called from any
// goroutine. Removing a missing container or sandbox is a success.
type Containers struct {
	rt      ContainerService
	logsDir string
	// disk removes logs, which may hang: one call at a time for each log.
	disk detached.Queue
	// ended and running are two caches, since each drops the containers that are not in its own
	// lists.
	ended, running statuses
}

var _ gc.ContainerRuntime = (*Containers)(nil)

// NewContainers returns a Containers. podLogsDir is an absolute path; logs outside of it are
// never removed.
func NewContainers(rt ContainerService, podLogsDir string) *Containers {
	return &Containers{
		rt: rt, logsDir: filepath.Clean(podLogsDir),
		ended: statuses{ask: rt.ContainerStatus}, running: statuses{ask: rt.ContainerStatus},
	}
}

// List lists the sandboxes and containers of a pod, or of all pods if pod is "". Items without a
// pod's labels are left out.
func (s *Containers) List(ctx context.Context, pod types.UID) ([]gc.Sandbox, []gc.Container, error) {
	var sf *runtimeapi.PodSandboxFilter
	var cf *runtimeapi.ContainerFilter
	if pod != "" {
		selector := map[string]string{cri.LabelPodUID: string(pod)}
		sf, cf = &runtimeapi.PodSandboxFilter{LabelSelector: selector}, &runtimeapi.ContainerFilter{LabelSelector: selector}
	}
	sandboxes, err := s.rt.ListPodSandbox(ctx, sf)
	if err != nil {
		return nil, nil, err
	}
	containers, err := s.rt.ListContainers(ctx, cf)
	if err != nil {
		return nil, nil, err
	}
	var outS []gc.Sandbox
	for _, sb := range sandboxes {
		if uid := sb.GetLabels()[cri.LabelPodUID]; uid != "" {
			outS = append(outS, gc.Sandbox{
				ID: sb.GetId(), Pod: types.UID(uid), Attempt: sb.GetMetadata().GetAttempt(), CreatedAt: time.Unix(0, sb.GetCreatedAt()),
				Ready: sb.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
			})
		}
	}
	// Lists lack the end time and the log path, which are needed for dead containers only.
	ended, err := s.ended.of(ctx, containers, string(pod), func(c *runtimeapi.Container) bool {
		return c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
	})
	if err != nil {
		return nil, nil, err
	}
	var outC []gc.Container
	for _, c := range containers {
		uid := c.GetLabels()[cri.LabelPodUID]
		if uid == "" {
			continue
		}
		// The CRI's own name is for runtimes that keep no labels.
		name := c.GetLabels()[cri.LabelContainerName]
		if name == "" {
			name = c.GetMetadata().GetName()
		}
		oc := gc.Container{
			ID: c.GetId(), Pod: types.UID(uid), Name: name, Sandbox: c.GetPodSandboxId(),
			State: cri.StateOf(c.GetState()), Attempt: c.GetMetadata().GetAttempt(), CreatedAt: time.Unix(0, c.GetCreatedAt()), LogPath: ended[c.GetId()].log,
		}
		if at := ended[c.GetId()].finished; at > 0 {
			oc.FinishedAt = time.Unix(0, at)
		}
		outC = append(outC, oc)
	}
	return outS, outC, nil
}

// StopContainer stops a container without a grace period. The collector calls it for containers
// of unknown state.
func (s *Containers) StopContainer(ctx context.Context, id string) error {
	return ignoreGone(s.rt.StopContainer(ctx, id, 0))
}

// RemoveContainer removes a container and then its logs, so that a failure does not leave a
// container without logs. The collector removes the link.
func (s *Containers) RemoveContainer(ctx context.Context, c gc.Container) error {
	if c.LogPath == "" {
		resp, err := s.rt.ContainerStatus(ctx, c.ID, false)
		if err != nil {
			return ignoreGone(err)
		}
		// The path is unknown after the removal.
		c.LogPath = resp.GetStatus().GetLogPath()
	}
	if err := ignoreGone(s.rt.RemoveContainer(ctx, c.ID)); err != nil {
		return err
	}
	return s.removeLogs(ctx, c.LogPath)
}

const (
	// maxLogNames limits the names that are read in a log directory. The kubelet keeps 5 files
	// of a container (containerLogMaxFiles), but a pod that mounts the directory can create any
	// number.
	maxLogNames = 10_000
	// fileTimeout is the timeout for the removal of a container's logs.
	fileTimeout = 30 * time.Second
)

// removeLogs removes a log and its rotated files. It follows no link below the directory of
// logs, removes no directory, and ignores paths outside. It blocks for at most fileTimeout; the
// removal continues in the background then.
func (s *Containers) removeLogs(ctx context.Context, path string) error {
	path = filepath.Clean(path)
	dir, err := filepath.Rel(s.logsDir, filepath.Dir(path))
	if err != nil || !filepath.IsLocal(dir) || !strings.HasPrefix(path, s.logsDir+string(filepath.Separator)) {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, fileTimeout, fmt.Errorf("logs of a container were not removed within %v", fileTimeout))
	defer cancel()
	// In its own goroutine, since the disk may hang. The directory is opened once, so that it
	// cannot be exchanged between check and removal.
	base := filepath.Base(path)
	_, err = detached.Next(ctx, &s.disk, path, func() (struct{}, error) {
		held, err := safefile.OpenDir(s.logsDir, dir)
		if errors.Is(err, fs.ErrNotExist) {
			return struct{}{}, nil
		}
		if err != nil {
			return struct{}{}, err
		}
		defer func() { _ = held.Close() }()
		return struct{}{}, held.RemoveFiles(maxLogNames, func(name string) bool { return name == base || strings.HasPrefix(name, base+".") })
	})
	return err
}

// RemoveSandbox stops a sandbox and removes it. The stop releases its network, which some
// runtimes do not do at a removal.
func (s *Containers) RemoveSandbox(ctx context.Context, id string) error {
	if err := ignoreGone(s.rt.StopPodSandbox(ctx, id)); err != nil {
		return err
	}
	return ignoreGone(s.rt.RemovePodSandbox(ctx, id))
}

// ignoreGone returns nil for a NotFound error.
func ignoreGone(err error) error {
	if cri.IsNotFound(err) {
		return nil
	}
	return err
}

// Running lists the logs of all running containers, for logrotate's Config.Running. Containers
// without a log path are left out.
func (s *Containers) Running(ctx context.Context) ([]logrotate.Log, error) {
	containers, err := s.rt.ListContainers(ctx, &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	})
	if err != nil {
		return nil, err
	}
	known, err := s.running.of(ctx, containers, "", func(*runtimeapi.Container) bool { return true })
	if err != nil {
		return nil, err
	}
	var out []logrotate.Log
	for _, c := range containers {
		if path := known[c.GetId()].log; path != "" {
			out = append(out, logrotate.Log{ID: c.GetId(), Pod: types.UID(c.GetLabels()[cri.LabelPodUID]), Path: path})
		}
	}
	return out, nil
}
