package agent_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cpumgr"
	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/topology"
)

// pinnedNode has 8 CPUs without siblings on one NUMA node; CPU 0 is reserved.
func pinnedNode(t *testing.T) *node {
	n := newNode(t)
	n.cpus = "8"
	n.placement = fit.PlacementConfig{
		Machine: numa.Uniform(1, 1, 8, 1, 4<<30), CPUPolicy: fit.CPUStatic,
		ReservedCPUs: cpumgr.Reservation{CPUs: numa.CPUs(0)},
	}
	return n
}

// own is a pod with one container, of its name, that gets CPUs of its own.
func own(name, cpus string) *v1.Pod { return newPod(name, sized(name, cpus, "64Mi")) }

// cpusets are those of the containers that run, by name.
func (n *node) cpusets() map[string]string {
	n.t.Helper()
	out := map[string]string{}
	list, err := n.rt.ListContainers(context.Background(), nil)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, c := range list {
		if c.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
			continue
		}
		st, err := n.rt.ContainerStatus(context.Background(), c.GetId(), false)
		if err != nil {
			n.t.Fatal(err)
		}
		out[c.GetMetadata().GetName()] = st.GetStatus().GetResources().GetLinux().GetCpusetCpus()
	}
	return out
}

func (n *node) wantCPUs(want map[string]string) {
	n.t.Helper()
	got := n.cpusets()
	for name, cpus := range want {
		if got[name] != cpus {
			n.t.Errorf("cpusets %v, want %v", got, want)
			return
		}
	}
	if len(got) != len(want) {
		n.t.Errorf("cpusets %v, want %v", got, want)
	}
}

func TestPlacement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := pinnedNode(t)
		n.want = []*v1.Pod{newPod("web", runs("web")), own("a", "2")}
		l := n.start()
		settle()
		n.wantCPUs(map[string]string{"web": "0,3-7", "a": "1-2"})

		// The shared container leaves the CPUs before their owner is made.
		n.rt.ForgetCalls()
		n.want = append(n.want, own("b", "3"))
		l.tell()
		settle()
		n.wantCPUs(map[string]string{"web": "0,6-7", "a": "1-2", "b": "3-5"})
		var order []string
		for _, c := range n.rt.Calls("UpdateContainerResources", "CreateContainer") {
			order = append(order, c.Method)
		}
		if !slices.Equal(order, []string{"UpdateContainerResources", "CreateContainer"}) {
			t.Errorf("calls %v", order)
		}
		st, _ := n.rt.ContainerStatus(t.Context(), n.id("b"), false)
		if q := st.GetStatus().GetResources().GetLinux().GetCpuQuota(); q != -1 {
			t.Errorf("quota %d of a container with CPUs of its own", q)
		}
		for name, want := range map[string]bool{"web": false, "a": true, "b": true} {
			if got := l.OwnCPUs(l.pod(name)); got != want {
				t.Errorf("%s has CPUs of its own: %t, want %t", name, got, want)
			}
		}

		// What does not fit is rejected, with the kubelet's reason; what a pod
		// held is free when it is gone.
		n.want = append(n.want, own("c", "3"))
		l.tell()
		settle()
		if st := l.pod("c").Status; st.Phase != v1.PodFailed || st.Reason != topology.ReasonUnexpected || !strings.Contains(st.Message, "3") {
			t.Errorf("status %+v", st)
		}
		n.want = n.want[:2]
		l.tell()
		settle()
		n.wantCPUs(map[string]string{"web": "0,3-7", "a": "1-2"})
		n.want = nil
		l.tell()
		settle()
		n.wantNothingLeft()
		if left, _ := filepath.Glob(filepath.Join(n.root, "root", "placement", "*")); len(left) > 0 {
			t.Errorf("checkpoints are left: %v", left)
		}
		l.stop()
	})
}

