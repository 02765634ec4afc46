package part

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/pleg"
)

// Part is one optional concern of a node agent. Its name is constant and unique among the parts of
// an agent: it appears in logs, metrics and the output of "agent why".
type Part interface {
	Name() string
}

// Joiner is a Part that calls its agent's Host.
type Joiner interface {
	// Join is called once, by agent.New, in the order of the parts, when the agent is complete but
	// does not run. After an error agent.New fails. A part that already belongs to another agent
	// returns an error, as [SetHost] does.
	Join(Host) error
}

// SetHost stores h in a part's field. It returns an error if the field has a host already.
func SetHost[H Host](field *H, h H) error {
	if any(*field) != nil {
		return errors.New("the part belongs to an agent already")
	}
	*field = h
	return nil
}

// Runner is a Part with goroutines of its own.
type Runner interface {
	// Run works until ctx ends, and returns when every goroutine of the part
	// has ended. It is called before the first pod is admitted, concurrently with
	// Restore; ctx ends after the last pod worker has. It may return nil early if
	// nothing is left to do. An error that is not the context's ends the agent.
	Run(ctx context.Context) error
}

// Restorer is a Part that restores its state after a restart of the agent.
type Restorer interface {
	// Restore is called once, off the loop, when the runtime has been listed. Parts are
	// restored concurrently. No pod is admitted before all calls have returned, or
	// [RestoreTimeout] has passed. An error is logged; the agent starts nevertheless.
	Restore(ctx context.Context) error
}

// RestoreTimeout is how long admission waits for Restore. If the Restore of a part
// takes longer, as when a disk hangs, the part gets calls about pods nevertheless. It
// must make pods wait that it cannot decide on yet.
const RestoreTimeout = 30 * time.Second

// Housekeeper is a Part that compares the wanted pods with its own state.
type Housekeeper interface {
	// Housekeep is called on the loop after any change (once for a burst of
	// changes) and every minute. It must not block. desired lists the pods that
	// the sources want; they are shared and read-only.
	Housekeep(desired []*v1.Pod)
}

// Sweeper is a Part with state for each pod, which has to be removed when the pod is gone.
type Sweeper interface {
	// Sweep removes the state of pods for which known returns false. It is called off the loop, and
	// only after every source has delivered its pods and the runtime has been listed. Sweeps never
	// overlap.
	Sweep(ctx context.Context, known func(types.UID) bool) error
}

// Explainer is a Part that knows why a pod waits.
type Explainer interface {
	// Explain says in one line what the pod waits for in this part. It returns "" if the pod does
	// not wait in this part. "agent why" shows the line before the error of the part.
	Explain(pod *v1.Pod) string
}

// NodeExplainer is a Part that reports on the state of the node.
type NodeExplainer interface {
	// ExplainNode adds the part's report to why, the answer to "agent why node". It
	// reads memory only.
	ExplainNode(why *local.NodeWhy)
}

// RuntimeWatcher is a Part that follows the events of containers and sandboxes.
type RuntimeWatcher interface {
	// Happened is called on the loop for each event. It must not block.
	Happened(ev pleg.Event)
}

// Ref identifies a pod that is ending or gone. Pod is nil for a pod that only the
// runtime knew.
type Ref struct {
	UID             types.UID
	Namespace, Name string
	Pod             *v1.Pod // shared and read-only
}

// RefOf returns the Ref of a pod.
func RefOf(pod *v1.Pod) Ref {
	return Ref{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Pod: pod}
}

// Starter is a Part that acts at the beginning of each sync of a pod.
type Starter interface {
	// Syncing is called in the pod's worker at the start of each sync of a pod
	// that has not ended. It must not block.
	Syncing(pod *v1.Pod)
}

// Preparer is a Part with work that has to be done before a pod's containers are
// created.
type Preparer interface {
	// Prepare is called in the pod's worker in each sync, after the pod's volumes are mounted and
	// its cgroup is created, and before its sandbox is created. It must be idempotent. It may block
	// until ctx ends, which delays this pod only. An error fails the sync, which is repeated after
	// a back-off; its reason is shown if it has a method Reason() string.
	Prepare(ctx context.Context, pod *v1.Pod, obs *observed.Pod) error
}

// Claimer is a Preparer that prepares the ResourceClaims of pods. Without a Claimer,
// pods with ResourceClaims do not start.
type Claimer interface {
	Preparer
	PreparesClaims()
}

// Stopper is a Part that releases the resources of a pod whose containers have stopped.
type Stopper interface {
	// Stopped is called in the pod's worker when all containers of the pod are proven
	// to have stopped, before its final status is shown. It must be idempotent: it is
	// called again after an error, and may be called again after a restart of the
	// agent. It is also called for pods that only the runtime knows, and for rejected
	// pods, which may hold resources from before a restart. Rejected pods have no
	// worker: for them it is called off the loop, after their status is shown.
	Stopped(ctx context.Context, pod Ref) error
}

// Finisher is a Part that acts when nothing of a pod is left.
type Finisher interface {
	// Gone is called off the loop when no container, volume or directory of a pod
	// is left on the node. After an error it is called again within about a minute.
	// It is called only for pods that this process of the agent has admitted; pods
	// that were removed while no agent ran are for [Sweeper].
	Gone(ctx context.Context, pod Ref) error
}
