package cpumgr

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/numa"
)

func TestAllocate(t *testing.T) {
	burstable := guaranteed("a", 2)
	burstable.Guaranteed = false
	fraction := numa.Pod{UID: "a", Guaranteed: true, Containers: []numa.Container{container("0", numa.Regular, 1500)}}
	ofPod := guaranteed("a", 2)
	ofPod.Resources = &numa.Resources{MilliCPU: 4000, Bound: true}
	for _, tc := range []struct {
		name              string
		m                 numa.Machine
		reserved, free    string
		o                 Options
		pod               numa.Pod
		near              numa.NodeSet
		want, shared, err string
	}{
		{"a core", machineS(), "0,4", "1-3,5-7", Options{}, guaranteed("a", 2), 0, "1,5", "0,2-4,6-7", ""},
		{"all that may be given", machineS(), "0,4", "1-3,5-7", Options{}, guaranteed("a", 6), 0, "1-3,5-7", "0,4", ""},
		{"all, under strict reservation", machineS(), "0,4", "1-3,5-7", Options{StrictReservation: true}, guaranteed("a", 6), 0, "1-3,5-7", "", ""},
		{"too many", machineS(), "0,4", "1-3,5-7", Options{}, guaranteed("a", 7), 0, "", "0-7", "7 CPUs requested, but 6 are free (6 on node 0; 3 whole cores)"},
		{"too many are in use", machineS(), "0,4", "1,2", Options{}, guaranteed("a", 3), 0, "", "0-2,4", "3 CPUs requested, but 2 are free"},
		{"not guaranteed", machineS(), "0,4", "1-3,5-7", Options{}, burstable, 0, "", "0-7", ""},
		{"a fraction", machineS(), "0,4", "1-3,5-7", Options{}, fraction, 0, "", "0-7", ""},
		{"of a pod with resources", machineS(), "0,4", "1-3,5-7", Options{}, ofPod, 0, "", "0-7", ""},
		{"of a pod with resources, gate on", machineS(), "0,4", "1-3,5-7", Options{PodLevel: true}, ofPod, 0, "1,5", "0,2-4,6-7", ""},

		{"near a node", machineD(), "0,6", "1-5,7-11", Options{}, guaranteed("a", 2), numa.Nodes(1), "1,7", "0,2-6,8-11", ""},
		{"a node and more", machineD(), "0,6", "1-5,7-11", Options{}, guaranteed("a", 8), numa.Nodes(1), "1-3,5,7-9,11", "0,4,6,10", ""},
		{"node 3 alone", machineM(), "0,40", "1-39,41-79", Options{}, guaranteed("a", 4), numa.Nodes(3), "30-31,70-71", "0-29,32-69,72-79", ""},
		{"what node 2 has, and the rest from elsewhere", machineM(), "0", "1-9,20,31-39", Options{}, guaranteed("a", 4), numa.Nodes(2), "1-3,20", "0,4-9,31-39", ""},
		{"the socket of node 2", machineM(), "0", "1-9,20,31-39", Options{AlignBySocket: true}, guaranteed("a", 4), numa.Nodes(2), "20,31-33", "0-9,34-39", ""},

		{"whole cores", machineS(), "0,4", "1-3,5-7", Options{FullPCPUsOnly: true}, guaranteed("a", 4), 0, "1-2,5-6", "0,3-4,7", ""},
		{"half a core", machineS(), "0,4", "1-3,5-7", Options{FullPCPUsOnly: true}, guaranteed("a", 3), 0, "", "0-7", "want a multiple of 2"},
		{"half of each core is free", machineS(), "0,4", "1-3", Options{FullPCPUsOnly: true}, guaranteed("a", 2), 0, "", "0-4", "have 0"},
		{"siblings of reserved CPUs do not count", machineS(), "0-1", "2-7", Options{FullPCPUsOnly: true}, guaranteed("a", 6), 0, "", "0-7", "have 4"},
		{"siblings of reserved CPUs are left alone", machineS(), "0-1", "2-7", Options{FullPCPUsOnly: true}, guaranteed("a", 4), 0, "2-3,6-7", "0-1,4-5", ""},
		{"a node with half a core is not the reason to split another", machineD(), "0", "1-11", Options{FullPCPUsOnly: true}, guaranteed("a", 6), numa.Nodes(0), "1-2,4,7-8,10", "0,3,5-6,9,11", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newStatic(t, tc.m, tc.reserved, tc.o)
			before := holding(p, tc.free)
			s, err := p.Allocate(before, tc.pod, 0, numa.Hint{Nodes: tc.near})
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Fatalf("error %v, want %q", err, tc.err)
			}
			if got := s.Exclusive("a", "0"); got.String() != tc.want || s.Shared().String() != tc.shared {
				t.Errorf("got %s and left %s; want %s and %s", got, s.Shared(), tc.want, tc.shared)
			}
			if problems := p.Validate(s); len(problems) > 0 {
				t.Error(problems)
			}
			if back := p.Release(s, "a", ""); !back.Equal(before) {
				t.Errorf("after the release there are %s", back.Shared())
			}
		})
	}
}

