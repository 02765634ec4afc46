package images_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/images"
)

// together asks for all of it at once and returns the errors.
func together(t *testing.T, m *images.Manager, requests ...images.Request) []error {
	errs := make([]error, len(requests))
	var wg sync.WaitGroup
	for i, r := range requests {
		wg.Go(func() { _, errs[i] = m.Ensure(t.Context(), r) })
	}
	wg.Wait()
	return errs
}

func TestEqualPullsAreOne(t *testing.T) {
	ann, bob := pullSecret("ann"), pullSecret("bob")
	const app = "registry.example/app:1"
	kata := want("b", app, v1.PullAlways)
	kata.RuntimeHandler = "kata"
	for _, tc := range []struct {
		name     string
		requests []images.Request
		want     []string
	}{
		{"of five pods", []images.Request{
			want("a", app, v1.PullAlways), want("b", app, v1.PullAlways), want("c", app, v1.PullIfNotPresent), want("d", app, ""), want("e", app, v1.PullAlways),
		}, []string{app}},
		{"of one pod", []images.Request{want("a", app, v1.PullAlways), want("a", app, v1.PullAlways)}, []string{app}},
		{"by short and by full tag", []images.Request{want("a", "app", v1.PullAlways), want("b", "app:latest", v1.PullAlways)}, []string{"app:latest"}},
		{"with the same credentials", []images.Request{want("a", app, v1.PullAlways, ann), want("b", app, v1.PullAlways, pullSecret("ann"))}, []string{app + " ann"}},
		{"not with others", []images.Request{want("a", app, v1.PullAlways, ann), want("b", app, v1.PullAlways, bob)}, []string{app + " ann", app + " bob"}},
		{"not with none", []images.Request{want("a", app, v1.PullAlways, ann), want("b", app, v1.PullAlways)}, []string{app, app + " ann"}},
		{"not for another runtime handler", []images.Request{want("a", app, v1.PullAlways), kata}, []string{app, app + " on kata"}},
		{"not of another image", []images.Request{want("a", app, v1.PullAlways), want("b", "app:2", v1.PullAlways)}, []string{"app:2", app}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := &registry{took: time.Minute}
				start := time.Now()
				for i, err := range together(t, newManager(t, images.Config{Service: service}), tc.requests...) {
					if err != nil {
						t.Errorf("request %d: %v", i, err)
					}
				}
				if got := slices.Sorted(slices.Values(service.pulled())); !slices.Equal(got, tc.want) {
					t.Errorf("pulls = %q, want %q", got, tc.want)
				}
				if took := time.Since(start); took != time.Minute {
					t.Errorf("took %v, want one pull's time", took)
				}
			})
		})
	}
}

func TestAFailureIsEverybodys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := true
		service := refusing(&down)
		service.took = time.Minute
		m := newManager(t, images.Config{Service: service})
		a, b := want("a", "app", v1.PullAlways), want("b", "app", v1.PullAlways)
		for _, wanted := range []string{images.ReasonPull, images.ReasonPullBackOff} {
			for i, err := range together(t, m, a, b) {
				if got := reason(t, err); got != wanted {
					t.Errorf("request %d: reason = %s, want %s", i, got, wanted)
				}
			}
		}
		if n := len(service.pulled()); n != 1 {
			t.Errorf("%d pulls, want 1", n)
		}
	})
}

