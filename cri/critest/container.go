package critest

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// container is one container. Runtime.mu guards it.
type container struct {
	r       *Runtime
	id      string
	sandbox *sandbox
	conf    *runtimeapi.ContainerConfig
	image   *runtimeapi.Image
	state   runtimeapi.ContainerState
	log     string
	out     *os.File // the log, while the container runs; nil if it has none

	created, started, finished time.Time
	exitCode                   int32
	reason, message            string

	timer    *time.Timer
	steps    []string
	trap     *trap
	ignoring bool
	lost     bool   // the start was lost by LoseStart
	memory   uint64 // bytes in use; 0 for memoryUsed
	ended    chan struct{}
}

// trap is the step "trap" of a script: after TERM the container ends with code, after a delay.
type trap struct {
	code  int32
	after time.Duration
}

// CreateContainer makes a container from an image that the runtime has.
func (r *Runtime) CreateContainer(ctx context.Context, sandboxID string, conf *runtimeapi.ContainerConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	leave, err := r.enter(ctx, "CreateContainer", conf.GetMetadata().GetName())
	if err != nil {
		return "", err
	}
	if r.pretends("CreateContainer") {
		return r.pretendedID(), leave()
	}
	r.mu.Lock()
	id, err := r.create(sandboxID, conf)
	r.mu.Unlock()
	if err != nil {
		return "", err
	}
	return id, leave()
}

func (r *Runtime) create(sandboxID string, conf *runtimeapi.ContainerConfig) (string, error) {
	s := r.sandboxes[sandboxID]
	if s == nil {
		return "", notFound("sandbox", sandboxID)
	}
	m := conf.GetMetadata()
	for _, c := range s.has {
		if o := c.conf.GetMetadata(); o.GetName() == m.GetName() && o.GetAttempt() == m.GetAttempt() {
			return "", status.Errorf(codes.Unknown, "failed to reserve container name: name is reserved for %q", c.id)
		}
	}
	image := r.findImage(conf.GetImage().GetImage())
	if image == nil {
		return "", notFound("image", conf.GetImage().GetImage())
	}
	c := &container{
		r: r, id: r.newID(), sandbox: s, conf: conf, image: image,
		state: runtimeapi.ContainerState_CONTAINER_CREATED, created: r.now(),
		steps: append(slices.Clone(conf.GetCommand()), conf.GetArgs()...), ended: make(chan struct{}),
	}
	if !r.lean {
		c.log = logPath(s.conf, conf)
	}
	if r.workload != nil {
		w := r.workload(s.conf, conf)
		c.steps, c.memory = slices.Clone(w.Steps), w.Memory
	}
	r.containers[c.id] = c
	s.has = append(s.has, c)
	r.emit(runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, c.id, s)
	return c.id, nil
}

// StartContainer starts a container that was made.
func (r *Runtime) StartContainer(ctx context.Context, id string) error {
	leave, err := r.enter(ctx, "StartContainer", id)
	if err != nil {
		return err
	}
	if r.pretends("StartContainer") {
		return leave()
	}
	r.mu.Lock()
	c := r.containers[id]
	switch {
	case c == nil:
		r.mu.Unlock()
		return notFound("container", id)
	case c.state != runtimeapi.ContainerState_CONTAINER_CREATED:
		r.mu.Unlock()
		return status.Errorf(codes.Unknown, "container %q is in state %v", id, c.state)
	}
	if r.losesStart {
		r.losesStart, c.lost = false, true
		c.message = "failed to create containerd task: " + context.Canceled.Error()
		c.markExited(128, "StartError")
		r.mu.Unlock()
		return status.Error(codes.Canceled, c.message)
	}
	if command := c.conf.GetCommand(); r.workload == nil && len(command) > 0 && strings.HasPrefix(command[0], "/") {
		err := status.Errorf(codes.Unknown, "exec: %q: stat %s: no such file or directory", command[0], command[0])
		c.message = err.Error()
		c.markExited(128, "StartError") // of which containerd sends no event either
		r.mu.Unlock()
		return err
	}
	c.state, c.started = runtimeapi.ContainerState_CONTAINER_RUNNING, r.now()
	r.emit(runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, c.id, c.sandbox)
	_ = c.openLog()
	c.run()
	r.mu.Unlock()
	return leave()
}

