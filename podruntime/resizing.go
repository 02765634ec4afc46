package podruntime

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podspec"
)

// Resizer has the runtime's calls for resizes of running containers. *cri.Client implements
// it.
type Resizer interface {
	// UpdateContainerResources changes the resources of a running container. A 0
	// leaves the value unchanged.
	UpdateContainerResources(ctx context.Context, id string, r *runtimeapi.ContainerResources) error
	// UpdatePodSandboxResources tells the runtime the sum of the pod's resources,
	// before or after the agent changes the pod's cgroup. It may return
	// Unimplemented.
	UpdatePodSandboxResources(ctx context.Context, r *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error)
	// ContainerStats is called for the memory usage before a memory limit is lowered.
	ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error)
}

// PodCgroups changes the cgroup of a pod, the parent of its containers' cgroups. resource is cpu or
// memory. A method does nothing if no value has to change.
type PodCgroups interface {
	// Raise raises values that are lower than the pod's: first the limit, then the request.
	Raise(ctx context.Context, pod *v1.Pod, resource v1.ResourceName) error
	// Lower lowers values that are higher than the pod's: first the request, then the limit. It
	// returns an error for a memory limit below the current usage.
	Lower(ctx context.Context, pod *v1.Pod, resource v1.ResourceName) error
}

// ReasonResize is the reason of a failed resize. The next sync repeats it.
const ReasonResize = "ResizeError"

// wholePod is used like a container ID, for the cgroup of the whole pod.
const wholePod = ""

// planInput returns the input of Plan for the pod's next step.
func (m *Manager) planInput(req Request, obs *observed.Pod) PlanInput {
	in := PlanInput{Pod: req.Spec.Pod, Observed: obs, Liveness: req.Liveness, Startup: req.Startup, Unsure: req.Unsure}
	if m.cfg.Resizer != nil {
		in.Resources = &Resources{
			// The functions are called while planning, in the goroutine of the sync.
			Wanted: func(c *v1.Container, r v1.ResourceRequirements) *runtimeapi.LinuxContainerResources {
				return podspec.Resources(req.Spec, c, r)
			},
			Applied: func(id string, name v1.ResourceName) *runtimeapi.LinuxContainerResources {
				return m.runs.given(req.Spec.Pod.UID, id, name)
			},
			// Without a limit of its own the container is bounded by the pod's.
			Pooled: func(c *v1.Container, name v1.ResourceName) bool {
				r := req.Spec.Pod.Spec.Resources
				return r != nil && !r.Limits.Name(name, resource.DecimalSI).IsZero() && c.Resources.Limits.Name(name, resource.DecimalSI).IsZero()
			},
		}
	}
	return in
}

// NeedsResize reports whether running containers of the pod, or its cgroup, have other
// resources than its spec.
func (m *Manager) NeedsResize(req Request) bool {
	// It plans from the observation as it is, and does nothing.
	a := Plan(m.planInput(req, req.Observed))
	_, known := m.poolDiffers(req.Spec, req.Observed)
	return a.resizes() || known
}

// poolDiffers reports whether the cgroup of a pod with a sandbox needs an update. known is
// false if the values applied last are not known, as after a restart of the agent. Then only
// a pod with pod-level resources needs an update.
func (m *Manager) poolDiffers(in podspec.Input, obs *observed.Pod) (differs, known bool) {
	for _, name := range resized {
		if _, d, k := m.pool(in, name); d && (k || in.Pod.Spec.Resources != nil) {
			differs, known = true, known || k
		}
	}
	// A cgroup without a sandbox has nothing in it to resize: the next sandbox
	// gets it right.
	if differs && podlife.SandboxOf(in.Pod, obs).Lack != "" {
		return false, false
	}
	return differs, known
}

