package podruntime

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
)

// Update changes how much of one resource a running container may use
// (KEP-1287).
type Update struct {
	// ID is the container ID in the runtime. Name is the container's name in the spec.
	ID, Name string
	Resource v1.ResourceName // cpu or memory
	// From and To are the values before and after the change. They have the values of Resource
	// only. A 0 in To leaves the value unchanged. CPU quotas in both are for the same period.
	From, To *runtimeapi.LinuxContainerResources
}

// Lowers reports that a limit is lowered or new. It also reports true if the limit does not
// change and a request is lowered.
func (u *Update) Lowers() bool {
	if u.Resource == v1.ResourceMemory {
		return u.limitsMemory()
	}
	// A quota of 0 or less is no limit.
	from, to := u.From.GetCpuQuota(), u.To.GetCpuQuota()
	// A first limit takes away as well: without one, all CPUs were the
	// container's.
	if to > 0 && to != from {
		return from <= 0 || to < from
	}
	return u.To.GetCpuShares() < u.From.GetCpuShares()
}

// limitsMemory reports that the memory limit is lowered or new.
func (u *Update) limitsMemory() bool {
	from, to := u.From.GetMemoryLimitInBytes(), u.To.GetMemoryLimitInBytes()
	return to > 0 && (from <= 0 || to < from)
}

// Resources returns the resources of containers to [Plan].
type Resources struct {
	// Wanted returns the runtime's values for a container c of the spec whose requirements are r.
	Wanted func(c *v1.Container, r v1.ResourceRequirements) *runtimeapi.LinuxContainerResources
	// Applied returns the values of one resource that were last applied to the container, or nil
	// if they are not known.
	Applied func(containerID string, name v1.ResourceName) *runtimeapi.LinuxContainerResources
	// Pooled reports whether a container has no limit of a resource and its pod has one
	// (KEP-5419). If Pooled is nil, no container is pooled.
	Pooled func(c *v1.Container, name v1.ResourceName) bool
}

// resizes reports whether the resources of a running container differ from the spec. A container
// that has to be restarted for a resize counts.
func (a *Actions) resizes() bool {
	return len(a.Update) > 0 || slices.ContainsFunc(a.Kill, func(k Kill) bool { return k.Why == podlife.Resized })
}

// resized are the resources that can be changed while a container runs. Memory comes first: if
// its change is refused, CPU has not been changed yet.
var resized = []v1.ResourceName{v1.ResourceMemory, v1.ResourceCPU}

// resize returns the updates of the resources of a running container. restart reports that the
// container has to be restarted instead: the new instance is made with the new resources.
func (r *Resources) resize(c *v1.Container, o *observed.Container) (restart bool, updates []Update) {
	if r == nil {
		return false, nil
	}
	// The annotation is the only word about this that survives the agent.
	made, known := MadeWith(o)
	want := r.Wanted(c, c.Resources)
	for _, name := range resized {
		from, to := r.Applied(o.ID, name), only(want, name)
		// Nothing is remembered after a restart of the agent: the runtime's word
		// stands in.
		if from == nil {
			from = only(r.shown(c, o, made, known), name)
		}
		switch visible := differs(from, to, name); {
		case restartsFor(c, name):
			// What a container was made with holds until it is made anew.
			if known && !sameAmounts(made, c.Resources, name) || !known && visible {
				return true, nil
			}
			// The container's own amounts are the same, but its limit is its pod's,
			// which changed.
			if r.Pooled != nil && r.Pooled(c, name) && limitDiffers(from, to, name) {
				return true, nil
			}
		case visible:
			updates = append(updates, Update{ID: o.ID, Name: o.Name, Resource: name, From: inPeriod(from, to.GetCpuPeriod()), To: to})
		}
	}
	return false, updates
}

// shown returns the resources of a running container. Values that the runtime does not show are
// taken from made, the requirements with which the container was made. If known is false, made is
// not known, and the values come from the spec.
func (r *Resources) shown(c *v1.Container, o *observed.Container, made v1.ResourceRequirements, known bool) *runtimeapi.LinuxContainerResources {
	if !known {
		made = c.Resources
	}
	out := r.Wanted(c, made)
	s := o.Resources
	if s == nil {
		return out
	}
	// A runtime that leaves a value out reports 0, which must not look like a
	// change.
	if s.CPUPeriod > 0 {
		out.CpuPeriod, out.CpuQuota = s.CPUPeriod, s.CPUQuota
	}
	if s.CPUShares > 0 {
		out.CpuShares = s.CPUShares
	}
	if s.MemoryLimit > 0 {
		out.MemoryLimitInBytes = s.MemoryLimit
	}
	return out
}