// run executes the steps of the container's script until a step waits or the container ends.
func (c *container) run() {
	next := func() string {
		if len(c.steps) == 0 {
			return ""
		}
		s := c.steps[0]
		c.steps = c.steps[1:]
		return s
	}
	for c.state == runtimeapi.ContainerState_CONTAINER_RUNNING {
		switch step := next(); step {
		case "":
			c.end(0, "Completed")
		case "out":
			c.write("stdout", next())
		case "err":
			c.write("stderr", next())
		case "ignore":
			c.ignoring = true
		case "trap":
			code, _ := strconv.Atoi(next())
			after, _ := time.ParseDuration(next())
			c.trap = &trap{code: int32(code), after: after}
		case "exit":
			code, _ := strconv.Atoi(next())
			c.exit(int32(code))
		case "sleep":
			d, err := time.ParseDuration(next())
			if err != nil {
				return // forever
			}
			c.timer = time.AfterFunc(d, func() {
				c.r.mu.Lock()
				defer c.r.mu.Unlock()
				c.run()
			})
			return
		default:
			// No command of ours: it runs until it is told to end.
			return
		}
	}
}

func (c *container) exit(code int32) {
	reason := "Completed"
	if code != 0 {
		reason = "Error"
	}
	c.end(code, reason)
}

func (c *container) write(stream, line string) {
	if c.out != nil {
		_, _ = fmt.Fprintf(c.out, "%s %s F %s\n", time.Now().Format(time.RFC3339Nano), stream, line)
	}
}

// openLog opens the file at the log's path, to which the log is written from now on.
func (c *container) openLog() error {
	if c.log == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(c.log), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	c.closeLog()
	c.out = f
	return nil
}

func (c *container) closeLog() {
	if c.out != nil {
		_ = c.out.Close()
		c.out = nil
	}
}

// ReopenContainerLog makes the container's log continue in a new file at its path, after the
// previous file was renamed.
func (r *Runtime) ReopenContainerLog(ctx context.Context, id string) error {
	leave, err := r.enter(ctx, "ReopenContainerLog", id)
	if err != nil {
		return err
	}
	r.mu.Lock()
	c := r.containers[id]
	switch {
	case c == nil:
		err = notFound("container", id)
	case c.state != runtimeapi.ContainerState_CONTAINER_RUNNING:
		err = status.Error(codes.Unknown, "container is not running")
	default:
		err = c.openLog()
	}
	r.mu.Unlock()
	if err != nil {
		return err
	}
	return leave()
}

func (c *container) markExited(code int32, reason string) {
	c.state, c.finished, c.exitCode, c.reason = runtimeapi.ContainerState_CONTAINER_EXITED, c.r.now(), code, reason
	c.closeLog()
	close(c.ended)
}

// end ends a container that runs or was never started.
func (c *container) end(code int32, reason string) {
	if c.state == runtimeapi.ContainerState_CONTAINER_EXITED {
		return
	}
	if c.timer != nil {
		c.timer.Stop()
	}
	c.markExited(code, reason)
	c.r.emit(runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, c.id, c.sandbox)
}

// Kill ends a container from outside, as SIGKILL does.
func (r *Runtime) Kill(id string) { r.Exit(id, 137) }

// OOMKill ends a container as the kernel's OOM killer does. Its status has the reason OOMKilled.
func (r *Runtime) OOMKill(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		c.end(137, "OOMKilled")
	}
}

// Reap does nothing: the containers have no processes that an agent could look for in the
// machine's cgroups.
func (r *Runtime) Reap(string) (killed int, err error) { return 0, nil }

// Exit ends a container as if its process had exited with the code.
func (r *Runtime) Exit(id string, code int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		c.exit(code)
	}
}

