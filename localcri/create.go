//go:build linux

package localcri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/durable"
	"github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/localcri/image"
	"github.com/nodewright/nodewright/localcri/internal/executor"
	"github.com/nodewright/nodewright/localcri/internal/life"
	"github.com/nodewright/nodewright/localcri/internal/monitor"
	"github.com/nodewright/nodewright/localcri/internal/ocispec"
	"github.com/nodewright/nodewright/localcri/internal/spaces"
)

// CreateContainer creates a container in a ready sandbox. It starts no process. Concurrent calls
// with the same name and attempt share the work, as with RunPodSandbox. The sandbox's
// configuration is the one of its creation; sandboxConfig may be nil.
func (r *Runtime) CreateContainer(ctx context.Context, podID string, config *runtimeapi.ContainerConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	if podID == "" {
		return "", invalid("pod_sandbox_id", "", "is required")
	}
	p, err := r.lookPod(ctx, podID)
	if err != nil {
		return "", err
	}
	if err := checkContainer(config); err != nil {
		return "", err
	}
	config = proto.CloneOf(config)
	p.share(config)
	for {
		c, err := p.claimContainer(config)
		if err != nil {
			return "", err
		}
		if c == nil {
			if !retry.Sleep(ctx, pollPause) {
				return "", coded(context.Cause(ctx))
			}
			continue
		}
		if err := c.claim.take(ctx); err != nil {
			return "", err
		}
		return c.id, nil
	}
}

// share changes the namespace mode POD of the container to NODE for each namespace that the
// sandbox shares with the node.
func (p *pod) share(config *runtimeapi.ContainerConfig) {
	podOptions := p.options()
	if podOptions.GetPid() != runtimeapi.NamespaceMode_NODE && podOptions.GetIpc() != runtimeapi.NamespaceMode_NODE {
		return
	}
	if config.Linux == nil {
		config.Linux = &runtimeapi.LinuxContainerConfig{}
	}
	if config.Linux.SecurityContext == nil {
		config.Linux.SecurityContext = &runtimeapi.LinuxContainerSecurityContext{}
	}
	if config.Linux.SecurityContext.NamespaceOptions == nil {
		config.Linux.SecurityContext.NamespaceOptions = &runtimeapi.NamespaceOption{}
	}
	opts := config.Linux.SecurityContext.NamespaceOptions
	if opts.Pid == runtimeapi.NamespaceMode_POD && podOptions.GetPid() == runtimeapi.NamespaceMode_NODE {
		opts.Pid = runtimeapi.NamespaceMode_NODE
	}
	if opts.Ipc == runtimeapi.NamespaceMode_POD && podOptions.GetIpc() == runtimeapi.NamespaceMode_NODE {
		opts.Ipc = runtimeapi.NamespaceMode_NODE
	}
}

// claimContainer returns the container with this name and attempt, or starts to create it. It
// returns nil if a container with this name is being removed.
func (p *pod) claimContainer(config *runtimeapi.ContainerConfig) (*container, error) {
	r, key := p.rt, containerKey(config.GetMetadata())
	r.mu.Lock()
	defer r.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.names[key]; c != nil {
		taken := errorf(codes.AlreadyExists, "container name %.300q of sandbox %s is reserved for %s", key, p.id, c.id)
		if c.claim == nil {
			return nil, taken
		}
		switch c.claim.join(proto.Equal(c.config, config)) {
		case joinWait:
			return c, nil
		case joinDelivered:
			return nil, taken
		}
		return nil, nil
	}
	if err := p.readyLocked(); err != nil {
		return nil, err
	}
	b, err := proto.Marshal(config)
	if err != nil {
		return nil, errorf(codes.InvalidArgument, "config cannot be kept: %v", err)
	}
	resources, err := proto.Marshal(config.GetLinux().GetResources())
	if err != nil {
		return nil, errorf(codes.InvalidArgument, "config.linux.resources cannot be kept: %v", err)
	}
	c := newContainer(p, containerFacts{
		Version: recordVersion, ID: newID(), Sandbox: p.id, Boot: r.cfg.BootID,
		Created: time.Now().UnixNano(), Config: b, Resources: resources,
	}, life.NewContainer(), config)
	c.claim = newClaim(func() { _ = c.apply(life.Discarded{}) })
	p.containers[c.id], p.names[key], r.containers[c.id] = c, c, c
	r.label(p, c.config.GetLabels(), 1)
	r.do(func(ctx context.Context) { r.makeContainer(ctx, c) })
	return c, nil
}

