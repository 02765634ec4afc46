package cri

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri/observed"
)

// The conversion of the runtime's answers to values of package observed: limited in size,
// with names that can be parts of paths, and with zero times for 0.

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
	rt  ReadRuntime
	cfg ReaderConfig

	// dead and ledgers have locks of their own. No lock is held during a call of the runtime.
	dead    *endings
	ledgers *ledgers

	mu sync.Mutex
	// warned has the sandboxes for which a warning about invalid addresses was logged.
	warned map[string]bool
}

// ReaderConfig configures a Reader. The zero value is usable.
type ReaderConfig struct {
	// NodeIP is the node's first address. A pod's addresses of the same IP family
	// come first. If it is "", IPv4 addresses come first.
	NodeIP string
	Log    *zap.Logger // if nil, nothing is logged
}

// NewReader returns a Reader of rt on a node without a known address.
func NewReader(rt ReadRuntime) *Reader { return NewReaderWith(rt, ReaderConfig{}) }

// NewReaderWith returns a Reader of rt.
func NewReaderWith(rt ReadRuntime, cfg ReaderConfig) *Reader {
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return &Reader{rt: rt, cfg: cfg, dead: newEndings(), ledgers: newLedgers(), warned: map[string]bool{}}
}

// List returns all pods of the runtime, in no order. It makes two calls, and fails if one
// of them fails: without the containers, pods would look dead. Sandboxes and containers
// without the label [LabelPodUID], such as those of crictl runp or podman, are left out:
// an agent would remove them.
func (r *Reader) List(ctx context.Context) ([]observed.Listed, error) {
	// Before the lists: an item that they lack may have been created since.
	stream := r.ledgers.current()
	sandboxes, err := r.rt.ListPodSandbox(ctx, nil)
	if err != nil {
		return nil, err
	}
	containers, err := r.rt.ListContainers(ctx, nil)
	if err != nil {
		return nil, err
	}
	pods := make([]observed.Listed, 0, len(sandboxes))
	index := make(map[types.UID]int, len(sandboxes))
	pod := func(id string, labels map[string]string) *observed.Listed {
		uid, namespace, name := podOf(labels)
		if uid == "" || oneName(id, maxID) == "" {
			return nil // not a pod's
		}
		i, ok := index[uid]
		if !ok {
			i = len(pods)
			index[uid] = i
			pods = append(pods, observed.Listed{UID: uid, Name: name, Namespace: namespace})
		}
		return &pods[i]
	}
	for _, s := range sandboxes {
		if p := pod(s.GetId(), s.GetLabels()); p != nil {
			p.Sandboxes = append(p.Sandboxes, observed.Item{ID: s.GetId(), State: sandboxState(s.GetState())})
		}
	}
	for _, c := range containers {
		if p := pod(c.GetId(), c.GetLabels()); p != nil {
			p.Containers = append(p.Containers, observed.Item{ID: c.GetId(), State: StateOf(c.GetState())})
		}
	}
	// Even if the list is refused below: it shows which containers are gone.
	r.dead.keepAll(among(containers, runtimeapi.ContainerState_CONTAINER_EXITED))
	if len(pods) > maxPods {
		return nil, fmt.Errorf("the runtime lists %d pods: want at most %d", len(pods), maxPods)
	}
	r.ledgers.recordAll(pods, stream)
	return pods, nil
}

// among returns a function that reports whether an ID belongs to one of the containers that are in
// the given state.
func among(containers []*runtimeapi.Container, state runtimeapi.ContainerState) func(id string) bool {
	ids := make(map[string]bool, len(containers))
	for _, c := range containers {
		if c.GetState() == state {
			ids[c.GetId()] = true
		}
	}
	return func(id string) bool { return ids[id] }
}

// Inspect returns the sandboxes and containers of a pod with their statuses. For a pod of
// which the runtime has nothing, only the UID is set. Items that disappear meanwhile are
// left out; after any other error Inspect returns no pod.
//
// It lists the pod's items, unless it knows their IDs: see [Reader.Noting].
func (r *Reader) Inspect(ctx context.Context, uid types.UID) (*observed.Pod, error) {
	now := time.Now()
	if e, ok := r.ledgers.expect(uid, now); ok {
		if pod, err := r.inspectByID(ctx, uid, e, now); pod != nil || err != nil {
			return pod, err
		}
	}
	// The lists are recorded only if nothing changed while they were read.
	changes := r.ledgers.beginLists(uid)
	pod, err := r.inspectByLists(ctx, uid)
	if err == nil {
		r.ledgers.recordLists(pod, changes)
	}
	return pod, err
}

