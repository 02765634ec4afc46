// Package part is the contract between a node agent and its parts: features that not every
// node needs. Placement of CPUs, devices, eviction and mirror pods are parts, and so are
// the extensions of an embedder.
//
// A part is a value with a name. It implements the hooks that it needs; each hook is an
// interface of this package with one to five methods. agent.New finds the hooks of each
// part once, and lists them in its log and in "agent why node". Hooks are called in the
// order of agent.Config.Parts; a part that is not in the list costs nothing.
//
//	type licence struct{ server *Client }
//
//	func (licence) Name() string { return "licence" }
//
//	// Prepare implements part.Preparer: no sandbox without a licence.
//	func (l licence) Prepare(ctx context.Context, pod *v1.Pod, _ *observed.Pod) error {
//		return l.server.Acquire(ctx, pod.UID)
//	}
//
//	// Gone implements part.Finisher.
//	func (l licence) Gone(ctx context.Context, pod part.Ref) error {
//		return l.server.Return(ctx, pod.UID)
//	}
//
// # The life of a pod
//
// The hooks are called in this order; the package's Example shows one run of them. The
// first column says where: on the agent's loop, in a goroutine beside it, in the pod's
// worker, or in a sweep.
//
//	New     Join
//	start   Restore          after the runtime has been listed
//	loop    Adopt            a pod that runs already; or else:
//	loop    Admit            every Admitter
//	loop    Victims, Preempt if other pods have to be terminated
//	loop    Waits            every Reserver: would Reserve have to wait?
//	beside  Reserve, Commit  on the loop if no part has to wait
//	worker  Hold             around each call of the pod's worker
//	worker  Report           whenever the pod's status is computed
//	worker  Syncing
//	worker  Prepare          after its volumes and its cgroup exist
//	worker  Compile
//	worker  HoldImage        for each container
//	worker  BeforeCreate     for each container, then created
//	worker  ContainerStarted for each container
//	worker  Synced
//	worker  Stopped          after its containers have stopped
//	worker  ContainerRemoved for each container
//	sweep   Sweep            removes the state of pods that are gone
//	sweep   Gone             after nothing of the pod is left
//
// # Rules
//
// Hooks on the loop must not block: neither on a disk or a plugin, nor on a lock that is
// held during such a call. Hooks in a worker may block until their context ends; they delay
// that pod alone. Calls in the worker of one pod never overlap; those of different pods do.
// Pods given to a part are shared and must not be changed.
//
// A panic in a hook becomes an error of that call: it is logged with its stack and counted
// (nodewright_panics_total), and the agent continues. A panic in a goroutine that the part
// has started is not recovered.
//
// Tier: beta.
package part
