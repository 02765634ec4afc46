package gc

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
)

var zero = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func minute(n int) time.Time { return zero.Add(time.Duration(n) * time.Minute) }

// instances reads "pod/name/minute[/state[/finished]]"; the whole is the ID.
func instances(list ...string) (out []Container) {
	for _, s := range list {
		p := strings.Split(s, "/")
		c := Container{ID: s, Pod: types.UID(p[0]), Name: p[1], State: observed.Exited, Sandbox: "sb-" + p[0]}
		n := 0
		_, _ = fmt.Sscan(p[2], &n)
		c.CreatedAt = minute(n)
		if len(p) > 3 {
			c.State = map[string]observed.State{"run": observed.Running, "made": observed.Created, "lost": observed.Unknown, "dead": observed.Exited}[p[3]]
		}
		if len(p) > 4 {
			_, _ = fmt.Sscan(p[4], &n)
			c.FinishedAt = minute(n)
		}
		out = append(out, c)
	}
	return out
}

// podState goes by the first letter of the UID.
func podState(uid types.UID) PodState {
	switch uid[0] {
	case 'g':
		return Deleted // gone
	case 'o':
		return Terminated // over
	default:
		return Live
	}
}

func TestDecideContainers(t *testing.T) {
	limits := func(each, total int) ContainerPolicy {
		return ContainerPolicy{MaxPerContainer: each, MaxContainers: total}
	}
	for _, tc := range []struct {
		name    string
		policy  ContainerPolicy
		all     bool
		unready bool
		in      string
		gone    string
	}{
		{name: "newest stays", policy: limits(1, -1), in: "o/a/1 o/a/2 o/a/3", gone: "o/a/1 o/a/2"},
		{name: "by name", policy: limits(1, -1), in: "o/a/1 o/b/2 o/a/3 o/b/4", gone: "o/a/1 o/b/2"},
		{name: "by pod", policy: limits(1, -1), in: "o1/a/1 o2/a/2"},
		{name: "two each", policy: limits(2, -1), in: "o/a/1 o/a/2 o/a/3", gone: "o/a/1"},
		{name: "no limit", policy: limits(-1, -1), in: "o/a/1 o/a/2 o/a/3"},
		{name: "none each", policy: limits(0, -1), in: "o/a/1 o/a/2 o/a/3/run", gone: "o/a/1 o/a/2"},
		{name: "running never", policy: limits(0, 0), in: "g/a/1/run o/a/2/run l/a/3/run"},
		{name: "four in all", policy: limits(-1, 4), in: "o1/a/1 o1/a/2 o2/a/3 o2/a/4 o3/a/5 o3/a/6 o1/a/7", gone: "o1/a/1 o1/a/2 o2/a/3 o3/a/5"},
		{name: "four in all of two", policy: limits(-1, 4), in: "o1/a/1 o1/a/2 o1/a/3 o2/a/4 o2/a/5 o2/a/6", gone: "o1/a/1 o2/a/4"},
		{name: "fewer in all than containers", policy: limits(1, 2), in: "o1/a/1 o2/a/2 o3/a/3", gone: "o1/a/1"},
		{name: "none in all", policy: limits(-1, 0), in: "o1/a/1 o2/a/2", gone: "o1/a/1 o2/a/2"},
		{name: "gone pod", policy: limits(1, -1), in: "g/a/1 g/b/2/made g/c/3/run", gone: "g/a/1 g/b/2/made"},
		{name: "gone pod, sources not ready", policy: limits(1, -1), unready: true, in: "g/a/1 g/a/2", gone: "g/a/1"},
		{name: "over", policy: limits(1, -1), all: true, in: "o/a/1 l/a/2 g/a/3", gone: "o/a/1 g/a/3"},
		{name: "over, sources not ready", policy: limits(1, -1), all: true, unready: true, in: "o/a/1"},
		{name: "lost", policy: limits(1, -1), in: "o/a/1/lost o/a/2", gone: "o/a/1/lost!"},
		{name: "young", policy: ContainerPolicy{MinAge: time.Hour, MaxPerContainer: 0, MaxContainers: -1}, in: "o/a/1 o/a/50 g/a/40", gone: "o/a/1"},
		{name: "young by its end", policy: ContainerPolicy{MinAge: time.Hour, MaxPerContainer: 0, MaxContainers: -1}, in: "o/a/1/dead/60 o/b/1/dead/2", gone: "o/b/1/dead/2"},

		// What a pod that lives needs.
		{name: "last state", policy: limits(0, 0), in: "l/a/1 l/a/2", gone: "l/a/1"},
		{name: "last state beside one that runs", policy: limits(0, 0), in: "l/a/1 l/a/2 l/a/3/run", gone: "l/a/1"},
		{name: "being started", policy: limits(0, 0), in: "l/a/1 l/a/2/made"},
		{name: "lost and the newest", policy: limits(0, 0), in: "l/a/1 l/a/2/lost", gone: "l/a/1"},
		{name: "the others go for it", policy: limits(1, 1), in: "l/a/1 o/a/2 o/b/3", gone: "o/a/2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := situation{Pods: podState, All: tc.all, Now: minute(90)}
			if tc.unready {
				s.Pods = nil
			}
			var gone []string
			for _, v := range decideContainers(tc.policy, s, instances(strings.Fields(tc.in)...)) {
				if v.Verdict != containerRemove {
					continue
				}
				if v.StopFirst {
					v.ID += "!"
				}
				gone = append(gone, v.ID)
			}
			if got := strings.Join(gone, " "); got != tc.gone {
				t.Errorf("removed %q, want %q", got, tc.gone)
			}
		})
	}
}