// Errors that the kubelet has a word for say it.
func TestReasons(t *testing.T) {
	p := newStatic(t, machineS(), "0,4", Options{FullPCPUsOnly: true})
	_, err := p.Allocate(p.Start(), guaranteed("a", 3), 0, numa.Hint{})
	var word interface{ Reason() string }
	if !errors.As(err, &word) || word.Reason() != "SMTAlignmentError" {
		t.Errorf("%v", err)
	}
	var smt *SMTAlignmentError
	if !errors.As(err, &smt) || !reflect.DeepEqual(*smt, SMTAlignmentError{Requested: 3, PerCore: 2}) {
		t.Errorf("%+v", smt)
	}
	_, err = p.Allocate(p.Start(), guaranteed("a", 8), 0, numa.Hint{})
	if !errors.As(err, &smt) || !reflect.DeepEqual(*smt, SMTAlignmentError{Requested: 8, PerCore: 2, Physical: true, Available: 6, Nodes: []NodeCPUs{{0, 6}}}) {
		t.Errorf("%+v", smt)
	}
	if _, err := p.Allocate(p.Start(), guaranteed("a", 2), 1, numa.Hint{}); err == nil {
		t.Error("a container that the pod has not")
	}
}

// A container with CPUs keeps them, even on a full machine, as after a restart of the agent.
func TestAllocateAgain(t *testing.T) {
	p := newStatic(t, machineS(), "0,4", Options{FullPCPUsOnly: true})
	pod := guaranteed("a", 6)
	s, err := p.Allocate(p.Start(), pod, 0, numa.Hint{})
	if err != nil {
		t.Fatal(err)
	}
	again, err := p.Allocate(s, pod, 0, numa.Hint{Nodes: numa.Nodes(0)})
	if err != nil || !again.Equal(s) {
		t.Errorf("%v, %v", again, err)
	}
}