// Whatever becomes of the agent and its checkpoints, containers that run keep
// the CPUs they have, and no container is touched.
func TestPlacementOverRestarts(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, n *node, file string){
		"nothing": func(*testing.T, *node, string) {},
		"a torn checkpoint": func(t *testing.T, _ *node, file string) {
			if err := os.WriteFile(file, []byte("no checkpoint"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"no checkpoint": func(t *testing.T, _ *node, file string) {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		},
		"other options": func(_ *testing.T, n *node, _ string) {
			n.placement.CPUOptions.DistributeAcrossCores = true
			n.placement.TopologyPolicy = topology.NameRestricted
		},
		"fewer pods wanted at first": func(_ *testing.T, n *node, _ string) { n.want = n.want[1:] },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := pinnedNode(t)
				n.want = []*v1.Pod{newPod("web", runs("web")), own("a", "2"), own("b", "2")}
				l := n.start()
				settle()
				n.want = []*v1.Pod{n.want[0], n.want[2]}
				l.tell()
				settle()
				n.wantCPUs(map[string]string{"web": "0-2,5-7", "b": "3-4"}) // not where it would go now
				l.stop()
				n.rt.ForgetCalls()
				all := n.want
				harm(t, n, filepath.Join(n.root, "root", "placement", "uid-b"))
				for range 2 {
					l = n.start()
					if len(n.want) == len(all) {
						settle()
						n.wantCPUs(map[string]string{"web": "0-2,5-7", "b": "3-4"})
					}
					n.want = append(all, own("c", "2"))
					l.tell()
					settle()
					n.wantCPUs(map[string]string{"web": "0,5-7", "b": "3-4", "c": "1-2"})
					l.stop()
				}
				for _, c := range n.rt.Calls("UpdateContainerResources") {
					if c.Target == n.id("b") {
						t.Errorf("%+v", c)
					}
				}
			})
		})
	}
}

// With another policy, or none, what runs is taken as it is.
func TestPlacementPolicyChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := pinnedNode(t)
		static := n.placement
		n.placement = fit.PlacementConfig{}
		n.want = []*v1.Pod{newPod("web", runs("web")), own("a", "2")}
		l := n.start()
		settle()
		n.wantCPUs(map[string]string{"web": "", "a": ""})
		l.stop()

		n.placement = static
		l = n.start()
		settle()
		n.wantCPUs(map[string]string{"web": "", "a": ""}) // it shares, since it runs already
		n.want = append(n.want, own("b", "2"))
		l.tell()
		settle()
		n.wantCPUs(map[string]string{"web": "0,3-7", "a": "0,3-7", "b": "1-2"})
		n.rt.Kill(n.id("b")) // a restart keeps them
		settle()
		n.wantCPUs(map[string]string{"web": "0,3-7", "a": "0,3-7", "b": "1-2"})
		l.stop()

		n.placement = fit.PlacementConfig{Machine: static.Machine}
		l = n.start()
		settle()
		n.wantCPUs(map[string]string{"web": "0-7", "a": "0-7", "b": "0-7"})
		l.stop()
		l = n.start()
		settle()
		l.stop()
		if _, err := os.Stat(filepath.Join(n.root, "root", "placement")); !os.IsNotExist(err) {
			t.Errorf("the directory of checkpoints: %v", err)
		}
		n.placement = fit.PlacementConfig{}
		l = n.start()
		settle()
		n.wantCPUs(map[string]string{"web": "0-7", "a": "0-7", "b": "0-7"})
		l.stop()
	})
}

