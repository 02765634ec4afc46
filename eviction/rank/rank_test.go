package rank

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/podmeta"
)

const mem, disk = v1.ResourceMemory, v1.ResourceEphemeralStorage

func pod(name string, priority int32, request int64) *v1.Pod {
	list := v1.ResourceList{}
	if request > 0 {
		list[mem], list[disk] = *resource.NewQuantity(request, resource.BinarySI), *resource.NewQuantity(request, resource.BinarySI)
	}
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PodSpec{
		Priority:   &priority,
		Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: list}}},
		Volumes: []v1.Volume{
			{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
			{Name: "ram", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}},
			{Name: "claim", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}},
			{Name: "host", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{}}},
		},
	}}
}

// uses is a pod that uses n of everything.
func uses(name string, priority int32, request, n int64) Candidate {
	return Candidate{Pod: pod(name, priority, request), Usage: &Usage{
		Memory: n, Processes: n, Containers: []ContainerUsage{{Name: "c", Rootfs: &Disk{n, n}, Logs: &Disk{}}},
	}}
}

func listOf(list []Ranked) string {
	var out []string
	for _, r := range list {
		out = append(out, r.Pod.Name)
	}
	return strings.Join(out, " ")
}

func TestSort(t *testing.T) {
	unknown := Candidate{Pod: pod("unknown", 5, 100)}
	for _, tt := range []struct {
		name   string
		signal Signal
		in     []Candidate
		want   string
	}{
		{"exceeding beats priority", SignalMemory,
			[]Candidate{uses("low-below", 0, 100, 90), uses("high-above", 9, 100, 110)}, "high-above low-below"},
		{"priority beats usage", SignalMemory,
			[]Candidate{uses("high-much", 9, 100, 900), uses("low-little", 0, 100, 110)}, "low-little high-much"},
		{"what is over the request decides, not the usage", SignalMemory,
			[]Candidate{uses("big", 0, 1000, 1010), uses("small", 0, 10, 60)}, "small big"},
		{"below it, too", SignalMemory,
			[]Candidate{uses("far-below", 0, 1000, 900), uses("near", 0, 100, 99)}, "near far-below"},
		{"at the request is not above it", SignalMemory,
			[]Candidate{uses("at", 0, 100, 100), uses("above", 1, 100, 101)}, "above at"},
		{"best effort is above its request of nothing", SignalMemory,
			[]Candidate{uses("burstable", 0, 100, 90), uses("effort", 0, 0, 1)}, "effort burstable"},
		{"no figures come first", SignalMemory,
			[]Candidate{uses("above", 0, 100, 900), unknown}, "unknown above"},
		{"two without are decided by priority", SignalMemory,
			[]Candidate{unknown, {Pod: pod("b", 1, 0)}}, "b unknown"},
		{"equal ones keep their order", SignalMemory,
			[]Candidate{uses("z", 0, 100, 90), uses("a", 0, 100, 90), uses("m", 0, 100, 90)}, "z a m"},
		{"disk as memory", SignalNodeFs,
			[]Candidate{uses("low-below", 0, 100, 90), uses("high-above", 9, 100, 110), unknown}, "unknown high-above low-below"},
		{"processes: priority first, whatever is requested", SignalPIDs,
			[]Candidate{uses("high-many", 9, 0, 900), uses("low-few", 0, 0, 1), uses("low-some", 0, 0, 50)}, "low-some low-few high-many"},
		{"processes: no figures first of a priority only", SignalPIDs,
			[]Candidate{uses("low", 0, 0, 1), unknown, uses("same", 5, 0, 900)}, "low unknown same"},
		{"inodes are compared with a request in bytes", SignalNodeFsInodes,
			[]Candidate{uses("many", 0, 1000, 900), uses("few", 0, 10, 20)}, "few many"},
		{"inodes: none used is not above the request of none", SignalNodeFsInodes,
			[]Candidate{uses("none", 0, 0, 0), uses("one", 9, 0, 1)}, "one none"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := listOf(Sort(Rules{}, tt.signal, tt.in)); got != tt.want {
				t.Errorf("order is %s, want %s", got, tt.want)
			}
		})
	}
	in := []Candidate{uses("many", 0, 1000, 900), uses("few", 0, 10, 20)}
	if got := listOf(Sort(Rules{PlainInodes: true}, SignalNodeFsInodes, in)); got != "many few" {
		t.Errorf("plain inodes: %s", got)
	}
}

