package memmgr_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
)

func preferred(ids ...int) numa.Hint { return numa.Hint{Nodes: nodes(ids...), Preferred: true} }

func TestHints(t *testing.T) {
	pinned := func(uid string, memory uint64, on numa.Hint) func(*testing.T, *memmgr.Static, memmgr.State) memmgr.State {
		return func(t *testing.T, p *memmgr.Static, s memmgr.State) memmgr.State {
			return must(t, p, s, guaranteed(uid, app("c", memory)), on)
		}
	}
	for _, tc := range []struct {
		name  string
		give  []uint64
		given func(*testing.T, *memmgr.Static, memmgr.State) memmgr.State
		ask   uint64
		want  []numa.Hint
	}{
		{"fits on one node", []uint64{10, 10}, nil, 10, []numa.Hint{preferred(0), preferred(1), on(0, 1)}},
		{"fits on the larger node alone", []uint64{5, 10}, nil, 6, []numa.Hint{preferred(1), on(0, 1)}},
		{"needs both", []uint64{10, 10}, nil, 11, []numa.Hint{preferred(0, 1)}},
		{"never fits", []uint64{10, 10}, nil, 21, nil},
		{"one node is in use alone", []uint64{10, 10}, pinned("a", 1, on(0)), 9, []numa.Hint{preferred(0), preferred(1)}},
		{"what one node has left is too little", []uint64{10, 10}, pinned("a", 2, on(0)), 9, []numa.Hint{preferred(1)}},
		{"needs both, and one is in use alone", []uint64{10, 10}, pinned("a", 1, on(0)), 11, nil},
		{"a group serves groups alone", []uint64{10, 10, 10}, pinned("a", 12, on(0, 1)), 3, []numa.Hint{preferred(2), on(0, 1)}},
		{"a group while it lasts", []uint64{10, 10}, pinned("a", 12, on(0, 1)), 8, []numa.Hint{on(0, 1)}},
		{"a group with too little left", []uint64{10, 10}, pinned("a", 12, on(0, 1)), 9, nil},
		{"a node that never fits is not the measure", []uint64{2, 10, 10}, nil, 11, []numa.Hint{preferred(0, 1), preferred(0, 2), preferred(1, 2), on(0, 1, 2)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := static(t, tc.give...)
			var s memmgr.State
			if tc.given != nil {
				s = tc.given(t, p, s)
			}
			pod := guaranteed("pod", app("c", tc.ask))
			wantHints(t, p.Hints(s, pod, 0), tc.want...)
			wantHints(t, p.Hints(s, pod, -1), tc.want...)
		})
	}
}

func TestNoPreference(t *testing.T) {
	m, r := machine(10, 10)
	off := policy(t, memmgr.Config{Machine: m, Reserved: r})
	burstable := guaranteed("pod", app("c", 1))
	burstable.Guaranteed = false
	whole := guaranteed("pod", app("c", 1))
	whole.Resources = &numa.Resources{Memory: gi}
	shared := guaranteed("pod", sharing(numa.Regular, "c"))
	shared.Resources = &numa.Resources{Memory: gi}
	for _, tc := range []struct {
		name      string
		policy    memmgr.Policy
		pod       numa.Pod
		container int
	}{
		{"not Guaranteed", off, burstable, 0},
		{"not Guaranteed, as a whole", off, burstable, -1},
		{"no request", off, guaranteed("pod", sharing(numa.Regular, "c")), 0},
		{"no request, as a whole", off, guaranteed("pod", sharing(numa.Regular, "c")), -1},
		{"resources of the pod, which is off", off, whole, 0},
		{"resources of the pod as a whole, which is off", off, whole, -1},
		{"a container that shares the pod's", static(t, 10, 10), shared, 0},
		{"policy None", memmgr.None{}, guaranteed("pod", app("c", 1)), 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.policy.Hints(memmgr.State{}, tc.pod, tc.container); !got.Any {
				t.Errorf("hints %+v, want any", got)
			}
			s, err := tc.policy.Allocate(memmgr.State{}, tc.pod, tc.container, preferred(0))
			if err != nil || len(s.Pods()) > 0 {
				t.Errorf("%v was given memory, error %v", s.Pods(), err)
			}
		})
	}
}