func TestContainerVerdictsAreTold(t *testing.T) {
	got := map[string]string{}
	p := ContainerPolicy{MinAge: time.Minute, MaxPerContainer: 1, MaxContainers: -1}
	for _, v := range decideContainers(p, situation{Pods: podState, Now: minute(60)}, instances(
		"l/a/1", "l/a/2", "l/a/3/run", "l/b/4/made", "o/a/5", "o/b/60")) {
		got[v.ID] = v.Verdict.String()
	}
	for id, want := range map[string]string{
		"l/a/1": "remove", "l/a/2": "needed", "l/a/3/run": "running", "l/b/4/made": "starting", "o/a/5": "within limits", "o/b/60": "young",
	} {
		if got[id] != want {
			t.Errorf("%s: %s, want %s", id, got[id], want)
		}
	}
	if s := containerVerdict(99).String(); s != "unknown" {
		t.Errorf("verdict 99 is %q", s)
	}
}

func TestDecideSandboxes(t *testing.T) {
	sb := func(s string) Sandbox { // pod/minute[/ready]
		p := strings.Split(s, "/")
		n := 0
		_, _ = fmt.Sscan(p[1], &n)
		return Sandbox{ID: s, Pod: types.UID(p[0]), CreatedAt: minute(n), Ready: len(p) > 2}
	}
	for _, tc := range []struct {
		name     string
		in, used string
		all      bool
		unready  bool
		gone     string
	}{
		{name: "of a gone pod", in: "g/1", gone: "g/1"},
		{name: "of a gone pod, with containers", in: "g/1", used: "g/1"},
		{name: "ready", in: "g/1/ready l/2/ready"},
		{name: "older of two", in: "l/1 l/2", gone: "l/1"},
		{name: "older of two is in use", in: "l/1 l/2", used: "l/1"},
		{name: "newest is in use", in: "l/1 l/2/ready", used: "l/2/ready", gone: "l/1"},
		{name: "all of a gone pod", in: "g/2 g/1", gone: "g/1 g/2"},
		{name: "of one that is over", in: "o/1 o/2", gone: "o/1"},
		{name: "all of one that is over", in: "o/1 o/2 l/3", all: true, gone: "o/1 o/2"},
		{name: "sources not ready", in: "g/1 g/2", unready: true, gone: "g/1"},
	} {
		s := situation{Pods: podState, All: tc.all, Now: minute(60)}
		if tc.unready {
			s.Pods = nil
		}
		var sandboxes []Sandbox
		for _, x := range strings.Fields(tc.in) {
			sandboxes = append(sandboxes, sb(x))
		}
		var used []Container
		for _, x := range strings.Fields(tc.used) {
			used = append(used, Container{Sandbox: x})
		}
		var gone []string
		for _, x := range decideSandboxes(s, sandboxes, used) {
			gone = append(gone, x.ID)
		}
		if got := strings.Join(gone, " "); got != tc.gone {
			t.Errorf("%s: removed %q, want %q", tc.name, got, tc.gone)
		}
	}
}

