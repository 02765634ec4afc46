package cpumgr

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/numa"
)

func TestTake(t *testing.T) {
	s, d, m := machineS(), machineD(), machineM()
	spread := Options{DistributeAcrossCores: true}
	even := Options{DistributeAcrossNUMA: true}
	evenCores := Options{DistributeAcrossNUMA: true, FullPCPUsOnly: true}
	for _, tc := range []struct {
		name string
		m    numa.Machine
		free string
		n    int
		o    Options
		want string
	}{
		{"nothing", s, "0-7", 0, Options{}, ""},
		{"one of all", s, "0-7", 1, Options{}, "0"},
		{"one where cores are in use", s, "1,3,5-7", 1, Options{}, "6"},
		{"a core", s, "0-7", 2, Options{}, "0,4"},
		{"a core that is free", s, "0-3,6", 2, Options{}, "2,6"},
		{"all", s, "0-7", 8, Options{}, "0-7"},
		{"two halves, where no core is free", s, "0-3", 2, Options{}, "0-1"},
		{"a socket", d, "0-11", 6, Options{}, "0,2,4,6,8,10"},
		{"a half in the socket with fewer free", d, "1-5,7-11", 1, Options{}, "2"},
		{"a core there", d, "1-5,7-11", 2, Options{}, "2,8"},
		{"a socket of two nodes", m, "0-79", 40, Options{}, "0-19,40-59"},
		{"a node", m, "0-79", 20, Options{}, "0-9,40-49"},
		{"a socket and a node", m, "0-79", 60, Options{}, "0-29,40-69"},
		{"the socket that is all free, first", m, "1-39,41-79", 60, Options{}, "10-39,50-79"},
		{"a node and the rest of its socket", m, "1-39,41-79", 38, Options{}, "1-19,41-59"},

		{"spread", s, "0-7", 3, spread, "0-2"},
		{"spread in a node", d, "0-11", 4, spread, "0,2,4,6"},
		{"spread over more than a socket", d, "0-11", 8, spread, "0-4,6,8,10"},
		{"spread on a large machine", m, "0-79", 8, spread, "0-7"},

		{"even", m, "0-79", 26, even, "0-6,10-16,40-45,50-55"},
		{"even in cores", m, "0-79", 26, evenCores, "0-6,10-15,40-46,50-55"},
		{"even, with two more", m, "0-79", 62, even, "0-7,10-17,20-27,30-37,40-47,50-57,60-66,70-76"},
		{"even, the two of those with more free", m, "0-7,10-17,20-39,40-47,50-57,60-79", 62, even, "0-7,10-17,20-27,30-37,40-46,50-56,60-67,70-77"},
		{"one node is enough", m, "0-79", 20, even, "0-9,40-49"},
		{"the rest where there is enough", m, "0-3,10-13,20-23,30-36,40-43,50-53,60-63,70-76", 34, even, "0-3,10-13,20-23,30-34,40-43,50-53,60-63,70-74"},
		{"no even way", m, "0-9,20,40-49", 21, even, "0-9,20,40-49"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Take(tc.m, list(tc.free), tc.n, tc.o)
			if err != nil || got.String() != tc.want {
				t.Errorf("%s, %v; want %s", got, err, tc.want)
			}
		})
	}
}

// The pieces of an even distribution are not larger than they have to be.
func TestDistributeInGroups(t *testing.T) {
	for _, tc := range []struct {
		group int
		want  string
	}{{1, "1"}, {2, "2"}} {
		l := newLayout(machineD())
		if got, err := l.distribute(list("1-5,7-11"), 1, tc.group, false); err != nil || got.String() != tc.want {
			t.Errorf("group of %d: %s, %v; want %s", tc.group, got, err, tc.want)
		}
	}
}