// CPUs of init containers are available to later containers, but not those of sidecars.
func TestReuse(t *testing.T) {
	for _, tc := range []struct {
		name       string
		containers string // kind and CPUs
		want       string
		reusable   string
	}{
		{"an app after an init container", "i2 r2", "1,5 1,5", ""},
		{"a smaller one", "i4 r2", "1-2,5-6 1,5", "2,6"},
		{"a larger one", "i2 r4", "1,5 1-2,5-6", ""},
		{"init containers that grow", "i2 i4 r4", "1,5 1-2,5-6 1-2,5-6", ""},
		{"two apps", "i4 r2 r2", "1-2,5-6 1,5 2,6", ""},
		{"a sidecar keeps its own", "s2 i2 r2", "1,5 2,6 2,6", ""},
		{"a sidecar takes what an init container left", "i2 s2 r2", "1,5 1,5 2,6", ""},
		{"sidecar between", "i4 s2 i2 r2", "1-2,5-6 1,5 2,6 2,6", ""},
		{"only an init container", "i6", "1-3,5-7", "1-3,5-7"},
		{"all for init, all for the app", "i6 r6", "1-3,5-7 1-3,5-7", ""},
	} {
		for _, o := range []Options{{}, {FullPCPUsOnly: true}} {
			t.Run(tc.name, func(t *testing.T) {
				p := newStatic(t, machineS(), "0,4", o)
				pod := numa.Pod{UID: "a", Guaranteed: true}
				kinds := map[byte]numa.Kind{'r': numa.Regular, 'i': numa.Init, 's': numa.Sidecar}
				s := p.Start()
				var got []string
				for i, word := range strings.Fields(tc.containers) {
					name := string(rune('0' + i))
					pod.Containers = append(pod.Containers, container(name, kinds[word[0]], int64(word[1]-'0')*1000))
					var err error
					if s, err = p.Allocate(s, pod, i, numa.Hint{}); err != nil {
						t.Fatal(err)
					}
					// An agent that starts now knows no less.
					data, err := s.EncodePod("a")
					if err != nil {
						t.Fatal(err)
					}
					kept, err := DecodePod(data)
					if err != nil {
						t.Fatal(err)
					}
					again, problems := Rebuild(p, []numa.Pod{pod}, map[string]map[string]numa.CPUSet{"a": kept.ByContainer()})
					if len(problems) > 0 || !again.Equal(s) {
						t.Fatalf("%s was rebuilt as %v, %v", data, again, problems)
					}
					got = append(got, s.Exclusive("a", name).String())
				}
				if all := strings.Join(got, " "); all != tc.want || s.Reusable("a").String() != tc.reusable {
					t.Errorf("%s, and %s can be reused; want %s, and %s", all, s.Reusable("a"), tc.want, tc.reusable)
				}
				if problems := p.Validate(s); len(problems) > 0 {
					t.Error(problems)
				}
			})
		}
	}
}

// Pods do not lose what their init containers left because of other pods.
func TestReuseOfManyPods(t *testing.T) {
	p := newStatic(t, machineM(), "0,40", Options{})
	s := p.Start()
	var pods []numa.Pod
	for _, uid := range []string{"a", "b", "c"} {
		pods = append(pods, numa.Pod{UID: uid, Guaranteed: true, Containers: []numa.Container{
			container("init", numa.Init, 4000), container("app", numa.Regular, 4000)}})
	}
	for i := range 2 {
		for _, pod := range pods {
			var err error
			if s, err = p.Allocate(s, pod, i, numa.Hint{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, pod := range pods {
		if init, app := s.Exclusive(pod.UID, "init"), s.Exclusive(pod.UID, "app"); !init.Equal(app) {
			t.Errorf("pod %s has %s and %s", pod.UID, init, app)
		}
	}
}

// When a container is released, CPUs that other containers of its pod use stay allocated.
func TestRelease(t *testing.T) {
	p := newStatic(t, machineS(), "0,4", Options{})
	pod := numa.Pod{UID: "a", Guaranteed: true, Containers: []numa.Container{
		container("init", numa.Init, 4000), container("app", numa.Regular, 2000)}}
	s := p.Start()
	for i := range pod.Containers {
		s, _ = p.Allocate(s, pod, i, numa.Hint{})
	}
	if s := p.Release(s, "a", "init"); s.Shared().String() != "0,2-4,6-7" || s.Exclusive("a", "app").String() != "1,5" {
		t.Errorf("%s", s.Shared())
	}
	if s := p.Release(s, "a", "app"); s.Shared().String() != "0,3-4,7" || s.Reusable("a").String() != "1-2,5-6" {
		t.Errorf("%s", s.Shared())
	}
	if s := p.Release(p.Release(s, "a", "app"), "a", "init"); !s.Equal(p.Start()) {
		t.Errorf("%s", s.Shared())
	}
	if got := p.Release(p.Release(s, "b", ""), "a", "x"); !got.Equal(s) {
		t.Error("something was released that is not there")
	}
}