// An agent that dies at any of its calls leaves a state from which the next one
// goes on: the owner never runs beside others.
func TestPlacementDeathAtEveryCall(t *testing.T) {
	died := errors.New("the agent died here")
	for at := 1; ; at++ {
		reached := false
		synctest.Test(t, func(t *testing.T) {
			n := pinnedNode(t)
			n.want = []*v1.Pod{newPod("web", runs("web")), newPod("db", runs("db"))}
			l := n.start()
			settle()
			var mu sync.Mutex
			count, after := 0, at%2 == 1
			fail := func(c critest.Call, done bool) error {
				mu.Lock()
				defer mu.Unlock()
				if c.Method == "GetContainerEvents" {
					return nil
				}
				if !done {
					count++
				}
				// Calls overlap: the first answer after that call began may be another's.
				reached = reached || count >= (at+1)/2 && done == after
				if reached {
					return died // a dead process hears no answer and makes no call
				}
				return nil
			}
			n.rt.Around(func(c critest.Call) error { return fail(c, false) }, func(c critest.Call) error { return fail(c, true) })
			n.want = append(n.want, own("a", "2"))
			l.tell()
			time.Sleep(200 * time.Millisecond)
			synctest.Wait()
			l.stop()
			n.rt.Around(nil, nil)
			l = n.start()
			time.Sleep(5 * time.Second)
			settle()
			n.wantCPUs(map[string]string{"web": "0,3-7", "db": "0,3-7", "a": "1-2"})
			l.stop()
		})
		if !reached || t.Failed() {
			if at < 6 {
				t.Errorf("only %d deaths", at)
			}
			break
		}
	}
}

// The owner waits for shared containers that do not leave.
func TestPlacementWaitsForSharers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := pinnedNode(t)
		n.want = []*v1.Pod{newPod("web", runs("web"))}
		l := n.start()
		settle()
		n.rt.Fail("UpdateContainerResources", errors.New("busy"))
		n.want = append(n.want, own("a", "2"), newPod("db", runs("db")))
		l.tell()
		settle()
		n.wantCPUs(map[string]string{"web": "0-7", "db": "0,3-7"})
		if why := l.Why(l.pod("a")); why.NextReason != "PlacementNotReady" || !strings.Contains(why.LastError, "container web") || !strings.Contains(why.LastError, "busy") {
			t.Errorf("why %+v", why)
		}
		n.rt.Fail("UpdateContainerResources", nil)
		time.Sleep(5 * time.Second)
		settle()
		n.wantCPUs(map[string]string{"web": "0,3-7", "db": "0,3-7", "a": "1-2"})
		l.stop()
	})
}

// A pod waits for CPUs that one holds which is ending, and is rejected if
// that does not end in its time.
func TestNotYet(t *testing.T) {
	for _, c := range []struct {
		name string
		old  []string // what the container does
		hang bool
		want v1.PodPhase
	}{
		{"it ends", []string{"trap", "0", "8s", "sleep", "forever"}, false, v1.PodRunning},
		{"it does not end", []string{"sleep", "forever"}, true, v1.PodFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := pinnedNode(t)
				old := own("old", "5")
				old.Spec.Containers[0].Args = c.old
				n.want = []*v1.Pod{old}
				l := n.start()
				settle()
				if c.hang {
					defer n.rt.Hang("StopContainer")()
				}
				n.want = []*v1.Pod{own("new", "5")}
				l.tell()
				settle()
				p := l.pod("new")
				if st := p.Status; st.Phase != v1.PodPending || !strings.Contains(st.Message, "waits for the end of default/old") {
					t.Errorf("status %+v", st)
				}
				if why := l.Why(p); !strings.HasPrefix(why.WaitingFor, "room on the node, until ") || why.NextAt.IsZero() {
					t.Errorf("why %+v", why)
				}
				if got := l.reasons("new"); !slices.Equal(got, []string{"AdmissionWaits"}) {
					t.Errorf("events %v", got)
				}
				time.Sleep(9 * time.Second)
				if c.hang {
					l.wantPhase("new", v1.PodPending)
					time.Sleep(35 * time.Second)
				}
				settle()
				l.wantPhase("new", c.want)
				if st := l.pod("new").Status; c.want == v1.PodRunning && (st.Reason != "" || st.Message != "") {
					t.Errorf("status %+v", st)
				}
				l.stop()
			})
		})
	}
}

