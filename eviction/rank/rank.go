package rank

import (
	"cmp"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Rules has the settings of an order. The zero value means the kubelet's order on a node with
// one filesystem.
type Rules struct {
	// Layout says which filesystem has which parts of a pod.
	Layout Layout
	// PlainInodes compares numbers of inodes. The kubelet subtracts the pod's request of
	// ephemeral storage, in bytes, from its number of inodes, so a pod with a large request
	// hides millions of files.
	PlainInodes bool
}

// Ranked is a candidate with the figures that decide its rank, in units of the signal.
type Ranked struct {
	Candidate
	Used, Request int64
	// Exceeds means that the pod uses more than it requests. It is false for processes and
	// custom signals, which cannot be requested.
	Exceeds  bool
	Priority int32

	first, last int64 // first and third comparator; pods with lower values are evicted earlier
}

// Known reports whether the pod's usage is known.
func (r *Ranked) Known() bool { return r.Usage != nil }

// Of returns one candidate with its figures.
func Of(r Rules, s Signal, c Candidate) Ranked {
	out := Ranked{Candidate: c, Priority: priority(c.Pod), last: math.MinInt64}
	resource := s.Resource()
	var storage int64
	switch resource {
	case v1.ResourceMemory:
		out.Request = Request(c.Pod, v1.ResourceMemory)
	case v1.ResourceEphemeralStorage:
		out.Request = Request(c.Pod, v1.ResourceEphemeralStorage)
	case ResourceInodes:
		if !r.PlainInodes {
			storage = Request(c.Pod, v1.ResourceEphemeralStorage)
		}
	}
	if c.Usage != nil {
		out.Used = used(r, s, c)
		out.last = out.Request + storage - out.Used
	}
	if resource == ResourcePIDs || resource == "" {
		return out
	}
	out.Exceeds = out.Used > out.Request
	switch {
	case c.Usage == nil:
		out.first = -1
	case !out.Exceeds:
		out.first = 1
	}
	return out
}

func used(r Rules, s Signal, c Candidate) int64 {
	switch s.Resource() {
	case ResourcePIDs:
		return c.Usage.Processes
	case "":
		return c.Usage.Own
	case v1.ResourceMemory:
		return c.Usage.Memory
	case ResourceInodes:
		return partsOf(s, r.Layout).of(c).Inodes
	default:
		return partsOf(s, r.Layout).of(c).Bytes
	}
}

// compare returns a negative number if a is evicted before b, and 0 if they are equal. Both must
// have the same rules and signal.
func compare(a, b *Ranked) int {
	if c := cmp.Compare(a.first, b.first); c != 0 {
		return c
	}
	if c := cmp.Compare(a.Priority, b.Priority); c != 0 {
		return c
	}
	return cmp.Compare(a.last, b.last)
}

// Sort returns the candidates in the order in which they would be evicted for the signal. Equal
// candidates keep their order.
func Sort(r Rules, s Signal, list []Candidate) []Ranked {
	ranked := make([]Ranked, len(list))
	order := make([]*Ranked, len(list))
	for i, c := range list {
		ranked[i] = Of(r, s, c)
		order[i] = &ranked[i]
	}
	slices.SortStableFunc(order, compare)
	out := make([]Ranked, len(list))
	for i, p := range order {
		out[i] = *p
	}
	return out
}

func priority(pod *v1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}
