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

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent/fit"
	"github.com/nodewright/nodewright/cpumgr"
	"github.com/nodewright/nodewright/internal/criruntimetest"
	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/topology"
)

// pinnedNode has 8 CPUs without siblings on one NUMA node; CPU 0 is reserved.
func pinnedNode(t *testing.T) *node {
	n := newNode(t)
	n.cpus = "8"
	n.placement = fit.Config{
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

		// What does not fit is turned away, with the kubelet's reason; what a pod
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
		n.placement = fit.Config{}
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

		n.placement = fit.Config{Machine: static.Machine}
		l = n.start()
		settle()
		n.wantCPUs(map[string]string{"web": "0-7", "a": "0-7", "b": "0-7"})
		l.stop()
		n.placement = fit.Config{}
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
			fail := func(c criruntimetest.Call, done bool) error {
				mu.Lock()
				defer mu.Unlock()
				if c.Method == "GetContainerEvents" {
					return nil
				}
				if !done {
					count++
				}
				reached = reached || count == (at+1)/2 && done == after
				if reached {
					return died // a dead process hears no answer and makes no call
				}
				return nil
			}
			n.rt.Around(func(c criruntimetest.Call) error { return fail(c, false) }, func(c criruntimetest.Call) error { return fail(c, true) })
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

// A pod waits for CPUs that one holds which is ending, and is turned away if
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
		config func(*fit.Config)
		pod    *v1.Pod
		reason string
		says   string
	}{
		{"no node with enough CPUs", func(c *fit.Config) { c.TopologyPolicy = topology.NameSingleNUMANode }, own("a", "10"), topology.ReasonAffinity, "NUMA nodes 0-1"},
		{"half cores", func(c *fit.Config) { c.CPUOptions.FullPCPUsOnly = true }, own("a", "3"), "SMTAlignmentError", "3"},
		{"no memory", func(c *fit.Config) {
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
