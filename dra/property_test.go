package dra_test

import (
	"context"
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
	"github.com/nodewright/nodewright/dra"
)

var (
	seed      = flag.Uint64("seed", 0, "of the random schedules; 0 takes one from the time")
	schedules = flag.Int("schedules", 10000, "how many random schedules are tried")
)

// hardware is what one driver name has really done; its instances share it.
type hardware struct {
	mu       sync.Mutex
	prepared map[types.UID]bool
	busy     map[types.UID]string
}

// world is a node: agents and drivers that start and end, and pods that keep running.
type world struct {
	t      *testing.T
	r      *rand.Rand
	rig    *rig
	hw     map[string]*hardware
	online map[string]*driver // nil while it is away
	n      int
	log    []string
	wg     sync.WaitGroup

	mu      sync.Mutex
	life    int
	pods    map[types.UID]*v1.Pod
	running map[types.UID]bool
	ending  map[types.UID]bool
	busy    map[types.UID]bool // a worker does something for it
}

var driverNames = []string{gpu, "nic.example.com"}

func (w *world) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

// instance is a process of a driver. It answers as told, immediately or late.
func (w *world) instance(name string) *driver {
	hw, d := w.hw[name], newDriver(w.t, name)
	d.noHealth = true
	slow, moody := time.Duration(w.r.IntN(6))*time.Second, w.r.IntN(3) == 0
	rng := rand.New(rand.NewPCG(w.r.Uint64(), 1))
	do := func(ctx context.Context, list []dra.ClaimRef, what string, now func(types.UID)) (fail map[types.UID]error, err error) {
		hw.mu.Lock()
		for _, c := range list {
			if other := hw.busy[c.UID]; other != "" {
				w.t.Errorf("%s of %s while %s is under way", what, c.UID, other)
			}
			hw.busy[c.UID] = what
		}
		hw.mu.Unlock()
		late := time.NewTimer(slow)
		defer late.Stop()
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-late.C:
		}
		hw.mu.Lock()
		defer hw.mu.Unlock()
		fail = map[types.UID]error{}
		for _, c := range list {
			delete(hw.busy, c.UID)
			fail[c.UID] = nil
			if moody && rng.IntN(3) == 0 {
				fail[c.UID] = errBroken
				if rng.IntN(2) == 0 {
					continue // it was not done; else it was, and says otherwise
				}
			}
			if err == nil || rng.IntN(2) == 0 {
				now(c.UID)
			}
		}
		return fail, err
	}
	d.prepare = func(ctx context.Context, list []dra.ClaimRef) (map[types.UID]dra.Prepared, error) {
		fail, err := do(ctx, list, "prepare", func(uid types.UID) { hw.prepared[uid] = true })
		out := map[types.UID]dra.Prepared{}
		for _, c := range list {
			out[c.UID] = dra.Prepared{Devices: d.devices(c), Err: fail[c.UID]}
		}
		return out, err
	}
	d.unprepare = func(ctx context.Context, list []dra.ClaimRef) (map[types.UID]error, error) {
		w.mu.Lock()
		for _, c := range list {
			for uid := range w.running {
				if uses(w.pods[uid], c.Name) {
					w.t.Errorf("%s is unprepared while %s runs", c.Name, uid)
				}
			}
		}
		w.mu.Unlock()
		return do(ctx, list, "unprepare", func(uid types.UID) { delete(hw.prepared, uid) })
	}
	return d
}

func uses(p *v1.Pod, claim string) bool {
	return slices.ContainsFunc(p.Spec.ResourceClaims, func(rc v1.PodResourceClaim) bool { return *rc.ResourceClaimName == claim })
}

// check is the promise: whoever runs has its claims prepared. The caller holds w.mu.
func (w *world) check() {
	for uid := range w.running {
		for _, rc := range w.pods[uid].Spec.ResourceClaims {
			c := w.rig.claims.all[*rc.ResourceClaimName]
			for _, r := range c.Status.Allocation.Devices.Results {
				w.hw[r.Driver].mu.Lock()
				if !w.hw[r.Driver].prepared[c.UID] {
					w.t.Errorf("%s runs, and %s is not prepared by %s", uid, c.Name, r.Driver)
				}
				w.hw[r.Driver].mu.Unlock()
			}
		}
	}
}

