package cpumgr

import (
	"strings"
	"testing"

	"github.com/nodewright/nodewright/numa"
)

func TestParseOptions(t *testing.T) {
	all := Gates{Alpha: true, Beta: true}
	for _, tc := range []struct {
		values string
		gates  Gates
		want   Options
		err    string
	}{
		{"", Gates{}, Options{}, ""},
		{"full-pcpus-only=true strict-cpu-reservation=1 prefer-align-cpus-by-uncorecache=T", Gates{}, Options{FullPCPUsOnly: true, StrictReservation: true, PreferUncoreCache: true}, ""},
		{"distribute-cpus-across-numa=true", DefaultGates(), Options{DistributeAcrossNUMA: true}, ""},
		{"align-by-socket=true full-pcpus-only=false", all, Options{AlignBySocket: true}, ""},
		{"distribute-cpus-across-cores=true", all, Options{DistributeAcrossCores: true}, ""},
		{"distribute-cpus-across-numa=true", Gates{Alpha: true}, Options{}, "CPUManagerPolicyBetaOptions"},
		{"align-by-socket=true", DefaultGates(), Options{}, "CPUManagerPolicyAlphaOptions"},
		{"distribute-cpus-across-cores=false", DefaultGates(), Options{}, "CPUManagerPolicyAlphaOptions"},
		{"full-pcpus-only=maybe", all, Options{}, `"full-pcpus-only" is "maybe"; want true or false`},
		{"full-pcpus-only=", all, Options{}, "want true or false"},
		{"all-of-them=true", all, Options{}, `"all-of-them" is unknown; want one of align-by-socket, `},
		{"full-pcpus-only=true distribute-cpus-across-cores=true", all, Options{}, "exclude each other"},
		{"distribute-cpus-across-numa=true distribute-cpus-across-cores=true", all, Options{}, "exclude each other"},
		{"prefer-align-cpus-by-uncorecache=true distribute-cpus-across-cores=true", all, Options{}, "exclude each other"},
		{"prefer-align-cpus-by-uncorecache=true distribute-cpus-across-numa=true", all, Options{}, "exclude each other"},
		{"full-pcpus-only=true distribute-cpus-across-numa=true", all, Options{FullPCPUsOnly: true, DistributeAcrossNUMA: true}, ""},
	} {
		values := map[string]string{}
		for _, part := range strings.Fields(tc.values) {
			k, v, _ := strings.Cut(part, "=")
			values[k] = v
		}
		got, err := ParseOptions(values, tc.gates)
		switch {
		case tc.err == "" && (err != nil || got != tc.want):
			t.Errorf("%s: %+v, %v", tc.values, got, err)
		case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
			t.Errorf("%s: error %v, want %q", tc.values, err, tc.err)
		}
	}
	_, err := ParseOptions(map[string]string{"a": "true", "full-pcpus-only": "x"}, all)
	if err == nil || !strings.Contains(err.Error(), `"a"`) || !strings.Contains(err.Error(), `"x"`) {
		t.Errorf("not all is reported: %v", err)
	}
	if err := (Options{AlignBySocket: true}).Conflicts("single-numa-node"); err == nil {
		t.Error("align-by-socket goes with single-numa-node")
	}
	if err := (Options{AlignBySocket: true}).Conflicts("restricted"); err != nil {
		t.Error(err)
	}
}

