package eviction_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/eviction"
	"github.com/nodewright/nodewright/eviction/rank"
)

func TestNewNamesEveryMistake(t *testing.T) {
	_, err := eviction.New(eviction.Config{
		Transition: -1, Victims: -1,
		Thresholds: []rank.Threshold{{Signal: "x", Grace: -1}, at(rank.SignalMemory, 1), at(rank.SignalMemory, 1)},
		Notify:     []eviction.Notifier{{}},
	})
	for _, want := range []string{"Config.Stats is", "Config.Pods is", "Config.Kill is", "Transition is -1ns", "Victims is -1",
		`Thresholds[0].Signal is "x"`, "Thresholds[0].Grace is -1ns", "Thresholds[2] is the same", "Notify[0].Source", `Notify[0].Signal is ""`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
	n, reg := newNode(), prometheus.NewRegistry()
	cfg := n.config()
	cfg.Metrics = reg
	_, first := eviction.New(cfg)
	if _, second := eviction.New(cfg); first != nil || second != nil {
		t.Errorf("two managers with one registry: %v, %v", first, second)
	}
}

// run has a manager at work for some time and returns whom it evicted.
func run(t *testing.T, n *node, d time.Duration, cfg eviction.Config) (killed []string, m *eviction.Manager) {
	t.Helper()
	m = manager(t, cfg)
	time.Sleep(d)
	synctest.Wait()
	return n.victims(), m
}

func wantKilled(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("evicted %q, want %q", got, want)
	}
}

func TestEvictsTheFirstInRank(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("below", 0, 500, 400)
		n.add("above-high", 9, 100, 300)
		n.add("above-low", 0, 100, 250)
		reg := prometheus.NewRegistry()
		cfg := n.config(at(rank.SignalMemory, 100))
		cfg.Metrics = reg
		killed, m := run(t, n, time.Minute, cfg)
		wantKilled(t, killed, "above-low")
		if g := n.grace["above-low"]; g != 1 {
			t.Errorf("grace at a hard threshold is %d s, want 1", g)
		}
		const message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. " +
			"Container main was using 250Mi, request is 100Mi, has larger consumption of memory. "
		st := n.status["above-low"]
		if st.Phase != v1.PodFailed || st.Reason != "Evicted" || st.Message != message {
			t.Errorf("status is %+v", st)
		}
		if len(st.Conditions) != 1 || st.Conditions[0].Type != v1.DisruptionTarget || st.Conditions[0].Reason != "TerminationByKubelet" {
			t.Errorf("conditions are %+v", st.Conditions)
		}
		if want := []string{"node Warning EvictionThresholdMet: Attempting to reclaim memory", "above-low Warning Evicted: " + message}; !slices.Equal(n.events, want) {
			t.Errorf("events are %q", n.events)
		}
		if a := n.marks["above-low"]; a["offending_containers"] != "main" || a["offending_containers_usage"] != "250Mi" || a["starved_resource"] != "memory" {
			t.Errorf("annotations are %v", a)
		}
		if e, a := samples(t, reg, "kubelet_evictions", "memory.available"), samples(t, reg, "kubelet_eviction_stats_age_seconds", "memory.available"); e != 1 || a != 1 {
			t.Errorf("%v evictions, %v ages of figures", e, a)
		}
		d := m.Decisions()
		if len(d) != 1 || len(d[0].Victims) != 1 || !d[0].Victims[0].Ended || d[0].Need != 50*mi {
			t.Fatalf("decisions are %+v", d)
		}
		order := d[0].Considered
		if len(order) != 3 || order[0].Verdict != eviction.Chosen || order[1].Verdict != eviction.Enough || order[2].Verdict != eviction.WithinRest ||
			order[0].Used != 250*mi || order[0].Request != 100*mi {
			t.Errorf("considered %+v", order)
		}
		if s := d[0].String(); !strings.Contains(s, "default/above-low") {
			t.Errorf("in words: %s", s)
		}
	})
}