func (r *Runtime) makeContainer(ctx context.Context, c *container) {
	if err := c.make(ctx); err != nil {
		r.log.Debug("failed to create container", zap.String("container", c.id), zap.String("sandbox", c.pod.id), zap.Error(err))
		_ = c.apply(life.Discarded{})
		_ = c.removed(ctx)
		c.claim.complete(coded(err))
		return
	}
	_ = c.apply(life.Made{})
	if c.phase() != life.Created { // its sandbox has been removed meanwhile
		_ = c.removed(ctx)
		c.claim.complete(errorf(codes.FailedPrecondition, "container %s was removed while it was made", c.id))
		return
	}
	_ = c.hook(ctx, HookCreated)
	c.claim.complete(nil)
	c.pod.tell(runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, c.id, c.created)
}

// forget removes a container from the tables. It is called before the container's files
// are removed.
func (c *container) forget() {
	r, p := c.rt(), c.pod
	r.mu.Lock()
	defer r.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.containers[c.id] == c {
		delete(r.containers, c.id)
		r.label(p, c.config.GetLabels(), -1)
	}
	r.erasing[c.id] = true
	delete(p.containers, c.id)
	if p.names[c.key] == c {
		delete(p.names, c.key)
	}
}

// make creates everything of a container except its processes. The record is written last:
// parts of a container without a record are removed at the next start.
func (c *container) make(ctx context.Context) error {
	r := c.rt()
	h, x, err := r.handler(c.pod.handler)
	if err != nil {
		return err
	}
	if err := r.roomFor(); err != nil {
		return err
	}
	rootfs, err := r.cfg.Images.Use(ctx, c.config.GetImage().GetImage(), c.id)
	if err != nil {
		return err
	}
	if err := c.mountRootfs(rootfs); err != nil {
		return fmt.Errorf("mount root file system: %w", err)
	}
	in, err := c.input(ctx, h, x, rootfs)
	if err != nil {
		return err
	}
	spec, err := ocispec.Compile(in)
	if err != nil {
		return err
	}
	if err := c.injectCDI(ctx, spec, in.Handler); err != nil {
		return err
	}
	if spec, err = c.changed(ctx, spec, in); err != nil {
		return err
	}
	c.pod.mu.Lock()
	c.setImageLocked(rootfs)
	c.record.StopSignal = rootfs.Defaults.StopSignal
	c.record.User = userRecord{in.User.UID, in.User.GID, in.User.Groups}
	c.record.Cgroup = cgroupOf(spec.Linux.CgroupsPath)
	annotation := string(c.copyLocked())
	c.pod.mu.Unlock()
	if l := c.logPath(); l != "" {
		if err := os.MkdirAll(filepath.Dir(l), 0o755); err != nil {
			return errorf(codes.FailedPrecondition, "log directory %.300q: %v", filepath.Dir(l), err)
		}
	}
	if err := c.writeBundle(spec, annotation); err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	if err := c.save(ctx); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	return nil
}

// injectCDI adds the CDI devices of the container.
func (c *container) injectCDI(ctx context.Context, spec *specs.Spec, h ocispec.Handler) error {
	names := cdiNames(c.config)
	cdi := c.rt().cfg.CDI
	switch {
	case len(names) == 0:
		return nil
	case cdi == nil:
		return errorf(codes.FailedPrecondition, "CDI_devices %.200q: no CDI devices are configured", names)
	}
	if err := cdi.Inject(ctx, spec, names); err != nil {
		return errorf(codes.FailedPrecondition, "CDI_devices %.200q: %s", names, shown(err.Error()))
	}
	if err := ocispec.CheckEdited(spec, h); err != nil {
		return errorf(codes.FailedPrecondition, "CDI_devices %.200q: %s", names, shown(err.Error()))
	}
	spec.Version = ocispec.LeastVersion(spec)
	return nil
}

// cdiAnnotation is the prefix of annotations with names of CDI devices, separated by commas.
// Agents used them before the CRI had a field for these names.
const cdiAnnotation = "cdi.k8s.io/"

// cdiNames returns the CDI devices of a container without duplicates; devices of the field come
// first.
func cdiNames(config *runtimeapi.ContainerConfig) []string {
	var names []string
	add := func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, d := range config.GetCDIDevices() {
		add(d.GetName())
	}
	annotations := config.GetAnnotations()
	for _, key := range sortedKeys(annotations) {
		if strings.HasPrefix(key, cdiAnnotation) {
			for name := range strings.SplitSeq(annotations[key], ",") {
				add(name)
			}
		}
	}
	return names
}

// recordAnnotation is the annotation in config.json with a copy of the container's and the
// sandbox's record.
const recordAnnotation = "io.nodewright.localcri.record"

