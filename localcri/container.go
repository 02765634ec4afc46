//go:build linux

package localcri

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"

	"github.com/distribution/reference"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/localcri/image"
	"github.com/nodewright/nodewright/localcri/internal/life"
	"github.com/nodewright/nodewright/localcri/internal/monitor"
)

// container is one container. pod.mu guards the fields that change.
type container struct {
	pod     *pod
	id      string
	key     string
	created int64
	config  *runtimeapi.ContainerConfig
	saver   *saver

	life      life.Container // changed only by applyLocked
	told      hookStage      // what the hooks have heard
	record    containerFacts
	resources *runtimeapi.LinuxContainerResources // the current resources
	lost      uint64

	// Operations in progress, on which callers wait. Whether an operation may begin is decided by
	// life only.
	claim    *claim        // the container's creation; nil if an earlier process created it
	exited   chan struct{} // closed when its process has ended, or counts as gone
	starting *op
	asked    asked // the monitor that was asked for the last start
	stop     *stopping
	cleaning *op // removal of what the OCI runtime has of it, after its end
	removal  *op // the container's removal, up to the point where callers consider it removed
	updating *op
}

func newContainer(p *pod, record containerFacts, l life.Container, config *runtimeapi.ContainerConfig) *container {
	c := &container{
		pod: p, id: record.ID, key: containerKey(config.GetMetadata()), created: record.Created, config: config,
		saver: newSaver(), exited: make(chan struct{}), life: l, told: toldBefore(l.Phase()), record: record, resources: &runtimeapi.LinuxContainerResources{},
	}
	if l.Phase() == life.Exited || l.Phase() == life.Removing {
		close(c.exited)
	}
	_ = proto.Unmarshal(record.Resources, c.resources) // its decoding succeeded when the record was read
	return c
}

func (c *container) rt() *Runtime { return c.pod.rt }

// visible reports whether callers may see the container.
func (c *container) visible() bool {
	if c.claim != nil && !c.claim.isDelivered() {
		return false
	}
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	return c.shownLocked()
}

func (c *container) shownLocked() bool {
	return c.life.Shown() && (c.claim == nil || c.claim.isDelivered())
}

// phase returns the container's phase.
func (c *container) phase() life.Phase {
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	return c.life.Phase()
}

// going reports whether the container is being removed or gone. For callers it does not exist any
// more.
func (c *container) going() bool {
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	return c.life.Going()
}

// recordLocked returns the record to write. The caller holds pod.mu.
func (c *container) recordLocked() containerRecord {
	return containerRecord{c.record, c.life.Record()}
}

// process returns the first process of the container, while it is running.
func (c *container) process() (life.Process, bool) {
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	if c.life.Phase() != life.Running {
		return life.Process{}, false
	}
	return *c.life.Record().Process, true
}

// save writes the record.
func (c *container) save(ctx context.Context) error {
	return c.saver.save(ctx, c.rt().containerRecords, c.id, func() []byte {
		c.pod.mu.Lock()
		defer c.pod.mu.Unlock()
		if c.life.Phase() == life.Gone {
			return nil
		}
		return encode(c.recordLocked())
	})
}

// keepRecord writes the record in the background. Until the record is written, the monitor has
// its content.
func (c *container) keepRecord(ctx context.Context) {
	ctx, cancel := contextForWrite(ctx)
	defer cancel()
	if err := c.save(ctx); err != nil {
		c.rt().log.Warn("failed to write record of container", zap.String("container", c.id), zap.Error(err))
	}
}

// logPath returns the path of the container's log. It returns "" if the container has no log.
func (c *container) logPath() string { return logPath(c.pod.config, c.config) }

func logPath(pod *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig) string {
	if pod.GetLogDirectory() == "" || c.GetLogPath() == "" {
		return ""
	}
	return path.Join(pod.GetLogDirectory(), c.GetLogPath())
}

// logEscapes reports whether the path of a log leads out of its directory.
func logEscapes(c *runtimeapi.ContainerConfig) bool {
	p := path.Clean(c.GetLogPath())
	return c.GetLogPath() != "" && (path.IsAbs(p) || p == ".." || p == "." || strings.HasPrefix(p, "../"))
}

// criState returns the CRI's state for a phase.
func criState(p life.Phase) runtimeapi.ContainerState {
	switch p {
	case life.Running:
		return runtimeapi.ContainerState_CONTAINER_RUNNING
	case life.Exited, life.Removing, life.Gone:
		return runtimeapi.ContainerState_CONTAINER_EXITED
	default:
		return runtimeapi.ContainerState_CONTAINER_CREATED
	}
}

// nameFor returns one of an image's names: the requested one or, if the image does not have it, a
// name in the requested repository, or else the last name. It returns "" if the image has no
// names.
func nameFor(names []string, requested *runtimeapi.ImageSpec) string {
	ref, err := reference.ParseDockerRef(cmp.Or(requested.GetUserSpecifiedImage(), requested.GetImage()))
	if err == nil && slices.Contains(names, ref.String()) {
		return ref.String()
	}
	found := ""
	for _, n := range names {
		ofAsked := err == nil && (strings.HasPrefix(n, ref.Name()+":") || strings.HasPrefix(n, ref.Name()+"@"))
		if ofAsked {
			found = n
		}
	}
	if found == "" && len(names) > 0 {
		return names[len(names)-1]
	}
	return found
}

