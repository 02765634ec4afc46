package cpumgr

import (
	"cmp"
	"iter"
	"math"
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// maxExact is the number of nodes with free CPUs up to which the search for an even distribution
// tries all sets of nodes: 3^8 = 6561 cases at most. With more nodes, it tries only those with
// the most free CPUs. The kubelet tries all sets, at a cost that grows exponentially with the
// number of nodes.
const maxExact = 8

// distribute takes n CPUs evenly from as few nodes as possible, in groups that are not split
// between nodes. Among several ways it takes the one that leaves the most similar numbers of free
// CPUs on the nodes. Without an even distribution it packs. This is the kubelet's algorithm for
// distribute-cpus-across-numa.
func (l *layout) distribute(free numa.CPUSet, n, group int, spread bool) (numa.CPUSet, error) {
	if n%group != 0 || n == 0 || n > free.Len() {
		return l.pack(free, n, spread, false)
	}
	// The division is computed from the free CPUs before any are taken, and then executed once.
	r := run{l: l, free: free, need: n}
	d := division{need: n, group: group}
	nodes := r.nodes()
	for _, i := range nodes {
		d.free = append(d.free, free.IntersectLen(l.nodes[i].cpus))
	}
	// The smallest number of nodes with any solution wins, however uneven the solution is.
	for k := l.fewestNodes(n, group); k <= min(n/group, len(nodes)); k++ {
		best, ok := d.among(k)
		if !ok {
			continue
		}
		give := func(place, count int) {
			cpus, err := l.pack(r.free.Intersect(l.nodes[nodes[place]].cpus), count, spread, false)
			if err == nil {
				r.take(cpus)
			}
		}
		for _, place := range best.nodes {
			give(place, best.share)
		}
		for _, place := range best.extra {
			give(place, group)
		}
		if r.need == 0 {
			return r.got, nil
		}
	}
	return l.pack(free, n, spread, false)
}

// fewestNodes returns the number of nodes that n CPUs in groups need if all CPUs are free. Like
// the kubelet, it ignores that CPUs are in use: on a busy machine, the search starts with fewer
// nodes than needed.
func (l *layout) fewestNodes(n, group int) int {
	groups := make([]int, len(l.nodes))
	for i, u := range l.nodes {
		groups[i] = (u.size + group - 1) / group
	}
	slices.SortFunc(groups, func(a, b int) int { return b - a })
	k, sum := 0, 0
	for ; k < len(groups) && sum*group < n; k++ {
		sum += groups[k]
	}
	return k
}

// division searches for the most even way to take a number of CPUs from nodes.
// Nodes are identified by their index in free.
type division struct {
	free        []int // free CPUs by node, in order
	need, group int
}

// portion is a distribution of CPUs over nodes: share is the number of CPUs from each node of
// nodes. Each element of extra, which may contain a node more than once, gives one more group.
type portion struct {
	nodes, extra []int
	share        int
	score        float64
}

// among returns the best distribution over k nodes. If several are equally good, it returns the
// first.
func (d division) among(k int) (best portion, found bool) {
	// The share is rounded down to whole groups. Some of the nodes give the remaining groups.
	share := d.need / k / d.group * d.group
	rest := d.need - share*k
	// Strictly lower is better, so that the first of equal ways is kept. 0 is the best possible
	// score.
	better := func(nodes, extra, after []int) (done bool) {
		if score := deviation(after); !found || score < best.score {
			best, found = portion{slices.Clone(nodes), extra, share, score}, true
		}
		return best.score == 0
	}
	for nodes := range d.choices(every(len(d.free)), k) {
		if !d.holds(nodes, share) {
			continue
		}
		after := slices.Clone(d.free)
		var candidates []int
		for _, i := range nodes {
			if after[i] -= share; after[i] >= d.group {
				candidates = append(candidates, i)
			}
		}
		if rest == 0 {
			if better(nodes, nil, after) {
				return best, true
			}
			continue
		}
		// With as many nodes as possible first: the more nodes give a remaining group, the more
		// even the result usually is.
		for size := len(candidates); size > 0; size-- {
			for some := range d.choices(candidates, size) {
				// A copy, since dealOut modifies it.
				left := slices.Clone(after)
				if extra, ok := d.dealOut(rest, some, left); ok && better(nodes, extra, left) {
					return best, true
				}
			}
		}
	}
	return best, found
}

// holds reports whether each of the nodes has at least share free CPUs, and all of them together
// have enough for the request. It does not count parts of groups, since a group is not split.
func (d division) holds(nodes []int, share int) bool {
	sum := 0
	for _, i := range nodes {
		if d.free[i] < share {
			return false
		}
		sum += d.free[i] / d.group * d.group
	}
	return sum >= d.need
}

// dealOut takes count CPUs from the nodes, one group from each in turn, and subtracts them from
// left. left is the number of free CPUs by node. extra lists the nodes in the order in which they
// gave a group. ok is false if the nodes have too few groups.
func (d division) dealOut(count int, nodes, left []int) (extra []int, ok bool) {
	for count > 0 {
		before := count
		for _, i := range nodes {
			if count > 0 && left[i] >= d.group {
				left[i] -= d.group
				count -= d.group
				extra = append(extra, i)
			}
		}
		if count == before {
			return nil, false
		}
	}
	return extra, true
}

// choices yields all sets of k nodes in lexicographic order. If the machine has more than
// [maxExact] nodes with free CPUs, choices yields only the set of the k nodes with the most free
// CPUs.
func (d division) choices(nodes []int, k int) iter.Seq[[]int] {
	if len(d.free) <= maxExact {
		return combinations(nodes, k)
	}
	return func(yield func([]int) bool) {
		if k > len(nodes) {
			return
		}
		most := slices.Clone(nodes)
		slices.SortStableFunc(most, func(a, b int) int { return cmp.Compare(d.free[b], d.free[a]) })
		most = most[:k]
		slices.Sort(most)
		yield(most)
	}
}

// combinations yields all sets of k elements in lexicographic order. A yielded slice is valid
// until the next one is yielded. Sets are computed one at a time: there can be many, and the
// search often ends early.
func combinations(elements []int, k int) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		if k > len(elements) {
			return
		}
		at, picked := every(k), make([]int, k)
		for {
			for i, a := range at {
				picked[i] = elements[a]
			}
			if !yield(picked) {
				return
			}
			i := k - 1
			for i >= 0 && at[i] == len(elements)-k+i {
				i--
			}
			if i < 0 {
				return
			}
			for at[i]++; i+1 < k; i++ {
				at[i+1] = at[i] + 1
			}
		}
	}
}

// deviation returns the standard deviation of some counts. As in the kubelet, deviation and mean
// are rounded to three digits, so that distributions tie as they do there. All nodes with free
// CPUs count, including those that give none.
func deviation(counts []int) float64 {
	round := func(x float64) float64 { return math.Round(x*1000) / 1000 }
	sum := 0
	for _, c := range counts {
		sum += c
	}
	mean := round(float64(sum) / float64(len(counts)))
	squares := 0.0
	for _, c := range counts {
		squares += (float64(c) - mean) * (float64(c) - mean)
	}
	return round(math.Sqrt(squares / float64(len(counts))))
}
