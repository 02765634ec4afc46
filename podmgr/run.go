package podmgr

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/nodewright/nodewright/internal/retry"
)

// A source that failed is run again after firstPause. If it keeps failing, the pause grows up to
// maxPause.
const (
	firstPause = time.Second
	maxPause   = time.Minute
)

// Run runs every source until ctx ends, and returns nil when all have returned. A source that
// fails is run again after a pause of 1 s to 1 min. Until it delivers a snapshot, it is a Problem
// and its pods stay wanted. A source that returns nil is not run again, and its last pods stay
// wanted.
func (m *Manager) Run(ctx context.Context) error {
	var g errgroup.Group
	for _, s := range m.cfg.Sources {
		g.Go(func() error { m.runSource(ctx, s); return nil })
	}
	g.Go(func() error { m.deliver(ctx); return nil })
	return g.Wait()
}

// runSource runs one source until ctx ends or the source returns nil. After a failure it pauses.
func (m *Manager) runSource(ctx context.Context, s Source) {
	name, kind := s.Name(), KindOf(s)
	wait := retry.Backoff{First: firstPause, Max: maxPause, Jitter: 0.1}
	for {
		began := time.Now()
		// The source calls it in a goroutine of its own;
		// m.mu brings the merges of all sources in order.
		err := s.Run(ctx, func(snap Snapshot) {
			m.merge(name, m.prepare(name, kind, snap))
			m.recovered(name)
		})
		switch {
		// Once ctx has ended, an error comes from the interruption.
		case ctx.Err() != nil:
			return
		case err == nil:
			m.cfg.Log.Info("source of pods ended", zap.String("source", name))
			return
		}
		// After a run longer than maxPause the pauses begin at firstPause again.
		wait.Recovered(time.Since(began))
		m.failed(name, inOneLine(err.Error()))
		if !wait.Wait(ctx) {
			return
		}
	}
}

// failed records that a source failed, and logs it unless the reason is the same as before. The
// pods of the source stay wanted.
func (m *Manager) failed(source, reason string) {
	m.mu.Lock()
	st := m.sources[source]
	news := st.failure != reason
	st.failure = reason
	m.mu.Unlock()
	if news {
		m.cfg.Log.Error("source of pods failed; running it again", zap.String("source", source), zap.String("error", reason))
	}
}

// recovered records that a source delivered a snapshot after a failure, and logs it without
// m.mu.
func (m *Manager) recovered(source string) {
	m.mu.Lock()
	st := m.sources[source]
	was := st.failure
	if was != "" {
		st.failure = ""
	}
	m.mu.Unlock()
	if was != "" {
		m.cfg.Log.Info("source of pods works again", zap.String("source", source))
	}
}

// Err returns the sources that failed and have not delivered a snapshot since, with the reasons.
// It returns nil if there are none.
func (m *Manager) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, s := range m.cfg.Sources {
		if st := m.sources[s.Name()]; st.failure != "" {
			errs = append(errs, fmt.Errorf("source %s of pods failed: %s", s.Name(), st.failure))
		}
	}
	return errors.Join(errs...)
}
