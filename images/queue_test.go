package images_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/images"
)

// line asks for images one after another, each when the one before has its
// place in the queue, and returns when all are there.
func line(t *testing.T, m *images.Manager, names ...string) {
	t.Helper()
	var wg sync.WaitGroup
	for n, name := range names {
		wg.Go(func() {
			if _, err := m.Ensure(t.Context(), want(fmt.Sprint(n), name, v1.PullAlways)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
		synctest.Wait()
	}
	wg.Wait()
}

// rounds are the pulls that began at the same instants: "a/1 b/1 | a/2".
func (r *registry) rounds() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for i := 0; i < len(r.pulls); {
		first := i
		for ; i < len(r.pulls) && r.at[i].Equal(r.at[first]); i++ {
		}
		all = append(all, strings.Join(slices.Sorted(slices.Values(r.pulls[first:i])), " "))
	}
	return strings.ReplaceAll(strings.Join(all, " | "), ".example/app:", "/")
}

func TestQueueOrder(t *testing.T) {
	for _, tc := range []struct {
		name      string
		all, each int
		asked     string // h/n is image n of registry h
		want      string
	}{
		{"one at a time", 1, 0, "a/1 a/2 b/1 a/3", "a/1 | a/2 | b/1 | a/3"},
		{"two at a time", 2, 0, "a/1 a/2 a/3 b/1 b/2", "a/1 a/2 | a/3 b/1 | b/2"},
		{"a full registry is passed", 2, 1, "a/1 a/2 a/3 b/1 b/2", "a/1 b/1 | a/2 b/2 | a/3"},
		{"but not when it has a place", 2, 2, "a/1 a/2 a/3 b/1 b/2", "a/1 a/2 | a/3 b/1 | b/2"},
		{"nor for long", 2, 1, "a/1 a/2 b/1 b/2 b/3 c/1", "a/1 b/1 | a/2 b/2 | b/3 c/1"},
		{"by registry alone", 0, 1, "a/1 a/2 b/1 b/2 c/1", "a/1 b/1 c/1 | a/2 b/2"},
		{"no bound", 0, 0, "a/1 a/2 b/1 b/2", "a/1 a/2 b/1 b/2"},
		{"the bound of all is the lower one", 1, 5, "a/1 b/1 a/2", "a/1 | b/1 | a/2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := &registry{took: time.Minute}
				m := newManager(t, images.Config{Service: service, Parallel: tc.all, ParallelPerRegistry: tc.each})
				var names []string
				for _, n := range strings.Fields(tc.asked) {
					names = append(names, strings.Replace(n, "/", ".example/app:", 1))
				}
				line(t, m, names...)
				if got := service.rounds(); got != tc.want {
					t.Errorf("pulled %s, want %s", got, tc.want)
				}
			})
		})
	}
}

func TestCancelledInTheQueueLetsTheNextMoveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := &registry{took: time.Hour}
		m := newManager(t, images.Config{Service: service, Parallel: 1})
		ask := func(uid, image string) context.CancelFunc {
			ctx, cancel := context.WithCancel(t.Context())
			go func() { _, _ = m.Ensure(ctx, want(uid, image, v1.PullAlways)) }()
			synctest.Wait()
			return cancel
		}
		stopFirst := ask("a", "app:1")
		stopSecond := ask("b", "app:2")
		defer ask("c", "app:3")()
		stopSecond()
		synctest.Wait()
		if p := m.Waiting("c"); len(p) != 1 || p[0].Position != 1 {
			t.Errorf("c waits for %+v, want it first in the queue", p)
		}
		stopFirst() // its place is c's at once
		synctest.Wait()
		if p := m.Waiting("c"); len(p) != 1 || p[0].State != images.Pulling {
			t.Errorf("c waits for %+v, want it pulled", p)
		}
		if got, want := service.pulled(), []string{"app:1", "app:3"}; !slices.Equal(got, want) {
			t.Errorf("pulls = %q, want %q", got, want)
		}
	})
}

// However pulls come, fail, last and are given up: the bounds hold, and all
// who stay are served.
func TestQueueProperties(t *testing.T) {
	for seed := range uint64(25) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		all, each := rnd.IntN(5), rnd.IntN(4)
		synctest.Test(t, func(t *testing.T) {
			service := &registry{each: func(image string) time.Duration {
				return time.Duration(len(image)*7%13+1) * time.Second
			}}
			m := newManager(t, images.Config{Service: service, Parallel: all, ParallelPerRegistry: each})
			var wg sync.WaitGroup
			for n := range 80 {
				image := fmt.Sprintf("r%d.example/app%s:%d", rnd.IntN(4), strings.Repeat("x", rnd.IntN(9)), rnd.IntN(6))
				after, timeout := time.Duration(rnd.IntN(60))*time.Second, time.Duration(1+rnd.IntN(40))*time.Second
				if rnd.IntN(3) > 0 {
					timeout = 24 * time.Hour
				}
				wg.Go(func() {
					time.Sleep(after)
					ctx, cancel := context.WithTimeout(t.Context(), timeout)
					defer cancel()
					_, err := m.Ensure(ctx, want(fmt.Sprint(n), image, v1.PullAlways))
					if err != nil && (timeout == 24*time.Hour || !errors.Is(err, context.DeadlineExceeded)) {
						t.Errorf("seed %d: %s after %v: %v", seed, image, timeout, err)
					}
				})
			}
			wg.Wait()
			synctest.Wait()
			if all > 0 && service.most > all {
				t.Errorf("seed %d: %d pulls at a time, want at most %d", seed, service.most, all)
			}
			for host, most := range service.mostOf {
				if each > 0 && most > each {
					t.Errorf("seed %d: %d pulls at a time of %s, want at most %d", seed, most, host, each)
				}
			}
			if left := m.Pulls(); len(left) > 0 {
				t.Errorf("seed %d: %+v is left", seed, left)
			}
			// No place is lost.
			line(t, m, "r0.example/last:1", "r1.example/last:1", "r2.example/last:1", "r3.example/last:1")
		})
	}
}
