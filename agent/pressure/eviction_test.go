package pressure_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/pressure"
	block "github.com/nodewright/nodewright/eviction"
	"github.com/nodewright/nodewright/eviction/rank"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podworker"
	"github.com/nodewright/nodewright/record"
)

const mi = 1 << 20

// figures are those of a node with 1000 Mi of memory.
type figures struct {
	mu   sync.Mutex
	free int64               // Mi
	pods map[types.UID]int64 // Mi
	hang chan struct{}       // not nil: questions about memory block until it is closed
}

func (f *figures) set(free int64, pods map[types.UID]int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.free, f.pods = free, pods
}

func (f *figures) Memory(context.Context) (block.Memory, error) {
	f.mu.Lock()
	hang := f.hang
	f.mu.Unlock()
	if hang != nil {
		<-hang
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return block.Memory{Node: &block.MemoryFigure{Observation: rank.Observation{Available: f.free * mi, Capacity: 1000 * mi, Time: time.Now()}}}, nil
}

func (f *figures) Disks(context.Context) (block.Disks, error) { return block.Disks{}, nil }

func (f *figures) Processes(context.Context) (rank.Observation, error) {
	return rank.Observation{Available: 1000, Capacity: 1000}, nil
}

func (f *figures) Pods(_ context.Context, pods []*v1.Pod, _ block.Want) (map[types.UID]*rank.Usage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[types.UID]*rank.Usage{}
	for _, p := range pods {
		out[p.UID] = &rank.Usage{Time: time.Now(), Memory: f.pods[p.UID] * mi, Containers: []rank.ContainerUsage{{Name: "c", Memory: f.pods[p.UID] * mi}}}
	}
	return out, nil
}

// evictionNode is a part that runs, of a host whose pods can be ended.
type evictionNode struct {
	*pressure.Eviction
	*figures
	t    *testing.T
	host *agenttest.Host
	ends []podlife.Cause
	stop func()
}

// newEvictionNode evicts below 100 Mi. It must be stopped.
func newEvictionNode(t *testing.T, change func(*pressure.EvictionConfig)) *evictionNode {
	t.Helper()
	n := &evictionNode{t: t, figures: &figures{free: 500}, host: agenttest.NewHost(t)}
	cfg := pressure.EvictionConfig{Stats: n.figures, Thresholds: []rank.Threshold{{Signal: rank.SignalMemory, Value: rank.Amount{Value: 100 * mi}}}}
	if change != nil {
		change(&cfg)
	}
	p, err := pressure.NewEviction(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Join(n.host); err != nil {
		t.Fatal(err)
	}
	n.Eviction = p
	n.host.OnEnd(func(pod *v1.Pod, why podlife.Cause) error {
		n.figures.mu.Lock()
		defer n.figures.mu.Unlock()
		n.ends = append(n.ends, why)
		n.free += n.pods[pod.UID]
		st := v1.PodStatus{Phase: v1.PodRunning}
		why.Apply(&st)
		n.host.SetStatus(pod.UID, st)
		return nil
	})
	n.stop = agenttest.RunPart(t, p)
	return n
}

func newEvictionPod(name, request string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)}}
	p.Spec.Containers = []v1.Container{{Name: "c"}}
	if request != "" {
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse(request)}
	}
	return p
}

func static(p *v1.Pod) *v1.Pod {
	p.Annotations = map[string]string{podmeta.AnnotationSource: "file"}
	return p
}

func (n *evictionNode) underPressure() bool {
	return slices.ContainsFunc(n.Pressure(), func(c v1.NodeCondition) bool {
		return c.Type == v1.NodeMemoryPressure && c.Status == v1.ConditionTrue
	})
}

func (n *evictionNode) has(call string) bool {
	return slices.ContainsFunc(n.host.Calls(), func(c string) bool { return strings.HasPrefix(c, call) })
}

func (n *evictionNode) status(p *v1.Pod) v1.PodStatus {
	st, _ := n.host.Status(p.UID)
	return st
}

