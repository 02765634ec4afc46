package shutdown_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/checkpoint"
	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/node/shutdown"
	"github.com/nodewright/nodewright/podlife"
)

// node is a machine, its pods and all who act on them.
type node struct {
	t     *testing.T
	began time.Time

	mu        sync.Mutex
	pods      []*v1.Pod
	takes     map[string]time.Duration // how long a pod takes to end; its grace if not here
	unmount   time.Duration            // how long volumes take after that
	log       []string                 // what happened, with seconds since the node began
	signals   chan bool
	broken    chan error // ends Watch
	watchFail error
	watches   int
	down      bool
}

func newNode(t *testing.T, pods ...*v1.Pod) *node {
	return &node{t: t, began: time.Now(), pods: pods, takes: map[string]time.Duration{}, signals: make(chan bool), broken: make(chan error)}
}

func pod(name string, priority int32, grace int64) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec: v1.PodSpec{Priority: &priority, TerminationGracePeriodSeconds: &grace}}
}

func (n *node) note(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.log = append(n.log, fmt.Sprintf("%d: ", time.Since(n.began)/time.Second)+fmt.Sprintf(format, args...))
}

func (n *node) Active() []*v1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.pods)
}

const hangs = 1000 * time.Hour

func (n *node) Kill(ctx context.Context, p *v1.Pod, why podlife.Cause) error {
	st := v1.PodStatus{Phase: v1.PodRunning}
	why.Apply(&st)
	grace := *why.Grace
	n.note("kill %s %d %s", p.Name, grace, st.Phase)
	n.mu.Lock()
	d, ok := n.takes[p.Name]
	n.mu.Unlock()
	if !ok {
		d = time.Duration(grace) * time.Second
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
		return ctx.Err()
	}
	n.mu.Lock()
	n.pods = slices.DeleteFunc(n.pods, func(q *v1.Pod) bool { return q == p })
	n.mu.Unlock()
	return nil
}