// A container with memory gets a hint for its nodes, or none if it requests other amounts, and
// keeps its memory.
func TestHintsOfHolders(t *testing.T) {
	p := static(t, 10, 10)
	s := must(t, p, memmgr.State{}, guaranteed("pod", initc("i", 3), app("a", 2), app("b", 1)), on(1))
	for _, tc := range []struct {
		name string
		pod  numa.Pod
		at   int
		want []numa.Hint
	}{
		{"the same, init container", guaranteed("pod", initc("i", 3), app("a", 2), app("b", 1)), 0, []numa.Hint{preferred(1)}},
		{"the same, as a whole", guaranteed("pod", initc("i", 3), app("a", 2), app("b", 1)), -1, []numa.Hint{preferred(1)}},
		{"other size", guaranteed("pod", initc("i", 3), app("a", 3), app("b", 1)), 1, nil},
		{"other size, as a whole", guaranteed("pod", initc("i", 3), app("a", 3), app("b", 1)), -1, nil},
		{"other number of resources", guaranteed("pod", initc("i", 3), withHuge(app("a", 2), huge2M, gi), app("b", 1)), 1, nil},
		{"other resource", guaranteed("pod", initc("i", 3), withHuge(app("a", 0), huge2M, 2*gi), app("b", 1)), 1, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := p.Hints(s, tc.pod, tc.at)
			if got.Any != (tc.want == nil) || !slices.Equal(got.List, tc.want) {
				t.Errorf("%+v, want %v", got, tc.want)
			}
			next, err := p.Allocate(s, tc.pod, tc.at, numa.Hint{})
			if err != nil || !slices.Equal(next.Blocks("pod", "a"), s.Blocks("pod", "a")) {
				t.Errorf("it holds %v now (%v)", next.Blocks("pod", "a"), err)
			}
		})
	}
}

func withHuge(c numa.Container, size, bytes uint64) numa.Container {
	c.HugePages = map[uint64]uint64{size: bytes}
	return c
}

