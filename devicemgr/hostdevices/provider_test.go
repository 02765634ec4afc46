//go:build linux

package hostdevices

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/devicemgr"
)

// memory is a devicemgr.Store.
type memory struct{ values sync.Map }

func (s *memory) Write(key string, value []byte) error { s.values.Store(key, value); return nil }
func (s *memory) Delete(key string) error              { s.values.Delete(key); return nil }

func (s *memory) Read(key string) ([]byte, error) {
	if v, ok := s.values.Load(key); ok {
		return v.([]byte), nil
	}
	return nil, fs.ErrNotExist
}

func (s *memory) Keys() (keys []string, _ error) {
	s.values.Range(func(k, _ any) bool { keys = append(keys, k.(string)); return true })
	return keys, nil
}

// hand is a watcher whose changes a test tells.
type hand struct {
	tell  chan struct{}
	fails error

	mu    sync.Mutex
	calls int
}

func (h *hand) changed() <-chan struct{} { return h.tell }
func (h *hand) close()                   {}
func (h *hand) watch(watched) error      { h.mu.Lock(); defer h.mu.Unlock(); h.calls++; return h.fails }

// testNode is a manager and a Provider over a tree, in a bubble.
type testNode struct {
	*tree
	*devicemgr.Manager
	provider *Provider
	hand     *hand
	logs     *observer.ObservedLogs
	store    *memory
	stop     func()
}

func newTestNode(t *testing.T, m *tree, rules ...Rule) *testNode {
	t.Helper()
	n := &testNode{tree: m, hand: &hand{tell: make(chan struct{}, 1)}, store: &memory{}}
	n.start(rules...)
	return n
}

// start starts the node over its store.
func (n *testNode) start(rules ...Rule) {
	n.Helper()
	var err error
	n.Manager, err = devicemgr.New(devicemgr.Config{Store: n.store})
	n.must(err)
	core, logs := observer.New(zap.InfoLevel)
	n.logs = logs
	n.provider, err = New(Config{Settings: Settings{Devices: rules}, Offer: n.Offer, Log: zap.New(core)})
	n.must(err)
	n.provider.machine = n.machine()
	n.provider.watcher = func() (watcher, error) { return n.hand, nil }
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	run := func(run func(context.Context) error) {
		if err := run(ctx); err != nil {
			n.Error(err)
		}
	}
	wg.Go(func() { run(n.provider.Run) })
	time.Sleep(time.Second) // the manager may come later
	n.must(n.Restore(map[types.UID][]string{}))
	wg.Go(func() { run(n.Run) })
	n.stop = func() { cancel(); wg.Wait() }
	time.Sleep(2 * time.Second)
	synctest.Wait()
}

// change makes a change, and waits until it has been read.
func (n *testNode) change(do func()) {
	n.Helper()
	do()
	n.hand.tell <- struct{}{}
	time.Sleep(2 * quiet)
	synctest.Wait()
}

func (n *testNode) counts(resource string, capacity, allocatable, free int) {
	n.Helper()
	if c := n.Capacity()[v1.ResourceName(resource)]; c.Capacity != capacity || c.Allocatable != allocatable || c.Free != free || c.Away {
		n.Errorf("%s: %+v; want %d, of which %d are healthy and %d free", resource, c, capacity, allocatable, free)
	}
}

func pod(name, of string, count string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{
			Limits: v1.ResourceList{v1.ResourceName(of): resource.MustParse(count)},
		}}}},
	}
}

func (n *testNode) healths(p *v1.Pod) string {
	var all []string
	for _, st := range n.Health(p.UID, "c") {
		for _, r := range st.Resources {
			all = append(all, fmt.Sprintf("%s %s", r.ResourceID, r.Health))
		}
	}
	return strings.Join(all, ", ")
}

