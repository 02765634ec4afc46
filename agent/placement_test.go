package agent_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cpumgr"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/podmgr"
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

// named is a source under another name.
type named struct {
	podmgr.Source
	name string
}

func (n named) Name() string { return n.name }

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