func TestPartsByLayout(t *testing.T) {
	c := Candidate{Pod: pod("p", 0, 0), Usage: &Usage{
		Containers: []ContainerUsage{{Name: "c", Rootfs: &Disk{1, 10}, Logs: &Disk{2, 20}}, {Name: "silent"}},
		Volumes: []VolumeUsage{{Name: "scratch", Used: Disk{4, 40}}, {Name: "host", Used: Disk{8, 80}},
			{Name: "ram", Used: Disk{100, 1000}}, {Name: "claim", Used: Disk{100, 1000}}, {Name: "of another pod", Used: Disk{100, 1000}}},
	}}
	for _, tt := range []struct {
		layout                 Layout
		node, image, container int64
	}{
		{LayoutSingle, 15, 15, 15},
		{LayoutDedicated, 14, 1, 1},
		{LayoutSplit, 15, 0, 15},
	} {
		for s, want := range map[Signal]int64{
			SignalNodeFs: tt.node, SignalImageFs: tt.image, SignalContainerFs: tt.container,
			SignalNodeFsInodes: 10 * tt.node, SignalImageFsInodes: 10 * tt.image, SignalContainerFsInodes: 10 * tt.container,
		} {
			if got := Of(Rules{Layout: tt.layout}, s, c).Used; got != want {
				t.Errorf("%v: %s counts %d, want %d", tt.layout, s, got, want)
			}
		}
	}
}

// What a pod has beside layers, logs and volumes counts, too: of two pods of the same
// containers, the one that fills another file goes first.
func TestFilesBesideCount(t *testing.T) {
	c := uses("beside", 0, 0, 10)
	c.Usage.Volumes = []VolumeUsage{{Name: "scratch", Used: Disk{5, 1}}, {Name: "host", Used: Disk{1000, 1000}}}
	c.Usage.EphemeralStorage, c.Usage.EphemeralInodes = 10+5+500, 10+1+3
	for _, tt := range []struct {
		signal Signal
		layout Layout
		want   int64
	}{
		{SignalNodeFs, LayoutSingle, 10 + 5 + 1000 + 500},
		{SignalNodeFsInodes, LayoutSingle, 10 + 1 + 1000 + 3},
		{SignalNodeFs, LayoutDedicated, 5 + 1000 + 500},
		{SignalImageFs, LayoutDedicated, 10},
	} {
		if got := Of(Rules{Layout: tt.layout, PlainInodes: true}, tt.signal, c).Used; got != tt.want {
			t.Errorf("%s, layout %v: %d, want %d", tt.signal, tt.layout, got, tt.want)
		}
	}
}

func TestRequest(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	ctr := func(n int64, sidecar bool) v1.Container {
		c := v1.Container{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{mem: *resource.NewQuantity(n, resource.BinarySI)}}}
		if sidecar {
			c.RestartPolicy = &always
		}
		return c
	}
	overhead := v1.ResourceList{mem: resource.MustParse("7")}
	for _, tt := range []struct {
		name string
		spec v1.PodSpec
		want int64
	}{
		{"containers add up", v1.PodSpec{Containers: []v1.Container{ctr(1, false), ctr(2, false)}}, 3},
		{"the neediest init container", v1.PodSpec{InitContainers: []v1.Container{ctr(9, false), ctr(4, false)}, Containers: []v1.Container{ctr(1, false)}}, 9},
		{"sidecars beside all", v1.PodSpec{InitContainers: []v1.Container{ctr(2, true), ctr(9, false)}, Containers: []v1.Container{ctr(1, false)}}, 11},
		{"an init container before the sidecar", v1.PodSpec{InitContainers: []v1.Container{ctr(9, false), ctr(2, true)}, Containers: []v1.Container{ctr(1, false)}}, 9},
		{"overhead", v1.PodSpec{Containers: []v1.Container{ctr(1, false)}, Overhead: overhead}, 8},
		{"no overhead for nothing", v1.PodSpec{Overhead: overhead}, 0},
		{"the pod's own", v1.PodSpec{Containers: []v1.Container{ctr(1, false)}, Overhead: overhead,
			Resources: &v1.ResourceRequirements{Requests: v1.ResourceList{mem: resource.MustParse("5")}}}, 12},
	} {
		p := &v1.Pod{Spec: tt.spec}
		if got := Request(p, mem); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
		whole := podmeta.Requests(p)
		if q := whole[mem]; tt.want != 0 && q.Value() != tt.want {
			t.Errorf("%s: podmeta has %d", tt.name, q.Value())
		}
	}
}