func TestTakeByCache(t *testing.T) {
	uncore := Options{PreferUncoreCache: true}
	// Two nodes of 8 cores with two threads; 4 cores share a cache: 0-3, 4-7
	// and 8-11, 12-15, and their siblings 16 higher.
	m := withCaches(numa.Uniform(2, 1, 8, 2, 0), 4)
	single := withCaches(numa.Uniform(1, 1, 16, 1, 0), 4)
	for _, tc := range []struct {
		name string
		m    numa.Machine
		free string
		n    int
		want string
	}{
		{"a cache, not the one that is in use", m, "1-31", 8, "4-7,20-23"},
		{"part of a cache, not of one where half a core is in use", m, "1-31", 6, "4-6,20-22"},
		{"part of a cache, in that with the fewest free", m, "1-15,17-31", 6, "1-3,17-19"},
		{"half a core more", m, "0-31", 5, "0-2,16-17"},
		{"a cache and a part", m, "0-31", 10, "0-4,16-20"},
		{"a cache and a part, and half a core", m, "0-31", 11, "0-5,16-20"},
		{"no cache fits, and cores do", m, "0-2,4-6,16-18,20-22", 8, "0-2,4,16-18,20"},
		{"one cache over all of a node", numa.Uniform(2, 1, 8, 2, 0), "0-31", 6, "0-2,16-18"},
		{"cores of one thread", single, "1-15", 3, "1-3"},
		{"cores of one thread, a cache", single, "1-15", 4, "4-7"},
		{"cores of one thread, a cache and a part", single, "0-15", 5, "0-4"},
		{"a half-used cache has too few", single, "2-15", 3, "4-6"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Take(tc.m, list(tc.free), tc.n, uncore)
			if err != nil || got.String() != tc.want {
				t.Errorf("%s, %v; want %s", got, err, tc.want)
			}
		})
	}
}

// Cores of different sizes are distinguished by their CPUs, not by averages.
func TestTakeOfCoresOfDifferentSizes(t *testing.T) {
	whole := Options{FullPCPUsOnly: true}
	for _, tc := range []struct {
		free string
		n    int
		o    Options
		want string
	}{
		{"0-11", 2, Options{}, "8-9"},
		{"0-7", 2, Options{}, "0-1"},
		{"1-7,9", 2, Options{}, "1,9"},
		{"0-3,8-9", 4, whole, "0-1,8-9"},
		{"0-3,8", 4, whole, "0-3"},
		{"0-3,8", 3, whole, "0-1,8"},
		{"1-7", 6, whole, "2-7"},
		{"0-3", 3, whole, "error"},
		{"0-11", 2, Options{FullPCPUsOnly: true, DistributeAcrossNUMA: true}, "8-9"},
	} {
		got, err := Take(hybrid(), list(tc.free), tc.n, tc.o)
		var smt *SMTAlignmentError
		if tc.want == "error" {
			if !errors.As(err, &smt) {
				t.Errorf("%d of %s: %s, %v", tc.n, tc.free, got, err)
			}
			continue
		}
		if err != nil || got.String() != tc.want {
			t.Errorf("%d of %s: %s, %v; want %s", tc.n, tc.free, got, err, tc.want)
		}
	}
}

func TestTakeErrors(t *testing.T) {
	_, err := Take(machineS(), list("0,2,4,6"), 5, Options{})
	var few *InsufficientError
	if !errors.As(err, &few) || few.Requested != 5 || few.Free != 4 || few.Cores != 2 {
		t.Errorf("%v", err)
	}
	if want := "5 CPUs requested, but 4 are free (4 on node 0; 2 whole cores)"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
	_, err = Take(machineM(), list("0-2,40,11"), 6, Options{})
	if want := "6 CPUs requested, but 5 are free (4 on node 0, 1 on node 1, 0 on node 2, 0 on node 3; 1 whole cores)"; err == nil || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
	if _, err := Take(machineS(), list("0-7"), -1, Options{}); err == nil || !strings.Contains(err.Error(), "-1 CPUs") {
		t.Errorf("%v", err)
	}
	if _, err := Take(machineS(), list("0-7"), 2, Options{FullPCPUsOnly: true, DistributeAcrossCores: true}); err == nil {
		t.Error("options that exclude each other")
	}
	if _, err := Take(numa.Machine{}, list("0-7"), 1, Options{}); err == nil {
		t.Error("a machine without CPUs")
	}
	if _, err := Take(machineS(), list("0-9"), 9, Options{}); err == nil {
		t.Error("CPUs that the machine has not")
	}
	var smt *SMTAlignmentError
	if _, err := Take(machineS(), list("0-5"), 6, Options{FullPCPUsOnly: true}); !errors.As(err, &smt) || smt.Available != 4 || !smt.Physical {
		t.Errorf("%v", err)
	}
}

