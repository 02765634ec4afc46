package devicemgr_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/topology"
)

func twoNodes() numa.Machine {
	return numa.Machine{
		CPUs:  []numa.CPU{{ID: 0, Node: 0}, {ID: 1, Core: 1, Node: 1}},
		Nodes: []numa.Node{{ID: 0}, {ID: 1}},
	}
}

// bubble runs a test with an agent whose plugin of gpu is up.
func bubble(t *testing.T, p *plugin, fn func(t *testing.T, l *life, store *checkpointtest.Disk)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := &checkpointtest.Disk{}
		l := start(t, devicemgr.Config{Store: store, Machine: twoNodes()}, nil)
		synctest.Wait()
		if p != nil {
			if err := l.Offer(t.Context(), gpu, p); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		fn(t, l, store)
		l.stop()
	})
}

func (l *life) admit(t *testing.T, p *v1.Pod) {
	t.Helper()
	if err := l.Admit(t.Context(), p); err != nil {
		t.Fatalf("admit %s: %v", p.Name, err)
	}
}

// refused admits a pod, and expects that it has to wait or is rejected.
func (l *life) refused(t *testing.T, p *v1.Pod, want string) {
	t.Helper()
	err := l.Admit(t.Context(), p)
	var notYet *devicemgr.NotYetError
	got := fmt.Sprint(err)
	if errors.As(err, &notYet) {
		got = fmt.Sprintf("wait %v: %s", time.Until(notYet.Until), notYet.Why)
	}
	if err == nil || !strings.Contains(got, want) {
		t.Fatalf("admit %s: %q, want %q", p.Name, got, want)
	}
}

func (l *life) counts() string {
	c := l.Capacity()[gpu]
	return fmt.Sprintf("%d/%d", c.Capacity, c.Allocatable)
}

func TestCapacity(t *testing.T) {
	p := newPlugin(devicemgr.Device{ID: "a", Healthy: true}, devicemgr.Device{ID: "b", Healthy: true}, devicemgr.Device{ID: "c"})
	bubble(t, p, func(t *testing.T, l *life, _ *checkpointtest.Disk) {
		check := func(when, want string) {
			t.Helper()
			synctest.Wait()
			if got := l.counts(); got != want {
				t.Errorf("%s: %s, want %s", when, got, want)
			}
		}
		check("2 healthy, 1 not", "3/2")
		p.set(healthyDevices("a", "b")...)
		check("the other removed", "2/2")
		p.set(devicemgr.Device{ID: "a", Healthy: true}, devicemgr.Device{ID: "b"})
		check("one falls ill", "2/1")
		p.die()
		check("plugin dies", "2/0")
		time.Sleep(5*time.Minute - time.Second)
		check("within the grace", "2/0")
		time.Sleep(time.Second)
		check("beyond the grace", "0/0")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := p.closes(); n != 1 {
			t.Errorf("plugin closed %d times, want 1 when it is given up", n)
		}
		again := newPlugin(healthyDevices("x")...)
		if err := l.Offer(t.Context(), gpu, again); err != nil {
			t.Fatal(err)
		}
		check("another one comes", "1/1")
	})
}