// worker does something for a pod in the background, unless it is busy.
func (w *world) worker(uid types.UID, do func(m *dra.Manager, life int)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy[uid] {
		return
	}
	w.busy[uid] = true
	m, life := w.rig.Manager, w.life
	w.wg.Go(func() {
		do(m, life)
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.busy, uid)
	})
}

// sync starts a pod.
func (w *world) sync(pod *v1.Pod, timeout time.Duration) {
	w.worker(pod.UID, func(m *dra.Manager, life int) {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		w.mu.Lock()
		over := w.pods[pod.UID] == nil
		w.mu.Unlock()
		if over {
			return
		}
		err := m.Prepare(ctx, pod)
		w.mu.Lock()
		defer w.mu.Unlock()
		if err != nil || w.life != life || w.ending[pod.UID] || w.pods[pod.UID] == nil {
			return
		}
		if _, err := m.Attachment(pod, "main"); err != nil {
			w.t.Errorf("attachment: %v", err)
		}
		w.running[pod.UID] = true
		w.check()
	})
}

// end stops a pod.
func (w *world) end(uid types.UID) {
	w.mu.Lock()
	w.ending[uid] = true
	delete(w.running, uid)
	w.mu.Unlock()
	w.worker(uid, func(m *dra.Manager, life int) {
		for range 3 {
			err := m.Unprepare(context.Background(), uid)
			w.mu.Lock()
			over := w.life != life
			if err == nil && !over {
				delete(w.pods, uid)
				delete(w.ending, uid)
			}
			w.mu.Unlock()
			if err == nil || over {
				return
			}
			time.Sleep(time.Second)
		}
	})
}

// crash ends the agent at once: later writes are lost.
func (w *world) crash() {
	w.rig.store.Fault(checkpointtest.Fail(errBroken, "write", "delete"))
	w.mu.Lock()
	w.life++
	w.mu.Unlock()
	w.rig.stop()
	w.wg.Wait()
	damaged := false
	if w.r.IntN(8) == 0 {
		for _, key := range slices.Sorted(maps.Keys(w.rig.store.Values())) {
			if !damaged && w.r.IntN(2) == 0 {
				w.note("damage %s", key)
				w.rig.store.Damage(key)
				damaged = true
			}
		}
	}
	w.rig.store.Fault(nil)
	running := map[types.UID][]string{}
	for uid := range w.running {
		running[uid] = []string{"main"}
	}
	if w.rig.cfg.Boot = ""; w.r.IntN(2) == 0 {
		w.rig.cfg.Boot = "1" // who says it once says it always; either must do
	}
	w.rig.start(running)
	for _, name := range driverNames {
		if d := w.online[name]; d != nil {
			w.rig.offer(d)
		}
	}
	if w.r.IntN(2) == 0 {
		w.retain()
	}
}

func (w *world) retain() {
	w.rig.Retain(func(uid types.UID) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.pods[uid] != nil
	})
}

// some returns one of the pods.
func (w *world) some() *v1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	uids := slices.Sorted(maps.Keys(w.pods))
	if len(uids) == 0 {
		return nil
	}
	return w.pods[uids[w.r.IntN(len(uids))]]
}

func (w *world) step() {
	name := driverNames[w.r.IntN(len(driverNames))]
	switch k := w.r.IntN(20); {
	case k < 2 && w.online[name] != nil:
		w.note("%s goes", name)
		w.rig.Withdraw(name, "1")
		w.online[name] = nil
	case k < 4 && w.online[name] == nil:
		w.note("%s comes", name)
		w.online[name] = w.instance(name)
		w.rig.offer(w.online[name])
	case k < 5:
		w.note("crash")
		w.crash()
	case k < 10:
		w.n++
		list := []string{}
		for _, c := range []string{"a", "b", "c", "d"} {
			if w.r.IntN(2) == 0 {
				list = append(list, c)
			}
		}
		p := pod(fmt.Sprint("p", w.n), list...)
		w.note("%s uses %v", p.Name, list)
		w.mu.Lock()
		w.pods[p.UID] = p
		w.mu.Unlock()
		w.sync(p, time.Hour)
	case k < 12:
		if p := w.some(); p != nil {
			w.note("again %s", p.Name)
			w.mu.Lock()
			over := w.ending[p.UID]
			w.mu.Unlock()
			if !over {
				w.sync(p, time.Duration(1+w.r.IntN(4))*time.Second)
			}
		}
	case k < 15:
		if p := w.some(); p != nil {
			w.note("end %s", p.Name)
			w.end(p.UID)
		}
	case k < 16:
		if p := w.some(); p != nil {
			w.mu.Lock()
			if !w.busy[p.UID] {
				w.note("%s is gone at once", p.Name)
				delete(w.running, p.UID)
				delete(w.pods, p.UID)
				delete(w.ending, p.UID)
			}
			w.mu.Unlock()
		}
	case k < 17:
		w.note("retain")
		w.retain()
	default:
		time.Sleep(time.Duration(w.r.IntN(8)) * time.Second)
	}
}