// The definition of the order, word by word from the specification, with no
// regard to speed.
func composed(rules Rules, s Signal) func(a, b Candidate) int {
	usage := func(c Candidate) int64 { return used(rules, s, c) }
	byStats := func(compare func(a, b Candidate) int) func(a, b Candidate) int {
		return func(a, b Candidate) int {
			switch {
			case a.Usage == nil && b.Usage == nil:
				return 0
			case a.Usage == nil:
				return -1
			case b.Usage == nil:
				return 1
			}
			return compare(a, b)
		}
	}
	limit, subtract := s.Resource(), s.Resource()
	if limit == ResourceInodes {
		subtract = disk
	}
	exceed := byStats(func(a, b Candidate) int {
		ea, eb := usage(a) > Request(a.Pod, limit), usage(b) > Request(b.Pod, limit)
		switch {
		case ea == eb:
			return 0
		case ea:
			return -1
		default:
			return 1
		}
	})
	byPriority := func(a, b Candidate) int { return cmp.Compare(*a.Pod.Spec.Priority, *b.Pod.Spec.Priority) }
	excess := byStats(func(a, b Candidate) int {
		return cmp.Compare(usage(b)-Request(b.Pod, subtract), usage(a)-Request(a.Pod, subtract))
	})
	processes := byStats(func(a, b Candidate) int { return cmp.Compare(usage(b), usage(a)) })
	chain := []func(a, b Candidate) int{exceed, byPriority, excess}
	if s == SignalPIDs {
		chain = []func(a, b Candidate) int{byPriority, processes}
	}
	return func(a, b Candidate) int {
		for _, f := range chain {
			if c := f(a, b); c != 0 {
				return c
			}
		}
		return 0
	}
}

func randomPods(rng *rand.Rand, n int) []Candidate {
	list := make([]Candidate, n)
	for i := range list {
		list[i] = uses(string(rune('a'+i%26)), rng.Int32N(3), rng.Int64N(4), rng.Int64N(6))
		if rng.IntN(5) == 0 {
			list[i].Usage = nil
		}
	}
	return list
}

func TestSortIsTheComposition(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		list := randomPods(rng, 1+rng.IntN(12))
		for _, s := range []Signal{SignalMemory, SignalNodeFs, SignalImageFsInodes, SignalPIDs} {
			rules := Rules{Layout: Layout(rng.IntN(3))}
			want := slices.Clone(list)
			slices.SortStableFunc(want, composed(rules, s))
			got := Sort(rules, s, list)
			for i := range want {
				if got[i].Pod != want[i].Pod {
					t.Fatalf("%s, %v: place %d has %s", s, rules.Layout, i, got[i].Pod.Name)
				}
			}
			checkOrder(t, got)
		}
	}
}

// checkOrder proves of a sorted list that its comparator orders totally: any
// two compare in one way, opposite to the other, and as their places say.
func checkOrder(t *testing.T, list []Ranked) {
	t.Helper()
	for i := range list {
		for j := range list {
			c := compare(&list[i], &list[j])
			if c != -compare(&list[j], &list[i]) || i < j && c > 0 || i == j && c != 0 {
				t.Fatalf("places %d and %d compare as %d", i, j, c)
			}
		}
	}
}

// No priority is that of 0.
func TestNoPriority(t *testing.T) {
	none, below, above := uses("none", 0, 0, 50), uses("below", -1, 0, 1), uses("above", 1, 0, 900)
	none.Pod.Spec.Priority = nil
	for _, s := range []Signal{SignalMemory, SignalNodeFs, SignalPIDs} {
		if got := listOf(Sort(Rules{}, s, []Candidate{above, none, below})); got != "below none above" {
			t.Errorf("%s: %s", s, got)
		}
	}
}

// Parts of a pod that are not known count nothing.
func TestPartsThatAreNotKnown(t *testing.T) {
	c := Candidate{Pod: pod("p", 0, 0), Usage: &Usage{Containers: []ContainerUsage{{Name: "c"}, {Name: "d", Logs: &Disk{3, 4}}}}}
	for s, want := range map[Signal]int64{SignalMemory: 0, SignalPIDs: 0, SignalNodeFs: 3, SignalNodeFsInodes: 4} {
		if got := Of(Rules{}, s, c).Used; got != want {
			t.Errorf("%s: %d, want %d", s, got, want)
		}
	}
}

func TestLocalEphemeral(t *testing.T) {
	for _, tt := range []struct {
		source    v1.VolumeSource
		ephemeral bool
		counts    bool // for the node's disk
	}{
		{v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}, true, true},
		{v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}, false, false},
		{v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumHugePages}}, false, false},
		{v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}, true, true},
		{v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}, true, true},
		{v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{}}, true, true},
		{v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{}}, true, true},
		{v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{}}, false, true},
		{v1.VolumeSource{NFS: &v1.NFSVolumeSource{}}, false, false},
		{v1.VolumeSource{Image: &v1.ImageVolumeSource{}}, false, false},
		{v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}, false, false},
	} {
		v := v1.Volume{Name: "v", VolumeSource: tt.source}
		if got := isLocalEphemeral(&v); got != tt.ephemeral {
			t.Errorf("%+v: ephemeral %v", tt.source, got)
		}
		c := Candidate{Pod: &v1.Pod{Spec: v1.PodSpec{Volumes: []v1.Volume{v}}}, Usage: &Usage{Volumes: []VolumeUsage{{Name: "v", Used: Disk{Bytes: 5}}}}}
		if got := Of(Rules{}, SignalNodeFs, c).Used == 5; got != tt.counts {
			t.Errorf("%+v: counts %v", tt.source, got)
		}
	}
}
