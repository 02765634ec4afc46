package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/node/oom"
)

// oomBound is how long the report of a kill may take, of an agent that nothing hinders.
const oomBound = time.Minute

// eventBudget is how many events of a pod are sent for certain: those of one that goes on
// crashing are dropped, by the kubelet's filter of 25 and one more each 5 minutes.
const eventBudget = 20

// kernel is the log of the machine's kernel, in its present boot.
type kernel struct {
	mu      sync.Mutex
	seq     int
	records [][]byte
	news    chan struct{} // closed with each record
}

func newKernel() *kernel { return &kernel{news: make(chan struct{})} }

func (k *kernel) write(lines ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range lines {
		k.records = append(k.records, fmt.Appendf(nil, "6,%d,%d,-;%s\n", k.seq, k.seq, l))
		k.seq++
	}
	close(k.news)
	k.news = make(chan struct{})
}

// open is that of Hardware.KernelLog.
func (k *kernel) open(fromEnd bool) (oom.Log, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := &kernelLog{k: k, closed: make(chan struct{})}
	if fromEnd {
		l.next = len(k.records)
	}
	return l, nil
}

type kernelLog struct {
	k      *kernel
	next   int
	once   sync.Once
	closed chan struct{}
}

func (l *kernelLog) Next() ([]byte, error) {
	for {
		l.k.mu.Lock()
		news := l.k.news
		if l.next < len(l.k.records) {
			r := l.k.records[l.next]
			l.next++
			l.k.mu.Unlock()
			return r, nil
		}
		l.k.mu.Unlock()
		select {
		case <-l.closed:
			return nil, errors.New("sim: the log is closed")
		case <-news:
		}
	}
}

func (l *kernelLog) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// kill is an OOM kill that somebody is to be told of.
type kill struct {
	p    *pod
	at   time.Time
	life *life // which was there
}

// doOOM is NAME CONTAINER: the kernel kills its process, as its memory limit is reached.
func (m *machine) doOOM(s step) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.newest(s.arg(0))
	for _, i := range m.made {
		if p == nil || i.uid != p.object.UID || i.name != s.arg(1) || !m.runs(i) {
			continue
		}
		p.trouble = time.Now()
		i.oom = true
		m.rt.OOMKill(i.id)
		if m.node {
			cgroup := "/kubepods/pod" + string(i.uid) + "/" + i.id
			m.kernel.write("app invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=968",
				"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset="+i.id+",mems_allowed=0,oom_memcg="+cgroup+",task_memcg="+cgroup+",task=app,pid=4321,uid=0",
				"Memory cgroup out of memory: Killed process 4321 (app) total-vm:106496kB, anon-rss:102400kB, file-rss:4kB, shmem-rss:0kB")
			if p.wanted && m.live != nil {
				m.kills = append(m.kills, kill{p, time.Now(), m.live})
			}
		}
	}
	return nil
}

// toldOf notes an event about a pod, which may report an OOM kill, or a preemption, which may be
// long before the pod can be ended. m.mu is held.
func (m *machine) toldOf(pod string, e *v1.Event) {
	if p := m.newest(pod); p != nil {
		p.events++
		p.preempted = p.preempted || e.Reason == "Preempting" && (m.mayPreempt(p) || m.apiBad)
	}
	if strings.Contains(e.Message, "was killed by the kernel") {
		m.kills = slices.DeleteFunc(m.kills, func(k kill) bool { return k.p.object.Name == pod })
	}
}

// judgeKills looks for OOM kills that nobody was told of, by an agent that was there and that
// nothing hindered. m.mu is held.
func (m *machine) judgeKills() {
	m.kills = slices.DeleteFunc(m.kills, func(k kill) bool {
		hindered := m.live != k.life || m.troubled > 0 || !m.healed.Before(k.at) || !m.well.Before(k.at.Add(-startBound)) || !k.p.wanted || m.hasFault(k.p) || k.p.events > eventBudget
		if hindered {
			return true
		}
		if time.Since(k.at) < oomBound {
			return false
		}
		m.wrong("a process of %s was killed by the kernel %v ago, and no event says so", k.p.object.Name, time.Since(k.at))
		return true
	})
}

// judgeOOM looks at what a status says of a container that the kernel has killed. m.mu is held.
func (m *machine) judgeOOM(p *pod, c *v1.ContainerStatus) {
	for _, t := range []*v1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
		if t == nil {
			continue
		}
		_, id, _ := strings.Cut(t.ContainerID, "://")
		if i := m.instanceOf(id); i != nil && i.oom && t.Reason != "OOMKilled" {
			m.wrong("%s/%s was OOM killed, and its status says %q", p.object.Name, c.Name, t.Reason)
		}
	}
}
