package devicemgr

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
)

type nobody struct{}

func (nobody) ActivePods() []*v1.Pod { return nil }

// A call waits until the server is ready, or until it is given up.
func TestCallsWaitUntilReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ready := make(chan struct{})
		s, err := NewPodResources(PodResourcesConfig{Socket: "/s", Pods: nobody{}, Ready: ready})
		if err != nil {
			t.Fatal(err)
		}
		call := func(ctx context.Context) (time.Duration, error) {
			begin := time.Now()
			_, err := s.guard(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/v1.PodResourcesLister/List"},
				func(context.Context, any) (any, error) { return nil, nil })
			return time.Since(begin), err
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if took, err := call(ctx); took != time.Second || status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("a call that is given up: %v after %v", err, took)
		}
		time.AfterFunc(time.Minute, func() { close(ready) })
		if took, err := call(t.Context()); took != time.Minute || err != nil {
			t.Errorf("a call that waits: %v after %v", err, took)
		}
		if took, err := call(t.Context()); took != 0 || err != nil {
			t.Errorf("a call after that: %v after %v", err, took)
		}
	})
}

// Calls above the rate and the burst are refused.
func TestRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := NewPodResources(PodResourcesConfig{Socket: "/s", Pods: nobody{}})
		if err != nil {
			t.Fatal(err)
		}
		allowed := func() (n int) {
			for range 1000 {
				_, err := s.guard(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/v1.PodResourcesLister/List"},
					func(context.Context, any) (any, error) { n++; return nil, nil })
				if err != nil && (status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "rejected by rate limit")) {
					t.Fatal(err)
				}
			}
			return n
		}
		if n := allowed(); n != 10 {
			t.Errorf("%d calls allowed at once, want 10", n)
		}
		time.Sleep(50 * time.Millisecond)
		if n := allowed(); n != 5 {
			t.Errorf("%d calls allowed after 50 ms, want 5", n)
		}
		time.Sleep(time.Hour)
		if n := allowed(); n != 10 {
			t.Errorf("%d calls allowed after a rest, want 10", n)
		}
	})
}
