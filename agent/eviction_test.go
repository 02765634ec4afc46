package agent_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent/pressure"
	"github.com/nodewright/nodewright/eviction"
	"github.com/nodewright/nodewright/eviction/rank"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/statusmgr"
)

const mi = 1 << 20

// apiSource is a source of pods that somebody else makes again.
type apiSource struct{ fakeSource }

func newAPISource() *apiSource {
	return &apiSource{fakeSource{snapshots: make(chan podmgr.Snapshot, 10)}}
}

func (*apiSource) Name() string { return "api" }

func (s *apiSource) tell(pods ...*v1.Pod) {
	snap := podmgr.Snapshot{}
	for _, p := range pods {
		snap.Pods = append(snap.Pods, p.DeepCopy())
	}
	s.snapshots <- snap
}

// figures are those of a node whose memory the test sets.
type figures struct {
	mu     sync.Mutex
	free   int64                 // of 1000 Mi
	disk   func() int64          // of 1000 Mi, available
	memory map[types.UID]int64   // of pods
	pods   func() map[string]int // containers that run, by "pod/container"
}

func (f *figures) Memory(context.Context) (eviction.Memory, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	free := f.free
	running := f.pods()
	for uid, used := range f.memory {
		if running[strings.TrimPrefix(string(uid), "uid-")+"/c"] == 0 {
			free += used // it has ended
		}
	}
	return eviction.Memory{Node: &eviction.MemoryFigure{Observation: rank.Observation{Available: free * mi, Capacity: 1000 * mi, Time: time.Now()}}}, nil
}

func (f *figures) Disks(context.Context) (eviction.Disks, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.disk == nil {
		return eviction.Disks{}, nil
	}
	return eviction.Disks{Node: eviction.Filesystem{Device: "d", Bytes: &rank.Observation{
		Available: f.disk() * mi, Capacity: 1000 * mi, Time: time.Now(),
	}}}, nil
}

func (f *figures) Processes(context.Context) (rank.Observation, error) {
	return rank.Observation{Available: 1000, Capacity: 1000}, nil
}

func (f *figures) Pods(_ context.Context, pods []*v1.Pod, _ eviction.Want) (map[types.UID]*rank.Usage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[types.UID]*rank.Usage{}
	for _, p := range pods {
		out[p.UID] = &rank.Usage{Time: time.Now(), Memory: f.memory[p.UID] * mi, Containers: []rank.ContainerUsage{{Name: "c", Memory: f.memory[p.UID] * mi}}}
	}
	return out, nil
}

// evicts has the node's agents evict pods below 100 Mi.
func (n *node) evicts(standalone bool) *figures {
	f := &figures{free: 500, memory: map[types.UID]int64{}}
	f.pods = func() map[string]int {
		_, running := n.containers()
		return running
	}
	n.eviction = &pressure.EvictionConfig{
		Stats: f, Standalone: standalone,
		Thresholds: []rank.Threshold{{Signal: rank.SignalMemory, Value: rank.Amount{Value: 100 * mi}}},
	}
	return f
}

func withMemory(p *v1.Pod, request string) *v1.Pod {
	p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse(request)}
	return p
}

func condition(p *v1.Pod, kind v1.PodConditionType) *v1.PodCondition {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == kind {
			return c
		}
	}
	return nil
}

func underPressure(l *life) bool {
	return slices.ContainsFunc(l.Pressure(), func(c v1.NodeCondition) bool {
		return c.Type == v1.NodeMemoryPressure && c.Status == v1.ConditionTrue
	})
}

func hasEvent(l *life, pod *v1.Pod, reason string) bool {
	return slices.ContainsFunc(l.Events(pod), func(e v1.Event) bool { return e.Reason == reason })
}