func TestPlacementRejections(t *testing.T) {
	two := numa.Uniform(2, 1, 4, 2, 1<<30) // 16 CPUs
	for _, c := range []struct {
		name   string
		config func(*fit.PlacementConfig)
		pod    *v1.Pod
		reason string
		says   string
	}{
		{"no node with enough CPUs", func(c *fit.PlacementConfig) { c.TopologyPolicy = topology.NameSingleNUMANode }, own("a", "10"), topology.ReasonAffinity, "NUMA nodes 0-1"},
		{"half cores", func(c *fit.PlacementConfig) { c.CPUOptions.FullPCPUsOnly = true }, own("a", "3"), "SMTAlignmentError", "3"},
		{"no memory", func(c *fit.PlacementConfig) {
			c.MemoryPolicy = memmgr.StaticName
			c.ReservedMemory = memmgr.Reserved{0: {memmgr.Memory: 100 << 20}}
		}, newPod("a", sized("a", "1", "2Gi")), topology.ReasonUnexpected, "memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := pinnedNode(t)
				n.cpus, n.placement.Machine = "16", two
				c.config(&n.placement)
				n.want = []*v1.Pod{c.pod, newPod("web", runs("web"))}
				l := n.start()
				settle()
				st := l.pod("a").Status
				if st.Phase != v1.PodFailed || st.Reason != c.reason || !strings.Contains(st.Message, c.says) {
					t.Errorf("status %+v", st)
				}
				if got := l.reasons("a"); !slices.Equal(got, []string{c.reason}) {
					t.Errorf("events %v", got)
				}
				n.wantCPUs(map[string]string{"web": "0-15"}) // nothing was taken
				l.stop()
			})
		})
	}
}

// A container that is being made on CPUs that are given away meanwhile has to be
// told before their new owner starts.
func TestPlacementWaitsForWhatIsBeingMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := pinnedNode(t)
		n.want = []*v1.Pod{newPod("web", runs("web"))}
		n.rt.Delay("CreateContainer", 3*time.Second)
		l := n.start()
		settle()
		n.want = append(n.want, own("a", "2"))
		l.tell()
		settle()
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		n.wantCPUs(map[string]string{"web": "0,3-7"})
		time.Sleep(4 * time.Second)
		settle()
		n.wantCPUs(map[string]string{"web": "0,3-7", "a": "1-2"})
		var order []string
		for _, c := range n.rt.Calls("UpdateContainerResources", "CreateContainer") {
			order = append(order, c.Method)
		}
		if !slices.Equal(order, []string{"CreateContainer", "UpdateContainerResources", "CreateContainer"}) {
			t.Errorf("calls %v", order)
		}
		l.stop()
	})
}

// A source may name a pod late: until then nobody gets the CPUs that its
// containers run on, with or without a checkpoint.
func TestPlacementSlowSource(t *testing.T) {
	for _, checkpoint := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			n := pinnedNode(t)
			n.want = []*v1.Pod{own("a", "2"), newPod("web", runs("web"))}
			l := n.start()
			settle()
			l.stop()
			if !checkpoint {
				if err := os.RemoveAll(filepath.Join(n.root, "root", "placement")); err != nil {
					t.Fatal(err)
				}
			}
			all := n.want
			slow := &fakeSource{snapshots: make(chan podmgr.Snapshot, 1)}
			n.more = []podmgr.Source{named{slow, "http"}}
			n.want = []*v1.Pod{own("b", "2")}
			l = n.start()
			settle()
			n.wantCPUs(map[string]string{"a": "1-2", "web": "0,5-7", "b": "3-4"})
			slow.snapshots <- podmgr.Snapshot{Pods: all}
			settle()
			n.wantCPUs(map[string]string{"a": "1-2", "web": "0,5-7", "b": "3-4"})
			if phase := l.pod("a").Status.Phase; phase != v1.PodRunning {
				t.Errorf("a is %s", phase)
			}
			l.stop()
		})
	}
}

// named is a source under another name.
type named struct {
	podmgr.Source
	name string
}

func (n named) Name() string { return n.name }

// While the runtime does not tell what runs where, nothing is given.
func TestPlacementRuntimeIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := pinnedNode(t)
		n.want = []*v1.Pod{own("a", "2"), newPod("web", runs("web"))}
		l := n.start()
		settle()
		l.stop()
		if err := os.RemoveAll(filepath.Join(n.root, "root", "placement")); err != nil {
			t.Fatal(err)
		}
		n.want = append(n.want, own("b", "2"))
		n.rt.FailNext("ContainerStatus", 4, errors.New("busy"))
		l = n.start()
		time.Sleep(20 * time.Second)
		settle()
		n.wantCPUs(map[string]string{"a": "1-2", "web": "0,5-7", "b": "3-4"})
		l.stop()
	})
}

