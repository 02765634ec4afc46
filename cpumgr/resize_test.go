package cpumgr

import (
	"errors"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/numa"
)

func TestResize(t *testing.T) {
	for _, tc := range []struct {
		name      string
		m         numa.Machine
		has, free string
		milli     int64 // from
		to        int64
		o         Options
		want, err string
	}{
		{"grows by what is near", machineD(), "1,7", "2-5,8-11", 2000, 4000, Options{}, "1,3,7,9", ""},
		{"grows over the node", machineD(), "1,3,7,9", "2,4-5,8,10-11", 4000, 8000, Options{}, "1-3,5,7-9,11", ""},
		{"shrinks to some of its own", machineD(), "1,3,7,9", "2,4-5,8,10-11", 4000, 2000, Options{}, "1,7", ""},
		{"stays", machineD(), "1,7", "2-5,8-11", 2000, 2000, Options{}, "1,7", ""},
		{"shares from now on", machineD(), "1,7", "2-5,8-11", 2000, 1500, Options{}, "", ""},
		{"shared until now", machineD(), "", "1-5,7-11", 1500, 2000, Options{}, "2,8", ""},
		{"shares as before", machineD(), "", "1-5,7-11", 1500, 1700, Options{}, "", ""},
		{"too much", machineD(), "1,7", "2,8", 2000, 6000, Options{}, "", "4 CPUs requested, but 2 are free"},
		{"whole cores", machineD(), "1,7", "2-5,8-11", 2000, 4000, Options{FullPCPUsOnly: true}, "1,3,7,9", ""},
		{"half a core less", machineD(), "1,3,7,9", "2,8", 4000, 3000, Options{FullPCPUsOnly: true}, "", "want a multiple of 2"},
		{"half a core more", machineD(), "1,7", "2-5,8-11", 2000, 3000, Options{FullPCPUsOnly: true}, "", "want a multiple of 2"},
		{"too much, in whole cores", machineD(), "1,7", "2,8", 2000, 6000, Options{FullPCPUsOnly: true}, "", "have 4"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := numa.Pod{UID: "a", Guaranteed: true, Containers: []numa.Container{container("0", numa.Regular, tc.milli)}}
			start := func(o Options) (*Static, State) {
				p := newStatic(t, tc.m, "0,6", o)
				s := p.Start()
				if rest := p.Allocatable().Minus(list(tc.free)).Minus(list(tc.has)); !rest.Empty() {
					s = s.WithPod(PodCPUs{UID: "other", Containers: []ContainerCPUs{{Name: "c", CPUs: rest}}})
				}
				if tc.has != "" {
					s = s.WithPod(PodCPUs{UID: "a", Containers: []ContainerCPUs{{Name: "0", CPUs: list(tc.has)}}})
				}
				return p, s
			}

			p, before := start(tc.o)
			var not *ResizeError
			s, err := p.Resize(before, pod, 0, tc.to)
			if tc.milli != tc.to && (!errors.As(err, &not) || not.Reason() != "Infeasible" || !s.Equal(before)) {
				t.Errorf("without the option: %v", err)
			}

			tc.o.ResizeExclusive = true
			p, before = start(tc.o)
			s, err = p.Resize(before, pod, 0, tc.to)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) || !s.Equal(before) {
					t.Errorf("%v, want %q", err, tc.err)
				}
				return
			}
			if got := s.Exclusive("a", "0"); err != nil || got.String() != tc.want {
				t.Errorf("%s, %v; want %s", got, err, tc.want)
			}
			if problems := p.Validate(s); len(problems) > 0 {
				t.Error(problems)
			}
		})
	}
}

func TestResizeOfOthers(t *testing.T) {
	p := newStatic(t, machineS(), "0,4", Options{ResizeExclusive: true, PodLevel: true})
	pod := podOf(4, "r2 r0")
	s, err := p.Allocate(p.Start(), pod, WholePod, numa.Hint{})
	if err != nil {
		t.Fatal(err)
	}
	var not *ResizeError
	if _, err := p.Resize(s, pod, 0, 3000); !errors.As(err, &not) || !strings.Contains(err.Error(), "CPU 2000m to 3000m: the pod has CPUs of its own") {
		t.Errorf("%v", err)
	}
	burstable := guaranteed("b", 2)
	burstable.Guaranteed = false
	if next, err := p.Resize(s, burstable, 0, 3000); err != nil || !next.Equal(s) {
		t.Errorf("%v", err)
	}
	if _, err := p.Resize(s, burstable, 1, 3000); err == nil {
		t.Error("a container that the pod has not")
	}
}
