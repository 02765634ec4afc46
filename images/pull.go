package images

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// flight is one pull that any number of callers wait for. Its goroutine owns it. The fields up to
// done never change.
type flight struct {
	key   string // key in Manager.flights
	spec  *runtimeapi.ImageSpec
	creds []credential
	// sandbox is the sandbox of the first caller.
	sandbox *runtimeapi.PodSandboxConfig
	place   *ticket
	asked   time.Time
	cancel  context.CancelFunc
	done    chan struct{}

	// Manager.mu guards the fields below.
	waiters map[*waiter]struct{}
	began   time.Time // time of the first PullImage call; zero before
	trying  int       // index of creds, from 1; 0 for none

	// got is the result. It is valid once done is closed.
	got pulled
	err error
}

// waiter is one caller of Ensure. A pod may have several.
type waiter struct {
	pod   *v1.Pod
	creds []credential // the flight's credentials, with the sources in which this pod has them
}

// pulled is the result of a successful pull.
type pulled struct {
	ref    string // the runtime's reference
	used   int    // number of the credential, from 1; 0 for none
	took   time.Duration
	size   uint64 // of the image; 0 if not known
	image  *Image // nil if the image is not present, or if unseen is set
	unseen error  // error of the status call after the pull
}

// joinTold calls join. It calls Request.Pulling when the wait begins, and the function that Pulling
// returned when the wait ends.
func (m *Manager) joinTold(ctx context.Context, spec *runtimeapi.ImageSpec, creds []credential, r Request) (pulled, error) {
	if r.Pulling != nil {
		if done := r.Pulling(); done != nil {
			defer done()
		}
	}
	return m.join(ctx, spec, creds, r)
}

// join waits for a pull of the image with these credentials, and starts it if there is none. The
// pull is cancelled when its last caller gives up. Callers with other credentials get their own
// pull, since the registry may refuse them.
func (m *Manager) join(ctx context.Context, spec *runtimeapi.ImageSpec, creds []credential, r Request) (pulled, error) {
	// The key contains credentials, so it must not leave the process.
	key := spec.GetImage() + "\x00" + spec.GetRuntimeHandler()
	for _, c := range creds {
		key += "\x00" + c.auth.String()
	}
	w := &waiter{pod: r.Pod, creds: creds}
	m.mu.Lock()
	f := m.flights[key]
	if f == nil {
		// The pull keeps the values of the first caller's ctx, such as a trace, but not its
		// cancellation, since others may still wait.
		pctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		f = &flight{
			key: key, spec: spec, creds: creds, sandbox: r.Sandbox, place: m.queue.enter(registryOf(spec.GetImage())),
			asked: time.Now(), cancel: cancel, done: make(chan struct{}), waiters: map[*waiter]struct{}{},
		}
		m.flights[key] = f
		go func() {
			f.got, f.err = m.fetch(pctx, f)
			cancel()
			// Called before done is closed, so that no caller joins a finished pull.
			m.landed(f)
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
		// The last caller has left: cancel the pull.
		if delete(f.waiters, w); len(f.waiters) == 0 {
			f.cancel()
			m.forget(f)
		}
		return pulled{}, ctx.Err()
	}
}

// forget removes the flight from Manager.flights. If a newer flight has the same key, it stays.
// mu must be held.
func (m *Manager) forget(f *flight) {
	if m.flights[f.key] == f {
		delete(m.flights, f.key)
	}
}

// landed records that the pull has ended: further callers cannot join the flight. It returns the
// credentials of all waiters and of the first caller. It must be called before the status of the
// image is read: a caller that joins later could get an outdated result.
func (m *Manager) landed(f *flight) [][]credential {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(f)
	// The first caller may have given up, but the registry has accepted its credentials.
	all := [][]credential{f.creds}
	for w := range f.waiters {
		all = append(all, w.creds)
	}
	return all
}

// fetch waits for a slot and pulls with one credential after another until one succeeds, or
// without credentials if there are none. It keeps its slot until the end.
func (m *Manager) fetch(ctx context.Context, f *flight) (pulled, error) {
	defer m.queue.leave(f.place)
	select {
	case <-f.place.ready:
	case <-ctx.Done():
		return pulled{}, ctx.Err()
	}
	// Only a pull with a slot takes a token of the rate limit.
	if m.limit != nil {
		if err := m.limit.Wait(ctx); err != nil {
			return pulled{}, err
		}
	}
	// The last caller may have given up just when the wait ended.
	if err := ctx.Err(); err != nil {
		return pulled{}, err
	}
	return m.onRecord(ctx, f, func() (pulled, error) {
		if len(f.creds) == 0 {
			return m.try(ctx, f, 0)
		}
		var errs []error
		// Any error leads to the next credential, since registries deny access with all kinds of
		// errors.
		for n := range f.creds {
			got, err := m.try(ctx, f, n+1)
			if err == nil {
				return got, nil
			}
			errs = append(errs, err)
		}
		return pulled{}, errors.Join(errs...)
	})
}

// try pulls with the n-th credential, counted from 1. If n is 0, it pulls without a credential.
// If the image is missing after the pull, it was removed under another name meanwhile, and try
// pulls once more.
func (m *Manager) try(ctx context.Context, f *flight, n int) (pulled, error) {
	got, err := m.ask(ctx, f, n)
	if err == nil && got.image == nil && got.unseen == nil {
		m.cfg.Log.Info("image is missing after its pull; pulling it again", zap.String("image", f.spec.GetImage()))
		got, err = m.ask(ctx, f, n)
	}
	return got, err
}

// ask calls the runtime's PullImage and then its ImageStatus. If only ImageStatus fails, the pull
// has not failed: the error is in the result's field unseen.
func (m *Manager) ask(ctx context.Context, f *flight, n int) (pulled, error) {
	start := time.Now()
	// Pulls reports these two fields.
	m.mu.Lock()
	if f.began.IsZero() {
		f.began = start
	}
	f.trying = n
	m.mu.Unlock()
	var auth *runtimeapi.AuthConfig
	if n > 0 {
		auth = f.creds[n-1].auth
	}
	ref, err := m.cfg.Service.PullImage(ctx, f.spec, auth, f.sandbox)
	took := time.Since(start)
	if err != nil {
		m.met.pulls.WithLabelValues(sizeLabel(0)).Observe(took.Seconds())
		return pulled{}, err
	}
	got := pulled{ref: ref, used: n, took: took}
	m.landed(f)
	if got.image, got.unseen = m.status(ctx, f.spec); got.image != nil {
		got.size = got.image.Size
		// PullImage should return a reference; some runtimes return none.
		got.ref = cmp.Or(ref, got.image.Ref)
	}
	m.met.pulls.WithLabelValues(sizeLabel(got.size)).Observe(took.Seconds())
	return got, nil
}

// pullReason returns the reason at the beginning of a runtime's error, or ErrImagePull.
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
	// status.FromError would add the text of wrapping errors to the message.
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
