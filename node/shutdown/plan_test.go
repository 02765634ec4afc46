package shutdown

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const sec = time.Second

func pod(name string, priority int32, grace int64) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID("uid-" + name)}}
	if priority != none {
		p.Spec.Priority = &priority
	}
	if grace != none {
		p.Spec.TerminationGracePeriodSeconds = &grace
	}
	return p
}

// none stands for a field that is not set.
const none = -1

func TestSplit(t *testing.T) {
	for _, tt := range []struct {
		requested, critical time.Duration
		want                []Group
	}{
		{30 * sec, 10 * sec, []Group{{0, 20 * sec}, {systemCritical, 10 * sec}}},
		{30 * sec, 0, []Group{{0, 30 * sec}, {systemCritical, 0}}},
		{30 * sec, 30 * sec, []Group{{0, 0}, {systemCritical, 30 * sec}}},
		{10 * sec, 30 * sec, nil},
		{0, 0, nil},
		{0, 10 * sec, nil},
		{-1, 0, nil},
		{10 * sec, -1, nil},
	} {
		if got := splitPeriods(tt.requested, tt.critical); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("Split(%v, %v) = %v; want %v", tt.requested, tt.critical, got, tt.want)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		name                string
		requested, critical time.Duration
		groups              []Group
		want                []string // in the error; none: no error
	}{
		{"off", 0, 0, nil, nil},
		{"the kubelet's", 30 * sec, 10 * sec, nil, nil},
		{"equal", 10 * sec, 10 * sec, nil, nil},
		{"groups", 0, 0, []Group{{10, sec}, {0, 0}, {-5, sec}}, nil},
		{"critical above requested", sec, 2 * sec, nil, []string{"Critical is 2s", "at most Requested, 1s"}},
		{"parts of a second", 1500 * time.Millisecond, 10 * time.Millisecond, nil, []string{"Requested is 1.5s", "Critical is 10ms"}},
		{"negative", -sec, -sec, nil, []string{"Requested is -1s", "Critical is -1s"}},
		{"both ways", sec, 0, []Group{{0, sec}}, []string{"one or the other"}},
		{"all of it", sec, 2 * sec, []Group{{7, -sec}, {7, 1}}, []string{"Critical", "one or the other", "Groups[0].Time", "Groups[1].Time", "Groups[1].Priority is 7"}},
	} {
		err := validateGroups(tt.requested, tt.critical, tt.groups)
		if (err == nil) != (len(tt.want) == 0) {
			t.Errorf("%s: %v", tt.name, err)
		}
		for _, w := range tt.want {
			if !strings.Contains(fmt.Sprint(err), w) {
				t.Errorf("%s: %v; want %q in it", tt.name, err, w)
			}
		}
	}
}

func TestPlan(t *testing.T) {
	split := splitPeriods(30*sec, 10*sec)
	many := []Group{{1000, 30 * sec}, {10, 10 * sec}, {100000, 20 * sec}, {-10, 5 * sec}}
	for _, tt := range []struct {
		name   string
		groups []Group
		pods   []*v1.Pod
		want   string
	}{
		{"grace", split, []*v1.Pod{pod("less", 0, 10), pod("more", 0, 1000), pod("unset", 0, none), pod("zero", 0, 0), pod("negative", 0, -7), pod("critical", systemCritical, 1000)},
			"0: less 10, more 20, unset 20, zero 0, negative 0; 2000000000: critical 10"},
		{"a group of 0 s", splitPeriods(30*sec, 30*sec), []*v1.Pod{pod("a", 0, 10), pod("b", none, none)}, "0: a 0, b 0"},
		{"between, below, above", many, []*v1.Pod{pod("above", 2000000000, none), pod("at", 1000, none), pod("between", 999, none), pod("below", -100, none), pod("unset", none, none)},
			"-10: below 5, unset 5; 10: between 10; 1000: at 30; 100000: above 20"},
		{"nobody", many, nil, ""},
		{"no groups", nil, []*v1.Pod{pod("a", 0, 10)}, ""},
	} {
		var steps []string
		for _, s := range Plan(tt.groups, tt.pods) {
			var kills []string
			for _, k := range s.Kills {
				kills = append(kills, fmt.Sprintf("%s %d", k.Pod.Name, k.Grace))
			}
			steps = append(steps, fmt.Sprintf("%d: %s", s.Group.Priority, strings.Join(kills, ", ")))
		}
		if got := strings.Join(steps, "; "); got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, got, tt.want)
		}
	}
}

// Whatever the groups and the pods: every pod has one turn, no pod goes before
// one of a lower group, and no grace is longer than it may be.
func TestPlanProperties(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		var groups []Group
		for p := range r.IntN(6) {
			groups = append(groups, Group{Priority: int32(p*10 - 20), Time: time.Duration(r.IntN(40)) * sec})
		}
		r.Shuffle(len(groups), func(i, j int) { groups[i], groups[j] = groups[j], groups[i] })
		var pods []*v1.Pod
		for i := range r.IntN(20) {
			pods = append(pods, pod(fmt.Sprint(i), int32(r.IntN(80)-40), int64(r.IntN(60)-1)))
		}
		steps, seen := Plan(groups, pods), map[string]bool{}
		for i, s := range steps {
			if i > 0 && steps[i-1].Group.Priority >= s.Group.Priority {
				t.Fatalf("seed %d: turns are not in order", seed)
			}
			for _, k := range s.Kills {
				if seen[k.Pod.Name] {
					t.Fatalf("seed %d: pod %s has two turns", seed, k.Pod.Name)
				}
				seen[k.Pod.Name] = true
				own := k.Pod.Spec.TerminationGracePeriodSeconds
				if k.Grace < 0 || time.Duration(k.Grace)*sec > s.Group.Time || own != nil && k.Grace > max(*own, 0) {
					t.Fatalf("seed %d: grace %d", seed, k.Grace)
				}
				for _, g := range groups {
					if p := k.Pod.Spec.Priority; p != nil && g.Priority <= *p && g.Priority > s.Group.Priority {
						t.Fatalf("seed %d: pod of priority %d is in group %d, not %d", seed, *p, s.Group.Priority, g.Priority)
					}
				}
			}
		}
		if len(groups) > 0 && len(seen) != len(pods) {
			t.Fatalf("seed %d: %d of %d pods have a turn", seed, len(seen), len(pods))
		}
	}
}