// MadeWith returns the resources that a container was created with, from its annotation. known is
// false if the annotation is missing or invalid, for example because another program created the
// container.
func MadeWith(o *observed.Container) (r v1.ResourceRequirements, known bool) {
	written := o.Annotations[cri.AnnotationResources]
	// Annotations are in the hands of whoever runs containers on the node: their
	// size is bounded before they are decoded.
	if written == "" || len(written) > maxAnnotation {
		return r, false
	}
	// Amounts as strings: a Quantity that is decoded by itself may have any
	// exponent.
	var raw struct {
		Limits, Requests map[v1.ResourceName]string
		Claims           []v1.ResourceClaim
	}
	if json.Unmarshal([]byte(written), &raw) != nil {
		return r, false
	}
	r.Claims = raw.Claims
	var limits, requests bool
	r.Limits, limits = quantities(raw.Limits)
	r.Requests, requests = quantities(raw.Requests)
	// A part that cannot be read makes the whole unknown: half of it would look
	// like a resize.
	if !limits || !requests {
		return v1.ResourceRequirements{}, false
	}
	return r, true
}

// quantities parses the quantities of an annotation. ok is false if one is invalid, longer than 64
// bytes, or has an exponent beyond ±30.
func quantities(in map[v1.ResourceName]string) (out v1.ResourceList, ok bool) {
	const longest, greatest = 64, 30 // bytes; a power of ten
	for name, s := range in {
		// 1e999999999 is eleven bytes long, and a number of a billion digits.
		if i := strings.LastIndexAny(s, "eE"); len(s) > longest {
			return nil, false
		} else if i >= 0 && i < len(s)-1 {
			if n, err := strconv.Atoi(s[i+1:]); err == nil && (n > greatest || n < -greatest) || errors.Is(err, strconv.ErrRange) {
				return nil, false
			}
		}
		q, err := resource.ParseQuantity(s)
		if err != nil {
			return nil, false
		}
		if out == nil {
			out = v1.ResourceList{}
		}
		out[name] = q
	}
	return out, true
}

// restartsFor reports whether the container's resize policy demands a restart for a change of the
// resource. Without a policy the change is made in place, the API's default.
func restartsFor(c *v1.Container, name v1.ResourceName) bool {
	for _, p := range c.ResizePolicy {
		if p.ResourceName == name {
			return p.RestartPolicy == v1.RestartContainer
		}
	}
	return false
}

// sameAmounts reports whether two requirements have the same request and limit of a resource. A
// missing value differs from 0.
func sameAmounts(a, b v1.ResourceRequirements, name v1.ResourceName) bool {
	same := func(x, y v1.ResourceList) bool {
		p, hasP := x[name]
		q, hasQ := y[name]
		return hasP == hasQ && p.Cmp(q) == 0
	}
	// A request that is left out equals the limit.
	request := func(r v1.ResourceRequirements) v1.ResourceList {
		if _, ok := r.Requests[name]; ok {
			return r.Requests
		}
		return r.Limits
	}
	return same(a.Limits, b.Limits) && same(request(a), request(b))
}

// only returns a copy of r with the values of one resource alone.
func only(r *runtimeapi.LinuxContainerResources, name v1.ResourceName) *runtimeapi.LinuxContainerResources {
	if name == v1.ResourceCPU {
		// The period goes with the quota, which means nothing alone.
		return &runtimeapi.LinuxContainerResources{CpuPeriod: r.GetCpuPeriod(), CpuQuota: r.GetCpuQuota(), CpuShares: r.GetCpuShares()}
	}
	return &runtimeapi.LinuxContainerResources{
		MemoryLimitInBytes: r.GetMemoryLimitInBytes(), MemorySwapLimitInBytes: r.GetMemorySwapLimitInBytes(),
		Unified: maps.Clone(r.GetUnified()),
	}
}

// differs reports whether the cgroup changes if the values of a resource change from old to next. A
// 0 in next leaves a value unchanged: a limit cannot be removed.
func differs(old, next *runtimeapi.LinuxContainerResources, name v1.ResourceName) bool {
	if name == v1.ResourceCPU {
		return limitDiffers(old, next, name) || next.GetCpuShares() != old.GetCpuShares()
	}
	return limitDiffers(old, next, name) || !maps.Equal(next.GetUnified(), old.GetUnified())
}

