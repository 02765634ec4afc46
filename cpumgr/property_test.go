package cpumgr

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/nodewright/nodewright/numa"
)

// randomPod has init containers, sidecars and regular ones, whole CPUs and
// fractions, and sometimes resources of its own.
func randomPod(r *rand.Rand, uid string) numa.Pod {
	pod := numa.Pod{UID: uid, Guaranteed: r.IntN(8) > 0}
	var total int64
	add := func(kind numa.Kind) {
		c := container(fmt.Sprint(len(pod.Containers)), kind, []int64{500, 1000, 1000, 2000, 2000, 3000, 4000, 6000}[r.IntN(8)])
		c.Bound = r.IntN(4) > 0
		total += c.MilliCPU
		pod.Containers = append(pod.Containers, c)
	}
	for range r.IntN(3) {
		add([]numa.Kind{numa.Init, numa.Init, numa.Sidecar}[r.IntN(3)])
	}
	for range 1 + r.IntN(2) {
		add(numa.Regular)
	}
	if r.IntN(3) == 0 {
		pod.Resources = &numa.Resources{MilliCPU: (total + 999) / 1000 * 1000, Bound: true}
	}
	return pod
}

func randomOptions(r *rand.Rand) Options {
	for {
		flip := func() bool { return r.IntN(3) == 0 }
		o := Options{flip(), flip(), flip(), flip(), flip(), flip(), flip(), true}
		if o.validate() == nil {
			return o
		}
	}
}

func randomMachine(r *rand.Rand) numa.Machine {
	switch r.IntN(8) {
	case 0:
		return hybrid()
	case 1:
		return machineD()
	case 2:
		return numa.Uniform(3, 4, 2, 2, 0)
	default:
		cores := 2 + r.IntN(6)
		return withCaches(numa.Uniform(1+r.IntN(2), 1+r.IntN(3), cores, 1+r.IntN(2), 0), 1+r.IntN(cores))
	}
}

// enters checks that the steps of a diff never bring a container onto CPUs that
// are to be another's while that, or anyone else, is not where it should be.
func enters(t *testing.T, from, to State) {
	t.Helper()
	type who struct{ pod, name string }
	at := map[who]numa.CPUSet{{}: from.Shared()}
	for uid, name := range containersOf(from, to) {
		at[who{uid, name}] = from.Wanted(uid, name)
	}
	for _, step := range Diff(from, to) {
		me := who{step.Pod, step.Container}
		mine := to.Exclusive(step.Pod, step.Container)
		for other, cpus := range at {
			entered := step.CPUs.Minus(at[me]).Intersect(mine)
			if other != me && other.pod != me.pod && entered.IntersectLen(cpus) > 0 {
				t.Fatalf("%v enters %s while %v is on %s", me, entered, other, cpus)
			}
		}
		at[me] = step.CPUs
	}
	for uid, name := range containersOf(from, to) {
		if !at[who{uid, name}].Equal(to.Wanted(uid, name)) {
			t.Fatalf("container %s of %s ends on %s; want %s", name, uid, at[who{uid, name}], to.Wanted(uid, name))
		}
	}
	if !at[who{}].Equal(to.Shared()) {
		t.Fatalf("the pool ends on %s, want %s", at[who{}], to.Shared())
	}
}

// For any sequence of pods that start, resize and end: states are valid (no CPU twice, none of
// the reserved ones, none lost), sizes are right, earlier states do not change, each state can be
// rebuilt from its records, and the last state equals the first.
func TestLives(t *testing.T) {
	rounds := 100
	if testing.Short() {
		rounds = 30
	}
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 5))
		m := randomMachine(r)
		o := randomOptions(r)
		p, err := NewStatic(m, Reservation{MilliCPU: 1 + r.Int64N(3000)}, o)
		if err != nil {
			continue // more is reserved than there is
		}
		s := p.Start()
		pods := map[string]numa.Pod{}
		for i := range 60 {
			before, words := s, fmt.Sprint(s)
			var what string
			var err error
			uid := fmt.Sprint(r.IntN(12))
			pod, known := pods[uid]
			switch k := r.IntN(10); {
			case !known:
				pod = randomPod(r, uid)
				what = "allocate"
				if s, err = admit(p, s, pod, r.IntN(2) == 0); err == nil {
					pods[uid] = pod
				} else {
					s = before
				}
			case k < 4:
				what = "release"
				s = p.Release(s, uid, "")
				delete(pods, uid)
			case k < 7:
				what = "resize"
				c := r.IntN(len(pod.Containers))
				milli := int64(1+r.IntN(5)) * 1000
				if s, err = p.Resize(s, pod, c, milli); err == nil && pod.Guaranteed {
					pod.Containers[c].MilliCPU = milli
				}
			default:
				what = "allocate again"
				s, err = admit(p, s, pod, r.IntN(2) == 0)
				if err != nil {
					s = before // the unassigned rest may not fit
				}
				for _, c := range before.pods[uid].Containers {
					if got := s.Wanted(uid, c.Name); !got.Equal(c.CPUs) {
						t.Fatalf("seed %d, %d: container %s of %+v moved to %s from %s", seed, i, c.Name, pod, got, c.CPUs)
					}
				}
			}
			if problems := p.Validate(s); len(problems) > 0 {
				t.Fatalf("seed %d, %d: %s of %+v: %v", seed, i, what, pod, problems)
			}
			if fmt.Sprint(before) != words {
				t.Fatalf("seed %d, %d: %s changed the state of before", seed, i, what)
			}
			for uid, pod := range pods {
				for _, c := range pod.Containers {
					if got := s.Exclusive(uid, c.Name); !got.Empty() && got.Len() != p.wants(pod, c) {
						t.Fatalf("seed %d, %d: %s of %+v: %s has %s", seed, i, what, pod, c.Name, got)
					}
				}
			}
			if o.FullPCPUsOnly && err == nil && what != "resize" {
				for _, uid := range s.Pods() {
					if held := s.pods[uid].held(); !p.l.whole(held) {
						t.Fatalf("seed %d, %d: %s of %+v: %s is not of whole cores", seed, i, what, pod, held)
					}
				}
			}
			enters(t, before, s)
			p.Stats(s)
		}
		has := map[string]map[string]numa.CPUSet{}
		var list []numa.Pod
		for _, uid := range s.Pods() {
			data, err := s.EncodePod(uid)
			if err != nil {
				t.Fatal(err)
			}
			kept, err := DecodePod(data)
			if err != nil {
				t.Fatalf("seed %d: %s: %v", seed, data, err)
			}
			has[uid] = kept.ByContainer()
			list = append(list, pods[uid])
		}
		if again, problems := Rebuild(p, list, has); len(problems) > 0 || !again.Equal(s) {
			t.Fatalf("seed %d: %v was rebuilt as %v, %v", seed, s, again, problems)
		}
		for _, uid := range s.Pods() {
			for _, c := range s.pods[uid].Containers {
				s = p.Release(s, uid, c.Name)
			}
		}
		if !s.Equal(p.Start()) {
			t.Fatalf("seed %d: ends with %v", seed, s)
		}
	}
}

