package eviction

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/eviction/rank"
	"github.com/nodewright/nodewright/internal/retry"
)

// Source reports signs of a shortage at once. [notify.Source] implements it for Linux.
type Source interface {
	// Run calls wake at each sign of a shortage. cause is a word that names the sign. Run returns
	// when ctx ends, or with an error. After an error Run is called again, with back-off.
	Run(ctx context.Context, wake func(cause string)) error
}

// aimer is a Source that needs the levels of usage at which to wake.
type aimer interface {
	Source
	// Aim replaces the levels, in bytes of usage as the kernel counts it. It does not block.
	// After an error the levels are unchanged.
	Aim(levels []int64) error
}

// Notifier is a Source with the signal that it is about.
type Notifier struct {
	Source Source
	Signal rank.Signal
}

const (
	// aimAgain is the interval at which levels are set again, as in the kubelet.
	aimAgain = 10 * time.Second

	// The back-off of a failed notifier. Signals are still read at their interval.
	minListen = time.Second
	maxListen = time.Minute
)

// listen runs a notifier until ctx ends, again after each error, with back-off.
func (m *Manager) listen(ctx context.Context, n Notifier) {
	l := m.lane(n.Signal)
	wait := retry.Backoff{First: minListen, Max: maxListen}
	said := ""
	for {
		began := time.Now()
		err := n.Source.Run(ctx, l.kick)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("notifier ended")
		}
		// After a long run the back-off starts anew.
		wait.Recovered(time.Since(began))
		again := wait.Next()
		if now := err.Error(); now != said || began.Add(maxListen).Before(time.Now()) {
			m.cfg.Log.Warn("notifier failed; reading signals at their interval only", zap.String("signal", string(n.Signal)), zap.Duration("again", again), zap.Error(err))
			said = now
		}
		if !retry.Sleep(ctx, again) {
			return
		}
	}
}

// aim gives notifiers the levels of usage at which the thresholds are met. A level is the limit
// minus the threshold plus the inactive page cache: counters of cgroup v1 include the page cache
// (Documentation/admin-guide/cgroup-v1/memory.rst), and the working set excludes its inactive
// part.
func (l *lane) aim(mem Memory) {
	if !l.aimed.IsZero() && time.Since(l.aimed) < aimAgain {
		return
	}
	for _, n := range l.m.cfg.Notify {
		a, ok := n.Source.(aimer)
		fig := mem.Node
		if n.Signal == rank.SignalAllocatableMemory {
			fig = mem.Pods
		}
		if !ok || fig == nil || n.Signal.Condition() != l.condition {
			continue
		}
		var levels []int64
		for _, t := range l.list {
			if t.Signal == n.Signal {
				levels = append(levels, fig.Capacity-t.Value.Of(fig.Capacity)+fig.InactiveFile)
			}
		}
		if err := a.Aim(levels); err != nil {
			l.m.cfg.Log.Warn("failed to set thresholds of eviction notifier", zap.String("signal", string(n.Signal)), zap.Error(err))
		}
		l.aimed = time.Now()
	}
}
