package cpumgr

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/numa"
)

// say writes hints as "0* 1* 0-1", the star being for preferred ones.
func say(h numa.Hints) string {
	if h.Any {
		return "any"
	}
	var words []string
	for _, hint := range h.List {
		word := hint.Nodes.String()
		if hint.Preferred {
			word += "*"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func TestHints(t *testing.T) {
	burstable := guaranteed("a", 2)
	burstable.Guaranteed = false
	withResources := guaranteed("a", 2)
	withResources.Resources = &numa.Resources{MilliCPU: 2000, Bound: true}
	four := numa.Uniform(2, 2, 4, 1, 0) // nodes of 4 CPUs, two to a socket
	for _, tc := range []struct {
		name           string
		m              numa.Machine
		reserved, free string
		o              Options
		pod            numa.Pod
		want           string
	}{
		// D: 4 are free on node 0 and 6 on node 1.
		{"2", machineD(), "0,6", "1-5,7-11", Options{}, guaranteed("a", 2), "0* 1* 0-1"},
		{"5", machineD(), "0,6", "1-5,7-11", Options{}, guaranteed("a", 5), "1* 0-1"},
		{"7", machineD(), "0,6", "1-5,7-11", Options{}, guaranteed("a", 7), "0-1*"},
		{"11", machineD(), "0,6", "1-5,7-11", Options{}, guaranteed("a", 11), ""},
		{"2 with one free on each", machineD(), "0,6", "2-3", Options{}, guaranteed("a", 2), "0-1"},
		{"more than there are", machineD(), "0,6", "1-5,7-11", Options{}, guaranteed("a", 13), ""},
		{"shared", machineD(), "0,6", "1-5,7-11", Options{}, burstable, "any"},
		{"resources of the pod", machineD(), "0,6", "1-5,7-11", Options{}, withResources, "any"},
		{"resources of the pod, gate on", machineD(), "0,6", "1-5,7-11", Options{PodLevel: true}, withResources, "0* 1* 0-1"},
		{"three nodes of four", four, "0", "1-15", Options{}, guaranteed("a", 9), "0-2* 0-1,3* 0,2-3* 1-3* 0-3"},
		{"busy, so that none is preferred", four, "0", "1-2,4-5,8-9,12-13", Options{}, guaranteed("a", 4), "0-1 0,2 0,3 1-2 1,3 2-3 0-2 0-1,3 0,2-3 1-3 0-3"},
		{"busy, and both nodes of a socket will do", four, "0", "1-2,4-5,8-9,12-13", Options{AlignBySocket: true}, guaranteed("a", 4), "0-1* 0,2 0,3 1-2 1,3 2-3* 0-2 0-1,3 0,2-3 1-3 0-3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newStatic(t, tc.m, tc.reserved, tc.o)
			s := holding(p, tc.free)
			if got := say(p.Hints(s, tc.pod, 0)); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
			if got := p.Hints(s, tc.pod, 0).Resource; got != "cpu" {
				t.Errorf("resource %q", got)
			}
		})
	}
	if h := newStatic(t, four, "0", Options{}).Hints(State{}, guaranteed("a", 1), 7); !h.Any {
		t.Error("a container that is not there has a preference")
	}
}

// A container with CPUs gets a hint for their nodes, and none if their number is wrong.
func TestHintsOfAssigned(t *testing.T) {
	p := newStatic(t, machineD(), "0,6", Options{})
	s := p.Start().WithPod(PodCPUs{UID: "a", Containers: []ContainerCPUs{{Name: "0", CPUs: list("1,3,7,9")}}})
	for n, want := range map[int64]string{4: "1* 0-1", 2: "", 11: ""} {
		for _, container := range []int{0, WholePod} {
			if got := say(p.Hints(s, guaranteed("a", n), container)); got != want {
				t.Errorf("%d of 4, container %d: %q, want %q", n, container, got, want)
			}
		}
	}
	// One container has its CPUs on node 1, and another comes.
	pod := guaranteed("a", 4, 4)
	if got := say(p.Hints(s, pod, WholePod)); got != "0-1*" {
		t.Errorf("partly assigned: %q", got)
	}
	pod = guaranteed("a", 4, 2)
	if got := say(p.Hints(s, pod, WholePod)); got != "1* 0-1" {
		t.Errorf("partly assigned: %q", got)
	}
	s, err := p.Allocate(s, pod, 1, numa.Hint{Nodes: numa.Nodes(0)})
	if err != nil {
		t.Fatal(err)
	}
	if got := say(p.Hints(s, pod, WholePod)); got != "0-1" {
		t.Errorf("all assigned: %q", got)
	}
}

// CPUs that init containers left are used, so that no hint leaves them out.
func TestHintsIncludeReusable(t *testing.T) {
	p := newStatic(t, machineD(), "0,6", Options{})
	pod := numa.Pod{UID: "a", Guaranteed: true, Containers: []numa.Container{
		container("init", numa.Init, 2000), container("app", numa.Regular, 2000)}}
	s, err := p.Allocate(p.Start(), pod, 0, numa.Hint{Nodes: numa.Nodes(1)})
	if err != nil {
		t.Fatal(err)
	}
	if got := say(p.Hints(s, pod, 1)); got != "1* 0-1" {
		t.Errorf("%q", got)
	}
}

func TestTotal(t *testing.T) {
	p := newStatic(t, machineM(), "0", Options{})
	kinds := map[byte]numa.Kind{'r': numa.Regular, 'i': numa.Init, 's': numa.Sidecar}
	for containers, want := range map[string]int{
		"r2 r3":       5,
		"i4 r2":       4,
		"i4 r2 r3":    5,
		"i4 s2 r3":    5,
		"s2 i4 r3":    6,
		"s2 i2 s3 r1": 6,
		"s2 s3 i5 r1": 10,
		"":            0,
	} {
		pod := numa.Pod{UID: "a", Guaranteed: true}
		for i, word := range strings.Fields(containers) {
			pod.Containers = append(pod.Containers, container(fmt.Sprint(i), kinds[word[0]], int64(word[1]-'0')*1000))
		}
		if got := p.total(pod); got != want {
			t.Errorf("%s: %d, want %d", containers, got, want)
		}
	}
}

// Nodes that have memory alone are in no hint; 64 nodes are no problem.
func TestHintsOfLargeMachines(t *testing.T) {
	m := numa.Uniform(2, 1, 2, 1, 0)
	m.Nodes = append(m.Nodes, numa.Node{ID: 5, Memory: 1 << 30})
	for i := range m.Nodes {
		m.Nodes[i].Distances = nil
	}
	p := newStatic(t, m, "0", Options{})
	if got := say(p.Hints(p.Start(), guaranteed("a", 1), 0)); got != "0* 1* 0-1" {
		t.Errorf("%q", got)
	}
	p = newStatic(t, numa.Uniform(8, 8, 4, 2, 0), "0", Options{})
	h := p.Hints(p.Start(), guaranteed("a", 64), 0)
	if len(h.List) < 8 || h.List[0].Nodes.Len() != 8 || !h.List[0].Preferred {
		t.Errorf("%d hints, the first is %+v", len(h.List), h.List[0])
	}
}
