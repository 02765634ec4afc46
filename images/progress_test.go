package images_test

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
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/images"
)

// told is a line for each pull, with times from start.
func told(start time.Time, pulls []images.Pull) string {
	var out []string
	for _, p := range pulls {
		var pods []string
		for _, w := range p.Pods {
			pods = append(pods, string(w.UID))
		}
		line := fmt.Sprintf("%s of %s: %s for %s since %v, try %d", p.Image, p.Registry, p.State, strings.Join(pods, "+"), p.Since.Sub(start), p.Try)
		if !p.Asked.IsZero() {
			line += fmt.Sprint(", asked ", p.Asked.Sub(start))
		}
		if p.Position > 0 {
			line += fmt.Sprint(", number ", p.Position)
		}
		if p.Credentials > 0 {
			line += fmt.Sprintf(", credential %d of %d", p.Credential, p.Credentials)
		}
		if p.RuntimeHandler != "" {
			line += ", on " + p.RuntimeHandler
		}
		if p.State == images.HeldBack {
			line += fmt.Sprintf(", again at %v: %s", p.RetryAt.Sub(start), p.LastError)
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

// asks asks for images, one after another, without waiting for them.
func asks(t *testing.T, m *images.Manager, requests ...images.Request) {
	for _, r := range requests {
		go func() { _, _ = m.Ensure(t.Context(), r) }()
		synctest.Wait()
	}
}

func checkLines(t *testing.T, what, got string, want ...string) {
	t.Helper()
	if w := strings.Join(want, "\n"); got != w {
		t.Errorf("%s:\n%s\nwant:\n%s", what, got, w)
	}
}

func TestPullsAndWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		m := newManager(t, images.Config{Service: &registry{took: time.Minute}, Parallel: 2, ParallelPerRegistry: 1})
		if got := m.Pulls(); len(got) > 0 {
			t.Errorf("pulls = %v, want none", got)
		}
		asks(t, m, want("a", "r.example/app:1", v1.PullAlways), want("b", "r.example/app:2", v1.PullAlways))
		time.Sleep(time.Second)
		kata := want("b", "app", v1.PullAlways)
		kata.RuntimeHandler = "kata"
		asks(t, m, kata, want("c", "r.example/app:2", v1.PullAlways), want("b", "r.example/app:2", v1.PullAlways), want("c", "q.example/app:1", v1.PullAlways))
		time.Sleep(time.Second)

		const (
			running = "r.example/app:1 of r.example: Pulling for a since 0s, try 1, asked 0s"
			other   = "app:latest of docker.io: Pulling for b since 1s, try 1, asked 1s, on kata"
			first   = "r.example/app:2 of r.example: Queued for b+c since 0s, try 1, asked 0s, number 1"
			second  = "q.example/app:1 of q.example: Queued for c since 1s, try 1, asked 1s, number 2"
		)
		checkLines(t, "pulls", told(start, m.Pulls()), running, other, first, second)
		checkLines(t, "a waits for", told(start, m.Waiting("a")), running)
		checkLines(t, "b waits for", told(start, m.Waiting("b")), other, first)
		checkLines(t, "c waits for", told(start, m.Waiting("c")), second, first)
		checkLines(t, "d waits for", told(start, m.Waiting("d")))

		time.Sleep(time.Minute - 2*time.Second) // the first is pulled
		synctest.Wait()
		checkLines(t, "a minute later", told(start, m.Pulls()),
			"r.example/app:2 of r.example: Pulling for b+c since 1m0s, try 1, asked 0s", other,
			"q.example/app:1 of q.example: Queued for c since 1s, try 1, asked 1s, number 1")
		time.Sleep(time.Hour)
		checkLines(t, "at last", told(start, m.Pulls()))
	})
}

func TestProgressOfCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		service := &registry{took: time.Minute, refuse: func(string, *runtimeapi.AuthConfig) error { return errBroken }}
		m := newManager(t, images.Config{Service: service})
		asks(t, m, want("a", "registry.example/app:1", v1.PullAlways, pullSecret("ann"), pullSecret("bob")))
		for n := range 2 {
			checkLines(t, fmt.Sprint("after ", n), told(start, m.Pulls()),
				fmt.Sprintf("registry.example/app:1 of registry.example: Pulling for a since 0s, try 1, asked 0s, credential %d of 2", n+1))
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		checkLines(t, "at last", told(start, m.Pulls()))
	})
}

func TestProgressOfBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		down := true
		service := refusing(&down)
		m := newManager(t, images.Config{Service: service})
		again := func() { asks(t, m, want("a", "app:1", v1.PullAlways)) }
		again()
		held := func(since, until, try int) string {
			return fmt.Sprintf(`app:1 of docker.io: HeldBack for a since %ds, try %d, again at %ds: ErrImagePull: broken`, since, try, until)
		}
		checkLines(t, "a waits for", told(start, m.Waiting("a")), held(0, 10, 2))
		checkLines(t, "b waits for", told(start, m.Waiting("b")))
		checkLines(t, "pulls", told(start, m.Pulls()))
		time.Sleep(10 * time.Second)
		checkLines(t, "when its time is over, a waits for", told(start, m.Waiting("a")))
		again()
		checkLines(t, "after the second, a waits for", told(start, m.Waiting("a")), held(10, 30, 3))
		time.Sleep(20 * time.Second)
		service.took, down = time.Minute, false
		again()
		checkLines(t, "during the third, a waits for", told(start, m.Waiting("a")), "app:1 of docker.io: Pulling for a since 30s, try 3, asked 30s")
		time.Sleep(time.Minute)
		synctest.Wait()
		checkLines(t, "after the third, a waits for", told(start, m.Waiting("a")))
	})
}

func TestProgressOfRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		m := newManager(t, images.Config{Service: &registry{took: time.Hour}, QPS: 0.1, Burst: 1, Parallel: 2})
		asks(t, m, want("a", "app:1", v1.PullAlways), want("b", "app:2", v1.PullAlways), want("c", "app:3", v1.PullAlways))
		checkLines(t, "pulls", told(start, m.Pulls()),
			"app:1 of docker.io: Pulling for a since 0s, try 1, asked 0s",
			"app:2 of docker.io: Throttled for b since 0s, try 1, asked 0s",
			"app:3 of docker.io: Queued for c since 0s, try 1, asked 0s, number 1")
		time.Sleep(11 * time.Second)
		checkLines(t, "b waits for", told(start, m.Waiting("b")), "app:2 of docker.io: Pulling for b since 10s, try 1, asked 0s")
		time.Sleep(3 * time.Hour)
	})
}

// Pulls returns a consistent snapshot: the queue's numbers have no gaps, even with concurrent
// changes.
func TestPullsAreOneMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, images.Config{Service: &registry{took: time.Millisecond}, Parallel: 3, ParallelPerRegistry: 2})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for n := range 12 {
			go func() {
				for ctx.Err() == nil {
					if _, err := m.Ensure(ctx, want(fmt.Sprint(n), fmt.Sprintf("r%d.example/app:%d", n%3, n), v1.PullAlways)); err != nil && !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				}
			}()
		}
		for range 200 {
			var numbers []int
			for _, p := range m.Pulls() {
				if (p.Position > 0) != (p.State == images.Queued) || len(p.Pods) == 0 {
					t.Errorf("%+v: a place in the queue and the state do not fit, or nobody waits", p)
				}
				if p.Position > 0 {
					numbers = append(numbers, p.Position)
				}
			}
			if !slices.IsSorted(numbers) || len(numbers) > 0 && numbers[len(numbers)-1] != len(numbers) {
				t.Fatalf("numbers %v, want 1 to %d", numbers, len(numbers))
			}
			time.Sleep(time.Millisecond / 3)
		}
	})
}

// measured is a registry that reports how far its pulls are.
type measured struct{ *registry }

func (measured) PullProgress(image string) (received, total int64) {
	return int64(len(image)), 1000
}

func TestBytesOfPulls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bytes := func(pulls []images.Pull) (out []string) {
			for _, p := range pulls {
				out = append(out, fmt.Sprintf("%s %s: %d of %d", p.Image, p.State, p.Received, p.Total))
			}
			return out
		}
		m := newManager(t, images.Config{Service: measured{&registry{took: time.Minute}}, Parallel: 1})
		asks(t, m, want("a", "r.example/app:1", v1.PullAlways), want("a", "r.example/app:2", v1.PullAlways))
		want := []string{"r.example/app:1 Pulling: 15 of 1000", "r.example/app:2 Queued: 0 of 0"}
		for what, got := range map[string][]images.Pull{"all": m.Pulls(), "of the pod": m.Waiting("a")} {
			if !slices.Equal(bytes(got), want) {
				t.Errorf("%s: %q, want %q", what, bytes(got), want)
			}
		}
	})
}

func TestEventOfAPull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := &events{}
		m := newManager(t, images.Config{Service: &registry{took: 3 * time.Second, size: 1234}, Parallel: 1, Events: told})
		asks(t, m, want("a", "r.example/app:1", v1.PullAlways), want("a", "r.example/app:2", v1.PullAlways))
		time.Sleep(time.Minute)
		got := told.take()
		for _, want := range []string{
			`Normal Pulled: Successfully pulled image "r.example/app:1" in 3s (3s including waiting). Image size: 1234 bytes.`,
			`Normal Pulled: Successfully pulled image "r.example/app:2" in 3s (6s including waiting). Image size: 1234 bytes.`,
		} {
			if !slices.Contains(got, want) {
				t.Errorf("events %q, want %q", got, want)
			}
		}
	})
}
