package oom_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/node/oom"
)

// kernel is a log in memory: a ring that any number of readers follow.
type kernel struct {
	mu      sync.Mutex
	records []string
	changed chan struct{}
	refuse  error // what opening it says
}

func newKernel() *kernel { return &kernel{changed: make(chan struct{})} }

func (k *kernel) wake() {
	close(k.changed)
	k.changed = make(chan struct{})
}

func (k *kernel) print(lines ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range lines {
		k.records = append(k.records, fmt.Sprintf("6,%d,5,-;%s\n", len(k.records), l))
	}
	k.wake()
}

func (k *kernel) raw(r string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.records = append(k.records, r)
	k.wake()
}

func (k *kernel) open(fromEnd bool) (oom.Log, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refuse != nil {
		return nil, k.refuse
	}
	l := &reader{k: k, closed: make(chan struct{})}
	if fromEnd {
		l.next = len(k.records)
	}
	return l, nil
}

type reader struct {
	k      *kernel
	next   int
	once   sync.Once
	closed chan struct{}
}

func (l *reader) Next() ([]byte, error) {
	for {
		l.k.mu.Lock()
		changed := l.k.changed
		if l.next < len(l.k.records) {
			r := l.k.records[l.next]
			l.next++
			l.k.mu.Unlock()
			switch r {
			case "overwritten":
				return nil, oom.ErrOverwritten
			case "broken":
				return nil, errors.New("broken")
			}
			return []byte(r), nil
		}
		l.k.mu.Unlock()
		select {
		case <-changed:
		case <-l.closed:
			return nil, fs.ErrClosed
		}
	}
}

func (l *reader) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func report(pid int) []string {
	return []string{
		"x invoked oom-killer: x",
		fmt.Sprintf("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=a,mems_allowed=0,oom_memcg=/kubepods/podu,task_memcg=/kubepods/podu/c,task=x,pid=%d,uid=0", pid),
		fmt.Sprintf("Memory cgroup out of memory: Killed process %d (x) total-vm:1kB, anon-rss:1kB", pid),
	}
}

// value reads a counter whose only label, if it has one, has the given value.
func value(t *testing.T, reg *prometheus.Registry, name, label string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("no metric %s %s", name, label)
	return 0
}

type watcher struct {
	mu   sync.Mutex
	pids []int
}

func (w *watcher) on(k oom.Kill) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pids = append(w.pids, k.PID)
}

func (w *watcher) expect(t *testing.T, pids ...int) {
	t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !reflect.DeepEqual(w.pids, pids) {
		t.Errorf("told of %v; want %v", w.pids, pids)
	}
}

func start(t *testing.T, cfg oom.Config) (stop func()) {
	t.Helper()
	m, err := oom.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	stop = testrun.Start(t, m.Run)
	synctest.Wait()
	return stop
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, w := newKernel(), &watcher{}
		reg := prometheus.NewRegistry()
		k.print(report(1)...) // before Run
		stop := start(t, oom.Config{OnKill: w.on, Open: k.open, Metrics: reg})
		k.print(report(2)...)
		w.expect(t, 2)

		k.raw("nonsense")
		k.raw("14,900,5,-;Out of memory: Killed process 666 (liar) total-vm:1kB\n") // a program wrote it
		w.expect(t, 2)
		stop()
		if limit, node := value(t, reg, "nodewright_oom_kills_total", "limit"), value(t, reg, "nodewright_oom_kills_total", "node"); limit != 1 || node != 0 {
			t.Errorf("kills %v and %v; want 1, 0", limit, node)
		}
	})
}

// A log that breaks is opened again; nothing is lost or told twice.
func TestRunReopens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, w := newKernel(), &watcher{}
		reads := 0
		stop := start(t, oom.Config{OnKill: w.on, Open: func(fromEnd bool) (oom.Log, error) {
			l, err := k.open(fromEnd)
			return &breaking{Log: l, reads: &reads}, err
		}})
		defer stop()
		k.print(report(1)...)
		w.expect(t, 1)
		k.print(report(2)...)
		w.expect(t, 1)
		time.Sleep(time.Second)
		w.expect(t, 1, 2)
		k.print(report(3)...)
		time.Sleep(time.Minute)
		w.expect(t, 1, 2, 3)
	})
}

// breaking fails its fourth and its eleventh read, and loses what it read.
type breaking struct {
	oom.Log
	reads *int
}

func (o *breaking) Next() ([]byte, error) {
	raw, err := o.Log.Next()
	if *o.reads++; *o.reads == 4 || *o.reads == 11 {
		return nil, errors.New("broken")
	}
	return raw, err
}

func TestRunOverwritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, w := newKernel(), &watcher{}
		stop := start(t, oom.Config{OnKill: w.on, Open: k.open})
		defer stop()
		k.print(report(1)[:2]...)
		k.raw("overwritten")
		k.print(report(2)...)
		w.expect(t, 2)
	})
}

type counters struct {
	t    *testing.T
	fail error
	n    int
}

func (c *counters) Watch(ctx context.Context, on func(oom.Kill)) error {
	if c.fail != nil {
		return c.fail
	}
	c.n++
	on(oom.Kill{PID: -c.n, Count: 1})
	<-ctx.Done()
	return nil
}

// Counters take the log's place until it can be opened.
func TestRunFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, w := newKernel(), &watcher{}
		k.refuse = fs.ErrPermission
		stop := start(t, oom.Config{OnKill: w.on, Open: k.open, Fallback: &counters{t: t}})
		defer stop()
		w.expect(t, -1)
		k.print(report(1)...)
		time.Sleep(1500 * time.Millisecond) // the second try
		w.expect(t, -1, -2)
		k.mu.Lock()
		k.refuse = nil
		k.mu.Unlock()
		time.Sleep(time.Minute)
		k.print(report(2)...)
		w.expect(t, -1, -2, 2)
	})
}

func TestRunNothingWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, w := newKernel(), &watcher{}
		k.refuse = fs.ErrPermission
		began := time.Now()
		tries := 0
		stop := start(t, oom.Config{OnKill: w.on, Fallback: &counters{fail: errors.New("cgroup v1")}, Open: func(bool) (oom.Log, error) {
			tries++
			return nil, fs.ErrPermission
		}})
		time.Sleep(time.Hour)
		stop()
		if tries < 60 || tries > 70 {
			t.Errorf("%d tries in %v; want about one a minute", tries, time.Since(began))
		}
		w.expect(t)
	})
}

func TestNewTellsAllMistakes(t *testing.T) {
	if _, err := oom.New(oom.Config{}); err == nil || !strings.Contains(err.Error(), "OnKill") {
		t.Errorf("error %v does not name OnKill", err)
	}
	reg := prometheus.NewRegistry()
	cfg := oom.Config{OnKill: func(oom.Kill) {}, Metrics: reg}
	if _, err := oom.New(cfg); err != nil {
		t.Error(err)
	}
	if _, err := oom.New(cfg); err != nil {
		t.Errorf("a second one on the same registry: %v", err)
	}
}