// The pod that uses more than it requests ends, as evicted, and the others stay;
// pods that come meanwhile are rejected, and all of it can be asked about.
func TestEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes atomic.Int32
		n := newEvictionNode(t, func(c *pressure.EvictionConfig) { c.Changed = func() { changes.Add(1) } })
		hog, good, fixed := newEvictionPod("hog", "10Mi"), newEvictionPod("good", "300Mi"), static(newEvictionPod("fixed", ""))
		n.host.SetPods(hog, good, fixed)
		n.set(50, map[types.UID]int64{"uid-hog": 300, "uid-good": 200, "uid-fixed": 400})
		time.Sleep(15 * time.Second)
		synctest.Wait()
		st := n.status(hog)
		if st.Phase != v1.PodFailed || st.Reason != "Evicted" || !strings.HasPrefix(st.Message, "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi.") {
			t.Errorf("hog: %s %s %q", st.Phase, st.Reason, st.Message)
		}
		if len(n.ends) != 1 || !n.ends[0].Evicts() {
			t.Errorf("ends %+v", n.ends)
		}
		calls := n.host.Calls()
		for _, want := range []string{"event default/hog Warning Evicted: ", "node event Warning EvictionThresholdMet: ", "end default/hog grace=1", "readmit", "housekeep"} {
			if !slices.ContainsFunc(calls, func(c string) bool { return strings.HasPrefix(c, want) }) {
				t.Errorf("no %q among %q", want, calls)
			}
		}
		if !slices.ContainsFunc(n.host.Recorded(), func(f record.Fact) bool {
			c, is := f.(*record.Condition)
			return is && *c == record.Condition{Type: "MemoryPressure", On: true, Reason: "KubeletHasInsufficientMemory"}
		}) {
			t.Error("the condition is not recorded")
		}
		why := local.NodeWhy{Name: "n1"}
		n.ExplainNode(&why)
		if len(why.Decisions) != 1 || !strings.Contains(strings.Join(why.Decisions[0].Lines, "\n"), "default/hog (priority 0) uses 300Mi, requests 10Mi: chosen") ||
			why.Decisions[0].Available != "50Mi" || len(why.Figures) != 1 || why.Figures[0].Threshold != "100Mi" || len(why.Conditions) != 3 || why.Name != "n1" {
			t.Errorf("why %+v", why)
		}
		if r := n.Admit(newEvictionPod("late", ""), nil); r == nil || r.Reason != "Evicted" || !strings.Contains(r.Message, "MemoryPressure") || r.Waits() {
			t.Errorf("late: %+v", r)
		}
		if r := n.Admit(newEvictionPod("sized", "10Mi"), nil); r != nil {
			t.Errorf("sized: %v", r)
		}
		if r := n.Admit(static(newEvictionPod("system", "")), nil); r != nil {
			t.Errorf("system: %v", r)
		}
		if revives(n, hog, &st) || n.Explain(hog) != "" || changes.Load() != 1 {
			t.Errorf("a pod of a controller begins again; or %d changes, want 1", changes.Load())
		}
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		if n.underPressure() || changes.Load() != 2 || !n.has("readmit") || n.Admit(newEvictionPod("late", ""), nil) != nil {
			t.Errorf("pressure lasts, or its end is not told: %d changes", changes.Load())
		}
		n.host.SetStatus(fixed.UID, *evicted())
		if why := n.Explain(fixed); why != "" {
			t.Errorf("a static pod of a cluster's node begins again: it waits for %s", why)
		}
		n.stop()
	})
}

// What a pod has in volumes is its own until its worker has unmounted them: another pod is not ended
// for it.
func TestVolumesOfAnEvictedPodAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newEvictionNode(t, nil)
		hog, good := newEvictionPod("hog", "10Mi"), newEvictionPod("good", "300Mi")
		n.host.SetPods(hog, good)
		n.host.SetWorker(podworker.Status{UID: hog.UID})
		n.set(50, map[types.UID]int64{"uid-hog": 0, "uid-good": 200}) // all that hog uses is in volumes
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if len(n.ends) != 1 || n.status(hog).Phase != v1.PodFailed {
			t.Errorf("%d pods ended, hog is %s; want it to have failed alone", len(n.ends), n.status(hog).Phase)
		}
		n.set(500, nil)
		n.host.SetWorker(podworker.Status{UID: hog.UID, Finished: true})
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(n.ends) != 1 {
			t.Errorf("%d pods ended, want one", len(n.ends))
		}
		n.stop()
	})
}

