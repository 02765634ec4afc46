package cri

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri/observed"
)

// Looks by ID. A Reader that knows all that was made for a pod asks for just that,
// with two calls in place of four or more; any doubt sends it back to lists. What is
// known is in ledger.go.

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

// Noting returns rt with its calls noted: a pod whose sandbox and containers were
// made by them is inspected by ID and without lists, for as long as all of these
// calls succeeded, nothing of the pod was ended, the event stream is open and
// named nobody else's, and the last list of all pods showed nothing else. Its
// sandbox counts as asked where a container was started in it within the last
// second, and nothing was heard of it since.
func (r *Reader) Noting(rt PodRuntime) PodRuntime { return &noting{rt, r} }

// noting passes calls on to a runtime and notes them: begin before the call and end
// after it, so that a look in between does not rely on what is about to change.
type noting struct {
	PodRuntime
	r *Reader
}

// RunPodSandbox notes the sandbox, and who the pod is.
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

// PodSandboxStatus keeps the status of a sandbox that was noted, for the look that
// follows a start.
func (n *noting) PodSandboxStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	resp, err := n.PodRuntime.PodSandboxStatus(ctx, id, verbose)
	if err == nil && n.r.ledgers.owner(id) != "" {
		s := n.r.sandbox(id, resp.GetStatus())
		n.r.ledgers.asked(&s)
	}
	return resp, err
}

// CreateContainer notes the container, by the labels that it is made with.
func (n *noting) CreateContainer(ctx context.Context, sandbox string, conf *runtimeapi.ContainerConfig, sandboxConf *runtimeapi.PodSandboxConfig) (string, error) {
	uid, _, _ := podOf(conf.GetLabels())
	ls := n.r.ledgers
	ls.begin(uid)
	id, err := n.PodRuntime.CreateContainer(ctx, sandbox, conf, sandboxConf)
	ls.end(uid, err, func(l *ledger) { ls.madeContainer(uid, l, sandbox, id) })
	return id, err
}

// StartContainer notes that the sandbox was ready, as the runtime would not have
// started the container otherwise.
func (n *noting) StartContainer(ctx context.Context, id string) error {
	uid := n.r.ledgers.owner(id)
	n.r.ledgers.begin(uid)
	err := n.PodRuntime.StartContainer(ctx, id)
	n.r.ledgers.end(uid, err, func(l *ledger) { l.provenAt = time.Now() })
	return err
}

// StopPodSandbox and the three methods after it end something.
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

// ends makes a call after which lists have to tell what is left: a runtime may stop
// or remove more than it was asked for.
func (n *noting) ends(id string, call func() error) error {
	uid := n.r.ledgers.owner(id)
	n.r.ledgers.begin(uid)
	err := call()
	n.r.ledgers.end(uid, err, nil)
	return err
}

// inspectByID asks for what was expected of a pod at a time. It returns nil if that
// is not what there is: something is gone, or the ID is another pod's by now. Then
// lists are asked; an error is one of the look.
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
	// A container that does not run may be the first sign of a sandbox that went: the
	// remembered status is not relied on.
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