// Guaranteed pods keep their resources, as for the kubelet.
func TestPlacementResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := pinnedNode(t)
		n.want = []*v1.Pod{own("c", "2")}
		l := n.start()
		settle()
		l.edit("c", "3", "64Mi")
		if c := l.condition("c", v1.PodResizePending); c == nil || c.Reason != v1.PodReasonInfeasible || !strings.Contains(c.Message, "static") {
			t.Errorf("pending %+v", c)
		}
		n.wantCPUs(map[string]string{"c": "1-2"})
		l.stop()
	})
}

// Memory comes from few nodes, and what an init container had goes on.
func TestPlacementOfMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := pinnedNode(t)
		n.placement.Machine = numa.Uniform(2, 1, 4, 1, 2<<30)
		n.placement.MemoryPolicy = memmgr.StaticName
		n.placement.ReservedMemory = memmgr.Reserved{0: {memmgr.Memory: 512 << 20}}
		n.placement.TopologyPolicy, n.placement.TopologyScope = topology.NameSingleNUMANode, topology.PodScope
		reg := prometheus.NewRegistry()
		n.metrics = reg
		p := newPod("a", sized("a", "2", "1792Mi"))
		first := sized("init", "1", "1Gi")
		first.Args = []string{"sleep", "1s", "exit", "0"}
		p.Spec.InitContainers = []v1.Container{first}
		n.want = []*v1.Pod{p, newPod("web", runs("web"))}
		l := n.start()
		settle()
		mems := func(name string) string {
			st, _ := n.rt.ContainerStatus(t.Context(), n.id(name), false)
			return st.GetStatus().GetResources().GetLinux().GetCpusetMems()
		}
		if got := mems("init"); got != "1" {
			t.Errorf("init on memory of %q", got)
		}
		time.Sleep(2 * time.Second)
		settle()
		if a, web := mems("a"), mems("web"); a != "1" || web != "" {
			t.Errorf("a on memory of %q, web of %q", a, web)
		}
		n.wantCPUs(map[string]string{"a": "4-5", "web": "0-3,6-7"})
		l.stop()
		n.metrics = nil
		l = n.start()
		settle()
		n.want = append(n.want, newPod("b", sized("b", "1", "512Mi")))
		l.tell()
		settle()
		if got := mems("b"); got != "0" { // node 1 is still taken
			t.Errorf("b on memory of %q", got)
		}
		l.stop()

		got := map[string]float64{}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				got[strings.TrimPrefix(f.GetName(), "kubelet_")] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
		for name, want := range map[string]float64{
			"cpu_manager_pinning_requests_total": 2, "cpu_manager_pinning_errors_total": 0,
			"cpu_manager_shared_pool_size_millicores": 5000, "cpu_manager_exclusive_cpu_allocation_count": 2, "cpu_manager_allocation_per_numa": 2,
			"memory_manager_pinning_requests_total": 2, "memory_manager_pinning_errors_total": 0,
			"topology_manager_admission_requests_total": 2, "topology_manager_admission_errors_total": 0,
			"container_aligned_compute_resources_count": 2,
			// CPUs and memory, of a container and the init container before it.
			"resource_manager_allocations_total": 4, "resource_manager_container_assignments_total": 4,
		} {
			if v, ok := got[name]; !ok || v != want {
				t.Errorf("%s = %v, want %v", name, v, want)
			}
		}
	})
}

// later is an Admitter that has pods wait.
type later struct{ until time.Time }

func (*later) Name() string { return "later" }

func (l *later) Admit(pod *v1.Pod, _ []*v1.Pod) *part.Rejection {
	if pod.Name != "late" || time.Now().After(l.until) {
		return nil
	}
	return &part.Rejection{Reason: "TooEarly", Message: "come back", RetryUntil: time.Now().Add(time.Hour)}
}