func TestNothingBelowTheThreshold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("p", 0, 0, 900) // leaves 100: at the threshold
		killed, m := run(t, n, time.Hour, n.config(at(rank.SignalMemory, 100)))
		wantKilled(t, killed)
		if m.UnderPressure(v1.NodeMemoryPressure) || n.changed() != 0 || len(m.Decisions()) != 0 {
			t.Errorf("pressure %v, %d changes, %v", m.Conditions(), n.changed(), m.Decisions())
		}
		if l := n.looks["memory"]; l < 360 || l > 362 {
			t.Errorf("%d looks in an hour, want one in 10 s", l)
		}
		if n.looks["pods memory"] != 0 || n.looks["pid"] != 0 || n.looks["disk"] == 0 {
			t.Errorf("looked at %v", n.looks)
		}
	})
}

func TestCriticalPodsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("system", 2_000_000_000, 0, 500)
		n.add("static", 0, 0, 450).Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		killed, m := run(t, n, time.Minute, n.config(at(rank.SignalMemory, 100)))
		wantKilled(t, killed)
		if d := m.Decisions(); len(d) != 1 || d[0].Outcome != "no pod to evict" || d[0].Repeats < 5 || d[0].Considered[0].Verdict != eviction.Critical {
			t.Errorf("decisions are %+v", d)
		}
		n.add("ordinary", 1000, 0, 20)
		time.Sleep(11 * time.Second)
		wantKilled(t, n.victims(), "ordinary")
	})
}

func TestSeveralWhenOneIsNotEnough(t *testing.T) {
	for _, tt := range []struct {
		name   string
		need   int64 // to be freed of 1000 in use
		budget int
		want   string
	}{
		{"one is", 90, 4, "a"}, {"two are", 150, 4, "a b"}, {"the budget", 350, 2, "a b"}, {"those within their requests are spared", 500, 9, "a b c"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				n.killTake = time.Second
				for _, name := range []string{"a", "b", "c"} {
					n.add(name, 0, 0, 100)
				}
				n.add("within", 0, 800, 700)
				cfg := n.config(at(rank.SignalMemory, tt.need))
				cfg.Victims = tt.budget
				m := manager(t, cfg)
				time.Sleep(500 * time.Millisecond)
				synctest.Wait()
				killed := n.victims()
				slices.Sort(killed)
				wantKilled(t, killed, strings.Fields(tt.want)...)
				if d := m.Decisions(); len(d) != 1 || len(d[0].Victims) != len(killed) {
					t.Errorf("decisions are %+v", d)
				}
			})
		})
	}
}

func TestThoseWithinTheirRequestsGoOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.killTake = 2 * time.Second
		for _, name := range []string{"a", "b", "c"} {
			n.add(name, 0, 400, 333)
		}
		m := manager(t, n.config(at(rank.SignalMemory, 500)))
		time.Sleep(time.Second)
		synctest.Wait()
		if k := n.victims(); len(k) != 1 {
			t.Errorf("evicted at once: %q", k)
		}
		time.Sleep(10 * time.Second)
		if k := n.victims(); len(k) != 2 || m.Decisions()[0].Signal != rank.SignalMemory {
			t.Errorf("evicted in all: %q", k)
		}
	})
}

func TestAnEvictionThatHangsHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("stuck", 0, 0, 600)
		n.add("second", 0, 0, 300)
		n.add("within", 0, 100, 50)
		n.hang["stuck"] = true
		m := manager(t, n.config(at(rank.SignalMemory, 100)))
		time.Sleep(4 * time.Second)
		wantKilled(t, n.victims(), "stuck")
		time.Sleep(4 * time.Second) // it is no longer counted on
		wantKilled(t, n.victims(), "stuck", "second")
		time.Sleep(20 * time.Second)
		synctest.Wait()
		wantKilled(t, n.victims(), "stuck", "second")
		if !slices.ContainsFunc(n.events, func(e string) bool { return strings.HasPrefix(e, "stuck Warning ExceededGracePeriod") }) {
			t.Errorf("events are %q", n.events)
		}
		if v := m.Decisions()[0].Victims[0]; v.Error == "" || v.Took != 10*time.Second {
			t.Errorf("the victim is %+v", v)
		}
	})
}