// finish ends every pod, with drivers that succeed.
func (w *world) finish() {
	w.wg.Wait()
	for _, name := range driverNames {
		if w.online[name] != nil {
			w.rig.Withdraw(name, "1")
		}
		w.online[name] = w.instance(name)
		good := w.online[name]
		hw := w.hw[name]
		good.prepare = nil
		good.unprepare = func(_ context.Context, list []dra.ClaimRef) (map[types.UID]error, error) {
			hw.mu.Lock()
			defer hw.mu.Unlock()
			out := map[types.UID]error{}
			for _, c := range list {
				delete(hw.prepared, c.UID)
				out[c.UID] = nil
			}
			return out, nil
		}
		w.rig.offer(good)
	}
	w.mu.Lock()
	clear(w.running)
	clear(w.pods)
	w.mu.Unlock()
	w.retain()
	time.Sleep(2 * time.Minute)
	synctest.Wait()
}

// No claim is prepared while it is unprepared, or the other way round; a running pod has its
// claims; and when all pods have ended nothing is left, for any order of restarts of drivers,
// agent and pods.
func TestClaimsUnderAnyOrder(t *testing.T) {
	first := *seed
	if first == 0 {
		first = uint64(time.Now().UnixNano())
	}
	n := *schedules
	if testing.Short() || raceEnabled {
		n = min(n, 500) // the detector makes each ten times as slow
	}
	t.Logf("seed %d, %d schedules", first, n)
	ran := 0
	for i := range n {
		s := first + uint64(i)
		var w *world
		synctest.Test(t, func(t *testing.T) {
			w = &world{
				t: t, r: rand.New(rand.NewPCG(s, s)), hw: map[string]*hardware{}, online: map[string]*driver{},
				pods: map[types.UID]*v1.Pod{}, running: map[types.UID]bool{}, ending: map[types.UID]bool{}, busy: map[types.UID]bool{},
			}
			for _, name := range driverNames {
				w.hw[name] = &hardware{prepared: map[types.UID]bool{}, busy: map[types.UID]string{}}
			}
			all := make([]string, 60)
			for i := range all {
				all[i] = fmt.Sprint("p", i)
			}
			r := &rig{t: t, store: &checkpointtest.Disk{}, claims: &claims{}}
			r.cfg = dra.Config{Store: r.store, Claims: r.claims, Timeout: 4 * time.Second}
			r.claims.put(claim("a", all...), claim("b="+strings.Join(driverNames, ","), all...), claim("c=nic.example.com", all...), claim("d=", all...))
			w.rig = r
			r.start(nil)
			for _, name := range driverNames {
				w.online[name] = w.instance(name)
				r.offer(w.online[name])
			}
			damaged := false
			for range 40 {
				w.step()
				if w.r.IntN(2) == 0 {
					synctest.Wait()
				}
				w.mu.Lock()
				w.check()
				w.mu.Unlock()
			}
			for _, line := range w.log {
				damaged = damaged || strings.HasPrefix(line, "damage")
			}
			w.wg.Wait()
			ran += len(w.running)
			w.finish()
			for name, hw := range w.hw {
				if len(hw.prepared) > 0 && !damaged { // the claims of a lost record are not known
					t.Errorf("%s still has %v prepared", name, hw.prepared)
				}
			}
			if keys, _ := r.store.Keys(); len(keys) > 0 {
				t.Errorf("the store still has %v: %v", keys, r.store.Values())
			}
			r.stop()
			if t.Failed() {
				t.Logf("run again with -seed %d -schedules 1\n%s", s, strings.Join(w.log, "\n"))
			}
		})
		if t.Failed() {
			return
		}
	}
	if ran < n/2 {
		t.Errorf("only %d pods ran at the end of %d schedules: they show little", ran, n)
	}
}