// The pod that uses more than it requests goes, the others stay; what begins
// meanwhile is rejected, and all of it can be asked about.
func TestEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		f := n.evicts(false)
		hog, good := withMemory(newPod("hog", runs("c")), "10Mi"), withMemory(newPod("good", runs("c")), "300Mi")
		api := newAPISource()
		n.more = []podmgr.Source{api}
		n.want = []*v1.Pod{newPod("fixed", runs("c"))} // from a file
		l := n.start()
		defer l.stop()
		api.tell(hog, good)
		settle()
		f.mu.Lock()
		f.memory["uid-hog"], f.memory["uid-good"], f.memory["uid-fixed"] = 300, 200, 400
		f.free = 50
		f.mu.Unlock()
		time.Sleep(15 * time.Second)
		synctest.Wait()
		p := l.pod("hog")
		if p.Status.Phase != v1.PodFailed || p.Status.Reason != "Evicted" || !strings.HasPrefix(p.Status.Message, "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi.") {
			t.Fatalf("hog: %s %s %q; %+v", p.Status.Phase, p.Status.Reason, p.Status.Message, l.WhyNode().Decisions)
		}
		if c := condition(p, v1.DisruptionTarget); c == nil || c.Status != v1.ConditionTrue || c.Reason != v1.PodReasonTerminationByKubelet {
			t.Errorf("condition %+v", c)
		}
		all, running := n.containers()
		if running["good/c"] != 1 || running["fixed/c"] != 1 || all["hog/c"] != 0 {
			t.Errorf("running %v of %v, and nothing is to be left of hog", running, all)
		}
		if logs, err := filepath.Glob(filepath.Join(n.root, "logs", "*_hog_*")); len(logs) != 0 || err != nil {
			t.Errorf("logs of hog: %v, %v", logs, err)
		}
		if !hasEvent(l, p, "Evicted") || !slices.ContainsFunc(l.NodeEvents(), func(e v1.Event) bool { return e.Reason == "EvictionThresholdMet" }) {
			t.Errorf("events %v, of the node %v", l.Events(p), l.NodeEvents())
		}
		why := l.WhyNode()
		if len(why.Decisions) != 1 || !strings.Contains(strings.Join(why.Decisions[0].Lines, "\n"), "default/hog (priority 0) uses 300Mi, requests 10Mi: chosen") ||
			why.Decisions[0].Available != "50Mi" || len(why.Figures) != 1 || why.Figures[0].Threshold != "100Mi" {
			t.Errorf("why %+v", why)
		}
		// A node that was short admits what requests memory, and nothing else, for
		// a while.
		api.tell(hog, good, newPod("late", runs("c")), withMemory(newPod("sized", runs("c")), "10Mi"))
		n.want = append(n.want, newPod("system", runs("c")))
		l.tell()
		settle()
		if p := l.pod("late"); p.Status.Phase != v1.PodFailed || p.Status.Reason != "Evicted" || !strings.Contains(p.Status.Message, "MemoryPressure") {
			t.Errorf("late: %+v", p.Status)
		}
		l.wantPhase("sized", v1.PodRunning)
		l.wantPhase("system", v1.PodRunning)
		if !underPressure(l) {
			t.Error("no pressure")
		}
		time.Sleep(6 * time.Minute)
		if underPressure(l) {
			t.Error("pressure lasts")
		}
		l.wantPhase("hog", v1.PodFailed)
	})
}

// Where all pods are static, they are evicted as others are, and wait for the
// end of pressure: those that come, and those that were evicted, in this life of
// the agent or the one before.
func TestEvictionStandalone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		f := n.evicts(true)
		system := newPod("system", runs("c"))
		system.Spec.Priority = new(int32(2_000_000_000))
		n.want = []*v1.Pod{newPod("hog", runs("c")), system}
		l := n.start()
		settle()
		f.mu.Lock()
		f.memory["uid-hog"], f.memory["uid-system"], f.free = 300, 400, 50
		f.mu.Unlock()
		time.Sleep(15 * time.Second)
		synctest.Wait()
		l.wantPhase("hog", v1.PodFailed)
		l.wantPhase("system", v1.PodRunning)
		n.want = append(n.want, newPod("late", runs("c")))
		l.tell()
		settle()
		if p := l.pod("late"); p.Status.Phase != v1.PodPending || p.Status.Reason != "Evicted" {
			t.Errorf("late: %+v", p.Status)
		}
		if why := l.Why(l.pod("hog")); !strings.HasPrefix(why.WaitingFor, "the node to be no longer short of anything") {
			t.Errorf("why: %q", why.WaitingFor)
		}
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		l.wantPhase("hog", v1.PodFailed)
		l.wantPhase("late", v1.PodPending)
		f.mu.Lock()
		f.memory["uid-hog"], f.free = 0, 500
		f.mu.Unlock()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		l.wantPhase("late", v1.PodRunning)
		l.wantPhase("hog", v1.PodRunning)
		if p := l.pod("hog"); p.Status.Reason != "" || p.Status.Message != "" || condition(p, v1.DisruptionTarget) != nil {
			t.Errorf("hog: %+v, want nothing left of its eviction", p.Status)
		}
		l.stop()
	})
}

