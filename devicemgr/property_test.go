package devicemgr_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/devicemgr"
)

var (
	seed      = flag.Uint64("seed", 0, "of the random schedules; 0 takes one from the time")
	schedules = flag.Int("schedules", 10000, "how many random schedules are tried")
)

// world is a node: agents and plugins that start and end, and containers that keep running.
type world struct {
	t     *testing.T
	r     *rand.Rand
	store *checkpointtest.Disk
	agent *life
	now   map[string]*plugin // by resource; nil while it is away
	log   []string

	mu      sync.Mutex
	pods    map[types.UID]*v1.Pod
	running map[types.UID]map[string][]string // container -> "resource/device"
	busy    map[types.UID]bool                // being admitted
	life    int
	wg      sync.WaitGroup
}

var resources = []string{gpu, "example.com/nic"}

func (w *world) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%v ", time.Since(epoch))+fmt.Sprintf(format, args...))
}

// epoch is when every bubble begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func (w *world) boot() {
	w.mu.Lock()
	running := map[types.UID][]string{}
	for uid, cs := range w.running {
		running[uid] = slices.Sorted(maps.Keys(cs))
	}
	w.life++
	w.mu.Unlock()
	w.agent = start(w.t, devicemgr.Config{Store: w.store, Timeout: 5 * time.Second}, running)
	synctest.Wait()
	keep := w.keep()
	w.agent.Retain(func(uid types.UID) bool { return keep[uid] })
}

func (w *world) keep() map[types.UID]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	keep := map[types.UID]bool{}
	for uid := range w.pods {
		keep[uid] = true
	}
	return keep
}

// crash ends the agent at once: later writes are lost.
func (w *world) crash() {
	w.store.Fault(checkpointtest.Fail(errBroken, "write", "delete"))
	w.mu.Lock()
	w.life++
	w.mu.Unlock()
	w.agent.stop()
	w.wg.Wait()
	if w.r.IntN(8) == 0 { // a record is damaged
		for _, key := range slices.Sorted(maps.Keys(w.store.Values())) {
			if strings.HasPrefix(key, "pod.") && w.r.IntN(2) == 0 {
				w.note("damage %s", key)
				w.store.Put(key, "{")
				break
			}
		}
	}
	w.store.Fault(nil)
	w.boot()
	for name, p := range w.now {
		if p != nil {
			_ = w.agent.Offer(context.Background(), name, p)
		}
	}
}

func (w *world) newPlugin() *plugin {
	p := newPlugin(w.someDevices()...)
	p.options = devicemgr.Options{Prefer: w.r.IntN(2) == 0, PreStart: w.r.IntN(4) == 0}
	p.prefer = func(available, must []string, size int) ([]string, error) { return available[:size], nil }
	slow := time.Duration(w.r.IntN(8)) * time.Second // some are too late
	p.allocate = func(ctx context.Context, ids []string) (devicemgr.Attachment, error) {
		select {
		case <-ctx.Done():
			return devicemgr.Attachment{}, ctx.Err()
		case <-time.After(slow):
			return devicemgr.Attachment{}, nil
		}
	}
	return p
}

func (w *world) someDevices() []devicemgr.Device {
	list := make([]devicemgr.Device, 0, 4)
	for i := range 4 {
		if w.r.IntN(5) > 0 {
			list = append(list, devicemgr.Device{ID: fmt.Sprint("d", i), Healthy: w.r.IntN(5) > 0})
		}
	}
	return list
}

// step does one thing.
func (w *world) step(n int) {
	name := resources[w.r.IntN(len(resources))]
	p := w.now[name]
	switch k := w.r.IntN(20); {
	case k < 2 && p != nil:
		w.note("%s dies", name)
		p.die()
		w.now[name] = nil
	case k < 5:
		w.note("%s comes", name)
		w.now[name] = w.newPlugin()
		_ = w.agent.Offer(context.Background(), name, w.now[name])
	case k < 7 && p != nil:
		w.note("%s lists others", name)
		p.set(w.someDevices()...)
	case k < 8:
		w.note("crash")
		w.crash()
	case k < 14:
		shapes := [][]string{
			{"a=1"}, {"a=1", "b=1"}, {"a=2"}, {"init:i=2", "a=1"}, {"init:i=1", "sidecar:s=1", "init:j=1", "a=1"},
			{"a=1+1@example.com/nic"}, {"init:i=1", "a=1@example.com/nic"},
		}
		pod := pod(fmt.Sprint("p", n), shapes[w.r.IntN(len(shapes))]...)
		w.note("pod %s", pod.UID)
		w.mu.Lock()
		w.pods[pod.UID] = pod
		w.mu.Unlock()
		w.admit(pod)
	case k < 16:
		w.each(func(pod *v1.Pod) { w.note("again %s", pod.UID); w.admit(pod) })
	case k < 18:
		w.each(func(pod *v1.Pod) { w.note("over %s", pod.UID); w.over(pod.UID) })
	default:
		unit := []time.Duration{time.Second, 15 * time.Second}[w.r.IntN(2)] // a call lasts seconds, the grace period minutes
		time.Sleep(time.Duration(w.r.IntN(12)) * unit)
	}
}