func TestAllocate(t *testing.T) {
	for _, tt := range []struct {
		name string
		pods [][]string // containers each
		want []string   // of the last pod: container=devices; or an error
	}{
		{"one", [][]string{{"main=1"}}, []string{"main=a"}},
		{"none asked for", [][]string{{"main="}}, []string{"main="}},
		{"all", [][]string{{"main=3"}}, []string{"main=a,b,c"}},
		{"too many", [][]string{{"main=4"}}, []string{"Requested: 4, Available: 3"}},
		{"none left", [][]string{{"main=3"}, {"main=1"}}, []string{"Requested: 1, Available: 0"}},
		{"containers share nothing", [][]string{{"a=1", "b=1"}}, []string{"a=a", "b=b"}},
		{"init leaves its own", [][]string{{"init:i=1", "main=1"}}, []string{"i=a", "main=a"}},
		{"init has more", [][]string{{"init:i=2", "main=1"}}, []string{"i=a,b", "main=a"}},
		{"init has less", [][]string{{"init:i=1", "main=2"}}, []string{"i=a", "main=a,b"}},
		{"sidecar leaves none", [][]string{{"sidecar:s=1", "main=1"}}, []string{"s=a", "main=b"}},
		{"sidecar takes from init", [][]string{{"init:i=1", "sidecar:s=1", "init:j=1", "main=1"}}, []string{"i=a", "s=a", "j=b", "main=b"}},
		{"two resources", [][]string{{"init:i=1+1@example.com/nic", "main=1+1@example.com/nic"}}, []string{"i=a,n1", "main=a,n1"}},
		{"one resource is short", [][]string{{"main=1+9@example.com/nic"}, {"main=3"}}, []string{"main=a,b,c"}},
		{"unknown resources are others'", [][]string{{"main=1@example.com/what"}}, []string{"main="}},
		{"native resources are", [][]string{{"main=1@cpu"}}, []string{"main="}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, newPlugin(healthyDevices("a", "b", "c")...), func(t *testing.T, l *life, _ *checkpointtest.Disk) {
				if err := l.Offer(t.Context(), "example.com/nic", newPlugin(healthyDevices("n1", "n2")...)); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				var err error
				for i, containers := range tt.pods {
					err = l.Admit(t.Context(), pod(fmt.Sprint("p", i), containers...))
				}
				if err != nil {
					if !strings.Contains(err.Error(), tt.want[0]) {
						t.Errorf("error %q, want %q", err, tt.want[0])
					}
					return
				}
				for _, w := range tt.want {
					c, ids, _ := strings.Cut(w, "=")
					if got := l.has(fmt.Sprint("p", len(tt.pods)-1), c); got != ids {
						t.Errorf("container %s has %q, want %q", c, got, ids)
					}
				}
			})
		})
	}
}

func TestClaimedElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := start(t, devicemgr.Config{Store: &checkpointtest.Disk{}, Claimed: func(_ *v1.Pod, c, _ string) bool { return c == "claims" }}, nil)
		synctest.Wait()
		if err := l.Offer(t.Context(), gpu, newPlugin(healthyDevices("a")...)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		l.admit(t, pod("p", "claims=1", "main=1"))
		if l.has("p", "claims") != "" || l.has("p", "main") != "a" {
			t.Errorf("devices %q and %q, want none and a", l.has("p", "claims"), l.has("p", "main"))
		}
		l.stop()
	})
}

func TestReleaseGivesBack(t *testing.T) {
	bubble(t, newPlugin(healthyDevices("a")...), func(t *testing.T, l *life, store *checkpointtest.Disk) {
		l.admit(t, pod("p", "main=1"))
		l.refused(t, pod("q", "main=1"), "Available: 0")
		news := make(chan devicemgr.Change, 9)
		l.Subscribe(func(c devicemgr.Change) { news <- c })
		l.Release("p")
		synctest.Wait()
		if c := <-news; !slices.Equal(c.Resources, []string{gpu}) {
			t.Errorf("subscribers hear of %v, want %s", c, gpu)
		}
		if keys, _ := store.Keys(); !slices.Equal(keys, []string{"resources"}) {
			t.Errorf("stored %v, want the names alone", keys)
		}
		l.admit(t, pod("q", "main=1"))
	})
}

// One file for each pod that has devices, written once; lists write nothing.
func TestStoreIsQuiet(t *testing.T) {
	p := newPlugin(healthyDevices("a", "b")...)
	bubble(t, p, func(t *testing.T, l *life, store *checkpointtest.Disk) {
		l.admit(t, pod("p", "main=1"))
		l.admit(t, pod("p", "main=1")) // again
		l.admit(t, pod("q", "main="))
		for range 100 {
			p.set(healthyDevices("a", "b", "c")...)
			p.set(healthyDevices("a", "b")...)
			synctest.Wait()
		}
		if keys, _ := store.Keys(); !slices.Equal(keys, []string{"pod.p", "resources"}) || store.Count("write") != 2 {
			t.Errorf("%d writes of %v, want one of pod.p and one of resources", store.Count("write"), keys)
		}
	})
}

