package cri

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri/observed"
)

// ReadRuntime is the part of a runtime that a Reader uses.
type ReadRuntime interface {
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	PodSandboxStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error)
	ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error)
	GetContainerEvents(ctx context.Context, ch chan *runtimeapi.ContainerEventResponse, opened func(runtimeapi.RuntimeService_GetContainerEventsClient)) error
}

// Reader reads a runtime into the values of package observed. All methods may
// be called from any goroutine.
type Reader struct {
	rt ReadRuntime

	// dead holds the statuses of exited containers, which never change
	// again, by container ID.
	mu   sync.Mutex
	dead map[string]observed.Container
}

// maxDead bounds the memory of exited containers. Whoever has more asks the
// runtime again.
const maxDead = 4096

// NewReader returns a Reader of rt.
func NewReader(rt ReadRuntime) *Reader {
	return &Reader{rt: rt, dead: map[string]observed.Container{}}
}

// List shows every pod of the runtime, in no order, with two calls.
func (r *Reader) List(ctx context.Context) ([]observed.Listed, error) {
	sandboxes, err := r.rt.ListPodSandbox(ctx, nil)
	if err != nil {
		return nil, err
	}
	containers, err := r.rt.ListContainers(ctx, nil)
	if err != nil {
		return nil, err
	}
	pods := make([]observed.Listed, 0, len(sandboxes))
	index := make(map[string]int, len(sandboxes))
	pod := func(labels map[string]string) *observed.Listed {
		uid := labels[LabelPodUID]
		if uid == "" {
			return nil // not a pod's
		}
		i, ok := index[uid]
		if !ok {
			i = len(pods)
			index[uid] = i
			pods = append(pods, observed.Listed{
				UID: types.UID(uid), Name: labels[LabelPodName], Namespace: labels[LabelPodNamespace],
			})
		}
		return &pods[i]
	}
	for _, s := range sandboxes {
		if p := pod(s.GetLabels()); p != nil {
			p.Sandboxes = append(p.Sandboxes, observed.Item{ID: s.GetId(), State: sandboxState(s.GetState())})
		}
	}
	for _, c := range containers {
		if p := pod(c.GetLabels()); p != nil {
			p.Containers = append(p.Containers, observed.Item{ID: c.GetId(), State: containerState(c.GetState())})
		}
	}
	r.forgetGone(containers)
	return pods, nil
}

// forgetGone drops what is remembered of containers that were removed.
func (r *Reader) forgetGone(containers []*runtimeapi.Container) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.dead) == 0 {
		return
	}
	there := make(map[string]bool, len(containers))
	for _, c := range containers {
		there[c.GetId()] = true
	}
	for id := range r.dead {
		if !there[id] {
			delete(r.dead, id)
		}
	}
}

