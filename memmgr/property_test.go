package memmgr_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
)

func randomMachine(rnd *rand.Rand) numa.Machine {
	var m numa.Machine
	for id := range 1 + rnd.IntN(4) {
		n := numa.Node{ID: id * 2, Memory: rnd.Uint64N(12) * gi}
		if n.Memory > 2*gi && rnd.IntN(2) == 0 {
			n.HugePages = map[uint64]uint64{huge1G: rnd.Uint64N(3), huge2M: rnd.Uint64N(512)}
		}
		m.Nodes = append(m.Nodes, n)
		if id == 0 || rnd.IntN(4) > 0 {
			m.CPUs = append(m.CPUs, numa.CPU{ID: id, Core: id, Node: n.ID})
		}
	}
	return m
}

// randomPolicy is Static on a random machine that has something to reserve.
func randomPolicy(t testing.TB, rnd *rand.Rand) (*memmgr.Static, numa.Machine) {
	for {
		m := randomMachine(rnd)
		r, err := memmgr.Spread(m, totals{memmgr.Memory: 1 + rnd.Uint64N(gi)})
		if err == nil {
			return policy(t, memmgr.Config{Machine: m, Reserved: r, PodLevel: true}), m
		}
	}
}

func randomPod(rnd *rand.Rand, uid string) numa.Pod {
	pod := numa.Pod{UID: uid, Guaranteed: true}
	for i := range rnd.IntN(3) {
		pod.Containers = append(pod.Containers, randomContainer(rnd, numa.Kind(1+rnd.IntN(2)), fmt.Sprint("i", i)))
	}
	for i := range 1 + rnd.IntN(2) {
		pod.Containers = append(pod.Containers, randomContainer(rnd, numa.Regular, fmt.Sprint("c", i)))
	}
	if rnd.IntN(4) == 0 {
		pod.Resources = &numa.Resources{MilliCPU: 1000, Memory: (1 + rnd.Uint64N(12)) * gi, Bound: true}
	}
	return pod
}

func randomContainer(rnd *rand.Rand, kind numa.Kind, name string) numa.Container {
	c := container(kind, name, rnd.Uint64N(6))
	c.Bound = c.Memory > 0
	switch rnd.IntN(6) {
	case 0:
		c = withHuge(c, huge1G, rnd.Uint64N(3)*gi)
	case 1:
		c = withHuge(c, huge2M, rnd.Uint64N(100)*huge2M)
	}
	return c
}

// randomHint is any, one of those offered, or some nodes of the machine.
func randomHint(rnd *rand.Rand, m numa.Machine, offered []numa.Hint) numa.Hint {
	switch {
	case rnd.IntN(5) == 0:
		return numa.Hint{Preferred: rnd.IntN(2) == 0}
	case rnd.IntN(3) > 0 && len(offered) > 0:
		return offered[rnd.IntN(len(offered))]
	}
	return numa.Hint{Nodes: m.AllNodes() & numa.NodeSet(rnd.Uint64()), Preferred: rnd.IntN(3) == 0}
}

// walk goes through random states of a random machine.
func walk(t *testing.T, seed uint64, steps int, see func(rnd *rand.Rand, p *memmgr.Static, m numa.Machine, pods map[string]numa.Pod, before, after memmgr.State)) {
	rnd := rand.New(rand.NewPCG(seed, 0))
	p, m := randomPolicy(t, rnd)
	var s memmgr.State
	pods := map[string]numa.Pod{}
	for range steps {
		before := s
		uid := fmt.Sprint("pod", rnd.IntN(8))
		pod, known := pods[uid]
		if !known {
			pod = randomPod(rnd, uid)
		}
		switch at := rnd.IntN(len(pod.Containers)); {
		case known && rnd.IntN(3) == 0:
			s = s.WithoutPod(uid)
			delete(pods, uid)
		case known && rnd.IntN(3) == 0:
			s = s.Started(uid, pod.Containers[at].Name)
		case known && rnd.IntN(3) == 0:
			s = p.Release(s, uid, pod.Containers[at].Name)
		default:
			if rnd.IntN(3) == 0 {
				at = -1
			}
			s, _ = p.Allocate(s, pod, at, randomHint(rnd, m, p.Hints(s, pod, at).List))
			pods[uid] = pod
		}
		see(rnd, p, m, pods, before, s)
	}
}