func TestFullDisk(t *testing.T) {
	bubble(t, newPlugin(healthyDevices("a")...), func(t *testing.T, l *life, store *checkpointtest.Disk) {
		store.Fault(checkpointtest.Fail(errBroken, "write", "delete"))
		l.refused(t, pod("p", "main=1"), "disk is broken")
		store.Fault(nil)
		l.admit(t, pod("q", "main=1"))
		store.Fault(checkpointtest.Fail(errBroken, "write", "delete"))
		l.Release("q")
		l.refused(t, pod("r", "main=1"), "disk is broken")
		store.Fault(nil)
		l.admit(t, pod("r", "main=1"))

		// q's file is still there, but nothing of q runs.
		l.stop()
		next := start(t, devicemgr.Config{Store: store}, map[types.UID][]string{"r": {"main"}})
		synctest.Wait()
		next.Retain(func(uid types.UID) bool { return uid == "r" })
		if next.has("r", "main") != "a" || next.has("q", "main") != "" {
			t.Errorf("r has %q, q has %q", next.has("r", "main"), next.has("q", "main"))
		}
		if err := next.Offer(t.Context(), gpu, newPlugin(healthyDevices("a")...)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		next.refused(t, pod("s", "main=1"), "Available: 0")
		next.stop()
	})
}

func TestWaitsForPlugin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &checkpointtest.Disk{}
		l := start(t, devicemgr.Config{Store: store}, nil)
		synctest.Wait()
		p := newPlugin(healthyDevices("a", "b")...)
		if err := l.Offer(t.Context(), gpu, p); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		l.admit(t, pod("old", "main=1"))
		p.die()
		synctest.Wait()
		l.refused(t, pod("new", "main=1"), "wait 5m0s: its plugin does not answer")
		l.admit(t, pod("old", "main=1")) // keeps its devices
		l.admit(t, pod("none", "main="))
		time.Sleep(time.Minute)
		l.refused(t, pod("new", "main=1"), "wait 4m0s")
		p.revive() // the same program again: found without a new registration
		time.Sleep(time.Minute)
		l.admit(t, pod("new", "main=1"))
		l.stop()

		// The agent restarts: containers continue, and running pods do not wait.
		l = start(t, devicemgr.Config{Store: store}, map[types.UID][]string{"old": {"main"}, "new": {"main"}})
		synctest.Wait()
		if got := l.counts(); got != "0/0" {
			t.Errorf("capacity after a restart: %s, want 0/0", got)
		}
		l.admit(t, pod("old", "main=1"))
		l.refused(t, pod("newer", "main=1"), "wait 5m0s: its plugin has not registered since the restart of the agent")
		time.Sleep(5 * time.Minute)
		l.refused(t, pod("newer", "main=1"), "no healthy devices of example.com/gpu: its plugin has not registered")
		l.admit(t, pod("old", "main=1"))
		if err := l.PreStart(t.Context(), pod("old", "main=1"), "main"); err != nil {
			t.Errorf("a container does not restart without a plugin: %v", err)
		}
		l.stop()
	})
}

// A subscriber hears when it is worth to try again, and when the grace is over.
func TestSubscribersHear(t *testing.T) {
	p := newPlugin(healthyDevices("a")...)
	bubble(t, p, func(t *testing.T, l *life, _ *checkpointtest.Disk) {
		var heard []string
		begin := time.Now()
		l.admit(t, pod("p", "main=1"))
		l.Subscribe(func(c devicemgr.Change) {
			heard = append(heard, fmt.Sprint(time.Since(begin), c.Resources, c.Pods))
		})
		synctest.Wait()
		p.set(devicemgr.Device{ID: "a"})
		synctest.Wait()
		p.set(devicemgr.Device{ID: "a"}) // no news
		synctest.Wait()
		p.set() // gone from the list
		synctest.Wait()
		p.set(healthyDevices("a", "b")...)
		synctest.Wait()
		p.die()
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		want := []string{"0s [example.com/gpu] [p]", "0s [example.com/gpu] [p]", "0s [example.com/gpu] [p]", "0s [example.com/gpu] [p]", "5m0s [example.com/gpu] []"}
		if !slices.Equal(heard, want) {
			t.Errorf("heard\n%s, want\n%s", strings.Join(heard, "\n"), strings.Join(want, "\n"))
		}
	})
}

