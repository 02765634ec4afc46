package topology_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/topology"
)

// units is a small resource manager: so many of one thing on each node.
type units struct {
	name string
	free []int       // by node
	want map[int]int // by container; none means no preference
	each int         // amount per node if nothing is allocated
	err  error       // of Allocate
	log  *[]string
}

func (u units) Hints(container int) []numa.Hints {
	want, ok := u.want[container]
	if !ok {
		return nil
	}
	h := numa.Hints{Resource: u.name}
	least := (want + u.each - 1) / u.each
	for _, s := range numa.Candidates(numa.Uniform(len(u.free), 1, 1, 1, 0)) {
		if u.in(s) >= want {
			h.List = append(h.List, numa.Hint{Nodes: s, Preferred: s.Len() == least})
		}
	}
	return []numa.Hints{h}
}

func (u units) in(s numa.NodeSet) int {
	n := 0
	for id := range s.All() {
		n += u.free[id]
	}
	return n
}

func (u units) Allocate(container int, hint numa.Hint) (topology.Provider, error) {
	if u.log != nil {
		*u.log = append(*u.log, fmt.Sprintf("%s %d %v", u.name, container, hint))
	}
	if u.err != nil {
		return nil, u.err
	}
	want := u.want[container]
	u.free = slices.Clone(u.free)
	for _, near := range []bool{true, false} {
		for node := range u.free {
			if near == hint.Nodes.Has(node) {
				took := min(want, u.free[node])
				u.free[node] -= took
				want -= took
			}
		}
	}
	if want > 0 {
		return nil, fmt.Errorf("%d %s missing", want, u.name)
	}
	return u, nil
}

func pod(containers ...string) numa.Pod {
	var p numa.Pod
	for _, name := range containers {
		p.Containers = append(p.Containers, numa.Container{Name: name})
	}
	return p
}