// No byte is given twice, and none that is reserved: what pods are charged on
// the nodes of a group is never more than there is, and groups are disjoint.
func TestNoByteIsGivenTwice(t *testing.T) {
	for seed := range uint64(150) {
		walk(t, seed, 60, func(_ *rand.Rand, p *memmgr.Static, m numa.Machine, _ map[string]numa.Pod, _, s memmgr.State) {
			used := map[numa.NodeSet]map[memmgr.Resource]uint64{}
			for _, uid := range s.Pods() {
				for _, b := range s.Charges(uid) {
					if used[b.Nodes] == nil {
						used[b.Nodes] = map[memmgr.Resource]uint64{}
					}
					used[b.Nodes][b.Resource] += b.Bytes
				}
			}
			var seen numa.NodeSet
			for group, of := range used {
				if seen&group != 0 {
					t.Fatalf("seed %d: group %s has nodes of another one", seed, group)
				}
				seen |= group
				for r, bytes := range of {
					var has uint64
					for _, b := range p.Allocatable() {
						if b.Nodes.SubsetOf(group) && b.Resource == r {
							has += b.Bytes
						}
					}
					if bytes > has {
						t.Fatalf("seed %d: nodes %s give %d bytes of %s, and have %d", seed, group, bytes, r, has)
					}
				}
			}
			for _, n := range p.Stats(s) {
				node, _ := m.Node(n.ID)
				sum := uint64(0)
				for _, r := range n.Resources {
					if r.Used+r.Free != r.Allocatable {
						t.Fatalf("seed %d: %+v", seed, r)
					}
					sum += r.Reserved + r.Allocatable
				}
				if sum > node.Memory {
					t.Fatalf("seed %d: node %d has %d bytes, and gives or keeps %d", seed, n.ID, node.Memory, sum)
				}
			}
			if _, problems := p.Validate(s); len(problems) > 0 {
				t.Fatalf("seed %d: %v", seed, problems)
			}
		})
	}
}

// What every offer promises is kept, and nothing but an offer is taken when any
// nodes will do.
func TestOffersAreKept(t *testing.T) {
	for seed := range uint64(60) {
		walk(t, seed, 30, func(rnd *rand.Rand, p *memmgr.Static, _ numa.Machine, _ map[string]numa.Pod, _, s memmgr.State) {
			pod := randomPod(rnd, "new")
			hints := p.Hints(s, pod, -1)
			for _, h := range hints.List {
				next, err := p.Allocate(s, pod, -1, h)
				if err != nil && pod.Resources == nil {
					t.Fatalf("seed %d: %v was offered: %v", seed, h, err)
				}
				for _, b := range next.Charges("new") {
					if !b.Nodes.SubsetOf(h.Nodes) {
						t.Fatalf("seed %d: %v was offered, %v given", seed, h, b)
					}
				}
			}
			if pod.Resources == nil && len(hints.List) == 0 && !hints.Any && len(pod.Containers) == 1 {
				if _, err := p.Allocate(s, pod, 0, numa.Hint{}); err == nil {
					t.Fatalf("seed %d: nothing was offered, and something given", seed)
				}
			}
		})
	}
}

// Released memory is available again, to the byte.
func TestFreesRestoreTheState(t *testing.T) {
	for seed := range uint64(100) {
		walk(t, seed, 30, func(rnd *rand.Rand, p *memmgr.Static, m numa.Machine, pods map[string]numa.Pod, _, s memmgr.State) {
			pod := randomPod(rnd, "new")
			next, _ := p.Allocate(s, pod, -1, randomHint(rnd, m, nil))
			for _, c := range pod.Containers {
				next = p.Release(next, "new", c.Name)
			}
			if !reflect.DeepEqual(p.Stats(next), p.Stats(s)) || !slices.Equal(next.Pods(), s.Pods()) {
				t.Fatalf("seed %d: %+v after %+v", seed, p.Stats(next), p.Stats(s))
			}
		})
	}
}