func TestAllocate(t *testing.T) {
	type given struct {
		ask  uint64
		hint numa.Hint
	}
	for _, tc := range []struct {
		name  string
		give  []uint64
		given []given
		ask   uint64
		hint  numa.Hint
		want  numa.NodeSet
		err   error
	}{
		{name: "as hinted", give: []uint64{10, 10}, ask: 5, hint: preferred(1), want: nodes(1)},
		{name: "as hinted, on more than are needed", give: []uint64{10, 10}, ask: 5, hint: on(0, 1), want: nodes(0, 1)},
		{name: "no hint", give: []uint64{10, 10}, ask: 5, want: nodes(0)},
		{name: "any, preferred", give: []uint64{10, 10}, ask: 5, hint: numa.Hint{Preferred: true}, want: nodes(0)},
		{name: "any, preferred, and only others will do", give: []uint64{10, 10}, given: []given{{12, on(0, 1)}}, ask: 5, hint: numa.Hint{Preferred: true}, err: memmgr.ErrNotPreferred},
		{name: "any, and only others will do", give: []uint64{10, 10}, given: []given{{12, on(0, 1)}}, ask: 5, want: nodes(0, 1)},
		{name: "no hint and no room", give: []uint64{10, 10}, given: []given{{8, on(0)}, {8, on(1)}}, ask: 5, err: memmgr.ErrNoRoom},
		{name: "hint too small", give: []uint64{10, 10}, ask: 12, hint: on(0), want: nodes(0, 1)},
		{name: "hint too small, larger one is preferred", give: []uint64{10, 10}, ask: 12, hint: preferred(0), want: nodes(0, 1)},
		{name: "hint has too little left, preferred", give: []uint64{5, 10}, ask: 6, hint: preferred(0), err: memmgr.ErrNotPreferred},
		{name: "hint has too little left", give: []uint64{5, 10}, ask: 6, hint: on(0), want: nodes(0, 1)},
		{name: "of the larger ones the smallest", give: []uint64{5, 5, 5, 5}, ask: 6, hint: on(2), want: nodes(0, 2)},
		{name: "several nodes, one in use alone", give: []uint64{10, 10}, given: []given{{1, on(0)}}, ask: 12, hint: on(0, 1), err: memmgr.ErrGroups},
		{name: "a group again", give: []uint64{10, 10}, given: []given{{12, on(0, 1)}}, ask: 8, hint: on(0, 1), want: nodes(0, 1)},
		{name: "another group", give: []uint64{10, 10, 10}, given: []given{{12, on(0, 1)}}, ask: 12, hint: on(1, 2), err: memmgr.ErrGroups},
		{name: "one node of a group: all of it", give: []uint64{10, 10}, given: []given{{12, on(0, 1)}}, ask: 2, hint: on(0), want: nodes(0, 1)},
		{name: "one node of a group, preferred", give: []uint64{10, 10}, given: []given{{12, on(0, 1)}}, ask: 2, hint: preferred(0), err: memmgr.ErrNotPreferred},
		{name: "nodes that are not there", give: []uint64{10, 10}, ask: 2, hint: on(7), err: memmgr.ErrNoRoom},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := static(t, tc.give...)
			var s memmgr.State
			for i, g := range tc.given {
				s = must(t, p, s, guaranteed(string(rune('a'+i)), app("c", g.ask)), g.hint)
			}
			next, err := p.Allocate(s, guaranteed("pod", app("c", tc.ask)), 0, tc.hint)
			if !errors.Is(err, tc.err) || next.Nodes("pod", "c") != tc.want {
				t.Fatalf("nodes %q, error %v; want %q, %v", next.Nodes("pod", "c"), err, tc.want, tc.err)
			}
			if err != nil && !slices.Equal(next.Pods(), s.Pods()) {
				t.Errorf("the state has %v after an error", next.Pods())
			}
		})
	}
}

// On large machines an error lists the nodes with the most left.
func TestErrorsOfLargeMachines(t *testing.T) {
	m, r := machine(1, 1, 1, 1, 1, 1, 1, 9, 1, 8)
	p := policy(t, memmgr.Config{Machine: m, Reserved: r})
	_, err := p.Allocate(memmgr.State{}, guaranteed("b", app("web", 100)), 0, numa.Hint{})
	var placement *memmgr.PlacementError
	if !errors.As(err, &placement) || len(placement.Nodes) != 10 || strings.Count(err.Error(), "; node ") != 8 ||
		!strings.Contains(err.Error(), "107374182400; node 7 memory free 9663676416,") || !strings.HasSuffix(err.Error(), "; 2 more nodes have no more") {
		t.Errorf("%v", err)
	}
}

