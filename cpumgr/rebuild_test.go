package cpumgr

import (
	"strings"
	"testing"

	"github.com/nodewright/nodewright/numa"
)

// Pods a, b and so on have a container each.
func TestRebuild(t *testing.T) {
	for _, tc := range []struct {
		name     string
		m        numa.Machine
		o        Options
		pods     string // UID and CPUs
		has      string // UID and cpuset
		want     string
		problems []string
	}{
		{"as it was", machineS(), Options{}, "a2 b2", "a=1,5 b=2,6", "a=1,5 b=2,6", nil},
		{"some are new", machineS(), Options{}, "a2 b2", "b=2,6", "b=2,6", nil},
		{"others share", machineS(), Options{}, "a2 b0", "a=1,5 b=0,2-4,6-7", "a=1,5", nil},
		{"halves of cores are kept", machineS(), Options{FullPCPUsOnly: true}, "a2 b2", "a=1-2 b=5-6", "a=1-2 b=5-6", nil},
		{"other CPUs are reserved now", machineS(), Options{}, "a2 b2", "a=0,4 b=2,6", "b=2,6", []string{`pod a, container "0": CPUs "0,4": CPUs 0,4 are reserved`}},
		{"both have a CPU", machineS(), Options{}, "a2 b2", "a=1,5 b=5-6", "a=1,5", []string{`pod b, container "0": CPUs "5-6": CPUs 5 are those of pod a`}},
		{"a CPU is offline", machineS(), Options{}, "a2", "a=1,12", "", []string{"CPUs 12 are offline"}},
		{"the kernel took a CPU away", machineS(), Options{}, "a2", "a=1", "", []string{"they are 1 CPUs; want 2"}},
		{"it has shared until now", machineS(), Options{}, "a2 b2", "a=0-7 b=0-7", "", []string{"they are 8", "they are 8"}},
		{"no cpuset", machineS(), Options{}, "a2", "a=", "", []string{"they are 0"}},
		{"unknown pods", machineS(), Options{}, "a2", "a=1,5 x=2,6", "a=1,5", []string{`pod x, container "0": CPUs "2,6": pod is not on this node`}},
		{"a pod twice", machineS(), Options{}, "a2 a2", "a=1,5", "a=1,5", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newStatic(t, tc.m, "0,4", tc.o)
			var pods []numa.Pod
			for _, word := range strings.Fields(tc.pods) {
				pods = append(pods, guaranteed(word[:1], int64(word[1]-'0')))
			}
			has := map[string]map[string]numa.CPUSet{}
			for _, word := range strings.Fields(tc.has) {
				uid, cpus, _ := strings.Cut(word, "=")
				has[uid] = map[string]numa.CPUSet{"0": list(cpus)}
			}
			s, problems := Rebuild(p, pods, has)
			var got []string
			for _, uid := range s.Pods() {
				got = append(got, uid+"="+s.Exclusive(uid, "0").String())
			}
			if all := strings.Join(got, " "); all != tc.want {
				t.Errorf("%s, want %s", all, tc.want)
			}
			if len(problems) != len(tc.problems) {
				t.Fatalf("%v, want %q", problems, tc.problems)
			}
			for i, want := range tc.problems {
				if !strings.Contains(problems[i].Error(), want) {
					t.Errorf("%v, want %q", problems[i], want)
				}
			}
			if problems := p.Validate(s); len(problems) > 0 {
				t.Error(problems)
			}
		})
	}
}

// The CPUs of a pod are taken over unchanged, or a problem is reported.
func TestRebuildPodLevel(t *testing.T) {
	for _, tc := range []struct{ name, has, want, problem string }{
		{"a pool of another size", "=1-2 0=1", "", `pod a: CPUs "1-2": they are 2 CPUs; want 4`},
		{"beyond the pool", "=1-2,5-6 0=3,7 1=2,6", "1=2,6", `container "0": CPUs "3,7": the CPUs are not among the pod's CPUs "1-2,5-6"`},
		{"another number", "=1-2,5-6 0=1,2,5 1=6", "1=6", "the record has 3 CPUs; the container requests 2"},
		{"overlap", "=1-2,5-6 0=1,5 1=1-2,5-6", "0=1,5", "CPUs 1,5 are exclusive to another container"},
		{"no pool, as it was kept", "= 0=1,5 1=2,6", "0=1,5", ""},
		{"no pool that would fit", "0=1,5 1=0,2-4,6-7", "0=1,5", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newStatic(t, machineS(), "0,4", Options{PodLevel: true})
			has := map[string]numa.CPUSet{}
			for _, word := range strings.Fields(tc.has) {
				name, cpus, _ := strings.Cut(word, "=")
				has[name] = list(cpus)
			}
			s, problems := Rebuild(p, []numa.Pod{podOf(4, "r2 r0")}, map[string]map[string]numa.CPUSet{"a": has})
			var got []string
			rec, _ := s.Pod("a")
			for _, c := range rec.Containers {
				got = append(got, c.Name+"="+c.CPUs.String())
			}
			if all := strings.Join(got, " "); all != tc.want {
				t.Errorf("%s, want %s", all, tc.want)
			}
			if tc.problem == "" && len(problems) > 0 || tc.problem != "" && (len(problems) != 1 || !strings.Contains(problems[0].Error(), tc.problem)) {
				t.Errorf("%v, want %q", problems, tc.problem)
			}
			if problems := p.Validate(s); len(problems) > 0 {
				t.Error(problems)
			}
		})
	}
}

