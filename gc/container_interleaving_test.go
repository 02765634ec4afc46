package gc

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
)

// Whatever syncs, ends and collections do at the same time: while a pod is
// held nothing of it is removed; the newest dead instance of a pod that lives
// is there whenever it is looked for; and a pod that comes back with its UID
// while it is being removed loses nothing of its new life.
func TestInterleavings(t *testing.T) {
	seeds := uint64(150)
	if testing.Short() {
		seeds = 20
	}
	removals := 0
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			rnd := rand.New(rand.NewPCG(seed, 2))
			number := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return rnd.IntN(n)
			}
			nap := func() { time.Sleep(time.Duration(number(20)) * time.Millisecond) }
			rt := &fakeRuntime{nap: nap}
			logs := t.TempDir()
			logDir := func(uid types.UID) string { return filepath.Join(logs, "ns_pod_"+string(uid)) }
			states := map[types.UID]PodState{} // guarded by rt.mu, as held is
			held := map[types.UID]int{}
			rt.removing = func(uid types.UID) {
				rt.mu.Lock()
				defer rt.mu.Unlock()
				if held[uid] > 0 {
					t.Errorf("something of %s is removed while it is held", uid)
				}
			}
			m := newContainerCollector(t, ContainerConfig{
				Runtime: rt, Policy: &ContainerPolicy{MaxPerContainer: number(2), MaxContainers: number(4) - 1},
				Pods: fakePods{state: func(uid types.UID) PodState {
					rt.mu.Lock()
					state := states[uid]
					rt.mu.Unlock()
					if number(8) == 0 { // so that what is decided by it may be out of date
						time.Sleep(time.Duration(number(120)) * time.Millisecond)
					}
					return state
				}},
				PodLogsDir: logs,
			})
			m.delay, m.interval = time.Millisecond, 50*time.Millisecond
			// pod lives a number of lives with one UID, each of some restarts.
			pod := func(uid types.UID) {
				for life := range 3 {
					last := ""
					for attempt := range 4 {
						release, err := m.Hold(t.Context(), uid)
						if err != nil {
							t.Error(err)
						}
						rt.mu.Lock()
						states[uid] = Live
						held[uid]++
						there := last == ""
						for _, c := range rt.containers {
							there = there || c.ID == last
						}
						rt.mu.Unlock()
						if !there {
							t.Errorf("%s is gone and was the last state of a pod that lives", last)
						}
						if _, err := os.Stat(logDir(uid)); attempt > 0 && err != nil {
							t.Errorf("the logs of a pod that lives are gone: %v", err)
						}
						if err := os.MkdirAll(logDir(uid), 0o755); err != nil {
							t.Error(err)
						}
						nap()
						last = fmt.Sprintf("%s-%d-%d", uid, life, attempt)
						c := Container{ID: last, Pod: uid, Name: "c", State: observed.Created, CreatedAt: time.Now()}
						set := func(s observed.State) {
							rt.mu.Lock()
							defer rt.mu.Unlock()
							for i := range rt.containers {
								if rt.containers[i].ID == last {
									rt.containers[i].State = s
									return
								}
							}
							t.Errorf("%s is gone and was about to be %v", last, s)
						}
						rt.mu.Lock()
						rt.containers = append(rt.containers, c)
						rt.mu.Unlock()
						nap()
						set(observed.Running)
						rt.mu.Lock()
						held[uid]--
						rt.mu.Unlock()
						release()
						nap()
						set(observed.Exited)
						m.Died(uid)
						nap()
					}
					rt.mu.Lock()
					states[uid] = PodState(1 + number(2))
					rt.mu.Unlock()
					m.Died(uid)
					time.Sleep(time.Duration(number(300)) * time.Millisecond)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			var pods, collectors sync.WaitGroup
			for i := range 4 {
				pods.Go(func() { pod(types.UID(fmt.Sprintf("p%d", i))) })
			}
			collectors.Go(func() { _ = m.Run(ctx) })
			collectors.Go(func() {
				for ctx.Err() == nil {
					_, _ = m.Reclaim(ctx)
					nap()
				}
			})
			pods.Wait()
			cancel()
			collectors.Wait()
			rt.mu.Lock()
			defer rt.mu.Unlock()
			for _, c := range rt.calls {
				if c[0] == 'r' {
					removals++
				}
			}
		})
	}
	if removals < 10*int(seeds) {
		t.Errorf("%d removals in %d runs: nothing was tried", removals, seeds)
	}
}
