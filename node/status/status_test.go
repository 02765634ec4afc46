package status_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/node/status"
)

// world is all that a status depends on.
type world struct {
	mu        sync.Mutex
	facts     status.Facts
	factsErr  error
	runtime   status.RuntimeState
	down      error
	hang      bool
	asked     int
	images    []v1.ContainerImage
	imagesErr error
	listed    int
	pressure  bool
	sick      error
	addrs     []netip.Addr
	lookups   int
	lookup    func(ctx context.Context) ([]netip.Addr, error)
}

func newWorld() *world {
	return &world{
		facts: status.Facts{Capacity: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi"),
		}},
		runtime: status.RuntimeState{Name: "containerd", Version: "2"},
		addrs:   []netip.Addr{netip.MustParseAddr("10.0.0.2")},
	}
}

func (w *world) set(f func()) { w.mu.Lock(); defer w.mu.Unlock(); f() }

func (w *world) Facts(context.Context) (status.Facts, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.facts, w.factsErr
}

func (w *world) State(ctx context.Context) (status.RuntimeState, error) {
	w.mu.Lock()
	w.asked++
	hang, s, err := w.hang, w.runtime, w.down
	w.mu.Unlock()
	if hang {
		<-ctx.Done()
		return status.RuntimeState{}, ctx.Err()
	}
	return s, err
}

func (w *world) Images(context.Context) ([]v1.ContainerImage, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listed++
	return w.images, w.imagesErr
}

func (w *world) UnderPressure(k v1.NodeConditionType) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pressure && k == v1.NodeMemoryPressure
}

func (w *world) Interfaces() ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.addrs, nil
}

func (w *world) Default(six bool) netip.Addr {
	w.mu.Lock()
	defer w.mu.Unlock()
	if six || len(w.addrs) == 0 {
		return netip.Addr{}
	}
	return w.addrs[0]
}

func (w *world) Lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	w.mu.Lock()
	w.lookups++
	f := w.lookup
	w.mu.Unlock()
	if f != nil {
		return f(ctx)
	}
	return nil, &net.DNSError{Name: name, IsNotFound: true}
}

func (w *world) start(t *testing.T, change func(*status.Config)) *status.Manager {
	t.Helper()
	cfg := status.Config{
		Hostname: "edge-1", MaxPods: 110, MaxImages: 50, Version: "v1", Port: 10250,
		Machine: w, Runtime: w, Images: w, Pressures: w, Network: w,
		Checks: []status.Check{{Name: "PLEG", Err: func() error { w.mu.Lock(); defer w.mu.Unlock(); return w.sick }}},
	}
	if change != nil {
		change(&cfg)
	}
	m, err := status.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	testrun.Start(t, m.Run)
	return m
}

func fill(t *testing.T, m *status.Manager, node *v1.Node) (ready v1.NodeCondition, events []status.Event) {
	t.Helper()
	events, err := m.Fill(node)
	if err != nil {
		t.Errorf("fill: %v", err)
	}
	m.Reported()
	for _, c := range node.Status.Conditions {
		if c.Type == v1.NodeReady {
			ready = c
		}
	}
	return ready, events
}

// changed reports after which time there is a change, at most limit.
func changed(m *status.Manager, limit time.Duration) (time.Duration, bool) {
	start := time.Now()
	select {
	case <-m.Changes():
		return time.Since(start), true
	case <-time.After(limit):
		return limit, false
	}
}

// settled takes the first change and fills, until there is nothing new.
func settled(t *testing.T, m *status.Manager, node *v1.Node) {
	t.Helper()
	for {
		if _, ok := changed(m, 11*time.Second); !ok {
			return
		}
		fill(t, m, node)
	}
}

func TestReadyAtOnceAndThenQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		m := w.start(t, nil)
		if after, ok := changed(m, time.Minute); !ok || after != 0 {
			t.Fatalf("first change after %v, %t", after, ok)
		}
		node := &v1.Node{}
		if ready, _ := fill(t, m, node); ready.Status != v1.ConditionTrue {
			t.Errorf("ready %+v", ready)
		}
		settled(t, m, node)
		if after, ok := changed(m, time.Hour); ok {
			t.Errorf("nothing happened, and yet a change after %v", after)
		}
	})
}

// A Node that was ready before the agent's restart stays so, although the agent's own
// checks succeed a moment later than the runtime answers. Everything else is told at once.
func TestReadyStaysWhileTheAgentBegins(t *testing.T) {
	for _, tc := range []struct {
		was  v1.ConditionStatus // "" if the Node is new
		well time.Duration      // after the start
		want v1.ConditionStatus // at the first report
		last v1.ConditionStatus // after a minute
	}{
		{v1.ConditionTrue, 600 * time.Millisecond, v1.ConditionTrue, v1.ConditionTrue},
		{v1.ConditionTrue, time.Hour, v1.ConditionTrue, v1.ConditionFalse},
		{v1.ConditionFalse, 600 * time.Millisecond, v1.ConditionFalse, v1.ConditionTrue},
		{"", 600 * time.Millisecond, v1.ConditionFalse, v1.ConditionTrue},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.sick = errors.New("pleg has yet to be successful")
			m := w.start(t, nil)
			well := time.AfterFunc(tc.well, func() { w.set(func() { w.sick = nil }) })
			defer well.Stop()
			node := &v1.Node{}
			if tc.was != "" {
				node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: tc.was}}
			}
			m.Changed() // some part has something to say meanwhile
			if after, ok := changed(m, time.Minute); !ok || after != 0 {
				t.Errorf("told after %v, %t", after, ok)
			}
			if ready, _ := fill(t, m, node); ready.Status != tc.want || len(node.Status.Capacity) == 0 {
				t.Errorf("was %q: at first %+v, capacity %v", tc.was, ready, node.Status.Capacity)
			}
			began := time.Now()
			for time.Since(began) < time.Minute {
				if _, ok := changed(m, time.Minute); !ok {
					break
				}
				fill(t, m, node)
			}
			if ready, _ := fill(t, m, node); ready.Status != tc.last {
				t.Errorf("was %q, well after %v: in the end %+v", tc.was, tc.well, ready)
			}
		})
	}
}

func TestRuntimeComesUpLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.down = errors.New("refused")
		m := w.start(t, nil)
		node := &v1.Node{}
		settled(t, m, node)
		if ready, _ := fill(t, m, node); ready.Message != "[container runtime status check may not have completed yet, network state unknown]" {
			t.Errorf("ready %+v", ready)
		}
		w.set(func() { w.down = nil })
		after, ok := changed(m, time.Minute)
		ready, events := fill(t, m, node)
		if !ok || after > 300*time.Millisecond || ready.Status != v1.ConditionTrue || len(events) != 1 || events[0].Reason != "NodeReady" {
			t.Errorf("after %v: %+v, %v", after, ready, events)
		}
	})
}

func TestRuntimeGoesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		m := w.start(t, nil)
		node := &v1.Node{}
		settled(t, m, node)
		// A restart of 20 s does not show.
		w.set(func() { w.down = errors.New("refused") })
		m.RuntimeChanged()
		if after, ok := changed(m, 20*time.Second); ok {
			t.Errorf("a change after %v", after)
		}
		w.set(func() { w.down = nil })
		time.Sleep(time.Second)
		synctest.Wait()
		w.set(func() { w.down = errors.New("refused") })
		m.RuntimeChanged() // it answered less than a second ago
		after, ok := changed(m, time.Minute)
		ready, events := fill(t, m, node)
		if !ok || after < 29*time.Second || after > 30*time.Second || ready.Message != "container runtime is down" || len(events) != 1 {
			t.Errorf("after %v: %+v, %v", after, ready, events)
		}
		w.set(func() { w.down = nil })
		if after, ok := changed(m, time.Minute); !ok || after > time.Second {
			t.Errorf("back after %v, %t", after, ok)
		}
		if ready, _ := fill(t, m, node); ready.Status != v1.ConditionTrue {
			t.Errorf("ready %+v", ready)
		}
	})
}

func TestRuntimeThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		m := w.start(t, nil)
		node := &v1.Node{}
		settled(t, m, node)
		w.set(func() { w.hang = true })
		after, ok := changed(m, time.Hour)
		if ready, _ := fill(t, m, node); !ok || after > 40*time.Second || ready.Message != "container runtime is down" {
			t.Errorf("after %v, %t: %+v", after, ok, ready)
		}
	})
}

func TestConditionsOfTheRuntimeAndHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		m := w.start(t, nil)
		node := &v1.Node{}
		settled(t, m, node)
		for _, step := range []struct {
			what func()
			want string
		}{
			{func() { w.runtime.NetworkNotReady = "NetworkReady=false reason:R message:M" }, "container runtime network not ready: NetworkReady=false reason:R message:M"},
			{func() { w.runtime.NetworkNotReady = "" }, "kubelet is posting ready status"},
			{func() { w.runtime.NotReady = "RuntimeReady=false" }, "RuntimeReady=false"},
			{func() { w.runtime.NotReady = "" }, "kubelet is posting ready status"},
			{func() { w.sick = errors.New("stuck") }, "PLEG is not healthy: stuck"},
			{func() { w.sick = nil }, "kubelet is posting ready status"},
		} {
			w.set(step.what)
			after, ok := changed(m, time.Minute)
			if ready, _ := fill(t, m, node); !ok || after > 5*time.Second || ready.Message != step.want {
				t.Errorf("after %v: got %q, want %q", after, ready.Message, step.want)
			}
		}
	})
}

func TestPressureIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		m := w.start(t, nil)
		node := &v1.Node{}
		settled(t, m, node)
		w.set(func() { w.pressure = true })
		m.Changed()
		if after, ok := changed(m, time.Minute); !ok || after != 0 {
			t.Errorf("after %v", after)
		}
		if _, events := fill(t, m, node); len(events) != 1 || events[0].Reason != "NodeHasInsufficientMemory" {
			t.Errorf("events %v", events)
		}
		// One that nobody reports is seen at the next look.
		w.set(func() { w.pressure = false })
		if after, ok := changed(m, time.Minute); !ok || after > 10*time.Second {
			t.Errorf("after %v", after)
		}
	})
}

func TestMachineAndAddressesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		m := w.start(t, nil)
		node := &v1.Node{}
		settled(t, m, node)
		w.set(func() { w.addrs = []netip.Addr{netip.MustParseAddr("10.0.0.3")} })
		if after, ok := changed(m, time.Minute); !ok || after > 10*time.Second {
			t.Errorf("after %v", after)
		}
		if fill(t, m, node); node.Status.Addresses[0].Address != "10.0.0.3" {
			t.Errorf("addresses %v", node.Status.Addresses)
		}
		settled(t, m, node) // two may have seen it at the same moment
		more := newWorld().facts
		more.Capacity[v1.ResourceMemory] = resource.MustParse("2Gi")
		w.set(func() { w.facts = more })
		if after, ok := changed(m, time.Hour); !ok || after > time.Minute {
			t.Errorf("after %v", after)
		}
		if fill(t, m, node); node.Status.Capacity.Memory().String() != "2Gi" {
			t.Errorf("capacity %v", node.Status.Capacity)
		}
		settled(t, m, node)
		// What was known holds when nothing can be read.
		w.set(func() { w.factsErr = errors.New("gone") })
		if _, ok := changed(m, time.Hour); ok {
			t.Error("a failure to read is a change")
		}
	})
}

func TestNoMachineAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.factsErr = errors.New("no /proc")
		m := w.start(t, nil)
		<-m.Changes()
		node := &v1.Node{}
		if _, err := m.Fill(node); err == nil || !strings.Contains(err.Error(), "no /proc") || node.Status.Capacity.Pods().Value() != 110 {
			t.Errorf("got %v, %v", err, node.Status.Capacity)
		}
		w.set(func() { w.factsErr = nil })
		time.Sleep(11 * time.Second)
		if fill(t, m, node); node.Status.Capacity.Cpu().Value() != 2 {
			t.Errorf("capacity %v", node.Status.Capacity)
		}
	})
}

func TestNamesAreCachedAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.lookup = func(context.Context) ([]netip.Addr, error) { return w.addrs, nil }
		m := w.start(t, nil)
		node := &v1.Node{}
		settled(t, m, node)
		time.Sleep(time.Hour)
		w.mu.Lock()
		n := w.lookups
		w.mu.Unlock()
		if n < 11 || n > 13 {
			t.Errorf("%d lookups in an hour", n)
		}
		// A name server that hangs costs 5 s of nobody's time.
		w.set(func() {
			w.lookup = func(ctx context.Context) ([]netip.Addr, error) { <-ctx.Done(); return nil, ctx.Err() }
			w.addrs = []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3")}
		})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		start := time.Now()
		if fill(t, m, node); time.Since(start) != 0 || node.Status.Addresses[0].Address != "10.0.0.2" {
			t.Errorf("after %v: %v", time.Since(start), node.Status.Addresses)
		}
	})
}

func TestImages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		m := w.start(t, nil)
		node := &v1.Node{}
		settled(t, m, node)
		w.set(func() { w.images = []v1.ContainerImage{{Names: []string{"a"}, SizeBytes: 1}}; w.listed = 0 })
		for range 10 {
			m.ImagesChanged()
		}
		after, ok := changed(m, time.Minute)
		if fill(t, m, node); !ok || after > time.Second || len(node.Status.Images) != 1 {
			t.Errorf("after %v: %v", after, node.Status.Images)
		}
		time.Sleep(4 * time.Minute)
		w.mu.Lock()
		if w.listed > 2 {
			t.Errorf("listed %d times", w.listed)
		}
		w.mu.Unlock()
		w.set(func() { w.imagesErr = errors.New("no list") })
		m.ImagesChanged()
		time.Sleep(2 * time.Second)
		if _, err := m.Fill(node); err == nil || node.Status.Images != nil {
			t.Errorf("got %v, %v", err, node.Status.Images)
		}
		w.set(func() { w.imagesErr = nil })
		time.Sleep(11 * time.Second)
		if fill(t, m, node); len(node.Status.Images) != 1 {
			t.Errorf("got %v", node.Status.Images)
		}
	})
}

// Events of what is only remembered here come again until they are told.
func TestEventsUntilReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld().start(t, nil)
		node := &v1.Node{}
		settled(t, m, node)
		node.Spec.Unschedulable = true
		for range 2 {
			if events, err := m.Fill(node); err != nil || len(events) != 1 || events[0].Reason != "NodeNotSchedulable" {
				t.Errorf("got %v, %v", events, err)
			}
		}
		m.Reported()
		if events, err := m.Fill(node); err != nil || len(events) != 0 {
			t.Errorf("got %v, %v", events, err)
		}
	})
}

func TestConfig(t *testing.T) {
	two := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}
	_, err := status.New(status.Config{PodsPerCore: -1, MaxImages: -2, NodeIPs: two})
	for _, want := range []string{"Hostname", "Machine", "Runtime", "MaxPods", "PodsPerCore", "MaxImages", "node IPs"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

func TestHost(t *testing.T) {
	if _, err := (status.Host{}).Interfaces(); err != nil {
		t.Error(err)
	}
	for _, six := range []bool{false, true} {
		if ip := (status.Host{}).Default(six); ip.IsValid() && ip.Is6() != six {
			t.Errorf("got %v", ip)
		}
	}
}
