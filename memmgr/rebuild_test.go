package memmgr_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
)

type mems = map[string]map[string]numa.NodeSet

func TestRebuild(t *testing.T) {
	web := guaranteed("web", initc("i", 4), sidecar("s", 1), app("a", 2))
	crashing := guaranteed("crashing", app("a", 2), app("b", 3))
	whole := guaranteed("whole", sidecar("s", 1), sharing(numa.Regular, "a"))
	whole.Resources = &numa.Resources{Memory: 5 * gi}
	burstable := guaranteed("burstable", app("a", 2))
	burstable.Guaranteed = false
	for _, tc := range []struct {
		name     string
		pods     []numa.Pod
		running  mems
		want     map[string]string // charges by pod
		problems []string
	}{
		{name: "nothing runs", want: map[string]string{}},
		{
			name: "init containers are over", pods: []numa.Pod{web},
			running: mems{"web": {"s": nodes(1), "a": nodes(1)}},
			want:    map[string]string{"web": "1 memory 3"},
		}, {
			name: "an init container runs, and the rest is to come", pods: []numa.Pod{web},
			running: mems{"web": {"i": nodes(1)}},
			want:    map[string]string{"web": "1 memory 4"},
		}, {
			name: "init containers are over, and the rest holds nothing", pods: []numa.Pod{guaranteed("p", initc("i", 4), sharing(numa.Regular, "a"))},
			running: mems{"p": {"a": 0}},
			want:    map[string]string{},
		}, {
			name: "a container between two starts is on its pod's nodes", pods: []numa.Pod{crashing},
			running: mems{"crashing": {"b": nodes(1)}},
			want:    map[string]string{"crashing": "1 memory 5"},
		}, {
			name: "the only container is between two starts", pods: []numa.Pod{guaranteed("p", app("a", 2))},
			want: map[string]string{"p": "0 memory 2"},
		}, {
			name: "a pod that holds nothing", pods: []numa.Pod{burstable},
			running: mems{"burstable": {"a": nodes(1)}},
			want:    map[string]string{},
		}, {
			name: "a pod with resources of its own", pods: []numa.Pod{whole},
			running: mems{"whole": {"s": nodes(1), "a": nodes(1)}},
			want:    map[string]string{"whole": "1 memory 5"},
		}, {
			name: "a pod with resources of its own whose containers were given some", pods: []numa.Pod{whole},
			running: mems{"whole": {"s": nodes(1), "a": 0}},
			want:    map[string]string{"whole": "1 memory 1"},
		}, {
			name: "not pinned", pods: []numa.Pod{crashing},
			running:  mems{"crashing": {"a": 0, "b": nodes(0, 1)}},
			want:     map[string]string{"crashing": "0-1 memory 3"},
			problems: []string{"container a of pod crashing: runs on any node, so its memory is not accounted for"},
		}, {
			name: "nodes that are gone", pods: []numa.Pod{crashing},
			running:  mems{"crashing": {"a": nodes(5), "b": nodes(2)}},
			want:     map[string]string{},
			problems: []string{"container a of pod crashing: runs on nodes 5; the machine has 0-2", "container b of pod crashing: runs on nodes 2, which have no memory"},
		}, {
			name: "more than there is", pods: []numa.Pod{guaranteed("p", app("a", 12))},
			running:  mems{"p": {"a": nodes(0)}},
			want:     map[string]string{"p": "0 memory 12"},
			problems: []string{"NUMA nodes 0: 12884901888 bytes of memory are allocated; the nodes have 10737418240"},
		}, {
			name: "no room for who is between two starts", pods: []numa.Pod{guaranteed("p", app("a", 8), app("b", 25))},
			running:  mems{"p": {"a": nodes(0)}},
			want:     map[string]string{"p": "0 memory 8"},
			problems: []string{"container b of pod p: no NUMA nodes have enough memory: asked for memory 26843545600; node 0 (serves 0) memory free 2147483648, "},
		}, {
			name: "different sets of nodes", pods: []numa.Pod{crashing},
			running:  mems{"crashing": {"a": nodes(0), "b": nodes(0, 1)}},
			want:     map[string]string{"crashing": "0 memory 2, 0-1 memory 3"},
			problems: []string{"NUMA nodes 0-1 serve containers on different sets of nodes; no memory is allocated from them until only one set is left"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, r := machine(10, 10)
			m.Nodes = append(m.Nodes, numa.Node{ID: 2})
			p := policy(t, memmgr.Config{Machine: m, Reserved: r, PodLevel: true})
			s, problems := p.Rebuild(memmgr.State{}, tc.pods, tc.running)
			got := map[string]string{}
			for _, uid := range s.Pods() {
				for i, b := range s.Charges(uid) {
					if i > 0 {
						got[uid] += ", "
					}
					got[uid] += fmt.Sprintf("%s %s %d", b.Nodes, b.Resource, b.Bytes/gi)
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(tc.want) {
				t.Errorf("charges %v, want %v", got, tc.want)
			}
			same := slices.EqualFunc(problems, tc.problems, func(p memmgr.Problem, want string) bool {
				return strings.HasPrefix(p.String(), want)
			})
			if !same {
				t.Errorf("problems %v, want %q", problems, tc.problems)
			}
			// It takes no more than to look again to see that nothing is missing.
			again, _ := p.Rebuild(s, tc.pods, tc.running)
			if fmt.Sprint(p.Stats(again)) != fmt.Sprint(p.Stats(s)) {
				t.Errorf("%v became %v", p.Stats(s), p.Stats(again))
			}
		})
	}
}

// If the machine has changed, pods that no longer fit are recorded with the nodes that they run
// on; the others do not change.
func TestMachineChanges(t *testing.T) {
	m, r := machine(10, 10, 10)
	m.Nodes[1].HugePages = map[uint64]uint64{huge1G: 4}
	was := policy(t, memmgr.Config{Machine: m, Reserved: r})
	a, b, c := guaranteed("a", app("c", 12)), guaranteed("b", app("c", 4)), guaranteed("c", withHuge(app("c", 1), huge1G, gi))
	s := must(t, was, memmgr.State{}, c, on(1))
	s = must(t, was, s, a, on(0, 2))
	s = must(t, was, s, b, on(1))

	now := static(t, 10, 10) // node 2 and the huge pages are gone
	valid, problems := now.Validate(s)
	if got := fmt.Sprint(problems); !slices.Equal(valid.Pods(), []string{"b"}) ||
		got != "[pod a: has memory of NUMA nodes 0,2; the machine has memory on nodes 0-1 pod c: has hugepages-1Gi; the machine has only [memory]]" {
		t.Errorf("%v stay, problems %s", valid.Pods(), got)
	}
	next, problems := now.Rebuild(s, []numa.Pod{a, b, c}, mems{"a": {"c": nodes(0)}, "b": {"c": nodes(1)}, "c": {"c": nodes(1)}})
	if next.Nodes("a", "c") != nodes(0) || next.Nodes("b", "c") != nodes(1) || len(problems) != 3 {
		t.Errorf("a is on %s, b on %s, problems %v", next.Nodes("a", "c"), next.Nodes("b", "c"), problems)
	}

	less := static(t, 2, 3, 2)
	valid, problems = less.Validate(must(t, was, memmgr.State{}, b, on(1)))
	if !slices.Equal(valid.Pods(), []string{"b"}) || len(problems) != 1 {
		t.Errorf("%v stay, problems %v", valid.Pods(), problems)
	}
	if h := less.Hints(valid, guaranteed("d", app("c", 1)), 0); slices.Contains(h.List, preferred(1)) {
		t.Errorf("a node that gives more than it has is offered: %v", h.List)
	}
	if f := less.Stats(valid)[1].Resources[0]; f.Used != 3*gi || f.Free != 0 {
		t.Errorf("stats %+v", f)
	}
}

// While a node serves both a container alone and one of several nodes, none of
// them gives anything; when one is left, they do again.
func TestMixedGroupsHeal(t *testing.T) {
	p := static(t, 10, 10, 10)
	a, b, c := guaranteed("a", app("c", 1)), guaranteed("b", app("c", 2)), guaranteed("c", app("c", 2))
	s, _ := p.Rebuild(memmgr.State{}, []numa.Pod{a, b, c}, mems{"a": {"c": nodes(0)}, "b": {"c": nodes(0, 1)}, "c": {"c": nodes(1, 2)}})
	ask := guaranteed("new", app("c", 1))
	wantHints(t, p.Hints(s, ask, 0))
	s = s.WithoutPod("c")
	wantHints(t, p.Hints(s, ask, 0), preferred(2))
	s = s.WithoutPod("b")
	wantHints(t, p.Hints(s, ask, 0), preferred(0), preferred(1), preferred(2), on(1, 2))
}