// With the feature gate off, the pool is reported and released.
func TestRebuildWithoutPodLevel(t *testing.T) {
	p := newStatic(t, machineS(), "0,4", Options{})
	s, problems := Rebuild(p, []numa.Pod{podOf(4, "r2 r0")}, map[string]map[string]numa.CPUSet{"a": {"": list("1-2,5-6"), "0": list("1,5"), "1": list("2,6")}})
	if !s.Equal(p.Start()) || len(problems) != 1 || !strings.Contains(problems[0].Error(), `pod a: CPUs "1-2,5-6": the pod gets no exclusive CPUs`) {
		t.Errorf("%v, %v", s, problems)
	}
}

// Problems with which the kubelet does not start are reported here.
func TestValidate(t *testing.T) {
	one := func(uid, cpus string) PodCPUs {
		return PodCPUs{UID: uid, Containers: []ContainerCPUs{{Name: "0", CPUs: list(cpus)}}}
	}
	for _, tc := range []struct {
		name   string
		shared string
		pods   []PodCPUs
		strict bool
		want   string
	}{
		{"good", "0,4,2-3,6-7", []PodCPUs{one("a", "1,5")}, false, ""},
		{"good, strictly", "2-3,6-7", []PodCPUs{one("a", "1,5")}, true, ""},
		{"reserved in the pool", "0,2-3,6-7", []PodCPUs{one("a", "1,5")}, true, `shared pool: CPUs "0": they are reserved, and the option strict-cpu-reservation excludes them`},
		{"reserved not in the pool", "4,2-3,6-7", []PodCPUs{one("a", "1,5")}, false, `CPUs "0": they are reserved, and missing in the shared pool`},
		{"an unknown CPU in the pool", "0,4,2-3,6-7,12", []PodCPUs{one("a", "1,5")}, false, `CPUs "12": the machine does not have them`},
		{"an unknown CPU of a pod", "0,4,1-3,5-7", []PodCPUs{one("a", "12")}, false, `pod a: CPUs "12": the machine does not have them`},
		{"a CPU of nobody", "0,4,2-3,6", []PodCPUs{one("a", "1,5")}, false, `shared pool: CPUs "7": assigned to no container and not shared`},
		{"a CPU in the pool and given", "0-7", []PodCPUs{one("a", "1,5")}, false, `pod a: CPUs "1,5": they are in the shared pool`},
		{"a CPU of two pods", "0,4,2,6-7", []PodCPUs{one("a", "1,5"), one("b", "3,5")}, false, `pod b: CPUs "5": other pods have them too`},
		{"reserved and given", "0,2-3,6-7", []PodCPUs{one("a", "4,1,5")}, false, `pod a: CPUs "4": they are reserved`},
		{"of two containers", "0,2-4,6-7", []PodCPUs{{UID: "a", Containers: []ContainerCPUs{{Name: "0", CPUs: list("1,5")}, {Name: "1", CPUs: list("5")}}}}, false, `container "1": CPUs "5": another container has them too`},
		{"not of the pool", "0,2-4,6-7", []PodCPUs{{UID: "a", Pool: list("1"), Containers: []ContainerCPUs{{Name: "0", CPUs: list("1,5")}}}}, false, `container "0": CPUs "5": the pod does not have them`},
		{"none", "0-7", []PodCPUs{one("a", "")}, false, `container "0": CPUs "": no CPUs are assigned`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := State{shared: list(tc.shared), pods: map[string]PodCPUs{}}
			for _, pod := range tc.pods {
				s.pods[pod.UID] = pod
			}
			problems := newStatic(t, machineS(), "0,4", Options{StrictReservation: tc.strict}).Validate(s)
			if tc.want == "" && len(problems) > 0 {
				t.Error(problems)
			}
			for _, p := range problems {
				if strings.Contains(p.Error(), tc.want) {
					return
				}
			}
			if tc.want != "" {
				t.Errorf("%v, want %q", problems, tc.want)
			}
		})
	}
}
