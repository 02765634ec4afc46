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

// Containers and their logs, for the collector of dead containers and for log
// rotation. Nothing here decides what is removed.

// ContainerService is what [Containers] asks of a container runtime; *cri.Client
// has it.
type ContainerService interface {
	ContainerLister
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	StopContainer(ctx context.Context, id string, timeout int64) error
	RemoveContainer(ctx context.Context, id string) error
	StopPodSandbox(ctx context.Context, id string) error
	RemovePodSandbox(ctx context.Context, id string) error
}

// Containers is a gc.ContainerRuntime. Its methods may be called from any goroutine.
// Every one of them takes a container or sandbox that is gone for removed.
type Containers struct {
	rt      ContainerService
	logsDir string
	// disk makes the removals of logs, which may hang: one at a time for each log.
	disk detached.Queue
	// Two memories: each forgets what is not in its own lists.
	ended, running statuses
}

var _ gc.ContainerRuntime = (*Containers)(nil)

// NewContainers returns the containers of a CRI runtime. podLogsDir is an absolute
// path: logs that are not below it are left alone.
func NewContainers(rt ContainerService, podLogsDir string) *Containers {
	return &Containers{
		rt: rt, logsDir: filepath.Clean(podLogsDir),
		ended: statuses{ask: rt.ContainerStatus}, running: statuses{ask: rt.ContainerStatus},
	}
}

// List lists the sandboxes and containers of a pod, or of all. What belongs to
// no pod is left out.
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
	// Only the end of a container and its log are not in the lists, and only of dead
	// ones they are needed.
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
		// The label is the pod's name for the container; the CRI's own name is for
		// runtimes that keep no labels.
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

// StopContainer ends a container at once: the collector asks for it where it cannot
// tell whether the container runs.
func (s *Containers) StopContainer(ctx context.Context, id string) error {
	return ignoreGone(s.rt.StopContainer(ctx, id, 0))
}

// RemoveContainer removes a container and then its logs: in the other order a failure
// would leave a container without its logs. The link to them is removed by
// the collector.
func (s *Containers) RemoveContainer(ctx context.Context, c gc.Container) error {
	if c.LogPath == "" {
		resp, err := s.rt.ContainerStatus(ctx, c.ID, false)
		if err != nil {
			return ignoreGone(err)
		}
		// Afterwards nobody knows where the logs are.
		c.LogPath = resp.GetStatus().GetLogPath()
	}
	if err := ignoreGone(s.rt.RemoveContainer(ctx, c.ID)); err != nil {
		return err
	}
	return s.removeLogs(ctx, c.LogPath)
}

const (
	// maxLogNames is how many names in a directory of logs are looked at: the kubelet
	// keeps 5 files of a container (containerLogMaxFiles), but a pod that mounts the
	// directory can make any number. Of more names than that some files may stay.
	maxLogNames = 10_000
	// fileTimeout is how long the removal of a container's logs takes at most.
	fileTimeout = 30 * time.Second
)

// removeLogs removes a log and what was rotated from it. No link below the directory
// of logs is followed, and no directory is removed. A path that is not below the
// directory comes from a runtime that was told so by others: it is left alone. It
// blocks for fileTimeout at most; the removal goes on then.
func (s *Containers) removeLogs(ctx context.Context, path string) error {
	path = filepath.Clean(path)
	dir, err := filepath.Rel(s.logsDir, filepath.Dir(path))
	if err != nil || !filepath.IsLocal(dir) || !strings.HasPrefix(path, s.logsDir+string(filepath.Separator)) {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, fileTimeout, fmt.Errorf("logs of a container were not removed within %v", fileTimeout))
	defer cancel()
	// On a goroutine of its own: the directory may be on a disk that hangs. The
	// directory is opened once, so that nobody can exchange it between the look and
	// the removal.
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

// RemoveSandbox stops a sandbox and removes it. The stop takes back its network,
// which some runtimes do not do when they remove one.
func (s *Containers) RemoveSandbox(ctx context.Context, id string) error {
	if err := ignoreGone(s.rt.StopPodSandbox(ctx, id)); err != nil {
		return err
	}
	return ignoreGone(s.rt.RemovePodSandbox(ctx, id))
}

// ignoreGone takes what the runtime does not have for removed.
func ignoreGone(err error) error {
	if cri.IsNotFound(err) {
		return nil
	}
	return err
}

// Running lists the logs of all containers that run: logrotate's Config.Running.
// Those without a path have no log to rotate.
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