// A plugin that repeatedly lists devices and disconnects is contacted less and less often: a
// waiting pod gets the reason each time.
func TestAPluginThatListsAndGoes(t *testing.T) {
	bubble(t, newPlugin(), func(t *testing.T, l *life, _ *checkpointtest.Disk) {
		changes := 0
		l.Subscribe(func(devicemgr.Change) { changes++ })
		if err := l.Offer(t.Context(), gpu, fleeting{newPlugin(healthyDevices("a")...)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if changes < 20 || changes > 60 {
			t.Errorf("%d changes in ten minutes", changes)
		}
	})
}

// fleeting is a plugin whose watches end after their first list.
type fleeting struct{ *plugin }

func (f fleeting) Watch(_ context.Context, list func([]devicemgr.Device)) error {
	list(f.devices)
	return devicemgr.ErrAway
}

func TestTakeover(t *testing.T) {
	old := newPlugin(healthyDevices("a", "b")...)
	bubble(t, old, func(t *testing.T, l *life, _ *checkpointtest.Disk) {
		l.admit(t, pod("p", "main=1"))
		next := newPlugin(healthyDevices("b", "c")...)
		next.silent = true
		if err := l.Offer(t.Context(), gpu, next); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := l.counts(); got != "2/2" {
			t.Errorf("capacity before the new plugin has spoken: %s, want 2/2", got)
		}
		l.refused(t, pod("q", "main=1"), "wait 30s: its new plugin has not listed any yet")
		old.set(healthyDevices("z")...) // no longer asked
		old.die()
		next.change(func() { next.silent = false })
		synctest.Wait()
		if got := l.counts(); got != "2/2" || old.closes() != 1 {
			t.Errorf("capacity %s and old closed %d times, want 2/2 and once", got, old.closes())
		}
		l.admit(t, pod("q", "main=2"))
		if got := l.has("q", "main"); got != "b,c" {
			t.Errorf("q has %s, want b,c", got)
		}
		if got := l.has("p", "main"); got != "a" {
			t.Errorf("p has %s, want a", got)
		}
	})
}

func TestNeverLists(t *testing.T) {
	p := newPlugin()
	p.silent = true
	bubble(t, p, func(t *testing.T, l *life, _ *checkpointtest.Disk) {
		l.refused(t, pod("p", "main=1"), "wait 5m0s: its plugin has not listed any yet")
		time.Sleep(30 * time.Second)
		synctest.Wait()
		l.refused(t, pod("p", "main=1"), "wait 4m30s: its plugin does not answer: plugin sent no device list within 30s")
		time.Sleep(10 * time.Minute)
		l.refused(t, pod("p", "main=1"), "no healthy devices of example.com/gpu: its plugin does not answer: plugin sent no device list within 30s")
	})
}

func TestHangsInAllocate(t *testing.T) {
	bad := newPlugin(healthyDevices("a")...)
	bad.allocate = func(ctx context.Context, _ []string) (devicemgr.Attachment, error) {
		<-ctx.Done()
		return devicemgr.Attachment{}, ctx.Err()
	}
	bubble(t, bad, func(t *testing.T, l *life, _ *checkpointtest.Disk) {
		if err := l.Offer(t.Context(), "example.com/nic", newPlugin(healthyDevices("n")...)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		begin := time.Now()
		failed := make(chan error)
		go func() { failed <- l.Admit(t.Context(), pod("p", "main=1")) }()
		synctest.Wait()
		l.admit(t, pod("q", "main=1@example.com/nic")) // does not notice
		l.refused(t, pod("r", "main=1"), "Available: 0")
		if d := time.Since(begin); d != 0 {
			t.Errorf("others waited %v", d)
		}
		err := <-failed
		var plugin *devicemgr.PluginError
		if !errors.As(err, &plugin) || plugin.Call != "Allocate" || time.Since(begin) != 30*time.Second {
			t.Errorf("after %v: %v, want a failed Allocate after 30s", time.Since(begin), err)
		}
		if u := l.Capacity()[gpu].Used; u != 0 {
			t.Errorf("%d devices in use after the failure, want 0", u)
		}
	})
}

// A plugin that dies in Allocate is waited for once; if the pod kills it again,
// the pod is rejected.
func TestDiesInAllocate(t *testing.T) {
	p := newPlugin(healthyDevices("a")...)
	p.allocate = func(context.Context, []string) (devicemgr.Attachment, error) {
		return devicemgr.Attachment{}, devicemgr.ErrAway
	}
	bubble(t, p, func(t *testing.T, l *life, _ *checkpointtest.Disk) {
		l.refused(t, pod("p", "main=1"), "wait 5m0s: its plugin went away")
		l.refused(t, pod("p", "main=1"), "plugin of example.com/gpu: Allocate: the plugin has gone away")
	})
}

func TestPreferenceFails(t *testing.T) {
	p := newPlugin(healthyDevices("a", "b")...)
	p.options.Prefer = true
	bubble(t, p, func(t *testing.T, l *life, _ *checkpointtest.Disk) {
		next := newPlugin(healthyDevices("x")...)
		p.prefer = func([]string, []string, int) ([]string, error) {
			if err := l.Offer(t.Context(), gpu, next); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			return nil, errors.New("closed")
		}
		l.admit(t, pod("p", "main=1")) // with the plugin that took over
		if got := l.has("p", "main"); got != "x" {
			t.Errorf("p has %s, want x", got)
		}
		l.Release("p")
		next.options.Prefer = true
		next.prefer = func([]string, []string, int) ([]string, error) { return nil, errors.New("no idea") }
		if err := l.Offer(t.Context(), gpu, next); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		l.refused(t, pod("q", "main=1"), "plugin of example.com/gpu: GetPreferredAllocation: no idea")
	})
}

func TestPluginRefuses(t *testing.T) {
	p := newPlugin(healthyDevices("a", "b")...)
	p.allocate = func(_ context.Context, ids []string) (devicemgr.Attachment, error) {
		if ids[0] == "b" {
			return devicemgr.Attachment{}, errors.New("b is broken")
		}
		return devicemgr.Attachment{}, nil
	}
	bubble(t, p, func(t *testing.T, l *life, store *checkpointtest.Disk) {
		l.refused(t, pod("p", "x=1", "y=1"), "Allocate: b is broken")
		if keys, _ := store.Keys(); len(keys) != 1 {
			t.Errorf("stored %v for a pod that was rejected", keys)
		}
		l.admit(t, pod("q", "x=1"))
	})
}

// After a reboot nothing runs: plugins are called again, for the same devices if they are
// healthy.
func TestReboot(t *testing.T) {
	for _, tt := range []struct {
		name    string
		devices []string
		want    string
	}{
		{"same devices", []string{"a", "b", "c"}, "b"},
		{"others", []string{"x", "y"}, "y"}, // x went to the other pod
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, newPlugin(healthyDevices("a", "b", "c")...), func(t *testing.T, l *life, store *checkpointtest.Disk) {
				l.admit(t, pod("p", "main=1"))
				l.admit(t, pod("q", "main=1"))
				l.stop()
				l = start(t, devicemgr.Config{Store: store}, map[types.UID][]string{})
				synctest.Wait()
				l.refused(t, pod("q", "main=1"), "wait 5m0s")
				p := newPlugin(healthyDevices(tt.devices...)...)
				if err := l.Offer(t.Context(), gpu, p); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				l.admit(t, pod("p", "main=1"))
				l.admit(t, pod("q", "main=1"))
				if got := l.has("q", "main"); got != tt.want || !slices.Contains(p.called(), "allocate "+tt.want) {
					t.Errorf("q has %q after %v, want %q", got, p.called(), tt.want)
				}
				l.stop()
			})
		})
	}
}

