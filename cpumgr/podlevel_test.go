package cpumgr

import (
	"errors"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/numa"
)

// podOf has CPUs of its own, and containers as in "i2 s1 r0": kind and CPUs, 0
// for one that shares.
func podOf(cpus int64, containers string) numa.Pod {
	kinds := map[byte]numa.Kind{'r': numa.Regular, 'i': numa.Init, 's': numa.Sidecar}
	pod := numa.Pod{UID: "a", Guaranteed: true, Resources: &numa.Resources{MilliCPU: cpus * 1000, Bound: true}}
	for i, word := range strings.Fields(containers) {
		c := container(string(rune('0'+i)), kinds[word[0]], int64(word[1]-'0')*1000)
		c.Bound = c.MilliCPU > 0
		pod.Containers = append(pod.Containers, c)
	}
	return pod
}

func TestPodLevel(t *testing.T) {
	for _, tc := range []struct {
		name, containers string
		cpus             int64
		o                Options
		pool, want       string
		err              string
	}{
		{"one shares the rest", "r2 r0", 4, Options{}, "1-2,5-6", "1,5 2,6", ""},
		{"all share", "r0 r0", 4, Options{}, "1-2,5-6", "1-2,5-6 1-2,5-6", ""},
		{"order does not matter", "r0 r2", 4, Options{}, "1-2,5-6", "2,6 1,5", ""},
		{"all have their own", "r2 r2", 4, Options{}, "1-2,5-6", "1,5 2,6", ""},
		{"init containers use it first", "i4 r2 r0", 4, Options{}, "1-2,5-6", "1-2,5-6 1,5 2,6", ""},
		{"a sidecar keeps its own", "s2 i2 i0 r0", 4, Options{}, "1-2,5-6", "1,5 2,6 2,6 2,6", ""},
		{"an init container before a sidecar", "i0 s2 r0", 4, Options{}, "1-2,5-6", "1-2,5-6 1,5 2,6", ""},
		{"a sidecar that shares", "s0 r2", 4, Options{}, "1-2,5-6", "2,6 1,5", ""},
		{"containers may share cores in whole ones", "r1 r0", 2, Options{FullPCPUsOnly: true}, "1,5", "1 5", ""},

		{"nothing for an init container", "s4 i0 r0", 4, Options{}, "", "", `container "1"; the pod asks for 4 CPUs, its other containers for 4`},
		{"nothing for a regular container", "r4 r0", 4, Options{}, "", "", `container "1"; the pod asks`},
		{"nothing for a sidecar", "s0 r2 r2", 4, Options{}, "", "", `container "0"; the pod asks`},
		{"an init container may take all", "i4 i0 r0", 4, Options{}, "1-2,5-6", "1-2,5-6 1-2,5-6 1-2,5-6", ""},
		{"a number for half cores", "r2 r0", 3, Options{FullPCPUsOnly: true}, "", "", "want a multiple of 2"},
		{"too many", "r2 r0", 7, Options{}, "", "", "7 CPUs requested, but 6 are free"},
		{"more than the pod has", "r2 r3", 4, Options{}, "", "", "3 CPUs requested, but 2 are free"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.o.PodLevel = true
			p := newStatic(t, machineS(), "0,4", tc.o)
			pod := podOf(tc.cpus, tc.containers)
			s, err := p.Allocate(p.Start(), pod, WholePod, numa.Hint{})
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) || !s.Equal(p.Start()) {
					t.Errorf("%v, want %q", err, tc.err)
				}
				var empty *EmptyPodSharedPoolError
				if strings.Contains(tc.err, "the pod asks") {
					if !errors.As(err, &empty) || empty.Reason() != "EmptyPodSharedPoolError" {
						t.Errorf("%#v", err)
					}
					if h := p.Hints(p.Start(), pod, WholePod); h.Any || len(h.List) > 0 {
						t.Errorf("hints %v, want none", h)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			rec, _ := s.Pod("a")
			var got []string
			for _, c := range pod.Containers {
				got = append(got, s.Wanted("a", c.Name).String())
				want := SharesPod
				if c.MilliCPU > 0 {
					want = OwnCPUs
				}
				if level := s.Isolation("a", c.Name); level != want {
					t.Errorf("container %s has isolation %d", c.Name, level)
				}
			}
			if all := strings.Join(got, " "); rec.Pool.String() != tc.pool || all != tc.want {
				t.Errorf("%s: %s; want %s: %s", rec.Pool, all, tc.pool, tc.want)
			}
			if problems := p.Validate(s); len(problems) > 0 {
				t.Error(problems)
			}
			if again, err := p.Allocate(s, pod, WholePod, numa.Hint{}); err != nil || !again.Equal(s) {
				t.Errorf("again: %v", err)
			}

			// The agent restarts: from its records, and from running containers.
			data, err := s.EncodePod("a")
			if err != nil {
				t.Fatal(err)
			}
			kept, err := DecodePod(data)
			if err != nil || !kept.Equal(rec) {
				t.Fatalf("%s: %v", data, err)
			}
			has := kept.ByContainer()
			for range 2 {
				back, problems := Rebuild(p, []numa.Pod{pod}, map[string]map[string]numa.CPUSet{"a": has})
				if len(problems) > 0 || !back.Equal(s) {
					t.Errorf("from %v: %v", has, problems)
				}
				delete(has, "")
			}

			// The pool goes with the last container.
			for _, c := range pod.Containers {
				if s.Shared().Equal(p.Start().Shared()) {
					t.Error("the pool is free before the last container")
				}
				s = p.Release(s, "a", c.Name)
			}
			if !s.Equal(p.Start()) {
				t.Errorf("%s", s.Shared())
			}
		})
	}
}