// Inspect shows one pod in full. A pod of which the runtime has nothing comes
// back with its UID alone. What disappears while it is being read is left
// out; any other failure fails the whole.
func (r *Reader) Inspect(ctx context.Context, uid types.UID) (*observed.Pod, error) {
	pod := &observed.Pod{UID: uid, ObservedAt: time.Now()}
	selector := map[string]string{LabelPodUID: string(uid)}
	sandboxes, err := r.rt.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	containers, err := r.rt.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, s := range sandboxes {
		pod.Name, pod.Namespace = s.GetLabels()[LabelPodName], s.GetLabels()[LabelPodNamespace]
		resp, err := r.rt.PodSandboxStatus(ctx, s.GetId(), false)
		switch {
		case err == nil:
			pod.Sandboxes = append(pod.Sandboxes, sandboxOf(resp.GetStatus()))
		case !IsNotFound(err):
			errs = append(errs, err)
		}
	}
	for _, c := range containers {
		if pod.Name == "" {
			pod.Name, pod.Namespace = c.GetLabels()[LabelPodName], c.GetLabels()[LabelPodNamespace]
		}
		oc, err := r.container(ctx, c)
		switch {
		case err == nil:
			pod.Containers = append(pod.Containers, oc)
		case !IsNotFound(err):
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	slices.SortFunc(pod.Sandboxes, func(a, b observed.Sandbox) int {
		return newestFirst(a.CreatedAt, b.CreatedAt, a.ID, b.ID)
	})
	slices.SortFunc(pod.Containers, func(a, b observed.Container) int {
		return newestFirst(a.CreatedAt, b.CreatedAt, a.ID, b.ID)
	})
	return pod, nil
}

func newestFirst(a, b time.Time, aID, bID string) int {
	if c := b.Compare(a); c != 0 {
		return c
	}
	return strings.Compare(aID, bID)
}

// container asks for a container's status, unless it is known to have ended.
func (r *Reader) container(ctx context.Context, c *runtimeapi.Container) (observed.Container, error) {
	if c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
		r.mu.Lock()
		known, ok := r.dead[c.GetId()]
		r.mu.Unlock()
		if ok {
			return known, nil
		}
	}
	resp, err := r.rt.ContainerStatus(ctx, c.GetId(), false)
	if err != nil {
		return observed.Container{}, err
	}
	oc := containerOf(resp.GetStatus())
	oc.SandboxID = c.GetPodSandboxId()
	if oc.State == observed.Exited {
		r.mu.Lock()
		if len(r.dead) < maxDead {
			r.dead[oc.ID] = oc
		}
		r.mu.Unlock()
	}
	return oc, nil
}

// Events calls on for every event until the stream ends, and ready once it is
// open. It returns an error in any case: observed.ErrNoEventStream if the
// runtime has no stream, ctx's if that ended, else what ended the stream.
func (r *Reader) Events(ctx context.Context, ready func(), on func(observed.Event)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ch := make(chan *runtimeapi.ContainerEventResponse, 256)
	done := make(chan error, 1)
	go func() {
		done <- r.rt.GetContainerEvents(ctx, ch, func(runtimeapi.RuntimeService_GetContainerEventsClient) { ready() })
	}()
	for {
		select {
		case ev := <-ch:
			if e, ok := eventOf(ev); ok {
				on(e)
			}
		case err := <-done:
			if c := code(err); c == codes.Unimplemented {
				return fmt.Errorf("%w: %w", observed.ErrNoEventStream, err)
			}
			if err == nil {
				err = errors.New("the event stream ended")
			}
			return err
		}
	}
}

func eventOf(ev *runtimeapi.ContainerEventResponse) (observed.Event, bool) {
	uid := ev.GetPodSandboxStatus().GetMetadata().GetUid()
	if uid == "" {
		return observed.Event{}, false
	}
	kind := observed.ContainerCreated
	switch ev.GetContainerEventType() {
	case runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT:
		kind = observed.ContainerStarted
	case runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT:
		kind = observed.ContainerStopped
	case runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
		kind = observed.ContainerDeleted
	}
	return observed.Event{
		UID: types.UID(uid), ID: ev.GetContainerId(), Kind: kind, At: time.Unix(0, ev.GetCreatedAt()),
	}, true
}

func sandboxState(s runtimeapi.PodSandboxState) observed.State {
	if s == runtimeapi.PodSandboxState_SANDBOX_READY {
		return observed.Running
	}
	return observed.Exited
}

func containerState(s runtimeapi.ContainerState) observed.State {
	switch s {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return observed.Created
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return observed.Running
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return observed.Exited
	default:
		return observed.Unknown
	}
}

// unixNano is a time as the CRI has it, where 0 means none.
func unixNano(ns int64) time.Time {
	if ns <= 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

func sandboxOf(s *runtimeapi.PodSandboxStatus) observed.Sandbox {
	ns := s.GetLinux().GetNamespaces().GetOptions()
	out := observed.Sandbox{
		ID: s.GetId(), State: sandboxState(s.GetState()), Attempt: s.GetMetadata().GetAttempt(),
		CreatedAt: unixNano(s.GetCreatedAt()), HasNetwork: s.GetNetwork() != nil,
		HostNetwork:    ns.GetNetwork() == runtimeapi.NamespaceMode_NODE,
		HostPID:        ns.GetPid() == runtimeapi.NamespaceMode_NODE,
		HostIPC:        ns.GetIpc() == runtimeapi.NamespaceMode_NODE,
		RuntimeHandler: s.GetRuntimeHandler(), Labels: s.GetLabels(), Annotations: s.GetAnnotations(),
	}
	if ip := s.GetNetwork().GetIp(); ip != "" {
		out.IPs = append(out.IPs, ip)
		for _, more := range s.GetNetwork().GetAdditionalIps() {
			out.IPs = append(out.IPs, more.GetIp())
		}
	}
	return out
}

// signalNames turns the CRI's names of real-time signals, such as
// SIGRTMINPLUS3, into those of the API.
var signalNames = strings.NewReplacer("PLUS", "+", "MINUS", "-")

func containerOf(s *runtimeapi.ContainerStatus) observed.Container {
	out := observed.Container{
		ID: s.GetId(), Name: s.GetMetadata().GetName(), Attempt: s.GetMetadata().GetAttempt(),
		State: containerState(s.GetState()),
		Image: s.GetImage().GetImage(), ImageRef: s.GetImageRef(), ImageID: s.GetImageId(),
		CreatedAt: unixNano(s.GetCreatedAt()), StartedAt: unixNano(s.GetStartedAt()),
		LogPath: s.GetLogPath(), Labels: s.GetLabels(), Annotations: s.GetAnnotations(),
		Hash:         s.GetAnnotations()[AnnotationHash],
		RestartCount: int32(s.GetMetadata().GetAttempt()),
	}
	if user := s.GetImage().GetUserSpecifiedImage(); user != "" {
		out.Image = user
	}
	if n, err := strconv.ParseInt(s.GetAnnotations()[AnnotationRestartCount], 10, 32); err == nil {
		out.RestartCount = int32(n)
	}
	if sig := s.GetStopSignal(); sig != runtimeapi.Signal_RUNTIME_DEFAULT {
		out.StopSignal = signalNames.Replace(sig.String())
	}
	for _, m := range s.GetMounts() {
		if image := m.GetImage().GetImage(); m.GetRecursiveReadOnly() || image != "" {
			out.Mounts = append(out.Mounts, observed.Mount{
				Path: m.GetContainerPath(), RecursiveReadOnly: m.GetRecursiveReadOnly(), ImageRef: image,
			})
		}
	}
	if out.State == observed.Exited {
		out.FinishedAt = unixNano(s.GetFinishedAt())
		out.ExitCode, out.Reason, out.Message = s.GetExitCode(), s.GetReason(), s.GetMessage()
		// containerd's words for a start that lost its caller.
		out.Abandoned = out.StartedAt.IsZero() && strings.HasSuffix(out.Message, context.Canceled.Error())
	}
	if l := s.GetResources().GetLinux(); l != nil {
		out.Resources = &observed.Resources{
			CPUPeriod: l.GetCpuPeriod(), CPUQuota: l.GetCpuQuota(), CPUShares: l.GetCpuShares(),
			MemoryLimit: l.GetMemoryLimitInBytes(),
		}
	}
	if u := s.GetUser().GetLinux(); u != nil {
		out.User = &observed.User{UID: u.GetUid(), GID: u.GetGid(), SupplementalGroups: u.GetSupplementalGroups()}
	}
	return out
}