func (n *node) WaitUnmounted(ctx context.Context, pods []*v1.Pod) error {
	select {
	case <-time.After(n.unmount):
		n.note("unmounted %d", len(pods))
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (n *node) Watch(ctx context.Context, _ time.Duration, on func(bool)) error {
	n.mu.Lock()
	n.watches++
	err, down := n.watchFail, n.down
	n.mu.Unlock()
	if err != nil {
		return err
	}
	on(down)
	for {
		select {
		case <-ctx.Done():
			return nil
		case down := <-n.signals:
			n.mu.Lock()
			n.down = down
			n.mu.Unlock()
			on(down)
		case err := <-n.broken:
			return err
		}
	}
}

func (n *node) Release() { n.note("release") }

func (n *node) config() shutdown.Config {
	return shutdown.Config{
		Requested: 30 * time.Second, Critical: 10 * time.Second,
		Machine: n, Pods: n, Killer: n, Volumes: n, BootID: "this",
		Event: func(reason, message string) {
			n.note("event %s %s", reason, message[len("Shutdown manager detected "):])
		},
		Changed: func(down bool) { n.note("changed %v", down) },
	}
}

func (n *node) start(cfg shutdown.Config) (m *shutdown.Manager, stop func()) {
	n.t.Helper()
	m, err := shutdown.New(cfg)
	if err != nil {
		n.t.Fatal(err)
	}
	if err := m.Restore(); err != nil {
		n.t.Fatal(err)
	}
	stop = testrun.Start(n.t, m.Run)
	synctest.Wait()
	return m, stop
}

func (n *node) expect(want ...string) {
	n.t.Helper()
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	got := n.log
	n.log = nil
	// What happens in the same second has no order but within the machine.
	slices.Sort(got)
	slices.Sort(want)
	if !reflect.DeepEqual(got, want) {
		n.t.Errorf("happened:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestGroupsInTurn(t *testing.T) {
	begun := []string{"0: event Shutdown shutdown event", "0: changed true"}
	for _, tt := range []struct {
		name string
		set  func(*node, *shutdown.Config)
		pods []*v1.Pod
		want []string
	}{
		{"one after the other, each with its time", nil,
			[]*v1.Pod{pod("app", 0, 10), pod("long", 0, 1000), pod("critical", shutdown.SystemCritical, 1000)},
			[]string{"0: kill app 10 Failed", "0: kill long 20 Failed", "20: kill critical 10 Failed", "30: release"}},
		{"the next begins when the last has ended and is unmounted", func(n *node, _ *shutdown.Config) { n.unmount = 2 * time.Second },
			[]*v1.Pod{pod("app", 0, 5), pod("critical", shutdown.SystemCritical, 3)},
			[]string{"0: kill app 5 Failed", "7: unmounted 1", "7: kill critical 3 Failed", "12: unmounted 1", "12: release"}},
		{"a kill that hangs costs its group's time", func(n *node, _ *shutdown.Config) { n.takes["app"] = hangs },
			[]*v1.Pod{pod("app", 0, 5), pod("critical", shutdown.SystemCritical, 3)},
			[]string{"0: kill app 5 Failed", "20: kill critical 3 Failed", "23: unmounted 1", "23: release"}},
		{"so does an unmount", func(n *node, _ *shutdown.Config) { n.unmount = hangs },
			[]*v1.Pod{pod("app", 0, 5), pod("critical", shutdown.SystemCritical, 3)},
			[]string{"0: kill app 5 Failed", "20: kill critical 3 Failed", "30: release"}},
		{"an empty group takes no time", nil,
			[]*v1.Pod{pod("critical", shutdown.SystemCritical, 3)},
			[]string{"0: kill critical 3 Failed", "3: unmounted 1", "3: release"}},
		{"nobody", nil, nil, []string{"0: release"}},
		{"all time is of the critical", func(_ *node, c *shutdown.Config) { c.Critical = c.Requested },
			[]*v1.Pod{pod("app", 0, 5), pod("critical", shutdown.SystemCritical, 3)},
			[]string{"0: kill app 0 Failed", "0: kill critical 3 Failed", "3: unmounted 1", "3: release"}},
		{"priorities", func(_ *node, c *shutdown.Config) {
			c.Requested, c.Critical = 0, 0
			c.Groups = []shutdown.Group{{Priority: 100, Time: 10 * time.Second}, {Priority: 1, Time: time.Second}, {Priority: 50, Time: 5 * time.Second}}
		}, []*v1.Pod{pod("p0", 0, 9), pod("p60", 60, 9), pod("p500", 500, 9)},
			[]string{"0: kill p0 1 Failed", "1: kill p60 5 Failed", "6: kill p500 9 Failed", "15: unmounted 1", "15: release"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t, tt.pods...)
				cfg := n.config()
				if tt.set != nil {
					tt.set(n, &cfg)
				}
				m, stop := n.start(cfg)
				if _, _, ok := m.Admit(); !ok || m.Err() != nil {
					t.Error("pods are not admitted before")
				}
				n.signals <- true
				synctest.Wait()
				if reason, _, ok := m.Admit(); ok || reason != "NodeShutdown" || !errors.Is(m.Err(), shutdown.ErrShuttingDown) {
					t.Errorf("admitted: %v, %s", ok, reason)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				stop()
				// A kill that takes the whole time and its end are told at the
				// same moment, and either may be first.
				n.mu.Lock()
				n.log = slices.DeleteFunc(n.log, func(l string) bool {
					return strings.Contains(l, "unmounted") && !slices.Contains(tt.want, l)
				})
				n.mu.Unlock()
				n.expect(append(slices.Clone(begun), tt.want...)...)
			})
		})
	}
}

func TestCalledOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, pod("app", 0, 5), pod("critical", shutdown.SystemCritical, 3))
		m, stop := n.start(n.config())
		defer stop()
		n.signals <- true
		n.signals <- true // said twice
		time.Sleep(2 * time.Second)
		n.signals <- false
		time.Sleep(time.Minute)
		n.expect("0: event Shutdown shutdown event", "0: changed true", "0: kill app 5 Failed",
			"2: event Shutdown shutdown cancellation", "2: changed false")
		if _, _, ok := m.Admit(); !ok {
			t.Error("pods are not admitted after it was called off")
		}
		n.signals <- true
		time.Sleep(time.Minute)
		n.expect("62: event Shutdown shutdown event", "62: changed true", "62: kill critical 3 Failed", "65: unmounted 1", "65: release")
	})
}

