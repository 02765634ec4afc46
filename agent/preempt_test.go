package agent_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/pressure"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/podmgr"
)

// preempts has the node's agents end pods for critical ones.
func (n *node) preempts(standalone bool) {
	n.t.Helper()
	p, err := pressure.NewPreemption(pressure.PreemptionConfig{Standalone: standalone, Metrics: n.metrics})
	if err != nil {
		n.t.Fatal(err)
	}
	n.parts = []part.Part{p}
}

func withCPU(p *v1.Pod, request string, priority int32) *v1.Pod {
	p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(request)}
	p.Spec.Priority = &priority
	return p
}

const systemNodeCritical = 2_000_001_000

// counted is the sum of a metric's series.
func counted(t *testing.T, reg *prometheus.Registry, name string) (sum float64) {
	t.Helper()
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// A critical pod that does not fit has the least of the others end, in its own time,
// and runs when it has.
func TestCriticalPodPreempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		reg := prometheus.NewRegistry()
		n.metrics = reg
		n.preempts(false)
		api := newAPISource()
		n.more = []podmgr.Source{api}
		l := n.start()
		defer l.stop()
		large, small := withCPU(newPod("large", runs("c")), "1500m", 100), withCPU(newPod("small", runs("c")), "500m", 100)
		grace := int64(20)
		small.Spec.TerminationGracePeriodSeconds = &grace
		api.tell(large, small)
		l.tell()
		settle()
		l.wantPhase("small", v1.PodRunning)

		n.want = []*v1.Pod{withCPU(newPod("critical", runs("c")), "400m", systemNodeCritical)}
		l.tell()
		settle()
		l.wantPhase("critical", v1.PodRunning)
		l.wantPhase("large", v1.PodRunning)
		p := l.pod("small")
		if p.Status.Phase != v1.PodFailed || p.Status.Reason != "Preempting" || condition(p, v1.DisruptionTarget) == nil {
			t.Errorf("the victim is %s, %s, %+v", p.Status.Phase, p.Status.Reason, p.Status.Conditions)
		}
		if !hasEvent(l, small, "Preempting") || hasEvent(l, large, "Preempting") {
			t.Errorf("events %v and %v", l.Events(small), l.Events(large))
		}
		if got := counted(t, reg, "kubelet_preemptions"); got != 1 {
			t.Errorf("%v preemptions are counted, want 1", got)
		}
		if _, running := n.containers(); running["small/c"] != 0 || running["critical/c"] != 1 {
			t.Errorf("running: %v", running)
		}
	})
}

// A critical pod begins when the containers of its victim have ended, however long the victim's
// volumes take.
func TestNobodyWaitsForVolumesOfAVictim(t *testing.T) {
	for name, fromAPI := range map[string]bool{"of an API server": true, "static": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				n.preempts(false)
				n.configure = func(c *agent.Config) { c.Volumes.Manager = slowVolumes{time.Hour} }
				victim, grace := withCPU(newPod("victim", runs("c")), "1500m", 100), int64(1)
				victim.Spec.TerminationGracePeriodSeconds = &grace
				api := newAPISource()
				if fromAPI {
					n.more = []podmgr.Source{api}
				} else {
					n.want = []*v1.Pod{victim}
				}
				l := n.start()
				defer l.stop()
				if fromAPI {
					api.tell(victim)
				}
				l.tell()
				settle()
				n.want = append(n.want, withCPU(newPod("critical", runs("c")), "1", systemNodeCritical))
				l.tell()
				time.Sleep(5 * time.Second)
				synctest.Wait()
				l.wantPhase("critical", v1.PodRunning)
			})
		})
	}
}

