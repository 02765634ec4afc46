package query

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/images"
	"github.com/nodewright/nodewright/node"
	"github.com/nodewright/nodewright/pleg"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/podworker"
	"github.com/nodewright/nodewright/statusmgr"
	"github.com/nodewright/nodewright/volumemgr"
)

var _ local.Agent = (*Query)(nil)

// VolumeExplainer says why a pod waits for its volumes.
type VolumeExplainer interface {
	Why(uid types.UID) []volumemgr.Status
}

// Query answers requests about an agent's pods. It changes nothing, and only methods with a ctx
// wait. All fields are required; its methods may be called from any goroutine.
type Query struct {
	Sources  *podmgr.Manager
	Runtime  *pleg.Manager
	Workers  *podworker.Manager
	Statuses *statusmgr.Manager
	Images   *images.Manager
	EventLog *local.EventLog
	// Volumes says why pods wait for volumes, if it is a [VolumeExplainer].
	Volumes any
	// Streams prepares commands in containers, their own streams, and ports of sandboxes.
	Streams interface {
		Exec(context.Context, *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error)
		Attach(context.Context, *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error)
		PortForward(context.Context, *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error)
	}
	// EndedFor returns the reason why the agent stopped a container of a pod. It returns "" if
	// the agent did not stop it.
	EndedFor func(uid types.UID, id string) podlife.Kind
	// Admission returns the last rejection of a pod that is not admitted, or nil, and the time at
	// which its running reservation began, or the zero time.
	Admission func(types.UID) (why *part.Rejection, reserving time.Time)
	// Explain returns the reason why a pod waits, from a part of the agent. It returns "" if no
	// part knows one.
	Explain func(*v1.Pod) string
	// Short returns the resources that the node lacks for a pod, a line each.
	Short func(*v1.Pod) []string
	// Listener returns the pod or the process that listens on a port of the node. An addr that is
	// not valid stands for all addresses of the node.
	Listener func(proto uint8, addr netip.Addr, port uint16) (podUID, process string)
	// PartList has the agent's parts.
	PartList []local.Part
	// PodLogs is the directory of the pods' logs.
	PodLogs string
	// Node is the configured node; Extended returns the extended resources that parts offer.
	Node     node.Machine
	Extended func() map[v1.ResourceName]part.Count
}

// Pods returns every wanted pod with its current status, followed by pods that are no longer wanted
// and still terminating.
func (q *Query) Pods() []*v1.Pod {
	var pods []*v1.Pod
	seen := map[string]bool{}
	for _, p := range q.Sources.Pods() {
		p = p.DeepCopy()
		if st, ok := q.Statuses.Get(p.UID); ok {
			p.Status = st
		} else if p.Status.Phase == "" {
			p.Status.Phase = v1.PodPending
		}
		seen[string(p.UID)] = true
		pods = append(pods, p)
	}
	for _, w := range q.Workers.List() {
		if seen[string(w.UID)] || w.Pod == nil || w.Finished {
			continue
		}
		p := w.Pod.DeepCopy()
		if st, ok := q.Statuses.Get(p.UID); ok {
			p.Status = st
		}
		if p.DeletionTimestamp == nil {
			t := metav1.NewTime(w.TerminatingAt)
			p.DeletionTimestamp = &t
		}
		pods = append(pods, p)
	}
	slices.SortStableFunc(pods, func(x, y *v1.Pod) int {
		return strings.Compare(x.Namespace+"/"+x.Name, y.Namespace+"/"+y.Name)
	})
	return pods
}

// Events returns the stored events of a pod, oldest first.
func (q *Query) Events(pod *v1.Pod) []v1.Event { return q.EventLog.Of(pod.UID) }

// AllEvents returns the stored events of all pods and of the node, oldest first.
func (q *Query) AllEvents() []v1.Event { return q.EventLog.All() }

// NodeEvents returns the stored events of the node, oldest first.
func (q *Query) NodeEvents() []v1.Event { return q.EventLog.OfNode() }

// Problems lists the manifests that are not in effect.
func (q *Query) Problems() []local.Problem {
	var out []local.Problem
	for _, p := range q.Sources.Problems() {
		out = append(out, local.Problem(p))
	}
	return out
}

// Healthy returns an error if the runtime does not answer.
func (q *Query) Healthy() error { return q.Runtime.Healthy() }

// LogPath returns the log file of a container's newest instance, or of the previous one. While a
// container waits for its next start, the previous instance is the one that ended last.
func (q *Query) LogPath(pod *v1.Pod, container string, previous bool) (string, error) {
	c, err := q.instance(pod, container, previous && !waits(pod, container))
	if err != nil {
		return "", err
	}
	if c.LogPath == "" {
		return "", fmt.Errorf("container %q: the runtime keeps no log file: %w", container, local.ErrNotFound)
	}
	return c.LogPath, nil
}

// LogsDir implements [local.LogKeeper].
func (q *Query) LogsDir() string { return q.PodLogs }