// The order in which it came about does not show in a state, nor does a restart.
func TestOrderDoesNotLeak(t *testing.T) {
	for seed := range uint64(100) {
		walk(t, seed, 30, func(rnd *rand.Rand, p *memmgr.Static, _ numa.Machine, pods map[string]numa.Pod, _, s memmgr.State) {
			again := memmgr.State{}
			uids := s.Pods()
			rnd.Shuffle(len(uids), func(i, j int) { uids[i], uids[j] = uids[j], uids[i] })
			for _, uid := range uids {
				data, err := s.EncodePod(uid, p.Name())
				if err == nil {
					again, err = again.DecodePod(uid, p.Name(), data)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if !reflect.DeepEqual(again, s) && len(s.Pods()) > 0 || !reflect.DeepEqual(p.Stats(again), p.Stats(s)) {
				t.Fatalf("seed %d: the state is another one after a restart", seed)
			}
			pod := randomPod(rnd, "new")
			if !reflect.DeepEqual(p.Hints(again, pod, -1), p.Hints(s, pod, -1)) {
				t.Fatalf("seed %d: hints differ after a restart", seed)
			}
		})
	}
}

// The nodes of running containers are enough to restore their allocations.
func TestRebuildIsExact(t *testing.T) {
	for seed := range uint64(100) {
		walk(t, seed, 30, func(_ *rand.Rand, p *memmgr.Static, _ numa.Machine, pods map[string]numa.Pod, _, s memmgr.State) {
			// Init containers that are over have no process to ask.
			running := map[string]map[string]numa.NodeSet{}
			var live []numa.Pod
			for uid, pod := range pods {
				running[uid] = map[string]numa.NodeSet{}
				for _, c := range pod.Containers {
					if at := s.Nodes(uid, c.Name); at != 0 {
						running[uid][c.Name] = at
					}
				}
				if len(running[uid]) == 0 || pod.Resources != nil {
					s = s.WithoutPod(uid)
					continue
				}
				pod.Containers = slices.DeleteFunc(slices.Clone(pod.Containers), func(c numa.Container) bool { return running[uid][c.Name] == 0 })
				live = append(live, pod)
			}
			got, problems := p.Rebuild(memmgr.State{}, live, running)
			if len(problems) > 0 || !reflect.DeepEqual(p.Stats(got), p.Stats(s)) {
				t.Fatalf("seed %d: %v\ngot  %+v\nwant %+v", seed, problems, p.Stats(got), p.Stats(s))
			}
			for uid, of := range running {
				for name, at := range of {
					if pods[uid].Resources == nil && got.Nodes(uid, name) != at {
						t.Fatalf("seed %d: %s of %s is on %s, was on %s", seed, name, uid, got.Nodes(uid, name), at)
					}
				}
			}
		})
	}
}

// States are values: nothing that is done with one changes it.
func TestStatesDoNotChange(t *testing.T) {
	for seed := range uint64(50) {
		type seen struct {
			state memmgr.State
			saved map[string]string
		}
		var all []seen
		save := func(s memmgr.State) map[string]string {
			m := map[string]string{}
			for _, uid := range s.Pods() {
				data, _ := s.EncodePod(uid, "Static")
				m[uid] = string(data)
			}
			return m
		}
		walk(t, seed, 60, func(_ *rand.Rand, _ *memmgr.Static, _ numa.Machine, _ map[string]numa.Pod, _, s memmgr.State) {
			all = append(all, seen{s, save(s)})
		})
		for _, at := range all {
			if !maps.Equal(save(at.state), at.saved) {
				t.Fatalf("seed %d: a state has changed", seed)
			}
		}
	}
}
