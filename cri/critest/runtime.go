package critest

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime is a container runtime in memory. Its methods may be called from any
// goroutine.
type Runtime struct {
	unimplemented
	faults faults

	mu         sync.Mutex
	next       int
	sandboxes  map[string]*sandbox
	names      map[sandboxName]*sandbox         // sandboxes
	labelled   map[string]map[*sandbox]struct{} // sandboxes by the UID in their labels
	containers map[string]*container
	images     map[string]*runtimeapi.Image // images on the node, by ID
	registry   map[string]*runtimeapi.Image // images that can be pulled, by name
	streams    map[*stream]bool
	imageFS    string
	losing     bool
	noEvents   bool
	clock      time.Duration // difference from the machine's clock
	ips        []string      // addresses of new sandboxes; nil if each gets one of its own
	losesStart bool          // LoseStart was called: the next StartContainer is lost
	pretended  []string      // methods that Pretend named
	frozen     *view         // the view at the time of Freeze; nil if lists show the current state
	hidden     func(id string, sandbox bool) bool
	noGroups   bool
	workload   func(*runtimeapi.PodSandboxConfig, *runtimeapi.ContainerConfig) Workload
	anyImage   bool
	lean       bool // new containers have no logs
}

var (
	_ criapi.RuntimeService      = (*Runtime)(nil)
	_ criapi.ImageManagerService = (*Runtime)(nil)
)

// sandboxName is the part of a sandbox's metadata that must be unique.
type sandboxName struct {
	uid, name string
	attempt   uint32
}

func nameOf(m *runtimeapi.PodSandboxMetadata) sandboxName {
	return sandboxName{uid: m.GetUid(), name: m.GetName(), attempt: m.GetAttempt()}
}

type sandbox struct {
	id      string
	conf    *runtimeapi.PodSandboxConfig
	handler string
	ready   bool
	created time.Time
	ip      string
	more    []string // further addresses
	has     []*container
}

// New returns a runtime without sandboxes, containers and images.
func New() *Runtime {
	return &Runtime{
		faults:     newFaults(),
		sandboxes:  map[string]*sandbox{},
		names:      map[sandboxName]*sandbox{},
		labelled:   map[string]map[*sandbox]struct{}{},
		containers: map[string]*container{},
		images:     map[string]*runtimeapi.Image{},
		registry:   map[string]*runtimeapi.Image{},
		streams:    map[*stream]bool{},
	}
}

func notFound(what, id string) error {
	return status.Errorf(codes.NotFound, "%s %q: not found", what, id)
}

// newID returns a new ID with the length of real ones.
func (r *Runtime) newID() string {
	r.next++
	return fmt.Sprintf("%064x", r.next)
}

// pretendedID returns an ID for an object that Pretend kept from being made.
func (r *Runtime) pretendedID() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newID()
}

// Version returns the runtime's name and versions.
func (r *Runtime) Version(ctx context.Context, _ string) (*runtimeapi.VersionResponse, error) {
	if _, err := r.enter(ctx, "Version", ""); err != nil {
		return nil, err
	}
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "critest", RuntimeVersion: "1", RuntimeApiVersion: "v1"}, nil
}

// Status reports that the runtime and its network are ready.
func (r *Runtime) Status(ctx context.Context, _ bool) (*runtimeapi.StatusResponse, error) {
	if _, err := r.enter(ctx, "Status", ""); err != nil {
		return nil, err
	}
	r.mu.Lock()
	noGroups := r.noGroups
	r.mu.Unlock()
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true}, {Type: runtimeapi.NetworkReady, Status: true},
	}}, RuntimeHandlers: []*runtimeapi.RuntimeHandler{
		{Features: &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: true, RecursiveReadOnlyMounts: true}},
		{Name: "plain", Features: &runtimeapi.RuntimeHandlerFeatures{}},
	}, Features: &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: !noGroups}}, nil
}

