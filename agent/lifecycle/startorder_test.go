package lifecycle

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/agenttest"
)

// testNode is a part in an agent whose machine is as busy as the test says.
type testNode struct {
	*StartOrder
	t    *testing.T
	host *agenttest.Host
	busy atomic.Bool
	asks atomic.Int32
}

func newNode(t *testing.T, pods ...*v1.Pod) *testNode {
	t.Helper()
	n := &testNode{t: t, host: agenttest.NewHost(t)}
	p, err := NewStartOrder(StartOrderConfig{Busy: func() (bool, string) {
		n.asks.Add(1)
		return n.busy.Load(), "in a test"
	}})
	if err != nil {
		t.Fatal(err)
	}
	n.StartOrder = p
	if err := p.Join(n.host); err != nil {
		t.Fatal(err)
	}
	n.host.SetPods(pods...)
	return n
}

// want checks what a pod waits for; "" is nothing.
func (n *testNode) want(name, reason string) {
	n.t.Helper()
	for _, p := range n.host.Pods() {
		if p.Name != name {
			continue
		}
		r := n.Admit(p, nil)
		got := ""
		if r != nil {
			got = r.Message
			if r.Reason != ReasonStartOrder || !r.Waits() || !r.Outside || !r.Final {
				n.t.Errorf("%s: %+v", name, r)
			}
		}
		if got != reason && (reason == "" || !strings.Contains(got, reason)) {
			n.t.Errorf("%s waits for %q, want %q", name, got, reason)
		}
	}
}

func (n *testNode) report(name string, phase v1.PodPhase, ready v1.ConditionStatus) {
	n.t.Helper()
	for _, p := range n.host.Pods() {
		if p.Name == name {
			n.Report(p, &v1.PodStatus{Phase: phase, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: ready}}})
		}
	}
}

func TestPodsWaitForOthers(t *testing.T) {
	n := newNode(t, podOf("web", "db,job,init", ""), podOf("db", "", ""), podOf("job", "", ""), podOf("init", "", ""))
	n.want("db", "")
	n.want("web", "waits for default/db, default/init, default/job to be ready")
	n.report("db", v1.PodRunning, v1.ConditionFalse)
	if calls := n.host.Calls(); len(calls) > 0 {
		t.Errorf("asked for %q", calls)
	}
	n.report("db", v1.PodRunning, v1.ConditionTrue)
	n.report("job", v1.PodSucceeded, v1.ConditionFalse)
	if calls := strings.Join(n.host.Calls(), ", "); calls != "readmit, readmit" {
		t.Errorf("asked for %q", calls)
	}
	n.want("web", "waits for default/init to be ready")
	n.report("db", v1.PodRunning, v1.ConditionFalse) // it was ready once
	n.want("web", "waits for default/init to be ready")
	n.host.SetStatus("init", v1.PodStatus{Phase: v1.PodFailed}) // rejected: it never begins
	n.want("web", "")
	n.report("web", v1.PodRunning, v1.ConditionFalse)
	if err := n.Sweep(t.Context(), func(uid types.UID) bool { return uid == "web" }); err != nil {
		t.Error(err)
	}
	n.want("web", "") // it has begun
	n.want("db", "")
	if len(n.begun) != 1 || len(n.told) > 2 || len(n.queued) > 0 {
		t.Errorf("kept %v, %v, %v", n.begun, n.told, n.queued)
	}
}

func TestWhatIsLeftOutIsTold(t *testing.T) {
	n := newNode(t, podOf("a", "b,none", "lots"), podOf("b", "a", ""))
	n.want("a", "")
	n.want("a", "")
	calls := n.host.Calls()
	const want = `event default/a Warning StartOrderIgnored: annotation nodewright.io/start-priority="lots": want a number from -1000000 to 1000000; pod default/b waits for this one in turn; the node has no pod "none"`
	if len(calls) != 1 || calls[0] != want {
		t.Errorf("%q, want %q", calls, want)
	}
	if got := n.Explain(n.host.Pods()[0]); !strings.Contains(got, "left out of its start order: annotation") {
		t.Error(got)
	}
	n.want("b", "")
	if got := n.Explain(podOf("c", "", "")); got != "" {
		t.Error(got)
	}
}

// Lesser pods wait while more important ones begin on a busy machine, are let through
// a few at a time on one that is not, and after a while anyway. Then nothing is measured.
func TestLesserPodsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, podOf("high", "", "5"), podOf("a", "", ""), podOf("b", "", ""), podOf("c", "", ""), podOf("d", "", ""))
		n.busy.Store(true)
		ended := make(chan error, 1)
		go func() { ended <- n.Run(t.Context()) }()
		n.want("high", "")
		synctest.Wait()
		if n.asks.Load() != 0 {
			t.Error("the machine was looked at for nothing")
		}
		for _, name := range []string{"a", "b", "c", "d"} {
			n.want(name, "waits for more important pods while the machine is busy: default/high")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		n.want("a", "waits for more important")
		if got := n.Explain(n.host.Pods()[1]); got != "its turn: the machine is busy, in a test" {
			t.Error(got)
		}
		if calls := n.host.Calls(); len(calls) > 0 {
			t.Errorf("asked for %q", calls)
		}
		n.busy.Store(false)
		time.Sleep(lookEvery)
		synctest.Wait()
		if calls := strings.Join(n.host.Calls(), ", "); calls != "readmit" {
			t.Errorf("asked for %q", calls)
		}
		n.want("a", "")
		n.report("a", v1.PodRunning, v1.ConditionFalse)
		n.want("b", "")
		n.report("b", v1.PodRunning, v1.ConditionFalse)
		n.want("c", "waits for more important")
		n.busy.Store(true)
		time.Sleep(lookEvery)
		synctest.Wait()
		n.want("c", "waits for more important")
		time.Sleep(startTimeout)
		n.want("c", "")
		n.report("c", v1.PodRunning, v1.ConditionFalse)
		n.report("high", v1.PodRunning, v1.ConditionTrue)
		n.want("d", "")
		time.Sleep(lookEvery)
		synctest.Wait()
		asked := n.asks.Load()
		time.Sleep(time.Hour)
		if n.asks.Load() != asked {
			t.Error("the machine is looked at though nobody waits")
		}
	})
}

// A pod whose turn it is keeps it while others have it wait, and so until it begins: it is
// asked for often, and each other answer would be an event and a status.
func TestATurnIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, podOf("high", "", "5"), podOf("a", "", ""), podOf("b", "", ""))
		go func() { _ = n.Run(t.Context()) }()
		n.want("a", "waits for more important")
		time.Sleep(lookEvery)
		synctest.Wait()
		for range 10 {
			n.want("a", "")
		}
		n.busy.Store(true)
		time.Sleep(time.Second)
		synctest.Wait()
		n.want("a", "")
		n.want("b", "waits for more important")
		n.report("a", v1.PodRunning, v1.ConditionFalse)
		n.want("a", "")
		if len(n.turns) > 0 {
			t.Errorf("kept %v", n.turns)
		}
		time.Sleep(startTimeout)
		n.want("b", "")
		if err := n.Sweep(t.Context(), func(types.UID) bool { return false }); err != nil || len(n.turns) > 0 {
			t.Errorf("%v, kept %v", err, n.turns)
		}
	})
}

func TestStartOrderJoinsOnce(t *testing.T) {
	n := newNode(t)
	if err := n.Join(n.host); err == nil {
		t.Error("one part joined twice")
	}
}
