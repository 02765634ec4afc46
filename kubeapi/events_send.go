package kubeapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/retry"
)

// Pauses after a call to a server that cannot be reached or is busy.
const (
	minEventPause = time.Second
	maxEventPause = 30 * time.Second
)

// Run sends recorded events until ctx ends, and returns nil then. Events that were
// not sent are lost. It may be called once.
func (r *EventRecorder) Run(ctx context.Context) error {
	pause := retry.Backoff{First: minEventPause, Max: maxEventPause}
	for r.limit.Wait(ctx) == nil {
		s, snap := r.next(ctx)
		if s == nil {
			return nil
		}
		err := r.send(ctx, snap)
		if over(ctx) {
			return nil
		}
		again := r.sent(s, snap, err)
		if !again {
			pause.Reset()
			continue
		}
		wait := retry.Jitter(pause.Next()/2, 2)
		if asked, ok := RetryAfter(err); ok {
			wait = max(wait, asked)
		}
		if !retry.Sleep(ctx, wait) {
			return nil
		}
	}
	return nil
}

// next waits for a series to send, and returns it with a copy to send. It returns nil
// when ctx ends.
func (r *EventRecorder) next(ctx context.Context) (*series, series) {
	for {
		r.mu.Lock()
		if e := r.unsent.Front(); e != nil {
			s := e.Value.(*series)
			if s.name == "" {
				s.name = r.newName(s)
			}
			snap := *s
			r.mu.Unlock()
			return s, snap
		}
		r.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, series{}
		case <-r.signal:
		}
	}
}

// send creates or updates the Event of a series.
func (r *EventRecorder) send(ctx context.Context, s series) error {
	ev := r.create(&s)
	k := Key{Namespace: ev.Namespace, Name: ev.Name}
	if !s.sent {
		err := r.cfg.Client.Create(ctx, Events, k, ev, nil)
		if apierrors.IsAlreadyExists(err) {
			return nil // by a call that seemed to fail
		}
		return err
	}
	patch, err := json.Marshal(map[string]any{"count": s.count, "message": s.message, "lastTimestamp": metav1.NewTime(s.last)})
	if err != nil {
		return err
	}
	return r.cfg.Client.Patch(ctx, Events, k, types.StrategicMergePatchType, patch, nil)
}

// sent records the result of a call, and reports whether to pause before the next call.
// snap is the version of s that was sent.
func (r *EventRecorder) sent(s *series, snap series, err error) (wait bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		s.sent = true
	case snap.sent && apierrors.IsNotFound(err):
		s.sent, s.name = false, "" // the Event has expired in the server: a new one is created
		return false
	case !forGood(err):
		return true
	default:
		r.cfg.Log.Warn("API server refused event", zap.String("reason", s.key.Reason), zap.Error(err))
		s.sent, s.name = false, ""
	}
	if s.unsent == nil {
		return false // the series was dropped meanwhile
	}
	r.unsent.Remove(s.unsent)
	s.unsent = nil
	if err == nil && s.count != snap.count {
		s.unsent = r.unsent.PushBack(s)
	}
	return false
}

// forGood reports whether the server refuses this event permanently, so that another attempt is
// useless. The error of a busy server, or of one that does not know the node yet, is not
// permanent.
func forGood(err error) bool {
	var s apierrors.APIStatus
	if !errors.As(err, &s) {
		return false
	}
	code := int(s.Status().Code)
	return code >= 400 && code < 500 && code != http.StatusTooManyRequests && code != http.StatusUnauthorized && code != http.StatusRequestTimeout
}
