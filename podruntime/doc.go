// Package podruntime makes a container runtime run a pod as its spec demands: it plans
// the next steps, and takes them.
//
// The decision, [Plan], is a pure function of the pod, of what the runtime
// shows, and of probe results. [Manager.Sync] carries a plan out, looks at
// what came of it, and goes on until only time or an event can bring the pod
// further:
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
// [Manager.Kill] ends a pod in order, [Manager.Remove] takes away what it left.
//
// # Resizes
//
// With Config.Resizer, containers that run are given the resources that the
// spec has by now (KEP-1287), or are restarted for it where their resize policy
// says so. Memory goes before CPU, and what makes room before what takes it. A
// memory limit below what is in use is refused and tried again. Whether a pod
// may have what it asks for is for the caller to decide before;
// [CheckResize] says what is never possible.
//
// # Calls
//
// Each call to a runtime costs milliseconds, so there are few. A new pod takes
// RunPodSandbox and PodSandboxStatus (for its address), then ImageStatus,
// CreateContainer and StartContainer for each container; the images are looked
// for, and pulled, while the sandbox is being made. Regular containers start
// side by side.
//
// # Faults
//
// A call that fails fails its own container. What was made by an earlier life
// of the agent is adopted; a container that was created and never started is
// replaced. The end of ctx stops waiting and pulling at once and leaves a
// state from which the next Sync goes on.
//
// Crash loops are slowed down by container, as a [Backoff] says: the kubelet's,
// or another by exit code, reason or anything else. A restart of the agent does
// not begin them anew: they are kept in Config.Memory, and where that is
// missing or damaged, restart counts and exit times are on the containers
// themselves. A wall clock that is set lengthens no delay.
//
// Calls for one pod must not overlap; those for different pods may.
//
// Tier: beta.
package podruntime
