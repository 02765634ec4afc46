package podruntime

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/images"
	"github.com/nodewright/nodewright/podspec"
)

// missing gets images as the agent does, from a registry that has none.
type missing struct{ m *images.Manager }

func (i missing) Ensure(ctx context.Context, r ImageRequest) (podspec.ImageFacts, error) {
	_, err := i.m.Ensure(ctx, images.Request{Pod: r.Pod, Image: r.Image, Policy: r.Policy})
	return podspec.ImageFacts{}, err
}

// A failed pull is shown first as what it is, and a second later as what people
// look for.
func TestImagePullBackOffIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New()
		service, err := images.New(images.Config{Service: rt})
		if err != nil {
			t.Fatal(err)
		}
		m, err := New(Config{Runtime: rt, Images: missing{service}, PodLogsDir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		w := build(v1.RestartPolicyAlways, nil, "a")
		begin := time.Now()
		for _, want := range []struct {
			reason string
			next   time.Duration // since the begin
		}{
			{"ErrImagePull", time.Second},
			{"ImagePullBackOff", 10 * time.Second},
			{"ErrImagePull", 11 * time.Second},
			{"ImagePullBackOff", 30 * time.Second},
		} {
			pod, err := cri.NewReader(rt).Inspect(t.Context(), w.pod.UID)
			if err != nil {
				t.Fatal(err)
			}
			res := m.Sync(t.Context(), request(t, w, pod))
			var held interface{ RetryAt() time.Time }
			if !errors.As(res.Err(), &held) {
				t.Fatalf("error %v: want one that says when to try again", res.Err())
			}
			if got := reasonOf(res.Err()); got != want.reason || held.RetryAt().Sub(begin) != want.next {
				t.Fatalf("%s, again at %v; want %s, %v", got, held.RetryAt().Sub(begin), want.reason, want.next)
			}
			time.Sleep(time.Until(held.RetryAt()))
		}
	})
}