// Where all pods are static they are evicted as others are, but for those of the
// system, and wait for the end of pressure: those that come, and those that were
// evicted.
func TestStandalone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newEvictionNode(t, func(c *pressure.EvictionConfig) { c.Standalone = true })
		hog, system := static(newEvictionPod("hog", "")), static(newEvictionPod("system", ""))
		system.Spec.Priority = new(int32(2_000_000_000))
		n.host.SetPods(hog, system)
		n.set(50, map[types.UID]int64{"uid-hog": 30, "uid-system": 400})
		time.Sleep(15 * time.Second)
		synctest.Wait()
		st := n.status(hog)
		if st.Reason != "Evicted" || n.status(system).Reason != "" {
			t.Fatalf("hog: %+v, system: %+v", st, n.status(system))
		}
		if r := n.Admit(static(newEvictionPod("late", "")), nil); !r.Waits() || time.Until(r.RetryUntil) != 24*time.Hour {
			t.Errorf("late: %+v", r)
		}
		for range 4 * 60 {
			time.Sleep(time.Second)
			if revives(n, hog, &st) {
				t.Fatal("it begins under pressure")
			}
		}
		if why := n.Explain(hog); !strings.HasPrefix(why, "the node to be no longer short of anything") {
			t.Errorf("why: %q", why)
		}
		n.set(500, nil)
		n.host.Calls()
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		if !n.has("readmit") || !revives(n, hog, &st) {
			t.Error("it does not begin after pressure")
		}
		n.stop()
	})
}

// evicted is the status of a pod that was.
func evicted() *v1.PodStatus {
	return &v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted", Message: "The node was low on resource: memory. "}
}

// A pod that is evicted again and again begins later each time, and the agent's
// loop is woken when it may; one that ran well for a while begins soon.
func TestBackoffOfEvictedPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newEvictionNode(t, func(c *pressure.EvictionConfig) { c.Standalone = true })
		pod := static(newEvictionPod("writer", ""))
		n.host.SetPods(pod)
		n.host.SetStatus(pod.UID, *evicted())
		begins := func(want time.Duration) {
			t.Helper()
			if why := n.Explain(pod); !strings.HasPrefix(why, "its time to begin again") {
				t.Errorf("why: %q", why)
			}
			if revives(n, pod, evicted()) {
				t.Fatal("it begins at once")
			}
			n.host.Calls()
			time.Sleep(want - 1)
			synctest.Wait()
			if n.has("housekeep") || revives(n, pod, evicted()) {
				t.Fatalf("it begins before %v", want)
			}
			time.Sleep(1 * time.Nanosecond)
			synctest.Wait()
			if !n.has("housekeep") || !revives(n, pod, evicted()) {
				t.Fatalf("it does not begin after %v", want)
			}
		}
		for _, s := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
			begins(s * time.Second)
			time.Sleep(5 * time.Second)
		}
		time.Sleep(11 * time.Minute)
		begins(10 * time.Second)
		n.Housekeep(nil) // its manifest went
		begins(10 * time.Second)
		n.Housekeep([]*v1.Pod{pod})
		begins(20 * time.Second)
		n.stop()
	})
}

// Who does not begin again by itself.
func TestWhoDoesNotBeginAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := false
		n := newEvictionNode(t, func(c *pressure.EvictionConfig) { c.Standalone, c.Hold = true, func() bool { return hold } })
		tries := func(pod *v1.Pod, st *v1.PodStatus) bool {
			n.Housekeep(nil)
			if revives(n, pod, st) {
				return true
			}
			time.Sleep(firstBackoff)
			return revives(n, pod, st)
		}
		never := static(newEvictionPod("never", ""))
		never.Spec.RestartPolicy = v1.RestartPolicyNever
		for name, tc := range map[string]struct {
			pod *v1.Pod
			st  v1.PodStatus
		}{
			"from a cluster":             {newEvictionPod("api", ""), *evicted()},
			"never restarted":            {never, *evicted()},
			"failed by itself":           {static(newEvictionPod("p", "")), v1.PodStatus{Phase: v1.PodFailed, Reason: "Error"}},
			"runs":                       {static(newEvictionPod("p", "")), v1.PodStatus{Phase: v1.PodRunning, Reason: "Evicted"}},
			"rejected, waited in vain":   {static(newEvictionPod("p", "")), v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted", Message: "Pod was rejected: The node had condition: [MemoryPressure]. "}},
			"ended with the whole agent": {static(newEvictionPod("p", "")), v1.PodStatus{Phase: v1.PodFailed, Reason: "Terminated"}},
		} {
			if tries(tc.pod, &tc.st) {
				t.Errorf("%s: it begins again", name)
			}
		}
		pod := static(newEvictionPod("writer", ""))
		if hold = true; tries(pod, evicted()) {
			t.Error("it begins while that is held")
		}
		if hold = false; !tries(pod, evicted()) {
			t.Error("it does not begin again")
		}
		n.stop()
	})
}