// A running container keeps its device even if the plugin has not registered or the device becomes
// unhealthy, also one that an init container had before; a request for another number is an error.
func TestAgain(t *testing.T) {
	p := newPlugin(healthyDevices("a", "b")...)
	bubble(t, p, func(t *testing.T, l *life, store *checkpointtest.Disk) {
		l.admit(t, pod("p", "init:i=1", "main=1"))
		l.stop()
		l = start(t, devicemgr.Config{Store: store}, map[types.UID][]string{"p": {"main"}})
		l.admit(t, pod("p", "init:i=1", "main=1"))
		synctest.Wait()
		if err := l.Offer(t.Context(), gpu, newPlugin(devicemgr.Device{ID: "a"}, devicemgr.Device{ID: "b", Healthy: true})); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		l.admit(t, pod("p", "init:i=1", "main=1"))
		if got := l.has("p", "main"); got != "a" {
			t.Errorf("p has %q, want a", got)
		}
		l.refused(t, pod("p", "init:i=1", "main=2"), "asks for 2 devices of example.com/gpu and has 1")
		l.stop()
	})
}

// A damaged record of a running pod: no other pod gets devices that may belong to it until it
// ends; it restarts with a known device.
func TestDamagedRecord(t *testing.T) {
	for _, tt := range []struct {
		name string
		then func(*testing.T, *life)
	}{
		{"ends", func(_ *testing.T, l *life) { l.Release("p") }},
		{"restarts", func(t *testing.T, l *life) {
			if err := l.PreStart(t.Context(), pod("p", "main=1", "none="), "main"); err != nil {
				t.Fatal(err)
			}
			if got := l.has("p", "main"); got != "a" {
				t.Errorf("p has %q, want a", got)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, newPlugin(healthyDevices("a", "b")...), func(t *testing.T, l *life, store *checkpointtest.Disk) {
				l.admit(t, pod("p", "main=1", "none="))
				running := map[types.UID][]string{"p": {"main", "none"}}
				l.stop()
				store.Put("pod.p", "{")
				for range 2 { // the second restart knows it too
					l.stop()
					l = start(t, devicemgr.Config{Store: store}, running)
					synctest.Wait()
				}
				for _, r := range []string{gpu, "example.com/nic"} {
					if err := l.Offer(t.Context(), r, newPlugin(healthyDevices("a", "b")...)); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait()
				l.refused(t, pod("n", "main=1@example.com/nic"), "the devices of the running pod p are not known")
				l.admit(t, pod("p", "main=1", "none=")) // runs
				l.admit(t, pod("n", "main=1@example.com/nic"))
				if _, err := l.Attachment(pod("p", "main=1", "none="), "main"); !errors.Is(err, devicemgr.ErrNotAllocated) {
					t.Errorf("attachment of what is not known: %v, want ErrNotAllocated", err)
				}
				l.refused(t, pod("q", "main=1"), "wait 5m0s: the devices of the running pod default/p are not known")
				tt.then(t, l)
				l.admit(t, pod("q", "main=1"))
				l.stop()
			})
		})
	}
}

func TestHealth(t *testing.T) {
	p := newPlugin(healthyDevices("a", "b")...)
	bubble(t, p, func(t *testing.T, l *life, _ *checkpointtest.Disk) {
		l.admit(t, pod("p", "init:i=1", "main=2"))
		check := func(when, want string) {
			t.Helper()
			synctest.Wait()
			var got []string
			for _, st := range l.Health("p", "main") {
				for _, r := range st.Resources {
					got = append(got, fmt.Sprintf("%s %s %s", st.Name, r.ResourceID, r.Health))
				}
			}
			if s := strings.Join(got, "; "); s != want {
				t.Errorf("%s: %q, want %q", when, s, want)
			}
		}
		check("all well", "example.com/gpu a Healthy; example.com/gpu b Healthy")
		p.set(devicemgr.Device{ID: "a"}, devicemgr.Device{ID: "b", Healthy: true})
		check("one ill", "example.com/gpu a Unhealthy; example.com/gpu b Healthy")
		p.set(healthyDevices("b")...)
		check("one missing", "example.com/gpu a Unknown; example.com/gpu b Healthy")
		p.die()
		check("plugin away", "example.com/gpu a Unknown; example.com/gpu b Unknown")
		if st := l.Health("p", "i"); len(st) != 1 {
			t.Errorf("health of an init container: %v, want one resource", st)
		}
	})
}

func TestPreStart(t *testing.T) {
	p := newPlugin(healthyDevices("a")...)
	p.options.PreStart = true
	bubble(t, p, func(t *testing.T, l *life, store *checkpointtest.Disk) {
		x := pod("p", "main=1", "none=")
		l.admit(t, x)
		if err := errors.Join(l.PreStart(t.Context(), x, "main"), l.PreStart(t.Context(), x, "none")); err != nil {
			t.Fatal(err)
		}
		if got := p.called(); got[len(got)-1] != "prestart a" {
			t.Errorf("calls %v, want a prestart last", got)
		}
		p.preStart = func(context.Context, []string) error { return errors.New("cannot reset") }
		if err := l.PreStart(t.Context(), x, "main"); err == nil || !strings.Contains(err.Error(), "PreStartContainer: cannot reset") {
			t.Errorf("prestart: %v, want the plugin's error", err)
		}
		p.die()
		synctest.Wait()
		var notYet *devicemgr.NotYetError
		if err := l.PreStart(t.Context(), x, "main"); !errors.As(err, &notYet) {
			t.Errorf("prestart without the plugin that wanted it: %v, want a NotYetError", err)
		}
	})
}

func TestAttachment(t *testing.T) {
	p, q := newPlugin(healthyDevices("a")...), newPlugin(healthyDevices("n")...)
	p.allocate = func(context.Context, []string) (devicemgr.Attachment, error) {
		return devicemgr.Attachment{
			Env:         []v1.EnvVar{{Name: "Z", Value: "1"}, {Name: "A", Value: "gpu"}},
			Mounts:      []devicemgr.Mount{{ContainerPath: "/lib", HostPath: "/gpu"}},
			Nodes:       []devicemgr.DeviceNode{{ContainerPath: "/dev/x", HostPath: "/dev/gpu0", Permissions: "rw"}},
			Annotations: map[string]string{"k": "gpu"}, CDI: []string{"v/c=x", "v/c=a"},
		}, nil
	}
	q.allocate = func(context.Context, []string) (devicemgr.Attachment, error) {
		return devicemgr.Attachment{
			Env:         []v1.EnvVar{{Name: "A", Value: "nic"}, {Name: "N", Value: "2"}},
			Mounts:      []devicemgr.Mount{{ContainerPath: "/lib", HostPath: "/nic"}, {ContainerPath: "/etc/nic", HostPath: "/nic", ReadOnly: true}},
			Nodes:       []devicemgr.DeviceNode{{ContainerPath: "/dev/x", HostPath: "/dev/nic0"}},
			Annotations: map[string]string{"k": "nic", "n": "nic"}, CDI: []string{"v/c=x"},
		}, nil
	}
	bubble(t, p, func(t *testing.T, l *life, _ *checkpointtest.Disk) {
		if err := l.Offer(t.Context(), "example.com/nic", q); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		x := pod("p", "main=1+1@example.com/nic")
		if _, err := l.Attachment(x, "main"); !errors.Is(err, devicemgr.ErrNotAllocated) {
			t.Errorf("before admission: %v, want ErrNotAllocated", err)
		}
		l.admit(t, x)
		a, err := l.Attachment(x, "main")
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprint(a.Env[0].Value, a.Env[1].Value, a.Env[2].Value, a.Mounts, a.Nodes, a.Annotations, a.CDI)
		want := "gpu21[{/etc/nic /nic true} {/lib /gpu false}] [{/dev/x /dev/gpu0 rw}] map[k:gpu n:nic] [v/c=a v/c=x]"
		if got != want {
			t.Errorf("attachment\n%s, want\n%s", got, want)
		}
	})
}

// With package topology: hints, and nothing allocated for a rejected pod.
func TestTopology(t *testing.T) {
	p := newPlugin(
		devicemgr.Device{ID: "a", Healthy: true, Nodes: numa.Nodes(0)},
		devicemgr.Device{ID: "b", Healthy: true, Nodes: numa.Nodes(1)},
		devicemgr.Device{ID: "c", Healthy: true, Nodes: numa.Nodes(1)})
	p.options.Prefer = true
	p.prefer = func(available, _ []string, size int) ([]string, error) { return available[len(available)-size:], nil }
	bubble(t, p, func(t *testing.T, l *life, _ *checkpointtest.Disk) {
		policy, err := topology.NewPolicy(topology.NameRestricted, twoNodes(), topology.Options{})
		if err != nil {
			t.Fatal(err)
		}
		admit := func(scope topology.Scope, pod *v1.Pod) error {
			m, err := topology.New(topology.Config{Policy: policy, Scope: scope})
			if err != nil {
				t.Fatal(err)
			}
			a, err := l.Begin(t.Context(), pod)
			if err != nil {
				t.Fatal(err)
			}
			n := numa.Pod{UID: string(pod.UID)}
			for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
				n.Containers = append(n.Containers, numa.Container{Name: c.Name})
			}
			d, err := m.Admit(n, []topology.Provider{a})
			if err != nil {
				return err
			}
			return d.Providers[0].(*devicemgr.Admission).Commit()
		}
		var rejected *topology.Rejection
		if err := admit(topology.PodScope, pod("wide", "x=2", "y=1")); err != nil {
			t.Errorf("all devices for a pod: %v", err) // both nodes are the fewest
		}
		if err := admit(topology.ContainerScope, pod("full", "x=1")); !errors.As(err, &rejected) {
			t.Errorf("no device left: %v, want a rejection", err)
		}
		l.Release("wide")
		if err := admit(topology.ContainerScope, pod("two", "x=2")); err != nil {
			t.Error(err)
		}
		if got := l.has("two", "x"); got != "b,c" {
			t.Errorf("two devices together: %s, want b,c", got)
		}
		if err := admit(topology.ContainerScope, pod("two", "x=2")); err != nil {
			t.Errorf("again: %v", err)
		}
		l.Release("two")
		if err := admit(topology.ContainerScope, pod("wish", "x=1")); err != nil {
			t.Error(err)
		}
		if err := admit(topology.ContainerScope, pod("wish2", "init:i=1", "x=1")); err != nil {
			t.Error(err)
		}
		if got := l.has("wish", "x") + " " + l.has("wish2", "x"); got != "a b" && got != "a c" {
			t.Errorf("one each: %s, want node 0 first", got)
		}
		if u := l.Capacity()[gpu].Used; u != 2 {
			t.Errorf("%d in use, want 2: nothing leaks", u)
		}
	})
}

