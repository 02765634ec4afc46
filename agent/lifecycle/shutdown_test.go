package lifecycle_test

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/lifecycle"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/node/shutdown"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podworker"
)

// shutdownMachine is one that the test takes down.
type shutdownMachine struct {
	mu       sync.Mutex
	on       func(bool)
	released int
	slow     time.Duration // to report for the first time
	goesDown bool          // is what it reports first
}

func (m *shutdownMachine) Watch(ctx context.Context, _ time.Duration, on func(bool)) error {
	time.Sleep(m.slow)
	on(m.goesDown)
	m.mu.Lock()
	m.on = on
	m.mu.Unlock()
	<-ctx.Done()
	return nil
}

func (m *shutdownMachine) Release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.released++
}

func (m *shutdownMachine) set(down bool) {
	m.mu.Lock()
	on := m.on
	m.mu.Unlock()
	on(down)
}

func (m *shutdownMachine) letGo() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.released > 0
}

// shutdownNode is a part that runs, of a host whose pods can be ended.
type shutdownNode struct {
	*lifecycle.Shutdown
	host *agenttest.Host
	stop func()
}

// newNode gives pods 20 s, and those of the system 10 s more. It must be stopped.
func newNode(t *testing.T, m *shutdownMachine, store part.Store) *shutdownNode {
	t.Helper()
	n := &shutdownNode{host: agenttest.NewHost(t)}
	p, err := lifecycle.NewShutdown(lifecycle.ShutdownConfig{Requested: 30 * time.Second, Critical: 10 * time.Second, Machine: m, Store: store})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Join(n.host); err != nil {
		t.Fatal(err)
	}
	n.Shutdown = p
	system := newPod("system")
	system.Spec.Priority = new(int32(2_000_000_000))
	n.host.SetPods(newPod("web"), system)
	n.host.OnEnd(func(pod *v1.Pod, why podlife.Cause) error {
		st := v1.PodStatus{Phase: v1.PodRunning}
		why.Apply(&st)
		n.host.SetStatus(pod.UID, st)
		n.host.SetWorker(podworker.Status{UID: pod.UID, Kind: podworker.Terminated})
		go func() { // its volumes go
			time.Sleep(time.Second)
			n.host.SetWorker(podworker.Status{UID: pod.UID, Kind: podworker.Terminated, Finished: true})
		}()
		return nil
	})
	n.stop = agenttest.RunPart(t, p)
	return n
}

func newPod(name string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "default", UID: types.UID("uid-" + name),
		Annotations: map[string]string{podmeta.AnnotationSource: "file"},
	}}
	p.Spec.TerminationGracePeriodSeconds = new(int64(5))
	return p
}

// calls are those that begin like one of the prefixes.
func (n *shutdownNode) calls(prefixes ...string) (out []string) {
	for _, c := range n.host.Calls() {
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(c, p) }) {
			out = append(out, c)
		}
	}
	return out
}

var (
	terminated  = &v1.PodStatus{Phase: v1.PodFailed, Reason: "Terminated"}
	notAdmitted = &v1.PodStatus{Phase: v1.PodFailed, Reason: "NodeShutdown", Message: "Pod was rejected: Pod was rejected as the node is shutting down."}
)