// setImageLocked stores the image of the container in the record, in the form that callers
// expect. The caller holds pod.mu.
func (c *container) setImageLocked(root image.Rootfs) {
	asked := c.config.GetImage()
	c.record.Image, c.record.ImageRef = root.Image, nameFor(root.Digests, asked)
	const algorithm = "sha256:"
	if strings.HasPrefix(strings.TrimPrefix(root.Image, algorithm), strings.TrimPrefix(asked.GetImage(), algorithm)) { // requested by ID, or by its first digits
		c.record.ImageName = nameFor(root.Tags, asked)
	}
}

// mountsLocked returns the container's mounts, including mounted images. The caller holds
// pod.mu.
func (c *container) mountsLocked() []*runtimeapi.Mount {
	mounts := slices.Clone(c.config.GetMounts())
	for i, ref := range c.record.MountRefs {
		if ref != "" && i < len(mounts) && mounts[i].GetImage() != nil {
			mounts[i] = proto.CloneOf(mounts[i])
			mounts[i].Image.ImageRef = ref
		}
	}
	return mounts
}

// imageLocked returns the image as the container's creator requested it. If it was requested by
// its ID, the result has one of the image's names. The caller holds pod.mu.
func (c *container) imageLocked() *runtimeapi.ImageSpec {
	if c.record.ImageName == "" {
		return c.config.GetImage()
	}
	spec := proto.CloneOf(c.config.GetImage())
	spec.Image = c.record.ImageName
	return spec
}

// statusLocked returns the container's CRI status. The parts that it shares with c are never
// modified.
func (c *container) statusLocked() *runtimeapi.ContainerStatus {
	r := c.recordLocked()
	groups := make([]int64, len(r.User.Groups))
	for i, g := range r.User.Groups {
		groups[i] = int64(g)
	}
	return &runtimeapi.ContainerStatus{
		Id: c.id, Metadata: c.config.GetMetadata(), State: criState(r.State),
		CreatedAt: r.Created, StartedAt: r.Started, FinishedAt: r.Finished,
		ExitCode: r.ExitCode, Reason: r.Reason, Message: r.Message,
		Image: c.imageLocked(), ImageRef: cmp.Or(r.ImageRef, r.Image), ImageId: r.Image,
		Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(), Mounts: c.mountsLocked(),
		LogPath:    c.logPath(),
		Resources:  &runtimeapi.ContainerResources{Linux: c.resources},
		User:       &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{Uid: int64(r.User.UID), Gid: int64(r.User.GID), SupplementalGroups: groups}},
		StopSignal: c.stopSignalLocked(),
	}
}

// summaryLocked returns the container for the CRI's lists. The caller holds pod.mu.
func (c *container) summaryLocked() *runtimeapi.Container {
	return &runtimeapi.Container{
		Id: c.id, PodSandboxId: c.pod.id, Metadata: c.config.GetMetadata(), Image: c.config.GetImage(),
		ImageRef: cmp.Or(c.record.ImageRef, c.record.Image), ImageId: c.record.Image,
		State: criState(c.life.Phase()), CreatedAt: c.record.Created, Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(),
	}
}

// Paths of a container.

func (c *container) bundle(elements ...string) string {
	return c.rt().rootPath(append([]string{containersDir, c.id}, elements...)...)
}

func (c *container) streams(elements ...string) string {
	return c.rt().statePath(append([]string{streamsDir, c.id}, elements...)...)
}

const (
	rootfsDir   = "rootfs"
	upperDir    = "upper"
	workDir     = "work"
	imagesDir   = "images" // mounted images, by index of the mount
	exitFile    = "exit"
	pidFile     = "pid"
	consoleFile = "console"
	runtimeLog  = "runtime.log"
)

// monitoredLocked returns what a monitor needs to run the container. A monitor that replaces
// another one gets the same. The caller holds pod.mu.
func (c *container) monitoredLocked(x ociRuntime) monitor.Container {
	m := monitor.Container{
		ID: c.id, Dir: "/", PIDFile: c.streams(pidFile), ExecutorLog: c.streams(runtimeLog),
		FIFODir: c.streams(), ExitFile: c.streams(exitFile), Log: c.logPath(),
		Stdin: c.config.GetStdin(), StdinOnce: c.config.GetStdinOnce(), Terminal: c.config.GetTty(),
		OOMFile: c.rt().usage.OOMFile(c.record.Cgroup), Record: c.keptLocked(), Timeout: createTimeout,
	}
	if m.Terminal {
		m.ConsoleSocket = c.streams(consoleFile)
	}
	m.Create, m.Start = x.Create(c.creation(m)), x.Start(c.id, m.ExecutorLog)
	return m
}