// pool returns the values of one resource that the cgroup of a pod should have: the sum of its
// containers, or the pod-level resources (KEP-5419). differs reports that other values were
// applied last, or that the values applied last are not known, as after a restart of the agent.
func (m *Manager) pool(in podspec.Input, name v1.ResourceName) (values *runtimeapi.LinuxContainerResources, differs, known bool) {
	if m.cfg.Cgroups == nil || m.cfg.Resizer == nil {
		return nil, false, false
	}
	values = only(podspec.PodResources(in), name)
	last := m.runs.given(in.Pod.UID, wholePod, name)
	return values, !proto.Equal(values, last), last != nil
}

// madePool records that the pod's cgroup was made with the values of its spec.
func (m *Manager) madePool(in podspec.Input) {
	for _, name := range resized {
		if to, differs, known := m.pool(in, name); differs && !known {
			m.runs.give(in.Pod.UID, wholePod, name, to)
		}
	}
}

// resize changes the resources of running containers and of the pod's cgroup. starting reports
// that further containers start after this call. Memory is changed before CPU, and decreases
// before increases. The first failure ends the resize; the next sync tries again.
func (s *syncing) resize(ctx context.Context, updates []Update, starting bool) {
	start := time.Now()
	var err error
	// some reports that there is a resize to measure, and not only a cgroup to
	// adjust of which nothing was known.
	some := len(updates) > 0
	for _, name := range resized {
		of := ofResource(updates, name)
		pool, differs, known := s.m.pool(s.in, name)
		// A cgroup of which nothing is known, as after a restart of the agent, most
		// likely has what it should: it is left alone unless containers are about
		// to start, or the pod has resources of its own.
		differs = differs && (known || starting || s.pod.Spec.Resources != nil)
		if len(of) == 0 && !differs {
			continue
		}
		some = some || known
		// After a failure the pod's cgroup counts as not changed, so that the next
		// sync tries again.
		if err = s.resizeOf(ctx, name, of, known); err != nil {
			break
		}
		if pool != nil {
			s.m.runs.give(s.pod.UID, wholePod, name, pool)
		}
	}
	if some && ctx.Err() == nil {
		s.m.met.resizes.WithLabelValues(fmt.Sprint(err == nil)).Observe(float64(time.Since(start).Milliseconds()))
	}
}

// ofResource returns the updates of one resource, decreases first.
func ofResource(updates []Update, name v1.ResourceName) []Update {
	out := slices.DeleteFunc(slices.Clone(updates), func(u Update) bool { return u.Resource != name })
	// Stable: containers of one kind stay in the order of the plan.
	slices.SortStableFunc(out, func(a, b Update) int {
		switch lowers := a.Lowers(); {
		case lowers == b.Lowers():
			return 0
		case lowers:
			return -1
		default:
			return 1
		}
	})
	return out
}

// resizeOf changes one resource of containers, and of the pod's cgroup. known reports that the
// values last applied to the cgroup are known. If updates is empty, the runtime's sandbox is
// updated only if known is set.
func (s *syncing) resizeOf(ctx context.Context, name v1.ResourceName, updates []Update, known bool) error {
	fail := func(target string, err error) error {
		if ctx.Err() != nil {
			// The sync was interrupted; the resize did not fail.
			err = ctx.Err()
		} else {
			err = podlife.WithReason(ReasonResize, fmt.Errorf("resize %s of %s: %w", name, target, err))
		}
		s.res.add("ResizePod", target, err)
		return err
	}
	for i := range updates {
		// All are checked before the first is changed: a refusal leaves the pod as
		// it was.
		if err := s.enough(ctx, &updates[i]); err != nil {
			return fail("container "+updates[i].Name, err)
		}
	}
	after := podspec.PodResources(s.in)
	// The runtime hears of growth before the cgroup grows, of a decrease after
	// the containers shrank: at no moment does a container have more than its
	// pod.
	before, grows := earlier(after, updates)
	told := len(updates) > 0 || known
	pod := "pod " + s.pod.Name
	if grows {
		if err := s.tellSandbox(ctx, after); err != nil {
			return fail(pod, err)
		}
	}
	if s.m.cfg.Cgroups != nil {
		if err := s.m.cfg.Cgroups.Raise(ctx, s.pod, name); err != nil {
			if grows {
				_ = s.tellSandbox(ctx, before) // what went wrong is told already
			}
			return fail(pod, err)
		}
	}
	for _, u := range updates {
		if err := s.m.cfg.Resizer.UpdateContainerResources(ctx, u.ID, &runtimeapi.ContainerResources{Linux: u.To}); err != nil {
			return fail("container "+u.Name, err)
		}
		// Noted one by one: after a failure of the next, this one is not repeated.
		s.m.runs.give(s.pod.UID, u.ID, name, u.To)
		s.res.add("ResizeContainer", u.Name, nil)
	}
	if !grows && told {
		if err := s.tellSandbox(ctx, after); err != nil {
			return fail(pod, err)
		}
	}
	if s.m.cfg.Cgroups != nil {
		if err := s.m.cfg.Cgroups.Lower(ctx, s.pod, name); err != nil {
			if !grows && told {
				// The cgroup was not lowered, so the runtime has the old sum again.
				_ = s.tellSandbox(ctx, before)
			}
			return fail(pod, err)
		}
	}
	return nil
}

