//go:build linux

package localcri

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/durable"
)

var (
	histories   = flag.Int("histories", 60, "how many histories TestHistories runs")
	historySeed = flag.Uint64("history", 0, "the one history that TestHistories runs")
)

// In a history, callers ask for anything at once, processes end, monitors are killed, and the agent
// is killed before any change of the machine or the disk. What callers were told before that holds
// afterwards, nothing runs that is not listed, and all of it can be removed.
func TestHistories(t *testing.T) {
	first, last := uint64(1), uint64(*histories)
	if *historySeed != 0 {
		first, last = *historySeed, *historySeed
	}
	for seed := first; seed <= last && !t.Failed(); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &history{bench: newBench(t), r: rand.New(rand.NewPCG(seed, 1)), told: map[string]*told{}}
				h.kill()
				for range 4 {
					h.round()
				}
				h.end()
			})
		})
	}
}

// told is what callers were told of a container.
type told struct {
	sandbox                   string
	started, stopped, removed bool
	// stoppedBy is the agent that stopped it before it was started. The next one may start it: what
	// was asked for is not on record.
	stoppedBy *crash
}

type history struct {
	*bench

	mu    sync.Mutex
	r     *rand.Rand
	names int
	told  map[string]*told
	pods  []string
	log   []string
}

func (h *history) rand(n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.r.IntN(n)
}

// pick returns one of the containers, or "".
func (h *history) pick() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.told) == 0 {
		return ""
	}
	all := slices.Sorted(maps.Keys(h.told))
	return all[h.r.IntN(len(all))]
}

func (h *history) pickPod() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.pods) == 0 {
		return ""
	}
	return h.pods[h.r.IntN(len(h.pods))]
}

// note keeps what was done, for a history that fails.
func (h *history) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

// round is an agent's life: it ends by a kill before one of its changes, or without one.
func (h *history) round() {
	h.crash = &crash{after: h.rand(3) * h.rand(80), pause: func() { time.Sleep(time.Duration(h.rand(4)) * time.Millisecond) }}
	release := durable.Guard(h.root, func(durable.Change) error { return h.crash.point() })
	h.note("agent starts, to be killed before change %d", h.crash.after)
	h.start()
	if h.rand(2) == 0 { // otherwise callers do not wait for the recovery
		time.Sleep(20 * time.Minute)
		h.check()
	}
	var wg sync.WaitGroup
	for range 4 + h.rand(12) {
		wg.Go(func() {
			time.Sleep(time.Duration(h.rand(60)) * time.Millisecond)
			h.act(h.rt)
		})
	}
	wg.Wait()
	time.Sleep(20 * time.Minute) // what is done again is, and what nobody took is gone
	h.check()
	h.kill()
	time.Sleep(time.Minute) // what it began when it was killed is over
	release()
	h.crash = nil
}

// act does one thing. What is answered by an agent that is dead by then nobody hears.
func (h *history) act(rt *Runtime) {
	ctx, cancel := context.WithTimeout(h.t.Context(), []time.Duration{2 * time.Millisecond, 10 * time.Minute}[min(h.rand(5), 1)])
	defer cancel()
	heard := func(what, id string, err error, f func()) {
		dead := h.crash.isDead()
		h.note("%s %.6s: %v, dead: %t", what, id, err, dead)
		if err == nil && !dead {
			h.mu.Lock()
			defer h.mu.Unlock()
			f()
		}
	}
	h.mu.Lock()
	h.names++
	name := fmt.Sprint("n", h.names)
	h.mu.Unlock()
	id, pod := h.pick(), h.pickPod()
	know := func(f func(*told)) func() {
		return func() {
			if k := h.told[id]; k != nil {
				f(k)
			}
		}
	}
	switch n := h.rand(20); {
	case n < 2 || pod == "":
		id, err := rt.RunPodSandbox(ctx, sandboxConfig(name), "")
		heard("run", id, err, func() { h.pods = append(h.pods, id) })
	case n < 5 || id == "":
		id, err := rt.CreateContainer(ctx, pod, containerConfig(name), nil)
		heard("create", id, err, func() { h.told[id] = &told{sandbox: pod} })
	case n < 10:
		heard("start", id, rt.StartContainer(ctx, id), know(func(k *told) { k.started = true }))
	case n < 12:
		heard("stop", id, rt.StopContainer(ctx, id, int64(h.rand(3))), know(func(k *told) { h.stopped(id, k) }))
	case n < 14:
		heard("remove", id, rt.RemoveContainer(ctx, id), know(func(k *told) { k.removed = true }))
	case n < 15:
		heard("stop sandbox", pod, rt.StopPodSandbox(ctx, pod), func() {
			for id, k := range h.told {
				if k.sandbox == pod {
					h.stopped(id, k)
				}
			}
		})
	case n < 16:
		heard("remove sandbox", pod, rt.RemovePodSandbox(ctx, pod), func() {
			for _, k := range h.told {
				k.removed = k.removed || k.sandbox == pod
			}
		})
	case n < 18:
		h.note("process of %.6s ends", id)
		h.bench.end(id, 3)
	default:
		h.bench.mu.Lock()
		runs := h.monitors[pod] != nil
		h.bench.mu.Unlock()
		if runs {
			h.note("monitor of %.6s is killed", pod)
			h.killMonitor(pod)
		}
	}
}