// A pod that comes up after its group's turn goes with the next group.
func TestLatePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, pod("app", 0, 5), pod("critical", shutdown.SystemCritical, 3))
		_, stop := n.start(n.config())
		defer stop()
		n.signals <- true
		time.Sleep(time.Second)
		n.mu.Lock()
		n.pods = append(n.pods, pod("late", 0, 4))
		n.mu.Unlock()
		time.Sleep(time.Minute)
		n.expect("0: event Shutdown shutdown event", "0: changed true", "0: kill app 5 Failed",
			"5: unmounted 1", "5: kill critical 3 Failed", "5: kill late 4 Failed", "9: unmounted 2", "9: release")
	})
}

func TestMachineFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.watchFail = errors.New("no bus")
		m, stop := n.start(n.config())
		defer stop()
		time.Sleep(time.Hour)
		n.mu.Lock()
		if n.watches < 60 || n.watches > 70 {
			t.Errorf("%d tries in an hour; want about one a minute", n.watches)
		}
		n.watchFail = nil
		n.mu.Unlock()
		time.Sleep(time.Minute)
		for range 3 { // the bus restarts
			n.broken <- errors.New("connection lost")
			time.Sleep(2 * time.Minute)
		}
		n.signals <- true
		synctest.Wait()
		if m.Err() == nil {
			t.Error("the shutdown is not seen")
		}
	})
}

// The bus breaks during a shutdown: it goes on, and is not begun again.
func TestMachineFailsMidway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, pod("app", 0, 5), pod("critical", shutdown.SystemCritical, 3))
		_, stop := n.start(n.config())
		defer stop()
		n.signals <- true
		time.Sleep(time.Second)
		n.broken <- errors.New("connection lost")
		time.Sleep(time.Minute)
		n.expect("0: event Shutdown shutdown event", "0: changed true", "0: kill app 5 Failed",
			"5: unmounted 1", "5: kill critical 3 Failed", "8: unmounted 1", "8: release")
	})
}

// kill -9 and reboots: what a new agent makes of what the old one left.
func TestRestart(t *testing.T) {
	for _, tt := range []struct {
		name   string
		after  time.Duration // of the shutdown, the agent dies
		boot   string
		down   bool // what the machine says to the new agent
		admits bool // before it says anything
		want   []string
	}{
		{"midway, the shutdown goes on", 2 * time.Second, "this", true, false, []string{
			"2: event Shutdown shutdown event", "2: changed true", "2: kill app 5 Failed", "7: unmounted 1",
			"7: kill critical 3 Failed", "10: unmounted 1", "10: release"}},
		{"midway, called off meanwhile", 2 * time.Second, "this", false, false, []string{
			"2: event Shutdown shutdown cancellation", "2: changed false"}},
		{"midway, then a reboot", 2 * time.Second, "next", false, true, nil},
		{"after the last pod", 40 * time.Second, "this", true, false, []string{
			"40: event Shutdown shutdown event", "40: changed true", "40: release"}},
		{"after the last pod, then a reboot", 40 * time.Second, "next", false, true, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				store, err := checkpoint.Open(checkpoint.Config{Dir: dir, NoSync: true})
				if err != nil {
					t.Fatal(err)
				}
				n := newNode(t, pod("app", 0, 5), pod("critical", shutdown.SystemCritical, 3))
				cfg := n.config()
				cfg.State = store
				_, stop := n.start(cfg)
				n.signals <- true
				time.Sleep(tt.after)
				stop() // nothing is written from here on: a kill -9 leaves the same
				synctest.Wait()
				n.mu.Lock()
				n.log, n.down = nil, tt.down
				n.mu.Unlock()

				store, err = checkpoint.Open(checkpoint.Config{Dir: dir, NoSync: true})
				if err != nil {
					t.Fatal(err)
				}
				reg := prometheus.NewRegistry()
				cfg.State, cfg.BootID, cfg.Metrics = store, tt.boot, reg
				m, err := shutdown.New(cfg)
				if err != nil {
					t.Fatal(err)
				}
				if err := m.Restore(); err != nil {
					t.Fatal(err)
				}
				if _, _, ok := m.Admit(); ok != tt.admits {
					t.Errorf("admits before it knows: %v", ok)
				}
				start, end := gauge(t, reg, "kubelet_graceful_shutdown_start_time_seconds"), gauge(t, reg, "kubelet_graceful_shutdown_end_time_seconds")
				if over := tt.after > 30*time.Second; start != float64(n.began.Unix()) || (end > start) != over || !over && end != 0 {
					t.Errorf("metrics: start %v, end %v", start, end)
				}
				stop = testrun.Start(t, m.Run)
				synctest.Wait()
				if _, _, ok := m.Admit(); ok == tt.down {
					t.Errorf("admits: %v, down: %v", ok, tt.down)
				}
				time.Sleep(time.Minute)
				stop()
				n.expect(tt.want...)
			})
		})
	}
}

