//go:build linux

package localcri

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/localcri/internal/life"
)

// awaitAll waits until every sandbox is recovered. It returns the sandboxes that may match a
// selector: the sandbox itself or one of its containers may have the labels.
func (r *Runtime) awaitAll(ctx context.Context, selector map[string]string) ([]*pod, error) {
	if err := r.await(ctx); err != nil {
		return nil, err
	}
	select {
	case <-r.whole:
	case <-r.base.Done():
		return nil, errStopped
	case <-ctx.Done():
		return nil, errorf(codes.Unavailable, "sandboxes are being recovered: %v", context.Cause(ctx))
	}
	return r.selected(selector), nil
}

func matches(labels, selector map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// ListPodSandbox returns the sandboxes, newest first.
func (r *Runtime) ListPodSandbox(ctx context.Context, f *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	all, err := r.awaitAll(ctx, f.GetLabelSelector())
	if err != nil {
		return nil, err
	}
	var out []*runtimeapi.PodSandbox
	for _, p := range all {
		if !strings.HasPrefix(p.id, f.GetId()) || !matches(p.config.GetLabels(), f.GetLabelSelector()) || !p.visible() {
			continue
		}
		p.mu.Lock()
		state := p.stateLocked()
		p.mu.Unlock()
		if f.GetState() != nil && f.GetState().GetState() != state {
			continue
		}
		out = append(out, proto.CloneOf(&runtimeapi.PodSandbox{
			Id: p.id, Metadata: p.config.GetMetadata(), State: state, CreatedAt: p.created,
			Labels: p.config.GetLabels(), Annotations: p.config.GetAnnotations(), RuntimeHandler: p.handler,
		}))
	}
	return out, nil
}

// PodSandboxStatus returns the status of a sandbox and of its containers.
func (r *Runtime) PodSandboxStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	p, err := r.lookPod(ctx, id)
	if err != nil {
		return nil, err
	}
	out := &runtimeapi.PodSandboxStatusResponse{}
	out.Status, out.ContainersStatuses = p.status()
	out.Timestamp = now()
	if verbose {
		p.mu.Lock()
		record := p.recordLocked()
		m := p.monitor
		info := map[string]any{"netns": record.Netns, "phase": record.State, "boot": record.Boot, "infra": record.Infra}
		if pid := p.pidLocked(); pid > 0 {
			info["pid"] = pid
		}
		p.mu.Unlock()
		if m != nil {
			info["monitor"] = m.PID()
		}
		out.Info = map[string]string{"info": string(encode(info))}
	}
	return out, nil
}

// pidLocked returns the PID of a process in the namespaces of the sandbox: of its infra process,
// or of a container's process. It returns 0 if none is running. The caller holds p.mu.
func (p *pod) pidLocked() int {
	if p.record.Infra != nil {
		return p.record.Infra.PID
	}
	for _, c := range p.listLocked() {
		if r := c.life.Record(); r.State == life.Running {
			return r.Process.PID
		}
	}
	return 0
}

// ListContainers returns the containers, those of the newest sandbox first.
func (r *Runtime) ListContainers(ctx context.Context, f *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	all, err := r.awaitAll(ctx, f.GetLabelSelector())
	if err != nil {
		return nil, err
	}
	var out []*runtimeapi.Container
	for _, p := range all {
		if !strings.HasPrefix(p.id, f.GetPodSandboxId()) {
			continue
		}
		p.mu.Lock()
		for _, c := range p.listLocked() {
			if !c.shownLocked() || !strings.HasPrefix(c.id, f.GetId()) || !matches(c.config.GetLabels(), f.GetLabelSelector()) {
				continue
			}
			if f.GetState() != nil && f.GetState().GetState() != criState(c.life.Phase()) {
				continue
			}
			out = append(out, proto.CloneOf(c.summaryLocked()))
		}
		p.mu.Unlock()
	}
	return out, nil
}

// maxSpec limits the bytes of a container's config.json that are shown, since an answer may have
// 16 MiB.
const maxSpec = 8 << 20

// ContainerStatus returns the status of a container. If verbose is true, the answer's info has
// the key "info" with "pid", "sandboxID" and "runtimeSpec", as in other runtimes.
func (r *Runtime) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	c, err := r.lookContainer(ctx, id)
	if err != nil {
		return nil, err
	}
	var spec json.RawMessage
	if verbose { // without the lock, since it reads the disk
		if b, err := safefile.ReadFile(c.bundle(configFile), maxSpec); err == nil && json.Valid(b) {
			spec = b
		}
	}
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	out := &runtimeapi.ContainerStatusResponse{Status: proto.CloneOf(c.statusLocked())}
	if verbose {
		r := c.recordLocked()
		info := map[string]any{
			"sandboxID": c.pod.id, "phase": r.State, "cgroup": r.Cgroup, "bundle": c.bundle(), "lostLogBytes": max(c.lost, r.LostLog),
		}
		if r.Process != nil {
			info["pid"] = r.Process.PID
		}
		if spec != nil {
			info["runtimeSpec"] = spec
		}
		out.Info = map[string]string{"info": string(encode(info))}
	}
	return out, nil
}