// StopContainer sends TERM to a container, and kills it after timeout seconds. It is not an error
// if the container does not exist or has ended.
func (r *Runtime) StopContainer(ctx context.Context, id string, timeout int64) error {
	leave, err := r.enter(ctx, "StopContainer", id)
	if err != nil {
		return err
	}
	r.mu.Lock()
	c := r.containers[id]
	if c == nil || c.state == runtimeapi.ContainerState_CONTAINER_EXITED || slices.Contains(r.pretended, "StopContainer") {
		r.mu.Unlock()
		return leave()
	}
	if c.state == runtimeapi.ContainerState_CONTAINER_RUNNING {
		c.term()
	} else {
		c.end(137, "Error")
	}
	r.mu.Unlock()
	force := time.NewTimer(time.Duration(timeout) * time.Second)
	defer force.Stop()
	select {
	case <-c.ended:
	case <-force.C:
		r.mu.Lock()
		c.end(137, "Error")
		r.mu.Unlock()
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	return leave()
}

// term does what SIGTERM does to the container.
func (c *container) term() {
	switch {
	case c.ignoring:
	case c.trap == nil:
		c.end(143, "Error")
	case c.trap.after == 0:
		c.exit(c.trap.code)
	default:
		t := c.trap
		time.AfterFunc(t.after, func() {
			c.r.mu.Lock()
			defer c.r.mu.Unlock()
			c.exit(t.code)
		})
	}
}

// RemoveContainer removes a container, and kills it if it runs. It is not an error if the
// container does not exist.
func (r *Runtime) RemoveContainer(ctx context.Context, id string) error {
	leave, err := r.enter(ctx, "RemoveContainer", id)
	if err != nil {
		return err
	}
	r.mu.Lock()
	if c := r.containers[id]; c != nil && !slices.Contains(r.pretended, "RemoveContainer") {
		if err := c.refusal(); err != nil {
			r.mu.Unlock()
			return err
		}
		c.end(137, "Error")
		c.forget()
		r.emit(runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, id, c.sandbox)
	}
	r.mu.Unlock()
	return leave()
}

// listed iterates over the containers that may have the labels of a selector. r.mu is held.
func (r *Runtime) listed(selector map[string]string) iter.Seq[*container] {
	if selector[labelPodUID] == "" || r.frozen != nil {
		return maps.Values(r.shown().containers)
	}
	return func(yield func(*container) bool) {
		for s := range r.candidates(selector) {
			for _, c := range s.has {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// ListContainers lists containers, newest first.
func (r *Runtime) ListContainers(ctx context.Context, f *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	leave, err := r.enter(ctx, "ListContainers", "")
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*runtimeapi.Container
	for c := range r.listed(f.GetLabelSelector()) {
		if r.hides(c.id, false) || f.GetId() != "" && f.GetId() != c.id || f.GetPodSandboxId() != "" && f.GetPodSandboxId() != c.sandbox.id ||
			f.GetState() != nil && f.GetState().GetState() != c.state || !hasLabels(c.conf.GetLabels(), f.GetLabelSelector()) {
			continue
		}
		out = append(out, &runtimeapi.Container{
			Id: c.id, PodSandboxId: c.sandbox.id, Metadata: c.conf.GetMetadata(), Image: c.conf.GetImage(),
			ImageRef: c.image.GetId(), State: c.state, CreatedAt: c.created.UnixNano(),
			Labels: c.conf.GetLabels(), Annotations: c.conf.GetAnnotations(),
		})
	}
	slices.SortFunc(out, func(a, b *runtimeapi.Container) int { return strings.Compare(b.GetId(), a.GetId()) })
	return out, leave()
}

// forget takes a container out of the runtime.
func (c *container) forget() {
	delete(c.r.containers, c.id)
	c.sandbox.has = slices.DeleteFunc(c.sandbox.has, func(o *container) bool { return o == c })
}

func nano(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func (c *container) status() *runtimeapi.ContainerStatus {
	return &runtimeapi.ContainerStatus{
		Id: c.id, Metadata: c.conf.GetMetadata(), State: c.state,
		CreatedAt: nano(c.created), StartedAt: nano(c.started), FinishedAt: nano(c.finished),
		ExitCode: c.exitCode, Reason: c.reason, Message: c.message, Image: c.conf.GetImage(), ImageRef: c.image.GetId(), ImageId: c.image.GetId(),
		Labels: maps.Clone(c.conf.GetLabels()), Annotations: maps.Clone(c.conf.GetAnnotations()),
		Mounts: c.conf.GetMounts(), LogPath: c.log,
		Resources: &runtimeapi.ContainerResources{Linux: c.conf.GetLinux().GetResources()},
	}
}

// ContainerStatus returns the status of a container.
func (r *Runtime) ContainerStatus(ctx context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	leave, err := r.enter(ctx, "ContainerStatus", id)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.shown().containers[id]
	if c == nil {
		return nil, notFound("container", id)
	}
	return &runtimeapi.ContainerStatusResponse{Status: c.status()}, leave()
}

// State returns the real state and exit code of a container, whatever the simulated faults are.
// known reports whether the container exists. It does not count as a call.
func (r *Runtime) State(id string) (state runtimeapi.ContainerState, exitCode int32, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil {
		return runtimeapi.ContainerState_CONTAINER_UNKNOWN, 0, false
	}
	return c.state, c.exitCode, true
}

// ExecSync runs a script of out, err and exit steps.
func (r *Runtime) ExecSync(ctx context.Context, id string, cmd []string, _ time.Duration) (stdout, stderr []byte, err error) {
	leave, err := r.enter(ctx, "ExecSync", id)
	if err != nil {
		return nil, nil, err
	}
	r.mu.Lock()
	c := r.containers[id]
	running := c != nil && c.state == runtimeapi.ContainerState_CONTAINER_RUNNING
	r.mu.Unlock()
	if !running {
		return nil, nil, notFound("running container", id)
	}
	for len(cmd) > 1 {
		switch cmd[0] {
		case "out":
			stdout = append(stdout, cmd[1]+"\n"...)
		case "err":
			stderr = append(stderr, cmd[1]+"\n"...)
		case "exit":
			if cmd[1] != "0" {
				return stdout, stderr, fmt.Errorf("command ended with exit code %s", cmd[1])
			}
		}
		cmd = cmd[2:]
	}
	return stdout, stderr, leave()
}
