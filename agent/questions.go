package agent

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/internal/book"
	"github.com/nodewright/nodewright/agent/internal/hooks"
	"github.com/nodewright/nodewright/agent/internal/query"
	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/internal/hostports"
)

var (
	_ local.Agent         = (*Agent)(nil)
	_ local.NodeExplainer = (*Agent)(nil)
	_ local.Streamer      = (*Agent)(nil)
)

// questions returns the value that answers requests about the agent's pods.
func (a *Agent) questions() *query.Query {
	q := &query.Query{
		Sources: a.pods, Runtime: a.pleg, Workers: a.workers, Statuses: a.statuses, Images: a.images, EventLog: a.events,
		Volumes: a.volumes, Streams: a.cfg.Runtime, EndedFor: a.runtime.EndedFor, Admission: a.answer, Explain: func(pod *v1.Pod) string { return a.hooks.Explain(a.guard, pod) },
		Short:    func(pod *v1.Pod) []string { return a.node.Shortages(pod, a.admission.Active(pod.UID)) },
		Listener: hostports.Listener,
		PodLogs:  a.cfg.Paths.PodLogs, Node: a.cfg.Node, Extended: func() map[v1.ResourceName]part.Count { return a.hooks.Extended(a.guard) },
	}
	for _, name := range a.hooks.Names {
		q.PartList = append(q.PartList, local.Part{Name: name, Hooks: a.hooks.Kinds[name]})
	}
	return q
}

// answer returns the last rejection of a pod that is not admitted, or nil, and the
// time since which its resources are being reserved, or zero.
func (a *Agent) answer(uid types.UID) (why *part.Rejection, since time.Time) {
	e := a.book.Get(uid)
	if e.Stage == book.Reserving || e.Stage == book.Reserved {
		since = e.Since
	}
	return e.Why, since
}

// Pods returns copies of all wanted pods with their current statuses, and of unwanted pods that
// still terminate. An unwanted pod has a deletion timestamp. The result is sorted by namespace and
// name.
func (a *Agent) Pods() []*v1.Pod { return a.query.Pods() }

// RunningPods returns the pods that the runtime runs, wanted or not. Their specs have
// only the values that the runtime knows: the names and images of containers. The error
// is always nil.
func (a *Agent) RunningPods(ctx context.Context) ([]*v1.Pod, error) { return a.query.RunningPods(ctx) }

// Why returns the agent's current work on a pod of [Agent.Pods], and the reason if
// the pod waits.
func (a *Agent) Why(pod *v1.Pod) local.Why { return a.query.Why(pod) }

// Events returns the stored events of a pod, oldest first. Their number is limited, and events of
// earlier processes are not included.
func (a *Agent) Events(pod *v1.Pod) []v1.Event { return a.query.Events(pod) }

// AllEvents returns the stored events of all pods and of the node, oldest first. Events of a pod
// that is gone are kept for an hour.
func (a *Agent) AllEvents() []v1.Event { return a.query.AllEvents() }

// NodeEvents returns the stored events of the node, oldest first.
func (a *Agent) NodeEvents() []v1.Event { return a.query.NodeEvents() }

// Resync requests a sync of a pod, and reports whether it has a worker. A back-off after an error
// ends.
func (a *Agent) Resync(uid types.UID) bool { return a.workers.Resync(uid) }

// Problems returns the manifests that are not in effect, each with the reason.
func (a *Agent) Problems() []local.Problem { return a.query.Problems() }

// Healthy returns nil if the runtime answers, or the reason why it does not.
func (a *Agent) Healthy() error { return a.query.Healthy() }

// Exec prepares a command in a running container of a pod and returns the URL of
// its streams. It waits for the runtime, at most until ctx ends. The error is a
// [local.ErrNotFound] if there is no such container.
func (a *Agent) Exec(ctx context.Context, pod *v1.Pod, r local.ExecRequest) (url string, err error) {
	return a.query.Exec(ctx, pod, r)
}

// Attach prepares the streams of a running container's first process. It waits and fails like Exec.
func (a *Agent) Attach(ctx context.Context, pod *v1.Pod, r local.AttachRequest) (local.AttachReply, error) {
	return a.query.Attach(ctx, pod, r)
}

// PortForward prepares connections to ports of a running pod and returns the URL of the runtime for
// them. The error is a [local.ErrNotFound] if the pod does not run.
func (a *Agent) PortForward(ctx context.Context, pod *v1.Pod) (url string, err error) {
	return a.query.PortForward(ctx, pod)
}

// LogPath returns the path of the log file of a container's newest instance, or, if
// previous, of the instance before it. The error is a [local.ErrNotFound] if there
// is no such instance, or the runtime keeps no file of it.
func (a *Agent) LogPath(pod *v1.Pod, container string, previous bool) (string, error) {
	return a.query.LogPath(pod, container, previous)
}

// LogsDir returns Config.Paths.PodLogs; it implements [local.LogKeeper].
func (a *Agent) LogsDir() string { return a.query.LogsDir() }

// LogFile returns the path of the log file of a container by its ID, and reports
// whether more may be written to it. The error is a [local.ErrNotFound] if there is
// no such container, or it has no log file.
func (a *Agent) LogFile(ctx context.Context, id string) (path string, open bool, err error) {
	return a.query.LogFile(ctx, id)
}

// ContainerID returns the runtime's ID of a running container; the error is a [local.ErrNotFound]
// if there is none. uid may be the UID of a static pod's mirror.
func (a *Agent) ContainerID(ctx context.Context, uid types.UID, container string) (string, error) {
	return a.query.ContainerID(ctx, uid, container)
}

// SandboxID returns the runtime's ID of the sandbox of a running pod; the error is a
// [local.ErrNotFound] if there is none. uid may be the UID of a static pod's mirror.
func (a *Agent) SandboxID(ctx context.Context, uid types.UID) (string, error) {
	return a.query.SandboxID(ctx, uid)
}

// Resources returns the node's capacity and its allocatable resources: the values of
// Config.Node, and the extended resources that parts offer now.
func (a *Agent) Resources() (capacity, allocatable v1.ResourceList) { return a.query.Resources() }

// Settled is closed once every source of pods has delivered: from then on, a pod that is not in
// [Agent.Pods] is not wanted.
func (a *Agent) Settled() <-chan struct{} { return a.run.settled }

// WhyNode returns the state of the node as the agent and its parts know it; it implements
// [local.NodeExplainer]. It reads only memory.
func (a *Agent) WhyNode() local.NodeWhy {
	why := local.NodeWhy{Name: a.cfg.Node.Name, Events: a.NodeEvents(), Parts: a.Parts(), Work: a.Work()}
	hooks.Each(a.guard, a.hooks.NodeWhys, func(e part.NodeExplainer) { e.ExplainNode(&why) })
	return why
}

// Parts returns the agent's parts in their order, with the names of their hooks.
func (a *Agent) Parts() []local.Part { return a.query.Parts() }

// SourcesErr returns the errors of sources that have failed and not delivered since; nil if there
// are none.
func (a *Agent) SourcesErr() error { return a.pods.Err() }

// LastTurn returns the time at which the loop last handled an event or a timer; zero before the
// first one. The loop handles one at least once a minute, even if the runtime hangs, so an older
// time means that the loop hangs. The time has a monotonic reading: changes of the clock do not
// matter.
func (a *Agent) LastTurn() time.Time {
	if at := a.run.beat.Load(); at != nil {
		return *at
	}
	return time.Time{}
}
