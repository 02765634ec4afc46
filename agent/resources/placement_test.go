package resources_test

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/resources"
	"github.com/nodewright/nodewright/cpumgr"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/podspec"
	"github.com/nodewright/nodewright/topology"
)

func marshal(t *testing.T, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestMistakes(t *testing.T) {
	_, err := resources.NewPlacement(resources.PlacementConfig{Fit: fit.PlacementConfig{
		Machine: numa.Uniform(1, 1, 8, 1, 4<<30), CPUPolicy: fit.CPUStatic, CPUOptions: cpumgr.Options{ResizeExclusive: true},
		ReservedCPUs: cpumgr.Reservation{CPUs: numa.CPUs(0)}, TopologyPolicy: "slow",
	}})
	for _, want := range []string{"placement: ", `"slow"`, "ResizeExclusive", "PlacementConfig.Runtime is required"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	n := newNode(t)
	n.metrics = prometheus.NewRegistry()
	n.join()
	if err := n.p.Join(n.host); err == nil {
		t.Error("a part of two agents")
	}
	if _, err := resources.NewPlacement(resources.PlacementConfig{Fit: n.fit, Runtime: n.rt, Metrics: n.metrics}); err != nil {
		t.Errorf("a second one on the same registry: %v", err)
	}
}

func TestOwnCPUs(t *testing.T) {
	n := newNode(t)
	n.start()
	web, a, b := shares("web"), owns("a", "2"), owns("b", "3")
	n.run(web)
	n.run(a)
	n.wantCPUs(map[string]string{"web": "0,3-7", "a": "1-2"})

	// The shared container leaves the CPUs before their owner is created.
	n.rt.ForgetCalls()
	n.run(b)
	n.wantCPUs(map[string]string{"web": "0,6-7", "a": "1-2", "b": "3-5"})
	var order []string
	for _, c := range n.rt.Calls("UpdateContainerResources", "CreateContainer") {
		order = append(order, c.Method)
	}
	if !slices.Equal(order, []string{"UpdateContainerResources", "CreateContainer"}) {
		t.Errorf("calls %v", order)
	}
	for pod, want := range map[*v1.Pod]bool{web: false, a: true, b: true} {
		if got := n.p.OwnCPUs(pod); got != want {
			t.Errorf("%s has CPUs of its own: %t, want %t", pod.Name, got, want)
		}
	}
	in := podspec.Input{Pinned: map[string]podspec.Pinning{"other": {CPUs: "9"}}}
	if err := n.p.Compile(b, &in); err != nil || in.Pinned["b"] != (podspec.Pinning{CPUs: "3-5", NoQuota: true}) || in.Pinned["other"].CPUs != "9" {
		t.Errorf("pinned %+v, %v", in.Pinned, err)
	}
	if got := n.p.CPUs().Exclusive(b.UID, "b").String() + " of " + n.p.CPUs().Allocatable().String(); got != "3-5 of 1-7" {
		t.Errorf("shows %s", got)
	}

	// What does not fit is rejected; what a pod had is free when it has stopped.
	c := owns("c", "3")
	if _, no := n.reserve(c); no == nil || no.Reason != topology.ReasonUnexpected || !strings.Contains(no.Message, "3") || no.Waits() {
		t.Errorf("rejection %+v", no)
	}
	if n.p.FitsWithout(c, []types.UID{web.UID}) || !n.p.FitsWithout(c, []types.UID{web.UID, a.UID}) {
		t.Error("c fits without a, and not without web")
	}
	if got := n.checkpoints(); !slices.Equal(got, []string{"uid-a", "uid-b"}) {
		t.Errorf("checkpoints %v", got)
	}
	n.host.Calls()
	n.end(b)
	if calls := n.host.Calls(); !slices.Equal(calls, []string{"housekeep"}) {
		t.Errorf("calls %v", calls)
	}
	n.wantCPUs(map[string]string{"web": "0,3-7", "a": "1-2"})
	n.end(a)
	if err := n.p.Stopped(t.Context(), part.RefOf(a)); err != nil { // again
		t.Error(err)
	}
	n.end(web)
	if got := n.checkpoints(); len(got) > 0 {
		t.Errorf("checkpoints are left: %v", got)
	}
}

// Whatever becomes of the agent and its checkpoints, containers that run keep the
// CPUs they have, and are not touched.
func TestRestarts(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, n *placementNode, file string){
		"nothing": func(*testing.T, *placementNode, string) {},
		"a torn checkpoint": func(t *testing.T, _ *placementNode, file string) {
			if err := os.WriteFile(file, []byte("no checkpoint"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"another version": func(t *testing.T, n *placementNode, _ string) {
			if err := part.OpenStore(n.dir, nil).Write("uid-b", []byte(`{"version":2}`)); err != nil {
				t.Fatal(err)
			}
		},
		"no checkpoint": func(t *testing.T, _ *placementNode, file string) {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		},
		"other options": func(_ *testing.T, n *placementNode, _ string) {
			n.fit.CPUOptions.DistributeAcrossCores = true
			n.fit.TopologyPolicy = topology.NameRestricted
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.start()
			web, a, b := shares("web"), owns("a", "2"), owns("b", "2")
			n.run(web)
			n.run(a)
			n.run(b)
			n.end(a)
			n.wantCPUs(map[string]string{"web": "0-2,5-7", "b": "3-4"}) // not where it would go now
			n.rt.ForgetCalls()
			harm(t, n, n.dir+"/uid-b")
			for range 2 {
				n.start()
				n.wantCPUs(map[string]string{"web": "0-2,5-7", "b": "3-4"})
				n.p.Adopt(web)
				c := owns("c", "2")
				n.run(c) // before b is named
				n.p.Adopt(b)
				if err := n.sync(b); err != nil {
					t.Fatal(err)
				}
				n.wantCPUs(map[string]string{"web": "0,5-7", "b": "3-4", "c": "1-2"})
				if got := n.checkpoints(); !slices.Equal(got, []string{"uid-b", "uid-c"}) {
					t.Errorf("checkpoints %v", got)
				}
				n.end(c)
			}
			for _, c := range n.rt.Calls("UpdateContainerResources") {
				if c.Target == n.ids["b"] {
					t.Errorf("%+v", c)
				}
			}
		})
	}
}

// A checkpoint of a pod that is gone was kept by its disk, and its CPUs are those of another
// pod by now, which keeps them if it runs and else gets others.
func TestCheckpointOutlivesItsPod(t *testing.T) {
	for _, runs := range []bool{true, false} {
		n := newNode(t)
		n.start()
		gone, now := owns("a", "2"), owns("b", "2")
		n.run(gone)
		left, err := part.OpenStore(n.dir, nil).Read("uid-a")
		if err != nil {
			t.Fatal(err)
		}
		n.end(gone)
		n.run(now)
		n.wantCPUs(map[string]string{"b": "1-2"})
		if err := part.OpenStore(n.dir, nil).Write("uid-a", left); err != nil {
			t.Fatal(err)
		}
		want := "1-2"
		if !runs {
			n.remove(now)
			want = "3-4"
		}
		n.start()
		n.p.Adopt(now)
		if err := n.sync(now); err != nil {
			t.Fatal(err)
		}
		n.wantCPUs(map[string]string{"b": want})
		if err := n.p.Sweep(t.Context(), func(uid types.UID) bool { return uid == now.UID }); err != nil {
			t.Error(err)
		}
		if got := n.checkpoints(); !slices.Equal(got, []string{"uid-b"}) {
			t.Errorf("checkpoints %v", got)
		}
	}
}

// A runtime that gave a container CPUs and answered with an error is asked again before
// anybody gets these for its own.
func TestLostUpdate(t *testing.T) {
	n := newNode(t)
	n.start()
	web, a, b := shares("web"), owns("a", "2"), owns("b", "2")
	n.run(web)
	n.run(a)
	n.wantCPUs(map[string]string{"web": "0,3-7", "a": "1-2"})
	lost := errors.New("the answer is lost")
	n.rt.Around(nil, func(c critest.Call) error {
		if c.Method == "UpdateContainerResources" {
			return lost
		}
		return nil
	})
	n.end(a)
	n.wantCPUs(map[string]string{"web": "0-7"})
	if _, no := n.reserve(b); no != nil {
		t.Fatal(no)
	}
	if err := n.sync(b); err == nil {
		t.Error("a pod starts while it is not known who else runs on its CPUs")
	}
	lost = nil
	if err := n.sync(b); err != nil {
		t.Error(err)
	}
	n.wantCPUs(map[string]string{"web": "0,3-7", "b": "1-2"})
}

// Pods that nobody knows any more are swept.
func TestSweep(t *testing.T) {
	n := newNode(t)
	n.start()
	web, a := shares("web"), owns("a", "2")
	n.run(web)
	n.run(a)
	n.remove(a)
	n.start()
	n.p.Adopt(web)
	if _, no := n.reserve(owns("c", "7")); no == nil {
		t.Error("the CPUs of a were given away")
	}
	if err := n.p.Sweep(t.Context(), func(uid types.UID) bool { return uid == web.UID }); err != nil {
		t.Error(err)
	}
	n.wantCPUs(map[string]string{"web": "0-7"})
	if got := n.checkpoints(); len(got) > 0 {
		t.Errorf("checkpoints %v", got)
	}
}

// With another policy, or none, what runs is taken as it is.
func TestPolicyChanges(t *testing.T) {
	n := newNode(t)
	static := n.fit
	n.fit = fit.PlacementConfig{}
	n.start()
	if !n.p.Idle() {
		t.Error("there is something to place")
	}
	web, a, b := shares("web"), owns("a", "2"), owns("b", "2")
	if r, no := n.p.Reserve(t.Context(), part.Request{Pod: web}); r != nil || no != nil {
		t.Errorf("%v, %v", r, no)
	}
	for _, pod := range []*v1.Pod{web, a} {
		if err := n.sync(pod); err != nil {
			t.Fatal(err)
		}
	}
	n.wantCPUs(map[string]string{"web": "", "a": ""})

	n.fit = static
	n.start()
	n.p.Adopt(web)
	n.p.Adopt(a)
	n.wantCPUs(map[string]string{"web": "", "a": ""}) // it shares, since it runs already
	n.run(b)
	n.wantCPUs(map[string]string{"web": "0,3-7", "a": "0,3-7", "b": "1-2"})

	n.fit = fit.PlacementConfig{Machine: static.Machine}
	for range 2 {
		n.start()
		for _, pod := range []*v1.Pod{web, a, b} {
			n.p.Adopt(pod)
			if err := n.sync(pod); err != nil {
				t.Fatal(err)
			}
		}
		n.wantCPUs(map[string]string{"web": "0-7", "a": "0-7", "b": "0-7"})
	}
	if _, err := os.Stat(n.dir); !os.IsNotExist(err) {
		t.Errorf("the directory of checkpoints: %v", err)
	}
	n.join()
	if !n.p.Idle() {
		t.Error("there is something to undo")
	}
}

// The owner waits for shared containers that do not leave.
func TestWaitsForSharers(t *testing.T) {
	n := newNode(t)
	n.start()
	n.run(shares("web"))
	n.rt.Fail("UpdateContainerResources", errors.New("busy"))
	a := owns("a", "2")
	if _, no := n.reserve(a); no != nil {
		t.Fatal(no)
	}
	err := n.sync(a)
	var named interface{ Reason() string }
	if !errors.As(err, &named) || named.Reason() != "PlacementNotReady" || !strings.Contains(err.Error(), "container web") || !strings.Contains(err.Error(), "busy") {
		t.Errorf("error %v", err)
	}
	n.run(shares("db")) // nobody else waits
	n.rt.Fail("UpdateContainerResources", nil)
	if err := n.sync(a); err != nil {
		t.Error(err)
	}
	n.wantCPUs(map[string]string{"web": "0,3-7", "db": "0,3-7", "a": "1-2"})
}

// A container that is being created on CPUs that are given away meanwhile has to
// leave them before their new owner starts. One whose creation does not end keeps
// the owner from starting.
func TestWaitsForCreation(t *testing.T) {
	for _, takes := range []time.Duration{3 * time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			n.start()
			web, a := shares("web"), owns("a", "2")
			conf := &runtimeapi.ContainerConfig{Linux: &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{}}}
			if _, no := n.reserve(web); no != nil {
				t.Fatal(no)
			}
			created, err := n.p.BeforeCreate(t.Context(), part.Container{Pod: web, Name: "web"}, conf)
			if err != nil || conf.Linux.Resources.CpusetCpus != "0-7" {
				t.Fatalf("%v, %v", conf, err)
			}
			if _, no := n.reserve(a); no != nil {
				t.Fatal(no)
			}
			time.AfterFunc(takes, func() {
				created("gone", nil)
				created("gone", nil) // twice is once
			})
			start := time.Now()
			err = n.p.Prepare(t.Context(), a, nil)
			if took := time.Since(start); took != min(takes, 10*time.Second) || (err == nil) != (took == takes) {
				t.Errorf("prepared after %v: %v", took, err)
			}
			time.Sleep(takes)
			if err := n.p.Prepare(t.Context(), a, nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// What a kubelet left running keeps its CPUs, even if the agent hears of a new pod
// right after it.
func TestAfterKubelet(t *testing.T) {
	n := newNode(t)
	n.forgetful = true
	n.start()
	a, web := owns("a", "2"), shares("web")
	n.run(a)
	n.run(web)
	if err := os.RemoveAll(n.dir); err != nil {
		t.Fatal(err)
	}
	n.rt.ForgetCalls()
	n.start()
	n.p.Adopt(a)
	n.p.Adopt(web)
	n.run(owns("b", "2"))
	n.wantCPUs(map[string]string{"a": "1-2", "web": "0,5-7", "b": "3-4"})
	if c := n.rt.Calls("UpdateContainerResources"); len(c) != 1 || c[0].Target != n.ids["web"] {
		t.Errorf("calls %v", c)
	}
}

// A runtime that does not answer is asked again: without knowing what runs where,
// nothing is given.
func TestRuntimeIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.start()
		a := owns("a", "2")
		n.run(a)
		if err := os.RemoveAll(n.dir); err != nil {
			t.Fatal(err)
		}
		n.rt.FailNext("ListContainers", 3, errors.New("busy"))
		n.rt.FailNext("ContainerStatus", 2, errors.New("busy"))
		n.start()
		n.run(owns("b", "2"))
		n.p.Adopt(a)
		n.wantCPUs(map[string]string{"a": "1-2", "b": "3-4"})
	})
}

// Guaranteed pods keep their resources, as for the kubelet.
func TestResize(t *testing.T) {
	n := newNode(t)
	n.start()
	a := owns("a", "2")
	n.run(a)
	if err := n.p.CheckResize(a, owns("a", "3")); err == nil || !strings.Contains(err.Error(), "static") {
		t.Errorf("error %v", err)
	}
	if err := n.p.CheckResize(a, a); err != nil {
		t.Error(err)
	}
}

// Memory comes from few nodes, and what an init container had goes on.
func TestMemory(t *testing.T) {
	n := newNode(t)
	n.fit.Machine = numa.Uniform(2, 1, 4, 1, 2<<30)
	n.fit.MemoryPolicy, n.fit.ReservedMemory = memmgr.StaticName, memmgr.Reserved{0: {memmgr.Memory: 512 << 20}}
	n.fit.TopologyPolicy, n.fit.TopologyScope = topology.NameSingleNUMANode, topology.PodScope
	reg := prometheus.NewRegistry()
	n.metrics = reg
	n.start()
	p := newPlacementPod("a", sized("a", "2", "1792Mi"))
	p.Spec.InitContainers = []v1.Container{sized("init", "1", "1Gi")}
	n.run(p)
	n.run(shares("web"))
	mems := func(name string) string {
		st, err := n.rt.ContainerStatus(t.Context(), n.ids[name], false)
		if err != nil {
			t.Fatal(err)
		}
		return st.GetStatus().GetResources().GetLinux().GetCpusetMems()
	}
	if init, a, web := mems("init"), mems("a"), mems("web"); init != "1" || a != "1" || web != "" {
		t.Errorf("memory of %q, %q and %q", init, a, web)
	}
	if b := n.p.Memory().Blocks(p.UID, "a"); len(b) != 1 || b[0].Bytes != 1792<<20 || b[0].Nodes != numa.Nodes(1) {
		t.Errorf("shows %+v", b)
	}
	if b := n.p.Memory().Allocatable(); len(b) == 0 {
		t.Error("shows no memory that pods can have")
	}
	n.metrics = nil
	n.start()
	n.p.Adopt(p)
	n.run(newPlacementPod("b", sized("b", "1", "512Mi")))
	if got := mems("b"); got != "0" { // placementNode 1 is still taken
		t.Errorf("b on memory of %q", got)
	}

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
}

// A pod that came to its end while there was no agent gives way.
func TestEndedPodGivesWay(t *testing.T) {
	n := newNode(t)
	n.start()
	done := owns("done", "5")
	n.run(done)
	n.remove(done)
	n.start()
	if _, no := n.reserve(owns("new", "5")); no == nil {
		t.Error("a pod that may begin again has lost its CPUs")
	}
	n.host.SetStatus(done.UID, v1.PodStatus{Phase: v1.PodSucceeded})
	n.run(owns("new", "5"))
	n.wantCPUs(map[string]string{"new": "1-5"})
	if err := n.p.Sweep(t.Context(), func(types.UID) bool { return true }); err != nil {
		t.Error(err)
	}
	if got := n.checkpoints(); !slices.Equal(got, []string{"uid-new"}) {
		t.Errorf("checkpoints %v", got)
	}
}