// admit allocates for a pod as a topology manager does: as a whole, or one
// container after the other, with a hint that was given.
func admit(p *Static, s State, pod numa.Pod, whole bool) (State, error) {
	pick := func(h numa.Hints) numa.Hint {
		if h.Any || len(h.List) == 0 {
			return numa.Hint{}
		}
		return h.List[0]
	}
	if whole {
		return p.Allocate(s, pod, WholePod, pick(p.Hints(s, pod, WholePod)))
	}
	var err error
	for i := range pod.Containers {
		if s, err = p.Allocate(s, pod, i, pick(p.Hints(s, pod, i))); err != nil {
			return s, err
		}
	}
	return s, nil
}

// A hint is a promise: with one, CPUs come from its nodes alone; without any,
// there are not enough.
func TestHintsAreKept(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 6))
		m := randomMachine(r)
		p, err := NewStatic(m, Reservation{MilliCPU: 1000}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		s := p.Start()
		if taken := some(r, p.Allocatable(), r.IntN(90)); !taken.Empty() {
			s = s.WithPod(PodCPUs{UID: "other", Containers: []ContainerCPUs{{Name: "0", CPUs: taken}}})
		}
		pod := guaranteed("a", 1+r.Int64N(int64(m.AllCPUs().Len())))
		h := p.Hints(s, pod, 0)
		if len(h.List) == 0 {
			if next, err := p.Allocate(s, pod, 0, numa.Hint{}); err == nil {
				t.Fatalf("seed %d: %s without a hint", seed, next.Exclusive("a", "0"))
			}
		}
		for _, hint := range h.List {
			next, err := p.Allocate(s, pod, 0, hint)
			if err != nil || !next.Exclusive("a", "0").SubsetOf(m.CPUsOf(hint.Nodes)) {
				t.Fatalf("seed %d: %s of %s, %v", seed, next.Exclusive("a", "0"), hint.Nodes, err)
			}
			if again := p.Hints(next, pod, 0); len(again.List) == 0 {
				t.Fatalf("seed %d: no hints of what is assigned", seed)
			}
		}
	}
}

// An allocation depends on which CPUs are free, not on the earlier allocations.
func TestOrderDoesNotLeak(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		m := randomMachine(r)
		p, err := NewStatic(m, Reservation{MilliCPU: 1000}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		free := p.Allocatable().IDs()
		r.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
		cut := len(free) / 2
		one := PodCPUs{UID: "x", Containers: []ContainerCPUs{{Name: "0", CPUs: numa.CPUs(free[:cut]...)}}}
		two := PodCPUs{UID: "y", Containers: []ContainerCPUs{{Name: "0", CPUs: numa.CPUs(free[cut])}, {Name: "1", CPUs: numa.CPUs(free[cut])}}}
		a := p.Start().WithPod(one).WithPod(two).Without("y", "1")
		b := p.Start().WithPod(two).Without("y", "1").WithPod(PodCPUs{UID: "z", Containers: one.Containers}).Without("z", "").WithPod(one)
		if !a.Equal(b) {
			t.Fatalf("seed %d: %v and %v", seed, a, b)
		}
		pod := guaranteed("a", 1+r.Int64N(int64(len(free))))
		left, errA := p.Allocate(a, pod, 0, numa.Hint{})
		right, errB := p.Allocate(b, pod, 0, numa.Hint{})
		if !left.Equal(right) || (errA == nil) != (errB == nil) {
			t.Fatalf("seed %d: %v and %v", seed, left, right)
		}
	}
}