func TestHotPlug(t *testing.T) {
	m := newTree(t)
	m.node("ttyUSB0", 188, 0)
	synctest.Test(t, func(t *testing.T) {
		m.TB = t
		const serial = "example.com/serial"
		rule := Rule{Resource: serial, Paths: []string{"/dev/ttyUSB*"}}
		n := newTestNode(t, m, rule)
		defer func() { n.stop() }()
		n.counts(serial, 1, 1, 1)
		web := pod("web", serial, "1")
		n.must(n.Admit(t.Context(), web))
		a, err := n.Attachment(web, "c")
		want := devicemgr.DeviceNode{ContainerPath: "/dev/ttyUSB0", HostPath: m.dev + "/ttyUSB0", Permissions: "rw"}
		if err != nil || !slices.Equal(a.Nodes, []devicemgr.DeviceNode{want}) {
			t.Errorf("%+v, %v; want %+v", a.Nodes, err, want)
		}
		n.must(n.PreStart(t.Context(), web, "c"))
		if plain, err := n.Attachment(pod("plain", "example.com/other", "1"), "c"); err != nil || len(plain.Nodes)+len(plain.CDI) > 0 {
			t.Errorf("a pod without the resource gets %+v, %v", plain, err)
		}

		n.change(func() { m.node("ttyUSB1", 188, 1) })
		n.counts(serial, 2, 2, 1)
		n.change(func() { m.remove("ttyUSB0") })
		n.counts(serial, 2, 1, 1)
		if got := n.healths(web); got != "ttyUSB0 Unhealthy" {
			t.Errorf("unplugged: %s", got)
		}
		var refused *devicemgr.PluginError
		if err := n.PreStart(t.Context(), web, "c"); !errors.As(err, &refused) || !strings.Contains(err.Error(), `device "ttyUSB0" of example.com/serial is missing`) {
			t.Errorf("a start without its device: %v", err)
		}

		// The agent starts again while the device is missing: the pod keeps it.
		n.stop()
		n.start(rule)
		n.counts(serial, 1, 1, 1)
		if got := n.healths(web); got != "ttyUSB0 Unknown" {
			t.Errorf("unplugged before the start: %s", got)
		}
		n.change(func() { m.node("ttyUSB0", 188, 0) })
		n.counts(serial, 2, 2, 1)
		if got := n.healths(web); got != "ttyUSB0 Healthy" {
			t.Errorf("plugged again: %s", got)
		}
		n.must(n.PreStart(t.Context(), web, "c"))
	})
}

// What was unplugged a moment ago is not allocated, and its pod is not rejected.
func TestAllocateLooksAgain(t *testing.T) {
	m := newTree(t)
	m.node("ttyUSB0", 188, 0)
	synctest.Test(t, func(t *testing.T) {
		m.TB = t
		const serial = "example.com/serial"
		n := newTestNode(t, m, Rule{Resource: serial, Paths: []string{"/dev/ttyUSB*"}})
		defer n.stop()
		m.remove("ttyUSB0")
		var notYet *devicemgr.NotYetError
		if err := n.Admit(t.Context(), pod("web", serial, "1")); !errors.As(err, &notYet) || !strings.Contains(err.Error(), "is missing") {
			t.Errorf("%v, want a pod that waits", err)
		}
		synctest.Wait()
		n.counts(serial, 1, 0, 0) // without a change that was told
	})
}

