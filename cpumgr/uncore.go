package cpumgr

import (
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// takeCaches tries to use few last-level caches: it takes whole free caches that
// fit, and for the rest a part of one cache, if that part fits exactly. pack takes
// the CPUs that are still missing, without regard to caches.
func (r *run) takeCaches() {
	for _, i := range r.caches() {
		// In each round, because the need has become less, and the order another.
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

// takePart takes all needed CPUs from one cache, or none. It checks the free CPUs
// of as many cores as needed, lowest numbers first: they have to be exactly the
// needed number, or one more for half a core. Other parts are not taken, which is
// the kubelet's rule.
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