// evictedOnce is the life of an agent that has evicted the pod, which is above
// a limit of its own: the node is short of nothing.
func (n *node) evictedOnce(p *v1.Pod) (l *life, dir string) {
	sink, err := statusmgr.NewFileSink(statusmgr.FileSinkConfig{Dir: filepath.Join(n.root, "status")})
	if err != nil {
		n.t.Fatal(err)
	}
	n.sink = sink
	n.eviction = &pressure.EvictionConfig{Standalone: true}
	n.measures()
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}}
	p.Spec.Volumes = []v1.Volume{{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse("16Ki"))}}}}
	n.want = []*v1.Pod{p}
	l = n.start()
	settle()
	dir = filepath.Join(n.root, "root", "pods", string(p.UID), "volumes", "kubernetes.io~empty-dir", "scratch")
	n.fill(dir)
	l.wantEvicted(p)
	return l, dir
}

func (n *node) fill(dir string) {
	n.t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "much"), make([]byte, 64<<10), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// wantEvicted waits until a pod was evicted.
func (l *life) wantEvicted(p *v1.Pod) {
	l.n.t.Helper()
	for range 120 {
		if l.pod(p.Name).Status.Reason == "Evicted" {
			settle() // its worker cleans up after it
			return
		}
		time.Sleep(time.Second)
	}
	l.n.t.Fatalf("%s was not evicted: %+v", p.Name, l.pod(p.Name).Status)
}

// began waits until a pod begins, and returns when it did.
func (l *life) began(p *v1.Pod) time.Time {
	l.n.t.Helper()
	for range 600 {
		if l.pod(p.Name).Status.Phase == v1.PodRunning {
			return time.Now()
		}
		time.Sleep(time.Second)
	}
	l.n.t.Fatalf("%s did not begin again: %+v", p.Name, l.pod(p.Name).Status)
	return time.Time{}
}

// A static pod that does it again and again begins later each time, with an
// empty directory; one that ran well for a while begins soon.
func TestStaticPodsBeginAgainAfterTheirEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := newPod("writer", runs("c"))
		l, dir := n.evictedOnce(p)
		for i, want := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 5 * time.Minute, 5 * time.Minute} {
			start := time.Now()
			if why := l.Why(l.pod("writer")); why.Stage == "terminated" && !strings.HasPrefix(why.WaitingFor, "its time to begin again") {
				t.Errorf("why: %q", why.WaitingFor)
			}
			if took := l.began(p).Sub(start); took < want-time.Second || took > want+3*time.Second {
				t.Errorf("eviction %d: it began after %v, want %v", i+1, took, want)
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
				t.Errorf("the volume has %v, %v", entries, err)
			}
			n.fill(dir)
			l.wantEvicted(p)
		}
		l.began(p)
		time.Sleep(11 * time.Minute)
		n.fill(dir)
		l.wantEvicted(p)
		start := time.Now()
		if took := l.began(p).Sub(start); took > 13*time.Second {
			t.Errorf("it ran for 11 minutes and began after %v, want 10s", took)
		}
		l.stop()
	})
}

// What was evicted in another life of the agent begins in this one; what is
// never to be restarted, or is from a cluster, does not.
func TestWhoBeginsAgainAfterAnEviction(t *testing.T) {
	t.Run("in another life", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			p := newPod("writer", runs("c"))
			l, _ := n.evictedOnce(p)
			settle()
			l.stop()
			l = n.start()
			time.Sleep(5 * time.Second)
			l.wantPhase("writer", v1.PodFailed)
			l.began(p)
			l.stop()
		})
	})
	t.Run("not if it is never to be restarted", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			p := newPod("writer", runs("c"))
			p.Spec.RestartPolicy = v1.RestartPolicyNever
			l, _ := n.evictedOnce(p)
			time.Sleep(time.Hour)
			l.wantPhase("writer", v1.PodFailed)
			l.stop()
			l = n.start()
			time.Sleep(time.Hour)
			l.wantPhase("writer", v1.PodFailed)
			l.stop()
		})
	})
	t.Run("not in a cluster", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			f := n.evicts(false)
			api := newAPISource()
			n.more = []podmgr.Source{api}
			l := n.start()
			api.tell(newPod("hog", runs("c")))
			settle()
			f.mu.Lock()
			f.memory["uid-hog"], f.free = 300, 50
			f.mu.Unlock()
			time.Sleep(time.Hour)
			l.wantPhase("hog", v1.PodFailed)
			l.stop()
		})
	})
	t.Run("not if its manifest is gone", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			l, _ := n.evictedOnce(newPod("writer", runs("c")))
			n.want = nil
			l.tell()
			time.Sleep(10 * time.Minute)
			n.wantNothingLeft()
			l.stop()
		})
	})
}