// Files of a pod's volumes may take long to remove: nobody is evicted in place of what they free.
func TestVolumesOfAnEndedPodAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.killTake, n.freeTake = time.Second, 20*time.Second
		n.add("hog", 0, 0, 600)
		n.add("small", 0, 0, 10)
		n.add("within", 0, 100, 50)
		m := manager(t, n.config(at(rank.SignalNodeFs, 500)))
		time.Sleep(time.Minute)
		wantKilled(t, n.victims(), "hog")
		if v := m.Decisions()[0].Victims[0]; !v.Ended || v.Took != time.Second {
			t.Errorf("the victim is %+v", v)
		}
	})
}

func TestVolumesThatDoNotGoAreWaitedForHalfAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.freeTake = time.Hour
		n.add("hog", 0, 0, 600)
		n.add("small", 0, 0, 10)
		manager(t, n.config(at(rank.SignalNodeFs, 500)))
		time.Sleep(29 * time.Second)
		wantKilled(t, n.victims(), "hog")
		time.Sleep(4 * time.Second)
		wantKilled(t, n.victims(), "hog", "small")
	})
}

// Of memory, the figures say at once what the end of processes did not free; pods within
// their requests are not evicted in place of what a volume in memory will.
func TestMemoryOfVolumesIsWaitedForByPodsWithinTheirRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.freeTake = 20 * time.Second
		n.add("hog", 0, 0, 400)
		n.tmpfs["hog"] = 390 * mi
		n.add("second", 0, 0, 100)
		n.add("within", 0, 250, 200)
		m := manager(t, n.config(at(rank.SignalMemory, 450)))
		time.Sleep(10 * time.Second)
		wantKilled(t, n.victims(), "hog", "second")
		time.Sleep(time.Minute)
		wantKilled(t, n.victims(), "hog", "second")
		if m.Decisions()[0].Signal != rank.SignalMemory {
			t.Errorf("decisions are %v", m.Decisions())
		}
	})
}

func TestAnEvictionThatFailsIsTriedAgainLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("refused", 0, 0, 950)
		n.refuse["refused"] = true
		n.add("other", 0, 0, 10)
		killed, _ := run(t, n, 25*time.Second, n.config(at(rank.SignalMemory, 100)))
		wantKilled(t, killed, "refused", "other")
		time.Sleep(20 * time.Second)
		wantKilled(t, n.victims(), "refused", "other", "refused")
	})
}

func TestDecidesOnNewFiguresOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		for _, name := range []string{"a", "b"} {
			n.add(name, 0, 0, 500)
			n.spare[types.UID(name)] = true // the figures do not change by their end
		}
		n.stale = time.Now()
		killed, _ := run(t, n, 12*time.Second, n.config(at(rank.SignalMemory, 100)))
		wantKilled(t, killed, "a")
		n.change(func() { n.stale = n.stale.Add(-time.Hour) })
		time.Sleep(12 * time.Second)
		wantKilled(t, n.victims(), "a")
		n.change(func() { n.stale = time.Now() })
		time.Sleep(2 * time.Second)
		wantKilled(t, n.victims(), "a", "b")
	})
}

func TestRecoveryWhilePodsAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("p", 0, 0, 950)
		n.podsTake = 3 * time.Second
		m := manager(t, n.config(at(rank.SignalMemory, 100)))
		time.Sleep(time.Second)
		n.change(func() { n.set("p", 100) })
		time.Sleep(10 * time.Second)
		wantKilled(t, n.victims())
		if d := m.Decisions(); d[0].Outcome != "recovered before a choice was made" {
			t.Errorf("decisions are %v", d)
		}
	})
}

func TestSoftThreshold(t *testing.T) {
	for _, tt := range []struct{ max, own, want int64 }{{0, 30, 0}, {10, 30, 10}, {60, 30, 30}, {60, -1, 30}, {-1, 45, 45}, {-1, -1, 30}} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode()
			p := n.add("p", 0, 0, 950)
			if tt.own < 0 {
				p.Spec.TerminationGracePeriodSeconds = nil
			} else {
				p.Spec.TerminationGracePeriodSeconds = &tt.own
			}
			soft := at(rank.SignalMemory, 100)
			soft.Grace = 95 * time.Second
			cfg := n.config(soft)
			cfg.MaxPodGraceSeconds = tt.max
			m := manager(t, cfg)
			time.Sleep(94 * time.Second)
			synctest.Wait()
			if len(n.victims()) != 0 || !m.UnderPressure(v1.NodeMemoryPressure) {
				t.Errorf("before its grace: evicted %q, conditions %v", n.victims(), m.Conditions())
			}
			time.Sleep(time.Second + time.Millisecond)
			wantKilled(t, n.victims(), "p")
			if n.grace["p"] != tt.want {
				t.Errorf("at most %d, own %d: it got %d s, want %d", tt.max, tt.own, n.grace["p"], tt.want)
			}
		})
	}
}

func TestSoftGraceBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("p", 0, 0, 950)
		soft := at(rank.SignalMemory, 100)
		soft.Grace = time.Minute
		manager(t, n.config(soft))
		time.Sleep(50 * time.Second)
		n.change(func() { n.set("p", 500) })
		time.Sleep(11 * time.Second)
		n.change(func() { n.set("p", 950) })
		time.Sleep(55 * time.Second)
		wantKilled(t, n.victims())
		time.Sleep(20 * time.Second)
		wantKilled(t, n.victims(), "p")
	})
}

func TestMissingFiguresDoNotResetGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("p", 0, 0, 950)
		soft := at(rank.SignalMemory, 100)
		soft.Grace = time.Minute
		cfg := n.config(soft)
		cfg.IgnoreLimits = true
		m := manager(t, cfg)
		time.Sleep(30 * time.Second)
		n.change(func() { n.statErr = errors.New("no figures") })
		time.Sleep(35 * time.Second)
		wantKilled(t, n.victims())
		n.change(func() { n.statErr = nil })
		time.Sleep(2 * time.Second)
		wantKilled(t, n.victims(), "p")
		if !m.UnderPressure(v1.NodeMemoryPressure) {
			t.Error(m.Conditions())
		}
	})
}

func TestMinimumReclaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("a", 0, 0, 60)
		n.add("b", 0, 0, 55)
		n.add("within", 0, 900, 800)
		th := at(rank.SignalMemory, 100)
		th.MinReclaim.Value = 100 * mi
		cfg := n.config(th)
		cfg.Victims = 1
		killed, m := run(t, n, 30*time.Second, cfg)
		wantKilled(t, killed, "a", "b") // 100+100 is above 145, and not above 200
		if d := m.Decisions(); len(d) != 2 || d[1].Available != 145*mi || d[1].Need != 55*mi {
			t.Errorf("decisions are %v", d)
		}
	})
}

func TestTransition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("p", 2_000_000_000, 0, 950)
		m := manager(t, n.config(at(rank.SignalMemory, 100)))
		time.Sleep(time.Minute - time.Second)
		n.change(func() { n.set("p", 100) }) // last seen to be low at 50 s
		time.Sleep(50*time.Second + 4*time.Minute)
		synctest.Wait()
		if !m.UnderPressure(v1.NodeMemoryPressure) || n.changed() != 1 {
			t.Errorf("before the end of the transition: %v, %d changes", m.Conditions(), n.changed())
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if m.UnderPressure(v1.NodeMemoryPressure) || n.changed() != 2 {
			t.Errorf("after it: %v, %d changes", m.Conditions(), n.changed())
		}
	})
}

func TestConditionsTaintsAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("p", 2_000_000_000, 0, 950)
		cfg := n.config(at(rank.SignalMemory, 100), at(rank.SignalPIDs, 1))
		idle, err := eviction.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		m := manager(t, cfg)
		pod := func(request string, priority int32, tolerate ...v1.Toleration) *v1.Pod {
			p := &v1.Pod{Spec: v1.PodSpec{Priority: &priority, Tolerations: tolerate, Containers: []v1.Container{{}}}}
			if request != "" {
				p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse(request)}
			}
			return p
		}
		exists := v1.Toleration{Key: v1.TaintNodeMemoryPressure, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule}
		all := v1.Toleration{Operator: v1.TolerationOpExists}
		equal := v1.Toleration{Key: v1.TaintNodeMemoryPressure}
		other := v1.Toleration{Key: v1.TaintNodeDiskPressure, Operator: v1.TolerationOpExists}
		wrong := v1.Toleration{Key: v1.TaintNodeMemoryPressure, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}
		if r := idle.Admit(pod("", 0)); r != nil {
			t.Errorf("without pressure: %v", r)
		}
		synctest.Wait()
		for _, tt := range []struct {
			name                 string
			pod                  *v1.Pod
			onMemory, onMemoryPI bool
		}{
			{"best effort", pod("", 0), false, false}, {"burstable", pod("1Mi", 0), true, false}, {"critical", pod("", 2_000_000_000), true, true},
			{"tolerates by key", pod("", 0, exists), true, false}, {"tolerates all", pod("", 0, all), true, false},
			{"tolerates by equality", pod("", 0, equal), true, false}, {"tolerates another", pod("", 0, other), false, false},
			{"tolerates another effect", pod("", 0, wrong), false, false},
		} {
			if r := m.Admit(tt.pod); (r == nil) != tt.onMemory {
				t.Errorf("%s under memory pressure: %v", tt.name, r)
			}
		}
		n.change(func() { n.pids = 900 })
		time.Sleep(11 * time.Second)
		r := m.Admit(pod("1Mi", 0))
		if r == nil || r.Reason != "Evicted" || r.Message != "The node had condition: [MemoryPressure PIDPressure]. " {
			t.Errorf("with two conditions: %+v", r)
		}
		if r := m.Admit(pod("", 2_000_000_000)); r != nil {
			t.Errorf("critical, with two conditions: %+v", r)
		}
		var got []string
		for _, c := range m.Conditions() {
			got = append(got, string(c.Type)+"="+string(c.Status)+":"+c.Reason)
		}
		want := []string{"MemoryPressure=True:KubeletHasInsufficientMemory", "DiskPressure=False:KubeletHasNoDiskPressure", "PIDPressure=True:KubeletHasInsufficientPID"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
	})
}

// told is a notifier in memory.
type told struct {
	wake   chan string
	fail   int
	runs   int
	levels []int64
	aims   int
}

func (s *told) Run(ctx context.Context, wake func(string)) error {
	if s.runs++; s.runs <= s.fail {
		return errors.New("not here")
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case cause := <-s.wake:
			wake(cause)
		}
	}
}

func (s *told) Aim(levels []int64) error { s.aims++; s.levels = levels; return nil }

func TestNotifier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("p", 0, 0, 100)
		s := &told{wake: make(chan string), fail: 2}
		soft := at(rank.SignalMemory, 200)
		soft.Grace = time.Minute
		cfg := n.config(at(rank.SignalMemory, 100), soft, at(rank.SignalAllocatableMemory, 50))
		cfg.Notify = []eviction.Notifier{{Source: s, Signal: rank.SignalMemory}}
		m := manager(t, cfg)
		time.Sleep(13 * time.Second)
		n.change(func() { n.set("p", 970) })
		s.wake <- "psi some"
		synctest.Wait()
		wantKilled(t, n.victims(), "p")
		if d := m.Decisions(); d[0].Cause != "psi some" || s.runs != 3 {
			t.Errorf("decisions are %v, after %d runs", d, s.runs)
		}
		if want := []int64{900*mi + 7, 800*mi + 7}; !slices.Equal(s.levels, want) || s.aims > 3 {
			t.Errorf("aimed %d times, at %v", s.aims, s.levels)
		}
	})
}

func TestAFallingFigureIsWatchedMoreClosely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("p", 0, 0, 100)
		manager(t, n.config(at(rank.SignalMemory, 100)))
		time.Sleep(10*time.Second + time.Millisecond)
		for used := int64(100); used < 900; used += 10 { // 20 a second
			n.change(func() { n.set("p", used) })
			time.Sleep(500 * time.Millisecond)
		}
		wantKilled(t, n.victims())
		n.change(func() { n.set("p", 910) })
		time.Sleep(time.Second)
		wantKilled(t, n.victims(), "p")
		if l := n.looks["memory"]; l > 20 {
			t.Errorf("%d looks", l)
		}
	})
}

func TestStopsWithItsEvictions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("p", 0, 0, 950)
		n.hang["p"] = true
		m, _ := eviction.New(n.config(at(rank.SignalMemory, 100)))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := m.Run(ctx); err != nil {
			t.Errorf("Run = %v", err)
		}
		wantKilled(t, n.victims(), "p")
	})
}
