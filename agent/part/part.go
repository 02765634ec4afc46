package part

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/pleg"
)

// Part is one concern of a node agent. Its name is unique among the parts of an
// agent, and constant: it stands in logs, metrics and answers to "why".
type Part interface {
	Name() string
}

// Joiner is a Part that asks something of its agent.
type Joiner interface {
	// Join is called once, by agent.New, in the order of the parts, when the
	// agent is complete and at rest. An error keeps the agent from being made. A
	// part that belongs to another agent already returns one.
	Join(Host) error
}

// Runner is a Part with work of its own.
type Runner interface {
	// Run works until ctx ends, and returns when every goroutine of the part
	// has ended. It begins before the first pod is admitted, beside Restore, and
	// ctx ends after the last pod worker has. Returning nil early means that
	// nothing is left to do; an error that is not the context's ends the agent.
	Run(ctx context.Context) error
}

// Restorer is a Part that takes over what ran before the agent did.
type Restorer interface {
	// Restore is called once, off the loop, when the runtime has been listed.
	// The parts are restored side by side, and no pod is admitted before all
	// are, or [RestorePatience] has passed. An error is logged: an agent always
	// starts.
	Restore(ctx context.Context) error
}

// RestorePatience is how long admission waits for Restore. A part whose Restore
// takes longer (a disk hangs) is asked about pods nevertheless; it lets those
// wait that it cannot decide on.
const RestorePatience = 30 * time.Second

// Housekeeper is a Part that compares what is wanted with what there is.
type Housekeeper interface {
	// Housekeep is called on the loop after anything has changed, a burst of
	// changes once, and every minute. It must not block. desired are the pods
	// that the sources want, shared and read-only.
	Housekeep(desired []*v1.Pod)
}

// Sweeper is a Part that keeps something of pods.
type Sweeper interface {
	// Sweep drops, off the loop, what is kept of pods that known does not
	// report. It is called only when every source has spoken and the runtime has
	// been listed. Sweeps never overlap.
	Sweep(ctx context.Context, known func(types.UID) bool) error
}

// Explainer is a Part that knows why a pod waits.
type Explainer interface {
	// Explain says in one line what the pod waits for, as seen by this part, or
	// "". It stands in "agent why" before the error with which the part has the pod
	// wait.
	Explain(pod *v1.Pod) string
}

// NodeExplainer is a Part that knows how the node fares.
type NodeExplainer interface {
	// ExplainNode adds to why, the answer to "agent why node", what this part knows. It
	// answers from memory.
	ExplainNode(why *local.NodeWhy)
}

// RuntimeWatcher is a Part that follows what happens in the runtime.
type RuntimeWatcher interface {
	// Happened takes one event, on the loop. It must not block.
	Happened(ev pleg.Event)
}

// Ref names a pod that is ending or gone. Pod is nil for one that only the
// runtime knew.
type Ref struct {
	UID             types.UID
	Namespace, Name string
	Pod             *v1.Pod // shared and read-only
}

// RefOf is the Ref of a pod.
func RefOf(pod *v1.Pod) Ref {
	return Ref{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Pod: pod}
}

// Starter is a Part that acts at the beginning of each sync of a pod.
type Starter interface {
	// Syncing is called in the pod's worker at the start of each sync of a pod
	// that has not come to its end. It must not wait for anybody.
	Syncing(pod *v1.Pod)
}

// Preparer is a Part that has to be done with something before a pod's
// containers are made.
type Preparer interface {
	// Prepare is called in the pod's worker in each sync, after its volumes and
	// its cgroup are there, and before its sandbox is. It is idempotent and may
	// block until ctx ends, which holds up this pod alone. An error fails the
	// sync, which is made again after a back-off; one with a method Reason()
	// string shows under that name.
	Prepare(ctx context.Context, pod *v1.Pod, obs *observed.Pod) error
}

// Claimer is a Preparer of the ResourceClaims that pods name. Without one, pods
// that name some do not start.
type Claimer interface {
	Preparer
	PreparesClaims()
}

// Stopper is a Part that gives back what a pod's containers had.
type Stopper interface {
	// Stopped is called in the pod's worker when every container of it has been
	// proven to have stopped, before its final status is shown. It is called
	// again after an error, and may be after a restart of the agent, so it is
	// idempotent. Pods that only the runtime knows have one too. For one that was rejected,
	// which may have something of before a restart, it is called without a worker, after
	// its status.
	Stopped(ctx context.Context, pod Ref) error
}

// Finisher is a Part that acts at the very end of a pod.
type Finisher interface {
	// Gone is called off the loop, once nothing of a pod that this process of
	// the agent has admitted is left on the node: no container, no volume, no
	// directory. It is called again after an error, about a minute later at the
	// latest. Of pods that went while there was no agent [Sweeper] hears.
	Gone(ctx context.Context, pod Ref) error
}