// Images that nothing uses go before any pod has to.
func TestEvictionReclaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		f := n.evicts(true)
		n.eviction.Thresholds = []rank.Threshold{{Signal: rank.SignalNodeFs, Value: rank.Amount{Value: 100 * mi}}}
		const unused = "localhost/unused:1"
		n.rt.AddImage(unused)
		low := atomic.Bool{}
		f.disk = func() int64 {
			if there, err := n.rt.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: unused}, false); err == nil && there.GetImage() != nil && low.Load() {
				return 50
			}
			return 500
		}
		n.want = []*v1.Pod{newPod("web", runs("c"))}
		l := n.start()
		defer l.stop()
		time.Sleep(10 * time.Minute) // the image is no longer new
		low.Store(true)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		l.wantPhase("web", v1.PodRunning)
		d := l.WhyNode().Decisions
		if len(d) != 1 || d[0].Outcome != "relieved by removing images" || !strings.Contains(strings.Join(d[0].Lines, "\n"), "50Mi available before, 500Mi after") {
			t.Errorf("decisions %+v", d)
		}
	})
}

// A pod that runs nothing is known to use nothing.
func TestFiguresOfTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.eviction = &pressure.EvictionConfig{Thresholds: []rank.Threshold{
			{Signal: rank.SignalMemory, Value: rank.Amount{Value: 1}}, {Signal: rank.SignalPIDs, Value: rank.Amount{Value: 1}},
			{Signal: rank.SignalNodeFs, Value: rank.Amount{Value: 1}}, {Signal: rank.SignalImageFs, Value: rank.Amount{Value: 1}},
		}}
		n.measures()
		n.want = []*v1.Pod{newPod("web", runs("c"))}
		l := n.start()
		defer l.stop()
		time.Sleep(11 * time.Second)
		synctest.Wait()
		for _, f := range l.WhyNode().Figures {
			if f.Available == "" || f.Stale != "" {
				t.Errorf("figure %+v", f)
			}
		}
		if d := l.WhyNode().Decisions; len(d) != 0 {
			t.Errorf("decisions %+v", d)
		}
	})
}

// An emptyDir above its limit, or that takes its pod above its own, ends the pod
// within seconds, and what it held goes. The kubelet needs up to a minute more.
func TestLimitOfEmptyDir(t *testing.T) {
	for _, tc := range []struct {
		name    string
		size    string // of the volume
		limit   string // of the pod
		message string
	}{
		{"of the volume", "16Ki", "", `Usage of EmptyDir volume "scratch" exceeds the limit "16Ki". `},
		{"of the pod", "", "20Ki", `Pod ephemeral local storage usage exceeds the total limit of containers 20Ki. `},
		{"of both, the pod's first", "1Mi", "20Ki", `Pod ephemeral local storage usage exceeds the total limit of containers 20Ki. `},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				n.eviction = &pressure.EvictionConfig{Standalone: true}
				n.measures()
				c := runs("c")
				c.VolumeMounts = []v1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}}
				dir := &v1.EmptyDirVolumeSource{}
				if tc.size != "" {
					dir.SizeLimit = new(resource.MustParse(tc.size))
				}
				if tc.limit != "" {
					c.Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse(tc.limit)}
				}
				p := newPod("writer", c)
				p.Spec.Volumes = []v1.Volume{{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: dir}}}
				n.want = []*v1.Pod{p, newPod("other", runs("c"))}
				l := n.start()
				defer l.stop()
				time.Sleep(25 * time.Second) // it has been measured, at 10 s
				synctest.Wait()
				l.wantPhase("writer", v1.PodRunning)
				path := filepath.Join(n.root, "root", "pods", "uid-writer", "volumes", "kubernetes.io~empty-dir", "scratch")
				n.fill(path)
				start := time.Now()
				l.wantEvicted(p)
				if took := time.Since(start); took > 10*time.Second {
					t.Errorf("noticed after %v, want 10s at most", took)
				}
				settle()
				if p := l.pod("writer"); p.Status.Message != tc.message {
					t.Errorf("writer: %s %s %q; %+v", p.Status.Phase, p.Status.Reason, p.Status.Message, l.WhyNode().Decisions)
				}
				l.wantPhase("other", v1.PodRunning)
				if _, err := os.Stat(path); !os.IsNotExist(err) {
					t.Errorf("the volume is there: %v", err)
				}
			})
		})
	}
}
