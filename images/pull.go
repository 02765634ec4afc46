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

// flight is one pull that any number of callers wait for. Its goroutine owns
// it; the fields up to done do not change after it was made.
type flight struct {
	key   string // in Manager.flights
	spec  *runtimeapi.ImageSpec
	creds []credential
	// sandbox is that of the caller who began the pull; the others' are not used.
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

// waiter is one caller of Ensure. One pod may be several of them.
type waiter struct {
	pod   *v1.Pod
	creds []credential // those of the flight, as this pod came by them
}

// pulled is what a pull that went well brought.
type pulled struct {
	ref    string // the runtime's, of what was pulled
	used   int    // which credential, from 1; 0 for none
	image  *Image // nil if it is not there after all, or could not be looked at
	unseen error  // why it could not
}

// joinTold is join, of which whoever asks is told. Done is called on every way
// out, so that whoever counts the waiting stays right.
func (m *Manager) joinTold(ctx context.Context, spec *runtimeapi.ImageSpec, creds []credential, r Request) (pulled, error) {
	if r.Pulling != nil {
		if done := r.Pulling(); done != nil {
			defer done()
		}
	}
	return m.join(ctx, spec, creds, r)
}

// join waits for a pull of the image with these credentials, and begins one if
// there is none. When the last caller gives up, the pull ends. Callers with
// other credentials get a pull of their own: to share one would let them use
// what the registry may refuse them.
func (m *Manager) join(ctx context.Context, spec *runtimeapi.ImageSpec, creds []credential, r Request) (pulled, error) {
	// The contents of the credentials, in their order. The key stays in memory.
	key := spec.GetImage() + "\x00" + spec.GetRuntimeHandler()
	for _, c := range creds {
		key += "\x00" + c.auth.String()
	}
	w := &waiter{pod: r.Pod, creds: creds}
	m.mu.Lock()
	f := m.flights[key]
	if f == nil {
		// The pull keeps the values of the first caller's ctx, such as a trace, and
		// not its end: others may still wait when that one gives up.
		pctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		f = &flight{
			key: key, spec: spec, creds: creds, sandbox: r.Sandbox, place: m.queue.enter(registryOf(spec.GetImage())),
			asked: time.Now(), cancel: cancel, done: make(chan struct{}), waiters: map[*waiter]struct{}{},
		}
		m.flights[key] = f
		go func() {
			f.got, f.err = m.fetch(pctx, f)
			cancel()
			// Before done is closed, so that nobody joins a pull whose result is on its
			// way.
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
		// Nobody waits any more: a pull that goes on would only use up its place and
		// the network.
		if delete(f.waiters, w); len(f.waiters) == 0 {
			f.cancel()
			m.forget(f)
		}
		return pulled{}, ctx.Err()
	}
}

// forget takes the flight off the list, unless another one has its key by now.
// Whoever comes after it begins anew. It is called with mu held.
func (m *Manager) forget(f *flight) {
	if m.flights[f.key] == f {
		delete(m.flights, f.key)
	}
}

// landed ends the boarding: nobody joins the pull any more. It comes before the
// look at what the pull brought, so that nobody is told of an image that was
// here only until they asked. It returns the
// credentials as those had them who wait for it, and who began it.
func (m *Manager) landed(f *flight) [][]credential {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(f)
	// Whoever began the pull may have given up since, and was let in by the
	// registry all the same.
	all := [][]credential{f.creds}
	for w := range f.waiters {
		all = append(all, w.creds)
	}
	return all
}

// fetch waits for its turn and pulls with one credential after another, or
// with none if there are none. The place in the queue is kept until all of that
// is over.
func (m *Manager) fetch(ctx context.Context, f *flight) (pulled, error) {
	defer m.queue.leave(f.place)
	select {
	case <-f.place.ready:
	case <-ctx.Done():
		return pulled{}, ctx.Err()
	}
	// Only a pull that has its place takes a token, so that none is spent on
	// waiting in the queue.
	if m.limit != nil {
		if err := m.limit.Wait(ctx); err != nil {
			return pulled{}, err
		}
	}
	// The wait may end well in the moment in which the last caller gives up.
	if err := ctx.Err(); err != nil {
		return pulled{}, err
	}
	return m.onRecord(ctx, f, func() (pulled, error) {
		if len(f.creds) == 0 {
			return m.try(ctx, f, 0)
		}
		var errs []error
		// Any failure leads to the next one: registries answer a refusal with all
		// kinds of errors.
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

// try pulls with the n-th credential, counted from 1, or with none if n is 0. An
// image that is gone by then was here under another name, and was removed by
// that: it is pulled once more. Once only: somebody who keeps removing the
// image must not lead to an endless loop of pulls.
func (m *Manager) try(ctx context.Context, f *flight, n int) (pulled, error) {
	got, err := m.ask(ctx, f, n)
	if err == nil && got.image == nil && got.unseen == nil {
		m.cfg.Log.Info("image is gone right after it was pulled, and is pulled again", zap.String("image", f.spec.GetImage()))
		got, err = m.ask(ctx, f, n)
	}
	return got, err
}

// ask has the runtime pull, and looks at what came of it. A failed look is in
// unseen, and is no failed pull.
func (m *Manager) ask(ctx context.Context, f *flight, n int) (pulled, error) {
	start := time.Now()
	// These two show in Pulls.
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
	took := time.Since(start).Seconds()
	if err != nil {
		m.met.pulls.WithLabelValues(sizeLabel(0)).Observe(took)
		return pulled{}, err
	}
	got := pulled{ref: ref, used: n}
	var size uint64
	m.landed(f)
	if got.image, got.unseen = m.status(ctx, f.spec); got.image != nil {
		size = got.image.Size
		// The CRI asks for a reference from PullImage; the look is for runtimes that
		// return none.
		got.ref = cmp.Or(ref, got.image.Ref)
	}
	m.met.pulls.WithLabelValues(sizeLabel(size)).Observe(took)
	return got, nil
}

// pullReason keeps the reasons that a runtime puts at the front of its error,
// whichever credential it was for. It is ErrImagePull for all else.
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