func TestErrorsSayTheNumbers(t *testing.T) {
	p := static(t, 10, 10)
	s := must(t, p, memmgr.State{}, guaranteed("a", app("c", 4)), on(0))
	_, err := p.Allocate(s, guaranteed("b", app("web", 11)), 0, on(0, 1))
	want := "container web of pod b: NUMA nodes are in use by containers on other sets of nodes: asked for memory 11811160064 on nodes 0-1; " +
		"node 0 (serves 0) memory free 6442450944, reserved 1073741824 of 11811160064; node 1 memory free 10737418240, reserved 1073741824 of 11811160064"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// Memory of init containers is used again by later containers. Shares are the same as in the
// kubelet's accounts.
func TestInitContainersMemoryIsUsedAgain(t *testing.T) {
	for _, tc := range []struct {
		name       string
		containers []numa.Container
		used       uint64
		shares     []uint64
	}{
		{"growing", []numa.Container{initc("i", 1), initc("j", 2), app("a", 3), app("b", 4)}, 7, []uint64{0, 0, 3, 4}},
		{"shrinking", []numa.Container{initc("i", 4), initc("j", 3), app("a", 2), app("b", 1)}, 4, []uint64{0, 1, 2, 1}},
		{"all of it", []numa.Container{initc("i", 7), initc("j", 4), app("a", 4), app("b", 3)}, 7, []uint64{0, 0, 4, 3}},
		{"all of it, otherwise", []numa.Container{initc("i", 7), initc("j", 4), app("a", 5), app("b", 2)}, 7, []uint64{0, 0, 5, 2}},
		{"sidecars keep theirs", []numa.Container{sidecar("s", 2), sidecar("r", 1), app("a", 3)}, 6, []uint64{2, 1, 3}},
		{"a sidecar between", []numa.Container{initc("i", 4), sidecar("s", 2), initc("j", 3), app("a", 1)}, 5, []uint64{0, 2, 2, 1}},
	} {
		for _, kind := range []string{"memory", "huge pages"} {
			t.Run(tc.name+", "+kind, func(t *testing.T) {
				m, r := machine(40, 40)
				m.Nodes[0].HugePages = map[uint64]uint64{huge1G: 20}
				p := policy(t, memmgr.Config{Machine: m, Reserved: r})
				resource, containers := memmgr.Memory, slices.Clone(tc.containers)
				if kind != "memory" {
					resource = memmgr.HugePages(huge1G)
					for i := range containers {
						containers[i] = withHuge(app(containers[i].Name, 0), huge1G, containers[i].Memory)
						containers[i].Kind = tc.containers[i].Kind
					}
				}
				pod := guaranteed("pod", containers...)
				var s memmgr.State
				for i := range containers {
					var err error
					if s, err = p.Allocate(s, pod, i, on(0)); err != nil {
						t.Fatal(err)
					}
					s = reload(t, p, s) // the agent restarts
				}
				if got := used(p, s, resource); got != tc.used*gi {
					t.Errorf("%d GiB are used, want %d", got/gi, tc.used)
				}
				shares := s.Shares("pod")
				for i, c := range containers {
					if got := shares[c.Name]; len(got) != 1 || got[0].Bytes != tc.shares[i]*gi {
						t.Errorf("share of %s is %v, want %d GiB", c.Name, got, tc.shares[i])
					}
					if got := s.Blocks("pod", c.Name); got[0].Bytes != tc.containers[i].Memory {
						t.Errorf("block of %s is %v", c.Name, got)
					}
				}
				s = s.Started("pod", "a")
				for _, c := range containers {
					if over := c.Kind == numa.Init; (s.Nodes("pod", c.Name) == 0) != over {
						t.Errorf("after the start, %s has nodes %q", c.Name, s.Nodes("pod", c.Name))
					}
				}
			})
		}
	}
}

// A pod that has no room but in its own init container's memory is let in.
func TestOwnMemoryIsRoom(t *testing.T) {
	p := static(t, 10, 10)
	pod := guaranteed("pod", initc("i", 10), app("a", 10))
	s := must(t, p, memmgr.State{}, pod, on(0))
	if got := used(p, s, memmgr.Memory); got != 10*gi {
		t.Errorf("%d used", got)
	}
	wide := guaranteed("wide", initc("i", 15), app("a", 6))
	s = must(t, p, memmgr.State{}, wide, preferred(0, 1)) // a's own preference would be one node
	if got := s.Nodes("wide", "a"); got != nodes(0, 1) {
		t.Errorf("a is on %s", got)
	}
	// On other nodes than its init container, an app takes room of its own.
	s = must(t, p, memmgr.State{}, guaranteed("pod", initc("i", 10)), on(0))
	s, err := p.Allocate(s, pod, 1, on(1))
	if err != nil || used(p, s, memmgr.Memory) != 20*gi {
		t.Errorf("%d used, %v", used(p, s, memmgr.Memory), err)
	}
}

// A container that starts ends the init containers before it, not itself, and
// those that are over get nothing again.
func TestStarted(t *testing.T) {
	p := static(t, 10, 10)
	pod := guaranteed("pod", initc("i", 4), sidecar("s", 1), initc("j", 5), app("a", 2))
	s := must(t, p, memmgr.State{}, pod, on(1))
	for _, tc := range []struct {
		started string
		left    []string
		used    uint64
	}{
		{"i", []string{"i", "s", "j", "a"}, 6},
		{"unknown", []string{"i", "s", "j", "a"}, 6},
		{"s", []string{"s", "j", "a"}, 6},
		{"j", []string{"s", "j", "a"}, 6},
		{"a", []string{"s", "a"}, 3},
	} {
		s = s.Started("pod", tc.started)
		if got := s.Containers("pod"); !slices.Equal(got, tc.left) || used(p, s, memmgr.Memory) != tc.used*gi {
			t.Errorf("after %s, %v hold %d bytes; want %v, %d GiB", tc.started, got, used(p, s, memmgr.Memory), tc.left, tc.used)
		}
	}
	for _, at := range []int{0, 2, -1} {
		again, err := p.Allocate(s, pod, at, on(1))
		if err != nil || len(again.Containers("pod")) != 2 {
			t.Errorf("%d: %v hold something (%v)", at, again.Containers("pod"), err)
		}
	}
	if got := p.Hints(s, pod, 0); !got.Any {
		t.Errorf("hints of a container that is over: %+v", got)
	}
	wantHints(t, p.Hints(s, pod, -1), preferred(1))
	if got := (memmgr.None{}).Release(s, "pod", "a").Containers("pod"); !slices.Equal(got, []string{"s"}) {
		t.Errorf("%v hold something", got)
	}
}

func TestRelease(t *testing.T) {
	p := static(t, 10, 10)
	s := must(t, p, memmgr.State{}, guaranteed("a", app("c", 12)), on(0, 1))
	if n := p.Stats(s)[1]; n.Group != nodes(0, 1) || n.Assignments != 1 || n.Resources[0].Used != 2*gi {
		t.Errorf("stats of node 1: %+v", n)
	}
	after := p.Release(s, "a", "c")
	for _, n := range p.Stats(after) {
		if n.Group != nodes(n.ID) || n.Assignments != 0 || n.Resources[0].Free != 10*gi {
			t.Errorf("stats after release: %+v", n)
		}
	}
	if again := p.Release(after, "a", "c"); len(again.Pods()) != 0 {
		t.Errorf("pods %v", again.Pods())
	}
	if s.Nodes("a", "c") != nodes(0, 1) {
		t.Error("the state before was changed")
	}
}

func TestStatsCountBlocks(t *testing.T) {
	m, r := machine(10, 10)
	m.Nodes[0].HugePages = map[uint64]uint64{huge1G: 4}
	p := policy(t, memmgr.Config{Machine: m, Reserved: r})
	s := must(t, p, memmgr.State{}, guaranteed("a", withHuge(app("c", 6), huge1G, gi)), on(0))
	n := p.Stats(s)[0]
	want := []memmgr.ResourceStats{
		{Resource: memmgr.Memory, Total: 11 * gi, Reserved: gi, Allocatable: 6 * gi, Used: 6 * gi},
		{Resource: "hugepages-1Gi", Total: 4 * gi, Allocatable: 4 * gi, Used: gi, Free: 3 * gi},
	}
	if n.Assignments != 2 || !slices.Equal(n.Resources, want) {
		t.Errorf("%+v, want 2 assignments, %+v", n, want)
	}
	if got := p.Allocatable(); len(got) != 3 || got[1].Bytes != 4*gi {
		t.Errorf("allocatable %v", got)
	}
}

// In pod scope, the largest sum at any time counts for each resource, also for those that only
// init containers request.
func TestRequestOfAPod(t *testing.T) {
	m, r := machine(10, 10)
	m.Nodes[1].HugePages = map[uint64]uint64{huge1G: 1}
	p := policy(t, memmgr.Config{Machine: m, Reserved: r})
	pod := guaranteed("pod", withHuge(initc("i", 1), huge1G, gi), app("a", 2))
	wantHints(t, p.Hints(memmgr.State{}, pod, -1), preferred(1), on(0, 1))
	pod = guaranteed("pod", sidecar("s", 6), initc("i", 5), app("a", 2))
	wantHints(t, p.Hints(memmgr.State{}, pod, -1), preferred(0, 1))
	pod = guaranteed("pod", initc("i", 5), sidecar("s", 6), app("a", 2))
	wantHints(t, p.Hints(memmgr.State{}, pod, -1), preferred(0), preferred(1), on(0, 1))
	pod = guaranteed("pod", withHuge(app("a", 2), huge2M, gi))
	wantHints(t, p.Hints(memmgr.State{}, pod, -1)) // the machine has no such pages
}

// A node without memory is never part of an allocation.
func TestNodesWithoutMemory(t *testing.T) {
	m, r := machine(10, 10)
	m.Nodes = append(m.Nodes, numa.Node{ID: 2})
	m.CPUs = append(m.CPUs, numa.CPU{ID: 9, Node: 2})
	p := policy(t, memmgr.Config{Machine: m, Reserved: r})
	s := must(t, p, memmgr.State{}, guaranteed("a", app("c", 4)), on(2))
	if got := s.Nodes("a", "c"); got != nodes(0) {
		t.Errorf("nodes %s, want 0", got)
	}
}

func TestPodLevel(t *testing.T) {
	whole := func(memory uint64, cs ...numa.Container) numa.Pod {
		pod := guaranteed("pod", cs...)
		pod.Resources = &numa.Resources{MilliCPU: 1000, Memory: memory * gi, Bound: true}
		return pod
	}
	t.Run("division", func(t *testing.T) {
		p := static(t, 10, 10)
		pod := whole(9, sharing(numa.Init, "i"), sidecar("s", 2), sharing(numa.Init, "j"), initc("k", 3), app("a", 3), sharing(numa.Regular, "b"), sharing(numa.Regular, "c"))
		wantHints(t, p.Hints(memmgr.State{}, pod, -1), preferred(0), preferred(1), on(0, 1))
		s := must(t, p, memmgr.State{}, pod, preferred(1))
		for name, want := range map[string]uint64{"i": 9, "s": 2, "j": 7, "k": 3, "a": 3, "b": 4, "c": 4} {
			got := s.Blocks("pod", name)
			if len(got) != 1 || got[0].Bytes != want*gi || got[0].Nodes != nodes(1) {
				t.Errorf("%s has %v, want %d GiB on node 1", name, got, want)
			}
		}
		if got := used(p, s, memmgr.Memory); got != 9*gi {
			t.Errorf("%d used", got)
		}
		wantHints(t, p.Hints(s, pod, -1), preferred(1))
		for _, name := range []string{"s", "a", "b", "c"} {
			s = s.Started("pod", name)
		}
		if got := s.Containers("pod"); !slices.Equal(got, []string{"s", "a", "b", "c"}) {
			t.Errorf("%v hold something after the start", got)
		}
		for _, name := range []string{"a", "b", "c"} {
			if s = p.Release(s, "pod", name); used(p, s, memmgr.Memory) != 9*gi {
				t.Errorf("%d used after %s", used(p, s, memmgr.Memory), name)
			}
		}
		if s = p.Release(s, "pod", "s"); used(p, s, memmgr.Memory) != 0 {
			t.Errorf("%d used in the end", used(p, s, memmgr.Memory))
		}
	})
	t.Run("nothing to share", func(t *testing.T) {
		p := static(t, 10, 10)
		for name, pod := range map[string]numa.Pod{
			"b": whole(9, app("a", 9), sharing(numa.Regular, "b")),
			"i": whole(9, sidecar("s", 9), sharing(numa.Init, "i"), app("a", 0)),
			"s": whole(9, sharing(numa.Sidecar, "s"), app("a", 9)),
		} {
			wantHints(t, p.Hints(memmgr.State{}, pod, -1))
			_, err := p.Allocate(memmgr.State{}, pod, -1, preferred(0))
			var empty *memmgr.EmptyPodSharedPoolError
			if !errors.As(err, &empty) || empty.Reason() != "EmptyPodSharedPoolError" || empty.Container != name || !strings.Contains(err.Error(), "9663676416") {
				t.Errorf("%s: %v", name, err)
			}
		}
		// An init container that comes before has all of it to itself.
		must(t, p, memmgr.State{}, whole(9, sharing(numa.Init, "i"), app("a", 9)), preferred(0))
	})
	t.Run("container by container", func(t *testing.T) {
		p := static(t, 10, 10)
		pod := whole(9, app("a", 3), sharing(numa.Regular, "b"))
		s, err := p.Allocate(memmgr.State{}, pod, 0, on(1))
		if err != nil || s.Nodes("pod", "a") != nodes(1) || used(p, s, memmgr.Memory) != 3*gi {
			t.Errorf("a is on %s, %v", s.Nodes("pod", "a"), err)
		}
	})
	t.Run("no room", func(t *testing.T) {
		_, err := static(t, 10, 10).Allocate(memmgr.State{}, whole(21, app("a", 3)), -1, on(1))
		if !errors.Is(err, memmgr.ErrNoRoom) || !strings.HasPrefix(err.Error(), "pod pod: ") {
			t.Errorf("error %v", err)
		}
	})
}

func TestResize(t *testing.T) {
	p := static(t, 10)
	have, burstable := guaranteed("pod", app("a", 2)), guaranteed("pod", app("a", 2))
	burstable.Guaranteed = false
	cpu := guaranteed("pod", app("a", 2))
	cpu.Containers[0].MilliCPU++
	whole := guaranteed("pod", app("a", 2))
	whole.Resources = &numa.Resources{Memory: 3 * gi}
	for _, tc := range []struct {
		name       string
		have, want numa.Pod
		ok         bool
	}{
		{"memory", have, guaranteed("pod", app("a", 3)), false},
		{"huge pages", have, guaranteed("pod", withHuge(app("a", 2), huge2M, huge2M)), false},
		{"the pod's", have, whole, false},
		{"CPU", have, cpu, true},
		{"not Guaranteed", burstable, guaranteed("pod", app("a", 3)), true},
	} {
		err := p.Resize(memmgr.State{}, tc.have, tc.want)
		var infeasible *memmgr.InfeasibleError
		if (err == nil) != tc.ok || err != nil && !strings.Contains(err.Error(), "infeasible") || err != nil && (!errors.As(err, &infeasible) || infeasible.Detail != "guaranteed_pod_memory_manager_static_policy") {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

func TestNew(t *testing.T) {
	m, r := machine(10)
	for _, tc := range []struct {
		name string
		cfg  memmgr.Config
		want string
	}{
		{"None", memmgr.Config{}, ""},
		{"Static", memmgr.Config{Machine: m, Reserved: r}, ""},
		{"Static", memmgr.Config{Machine: m}, "memory is 0 bytes"},
		{"Static", memmgr.Config{Reserved: r}, "Nodes is empty"},
		{"Static", memmgr.Config{Machine: m, Reserved: memmgr.Reserved{3: {memmgr.Memory: 1}, 0: {memmgr.Memory: 1 << 40}}}, "node 0: memory is 1099511627776 bytes; the node has 11811160064\nreserved memory of node 3"},
		{"BestEffort", memmgr.Config{}, "not available for this platform"},
		{"static", memmgr.Config{}, "not known"},
	} {
		p, err := memmgr.New(tc.name, tc.cfg)
		if tc.want == "" && (err != nil || p.Name() != tc.name) || tc.want != "" && (err == nil || p != nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}