// Exec prepares a command in a running container, and returns the URL of its streams. It returns an
// error if the container is not running.
func (q *Query) Exec(ctx context.Context, pod *v1.Pod, r local.ExecRequest) (string, error) {
	c, err := q.running(pod, r.Container)
	if err != nil {
		return "", err
	}
	resp, err := q.Streams.Exec(ctx, &runtimeapi.ExecRequest{
		ContainerId: c.ID, Cmd: r.Command, Tty: r.TTY, Stdin: r.Stdin,
		Stdout: true, Stderr: !r.TTY, // a terminal has one stream for both
	})
	if err != nil {
		return "", err
	}
	return resp.GetUrl(), nil
}

// running returns the running instance of a container.
func (q *Query) running(pod *v1.Pod, container string) (*observed.Container, error) {
	c, err := q.instance(pod, container, false)
	if err == nil && c.State != observed.Running {
		return nil, fmt.Errorf("container %q is %s, not running", container, c.State)
	}
	return c, err
}

// Attach prepares the streams of a running container's first process. The reply has their URL. It
// returns an error if the container is not running.
func (q *Query) Attach(ctx context.Context, pod *v1.Pod, r local.AttachRequest) (local.AttachReply, error) {
	c, err := q.running(pod, r.Container)
	if err != nil {
		return local.AttachReply{}, err
	}
	tty, stdin := streamsOf(pod, r.Container)
	out := local.AttachReply{TTY: tty, Stdin: stdin && r.Stdin}
	resp, err := q.Streams.Attach(ctx, &runtimeapi.AttachRequest{
		ContainerId: c.ID, Tty: out.TTY, Stdin: out.Stdin, Stdout: true, Stderr: !out.TTY, // a terminal has one stream for both
	})
	out.URL = resp.GetUrl()
	return out, err
}

// streamsOf reports whether a container has a terminal, and standard input.
func streamsOf(pod *v1.Pod, container string) (tty, stdin bool) {
	for _, list := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == container {
				return list[i].TTY, list[i].Stdin
			}
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if c := &pod.Spec.EphemeralContainers[i]; c.Name == container {
			return c.TTY, c.Stdin
		}
	}
	return false, false
}

// PortForward returns a URL for connections to ports of a running pod. The error is a
// [local.ErrNotFound] if no sandbox of the pod runs.
func (q *Query) PortForward(ctx context.Context, pod *v1.Pod) (string, error) {
	id, err := q.SandboxID(ctx, pod.UID)
	if err != nil {
		return "", err
	}
	resp, err := q.Streams.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: id})
	return resp.GetUrl(), err
}

// lookTimeout limits the wait for the runtime in a request about a container.
const lookTimeout = 10 * time.Second

// instance returns a container's newest instance or, if previous is true, the one before it. If
// the agent does not know the instance, for example after a restart, it asks the runtime.
func (q *Query) instance(pod *v1.Pod, container string, previous bool) (*observed.Container, error) {
	if !slices.Contains(containerNames(pod), container) {
		return nil, fmt.Errorf("container %q is not in pod %s/%s, which has %s: %w", container,
			pod.Namespace, pod.Name, strings.Join(containerNames(pod), ", "), local.ErrNotFound)
	}
	seen := q.Runtime.View(pod.UID)
	if seen.Err != nil {
		return nil, seen.Err
	}
	if c := instanceIn(seen.Pod, container, previous); c != nil {
		return c, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	obs, err := q.Runtime.GetNewerThan(ctx, pod.UID, time.Now())
	if err != nil {
		return nil, fmt.Errorf("look for container %q: %w", container, err)
	}
	if c := instanceIn(obs, container, previous); c != nil {
		return c, nil
	}
	what := "has not been created yet" + before(pod)
	if previous {
		what = "has no earlier instance"
	}
	return nil, fmt.Errorf("container %q %s: %w", container, what, local.ErrNotFound)
}

// before describes the running init container, for whose end the other containers wait. It returns
// "" if no init container runs.
func before(pod *v1.Pod) string {
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		runs := func(s v1.ContainerStatus) bool { return s.Name == c.Name && s.State.Running != nil }
		if !podmeta.IsSidecar(c) && slices.ContainsFunc(pod.Status.InitContainerStatuses, runs) {
			return ", as init container " + c.Name + " still runs"
		}
	}
	return ""
}

// instanceIn returns a container's newest instance or, if previous is true, the one before it. It
// returns nil if there is none.
func instanceIn(obs *observed.Pod, container string, previous bool) *observed.Container {
	skip := previous
	for i := range obs.Containers {
		if c := &obs.Containers[i]; c.Name == container {
			if !skip {
				return c
			}
			skip = false
		}
	}
	return nil
}

// waits reports whether a container has ended and will start again.
func waits(pod *v1.Pod, container string) bool {
	for _, list := range [][]v1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range list {
			if s := &list[i]; s.Name == container {
				return s.State.Waiting != nil && s.LastTerminationState.Terminated != nil
			}
		}
	}
	return false
}

func containerNames(pod *v1.Pod) []string {
	var names []string
	for i := range pod.Spec.Containers {
		names = append(names, pod.Spec.Containers[i].Name)
	}
	for i := range pod.Spec.InitContainers {
		names = append(names, pod.Spec.InitContainers[i].Name)
	}
	for i := range pod.Spec.EphemeralContainers {
		names = append(names, pod.Spec.EphemeralContainers[i].Name)
	}
	return names
}
