// Package podruntime brings a pod in a container runtime to the state that its spec asks
// for: it plans the next steps and executes them.
//
// [Plan] is a pure function of the pod, its state in the runtime, and probe results.
// [Manager.Sync] executes a plan, inspects the result, and repeats that until the next
// step depends on time or on an event:
//
//	m, err := podruntime.New(podruntime.Config{Runtime: client, Images: images, ...})
//	if err != nil {
//		return err
//	}
//	res := m.Sync(ctx, podruntime.Request{Spec: spec, Observed: obs})
//	if err := res.Err(); err != nil {
//		return err // bears a reason, and when to try again
//	}
//
// [Manager.Kill] stops the containers and sandboxes of a pod in order. [Manager.Remove] removes
// them.
//
// # Resizes
//
// With Config.Resizer, running containers get the resources of the current spec
// (KEP-1287), or are restarted where their resize policy demands it. Memory is changed
// before CPU, and decreases before increases. A memory limit below the current usage is
// refused and retried. The caller decides beforehand whether a pod gets the resources that
// it asks for; [CheckResize] reports resizes that are never possible.
//
// # Calls
//
// Each call to a runtime costs milliseconds, so there are few. A new pod takes
// RunPodSandbox and PodSandboxStatus (for its address), then ImageStatus, CreateContainer
// and StartContainer for each container. Images are checked and pulled while the sandbox
// is being created. Regular containers start in parallel.
//
// # Faults
//
// A failed call fails its own container. Sandboxes and containers of an earlier agent are
// adopted; a container that was created and never started is replaced. Cancelling ctx
// stops waits and pulls at once, and the next Sync continues from there.
//
// The package remembers the state of the newest instance of each container and sandbox, the time of
// that state, and whether an observation of the runtime has shown it. If an observation contradicts
// what the runtime confirmed before, the same call is made again only after a wait, which doubles
// from a second to a minute. A failed call is repeated after such a wait, too.
//
// A container in a crash loop is restarted with the delay that its [Backoff] returns: the
// kubelet's, or one by exit code, reason or anything else. Delays survive a restart of the agent:
// they are stored in Config.Memory. Without a readable record they are computed from the restart
// counts and exit times of the containers. A change of the wall clock never makes a delay longer.
//
// Calls for one pod must not overlap; those for different pods may.
//
// Tier: beta.
package podruntime