// recordCopy is the value of recordAnnotation, and the record that a monitor keeps.
type recordCopy struct {
	Container containerRecord `json:"container"`
	Sandbox   sandboxRecord   `json:"sandbox"`
}

// maxKept limits the bytes of a record that a monitor keeps.
const maxKept = 32 << 10

// keptLocked returns the copy of the record that the monitor keeps. It returns nil if the copy
// has more than maxKept bytes; then only config.json has a copy. The caller holds pod.mu.
func (c *container) keptLocked() []byte {
	if b := c.copyLocked(); len(b) <= maxKept {
		return b
	}
	return nil
}

// copyLocked returns the copy for config.json. The caller holds pod.mu.
func (c *container) copyLocked() []byte {
	return encode(recordCopy{c.recordLocked(), c.pod.recordLocked()})
}

// roomFor returns an error if less than Config.Reserve is free on the disk.
func (r *Runtime) roomFor() error {
	free, inodes, err := freeOf(r.cfg.RootDir)
	if err != nil {
		return err
	}
	if free < r.cfg.Reserve || inodes == 0 {
		return errorf(codes.ResourceExhausted, "%s has %d bytes and %d inodes left; want at least %d and 1", r.cfg.RootDir, free, inodes, r.cfg.Reserve)
	}
	return nil
}

// machineFor returns the features that both the machine and an OCI runtime support.
func (r *Runtime) machineFor(ctx context.Context, x ociRuntime) (ocispec.Machine, executor.Features, error) {
	machine, err := r.facts.Machine(ctx)
	if err != nil {
		return machine, executor.Features{}, fmt.Errorf("find out what the machine supports: %w", err)
	}
	features, err := x.Features(ctx)
	if err != nil {
		return machine, features, fmt.Errorf("find out what the OCI runtime supports: %w", err)
	}
	if !features.Seccomp {
		machine.Seccomp = nil
	}
	return machine, features, nil
}

// input collects everything that a container's configuration depends on.
func (c *container) input(ctx context.Context, h Handler, x ociRuntime, rootfs image.Rootfs) (*ocispec.Input, error) {
	r, p := c.rt(), c.pod
	machine, features, err := r.machineFor(ctx, x)
	if err != nil {
		return nil, err
	}
	if err := r.hostDevices(ctx, &machine, c.config, h); err != nil {
		return nil, fmt.Errorf("find the devices of the host: %w", err)
	}
	passwd, group, err := r.facts.Users(ctx, c.bundle(rootfsDir))
	if err != nil {
		return nil, fmt.Errorf("read users of image: %w", err)
	}
	user, err := ocispec.ResolveUser(c.config.GetLinux().GetSecurityContext(), rootfs.Defaults.User, passwd, group)
	if err != nil {
		return nil, err
	}
	sources, err := c.sources(ctx)
	if err != nil {
		return nil, err
	}
	volumes, err := c.volumes(rootfs.Defaults.Volumes)
	if err != nil {
		return nil, err
	}
	devices, err := r.facts.Devices(ctx, c.config.GetDevices())
	if err != nil {
		return nil, err
	}
	profile, err := seccompProfile(c.config)
	if err != nil {
		return nil, err
	}
	made, err := r.spaces.Look(p.id)
	if err != nil {
		return nil, fmt.Errorf("find the namespaces of the sandbox: %w", err)
	}
	namespaces, err := c.namespaces(made)
	if err != nil {
		return nil, err
	}
	hostname, err := p.hostname()
	if err != nil {
		return nil, fmt.Errorf("read host name of sandbox: %w", err)
	}
	shm := spaces.HostShm // with the host's IPC namespace
	if c.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetIpc() == runtimeapi.NamespaceMode_POD {
		shm = made.Shm
	}
	return &ocispec.Input{
		ID: c.id, Sandbox: p.config, Container: c.config, User: user, Rootfs: c.bundle(rootfsDir),
		Image: ocispec.Image{
			Entrypoint: rootfs.Defaults.Entrypoint, Cmd: rootfs.Defaults.Cmd, Env: rootfs.Defaults.Env, WorkingDir: rootfs.Defaults.WorkingDir,
		},
		Hostname:   hostname,
		Namespaces: namespaces,
		Files:      ocispec.Files{ResolvConf: p.file("resolv.conf"), Hostname: p.file("hostname"), Hosts: p.file("hosts"), Shm: shm},
		Sources:    sources, Volumes: volumes, Devices: devices, SeccompProfile: profile, Machine: machine,
		Handler: ocispec.Handler{
			RecursiveReadOnly: features.RecursiveReadOnly, IDMap: features.IDMap && features.UserNamespaces,
			NetDevices: features.NetDevices, IntelRdt: features.IntelRdt,
			PrivilegedWithoutHostDevices: h.PrivilegedWithoutHostDevices,
		},
	}, nil
}