// IgnoreGroupsPolicy turns the runtime into one that does not support supplementalGroupsPolicy.
func (r *Runtime) IgnoreGroupsPolicy() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noGroups = true
}

// RuntimeConfig reports the cgroup driver.
func (r *Runtime) RuntimeConfig(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	if _, err := r.enter(ctx, "RuntimeConfig", ""); err != nil {
		return nil, err
	}
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS}}, nil
}

// UpdateRuntimeConfig accepts the pod CIDR.
func (r *Runtime) UpdateRuntimeConfig(ctx context.Context, conf *runtimeapi.RuntimeConfig) error {
	leave, err := r.enter(ctx, "UpdateRuntimeConfig", conf.GetNetworkConfig().GetPodCidr())
	if err != nil {
		return err
	}
	return leave()
}

// Close does nothing.
func (r *Runtime) Close(context.Context) error { return nil }

// RunPodSandbox makes a ready sandbox. A sandbox with a network of its own gets an address of
// 10.0.0.0/8.
func (r *Runtime) RunPodSandbox(ctx context.Context, conf *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	leave, err := r.enter(ctx, "RunPodSandbox", conf.GetMetadata().GetName())
	if err != nil {
		return "", err
	}
	m := conf.GetMetadata()
	if m.GetName() == "" || m.GetUid() == "" {
		return "", status.Error(codes.InvalidArgument, "sandbox config must include metadata")
	}
	if r.pretends("RunPodSandbox") {
		return r.pretendedID(), leave()
	}
	r.mu.Lock()
	if s := r.names[nameOf(m)]; s != nil {
		r.mu.Unlock()
		return "", status.Errorf(codes.Unknown, "failed to reserve sandbox name: name is reserved for %q", s.id)
	}
	s := &sandbox{id: r.newID(), conf: conf, handler: handler, ready: true, created: r.now()}
	if conf.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() != runtimeapi.NamespaceMode_NODE {
		s.ip = fmt.Sprintf("10.%d.%d.%d", r.next>>16&255, r.next>>8&255, r.next&255)
		if len(r.ips) > 0 {
			s.ip, s.more = r.ips[0], r.ips[1:]
		}
	}
	r.sandboxes[s.id], r.names[nameOf(m)] = s, s
	uid := conf.GetLabels()[labelPodUID]
	if r.labelled[uid] == nil {
		r.labelled[uid] = map[*sandbox]struct{}{}
	}
	r.labelled[uid][s] = struct{}{}
	r.emit(runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, s.id, s)
	r.emit(runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, s.id, s)
	r.mu.Unlock()
	return s.id, leave()
}

// StopPodSandbox stops a sandbox and its containers. It is not an error if the sandbox does not
// exist or is stopped.
func (r *Runtime) StopPodSandbox(ctx context.Context, id string) error {
	leave, err := r.enter(ctx, "StopPodSandbox", id)
	if err != nil {
		return err
	}
	r.mu.Lock()
	if s := r.sandboxes[id]; s != nil && s.ready && !slices.Contains(r.pretended, "StopPodSandbox") {
		for _, c := range s.has {
			c.end(137, "Error")
		}
		s.ready = false
		r.emit(runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, s.id, s)
	}
	r.mu.Unlock()
	return leave()
}

// RemovePodSandbox removes a sandbox and its containers. It is not an error if the sandbox does
// not exist.
func (r *Runtime) RemovePodSandbox(ctx context.Context, id string) error {
	leave, err := r.enter(ctx, "RemovePodSandbox", id)
	if err != nil {
		return err
	}
	r.mu.Lock()
	if s := r.sandboxes[id]; s != nil && !slices.Contains(r.pretended, "RemovePodSandbox") {
		for _, c := range s.has {
			if err := c.refusal(); err != nil {
				r.mu.Unlock()
				return err
			}
		}
		for len(s.has) > 0 {
			c := s.has[0]
			c.end(137, "Error")
			c.forget()
			r.emit(runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, c.id, s)
		}
		delete(r.sandboxes, id)
		delete(r.names, nameOf(s.conf.GetMetadata()))
		uid := s.conf.GetLabels()[labelPodUID]
		if delete(r.labelled[uid], s); len(r.labelled[uid]) == 0 {
			delete(r.labelled, uid)
		}
		r.emit(runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, s.id, s)
	}
	r.mu.Unlock()
	return leave()
}

