package gc_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodewright/nodewright/gc"
)

// slowRuntime is a runtime whose every call takes a while, so that starts and
// collections interleave in many ways. Two tags lead to each image.
type slowRuntime struct {
	t   *testing.T
	nap func()

	mu         sync.Mutex
	images     map[string]bool // by ID
	containers map[int]string  // to image IDs
	next       int
	removals   int
}

func tagged(tag int) (name, id string) {
	return fmt.Sprintf("app%d:1", tag), fmt.Sprintf("sha256:%d", tag/2)
}

func (r *slowRuntime) Images(context.Context) ([]gc.Image, error) {
	r.nap()
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []gc.Image
	for id := range r.images {
		var n int
		_, _ = fmt.Sscanf(id, "sha256:%d", &n)
		// Only one of its tags is known, as when the other is being pulled.
		out = append(out, gc.Image{ID: id, Tags: []string{fmt.Sprintf("docker.io/library/app%d:1", 2*n)}, Size: 10})
	}
	r.mu.Unlock()
	r.nap()
	r.mu.Lock()
	return out, nil
}

func (r *slowRuntime) Uses(context.Context) ([]gc.ImageUse, error) {
	r.nap()
	r.mu.Lock()
	var out []gc.ImageUse
	for _, id := range r.containers {
		out = append(out, gc.ImageUse{Image: id, By: "c"})
	}
	r.mu.Unlock()
	r.nap()
	return out, nil
}

func (r *slowRuntime) Disk(context.Context) (gc.ImageDisk, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return gc.ImageDisk{Capacity: 1000, Available: 100 - int64(len(r.images))*10}, nil
}

func (r *slowRuntime) Remove(_ context.Context, id, _ string) error {
	r.nap()
	r.mu.Lock()
	for _, used := range r.containers {
		if used == id {
			r.t.Errorf("%s is removed and has a container", id)
		}
	}
	delete(r.images, id)
	r.removals++
	r.mu.Unlock()
	r.nap()
	return nil
}

// ensure pulls an image unless it is there.
func (r *slowRuntime) ensure(id string) {
	r.nap()
	r.mu.Lock()
	there := r.images[id]
	r.mu.Unlock()
	if there {
		return
	}
	r.nap()
	r.mu.Lock()
	r.images[id] = true
	r.mu.Unlock()
	r.nap()
}

// start starts a pod's containers as the package's documentation says, side by
// side, and takes them away again after a while.
func (r *slowRuntime) start(ctx context.Context, m *gc.ImageCollector, tags ...int) {
	h := m.Hold()
	var wg sync.WaitGroup
	for _, tag := range tags {
		wg.Go(func() { r.look(ctx, h, tag) })
	}
	wg.Wait()
	r.nap() // the sandbox, the volumes
	made := map[int]string{}
	r.mu.Lock()
	for _, tag := range tags {
		_, id := tagged(tag)
		if !r.images[id] {
			r.t.Errorf("the image %s of a starting pod was removed", id)
		}
		r.next++
		r.containers[r.next], made[r.next] = id, id
	}
	r.mu.Unlock()
	h.Release()
	r.nap()
	r.mu.Lock()
	for n, id := range made {
		if !r.images[id] {
			r.t.Errorf("the image %s of a container was removed", id)
		}
		delete(r.containers, n)
	}
	r.mu.Unlock()
}

// look makes sure that an image is there.
func (r *slowRuntime) look(ctx context.Context, h *gc.ImageHold, tag int) {
	r.nap() // it waits for its turn
	name, id := tagged(tag)
	look, err := h.Name(ctx, name)
	if err != nil {
		r.t.Error(err)
	}
	for intact := false; !intact; {
		r.ensure(id)
		if intact, err = look.Got(ctx, id); err != nil {
			r.t.Error(err)
		}
	}
}

// Whatever starts, pulls and collections do at the same time, no image goes
// that a pod is being started from or runs of, with no minimum age to help.
func TestInterleavings(t *testing.T) {
	seeds := uint64(150)
	if testing.Short() {
		seeds = 20
	}
	removals := 0
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			rnd := rand.New(rand.NewPCG(seed, 1))
			number := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return rnd.IntN(n)
			}
			nap := func() { time.Sleep(time.Duration(number(20)) * time.Millisecond) }
			r := &slowRuntime{t: t, nap: nap, images: map[string]bool{}, containers: map[int]string{}}
			m := newManager(t, gc.ImageConfig{
				Store: r, Policy: &gc.ImagePolicy{High: 1, Low: 0, MaxAge: time.Duration(number(2)) * time.Millisecond},
			})
			m.SetSettle(time.Nanosecond)
			var pods, collectors sync.WaitGroup
			ctx, cancel := context.WithCancel(t.Context())
			for range 4 {
				pods.Go(func() {
					for range 15 {
						tag := number(6)
						r.start(t.Context(), m, tag, tag^1, number(6)) // two of one image
						nap()
					}
				})
			}
			collectors.Go(func() {
				for ctx.Err() == nil {
					_, _ = m.Collect(ctx)
					nap()
				}
			})
			collectors.Go(func() {
				for ctx.Err() == nil {
					_, _ = m.Reclaim(ctx, math.MaxInt64)
					nap()
				}
			})
			pods.Wait()
			cancel()
			collectors.Wait()
			removals += r.removals
		})
	}
	if removals < int(seeds) {
		t.Errorf("%d removals in %d runs: nothing was tried", removals, seeds)
	}
}