func TestAdmitterLetsWait(t *testing.T) {
	for _, free := range []time.Duration{30 * time.Minute, 3 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			n.admitters = []part.Part{&later{time.Now().Add(free)}}
			n.want = []*v1.Pod{newPod("late", runs("c"))}
			l := n.start()
			time.Sleep(20 * time.Minute)
			settle()
			if st := l.pod("late").Status; st.Phase != v1.PodPending || st.Reason != "TooEarly" {
				t.Errorf("status %+v", st)
			}
			if f := l.Fit(l.pod("late")); f.Fits || f.Reason != "TooEarly" || f.RetryUntil.IsZero() {
				t.Errorf("fit %+v", f)
			}
			time.Sleep(45 * time.Minute)
			settle()
			want := v1.PodRunning
			if free > time.Hour {
				want = v1.PodFailed // the first deadline counts
			}
			l.wantPhase("late", want)
			l.stop()
		})
	}
}

// What Fit reports is what becomes of the pod.
func TestFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := pinnedNode(t)
		n.placement.TopologyPolicy = topology.NameRestricted
		n.want = []*v1.Pod{newPod("web", runs("web")), own("a", "3")}
		l := n.start()
		settle()
		p := newPod("b", sized("b", "2", "64Mi"), sized("log", "500m", "64Mi"))
		p.UID = ""
		f := l.Fit(p)
		if !f.Fits || len(f.Containers) != 2 || f.Containers[0].CPUs != "4-5" || !f.Containers[0].Own || f.Containers[1].CPUs != "0,6-7" || f.Containers[1].Own {
			t.Errorf("%+v", f)
		}
		if h := f.Containers[0].Hint; h.Nodes != "0" || !h.Preferred {
			t.Errorf("hint %+v", h)
		}
		if f := l.Fit(own("c", "5")); f.Fits || f.Reason != topology.ReasonAffinity || len(f.Steps) == 0 || len(f.Containers) > 0 {
			t.Errorf("%+v", f)
		}
		if f := l.Fit(own("c", "9")); f.Fits || f.Reason != "OutOfcpu" {
			t.Errorf("%+v", f)
		}
		n.wantCPUs(map[string]string{"web": "0,4-7", "a": "1-3"})
		p.UID = "uid-b"
		n.want = append(n.want, p)
		l.tell()
		settle()
		n.wantCPUs(map[string]string{"web": "0,6-7", "a": "1-3", "b": "4-5", "log": "0,6-7"})
		l.stop()
	})
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		l := n.start()
		settle()
		if f := l.Fit(own("a", "1")); !f.Fits || len(f.Containers) != 1 || f.Containers[0].CPUs != "" {
			t.Errorf("without placement: %+v", f)
		}
		l.stop()
	})
}

// forgetful makes containers as the kubelet does.
type forgetful struct{ *critest.Runtime }

func (f forgetful) CreateContainer(ctx context.Context, sandbox string, conf *runtimeapi.ContainerConfig, s *runtimeapi.PodSandboxConfig) (string, error) {
	delete(conf.Annotations, cri.AnnotationResources)
	return f.Runtime.CreateContainer(ctx, sandbox, conf, s)
}

// What a kubelet left running keeps its CPUs, even if the agent hears of a new
// pod before.
func TestPlacementAfterAKubelet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := pinnedNode(t)
		n.forgetful = true
		n.want = []*v1.Pod{own("a", "2"), newPod("web", runs("web"))}
		l := n.start()
		settle()
		l.stop()
		if err := os.RemoveAll(filepath.Join(n.root, "root", "placement")); err != nil {
			t.Fatal(err)
		}
		n.rt.ForgetCalls()
		n.want = append([]*v1.Pod{own("b", "2")}, n.want...)
		l = n.start()
		settle()
		n.wantCPUs(map[string]string{"a": "1-2", "web": "0,5-7", "b": "3-4"})
		if c := n.rt.Calls("UpdateContainerResources"); len(c) != 1 || c[0].Target != n.id("web") {
			t.Errorf("calls %v", c)
		}
		l.stop()
	})
}
