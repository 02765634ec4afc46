package images_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/images"
)

// refusing is a registry that has nothing, until down is false.
func refusing(down *bool) *registry {
	return &registry{refuse: func(string, *runtimeapi.AuthConfig) error {
		if *down {
			return errBroken
		}
		return nil
	}}
}

func TestBackoffDoubles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := true
		service := refusing(&down)
		m := newManager(t, images.Config{Service: service})
		start, last := time.Now(), 0
		var pulledAt []time.Duration
		for time.Since(start) < 30*time.Minute {
			_, err := m.Ensure(t.Context(), want("a", "app:1", v1.PullIfNotPresent))
			if n := len(service.pulled()); n > last {
				last = n
				pulledAt = append(pulledAt, time.Since(start))
				if got := reason(t, err); got != images.ReasonPull {
					t.Errorf("after %v: reason = %s, want %s", time.Since(start), got, images.ReasonPull)
				}
			} else if got := reason(t, err); got != images.ReasonPullBackOff {
				t.Errorf("after %v: reason = %s, want %s", time.Since(start), got, images.ReasonPullBackOff)
			}
			time.Sleep(time.Second)
		}
		var waits []time.Duration
		for i := 1; i < len(pulledAt); i++ {
			waits = append(waits, pulledAt[i]-pulledAt[i-1])
		}
		const s = time.Second
		if want := []time.Duration{10 * s, 20 * s, 40 * s, 80 * s, 160 * s, 300 * s, 300 * s, 300 * s, 300 * s}; !slices.Equal(waits, want) {
			t.Errorf("waited %v, want %v", waits, want)
		}
	})
}

func TestBackoffTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := true
		told := &events{}
		m := newManager(t, images.Config{Service: refusing(&down), Events: told})
		_, first := m.Ensure(t.Context(), want("a", "app:1", v1.PullIfNotPresent))
		until := time.Now().Add(10 * time.Second)
		told.take()
		time.Sleep(9 * time.Second)
		_, err := m.Ensure(t.Context(), want("a", "app:1", v1.PullIfNotPresent))
		for _, e := range []error{first, err} {
			if got := e.(*images.Error).RetryAt(); !got.Equal(until) { //nolint:errorlint // want this type
				t.Errorf("%v: again at %v, want %v", e, got, until)
			}
		}
		if got, want := err.Error(), `Back-off pulling image "app:1": ErrImagePull: broken`; got != want {
			t.Errorf("error = %q, want %q", got, want)
		}
		if got, want := told.take(), []string{`Normal BackOff: Back-off pulling image "app:1"`}; !slices.Equal(got, want) {
			t.Errorf("events = %q, want %q", got, want)
		}
	})
}

func TestBackoffIsOfOnePodAndImage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := true
		service := refusing(&down)
		m := newManager(t, images.Config{Service: service})
		for _, tc := range []struct {
			pod, image, handler string
			want                string
		}{
			{"a", "app", "", images.ReasonPull},
			{"a", "app", "", images.ReasonPullBackOff},
			{"a", "app:latest", "", images.ReasonPullBackOff}, // the same image
			{"a", "app:2", "", images.ReasonPull},
			{"b", "app", "", images.ReasonPull},
			{"b", "app", "", images.ReasonPullBackOff},
			{"b", "app", "kata", images.ReasonPull},
			{"b", "app", "kata", images.ReasonPullBackOff},
		} {
			r := want(tc.pod, tc.image, v1.PullAlways)
			r.RuntimeHandler = tc.handler
			_, err := m.Ensure(t.Context(), r)
			if got := reason(t, err); got != tc.want {
				t.Errorf("%s of pod %s, handler %q: reason = %s, want %s", tc.image, tc.pod, tc.handler, got, tc.want)
			}
		}
	})
}

func TestBackoffDoesNotHoldBackWhatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := true
		service := refusing(&down)
		m := newManager(t, images.Config{Service: service})
		_, _ = m.Ensure(t.Context(), want("a", "app:1", v1.PullIfNotPresent))
		service.put("app:1") // pulled by another client
		if _, err := m.Ensure(t.Context(), want("a", "app:1", v1.PullIfNotPresent)); err != nil {
			t.Errorf("error = %v, want none", err)
		}
		if _, err := m.Ensure(t.Context(), want("a", "app:1", v1.PullAlways)); reason(t, err) != images.ReasonPullBackOff {
			t.Errorf("with policy Always: error = %v, want it held back", err)
		}
	})
}

func TestBackoffStartsAfresh(t *testing.T) {
	for _, tc := range []struct {
		name string
		mend func(down *bool, ensure func())
		want time.Duration // from a failure to the next pull
	}{
		{"after a pull", func(down *bool, ensure func()) {
			*down = false
			time.Sleep(time.Minute)
			ensure()
			*down = true
		}, 10 * time.Second},
		{"after a long time", func(*bool, func()) { time.Sleep(20*time.Second + 10*time.Minute + time.Second) }, 10 * time.Second},
		{"not after a while", func(*bool, func()) { time.Sleep(9 * time.Minute) }, 40 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				down := true
				m := newManager(t, images.Config{Service: refusing(&down)})
				var err error
				ensure := func() { _, err = m.Ensure(t.Context(), want("a", "app:1", v1.PullAlways)) }
				ensure()
				time.Sleep(10 * time.Second)
				ensure() // now it is 20 s
				tc.mend(&down, ensure)
				ensure()
				if got := time.Until(err.(*images.Error).RetryAt()); got != tc.want { //nolint:errorlint // want this type
					t.Errorf("%v: held back for %v, want %v", err, got, tc.want)
				}
			})
		})
	}
}
