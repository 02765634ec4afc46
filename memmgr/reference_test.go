package memmgr_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
)

// reference has the accounts of the kubelet's Static policy: per node, with counters, groups,
// free memory and memory that init containers leave, charged and refunded node by node, and with
// blocks that shrink when they are used again. It supports only memory.
type reference struct {
	nodes map[int]*refNode
	pods  map[string][]refBlock
	pod   string // whose init containers leave something
	left  map[numa.NodeSet]uint64
}

type refNode struct {
	allocatable, free uint64
	assignments       int
	cells             numa.NodeSet
}

type refBlock struct {
	name  string
	kind  numa.Kind
	nodes numa.NodeSet
	bytes uint64
}

func newReference(p *memmgr.Static, m numa.Machine) *reference {
	r := &reference{nodes: map[int]*refNode{}, pods: map[string][]refBlock{}}
	for _, n := range m.Nodes {
		r.nodes[n.ID] = &refNode{cells: numa.Nodes(n.ID)}
	}
	for _, b := range p.Allocatable() {
		if b.Resource == memmgr.Memory {
			n := r.nodes[b.Nodes.IDs()[0]]
			n.allocatable, n.free = b.Bytes, b.Bytes
		}
	}
	return r
}

func (r *reference) touch(uid string) {
	if r.pod != uid {
		r.pod, r.left = uid, map[numa.NodeSet]uint64{}
	}
}

func (r *reference) hints(m numa.Machine, uid string, bytes uint64) []numa.Hint {
	r.touch(uid)
	var hints []numa.Hint
	fewest := len(m.Nodes)
	for _, set := range numa.Candidates(m) {
		var allocatable, free uint64
		open := true
		for id := range set.All() {
			n := r.nodes[id]
			allocatable += n.allocatable
			free += n.free
			if set.Len() == 1 {
				open = open && n.cells.Len() == 1
			} else {
				open = open && (n.assignments == 0 || n.cells.Len() > 1 && n.cells == set)
			}
		}
		if allocatable < bytes {
			continue
		}
		fewest = min(fewest, set.Len())
		if open && free+r.left[set] >= bytes {
			hints = append(hints, numa.Hint{Nodes: set})
		}
	}
	for i := range hints {
		hints[i].Preferred = hints[i].Nodes.Len() == fewest
	}
	return hints
}

// allocate takes a hint that was offered.
func (r *reference) allocate(uid string, c numa.Container, set numa.NodeSet) {
	r.touch(uid)
	charge := c.Memory - min(c.Memory, r.left[set])
	for id := range set.All() {
		n := r.nodes[id]
		n.assignments++
		n.cells = set
		taken := min(n.free, charge)
		n.free -= taken
		charge -= taken
	}
	if c.Kind == numa.Init {
		r.left[set] = max(r.left[set], c.Memory)
	} else {
		r.left[set] -= min(r.left[set], c.Memory)
	}
	shrink := c.Memory
	for i, b := range r.pods[uid] {
		if b.kind == numa.Init && b.nodes == set {
			taken := min(shrink, b.bytes)
			r.pods[uid][i].bytes -= taken
			shrink -= taken
		}
	}
	r.pods[uid] = append(r.pods[uid], refBlock{c.Name, c.Kind, set, c.Memory})
}

func (r *reference) remove(uid string) {
	for _, b := range r.pods[uid] {
		refund := b.bytes
		for id := range b.nodes.All() {
			n := r.nodes[id]
			if n.assignments--; n.assignments == 0 {
				n.cells = numa.Nodes(id)
			}
			back := min(refund, n.allocatable-n.free)
			n.free += back
			refund -= back
		}
	}
	delete(r.pods, uid)
	r.pod = ""
}

// Hints, shares and free memory equal those of the reference, if it got one of its own hints.
func TestAsTheReference(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		m := randomMachine(rnd)
		for i := range m.Nodes { // it has groups of nodes without memory, too; not so here
			if m.Nodes[i].Memory == 0 {
				m.Nodes[i].Memory = gi
			}
			m.Nodes[i].HugePages = nil
		}
		spread, err := memmgr.Spread(m, totals{memmgr.Memory: gi / 2})
		if err != nil {
			t.Fatal(err)
		}
		p := policy(t, memmgr.Config{Machine: m, Reserved: spread})
		ref := newReference(p, m)
		var s memmgr.State
		for step := range 40 {
			uid := fmt.Sprint("pod", rnd.IntN(8))
			if s.Charges(uid) != nil {
				s = s.WithoutPod(uid)
				ref.remove(uid)
			} else {
				pod := randomPod(rnd, uid)
				pod.Resources = nil
				for i := range pod.Containers {
					c := &pod.Containers[i]
					c.HugePages = nil
					if c.Memory == 0 {
						continue
					}
					got, want := p.Hints(s, pod, i).List, ref.hints(m, uid, c.Memory)
					if !slices.Equal(got, want) {
						t.Fatalf("seed %d, step %d: hints %v, the reference has %v", seed, step, got, want)
					}
					if len(want) == 0 {
						continue
					}
					hint := want[rnd.IntN(len(want))]
					ref.allocate(uid, *c, hint.Nodes)
					if s, err = p.Allocate(s, pod, i, hint); err != nil {
						t.Fatalf("seed %d, step %d: %v", seed, step, err)
					}
				}
			}
			shares := s.Shares(uid)
			for _, b := range ref.pods[uid] {
				if got := shares[b.name][0]; got.Bytes != b.bytes || got.Nodes != b.nodes {
					t.Fatalf("seed %d, step %d: %s of %s has %v, in the reference %+v", seed, step, b.name, uid, got, b)
				}
			}
			var free, want uint64
			for _, n := range p.Stats(s) {
				free += n.Resources[0].Free
				want += ref.nodes[n.ID].free
				if n.Assignments != ref.nodes[n.ID].assignments || n.Group != ref.nodes[n.ID].cells {
					t.Fatalf("seed %d, step %d: node %+v, in the reference %+v", seed, step, n, ref.nodes[n.ID])
				}
			}
			if free != want {
				t.Fatalf("seed %d, step %d: %d bytes are free, in the reference %d", seed, step, free, want)
			}
		}
	}
}