// inspectByLists lists the items of a pod and reads the status of each. It continues
// after an error, and returns all errors joined.
func (r *Reader) inspectByLists(ctx context.Context, uid types.UID) (*observed.Pod, error) {
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
	if len(sandboxes) > maxInstances || len(containers) > maxInstances {
		return nil, fmt.Errorf("the runtime lists %d sandboxes and %d containers of pod %s: want at most %d of each",
			len(sandboxes), len(containers), uid, maxInstances)
	}
	r.dead.keep(uid, among(containers, runtimeapi.ContainerState_CONTAINER_EXITED))
	var errs []error
	for _, s := range sandboxes {
		if whose, namespace, name := podOf(s.GetLabels()); whose != uid || oneName(s.GetId(), maxID) == "" {
			continue // the runtime has ignored the filter
		} else if name != "" {
			pod.Name, pod.Namespace = name, namespace
		}
		resp, err := r.rt.PodSandboxStatus(ctx, s.GetId(), false)
		switch {
		case err == nil:
			pod.Sandboxes = append(pod.Sandboxes, r.sandbox(s.GetId(), resp.GetStatus()))
		case !IsNotFound(err):
			errs = append(errs, err)
		}
	}
	for _, c := range containers {
		if whose, namespace, name := podOf(c.GetLabels()); whose != uid || oneName(c.GetId(), maxID) == "" {
			continue
		} else if pod.Name == "" {
			pod.Name, pod.Namespace = name, namespace
		}
		oc, err := r.container(ctx, uid, c)
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
	slices.SortFunc(pod.Sandboxes, newestSandbox)
	slices.SortFunc(pod.Containers, newestContainer)
	return pod, nil
}

// sandbox converts the status of a sandbox, with its addresses sorted for NodeIP. id is the
// requested ID. It is used instead of the ID in the answer.
func (r *Reader) sandbox(id string, st *runtimeapi.PodSandboxStatus) observed.Sandbox {
	s := sandboxOf(st)
	s.ID = id
	var dropped []string
	s.IPs, dropped = observed.Addresses(AddressesOf(st), r.cfg.NodeIP)
	r.warn(id, dropped)
	return s
}

// newestSandbox and newestContainer compare items for the order of observed.Pod.
func newestSandbox(a, b observed.Sandbox) int {
	instance := func(s observed.Sandbox) observed.Instance {
		return observed.Instance{Attempt: s.Attempt, Running: s.State == observed.Running, CreatedAt: s.CreatedAt, ID: s.ID}
	}
	return observed.NewestFirst(instance(a), instance(b))
}

func newestContainer(a, b observed.Container) int {
	instance := func(c observed.Container) observed.Instance {
		return observed.Instance{Attempt: c.Attempt, Running: c.State == observed.Running, CreatedAt: c.CreatedAt, ID: c.ID}
	}
	return observed.NewestFirst(instance(a), instance(b))
}

// container returns the status of a container, from the cache if it has exited.
func (r *Reader) container(ctx context.Context, uid types.UID, c *runtimeapi.Container) (observed.Container, error) {
	// A runtime may start a container again with the same ID: its cached status is
	// dropped.
	if c.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
		r.dead.forget(uid, c.GetId())
	} else if known, ok := r.dead.get(uid, c.GetId()); ok {
		return known, nil
	}
	resp, err := r.rt.ContainerStatus(ctx, c.GetId(), false)
	if err != nil {
		return observed.Container{}, err
	}
	oc := containerOf(resp.GetStatus())
	oc.ID, oc.SandboxID = c.GetId(), oneName(c.GetPodSandboxId(), maxID)
	if oc.State == observed.Exited {
		r.dead.add(uid, &oc)
	}
	return oc, nil
}