// seccompProfile reads the file of a localhost profile.
func seccompProfile(c *runtimeapi.ContainerConfig) ([]byte, error) {
	p := c.GetLinux().GetSecurityContext().GetSeccomp()
	if p.GetProfileType() != runtimeapi.SecurityProfile_Localhost || !filepath.IsAbs(p.GetLocalhostRef()) || c.GetLinux().GetSecurityContext().GetPrivileged() {
		return nil, nil // ocispec.Compile reports the mistake
	}
	const most = 4 << 20
	b, err := safefile.ReadLinked(p.GetLocalhostRef(), most)
	if err != nil {
		return nil, errorf(codes.FailedPrecondition, "linux.security_context.seccomp.localhost_ref %.200q: cannot be read: %v", p.GetLocalhostRef(), err)
	}
	return b, nil
}

// namespaces returns the paths of the namespaces that the container joins.
func (c *container) namespaces(made spaces.Paths) (ocispec.Namespaces, error) {
	p := c.pod
	out := ocispec.Namespaces{IPC: made.IPC, UTS: made.UTS, User: made.User}
	p.mu.Lock()
	out.Network = p.record.Netns
	infra := p.record.Infra
	p.mu.Unlock()
	opts := c.config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	switch opts.GetPid() {
	case runtimeapi.NamespaceMode_POD:
		if infra == nil {
			return out, errorf(codes.FailedPrecondition, "linux.security_context.namespace_options.pid POD: the sandbox has no PID namespace of its own")
		}
		out.PID = pidNamespace(*infra)
	case runtimeapi.NamespaceMode_TARGET:
		target, err := c.target()
		if err != nil {
			return out, err
		}
		out.PID = pidNamespace(target)
	}
	return out, nil
}

func pidNamespace(id life.Process) string { return fmt.Sprintf("/proc/%d/ns/pid", id.PID) }

// target returns the process of the container whose PID namespace is joined.
func (c *container) target() (life.Process, error) {
	const field = "linux.security_context.namespace_options.target_id"
	id := c.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetTargetId()
	if id == "" {
		return life.Process{}, invalid(field, id, "is required with TARGET")
	}
	t := c.pod.find(id)
	if t == nil {
		return life.Process{}, errorf(codes.FailedPrecondition, "%s %.128q: is no container of the sandbox", field, id)
	}
	process, ok := t.process()
	if !ok {
		return life.Process{}, errorf(codes.FailedPrecondition, "%s %.128q: does not run", field, id)
	}
	return process, nil
}

// joinable returns an error if the process whose namespace the container joins has ended. In that
// case another process may have its PID now.
func (c *container) joinable() error {
	switch c.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetPid() {
	case runtimeapi.NamespaceMode_POD:
		c.pod.mu.Lock()
		infra := c.pod.record.Infra
		c.pod.mu.Unlock()
		if infra == nil || !alive(c.rt().processes, *infra) {
			return errorf(codes.FailedPrecondition, "the process of the shared PID namespace of sandbox %s ended", c.pod.id)
		}
	case runtimeapi.NamespaceMode_TARGET:
		t, err := c.target()
		if err != nil {
			return err
		}
		if !alive(c.rt().processes, t) {
			return errorf(codes.FailedPrecondition, "the container whose PID namespace is to be joined ended")
		}
	}
	return nil
}

// writeBundle writes config.json, and the process description for later execs.
func (c *container) writeBundle(spec *specs.Spec, annotation string) error {
	if spec.Annotations == nil {
		spec.Annotations = map[string]string{}
	}
	spec.Annotations[recordAnnotation] = annotation
	config, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	process, err := json.Marshal(spec.Process)
	if err != nil {
		return err
	}
	disk := durable.OS{DirMode: closed, FileMode: 0o600}
	return errors.Join(disk.Write(c.bundle(configFile), config, false), disk.Write(c.bundle(processFile), process, false))
}

// creation returns the parameters for the OCI runtime's create.
func (c *container) creation(m monitor.Container) executor.Creation {
	return executor.Creation{ID: c.id, Bundle: c.bundle(), PIDFile: m.PIDFile, ConsoleSocket: m.ConsoleSocket, Log: m.ExecutorLog}
}

// makeStreams creates the directory of FIFOs and exit records.
func (c *container) makeStreams() error { return os.MkdirAll(c.streams(), closed) }
