package pluginmgr

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/callerror"
	"github.com/nodewright/nodewright/internal/pluginconn"
	"github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/internal/wake"
)

// socket is the state of one socket. Its goroutine (run) registers and deregisters the plugin
// until the registered socket (actual) is the one that exists (desired).
type socket struct {
	m       *Manager
	path    string
	changed wake.Signal

	mu      sync.Mutex
	desired *identity // the socket that exists; nil if there is none
	actual  *identity // the socket whose plugin is registered; nil if there is none
	used    use       // registration of the plugin with its handler
	info    Info
	trouble string
	retry   time.Time
}

// use is the registration of a plugin with a handler.
type use struct {
	handler Handler
	info    Info
}

// want sets the identity of the socket that exists now. id is nil if there is no socket any more.
func (s *socket) want(id *identity) {
	s.mu.Lock()
	same := s.desired == id || s.desired != nil && id != nil && *s.desired == *id
	s.desired = id
	s.mu.Unlock()
	if same {
		return
	}
	s.changed.Set()
}

func (s *socket) state() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return State{Socket: s.path, Info: s.info, Registered: s.actual != nil, Trouble: s.trouble, Retry: s.retry}
}

// run registers and deregisters the plugin until ctx ends, or until the socket is gone and
// its plugin is deregistered.
func (s *socket) run(ctx context.Context) {
	pause := retry.Backoff{First: firstRetry, Max: lastRetry}
	for ctx.Err() == nil {
		s.mu.Lock()
		desired, actual := s.desired, s.actual
		s.mu.Unlock()
		if actual != nil && (desired == nil || *desired != *actual) {
			s.deregister()
			pause.Reset()
			continue
		}
		if desired == nil {
			if s.leave() {
				return
			}
			continue // the socket exists again
		}
		var again <-chan time.Time
		stop := func() bool { return false }
		if actual == nil {
			err := callerror.Brief(s.register(ctx, *desired), pluginconn.MaxText)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				d := pause.Next()
				s.note(err, d)
				t := time.NewTimer(d)
				again, stop = t.C, t.Stop
			} else {
				s.note(nil, 0)
				pause.Reset()
			}
		}
		select {
		case <-ctx.Done():
		case <-s.changed:
			pause.Reset()
		case <-again:
		}
		stop()
	}
}

// leave removes the record of the socket, unless the socket exists again.
func (s *socket) leave() bool {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.desired != nil {
		return false
	}
	delete(s.m.sockets, s.path)
	s.m.met.forget(s.path)
	return true
}

// note records the result of an attempt, and logs an error that differs from the last one.
func (s *socket) note(err error, pause time.Duration) {
	s.mu.Lock()
	before := s.trouble
	s.trouble, s.retry = "", time.Time{}
	if err != nil {
		s.trouble, s.retry = err.Error(), time.Now().Add(pause)
	}
	now := s.trouble
	s.mu.Unlock()
	if now != before && err != nil {
		s.m.cfg.Log.Warn("plugin not registered", zap.String("socket", s.path), zap.Error(err))
	}
}

func (s *socket) deregister() {
	s.mu.Lock()
	u := s.used
	s.actual, s.used = nil, use{}
	s.mu.Unlock()
	s.m.met.total.WithLabelValues(s.path, "actual").Set(0)
	s.m.cfg.Log.Info("plugin deregistered", zap.String("socket", s.path), zap.String("type", u.info.Type), zap.String("name", u.info.Name))
	u.handler.Deregister(u.info.Name, u.info.Endpoint)
}

// register performs the handshake. The plugin counts as registered only after it was notified of
// the registration.
func (s *socket) register(ctx context.Context, id identity) error {
	call, done := context.WithTimeout(ctx, infoTimeout)
	defer done()
	p, err := s.m.cfg.Connect(call, s.path)
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }()
	info, err := p.Info(call)
	if err != nil {
		return fmt.Errorf("call GetInfo: %w", err)
	}
	if info.Endpoint == "" {
		info.Endpoint = s.path
	}
	var h Handler
	if err = info.check(); err == nil {
		s.mu.Lock()
		s.info = info
		s.mu.Unlock()
		h, err = s.m.accept(ctx, info)
	}
	if err = callerror.Brief(err, pluginconn.MaxText); err != nil {
		// If this notification fails too, the retry will tell the plugin.
		_ = notify(ctx, p, false, err.Error())
		return err
	}
	if err := notify(ctx, p, true, ""); err != nil {
		h.Deregister(info.Name, info.Endpoint) // the plugin does not know that it is registered
		return fmt.Errorf("call NotifyRegistrationStatus: %w", err)
	}
	s.mu.Lock()
	s.actual, s.used = &id, use{h, info}
	s.mu.Unlock()
	s.m.met.total.WithLabelValues(s.path, "actual").Set(1)
	s.m.cfg.Log.Info("plugin registered", zap.String("socket", s.path), zap.String("type", info.Type), zap.String("name", info.Name))
	return nil
}

func notify(ctx context.Context, p Plugin, registered bool, reason string) error {
	ctx, done := context.WithTimeout(ctx, notifyTimeout)
	defer done()
	return p.Notify(ctx, registered, reason)
}

// accept registers a plugin with the first handler that accepts it.
func (m *Manager) accept(ctx context.Context, info Info) (Handler, error) {
	handlers := m.cfg.Handlers[info.Type]
	if len(handlers) == 0 {
		return nil, fmt.Errorf("no handler for plugins of type %q", info.Type)
	}
	var errs []error
	for _, h := range handlers {
		if err := h.Validate(info.Name, info.Endpoint, info.Versions); err != nil {
			errs = append(errs, err)
			continue
		}
		ctx, done := context.WithTimeout(ctx, handlerTimeout)
		defer done()
		return h, h.Register(ctx, info.Name, info.Endpoint, info.Versions)
	}
	return nil, fmt.Errorf("plugin %s %q: %w", info.Type, info.Name, errors.Join(errs...))
}
