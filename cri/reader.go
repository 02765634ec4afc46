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

// What a runtime says becomes values of package observed here, once and for all
// readers: bounded, with names that can be names, and with times that are zero where
// the CRI has 0.

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

	// dead and ledgers have locks of their own; none is held over a call of the
	// runtime.
	dead    *endings
	ledgers *ledgers

	mu sync.Mutex
	// warned are the sandboxes whose addresses were warned of.
	warned map[string]bool
}

// ReaderConfig holds what a Reader may be told; its zero value is ready.
type ReaderConfig struct {
	// NodeIP is the node's first address: that of a pod which is of its
	// family comes first. IPv4 comes first where there is none.
	NodeIP string
	Log    *zap.Logger // silent
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

// List shows every pod of the runtime, in no order, with two calls. Both have to
// succeed: a list without containers would have pods look dead. Sandboxes and containers
// without the label [LabelPodUID], such as those of crictl runp or of podman, are left out: they
// are nobody's pod, and an agent would end them.
func (r *Reader) List(ctx context.Context) ([]observed.Listed, error) {
	// Asked before the lists: what they lack may have come since.
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
	// Also before a list that is refused: it says what is gone all the same.
	r.dead.keepAll(among(containers, runtimeapi.ContainerState_CONTAINER_EXITED))
	if len(pods) > maxPods {
		return nil, fmt.Errorf("the runtime lists %d pods: want at most %d", len(pods), maxPods)
	}
	r.ledgers.keep(pods, stream)
	return pods, nil
}

// among reports of an ID whether it is one of the containers in that state. The
// result is for many questions.
func among(containers []*runtimeapi.Container, state runtimeapi.ContainerState) func(id string) bool {
	ids := make(map[string]bool, len(containers))
	for _, c := range containers {
		if c.GetState() == state {
			ids[c.GetId()] = true
		}
	}
	return func(id string) bool { return ids[id] }
}

// Inspect shows one pod in full. A pod of which the runtime has nothing comes
// back with its UID alone. What disappears while it is being read is left
// out; any other failure fails the whole.
//
// Lists are asked for unless it is known what there is: see [Reader.Noting].
func (r *Reader) Inspect(ctx context.Context, uid types.UID) (*observed.Pod, error) {
	now := time.Now()
	if e, ok := r.ledgers.expect(uid, now); ok {
		if pod, err := r.inspectByID(ctx, uid, e, now); pod != nil || err != nil {
			return pod, err
		}
	}
	// Lists count as complete only if nothing began or ended while they were read.
	changes := r.ledgers.mark(uid)
	pod, err := r.inspectByLists(ctx, uid)
	if err == nil {
		r.ledgers.took(pod, changes)
	}
	return pod, err
}

// inspectByLists finds what there is of a pod and asks for each. It asks for all even
// after an error, so that the error has everything that is wrong.
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
			continue // whatever it was asked for
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

// sandbox is what a runtime reports of a sandbox, with its addresses in the order in
// which everybody sees them. The ID is the one that was asked for, whatever the
// answer has.
func (r *Reader) sandbox(id string, st *runtimeapi.PodSandboxStatus) observed.Sandbox {
	s := sandboxOf(st)
	s.ID = id
	var dropped []string
	s.IPs, dropped = observed.Addresses(AddressesOf(st), r.cfg.NodeIP)
	r.warn(id, dropped)
	return s
}

// newestSandbox and newestContainer order as observed.Pod says.
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

// container asks for the status of a pod's container, unless it is known to have
// ended.
func (r *Reader) container(ctx context.Context, uid types.UID, c *runtimeapi.Container) (observed.Container, error) {
	// A runtime may start a container again under its ID: its earlier end counts no
	// more.
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

// noted drops the end of a container that began anew, or that is gone, and enters the
// event in the ledgers. It comes before the subscriber is told, who may look at once.
func (r *Reader) noted(e observed.Event) {
	r.ledgers.event(e)
	if e.Kind != observed.ContainerStopped {
		r.dead.forget(e.UID, e.ID)
	}
}

// Events calls on for every event until the stream ends, and ready once it is open.
// It returns an error in any case: observed.ErrNoEventStream if the runtime has no
// stream, ctx's if that ended, else what ended the stream. on is called from this
// goroutine, one event after the other; ready from another. What happened before
// ready is in no event, so that a list should follow it.
func (r *Reader) Events(ctx context.Context, ready func(), on func(observed.Event)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ch := make(chan *runtimeapi.ContainerEventResponse, 8)
	// Room for the result: the goroutine ends also if nobody waits for it.
	done := make(chan error, 1)
	// Without the stream nothing is known of others' doings, whatever ended it.
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

// eventOf reads an event; false if it is no pod's. The statuses in it are not used:
// of several events the last to arrive need not be the last that happened.
func eventOf(ev *runtimeapi.ContainerEventResponse) (observed.Event, bool) {
	uid := oneName(ev.GetPodSandboxStatus().GetMetadata().GetUid(), maxName)
	if uid == "" || oneName(ev.GetContainerId(), maxID) == "" {
		return observed.Event{}, false
	}
	kind := observed.ContainerChanged // of types that are not known here
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

// sandboxState reads a state. The CRI has two of them for sandboxes.
func sandboxState(s runtimeapi.PodSandboxState) observed.State {
	if s == runtimeapi.PodSandboxState_SANDBOX_READY {
		return observed.Running
	}
	return observed.Exited
}

// StateOf returns the state of a container as a plain value. A state that this version
// of the CRI does not have is Unknown.
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

// unixNano is a time as the CRI has it, where 0 means none.
func unixNano(ns int64) time.Time {
	if ns <= 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

// sandboxOf reads a status, without the ID and the addresses. It is made for answers
// that lack any part: the getters of nil are zero values.
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

// maxAddresses is how many addresses of a sandbox are looked at.
const maxAddresses = 64

// AddressesOf are the addresses that a runtime gives of a sandbox, in its own
// order and as it writes them; see [observed.Addresses].
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

// maxWarned bounds what is remembered of warnings; after so many they begin
// anew.
const maxWarned = 1024

// warn reports once of a sandbox's addresses that are none. It is called at each look
// at the sandbox.
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
		r.cfg.Log.Warn("ignored address of sandbox", zap.String("sandbox", sandbox), zap.String("address", cut(dropped[0], maxName)), zap.Int("addresses", len(dropped)))
	}
}

// signalNames turns the CRI's names of real-time signals, such as
// SIGRTMINPLUS3, into those of the API.
var signalNames = strings.NewReplacer("SIGNAL_", "", "PLUS", "+", "MINUS", "-")

// containerOf reads a status, without the IDs.
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
	// The name that the pod's spec has: runtimes resolve the other one, and a status
	// should show what people wrote.
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
	// All others are in the pod's spec as they are, and would only take memory.
	for _, m := range s.GetMounts()[:min(len(s.GetMounts()), maxMounts)] {
		image := m.GetImage().GetImageRef()
		if image == "" { // of runtimes that do not say more than what they were told
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
		out.User = &observed.User{UID: u.GetUid(), GID: u.GetGid(), SupplementalGroups: u.GetSupplementalGroups()[:min(len(u.GetSupplementalGroups()), maxGroups)]}
	}
	return out
}