// stopped notes a stop. The caller holds h.mu.
func (h *history) stopped(id string, k *told) {
	h.bench.mu.Lock()
	defer h.bench.mu.Unlock()
	k.stopped, k.stoppedBy = k.stopped || h.executed[id] != 0, h.crash
}

// check compares what is listed with what runs and with what callers were told. Nobody hears what
// an agent that is dead says.
func (h *history) check() {
	h.t.Helper()
	synctest.Wait()
	if h.crash != nil && h.crash.isDead() {
		return
	}
	listed := map[string]*runtimeapi.Container{}
	all, err := h.rt.ListContainers(h.t.Context(), nil)
	if err != nil {
		h.fail("list: %v", err)
		return
	}
	for _, c := range all {
		listed[c.GetId()] = c
	}
	h.bench.mu.Lock()
	runs := map[string]bool{}
	for id, pid := range h.executed {
		runs[id] = h.processes[pid] != nil
	}
	h.bench.mu.Unlock()
	for id, c := range listed {
		if is := c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING; is != runs[id] {
			h.fail("%.6s is %v, and runs: %t", id, c.GetState(), runs[id])
		}
	}
	for id, is := range runs {
		if is && listed[id] == nil {
			h.fail("%.6s runs and is not listed", id)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, k := range h.told {
		switch c := listed[id]; {
		case k.removed && c != nil:
			h.failLocked("%.6s is removed and listed", id)
		case runs[id] && (k.stopped || k.stoppedBy != nil && k.stoppedBy == h.crash):
			h.failLocked("%.6s is stopped and runs", id)
		case c == nil:
		case k.started && c.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED:
			h.failLocked("%.6s was started and is created", id)
		}
	}
	for event, n := range h.refusals() {
		if event != "StartAsked" {
			h.failLocked("%s was refused %d times", event, n)
		}
	}
}

func (h *history) fail(format string, args ...any) {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failLocked(format, args...)
}

func (h *history) failLocked(format string, args ...any) {
	h.t.Helper()
	h.t.Errorf(format, args...)
}

// end removes everything.
func (h *history) end() {
	h.start()
	time.Sleep(20 * time.Minute)
	h.check()
	pods, err := h.rt.ListPodSandbox(h.t.Context(), nil)
	if err != nil {
		h.fail("list: %v", err)
	}
	for _, p := range pods {
		if err := h.rt.RemovePodSandbox(h.t.Context(), p.GetId()); err != nil {
			h.fail("remove %.6s: %v", p.GetId(), err)
		}
	}
	h.clean()
	h.kill()
	if h.t.Failed() {
		for _, l := range h.log {
			h.t.Log(l)
		}
		for id, pid := range h.executed {
			h.t.Logf("%.6s: process %d, %v", id, pid, h.processes[pid] != nil)
		}
	}
}