// limitDiffers reports whether the limits of a resource differ. CPU limits are compared as the
// quotient of quota and period, since a runtime may show the same limit with another period.
func limitDiffers(before, after *runtimeapi.LinuxContainerResources, name v1.ResourceName) bool {
	if name == v1.ResourceCPU {
		return after.GetCpuQuota() > 0 && after.GetCpuQuota()*before.GetCpuPeriod() != before.GetCpuQuota()*after.GetCpuPeriod()
	}
	return after.GetMemoryLimitInBytes() > 0 && after.GetMemoryLimitInBytes() != before.GetMemoryLimitInBytes()
}

// inPeriod returns r with the CPU quota converted to the given period, so that quotas can be
// compared and subtracted. A runtime may show the period that a container was made with, before
// cpuCFSQuotaPeriod changed.
func inPeriod(r *runtimeapi.LinuxContainerResources, period int64) *runtimeapi.LinuxContainerResources {
	if r.GetCpuQuota() <= 0 || r.GetCpuPeriod() <= 0 || period <= 0 || r.GetCpuPeriod() == period {
		return r
	}
	r = proto.CloneOf(r)
	r.CpuQuota = int64(float64(r.CpuQuota) / float64(r.CpuPeriod) * float64(period))
	r.CpuPeriod = period
	return r
}

// CheckResize returns an error if a running pod cannot be resized in place from the version
// current to the version wanted, whatever the node's capacity. The rules are those of the API's
// resize subresource (KEP-1287).
func CheckResize(current, wanted *v1.Pod) error {
	// Pod-level resources change by the same rules (KEP-5419).
	if err := checkRequirements(podLevel(current), podLevel(wanted)); err != nil {
		return fmt.Errorf("spec.resources.%w", err)
	}
	for _, l := range []struct {
		field   string
		was, is []v1.Container
	}{
		{"spec.initContainers", current.Spec.InitContainers, wanted.Spec.InitContainers},
		{"spec.containers", current.Spec.Containers, wanted.Spec.Containers},
	} {
		for i := range l.is {
			j := slices.IndexFunc(l.was, func(c v1.Container) bool { return c.Name == l.is[i].Name })
			if j < 0 {
				continue // a new one asks for what it likes
			}
			if err := checkRequirements(l.was[j].Resources, l.is[i].Resources); err != nil {
				return fmt.Errorf("%s[%d].resources.%w", l.field, i, err)
			}
		}
	}
	// Without a status, which would answer with the class that was.
	class := func(pod *v1.Pod) v1.PodQOSClass { return podmeta.QOS(&v1.Pod{Spec: pod.Spec}) }
	if was, is := class(current), class(wanted); was != is {
		return fmt.Errorf("the quality of service class would become %s; it has to stay %s while the pod runs", is, was)
	}
	return nil
}

// podLevel returns the pod-level resources of a pod. If the spec has none, the result is empty.
func podLevel(pod *v1.Pod) v1.ResourceRequirements {
	if pod.Spec.Resources == nil {
		return v1.ResourceRequirements{}
	}
	return *pod.Spec.Resources
}

// checkRequirements returns an error if a container or pod cannot be resized from the requirements
// old to the requirements next. The error begins with the path of the field below resources.
func checkRequirements(old, next v1.ResourceRequirements) error {
	if err := checkList(old.Requests, next.Requests); err != nil {
		return fmt.Errorf("requests.%w", err)
	}
	if err := checkList(old.Limits, next.Limits); err != nil {
		return fmt.Errorf("limits.%w", err)
	}
	return nil
}

// checkList returns an error if a resize must not change a list of requests, or of limits, from old
// to next.
func checkList(old, next v1.ResourceList) error {
	// Sorted, so that the same change is refused with the same words.
	for _, name := range slices.Sorted(maps.Keys(union(old, next))) {
		p, had := old[name]
		q, has := next[name]
		switch {
		// Huge pages, ephemeral storage and devices were counted at admission, and
		// cannot change.
		case name != v1.ResourceCPU && name != v1.ResourceMemory && (had != has || p.Cmp(q) != 0):
			return fmt.Errorf("%s: %s cannot become %s while the pod runs; only cpu and memory can change", name, amount(p, had), amount(q, has))
		case had && !has:
			return fmt.Errorf("%s: %s cannot be removed while the pod runs, only changed", name, amount(p, had))
		}
	}
	return nil
}

// union returns a list with the keys of both lists. Only the keys are meant to be used.
func union(a, b v1.ResourceList) v1.ResourceList {
	out := maps.Clone(a)
	if out == nil {
		out = v1.ResourceList{}
	}
	maps.Copy(out, b)
	return out
}

func amount(q resource.Quantity, ok bool) string {
	if !ok {
		return "none"
	}
	return q.String()
}