func gauge(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// remembers is a disk with a state.
func remembers(state string) *checkpointtest.Disk {
	d := &checkpointtest.Disk{}
	d.Put("graceful_node_shutdown_state", state)
	return d
}

// An agent that remembers a shutdown, and cannot ask the machine, admits pods
// after a while.
func TestUnconfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.watchFail = errors.New("no bus")
		cfg := n.config()
		cfg.State = remembers(`{"startTime":"2026-01-02T03:04:05Z","down":true,"boot":"this"}`)
		m, stop := n.start(cfg)
		defer stop()
		time.Sleep(20 * time.Second)
		if m.Err() == nil {
			t.Error("admits too early")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if m.Err() != nil {
			t.Error("refuses pods for ever")
		}
	})
}

// A disk that hangs delays the end of pods by two seconds.
func TestStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, pod("app", 0, 5))
		cfg := n.config()
		store, hang := &checkpointtest.Disk{}, make(chan struct{})
		store.Fault(checkpointtest.Hang(hang, "write"))
		cfg.State = store
		_, stop := n.start(cfg)
		n.signals <- true
		time.Sleep(time.Minute)
		n.expect("0: event Shutdown shutdown event", "0: changed true", "2: kill app 5 Failed", "7: unmounted 1", "9: release")
		close(hang)
		stop()
	})
}

func TestRestoreDamaged(t *testing.T) {
	n := newNode(t)
	unreadable := remembers("{}")
	unreadable.Fault(checkpointtest.Fail(errors.New("input/output error")))
	for name, store := range map[string]*checkpointtest.Disk{"no JSON": remembers("{"), "not readable": unreadable} {
		cfg := n.config()
		cfg.State = store
		m, err := shutdown.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Restore(); err == nil || m.Err() != nil {
			t.Errorf("%s: Restore = %v, Err = %v; want an error, and pods admitted", name, err, m.Err())
		}
	}
}

func TestOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		m, stop := n.start(shutdown.Config{State: remembers(`{"down":true,"boot":"this"}`), BootID: "this"})
		if _, _, ok := m.Admit(); !ok {
			t.Error("pods are not admitted though shutdowns are not handled")
		}
		stop()
	})
}

func TestOnSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, pod("app", 0, 5))
		signals := make(chan os.Signal, 1)
		cfg := n.config()
		cfg.Machine = shutdown.OnSignal(signals, n.Release)
		m, stop := n.start(cfg)
		defer stop()
		if m.Err() != nil {
			t.Error("goes down without a signal")
		}
		signals <- syscall.SIGTERM
		time.Sleep(time.Minute)
		n.expect("0: event Shutdown shutdown event", "0: changed true", "0: kill app 5 Failed", "5: unmounted 1", "5: release")
	})
}

func TestNewTellsAllMistakes(t *testing.T) {
	_, err := shutdown.New(shutdown.Config{Requested: time.Second, Critical: 2 * time.Second, Groups: []shutdown.Group{{Time: 1}}})
	for _, field := range []string{"Critical", "Groups[0].Time", "Machine", "Pods", "Killer"} {
		if !strings.Contains(fmt.Sprint(err), field) {
			t.Errorf("error %v does not name %s", err, field)
		}
	}
}