func TestPodLevelWithoutGateOrWholeCPUs(t *testing.T) {
	half := podOf(4, "r2 r0")
	half.Resources.MilliCPU = 3500
	for _, tc := range []struct {
		pod  numa.Pod
		gate bool
	}{{podOf(4, "r2 r0"), false}, {half, true}} {
		p := newStatic(t, machineS(), "0,4", Options{PodLevel: tc.gate})
		s, err := p.Allocate(p.Start(), tc.pod, WholePod, numa.Hint{})
		if err != nil || !s.Equal(p.Start()) || !p.Hints(s, tc.pod, WholePod).Any || s.Isolation("a", "0") != SharesHost {
			t.Errorf("%v, %v", s, err)
		}
	}
}

func TestPodLevelHints(t *testing.T) {
	p := newStatic(t, machineD(), "0,6", Options{PodLevel: true})
	pod := podOf(5, "r2 r0")
	if got := say(p.Hints(p.Start(), pod, WholePod)); got != "1* 0-1" {
		t.Errorf("%q", got)
	}
	s, err := p.Allocate(p.Start(), pod, WholePod, numa.Hint{Nodes: numa.Nodes(1)})
	if err != nil {
		t.Fatal(err)
	}
	if got := say(p.Hints(s, pod, WholePod)); got != "1* 0-1" {
		t.Errorf("assigned: %q", got)
	}
	if got := say(p.Hints(s, podOf(4, "r2 r0"), WholePod)); got != "" {
		t.Errorf("another number than assigned: %q", got)
	}
}

// A pod without resources of its own is given all its containers ask for, or
// nothing.
func TestAllocateWholePod(t *testing.T) {
	p := newStatic(t, machineS(), "0,4", Options{})
	s, err := p.Allocate(p.Start(), guaranteed("a", 2, 4), WholePod, numa.Hint{})
	if err != nil || s.Exclusive("a", "0").String() != "1,5" || s.Exclusive("a", "1").String() != "2-3,6-7" {
		t.Errorf("%v, %v", s, err)
	}
	s, err = p.Allocate(p.Start(), guaranteed("a", 2, 5), WholePod, numa.Hint{})
	if err == nil || !s.Equal(p.Start()) {
		t.Errorf("%v, %v", s, err)
	}
}