// each does something with one pod.
func (w *world) each(fn func(*v1.Pod)) {
	w.mu.Lock()
	uids := slices.Sorted(maps.Keys(w.pods))
	var pod *v1.Pod
	if len(uids) > 0 {
		pod = w.pods[uids[w.r.IntN(len(uids))]]
	}
	w.mu.Unlock()
	if pod != nil {
		fn(pod)
	}
}

// admit admits a pod and starts its containers, in the background.
func (w *world) admit(pod *v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy[pod.UID] {
		return
	}
	w.busy[pod.UID] = true
	agent, life := w.agent, w.life
	w.wg.Go(func() {
		err := agent.Admit(context.Background(), pod)
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.busy, pod.UID)
		if err != nil || w.life != life || w.pods[pod.UID] == nil {
			return
		}
		w.run(agent, pod)
	})
}

// run starts the regular containers and sidecars, which run side by side.
// world.mu is held.
func (w *world) run(agent *life, pod *v1.Pod) {
	all := slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers)
	for _, c := range all {
		if c.Name == "i" || c.Name == "j" || w.running[pod.UID][c.Name] != nil {
			continue
		}
		if _, err := agent.Attachment(pod, c.Name); err != nil {
			if !errors.Is(err, devicemgr.ErrNotAllocated) {
				w.t.Errorf("attachment: %v", err)
			}
			continue
		}
		if w.running[pod.UID] == nil {
			w.running[pod.UID] = map[string][]string{}
		}
		got := []string{}
		for _, h := range agent.Holdings(pod.UID, c.Name) {
			for _, d := range h.Devices {
				got = append(got, h.Resource+"/"+d.ID)
			}
		}
		w.running[pod.UID][c.Name] = got
		if n := len(c.Resources.Limits); n > 0 && len(got) < n {
			w.t.Errorf("%s/%s runs with %v and asks for %d resources", pod.UID, c.Name, got, n)
		}
	}
	w.check()
}

func (w *world) over(uid types.UID) {
	w.mu.Lock()
	delete(w.running, uid)
	delete(w.pods, uid)
	w.mu.Unlock()
	w.agent.Release(uid)
}

// check is the promise: no device to two live containers.
func (w *world) check() {
	owner := map[string]string{}
	for uid, cs := range w.running {
		for c, ids := range cs {
			for _, id := range ids {
				me := string(uid) + "/" + c
				if other, taken := owner[id]; taken {
					w.t.Errorf("%s and %s have %s", me, other, id)
				}
				owner[id] = me
			}
		}
	}
}

// No device is given to two running containers, for any order of restarts of plugins, agent and
// pods. Resources are known from the start, since requests for a resource that no plugin has
// offered are ignored.
func TestNoDeviceTwice(t *testing.T) {
	first := *seed
	if first == 0 {
		first = uint64(time.Now().UnixNano())
	}
	n := *schedules
	if testing.Short() || raceEnabled {
		n = min(n, 500) // the detector makes each ten times as slow
	}
	t.Logf("seed %d, %d schedules", first, n)
	starts := 0
	for i := range n {
		s := first + uint64(i)
		var w *world
		synctest.Test(t, func(t *testing.T) {
			w = &world{
				t: t, r: rand.New(rand.NewPCG(s, s)), store: &checkpointtest.Disk{}, now: map[string]*plugin{},
				pods: map[types.UID]*v1.Pod{}, running: map[types.UID]map[string][]string{}, busy: map[types.UID]bool{},
			}
			w.boot()
			for _, name := range resources {
				p := w.newPlugin()
				if err := w.agent.Offer(context.Background(), name, p); err != nil {
					t.Fatal(err)
				}
				p.die()
			}
			synctest.Wait()
			for step := range 40 {
				w.step(step)
				if w.r.IntN(2) == 0 {
					synctest.Wait()
				}
			}
			w.wg.Wait()
			w.mu.Lock()
			w.check()
			starts += len(w.running)
			w.mu.Unlock()
			w.agent.stop()
		})
		if t.Failed() {
			t.Fatalf("run again with -seed %d -schedules 1\n%s", s, strings.Join(w.log, "\n"))
		}
	}
	if starts < n/2 {
		t.Errorf("only %d pods ran at the end of %d schedules: they show little", starts, n)
	}
}
