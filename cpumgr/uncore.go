package cpumgr

import (
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// takeCaches tries to stay within few last-level caches: it takes whole ones
// that are free and fit, and for what remains a part of one, if that part fits
// just so. What then is still missing is for pack to take, without regard to
// caches.
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

// takePart takes all that is needed from one cache, or nothing. It looks at as
// many cores as the need has, those of the lowest numbers, and at what is free of
// them: it has to be just as many CPUs, or one more for half a core. A part
// that does not fit just so is left to others, which is the kubelet's rule.
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
