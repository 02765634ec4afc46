package fit

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/podmeta"
)

// Fits makes only the check of resources: it compares the requests of pod and others with the
// allocatable resources of the node. The Rejection names the first resource of which there is too
// little. The text is the kubelet's, since controllers and tools search for it.
func (p *Node) Fits(pod *v1.Pod, others []*v1.Pod) *Rejection {
	short, r := p.short(pod, others, true)
	if r != nil || len(short) == 0 {
		return r
	}
	s := short[0]
	if s.name == v1.ResourcePods {
		return &Rejection{Reason: "OutOfpods", Message: fmt.Sprintf("Node didn't have enough resource: pods, requested: 1, used: %d, capacity: %d",
			s.used.Value(), s.have.Value())}
	}
	return &Rejection{Reason: "OutOf" + string(s.name), Message: fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
		s.name, amount(s.name, s.asked), amount(s.name, s.used), amount(s.name, s.have))}
}

// amount returns a quantity as a number for the kubelet's messages. CPUs are in thousandths.
func amount(name v1.ResourceName, q resource.Quantity) int64 {
	if name == v1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

// Missing returns the amounts, by resource, that have to be freed so that pod fits beside others.
// Each pod counts as 1 of the resource "pods". It is empty if the pod fits, or if it waits for a
// plugin. Preemption uses it.
func (p *Node) Missing(pod *v1.Pod, others []*v1.Pod) v1.ResourceList {
	short, r := p.short(pod, others, false)
	if r != nil {
		return nil
	}
	out := make(v1.ResourceList, len(short))
	for _, s := range short {
		q := s.used
		q.Add(s.asked)
		q.Sub(s.have)
		out[s.name] = q
	}
	return out
}

// demand is the demand for a resource that the node limits: asked is the pod's request, used is the
// sum of the others' requests, and have is the amount for all pods.
type demand struct {
	name              v1.ResourceName
	asked, used, have resource.Quantity
}

// free returns the amount that the other pods leave.
func (d *demand) free() resource.Quantity {
	free := d.have.DeepCopy()
	free.Sub(d.used)
	if free.Sign() < 0 {
		return resource.Quantity{}
	}
	return free
}

// isShort reports whether there is too little of the resource.
func (d *demand) isShort() bool {
	sum := d.used.DeepCopy()
	sum.Add(d.asked)
	return sum.Cmp(d.have) > 0
}

// short returns the resources of which there is too little, "pods" first and then by name. If first
// is true, it returns only the first of them. The Rejection is not nil if the pod has to wait for a
// resource.
func (p *Node) short(pod *v1.Pod, others []*v1.Pod, first bool) (list []demand, r *Rejection) {
	r = p.demands(pod, others, func(d demand) (more bool) {
		if d.isShort() {
			list = append(list, d)
		}
		return !first || len(list) == 0
	})
	if r != nil {
		return nil, r
	}
	return list, nil
}

// demands calls visit for each resource that the pod requests and the node limits, "pods" first
// and then by name, until visit returns false.
func (p *Node) demands(pod *v1.Pod, others []*v1.Pod, visit func(demand) (more bool)) *Rejection {
	one := *resource.NewQuantity(1, resource.DecimalSI)
	// Every pod counts as one, whatever it requests.
	if limit, ok := p.Allocatable[v1.ResourcePods]; ok && !visit(demand{v1.ResourcePods, one, *resource.NewQuantity(int64(len(others)), resource.DecimalSI), limit.DeepCopy()}) {
		return nil
	}
	want := podmeta.Requests(pod)
	offered := p.offered(want)
	var sums v1.ResourceList
	for _, name := range slices.Sorted(maps.Keys(want)) {
		q := want[name]
		have, bounded, r := p.bound(pod, name, q, offered)
		if r != nil {
			return r
		}
		if !bounded {
			continue
		}
		if sums == nil {
			sums = p.Tally.of(others)
		}
		if !visit(demand{name, q, sums[name].DeepCopy(), have.DeepCopy()}) {
			return nil
		}
	}
	return nil
}

// Tally stores the sum of the requests of the other pods between checks of a [Node]. If the next
// check has the same pods and a few more, only the requests of these are added. The zero value is
// ready. It may be used by several goroutines, and keeps the pods of the last check.
type Tally struct {
	mu   sync.Mutex
	pods []*v1.Pod
	sums v1.ResourceList
}

// of returns the sum of the requests of pods, by resource. The result must not be changed.
func (t *Tally) of(pods []*v1.Pod) v1.ResourceList {
	if t == nil {
		t = &Tally{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	known := len(t.pods)
	if known > len(pods) || !slices.Equal(t.pods, pods[:known]) {
		known, t.sums = 0, nil
	}
	if known == len(pods) && t.sums != nil {
		return t.sums
	}
	sums := make(v1.ResourceList, len(t.sums)) // a new map, since readers have the former one
	for name, q := range t.sums {
		sums[name] = q.DeepCopy()
	}
	for _, o := range pods[known:] {
		for name, q := range podmeta.Requests(o) {
			sum := sums[name]
			sum.Add(q)
			sums[name] = sum
		}
	}
	t.pods, t.sums = append(t.pods[:known], pods[known:]...), sums
	return sums
}

// bound returns the limit of a resource for all pods together. bounded is false if there is none.
// The Rejection is about a resource that a plugin may offer later.
func (p *Node) bound(pod *v1.Pod, name v1.ResourceName, asked resource.Quantity, offered map[v1.ResourceName]Count) (have resource.Quantity, bounded bool, r *Rejection) {
	have, known := p.Allocatable[name]
	if c, ok := offered[name]; ok {
		if c.Away {
			return have, false, nil // the device manager decides whether the pod waits
		}
		// Free and used devices count, not the allocatable ones: a device that became unhealthy
		// in use still belongs to its pod, which is one of the others.
		have, known = *resource.NewQuantity(int64(c.Free+c.Used), resource.DecimalSI), true
		if r := p.awaitDevices(pod, name, asked, &have); r != nil {
			return have, false, r
		}
	} else if !known && extended(name) && podmeta.IsScheduled(pod) {
		// As in the kubelet, a resource that no plugin offers is not checked: it belongs to the whole
		// cluster or comes from a claim (KEP-5004), and the scheduler has checked it.
		if have, known = p.declared(name); !known {
			return have, false, nil
		}
	} else if !known {
		if r := p.awaitDevices(pod, name, asked, nil); r != nil {
			return have, false, r
		}
	}
	// A resource without a domain that the node does not list, such as ephemeral-storage, has no
	// limit. CPU and memory are exceptions.
	if asked.IsZero() || (!known && !strings.Contains(string(name), "/") && name != v1.ResourceCPU && name != v1.ResourceMemory) {
		return have, false, nil
	}
	return have, true, nil
}

// Shortages returns a text for each resource of which there is too little. It has the request of
// the pod and the free amount, such as "wants 64 CPUs, and 1.5 are free".
func (p *Node) Shortages(pod *v1.Pod, others []*v1.Pod) []string {
	short, _ := p.short(pod, others, false)
	var out []string
	for _, s := range short {
		free := s.free()
		switch s.name {
		case v1.ResourcePods:
			out = append(out, fmt.Sprintf("wants a place among %d pods, and %d are there", s.have.Value(), s.used.Value()))
		case v1.ResourceCPU:
			out = append(out, fmt.Sprintf("wants %s CPUs, and %s are free", inCores(s.asked), inCores(free)))
		default:
			out = append(out, fmt.Sprintf("wants %s of %s, and %s are free", inUnits(s.name, s.asked), s.name, inUnits(s.name, free)))
		}
	}
	return out
}

// Requests returns a text for each resource that the pod requests. It has the request and the free
// amount, such as "0.5 of 1.5 free CPUs".
func (p *Node) Requests(pod *v1.Pod, others []*v1.Pod) []string {
	var out []string
	_ = p.demands(pod, others, func(d demand) (more bool) {
		switch d.name {
		case v1.ResourcePods:
		case v1.ResourceCPU:
			out = append(out, fmt.Sprintf("%s of %s free CPUs", inCores(d.asked), inCores(d.free())))
		default:
			out = append(out, fmt.Sprintf("%s of %s free %s", inUnits(d.name, d.asked), inUnits(d.name, d.free()), d.name))
		}
		return true
	})
	return out
}

// inUnits formats an amount of a resource for people.
func inUnits(name v1.ResourceName, q resource.Quantity) string {
	if name == v1.ResourceMemory || name == v1.ResourceEphemeralStorage {
		return binary(q)
	}
	return q.String()
}

// inCores formats an amount of CPUs for people.
func inCores(q resource.Quantity) string {
	return strconv.FormatFloat(float64(q.MilliValue())/1000, 'f', -1, 64)
}

// binary formats an amount of bytes with a unit that gives a short number.
func binary(q resource.Quantity) string {
	n, unit := float64(q.Value()), ""
	for _, next := range []string{"Ki", "Mi", "Gi", "Ti"} {
		if n < 1024 {
			break
		}
		n, unit = n/1024, next
	}
	return strconv.FormatFloat(math.Floor(n*10)/10, 'f', -1, 64) + unit
}
