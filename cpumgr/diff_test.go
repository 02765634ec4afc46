package cpumgr

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/numa"
)

func TestDiff(t *testing.T) {
	// Words are like "a/0=1,5", for a container of pod a.
	state := func(shared, text string) State {
		s := NewState(list(shared))
		for _, word := range strings.Fields(text) {
			who, cpus, _ := strings.Cut(word, "=")
			uid, name, _ := strings.Cut(who, "/")
			s = s.with(uid, ContainerCPUs{Name: name, CPUs: list(cpus)})
		}
		return s
	}
	for _, tc := range []struct{ name, from, to, want string }{
		{"nothing", "a/0=1,5", "a/0=1,5", ""},
		{"a newcomer: others leave first", "", "a/0=1,5", "=0,2-4,6-7 a/0=1,5"},
		{"one leaves", "a/0=1,5", "", "=0-7 a/0=0-7"},
		{"one comes where another leaves", "a/0=1,5", "b/0=2,6", "=0,3-4,7 b/0=2,6 =0-1,3-5,7 a/0=0-1,3-5,7"},
		{"growth: others leave first", "a/0=1,5", "a/0=1-2,5-6", "=0,3-4,7 a/0=1-2,5-6"},
		{"shrinking: it leaves first", "a/0=1-2,5-6", "a/0=1,5", "a/0=1,5 =0,2-4,6-7"},
		{"a part moves", "a/0=1,5", "a/0=1-2", "=0,3-4,6-7 a/0=1 =0,3-7 a/0=1-2"},
		{"all of it moves", "a/0=1,5", "a/0=2,6", "=0,3-4,7 a/0=2,6 =0-1,3-5,7"},
		{"one of two", "a/0=1,5 b/0=2,6", "a/0=1,5 b/0=2-3,6-7", "=0,4 b/0=2-3,6-7"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			from, to := state("0-7", tc.from), state("0-7", tc.to)
			var got []string
			for _, step := range Diff(from, to) {
				who := ""
				if step.Pod != "" {
					who = step.Pod + "/" + step.Container
				}
				got = append(got, fmt.Sprintf("%s=%s", who, step.CPUs))
			}
			if all := strings.Join(got, " "); all != tc.want {
				t.Errorf("%s, want %s", all, tc.want)
			}
		})
	}
}

// Under strict reservation nothing may be left to share.
func TestDiffToAnEmptyPool(t *testing.T) {
	p := newStatic(t, machineS(), "0,4", Options{StrictReservation: true})
	s, err := p.Allocate(p.Start(), guaranteed("a", 6), 0, numa.Hint{})
	if err != nil {
		t.Fatal(err)
	}
	if steps := Diff(p.Start(), s); len(steps) != 1 || steps[0].Pod != "" || !steps[0].CPUs.Empty() {
		t.Errorf("%v", steps)
	}
	if steps := Diff(s, p.Start()); len(steps) != 1 || steps[0].Pod != "" || steps[0].CPUs.Len() != 6 {
		t.Errorf("%v", steps)
	}
}

func TestStats(t *testing.T) {
	m := withCaches(numa.Uniform(2, 1, 4, 2, 0), 2) // CPUs of a core are i and i+8
	p := newStatic(t, m, "0,8", Options{})
	if got := p.Stats(p.Start()); fmt.Sprintf("%+v", got) != "{SharedMilliCPU:14000 Exclusive:0 Nodes:[{Node:0 CPUs:0} {Node:1 CPUs:0}] Containers:0 AlignedCores:0 AlignedCache:0 AlignedNode:0}" {
		t.Errorf("%+v", got)
	}
	s := p.Start()
	for uid, cpus := range map[string]string{"a": "1,9", "b": "2-3", "c": "4,6,12", "d": "5,10,11"} {
		s = s.WithPod(PodCPUs{UID: uid, Containers: []ContainerCPUs{{Name: "0", CPUs: list(cpus)}}})
	}
	if got := p.Stats(s); fmt.Sprintf("%+v", got) != "{SharedMilliCPU:4000 Exclusive:10 Nodes:[{Node:0 CPUs:6} {Node:1 CPUs:4}] Containers:4 AlignedCores:1 AlignedCache:2 AlignedNode:3}" {
		t.Errorf("%+v", got)
	}
	for cpus, want := range map[string]Alignment{
		"":     {true, true, true},
		"1":    {false, true, true},
		"99":   {false, true, true},
		"1,99": {},
	} {
		if got := p.Alignment(list(cpus)); got != want {
			t.Errorf("%q: %+v", cpus, got)
		}
	}
}