// Whatever there is and whatever the limits are: what runs or is being started
// stays, and of each container of a pod that lives the newest dead instance;
// only as much goes as a limit asks for; order of the input does not matter.
func TestDecideContainersProperties(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	states := []string{"run", "made", "lost", "dead", "dead", "dead"}
	for range 3000 {
		var in []string
		for i := range rnd.IntN(12) {
			in = append(in, fmt.Sprintf("%c%d/%c/%d/%s", "gol"[rnd.IntN(3)], rnd.IntN(2), "ab"[rnd.IntN(2)], i, states[rnd.IntN(len(states))]))
		}
		p := ContainerPolicy{MaxPerContainer: rnd.IntN(4) - 1, MaxContainers: rnd.IntN(6) - 1}
		s := situation{Pods: podState, All: rnd.IntN(2) == 0, Now: minute(60)}
		if rnd.IntN(4) == 0 {
			s.Pods = nil
		}
		all := instances(in...)
		verdicts := decideContainers(p, s, all)
		left, newest := map[string]int{}, map[string]Container{}
		total, needed := 0, 0
		for _, v := range verdicts {
			unit := string(v.Pod) + "/" + v.Name
			dead := v.State != observed.Running && !(v.State == observed.Created && s.pod(v.Pod) == Live)
			if !dead && v.Verdict == containerRemove {
				t.Fatalf("%v %+v: %s is removed", in, p, v.ID)
			}
			if dead && (newest[unit].ID == "" || v.CreatedAt.After(newest[unit].CreatedAt)) {
				newest[unit] = v.Container
			}
			if dead && v.Verdict != containerRemove {
				left[unit]++
				total++
				if v.Verdict == containerNeeded {
					needed++
				}
			}
			if v.Verdict != containerRemove && s.pod(v.Pod) == Deleted && dead {
				t.Fatalf("%v: %s of a gone pod stays", in, v.ID)
			}
		}
		for unit, c := range newest {
			live := s.pod(c.Pod) == Live
			if live && left[unit] == 0 {
				t.Fatalf("%v %+v: nothing is left of %s", in, p, unit)
			}
			bound := p.MaxPerContainer
			if live {
				bound = max(bound, 1)
			}
			if p.MaxPerContainer >= 0 && left[unit] > bound {
				t.Fatalf("%v %+v: %d left of %s", in, p, left[unit], unit)
			}
		}
		if p.MaxContainers >= 0 && total > p.MaxContainers+needed {
			t.Fatalf("%v %+v: %d left, %d of them needed", in, p, total, needed)
		}
		rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		ids := func(vs []judgedContainer) (out []string) {
			for _, v := range vs {
				if v.Verdict == containerRemove {
					out = append(out, v.ID)
				}
			}
			return out
		}
		if a, b := ids(verdicts), ids(decideContainers(p, s, all)); !slices.Equal(a, b) {
			t.Fatalf("%v %+v: %q, and in another order %q", in, p, a, b)
		}
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"default_web_123": "123", "ns_p_a-b-c": "a-b-c", "a_b": "", "a_b_c_d": "", "_b_c": "", "a__c": "", "a_b_": "", "": "", "lost+found": "",
	} {
		if uid, ok := logDirOwner(name); string(uid) != want || ok != (want != "") {
			t.Errorf("owner of %q: %q, %v, want %q", name, uid, ok, want)
		}
	}
	long := strings.Repeat("x", maxFileName-len(linkSuffix)-2) + "-1" + linkSuffix
	for name, want := range map[string]string{"web_default_app-0123abc.log": "0123abc", "-.log": "", "x.log": "x", long: "1"} {
		if id, whole := linkedID(name); id != want || whole != (name != long) {
			t.Errorf("ID in %q: %q, %v, want %q", name, id, whole, want)
		}
	}
}

func FuzzNames(f *testing.F) {
	f.Add("default_web_123", "c0ffee")
	f.Add("a_b_c_d", "")
	f.Fuzz(func(t *testing.T, name, id string) {
		if uid, ok := logDirOwner(name); ok && (uid == "" || strings.Count(name, "_") != 2 || !strings.HasSuffix(name, "_"+string(uid))) {
			t.Errorf("owner of %q: %q", name, uid)
		}
		if !strings.ContainsAny(id, "-") && len(name)+len(id) < 200 {
			if got, whole := linkedID(name + "-" + id + linkSuffix); whole && got != id {
				t.Errorf("ID in a link of %q: %q, want %q", name, got, id)
			}
		}
	})
}