const firstBackoff = 10 * time.Second

// While figures cannot be read, and a pod does not end, every hook on the loop
// returns; and Run returns when they can be.
func TestHooksReturnWhileFiguresHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newEvictionNode(t, func(c *pressure.EvictionConfig) { c.Standalone = true })
		hang, pod := make(chan struct{}), static(newEvictionPod("writer", ""))
		n.figures.mu.Lock()
		n.figures.hang = hang
		n.figures.mu.Unlock()
		time.Sleep(time.Minute)
		n.host.SetPods(pod)
		n.host.SetStatus(pod.UID, *evicted())
		if r := n.Admit(pod, nil); r != nil {
			t.Error(r)
		}
		revives(n, pod, evicted())
		n.Housekeep([]*v1.Pod{pod})
		if why := n.Explain(pod); why == "" {
			t.Error("nothing is explained")
		}
		n.ExplainNode(&local.NodeWhy{})
		time.Sleep(firstBackoff)
		if !revives(n, pod, evicted()) {
			t.Error("it does not begin again")
		}
		close(hang)
		n.stop()
	})
}

// Mistakes are said all at once, and a part is of one agent.
func TestEvictionNewAndJoin(t *testing.T) {
	_, err := pressure.NewEviction(pressure.EvictionConfig{Victims: -1})
	if err == nil || !strings.Contains(err.Error(), "Config.Stats is required") || !strings.Contains(err.Error(), "Config.Victims is -1") {
		t.Error(err)
	}
	p, err := pressure.NewEviction(pressure.EvictionConfig{Stats: &figures{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Join(agenttest.NewHost(t)); err != nil {
		t.Error(err)
	}
	if err := p.Join(agenttest.NewHost(t)); err == nil {
		t.Error("joined twice")
	}
}

// Notices are those that thresholds are about.
func TestKernelNotices(t *testing.T) {
	memory, allocatable := rank.Threshold{Signal: rank.SignalMemory}, rank.Threshold{Signal: rank.SignalAllocatableMemory}
	for _, tc := range []struct {
		cgroup string
		list   []rank.Threshold
		want   []rank.Signal
	}{
		{"kubepods", nil, nil},
		{"kubepods", []rank.Threshold{{Signal: rank.SignalNodeFs}}, nil},
		{"kubepods", []rank.Threshold{memory}, []rank.Signal{rank.SignalMemory}},
		{"kubepods", []rank.Threshold{allocatable, memory}, []rank.Signal{rank.SignalMemory, rank.SignalAllocatableMemory}},
		{"", []rank.Threshold{allocatable, memory}, []rank.Signal{rank.SignalMemory}},
	} {
		for _, v2 := range []bool{true, false} {
			var got []rank.Signal
			for _, n := range pressure.KernelNotices(tc.cgroup, v2, tc.list) {
				got = append(got, n.Signal)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("%q %v v2=%t: %v, want %v", tc.cgroup, tc.list, v2, got, tc.want)
			}
		}
	}
}

// revives reports whether a pod with a status begins again, and has it do so.
func revives(p part.Reviver, pod *v1.Pod, st *v1.PodStatus) bool {
	why, _ := podlife.CauseOf(st)
	if !why.Returns(pod) || !p.Over(pod, why) {
		return false
	}
	p.Begins(pod, why)
	return true
}