func (s *sandbox) state() runtimeapi.PodSandboxState {
	if s.ready {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

func (s *sandbox) status() *runtimeapi.PodSandboxStatus {
	st := &runtimeapi.PodSandboxStatus{
		Id: s.id, Metadata: s.conf.GetMetadata(), State: s.state(), CreatedAt: s.created.UnixNano(),
		Network: &runtimeapi.PodSandboxNetworkStatus{}, RuntimeHandler: s.handler,
		Labels: maps.Clone(s.conf.GetLabels()), Annotations: maps.Clone(s.conf.GetAnnotations()),
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{
			Options: s.conf.GetLinux().GetSecurityContext().GetNamespaceOptions(),
		}},
	}
	if s.ready {
		st.Network.Ip = s.ip
		for _, ip := range s.more {
			st.Network.AdditionalIps = append(st.Network.AdditionalIps, &runtimeapi.PodIP{Ip: ip})
		}
	}
	return st
}

// PodSandboxStatus returns the status of a sandbox.
func (r *Runtime) PodSandboxStatus(ctx context.Context, id string, _ bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	leave, err := r.enter(ctx, "PodSandboxStatus", id)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.shown().sandboxes[id]
	if s == nil {
		return nil, notFound("sandbox", id)
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: s.status()}, leave()
}

func hasLabels(have, want map[string]string) bool {
	for k, v := range want {
		if have[k] != v {
			return false
		}
	}
	return true
}

// labelPodUID is the label by which an agent lists the sandboxes and containers of a pod. A
// container has the same label as its sandbox.
const labelPodUID = "io.kubernetes.pod.uid"

// candidates iterates over the sandboxes that may have the labels of a selector. r.mu is held.
func (r *Runtime) candidates(selector map[string]string) iter.Seq[*sandbox] {
	if uid := selector[labelPodUID]; uid != "" && r.frozen == nil {
		return maps.Keys(r.labelled[uid])
	}
	return maps.Values(r.shown().sandboxes)
}

// ListPodSandbox lists sandboxes, newest first.
func (r *Runtime) ListPodSandbox(ctx context.Context, f *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	leave, err := r.enter(ctx, "ListPodSandbox", "")
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*runtimeapi.PodSandbox
	for s := range r.candidates(f.GetLabelSelector()) {
		if r.hides(s.id, true) || f.GetId() != "" && f.GetId() != s.id || f.GetState() != nil && f.GetState().GetState() != s.state() ||
			!hasLabels(s.conf.GetLabels(), f.GetLabelSelector()) {
			continue
		}
		out = append(out, &runtimeapi.PodSandbox{
			Id: s.id, Metadata: s.conf.GetMetadata(), State: s.state(), CreatedAt: s.created.UnixNano(),
			Labels: s.conf.GetLabels(), Annotations: s.conf.GetAnnotations(), RuntimeHandler: s.handler,
		})
	}
	slices.SortFunc(out, func(a, b *runtimeapi.PodSandbox) int { return strings.Compare(b.GetId(), a.GetId()) })
	return out, leave()
}

// Exec returns a URL at which nothing is served.
func (r *Runtime) Exec(ctx context.Context, req *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	leave, err := r.enter(ctx, "Exec", req.GetContainerId())
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ExecResponse{Url: "http://127.0.0.1:0/exec/" + req.GetContainerId()}, leave()
}

// logPath returns the path of a container's log file, or "" if it has none.
func logPath(s *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig) string {
	if s.GetLogDirectory() == "" || c.GetLogPath() == "" {
		return ""
	}
	return filepath.Join(s.GetLogDirectory(), c.GetLogPath())
}