// Version returns the name and version of the runtime.
func (r *Runtime) Version(context.Context, string) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: r.cfg.Name, RuntimeVersion: r.cfg.Version, RuntimeApiVersion: "v1"}, nil
}

// Status returns whether sandboxes can be created, and the features of the handlers.
func (r *Runtime) Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error) {
	out := &runtimeapi.StatusResponse{
		Status:   &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{{Type: runtimeapi.RuntimeReady, Status: true}, {Type: runtimeapi.NetworkReady, Status: true}}},
		Features: &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true, MountOptions: true},
	}
	conditions := out.GetStatus().GetConditions()
	if err := r.await(ctx); err != nil {
		conditions[0].Status, conditions[0].Reason, conditions[0].Message = false, "RuntimeNotReady", err.Error()
	}
	if err := r.cfg.Network.Status(); err != nil {
		conditions[1].Status, conditions[1].Reason, conditions[1].Message = false, "NetworkPluginNotReady", shown(err.Error())
	}
	var err error
	if out.RuntimeHandlers, err = r.handlers(ctx); err != nil {
		conditions[0].Status, conditions[0].Reason, conditions[0].Message = false, "RuntimeNotReady", shown(err.Error())
	}
	if verbose {
		config, err := json.Marshal(map[string]any{
			"rootDir": r.cfg.RootDir, "stateDir": r.cfg.StateDir, "cgroupDriver": r.cfg.CgroupDriver, "defaultHandler": r.cfg.DefaultHandler,
			"enableCDI": r.cfg.CDI != nil, "cdiSpecDirs": cdiDirs(r.cfg.CDI), // containerd's keys
		})
		if err != nil {
			return nil, fmt.Errorf("encode the configuration: %w", err)
		}
		out.Info = map[string]string{"config": string(config)}
	}
	return out, nil
}

// cdiDirs returns the directories of CDI specifications, if the CDI has directories.
func cdiDirs(c CDI) []string {
	if d, ok := c.(DirCDI); ok {
		return d.Dirs()
	}
	return nil
}

// handlers returns the features of each handler. As the CRI requires, the default handler is also
// listed with an empty name.
func (r *Runtime) handlers(ctx context.Context) ([]*runtimeapi.RuntimeHandler, error) {
	machine, err := r.facts.Machine(ctx)
	if err != nil {
		return nil, err
	}
	var out []*runtimeapi.RuntimeHandler
	for _, name := range sortedKeys(r.cfg.Handlers) {
		f, err := r.executors[name].Features(ctx)
		if err != nil {
			return nil, fmt.Errorf("read features of handler %q: %w", name, err)
		}
		what := func() *runtimeapi.RuntimeHandlerFeatures {
			return &runtimeapi.RuntimeHandlerFeatures{
				RecursiveReadOnlyMounts: f.RecursiveReadOnly && machine.RecursiveReadOnly, UserNamespaces: f.UserNamespaces && f.IDMap && !machine.UserNamespace,
			}
		}
		if name == r.cfg.DefaultHandler {
			out = append(out, &runtimeapi.RuntimeHandler{Features: what()})
		}
		out = append(out, &runtimeapi.RuntimeHandler{Name: name, Features: what()})
	}
	return out, nil
}

// RuntimeConfig returns the cgroup driver.
func (r *Runtime) RuntimeConfig(context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	driver := runtimeapi.CgroupDriver_CGROUPFS
	if r.cfg.CgroupDriver == "systemd" {
		driver = runtimeapi.CgroupDriver_SYSTEMD
	}
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: driver}}, nil
}

// UpdateRuntimeConfig stores the pod addresses of the node. The network does not use them, since
// it has its own configuration.
func (r *Runtime) UpdateRuntimeConfig(_ context.Context, c *runtimeapi.RuntimeConfig) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if cidr := c.GetNetworkConfig().GetPodCidr(); cidr != "" {
		r.podCIDR = cidr
	}
	return nil
}

// Close does nothing. The end of Run's context ends the runtime.
func (r *Runtime) Close(context.Context) error { return nil }

// CheckpointContainer is not implemented.
func (r *Runtime) CheckpointContainer(context.Context, *runtimeapi.CheckpointContainerRequest) error {
	return unimplemented("CheckpointContainer")
}

// CheckpointPod is not implemented. It would need CRIU, and the pod's monitor would have to
// release the containers' processes.
func (r *Runtime) CheckpointPod(context.Context, *runtimeapi.CheckpointPodRequest) error {
	return unimplemented("CheckpointPod")
}

// RestorePod is not implemented, since no checkpoint can be created.
func (r *Runtime) RestorePod(context.Context, *runtimeapi.RestorePodRequest) (*runtimeapi.RestorePodResponse, error) {
	return nil, unimplemented("RestorePod")
}