func manager(t *testing.T, policy string, nodes int, scope topology.Scope) *topology.Manager {
	t.Helper()
	p, err := topology.NewPolicy(policy, numa.Uniform(nodes, 1, 1, 1, 1), topology.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := topology.New(topology.Config{Policy: p, Scope: scope})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Each container is placed on what those before it left.
func TestContainerScope(t *testing.T) {
	var log []string
	cpu := units{name: "cpu", free: []int{4, 4}, each: 4, want: map[int]int{0: 3, 1: 3}, log: &log}
	gpu := units{name: "gpu", free: []int{1, 1}, each: 1, want: map[int]int{1: 1}, log: &log}
	given := []topology.Provider{gpu, cpu}
	d, err := manager(t, topology.NameSingleNUMANode, 2, "").Admit(pod("a", "b"), given)
	if err != nil {
		t.Fatal(err)
	}
	on := func(id int) numa.Hint { return numa.Hint{Nodes: numa.Nodes(id), Preferred: true} }
	if want := []numa.Hint{on(0), on(1)}; !slices.Equal(d.Hints, want) {
		t.Errorf("hints %v, want %v", d.Hints, want)
	}
	if want := []string{"gpu 0 {0 true}", "cpu 0 {0 true}", "gpu 1 {1 true}", "cpu 1 {1 true}"}; !slices.Equal(log, want) {
		t.Errorf("%v, want %v", log, want)
	}
	if got := fmt.Sprint(d.Providers[0].(units).free, d.Providers[1].(units).free); got != "[1 0] [1 1]" {
		t.Errorf("free afterwards: %s", got)
	}
	if got := fmt.Sprint(given[0].(units).free, given[1].(units).free); got != "[1 1] [4 4]" {
		t.Errorf("given: %s", got)
	}
	if len(d.Steps) != 2 || d.Steps[1].Container != 1 || !d.Steps[1].Admitted || d.Steps[1].Hints[0].Resource != "gpu" {
		t.Errorf("steps %v", d.Steps)
	}
}

// A pod is placed as a whole, by one hint, container by container.
func TestPodScope(t *testing.T) {
	var log []string
	cpu := units{name: "cpu", free: []int{4, 8}, each: 8, want: map[int]int{0: 3, 1: 3, topology.WholePod: 6}, log: &log}
	d, err := manager(t, topology.NameRestricted, 2, topology.PodScope).Admit(pod("a", "b"), []topology.Provider{cpu})
	if err != nil {
		t.Fatal(err)
	}
	on := numa.Hint{Nodes: numa.Nodes(1), Preferred: true}
	if !slices.Equal(d.Hints, []numa.Hint{on, on}) || len(d.Steps) != 1 || d.Steps[0].Container != topology.WholePod {
		t.Errorf("%v", d)
	}
	if want := []string{"cpu 0 {1 true}", "cpu 1 {1 true}"}; !slices.Equal(log, want) {
		t.Errorf("%v, want %v", log, want)
	}
}

// Pod-level resources are allocated once, if that is enabled.
func TestPodLevelResources(t *testing.T) {
	var log []string
	cpu := units{name: "cpu", free: []int{4, 4}, each: 4, want: map[int]int{topology.WholePod: 3}, log: &log}
	policy, err := topology.NewPolicy(topology.NameRestricted, numa.Uniform(2, 1, 1, 1, 1), topology.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := topology.New(topology.Config{Policy: policy, Scope: topology.PodScope, PodLevel: true})
	if err != nil {
		t.Fatal(err)
	}
	p := pod("a", "b")
	p.Resources = &numa.Resources{MilliCPU: 3000}
	if d, err := m.Admit(p, []topology.Provider{cpu}); err != nil || len(d.Hints) != 2 || !slices.Equal(log, []string{"cpu -1 {0 true}"}) {
		t.Errorf("%v, %v, %v", d, err, log)
	}
	// Both scopes have words of their own for such a pod, under the usual reason.
	for _, tc := range []struct {
		scope    topology.Scope
		podLevel bool
		want     string
	}{
		{topology.PodScope, true, "Pod Scope pod with pod-level resources failed admission under pod-scope topology manager"},
		{topology.ContainerScope, true, "Pod Scope pod with pod-level resources failed admission with a container-level topology manager"},
		{topology.PodScope, false, "Resources cannot be allocated with Topology locality"},
		{topology.ContainerScope, false, "Resources cannot be allocated with Topology locality"},
	} {
		m, err := topology.New(topology.Config{Policy: policy, Scope: tc.scope, PodLevel: tc.podLevel})
		if err != nil {
			t.Fatal(err)
		}
		_, err = m.Admit(p, []topology.Provider{units{name: "cpu", free: []int{2, 2}, each: 4, want: map[int]int{0: 3, topology.WholePod: 3}}})
		var r *topology.Rejection
		if !errors.As(err, &r) || r.Message != tc.want || r.Reason() != topology.ReasonAffinity {
			t.Errorf("scope %s, PodLevel %t: %v, want %s", tc.scope, tc.podLevel, err, tc.want)
		}
	}
}

// With policy none, no provider is asked for hints, and both scopes are the same.
func TestNone(t *testing.T) {
	for _, scope := range []topology.Scope{topology.ContainerScope, topology.PodScope} {
		var log []string
		cpu := units{name: "cpu", free: []int{1, 1}, each: 4, want: map[int]int{0: 2}, log: &log}
		d, err := manager(t, topology.NameNone, 2, scope).Admit(pod("a", "b"), []topology.Provider{cpu})
		if err != nil || len(d.Steps) != 0 || !slices.Equal(d.Hints, make([]numa.Hint, 2)) {
			t.Errorf("%v, %v", d, err)
		}
		if want := []string{"cpu 0 { false}", "cpu 1 { false}"}; !slices.Equal(log, want) {
			t.Errorf("%v, want %v", log, want)
		}
	}
}

// Best effort also uses hints that are not preferred.
func TestBestEffort(t *testing.T) {
	cpu := units{name: "cpu", free: []int{2, 2}, each: 4, want: map[int]int{0: 3}}
	d, err := manager(t, topology.NameBestEffort, 2, "").Admit(pod("a"), []topology.Provider{cpu})
	if err != nil || d.Hints[0] != (numa.Hint{Nodes: numa.Nodes(0, 1)}) {
		t.Errorf("%v, %v", d, err)
	}
}

type smtError struct{}

func (smtError) Error() string  { return "SMT Alignment Error: requested 3 cpus" }
func (smtError) Reason() string { return "SMTAlignmentError" }

// A rejected pod has taken nothing, whichever container it was that failed.
func TestRejections(t *testing.T) {
	cpu := units{name: "cpu", free: []int{4, 4}, each: 4, want: map[int]int{0: 3, 1: 3, 2: 2}}
	gpu := units{name: "gpu", free: []int{0, 2}, each: 2, want: map[int]int{0: 1}}
	broken := units{name: "disk", free: []int{1, 1}, each: 1, err: errors.New("no answer")}
	smt := units{name: "disk", free: []int{1, 1}, each: 1, err: fmt.Errorf("container b: %w", smtError{})}
	for _, tc := range []struct {
		name            string
		policy          string
		pod             numa.Pod
		providers       []topology.Provider
		container       int
		reason, message string
		detail          string
	}{
		{
			"the third container", topology.NameSingleNUMANode, pod("a", "b", "c"), []topology.Provider{cpu}, 2,
			"TopologyAffinityError", "Resources cannot be allocated with Topology locality",
			"container c: cpu can be served only from NUMA nodes 0-1, none of which it prefers",
		},
		{
			"elsewhere", topology.NameRestricted, pod("a"), []topology.Provider{units{name: "cpu", free: []int{4, 0}, each: 4, want: map[int]int{0: 3}}, gpu}, 0,
			"TopologyAffinityError", "Resources cannot be allocated with Topology locality",
			"container a: no NUMA nodes are preferred by all: 0 not by gpu, 1 not by cpu",
		},
		{
			"nowhere", topology.NameRestricted, pod("a"), []topology.Provider{units{name: "cpu", free: []int{1, 0}, each: 4, want: map[int]int{0: 3}}, gpu}, 0,
			"TopologyAffinityError", "Resources cannot be allocated with Topology locality",
			"container a: cpu cannot be served from any NUMA nodes",
		},
		{
			"too wide", topology.NameSingleNUMANode, pod("a"), []topology.Provider{units{name: "cpu", free: []int{4, 4}, each: 4, want: map[int]int{0: 6}}}, 0,
			"TopologyAffinityError", "Resources cannot be allocated with Topology locality",
			"container a: all prefer NUMA nodes 0-1",
		},
		{
			"a provider fails", topology.NameBestEffort, pod("a"), []topology.Provider{cpu, broken}, 0,
			"UnexpectedAdmissionError", "Allocate failed due to no answer, which is unexpected", "",
		},
		{
			"a provider fails under none", topology.NameNone, pod("a"), []topology.Provider{broken}, 0,
			"UnexpectedAdmissionError", "Allocate failed due to no answer, which is unexpected", "",
		},
		{
			"with a reason of its own", topology.NameBestEffort, pod("a"), []topology.Provider{cpu, smt}, 0,
			"SMTAlignmentError", "container b: SMT Alignment Error: requested 3 cpus", "",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, err := manager(t, tc.policy, 2, "").Admit(tc.pod, tc.providers)
			var r *topology.Rejection
			if !errors.As(err, &r) {
				t.Fatalf("%v, %v", d, err)
			}
			if r.Container != tc.container || r.Reason() != tc.reason || r.Message != tc.message || r.Detail != tc.detail {
				t.Errorf("%d %q %q %q", r.Container, r.Reason(), r.Message, r.Detail)
			}
			if !strings.HasPrefix(err.Error(), tc.message) {
				t.Error(err)
			}
			if fmt.Sprint(d.Providers) != fmt.Sprint(tc.providers) || d.Hints != nil {
				t.Errorf("something is taken: %v", d)
			}
			if tc.reason == topology.ReasonAffinity && d.Steps[len(d.Steps)-1].Admitted {
				t.Error("the last step was admitted")
			}
		})
	}
}

func TestExplain(t *testing.T) {
	p := func(ids ...int) numa.Hint { return numa.Hint{Nodes: numa.Nodes(ids...), Preferred: true} }
	var many []numa.Hint
	for id := range 10 {
		many = append(many, p(id))
	}
	for _, tc := range []struct {
		want  string
		hints []numa.Hints
	}{
		{"all resources can be served from any NUMA nodes", nil},
		{"all resources can be served from any NUMA nodes", []numa.Hints{{Resource: "a", Any: true}, {Resource: "b", List: []numa.Hint{p()}}}},
		{"a can be served only from NUMA nodes of any kind, none of which it prefers", []numa.Hints{{Resource: "a", List: []numa.Hint{{}}}}},
		{"a cannot be served from any NUMA nodes; all prefer NUMA nodes 1", []numa.Hints{{Resource: "a"}, {Resource: "b", List: []numa.Hint{p(1)}}, {Resource: "c", List: []numa.Hint{p(1)}}}},
		{
			"no NUMA nodes are preferred by all: 0 not by b, c, 1 not by b, 2 not by b, c, 3 not by b, c, 4 not by b, c, 5 not by b, c, 6 not by b, c, 7 not by b, c, 3 more",
			[]numa.Hints{{Resource: "a", List: many}, {Resource: "b", List: []numa.Hint{p(0, 1)}}, {Resource: "c", List: []numa.Hint{p(1)}}},
		},
	} {
		if got := (topology.Step{Hints: tc.hints}).Explain(); got != tc.want {
			t.Errorf("%s\nwant %s", got, tc.want)
		}
	}
}

func TestMistakes(t *testing.T) {
	if _, err := topology.New(topology.Config{Scope: "none"}); err == nil || !strings.Contains(err.Error(), `Scope is "none"; want container or pod`) {
		t.Error(err)
	}
	if _, err := topology.New(topology.Config{}); err != nil {
		t.Error(err)
	}
	nine, ok := numa.Uniform(9, 1, 1, 1, 1), numa.Uniform(2, 1, 1, 1, 1)
	silent := numa.Uniform(2, 1, 1, 1, 1)
	silent.Nodes[1].Distances = nil
	for _, tc := range []struct {
		name string
		m    numa.Machine
		o    topology.Options
		want string // of the error
	}{
		{"restricted", nine, topology.Options{}, ""},
		{"restricted", nine, topology.Options{MaxNodes: 9}, ""},
		{"restricted", nine, topology.Options{MaxNodes: 8}, "the machine has 9 NUMA nodes; max-allowable-numa-nodes allows 8"},
		{"none", nine, topology.Options{MaxNodes: 8}, ""},
		{"restricted", ok, topology.Options{MaxNodes: 5}, "MaxNodes is 5"},
		{"Restricted", ok, topology.Options{}, `policy "Restricted" is not known; want none, best-effort, restricted or single-numa-node`},
		{"best-effort", silent, topology.Options{}, ""},
		{"best-effort", silent, topology.Options{PreferClosest: true}, "node 1 has no distances; prefer-closest-numa-nodes needs them"},
		{"single-numa-node", numa.Machine{}, topology.Options{}, "machine: CPUs is empty"},
	} {
		p, err := topology.NewPolicy(tc.name, tc.m, tc.o)
		if (tc.want == "") != (err == nil && p != nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s of %d nodes with %v: %v", tc.name, len(tc.m.Nodes), tc.o, err)
		}
	}
}

func TestParseOptions(t *testing.T) {
	for _, tc := range []struct {
		in   map[string]string
		want topology.Options
		err  string
	}{
		{nil, topology.Options{}, ""},
		{map[string]string{"prefer-closest-numa-nodes": "true", "max-allowable-numa-nodes": "34"}, topology.Options{PreferClosest: true, MaxNodes: 34}, ""},
		{map[string]string{"prefer-closest-numa-nodes": "maybe"}, topology.Options{}, `option prefer-closest-numa-nodes is "maybe"; want true or false`},
		{map[string]string{"max-allowable-numa-nodes": "5"}, topology.Options{}, `is "5"; want a number from 8 on`},
		{map[string]string{"max-allowable-numa-nodes": "x"}, topology.Options{}, `is "x"; want a number from 8 on`},
		{map[string]string{"fast": "", "max-allowable-numa-nodes": "x"}, topology.Options{}, "option \"fast\" is not known; want prefer-closest-numa-nodes or max-allowable-numa-nodes\noption max-"},
	} {
		got, err := topology.ParseOptions(tc.in)
		if got != tc.want || (tc.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%v: %v, %v", tc.in, got, err)
		}
	}
}
