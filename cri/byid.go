package cri

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri/observed"
)

// Inspections by ID. If the ledger of a pod (ledger.go) is complete, the Reader reads the
// status of each recorded item, without lists: two calls in place of four or more.

// PodRuntime is the part of a runtime that runs pods.
type PodRuntime interface {
	RunPodSandbox(ctx context.Context, conf *runtimeapi.PodSandboxConfig, handler string) (string, error)
	PodSandboxStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error)
	StopPodSandbox(ctx context.Context, id string) error
	RemovePodSandbox(ctx context.Context, id string) error
	CreateContainer(ctx context.Context, sandbox string, conf *runtimeapi.ContainerConfig, sandboxConf *runtimeapi.PodSandboxConfig) (string, error)
	StartContainer(ctx context.Context, id string) error
	StopContainer(ctx context.Context, id string, timeout int64) error
	RemoveContainer(ctx context.Context, id string) error
	ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error)
	ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, err error)
}

// Noting returns a PodRuntime that calls rt and records the calls. If such calls created the
// sandbox and all containers of a pod, the pod is inspected by their IDs, without lists, as long
// as
//
//   - all of these calls succeeded, and none ended a sandbox or container of the pod;
//   - the event stream is open, and its events named nothing else of the pod;
//   - the last list of all pods showed nothing else of the pod.
//
// For a second after the start of a container, the status of its sandbox is not read either.
func (r *Reader) Noting(rt PodRuntime) PodRuntime { return &noting{rt, r} }

// noting passes calls on to a runtime and records them: begin before the call and end
// after it, so that an inspection in between uses lists.
type noting struct {
	PodRuntime
	r *Reader
}

// RunPodSandbox records the sandbox, and the pod's namespace and name.
func (n *noting) RunPodSandbox(ctx context.Context, conf *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	uid, namespace, name := podOf(conf.GetLabels())
	ls := n.r.ledgers
	ls.begin(uid)
	id, err := n.PodRuntime.RunPodSandbox(ctx, conf, handler)
	ls.end(uid, err, func(l *ledger) {
		l.namespace, l.name = namespace, name
		ls.madeSandbox(uid, l, id)
	})
	return id, err
}

// PodSandboxStatus records the status of a known sandbox, for an inspection after a
// start.
func (n *noting) PodSandboxStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	resp, err := n.PodRuntime.PodSandboxStatus(ctx, id, verbose)
	if err == nil && n.r.ledgers.owner(id) != "" {
		s := n.r.sandbox(id, resp.GetStatus())
		n.r.ledgers.recordStatus(&s)
	}
	return resp, err
}

// CreateContainer records the container; its labels name the pod.
func (n *noting) CreateContainer(ctx context.Context, sandbox string, conf *runtimeapi.ContainerConfig, sandboxConf *runtimeapi.PodSandboxConfig) (string, error) {
	uid, _, _ := podOf(conf.GetLabels())
	ls := n.r.ledgers
	ls.begin(uid)
	id, err := n.PodRuntime.CreateContainer(ctx, sandbox, conf, sandboxConf)
	ls.end(uid, err, func(l *ledger) { ls.madeContainer(uid, l, sandbox, id) })
	return id, err
}

// StartContainer records that the sandbox is ready: otherwise the start would have
// failed.
func (n *noting) StartContainer(ctx context.Context, id string) error {
	uid := n.r.ledgers.owner(id)
	n.r.ledgers.begin(uid)
	err := n.PodRuntime.StartContainer(ctx, id)
	n.r.ledgers.end(uid, err, func(l *ledger) { l.provenAt = time.Now() })
	return err
}

// StopPodSandbox makes the call. After it, and after calls of the next three methods, the pod is
// inspected with lists.
func (n *noting) StopPodSandbox(ctx context.Context, id string) error {
	return n.ends(id, func() error { return n.PodRuntime.StopPodSandbox(ctx, id) })
}

func (n *noting) RemovePodSandbox(ctx context.Context, id string) error {
	return n.ends(id, func() error { return n.PodRuntime.RemovePodSandbox(ctx, id) })
}

func (n *noting) StopContainer(ctx context.Context, id string, timeout int64) error {
	return n.ends(id, func() error { return n.PodRuntime.StopContainer(ctx, id, timeout) })
}

func (n *noting) RemoveContainer(ctx context.Context, id string) error {
	return n.ends(id, func() error { return n.PodRuntime.RemoveContainer(ctx, id) })
}

// ends makes a call after which the pod is inspected with lists, since a runtime may stop
// or remove more than the call names.
func (n *noting) ends(id string, call func() error) error {
	uid := n.r.ledgers.owner(id)
	n.r.ledgers.begin(uid)
	err := call()
	n.r.ledgers.end(uid, err, nil)
	return err
}

// inspectByID reads the sandbox and the containers in e. It returns nil without an error if one of
// them is gone or belongs to another pod: then lists are needed. Any other error is returned by the
// inspection.
func (r *Reader) inspectByID(ctx context.Context, uid types.UID, e expected, now time.Time) (*observed.Pod, error) {
	pod := &observed.Pod{UID: uid, Namespace: e.namespace, Name: e.name, ObservedAt: now}
	runs := true
	for _, id := range e.containers {
		c, ok := r.dead.get(uid, id)
		if !ok {
			resp, err := r.rt.ContainerStatus(ctx, id, false)
			if IsNotFound(err) {
				return nil, nil
			}
			if err != nil {
				return nil, err
			}
			if whose, _, _ := podOf(resp.GetStatus().GetLabels()); whose != uid {
				return nil, nil
			}
			c = containerOf(resp.GetStatus())
			c.ID, c.SandboxID = id, e.sandbox
			if c.State == observed.Exited {
				r.dead.add(uid, &c)
			}
		}
		runs = runs && c.State == observed.Running
		pod.Containers = append(pod.Containers, c)
	}
	// A container that does not run may have ended with its sandbox: the recorded status
	// is not used then.
	if e.status == nil || !runs {
		resp, err := r.rt.PodSandboxStatus(ctx, e.sandbox, false)
		if IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		s := r.sandbox(e.sandbox, resp.GetStatus())
		e.status = &s
	}
	pod.Sandboxes = []observed.Sandbox{*e.status}
	slices.SortFunc(pod.Containers, newestContainer)
	return pod, nil
}