// noted drops the cached status of a container that was started again or removed, and records the
// event in the ledgers. It is called before the event is passed on, since the receiver may inspect
// the pod at once.
func (r *Reader) noted(e observed.Event) {
	r.ledgers.event(e)
	if e.Kind != observed.ContainerStopped {
		r.dead.forget(e.UID, e.ID)
	}
}

// Events opens the runtime's event stream, calls the function ready once the stream is open, and
// calls the function on for every event until the stream ends. It always returns an error:
// observed.ErrNoEventStream if the runtime has no stream, ctx's error if ctx has ended, and
// otherwise the reason why the stream ended. on is called from the caller's goroutine, one event
// after the other; ready is called from another goroutine. There are no events for changes before
// ready, so call List after ready.
func (r *Reader) Events(ctx context.Context, ready func(), on func(observed.Event)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ch := make(chan *runtimeapi.ContainerEventResponse, 8)
	// Buffered, so that the goroutine ends even if the result is not read.
	done := make(chan error, 1)
	// After the end of the stream, changes by other programs are not seen.
	s := r.ledgers.stream()
	defer s.end()
	go func() {
		done <- r.rt.GetContainerEvents(ctx, ch, func(runtimeapi.RuntimeService_GetContainerEventsClient) {
			s.open()
			ready()
		})
	}()
	for {
		select {
		case ev := <-ch:
			if e, ok := eventOf(ev); ok {
				r.noted(e)
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

// eventOf converts an event. It returns false if the event belongs to no pod. The statuses in the
// event are not used, since events may arrive in another order than they happened.
func eventOf(ev *runtimeapi.ContainerEventResponse) (observed.Event, bool) {
	uid := oneName(ev.GetPodSandboxStatus().GetMetadata().GetUid(), maxName)
	if uid == "" || oneName(ev.GetContainerId(), maxID) == "" {
		return observed.Event{}, false
	}
	kind := observed.ContainerChanged // for unknown types
	switch ev.GetContainerEventType() {
	case runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT:
		kind = observed.ContainerCreated
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

// sandboxState converts the state of a sandbox: Running if it is ready, else Exited.
func sandboxState(s runtimeapi.PodSandboxState) observed.State {
	if s == runtimeapi.PodSandboxState_SANDBOX_READY {
		return observed.Running
	}
	return observed.Exited
}

// StateOf returns the state of a container as a plain value. A state that is not defined in this
// version of the CRI becomes Unknown.
func StateOf(s runtimeapi.ContainerState) observed.State {
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

// unixNano converts a time of the CRI, where 0 means no time.
func unixNano(ns int64) time.Time {
	if ns <= 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

// sandboxOf converts a status, without the ID and the addresses. Any part of s may be
// missing.
func sandboxOf(s *runtimeapi.PodSandboxStatus) observed.Sandbox {
	ns := s.GetLinux().GetNamespaces().GetOptions()
	out := observed.Sandbox{
		State: sandboxState(s.GetState()), Attempt: s.GetMetadata().GetAttempt(),
		CreatedAt: unixNano(s.GetCreatedAt()), HasNetwork: s.GetNetwork() != nil,
		HostNetwork:    ns.GetNetwork() == runtimeapi.NamespaceMode_NODE,
		HostPID:        ns.GetPid() == runtimeapi.NamespaceMode_NODE,
		HostIPC:        ns.GetIpc() == runtimeapi.NamespaceMode_NODE,
		RuntimeHandler: oneName(s.GetRuntimeHandler(), maxName), Labels: ours(s.GetLabels()), Annotations: ours(s.GetAnnotations()),
	}
	return out
}

// maxAddresses limits the addresses of a sandbox.
const maxAddresses = 64

// AddressesOf returns the addresses in a sandbox's status, as the runtime reports them.
// Use [observed.Addresses] to check and sort them.
func AddressesOf(s *runtimeapi.PodSandboxStatus) []string {
	var out []string
	if ip := s.GetNetwork().GetIp(); ip != "" {
		out = append(out, ip)
		more := s.GetNetwork().GetAdditionalIps()
		for _, ip := range more[:min(len(more), maxAddresses)] {
			out = append(out, ip.GetIp())
		}
	}
	return out
}

// maxWarned limits the sandboxes in Reader.warned. When it is reached, the map is emptied
// and warnings may repeat.
const maxWarned = 1024

// warn logs the invalid addresses of a sandbox, once. It is called at each inspection.
func (r *Reader) warn(sandbox string, dropped []string) {
	if len(dropped) == 0 {
		return
	}
	r.mu.Lock()
	told := r.warned[sandbox]
	if len(r.warned) >= maxWarned {
		clear(r.warned)
	}
	r.warned[sandbox] = true
	r.mu.Unlock()
	if !told {
		r.cfg.Log.Warn("ignored invalid addresses of sandbox", zap.String("sandbox", sandbox), zap.String("first", cut(dropped[0], maxName)), zap.Int("count", len(dropped)))
	}
}

// signalNames converts the CRI's names of real-time signals, such as SIGRTMINPLUS3, to those of the
// API.
var signalNames = strings.NewReplacer("SIGNAL_", "", "PLUS", "+", "MINUS", "-")

// containerOf converts a status, without the IDs.
func containerOf(s *runtimeapi.ContainerStatus) observed.Container {
	out := observed.Container{
		Name: oneName(s.GetMetadata().GetName(), maxName), Attempt: s.GetMetadata().GetAttempt(),
		State: StateOf(s.GetState()),
		Image: cut(s.GetImage().GetImage(), maxImage), ImageRef: cut(s.GetImageRef(), maxImage), ImageID: cut(s.GetImageId(), maxImage),
		CreatedAt: unixNano(s.GetCreatedAt()), StartedAt: unixNano(s.GetStartedAt()),
		Labels: ours(s.GetLabels()), Annotations: ours(s.GetAnnotations()),
		Hash:         cut(s.GetAnnotations()[AnnotationHash], maxVersion),
		RestartCount: int32(min(s.GetMetadata().GetAttempt(), math.MaxInt32)),
	}
	if p := s.GetLogPath(); len(p) < maxPath {
		out.LogPath = p
	}
	// The name in the pod's spec: the other one may have been resolved by the runtime.
	if user := s.GetImage().GetUserSpecifiedImage(); user != "" {
		out.Image = cut(user, maxImage)
	}
	// The attempt is the same for containers of this agent; the annotation is also
	// right for those of a kubelet.
	if n, err := strconv.ParseInt(s.GetAnnotations()[AnnotationRestartCount], 10, 32); err == nil && n >= 0 {
		out.RestartCount = int32(n)
	}
	if sig := s.GetStopSignal(); sig != runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		out.StopSignal = signalNames.Replace(sig.String())
	}
	// Only image mounts are kept: the pod's spec has all others.
	for _, m := range s.GetMounts()[:min(len(s.GetMounts()), maxMounts)] {
		image := m.GetImage().GetImageRef()
		if image == "" { // older runtimes report only the requested name
			image = m.GetImage().GetImage()
		}
		if m.GetRecursiveReadOnly() || image != "" {
			out.Mounts = append(out.Mounts, observed.Mount{
				Path: cut(m.GetContainerPath(), maxPath), RecursiveReadOnly: m.GetRecursiveReadOnly(), ImageRef: cut(image, maxImage),
			})
		}
	}
	if out.State == observed.Exited {
		out.FinishedAt = unixNano(s.GetFinishedAt())
		out.ExitCode, out.Reason, out.Message = new(s.GetExitCode()), cut(s.GetReason(), maxReason), cut(s.GetMessage(), maxMessage)
		// containerd's message after the caller of a start was canceled.
		out.Abandoned = out.StartedAt.IsZero() && strings.HasSuffix(out.Message, context.Canceled.Error())
	}
	if l := s.GetResources().GetLinux(); l != nil {
		out.Resources = &observed.Resources{
			CPUPeriod: l.GetCpuPeriod(), CPUQuota: l.GetCpuQuota(), CPUShares: l.GetCpuShares(),
			MemoryLimit: l.GetMemoryLimitInBytes(),
		}
	}
	if u := s.GetUser().GetLinux(); u != nil {
		out.User = &observed.User{UID: u.GetUid(), GID: u.GetGid(), SupplementalGroups: u.GetSupplementalGroups()[:min(len(u.GetSupplementalGroups()), maxGroups)]}
	}
	return out
}