func TestNewStatic(t *testing.T) {
	for _, tc := range []struct {
		name                string
		m                   numa.Machine
		r                   Reservation
		o                   Options
		reserved, free, err string
	}{
		{"two of eight", machineS(), Reservation{MilliCPU: 1001}, Options{}, "0,4", "1-3,5-7", ""},
		{"a list", machineS(), Reservation{MilliCPU: 1500, CPUs: list("3,6")}, Options{}, "3,6", "0-2,4-5,7", ""},
		{"a list alone", machineS(), Reservation{CPUs: list("7")}, Options{}, "7", "0-6", ""},
		{"a half core, though containers get whole ones", machineS(), Reservation{MilliCPU: 1}, Options{FullPCPUsOnly: true}, "0", "1-7", ""},
		{"spread like containers", machineS(), Reservation{MilliCPU: 2000}, Options{DistributeAcrossCores: true}, "0-1", "2-7", ""},
		{"nothing", machineS(), Reservation{}, Options{}, "", "", "needs more than 0"},
		{"less than nothing", machineS(), Reservation{MilliCPU: -1}, Options{}, "", "", "-1m"},
		{"another number than in the list", machineS(), Reservation{MilliCPU: 2500, CPUs: list("0,4")}, Options{}, "", "", "want 3"},
		{"CPUs that are not there", machineS(), Reservation{CPUs: list("0,12")}, Options{}, "", "", "no CPU 12"},
		{"more than there are", machineS(), Reservation{MilliCPU: 9000}, Options{}, "", "", "9 CPUs requested, but 8 are free"},
		{"all, strictly", machineS(), Reservation{MilliCPU: 8000}, Options{StrictReservation: true}, "", "", "want some left"},
		{"sockets in nodes", numa.Uniform(2, 1, 2, 1, 0), Reservation{MilliCPU: 1}, Options{AlignBySocket: true}, "0", "1-3", ""},
		{"more sockets than nodes", twoSocketsOneNode(), Reservation{MilliCPU: 1}, Options{AlignBySocket: true}, "", "", "want no fewer nodes than sockets"},
		{"no machine", numa.Machine{}, Reservation{MilliCPU: 1}, Options{}, "", "", "CPUs is empty"},
		{"options", machineS(), Reservation{MilliCPU: 1}, Options{FullPCPUsOnly: true, DistributeAcrossCores: true}, "", "", "exclude each other"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := NewStatic(tc.m, tc.r, tc.o)
			if tc.err != "" {
				if err == nil || p != nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil || p.reserved.String() != tc.reserved || p.Allocatable().String() != tc.free {
				t.Errorf("%v, %v", p, err)
			}
		})
	}
}

func twoSocketsOneNode() numa.Machine {
	m := numa.Uniform(2, 1, 2, 1, 0)
	for i := range m.CPUs {
		m.CPUs[i].Node = 0
	}
	m.Nodes = []numa.Node{{ID: 0}}
	return m
}

// Strict reservation keeps the shared pool off reserved CPUs, from the start.
func TestStart(t *testing.T) {
	if got := newStatic(t, machineS(), "0,4", Options{}).Start().Shared(); got.String() != "0-7" {
		t.Errorf("shared pool is %s", got)
	}
	if got := newStatic(t, machineS(), "0,4", Options{StrictReservation: true}).Start().Shared(); got.String() != "1-3,5-7" {
		t.Errorf("with strict reservation, the shared pool is %s", got)
	}
}

func TestNone(t *testing.T) {
	if _, err := NewNone(Options{FullPCPUsOnly: true}); err == nil {
		t.Error("policy none took an option")
	}
	p, err := NewNone(Options{})
	if err != nil {
		t.Fatal(err)
	}
	pod := guaranteed("a", 2)
	s, err := p.Allocate(p.Start(), pod, 0, numa.Hint{})
	if err != nil || !s.Equal(p.Start()) || !s.Wanted("a", "0").Empty() || !p.Hints(s, pod, 0).Any {
		t.Errorf("%v, %v", s, err)
	}
	if s, err := p.Resize(s, pod, 0, 3000); err != nil || !s.Equal(p.Start()) {
		t.Errorf("%v, %v", s, err)
	}
	// What policy static gave is taken back, and told.
	s, problems := Rebuild(p, []numa.Pod{pod, guaranteed("b", 2)}, map[string]map[string]numa.CPUSet{"a": {"0": list("1,5")}, "b": {"0": list("0-7")}})
	if len(problems) != 1 || len(s.Pods()) != 0 || !p.Release(s, "a", "0").Equal(s) {
		t.Errorf("%v, %v", s, problems)
	}
}