func TestALaterPullIsAnother(t *testing.T) {
	service := &registry{}
	m := newManager(t, images.Config{Service: service})
	for range 2 {
		if _, err := m.Ensure(t.Context(), want("a", "app", v1.PullAlways)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(service.pulled()); n != 2 {
		t.Errorf("%d pulls, want 2", n)
	}
}

// A caller that arrives after a pull has asked the runtime for the image's status starts a pull
// of its own: the status may be that of an image removed before the caller arrived.
func TestNobodyJoinsAPullThatWasMade(t *testing.T) {
	for _, records := range []string{"", t.TempDir()} {
		synctest.Test(t, func(t *testing.T) {
			service := &registry{took: time.Minute, late: 10 * time.Second}
			m := newManager(t, images.Config{Service: service, Records: records})
			var wg sync.WaitGroup
			wg.Go(func() {
				if _, err := m.Ensure(t.Context(), want("a", "app", v1.PullAlways)); err != nil {
					t.Error(err)
				}
			})
			for len(service.pulled()) == 0 {
				time.Sleep(time.Second)
			}
			time.Sleep(64 * time.Second)
			if _, err := m.Ensure(t.Context(), want("b", "app", v1.PullAlways)); err != nil {
				t.Error(err)
			}
			wg.Wait()
			if n := len(service.pulled()); n != 2 {
				t.Errorf("%d pulls, want one for each", n)
			}
		})
	}
}

// If another client removes the image under another name during a pull, it is pulled again.
func TestAnImageThatIsGoneOnceIsPulledAgain(t *testing.T) {
	service, gone := &registry{}, 1
	service.inspect = func(_ string, had *runtimeapi.Image) (bool, error) {
		if had != nil && gone > 0 {
			gone--
			return false, nil
		}
		return true, nil
	}
	for _, records := range []string{"", t.TempDir()} {
		m := newManager(t, images.Config{Service: service, Records: records})
		if img, err := m.Ensure(t.Context(), want("a", "app", v1.PullAlways)); err != nil || img.Ref == "" {
			t.Errorf("%+v, %v", img, err)
		}
	}
	if n := len(service.pulled()); n != 3 {
		t.Errorf("%d pulls, want 2 and then 1", n)
	}
}

func TestPullsEndWithThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := &registry{took: time.Hour}
		m := newManager(t, images.Config{Service: service})
		ask := func(uid string) (cancel func(), answer <-chan error) {
			ctx, cancel := context.WithCancel(t.Context())
			c := make(chan error, 1)
			go func() {
				_, err := m.Ensure(ctx, want(uid, "app", v1.PullAlways))
				c <- err
			}()
			synctest.Wait()
			return cancel, c
		}
		cancelFirst, first := ask("a")
		cancelSecond, second := ask("b")
		cancelFirst() // the one that began it
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("first: %v, want that it was cancelled", err)
		}
		synctest.Wait()
		if service.cancelled != 0 {
			t.Error("the pull ended while somebody waited for it")
		}
		cancelSecond()
		if err := <-second; !errors.Is(err, context.Canceled) {
			t.Errorf("second: %v, want that it was cancelled", err)
		}
		synctest.Wait()
		if service.cancelled != 1 {
			t.Error("the pull goes on though nobody waits for it")
		}

		// The failure was nobody's fault, so there is no back-off.
		_, third := ask("a")
		if err := <-third; err != nil {
			t.Errorf("third: %v", err)
		}
		if n := len(service.pulled()); n != 2 {
			t.Errorf("%d pulls, want 2", n)
		}
	})
}

func TestParallel(t *testing.T) {
	for _, tc := range []struct {
		parallel, most int
		took           time.Duration
	}{
		{0, 10, time.Minute},
		{1, 1, 10 * time.Minute},
		{5, 5, 2 * time.Minute},
		{20, 10, time.Minute},
	} {
		t.Run(fmt.Sprint(tc.parallel), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := &registry{took: time.Minute}
				m := newManager(t, images.Config{Service: service, Parallel: tc.parallel})
				var requests []images.Request
				for n := range 10 {
					requests = append(requests, want("a", fmt.Sprint("app:", n), v1.PullAlways))
				}
				start := time.Now()
				if err := errors.Join(together(t, m, requests...)...); err != nil {
					t.Error(err)
				}
				if took := time.Since(start); service.most != tc.most || took != tc.took {
					t.Errorf("%d at a time, %v in all; want %d, %v", service.most, took, tc.most, tc.took)
				}
			})
		})
	}
}

func TestCancelledInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := &registry{took: time.Hour}
		m := newManager(t, images.Config{Service: service, Parallel: 1})
		go func() { _, _ = m.Ensure(t.Context(), want("a", "app:1", v1.PullAlways)) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := m.Ensure(ctx, want("a", "app:2", v1.PullAlways)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error = %v, want that its time is over", err)
		}
		// Its place is free.
		if _, err := m.Ensure(t.Context(), want("a", "app:3", v1.PullAlways)); err != nil {
			t.Error(err)
		}
		if got, want := service.pulled(), []string{"app:1", "app:3"}; !slices.Equal(got, want) {
			t.Errorf("pulls = %q, want %q", got, want)
		}
	})
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, images.Config{Service: &registry{}, QPS: 0.5, Burst: 2})
		start := time.Now()
		var at []time.Duration
		for n := range 4 {
			if _, err := m.Ensure(t.Context(), want("a", fmt.Sprint("app:", n), v1.PullAlways)); err != nil {
				t.Error(err)
			}
			at = append(at, time.Since(start).Round(time.Millisecond))
		}
		if want := []time.Duration{0, 0, 2 * time.Second, 4 * time.Second}; !slices.Equal(at, want) {
			t.Errorf("pulled at %v, want %v", at, want)
		}
	})
}

func TestRateDoesNotHoldBackWhatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := &registry{}
		service.put("app:1")
		m := newManager(t, images.Config{Service: service, QPS: 0.001})
		start := time.Now()
		for range 5 {
			if _, err := m.Ensure(t.Context(), want("a", "app:1", v1.PullIfNotPresent)); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("took %v, want no time", took)
		}
	})
}