// On uniform machines, with any nodes and any free CPUs, the result equals that of the oracle.
func TestTakeIsTheReference(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	rounds := 400
	if testing.Short() {
		rounds = 100
	}
	for range rounds {
		sockets, perSocket, cores, threads := 1+r.IntN(4), 1+r.IntN(3), 1+r.IntN(6), 1+r.IntN(2)
		if sockets*perSocket > 8 {
			continue
		}
		perCache := 1 + r.IntN(cores)
		for cores%perCache != 0 {
			perCache--
		}
		m := withCaches(numa.Uniform(sockets, perSocket, cores, threads, 0), perCache)
		if perSocket == 1 && sockets%2 == 0 && r.IntN(2) == 0 { // nodes of two sockets
			for i := range m.CPUs {
				m.CPUs[i].Node /= 2
			}
			m.Nodes = m.Nodes[:(len(m.Nodes)+1)/2]
			for i := range m.Nodes {
				m.Nodes[i].Distances = nil
			}
		}
		if err := m.Validate(); err != nil {
			t.Fatal(err)
		}
		free := some(r, m.AllCPUs(), 30+r.IntN(71))
		n := r.IntN(free.Len() + 1)
		for _, o := range []Options{{}, {DistributeAcrossCores: true}, {PreferUncoreCache: true}, {DistributeAcrossNUMA: true}, {DistributeAcrossNUMA: true, FullPCPUsOnly: true}} {
			l := newLayout(m)
			got, err := l.choose(free, n, o)
			want := newOracle(m, free).take(n, o)
			if err != nil || !got.Equal(want) || got.Len() != n {
				t.Fatalf("%d sockets of %d nodes of %d cores of %d threads, %d of %s, %+v: %s, %v; want %s",
					sockets, perSocket, cores, threads, n, free, o, got, err, want)
			}
		}
	}
}

// However odd a machine is, with sockets in several nodes and nodes in several
// sockets, as many CPUs are taken as were asked for, of the free ones.
func TestTakeOnAnyMachine(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	for range 2000 {
		nodes, n := 1+r.IntN(12), 1+r.IntN(80)
		m := numa.Machine{}
		for id := range nodes {
			m.Nodes = append(m.Nodes, numa.Node{ID: id * 5})
		}
		for id := range n {
			m.CPUs = append(m.CPUs, numa.CPU{ID: id * 2, Core: r.IntN(n), Cache: r.IntN(9), Socket: r.IntN(5) - 1, Node: r.IntN(nodes) * 5})
		}
		free := some(r, m.AllCPUs(), r.IntN(101))
		o := randomOptions(r)
		want := r.IntN(free.Len() + 1)
		got, err := Take(m, free, want, o)
		var smt *SMTAlignmentError
		if o.FullPCPUsOnly && errors.As(err, &smt) {
			continue
		}
		if err != nil || got.Len() != want || !got.SubsetOf(free) {
			t.Fatalf("%d of %s: %s, %v", want, free, got, err)
		}
	}
}

// Beyond 8 nodes the search is bounded, and the result as even as can be where
// all is free.
func TestDistributeOnManyNodes(t *testing.T) {
	m := numa.Uniform(8, 8, 4, 2, 0) // 64 nodes of 8 CPUs
	for _, n := range []int{9, 100, 257, 511} {
		got, err := Take(m, m.AllCPUs(), n, Options{DistributeAcrossNUMA: true})
		if err != nil || got.Len() != n {
			t.Fatalf("%d: %s, %v", n, got, err)
		}
		used, least, most := 0, 8, 0
		for id := range 64 {
			if k := got.IntersectLen(m.CPUsOf(numa.Nodes(id))); k > 0 {
				used, least, most = used+1, min(least, k), max(most, k)
			}
		}
		if used != (n+7)/8 || most-least > 1 {
			t.Errorf("%d CPUs came from %d nodes, %d to %d from each", n, used, least, most)
		}
	}
}

func ExampleTake() {
	machine := numa.Uniform(2, 1, 4, 2, 64<<30)
	free := machine.AllCPUs().Minus(numa.CPUs(0, 8)) // the first core is for the system
	cpus, err := Take(machine, free, 4, Options{})
	fmt.Println(cpus, err)
	// Output:
	// 1-2,9-10 <nil>
}
