package cpumgr

import (
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// takeCaches tries to use few last-level caches: it takes whole free caches that fit, and for the
// rest a part of one cache, if the part fits exactly. pack takes the CPUs that are still missing,
// from any cache.
func (r *run) takeCaches() {
	for _, i := range r.caches() {
		// Repeated, since each round changes the need and the order of caches.
		r.takeWhole(r.l.caches, r.caches())
		if r.need == 0 {
			return
		}
		r.takePart(i)
		if r.need == 0 {
			return
		}
	}
}

// takePart takes all needed CPUs from one cache, or none. It looks only at the first cores with
// free CPUs, as many as would suffice if all their CPUs were free. Together they must have exactly
// the needed number of free CPUs, or one more if that number is odd; the highest CPU then stays
// free. As in the kubelet, no other cores of the cache are tried.
func (r *run) takePart(cache int) {
	cores := (r.need + r.l.threads - 1) / r.l.threads
	var ids []int
	for _, i := range r.l.cacheCores[cache] {
		if cores == 0 {
			break
		}
		if free := r.l.cores[i].cpus.Intersect(r.free); !free.Empty() {
			cores--
			ids = slices.AppendSeq(ids, free.All())
		}
	}
	if len(ids) > r.need && r.need%2 == 1 && r.l.threads > 1 {
		slices.Sort(ids)
		ids = ids[:len(ids)-1]
	}
	if len(ids) == r.need {
		r.take(numa.CPUs(ids...))
	}
}
