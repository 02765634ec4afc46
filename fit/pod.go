package fit

import (
	"math"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/internal/quantity"
	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/podmeta"
)

// Pod converts a pod for package numa: its init containers and sidecars in order, then the
// regular containers, with their requests and limits. A missing request equals the limit. The pod
// is not modified.
func Pod(pod *v1.Pod) numa.Pod {
	out := numa.Pod{UID: string(pod.UID), Guaranteed: podmeta.QOS(pod) == v1.PodQOSGuaranteed}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		kind := numa.Init
		if podmeta.IsSidecar(c) {
			kind = numa.Sidecar
		}
		out.Containers = append(out.Containers, numa.Container{Name: c.Name, Kind: kind, Resources: Resources(c.Resources)})
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		out.Containers = append(out.Containers, numa.Container{Name: c.Name, Resources: Resources(c.Resources)})
	}
	if r := pod.Spec.Resources; r != nil && len(r.Requests)+len(r.Limits) > 0 {
		whole := Resources(*r)
		out.Resources = &whole
	}
	return out
}

// Resources returns requests and limits as numbers: thousandths of a CPU, bytes, and numbers of
// devices. Bound means that the limits of cpu and memory equal the requests, which exclusive CPUs
// and exclusive memory require.
func Resources(r v1.ResourceRequirements) numa.Resources {
	request := func(name v1.ResourceName) resource.Quantity {
		if q, ok := r.Requests[name]; ok {
			return q
		}
		return r.Limits[name]
	}
	bound := func(name v1.ResourceName) bool {
		limit, ok := r.Limits[name]
		return ok && !limit.IsZero() && limit.Cmp(request(name)) == 0
	}
	out := numa.Resources{
		MilliCPU: milli(request(v1.ResourceCPU)), Memory: bytes(request(v1.ResourceMemory)),
		Bound: bound(v1.ResourceCPU) && bound(v1.ResourceMemory),
	}
	for i, list := range []v1.ResourceList{r.Limits, r.Requests} {
		for name := range list {
			if _, seen := r.Limits[name]; seen && i > 0 {
				continue
			}
			size, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
			if !ok {
				if n := request(name); extended(name) && n.Sign() > 0 {
					if out.Extended == nil {
						out.Extended = map[string]int{}
					}
					out.Extended[string(name)] = int(min(n.Value(), math.MaxInt32))
				}
				continue
			}
			page, err := quantity.Parse(size)
			if n := bytes(request(name)); err == nil && page.Sign() > 0 && n > 0 {
				if out.HugePages == nil {
					out.HugePages = map[uint64]uint64{}
				}
				// Added, since hugepages-2Mi and hugepages-2048Ki are pages of one size.
				out.HugePages[uint64(page.Value())] += n
			}
		}
	}
	return out
}

// milli returns a quantity in thousandths, at most the largest int64.
func milli(q resource.Quantity) int64 {
	if q.CmpInt64(math.MaxInt64/1000) > 0 {
		return math.MaxInt64
	}
	return max(q.MilliValue(), 0)
}

// bytes converts a quantity to a number of bytes. A negative quantity becomes 0.
func bytes(q resource.Quantity) uint64 { return uint64(max(q.Value(), 0)) }
