package agent_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/lifecycle"
	"github.com/nodewright/nodewright/agent/pressure"
	"github.com/nodewright/nodewright/node/oom"
)

// fakeMachine is one that the test takes down.
type fakeMachine struct {
	mu       sync.Mutex
	on       func(bool)
	released int
	slow     time.Duration // to tell for the first time
	goesDown bool          // is what it reports first
}

func (m *fakeMachine) Watch(ctx context.Context, _ time.Duration, on func(bool)) error {
	time.Sleep(m.slow)
	on(m.goesDown)
	m.mu.Lock()
	m.on = on
	m.mu.Unlock()
	<-ctx.Done()
	return nil
}

func (m *fakeMachine) Release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.released++
}

func (m *fakeMachine) set(down bool) {
	m.mu.Lock()
	on := m.on
	m.mu.Unlock()
	on(down)
}

func (m *fakeMachine) letGo() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.released > 0
}

// Pods end by priority, those that come are rejected, and all begin again
// when the machine stays up after all, or has come up again.
func TestShutdown(t *testing.T) {
	for _, tc := range []struct {
		name string
		then func(n *node, l *life, m *fakeMachine) *life
	}{
		{"called off", func(_ *node, l *life, m *fakeMachine) *life {
			m.set(false)
			return l
		}},
		{"another life", func(n *node, l *life, m *fakeMachine) *life {
			l.stop()
			return n.start()
		}},
		{"another life, which is told late", func(n *node, l *life, m *fakeMachine) *life {
			l.stop()
			m.slow = 3 * time.Second
			return n.start()
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				m := &fakeMachine{}
				n.shutdown = &lifecycle.ShutdownConfig{Requested: 30 * time.Second, Critical: 10 * time.Second, Machine: m}
				system := newPod("system", runs("c", "sleep", "forever"))
				system.Spec.Priority = new(int32(2_000_000_000))
				n.want = []*v1.Pod{newPod("web", runs("c")), system}
				l := n.start()
				settle()
				l.wantPhase("web", v1.PodRunning)
				m.set(true)
				time.Sleep(45 * time.Second)
				synctest.Wait()
				if !m.letGo() || l.ShuttingDown() == nil {
					t.Errorf("released %v, %v", m.letGo(), l.ShuttingDown())
				}
				if _, running := n.containers(); running["web/c"]+running["system/c"] != 0 {
					t.Errorf("running %v", running)
				}
				for _, name := range []string{"web", "system"} {
					p := l.pod(name)
					if p.Status.Phase != v1.PodFailed || p.Status.Reason != "Terminated" || condition(p, v1.DisruptionTarget) == nil {
						t.Errorf("%s: %+v", name, p.Status)
					}
				}
				if stops := n.stops(); len(stops) != 2 || stops[0] != "web" || stops[1] != "system" {
					t.Errorf("ended in the order %v", stops)
				}
				n.want = append(n.want, newPod("late", runs("c")))
				l.tell()
				settle()
				if p := l.pod("late"); p.Status.Phase != v1.PodFailed || p.Status.Reason != "NodeShutdown" {
					t.Errorf("late: %+v", p.Status)
				}
				if !slices.ContainsFunc(l.NodeEvents(), func(e v1.Event) bool { return e.Reason == "Shutdown" }) {
					t.Errorf("events of the node %v", l.NodeEvents())
				}
				l = tc.then(n, l, m)
				time.Sleep(5 * time.Second)
				synctest.Wait()
				l.wantPhase("web", v1.PodRunning)
				l.wantPhase("system", v1.PodRunning)
				l.wantPhase("late", v1.PodRunning)
				if l.ShuttingDown() != nil {
					t.Error("still going down")
				}
				l.stop()
			})
		})
	}
}

// A machine that goes down as soon as the agent is there finds pods that the
// agent has not begun with yet.
func TestShutdownAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		m := &fakeMachine{}
		n.shutdown = &lifecycle.ShutdownConfig{Requested: 30 * time.Second, Critical: 10 * time.Second, Machine: m}
		n.want = []*v1.Pod{newPod("web", runs("c"))}
		l := n.start()
		settle()
		l.wantPhase("web", v1.PodRunning)
		l.stop()
		m.goesDown = true
		l = n.start()
		time.Sleep(45 * time.Second)
		synctest.Wait()
		if _, running := n.containers(); running["web/c"] != 0 || !m.letGo() {
			t.Errorf("running %v, released %v", running, m.letGo())
		}
		if p := l.pod("web"); p.Status.Phase != v1.PodFailed || p.Status.Reason != "Terminated" {
			t.Errorf("%+v", p.Status)
		}
	})
}

// stops are the pods whose containers were stopped, in order.
func (n *node) stops() []string {
	var out []string
	for _, c := range n.rt.Calls("StopContainer") {
		list, _ := n.rt.ListContainers(context.Background(), nil)
		for _, ctr := range list {
			if name := ctr.GetLabels()["io.kubernetes.pod.name"]; ctr.GetId() == c.Target && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// kernelLog is a log of the kernel that the test writes.
type kernelLog struct {
	records chan string
	closed  chan struct{}
	once    sync.Once
}

func (k *kernelLog) Next() ([]byte, error) {
	select {
	case r := <-k.records:
		return []byte(r), nil
	case <-k.closed:
		return nil, context.Canceled
	}
}

func (k *kernelLog) Close() error {
	k.once.Do(func() { close(k.closed) })
	return nil
}

// A process that the kernel kills in a pod is told with the pod's name, and one
// of the whole node is told of the node.
func TestOOMKills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		log := &kernelLog{records: make(chan string, 10), closed: make(chan struct{})}
		n.oom = &pressure.OOMKillsConfig{Open: func(bool) (oom.Log, error) { return log, nil }}
		p := withMemory(newPod("web", runs("c")), "10Mi")
		p.Spec.Containers[0].Resources.Limits = p.Spec.Containers[0].Resources.Requests
		n.want = []*v1.Pod{p}
		l := n.start()
		settle()
		where := "6,%d,1,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,oom_memcg=/kubepods/poduid-web,task_memcg=/kubepods/poduid-web/" + n.id("c") + ",task=app,pid=77,uid=0"
		for i, r := range []string{
			where, "6,%d,1,-;Memory cgroup out of memory: Killed process 77 (app) total-vm:1kB, anon-rss:2kB, file-rss:0kB, shmem-rss:0kB",
			"6,%d,1,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/,task=sshd,pid=5,uid=0",
			"6,%d,1,-;Out of memory: Killed process 5 (sshd) total-vm:1kB, anon-rss:2kB, file-rss:0kB, shmem-rss:0kB",
		} {
			log.records <- strings.Replace(r, "%d", string(rune('1'+i)), 1)
		}
		settle()
		const want = "Process app in container c of pod web was killed by the kernel: a memory limit was reached (the container's is 10Mi)"
		if evs := l.Events(p); !slices.ContainsFunc(evs, func(e v1.Event) bool { return e.Reason == "OOMKilling" && e.Message == want }) {
			t.Errorf("events %v", evs)
		}
		if evs := l.NodeEvents(); len(evs) != 1 || evs[0].Reason != "SystemOOM" || evs[0].Message != "System OOM encountered, victim process: sshd, pid: 5" {
			t.Errorf("events of the node %v", evs)
		}
		l.stop()
	})
}
