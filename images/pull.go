package images

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// flight is one pull that any number of callers wait for.
type flight struct {
	waiters int // guarded by Manager.mu
	cancel  context.CancelFunc
	done    chan struct{}

	// The result, to be read after done.
	got pulled
	err error
}

// pulled is what a pull that went well brought.
type pulled struct {
	image  *Image // nil if it is not there after all, or could not be looked at
	unseen error  // why it could not
}

// join waits for a pull of the image with these credentials, and begins one if
// there is none. When the last caller gives up, the pull ends.
func (m *Manager) join(ctx context.Context, spec *runtimeapi.ImageSpec, creds []*runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (pulled, error) {
	key := spec.GetImage() + "\x00" + spec.GetRuntimeHandler()
	for _, c := range creds {
		key += "\x00" + c.String()
	}
	m.mu.Lock()
	f := m.flights[key]
	if f == nil {
		pctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		f = &flight{cancel: cancel, done: make(chan struct{})}
		m.flights[key] = f
		go func() {
			f.got, f.err = m.fetch(pctx, spec, creds, sandbox)
			cancel()
			m.mu.Lock()
			if m.flights[key] == f {
				delete(m.flights, key)
			}
			m.mu.Unlock()
			close(f.done)
		}()
	}
	f.waiters++
	m.mu.Unlock()
	select {
	case <-f.done:
		return f.got, f.err
	case <-ctx.Done():
		m.mu.Lock()
		defer m.mu.Unlock()
		if f.waiters--; f.waiters == 0 {
			f.cancel()
			if m.flights[key] == f {
				delete(m.flights, key) // whoever comes now begins anew
			}
		}
		return pulled{}, ctx.Err()
	}
}

// fetch pulls with one credential after another, or with none if there are
// none.
func (m *Manager) fetch(ctx context.Context, spec *runtimeapi.ImageSpec, creds []*runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (pulled, error) {
	if m.slots != nil {
		select {
		case m.slots <- struct{}{}:
			defer func() { <-m.slots }()
		case <-ctx.Done():
			return pulled{}, ctx.Err()
		}
	}
	if m.limit != nil {
		if err := m.limit.Wait(ctx); err != nil {
			return pulled{}, err
		}
	}
	if len(creds) == 0 {
		creds = []*runtimeapi.AuthConfig{nil}
	}
	var errs []error
	for _, auth := range creds {
		start := time.Now()
		_, err := m.cfg.Service.PullImage(ctx, spec, auth, sandbox)
		took := time.Since(start).Seconds()
		if err != nil {
			m.met.pulls.WithLabelValues(sizeLabel(0)).Observe(took)
			errs = append(errs, err)
			continue
		}
		var got pulled
		var size uint64
		if got.image, got.unseen = m.status(ctx, spec); got.image != nil {
			size = got.image.Size
		}
		m.met.pulls.WithLabelValues(sizeLabel(size)).Observe(took)
		return got, nil
	}
	return pulled{}, errors.Join(errs...)
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
