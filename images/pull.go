package images

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// flight is one pull that any number of callers wait for.
type flight struct {
	spec    *runtimeapi.ImageSpec
	creds   []*runtimeapi.AuthConfig
	sandbox *runtimeapi.PodSandboxConfig
	place   *ticket
	asked   time.Time
	cancel  context.CancelFunc
	done    chan struct{}

	// Guarded by Manager.mu.
	waiters map[*waiter]struct{}
	began   time.Time // when the runtime was first asked; zero before
	trying  int       // which of creds, from 1; 0 for none

	// The result, to be read after done.
	got pulled
	err error
}

// waiter is one caller of Ensure.
type waiter struct {
	pod *v1.Pod
}

// pulled is what a pull that went well brought.
type pulled struct {
	image  *Image // nil if it is not there after all, or could not be looked at
	unseen error  // why it could not
}

// join waits for a pull of the image with these credentials, and begins one if
// there is none. When the last caller gives up, the pull ends.
func (m *Manager) join(ctx context.Context, spec *runtimeapi.ImageSpec, creds []*runtimeapi.AuthConfig, r Request) (pulled, error) {
	key := spec.GetImage() + "\x00" + spec.GetRuntimeHandler()
	for _, c := range creds {
		key += "\x00" + c.String()
	}
	w := &waiter{pod: r.Pod}
	m.mu.Lock()
	f := m.flights[key]
	if f == nil {
		pctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		f = &flight{
			spec: spec, creds: creds, sandbox: r.Sandbox, place: m.queue.enter(registryOf(spec.GetImage())),
			asked: time.Now(), cancel: cancel, done: make(chan struct{}), waiters: map[*waiter]struct{}{},
		}
		m.flights[key] = f
		go func() {
			f.got, f.err = m.fetch(pctx, f)
			cancel()
			m.mu.Lock()
			if m.flights[key] == f {
				delete(m.flights, key)
			}
			m.mu.Unlock()
			close(f.done)
		}()
	}
	f.waiters[w] = struct{}{}
	m.mu.Unlock()
	select {
	case <-f.done:
		return f.got, f.err
	case <-ctx.Done():
		m.mu.Lock()
		defer m.mu.Unlock()
		if delete(f.waiters, w); len(f.waiters) == 0 {
			f.cancel()
			if m.flights[key] == f {
				delete(m.flights, key) // whoever comes now begins anew
			}
		}
		return pulled{}, ctx.Err()
	}
}

// fetch waits for its turn and pulls with one credential after another, or
// with none if there are none.
func (m *Manager) fetch(ctx context.Context, f *flight) (pulled, error) {
	defer m.queue.leave(f.place)
	select {
	case <-f.place.ready:
	case <-ctx.Done():
		return pulled{}, ctx.Err()
	}
	if m.limit != nil {
		if err := m.limit.Wait(ctx); err != nil {
			return pulled{}, err
		}
	}
	if len(f.creds) == 0 {
		return m.try(ctx, f, 0)
	}
	var errs []error
	for n := range f.creds {
		got, err := m.try(ctx, f, n+1)
		if err == nil {
			return got, nil
		}
		errs = append(errs, err)
	}
	return pulled{}, errors.Join(errs...)
}

// try pulls with the n-th credential, counted from 1, or with none if n is 0.
func (m *Manager) try(ctx context.Context, f *flight, n int) (pulled, error) {
	start := time.Now()
	m.mu.Lock()
	if f.began.IsZero() {
		f.began = start
	}
	f.trying = n
	m.mu.Unlock()
	var auth *runtimeapi.AuthConfig
	if n > 0 {
		auth = f.creds[n-1]
	}
	_, err := m.cfg.Service.PullImage(ctx, f.spec, auth, f.sandbox)
	took := time.Since(start).Seconds()
	if err != nil {
		m.met.pulls.WithLabelValues(sizeLabel(0)).Observe(took)
		return pulled{}, err
	}
	var got pulled
	var size uint64
	if got.image, got.unseen = m.status(ctx, f.spec); got.image != nil {
		size = got.image.Size
	}
	m.met.pulls.WithLabelValues(sizeLabel(size)).Observe(took)
	return got, nil
}

// pullReason keeps the reasons that a runtime puts at the front of its error,
// whichever credential it was for.
func pullReason(err error) string {
	var several interface{ Unwrap() []error }
	if errors.As(err, &several) {
		for _, one := range several.Unwrap() {
			if r := pullReason(one); r != ReasonPull {
				return r
			}
		}
		return ReasonPull
	}
	text := err.Error()
	// The status itself: status.FromError puts what wraps it into its message.
	var answer interface{ GRPCStatus() *status.Status }
	if errors.As(err, &answer) {
		text = answer.GRPCStatus().Message()
	}
	for _, r := range []string{ReasonUnavailable, ReasonBadSignature} {
		if strings.HasPrefix(text, r) {
			return r
		}
	}
	return ReasonPull
}