// A critical pod that waits for something else as well, such as its turn, has others end when
// that is over: not before, and it is not rejected meanwhile.
func TestWhoWaitsPreemptsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.preempts(false)
		turn := time.Now().Add(40 * time.Second)
		n.parts = append(n.parts, part.AdmitFunc("turns", func(pod *v1.Pod, _ []*v1.Pod) *part.Rejection {
			if pod.Name == "critical" && time.Now().Before(turn) {
				return &part.Rejection{Reason: "Turn", Message: "waits for its turn", RetryUntil: turn}
			}
			return nil
		}))
		api := newAPISource()
		n.more = []podmgr.Source{api}
		l := n.start()
		defer l.stop()
		api.tell(withCPU(newPod("large", runs("c")), "1500m", 100))
		l.tell()
		settle()
		n.want = []*v1.Pod{withCPU(newPod("critical", runs("c")), "1", systemNodeCritical)}
		l.tell()
		time.Sleep(time.Until(turn) - 5*time.Second)
		synctest.Wait()
		l.wantPhase("large", v1.PodRunning)
		if p := l.pod("critical"); p.Status.Phase != v1.PodPending {
			t.Errorf("who waits is %s: %s", p.Status.Phase, p.Status.Message)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		l.wantPhase("large", v1.PodFailed)
		l.wantPhase("critical", v1.PodRunning)
	})
}

// Nobody ends in vain: not where it would not be enough, and not for a pod that
// something else keeps from running.
func TestNobodyEndsInVain(t *testing.T) {
	for name, change := range map[string]func(*v1.Pod){
		"too much is asked for": func(p *v1.Pod) { withCPU(p, "3", systemNodeCritical) },
		"for another node":      func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} },
		"a part says no":        func(p *v1.Pod) { p.Name = "unwanted" },
		"not critical":          func(p *v1.Pod) { p.Spec.Priority = new(int32(5)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				n.preempts(true)
				n.parts = append(n.parts, part.AdmitFunc("own", func(pod *v1.Pod, _ []*v1.Pod) *part.Rejection {
					if pod.Name == "unwanted" {
						return &part.Rejection{Reason: "Unwanted"}
					}
					return nil
				}))
				l := n.start()
				defer l.stop()
				n.want = []*v1.Pod{withCPU(newPod("web", runs("c")), "2", 5)}
				l.tell()
				settle()
				critical := withCPU(newPod("critical", runs("c")), "1", systemNodeCritical)
				change(critical)
				n.want = append(n.want, critical)
				l.tell()
				settle()
				l.wantPhase("web", v1.PodRunning)
				l.wantPhase(critical.Name, v1.PodFailed)
			})
		})
	}
}

// In place of a victim that does not end in its time another one ends, and the pod
// that they end for waits.
func TestVictimThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.preempts(true)
		l := n.start()
		defer l.stop()
		n.want = []*v1.Pod{withCPU(newPod("stuck", runs("s")), "900m", 1), withCPU(newPod("other", runs("c")), "1100m", 1)}
		for _, p := range n.want {
			p.Spec.TerminationGracePeriodSeconds = new(int64(5))
		}
		l.tell()
		settle()
		id := n.id("s")
		list, err := n.rt.ListContainers(t.Context(), &runtimeapi.ContainerFilter{Id: id})
		if err != nil {
			t.Fatal(err)
		}
		sandbox := list[0].GetPodSandboxId()
		n.rt.Around(func(c critest.Call) error {
			if c.Method == "StopContainer" && c.Target == id || c.Method == "StopPodSandbox" && c.Target == sandbox {
				return errors.New("it will not stop")
			}
			return nil
		}, nil)
		n.want = append(n.want, withCPU(newPod("critical", runs("c")), "900m", systemNodeCritical))
		l.tell()
		settle()
		l.wantPhase("critical", v1.PodPending)
		l.wantPhase("other", v1.PodRunning)
		time.Sleep(40 * time.Second)
		settle()
		l.wantPhase("critical", v1.PodRunning)
		if p := l.pod("other"); p.Status.Reason != "Preempting" {
			t.Errorf("the other is %s, %s", p.Status.Phase, p.Status.Reason)
		}
	})
}