// Pods end by priority, each group when the volumes of the one before are gone;
// those that come are rejected, and all begin again when the machine stays up
// after all.
func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &shutdownMachine{}
		n := newNode(t, m, &checkpointtest.Disk{})
		n.host.Settle()
		synctest.Wait()
		if err := n.Restore(t.Context()); err != nil {
			t.Error(err)
		}
		late := newPod("late")
		if n.ShuttingDown() != nil || n.Admit(late, nil) != nil {
			t.Errorf("at first: %v, %v", n.ShuttingDown(), n.Admit(late, nil))
		}
		n.host.Calls()
		m.set(true)
		time.Sleep(500 * time.Millisecond)
		if ends := n.calls("end"); !slices.Equal(ends, []string{"end default/web grace=5"}) || m.letGo() {
			t.Errorf("ends %q, released %t", ends, m.letGo())
		}
		if revives(n, newPod("web"), terminated) || revives(n, late, notAdmitted) {
			t.Error("pods begin while the machine goes down")
		}
		time.Sleep(5 * time.Second)
		if ends := n.calls("end"); !slices.Equal(ends, []string{"end default/system grace=5"}) || !m.letGo() {
			t.Errorf("ends %q, released %t", ends, m.letGo())
		}
		if st, _ := n.host.Status("uid-web"); st.Phase != v1.PodFailed || st.Reason != "Terminated" || len(st.Conditions) != 1 || st.Conditions[0].Type != v1.DisruptionTarget {
			t.Errorf("web: %+v", st)
		}
		if r := n.Admit(late, nil); r == nil || r.Reason != "NodeShutdown" || r.Message != "Pod was rejected as the node is shutting down." || r.Waits() {
			t.Errorf("late: %+v", r)
		}
		if !errors.Is(n.ShuttingDown(), shutdown.ErrShuttingDown) {
			t.Error(n.ShuttingDown())
		}
		m.set(false)
		synctest.Wait()
		if calls := n.calls("housekeep", "node event"); !slices.Equal(calls, []string{"node event Normal Shutdown: Shutdown manager detected shutdown cancellation", "housekeep"}) {
			t.Errorf("calls %q", calls)
		}
		if n.ShuttingDown() != nil || n.Admit(late, nil) != nil || !revives(n, newPod("web"), terminated) || !revives(n, late, notAdmitted) {
			t.Error("pods do not begin though the machine stays up")
		}
		n.stop()
	})
}

// A shutdown also waits for the end of a pod that no source wants any more.
func TestShutdownOfRemovedPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &shutdownMachine{}
		n := newNode(t, m, nil)
		n.host.Settle()
		n.host.SetPods()
		ends, ended := newPod("ends"), newPod("ended")
		for _, p := range []*v1.Pod{ends, ended} {
			n.host.SetObserved(&observed.Pod{UID: p.UID, Name: p.Name, Namespace: p.Namespace})
		}
		n.host.SetObserved(&observed.Pod{UID: "without a worker"})
		n.host.SetWorker(podworker.Status{UID: ends.UID, Pod: ends, Kind: podworker.Terminating})
		n.host.SetWorker(podworker.Status{UID: ended.UID, Pod: ended, Kind: podworker.Terminated})
		synctest.Wait()
		m.set(true)
		time.Sleep(500 * time.Millisecond)
		if ends := n.calls("end"); !slices.Equal(ends, []string{"end default/ends grace=5"}) || m.letGo() {
			t.Errorf("ends %q, released %t", ends, m.letGo())
		}
		time.Sleep(5 * time.Second)
		if !m.letGo() {
			t.Error("the machine may not go down after the pod's end")
		}
		n.stop()
	})
}

// Who does not begin again by itself.
func TestWhoDoesNotBeginAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, &shutdownMachine{}, nil)
		synctest.Wait()
		api := newPod("api")
		api.Annotations = nil
		for name, tc := range map[string]struct {
			pod *v1.Pod
			st  *v1.PodStatus
		}{
			"of a cluster":           {api, terminated},
			"of a cluster, rejected": {api, notAdmitted},
			"succeeded":              {newPod("p"), &v1.PodStatus{Phase: v1.PodSucceeded, Reason: "Terminated"}},
			"failed by itself":       {newPod("p"), &v1.PodStatus{Phase: v1.PodFailed, Reason: "Error"}},
			"evicted":                {newPod("p"), &v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted"}},
		} {
			if revives(n, tc.pod, tc.st) {
				t.Errorf("%s: it begins again", name)
			}
		}
		n.stop()
	})
}

// An agent that starts while the machine goes down rejects pods until the machine
// has said otherwise.
func TestShutdownIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, m := &checkpointtest.Disk{}, &shutdownMachine{}
		n := newNode(t, m, store)
		synctest.Wait()
		m.set(true)
		time.Sleep(10 * time.Second)
		n.stop()

		n = newNode(t, &shutdownMachine{slow: 3 * time.Second}, store)
		if err := n.Restore(t.Context()); err != nil {
			t.Error(err)
		}
		if n.Admit(newPod("late"), nil) == nil || n.ShuttingDown() == nil {
			t.Error("a pod is admitted")
		}
		n.host.Calls()
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if n.Admit(newPod("late"), nil) != nil || n.calls("housekeep") == nil || !revives(n, newPod("web"), terminated) {
			t.Error("pods do not begin")
		}
		n.stop()
	})
}