// A device of several nodes is read when the last of them has been there for a moment.
func TestNodesThatComeOneAfterTheOther(t *testing.T) {
	m := newTree(t)
	m.must(os.MkdirAll(m.dev, 0o755))
	synctest.Test(t, func(t *testing.T) {
		m.TB = t
		n := newTestNode(t, m, Rule{Resource: "a/b", Paths: []string{"/dev/x*"}})
		defer n.stop()
		scans := func() int { return len(n.logs.FilterMessage("devices changed").All()) }
		before := scans()
		for i := range 4 {
			m.node(fmt.Sprintf("x%d", i), 188, uint32(i))
			n.hand.tell <- struct{}{}
			time.Sleep(quiet - time.Millisecond)
			synctest.Wait()
			if got := scans(); got != before {
				t.Fatalf("read %v after change %d", quiet-time.Millisecond, i)
			}
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		n.counts("a/b", 4, 4, 4)
		// Changes without end do not keep it from reading.
		m.node("x4", 188, 4)
		for end := time.Now().Add(longest + time.Second); time.Now().Before(end); time.Sleep(quiet / 2) {
			n.hand.tell <- struct{}{}
		}
		synctest.Wait()
		n.counts("a/b", 5, 5, 5)
	})
}

// At rest nothing is read; without notices the machine is read from time to time.
func TestRest(t *testing.T) {
	m := newTree(t)
	m.node("x0", 188, 0)
	synctest.Test(t, func(t *testing.T) {
		m.TB = t
		n := newTestNode(t, m, Rule{Resource: "a/b", Paths: []string{"/dev/x*"}})
		defer func() { n.stop() }()
		before := n.hand.calls
		m.node("x1", 188, 1) // nobody is told
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		n.counts("a/b", 1, 1, 1)
		if n.hand.calls != before {
			t.Errorf("directories that do not change are watched anew %d times", n.hand.calls-before)
		}

		n.stop()
		n.hand.fails = errors.New("no space left on device")
		n.start(n.provider.cfg.Devices...)
		n.counts("a/b", 2, 2, 2)
		m.node("x2", 188, 2)
		time.Sleep(10 * unwatched)
		synctest.Wait()
		n.counts("a/b", 3, 3, 3)
		if got := n.logs.FilterMessageSnippet("failed to follow devices").Len(); got != 1 {
			t.Errorf("%d warnings, want one", got)
		}
	})
}

// The errors of a scan are logged when they change.
func TestErrorsAreLoggedOnce(t *testing.T) {
	m := newTree(t)
	m.node("open/x", 188, 0)
	synctest.Test(t, func(t *testing.T) {
		m.TB = t
		mode := func(mode fs.FileMode) func() {
			return func() { m.must(os.Chmod(filepath.Join(m.dev, "open"), mode)) }
		}
		mode(0o777)()
		n := newTestNode(t, m, Rule{Resource: "a/b", Paths: []string{"/dev/open/*"}})
		defer n.stop()
		n.change(func() {})
		warnings := func() int { return n.logs.FilterMessage("failed to read some devices").Len() }
		if got := warnings(); got != 1 {
			t.Errorf("%d warnings, want one", got)
		}
		n.change(mode(0o755))
		n.counts("a/b", 1, 1, 1)
		n.change(mode(0o777))
		if got := warnings(); got != 2 {
			t.Errorf("%d warnings, want one more", got)
		}
	})
}

// Devices that come and go under other names do not stay for ever.
func TestMissingDevicesAreBounded(t *testing.T) {
	p := &Provider{cfg: Config{Log: zap.NewNop()}, lists: map[string]map[string]devicemgr.Device{}, news: make(chan struct{})}
	for round := range 3 {
		f := &found{devices: map[string]map[string]*device{"a/b": {}}}
		for i := range maxDevices {
			id := fmt.Sprintf("x%d-%d", round, i)
			f.devices["a/b"][id] = &device{id: id, present: true}
		}
		p.publish(f)
		list, _, _ := p.list("a/b")
		if len(list) != maxDevices || !slices.Equal(slices.Sorted(maps.Keys(f.devices["a/b"])), ids(list)) {
			t.Errorf("%d devices, want those that are there", len(list))
		}
	}
	p.publish(&found{devices: map[string]map[string]*device{"a/b": {}}})
	if list, _, _ := p.list("a/b"); len(list) != maxDevices || list[0].Healthy {
		t.Errorf("%d devices", len(list))
	}
}

func ids(list []devicemgr.Device) (out []string) {
	for _, d := range list {
		out = append(out, d.ID)
	}
	return out
}