// enough returns an error if the new memory limit is below the container's current usage, since the
// kernel would then kill processes of the container. If the usage grows between this check and the
// change, the kernel reclaims what it can.
func (s *syncing) enough(ctx context.Context, u *Update) error {
	if u.Resource != v1.ResourceMemory || !u.limitsMemory() {
		return nil
	}
	limit := u.To.GetMemoryLimitInBytes()
	st, err := s.m.cfg.Resizer.ContainerStats(ctx, u.ID)
	if err != nil {
		return &refusedError{fmt.Errorf("memory usage is unknown, so the limit cannot be lowered to %d: %w", limit, err)}
	}
	// The working set leaves out inactive page cache, which the kernel can drop.
	used := st.GetMemory().GetWorkingSetBytes()
	if used == nil {
		used = st.GetMemory().GetUsageBytes()
	}
	switch {
	case used == nil:
		return &refusedError{fmt.Errorf("memory usage is unknown, so the limit cannot be lowered to %d", limit)}
	case used.GetValue() >= uint64(limit):
		return &refusedError{fmt.Errorf("attempting to set a memory limit (%d) below current usage (%d)", limit, used.GetValue())}
	}
	return nil
}

// refusedError is the error of a resize of one resource that was refused before its first change.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// Is reports that the error matches errUndone: nothing was changed.
func (e *refusedError) Is(target error) bool { return target == errUndone }

// earlier returns the resources that the pod had before the updates. grows reports that the pod
// has more of them afterwards.
func earlier(after *runtimeapi.LinuxContainerResources, updates []Update) (before *runtimeapi.LinuxContainerResources, grows bool) {
	before = proto.CloneOf(after)
	// more is only compared with 0: each call of this is about one resource, so
	// that bytes, microseconds and shares are not mixed but for CPU's two.
	var more int64
	for _, u := range updates {
		limit := u.To.GetMemoryLimitInBytes() - u.From.GetMemoryLimitInBytes() // of cpu 0
		shares := u.To.GetCpuShares() - u.From.GetCpuShares()
		quota := u.To.GetCpuQuota() - u.From.GetCpuQuota()
		before.MemoryLimitInBytes -= limit
		before.CpuShares -= shares
		before.CpuQuota -= quota
		// A change of the CPU limit decides; shares count where it stays.
		if more += limit + quota; quota == 0 {
			more += shares
		}
	}
	return before, more > 0
}

// tellSandbox tells the runtime how much the pod's containers may use together. It returns nil if
// the runtime does not implement the call.
func (s *syncing) tellSandbox(ctx context.Context, r *runtimeapi.LinuxContainerResources) error {
	_, err := s.m.cfg.Resizer.UpdatePodSandboxResources(ctx, &runtimeapi.UpdatePodSandboxResourcesRequest{
		PodSandboxId: s.sandboxID, Overhead: podspec.Overhead(s.in), Resources: r,
	})
	if status.Code(err) == codes.Unimplemented {
		return nil
	}
	return err
}