// A machine that goes down as soon as the agent is there finds pods that are not
// adopted yet: it waits for them, and not for long.
func TestShutdownAtTheStart(t *testing.T) {
	for _, tc := range []struct {
		settles, ends time.Duration
	}{{100 * time.Millisecond, 100 * time.Millisecond}, {time.Hour, 2 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t, &shutdownMachine{goesDown: true}, nil)
			go func() { time.Sleep(tc.settles); n.host.Settle() }()
			time.Sleep(tc.ends - 1)
			synctest.Wait()
			if ends := n.calls("end"); ends != nil {
				t.Errorf("%q before %v", ends, tc.ends)
			}
			time.Sleep(1 * time.Nanosecond)
			synctest.Wait()
			if ends := n.calls("end"); len(ends) != 1 {
				t.Errorf("%q after %v, want web's", ends, tc.ends)
			}
			n.stop()
			time.Sleep(time.Hour)
		})
	}
}

// A pod that does not end, and volumes that stay, cost their group's time.
func TestVolumesThatStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &shutdownMachine{}
		n := newNode(t, m, nil)
		n.host.OnEnd(func(pod *v1.Pod, _ podlife.Cause) error {
			n.host.SetWorker(podworker.Status{UID: pod.UID, Kind: podworker.Terminated})
			return nil
		})
		n.host.Settle()
		synctest.Wait()
		m.set(true)
		time.Sleep(20*time.Second - 1)
		if ends := n.calls("end"); len(ends) != 1 {
			t.Errorf("%q within the first group's time", ends)
		}
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		if ends := n.calls("end"); len(ends) != 1 || m.letGo() {
			t.Errorf("%q, released %t", ends, m.letGo())
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if !m.letGo() {
			t.Error("the machine is held up")
		}
		n.stop()
	})
}

// While the store hangs, hooks on the loop return, the machine is watched, and
// pods end in order.
func TestTheStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, store := &shutdownMachine{}, &agenttest.HungStore{}
		n := newNode(t, m, store)
		n.host.Settle()
		if n.Admit(newPod("early"), nil) != nil || n.ShuttingDown() != nil || !revives(n, newPod("early"), notAdmitted) {
			t.Error("a hook's answer")
		}
		if err := n.Restore(t.Context()); err == nil || !strings.Contains(err.Error(), "the store did not answer in time") {
			t.Error(err)
		}
		time.Sleep(time.Second)
		m.set(true)
		if n.Admit(newPod("late"), nil) == nil {
			t.Error("a pod is admitted while the machine goes down")
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if ends := n.calls("end"); len(ends) != 2 || !m.letGo() || store.Calls() < 2 {
			t.Errorf("ends %q, released %t, %d calls of the store", ends, m.letGo(), store.Calls())
		}
		store.Release()
		n.stop()
	})
}

// What is read too late changes nothing any more.
func TestTheStoreIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, m := &checkpointtest.Disk{}, &shutdownMachine{}
		n := newNode(t, m, store)
		synctest.Wait()
		m.set(true)
		time.Sleep(10 * time.Second)
		n.stop()

		free := make(chan struct{})
		store.Fault(checkpointtest.Hang(free, "read"))
		n = newNode(t, &shutdownMachine{}, store)
		if err := n.Restore(t.Context()); err == nil || !strings.Contains(err.Error(), "the store did not answer in time") {
			t.Error(err)
		}
		close(free)
		synctest.Wait()
		if n.ShuttingDown() != nil {
			t.Error("an answer of the store that came too late has the node go down")
		}
		n.stop()
	})
}

// Shutdowns that are not handled admit every pod; mistakes are said; and a part
// is of one agent.
func TestNewAndJoin(t *testing.T) {
	for want, cfg := range map[string]lifecycle.ShutdownConfig{
		"Critical is 2s":      {Requested: time.Second, Critical: 2 * time.Second, Machine: &shutdownMachine{}},
		"Machine is required": {Requested: time.Second},
	} {
		if _, err := lifecycle.NewShutdown(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want it to say %q", err, want)
		}
	}
	p, err := lifecycle.NewShutdown(lifecycle.ShutdownConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Join(agenttest.NewHost(t)); err != nil {
		t.Error(err)
	}
	if err := p.Join(agenttest.NewHost(t)); err == nil {
		t.Error("joined twice")
	}
	stop := testrun.Start(t, p.Run)
	if err := p.Restore(t.Context()); err != nil || p.Admit(newPod("p"), nil) != nil {
		t.Error(err, p.Admit(newPod("p"), nil))
	}
	stop()
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