// A choice that is overtaken is not made.
func TestOvertaken(t *testing.T) {
	p := newPlugin(healthyDevices("a")...)
	bubble(t, p, func(t *testing.T, l *life, _ *checkpointtest.Disk) {
		begin := func(p *v1.Pod) *devicemgr.Admission {
			a, err := l.Begin(t.Context(), p)
			if err == nil {
				a, err = a.Choose(0, numa.Hint{})
			}
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		first, second := begin(pod("p", "main=1")), begin(pod("q", "main=1"))
		if err := second.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := first.Commit(); !errors.Is(err, devicemgr.ErrChanged) {
			t.Errorf("a taken device: %v, want ErrChanged", err)
		}
		l.Release("q")
		third := begin(pod("r", "main=1"))
		p.set(devicemgr.Device{ID: "a"})
		synctest.Wait()
		if err := third.Commit(); !errors.Is(err, devicemgr.ErrChanged) {
			t.Errorf("an ill device: %v, want ErrChanged", err)
		}
	})
}

func TestNewNamesMistakes(t *testing.T) {
	_, err := devicemgr.New(devicemgr.Config{SocketDir: "plugins", Timeout: -1, Machine: numa.Machine{Nodes: []numa.Node{{ID: 99}}}})
	for _, want := range []string{"Store", "SocketDir", "Timeout", "Machine"} {
		if err == nil || !strings.Contains(err.Error(), "Config."+want) {
			t.Errorf("New: %v, want it to name Config.%s", err, want)
		}
	}
}
