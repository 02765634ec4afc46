package eviction

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/eviction/rank"
	"github.com/nodewright/nodewright/internal/retry"
)

// Source reports at once when the kernel sees a shortage coming. [notify.Source]
// is that of Linux.
type Source interface {
	// Run calls wake, with a word for the cause, at each sign of a shortage.
	// It returns when ctx ends, or with an error; then it is called again
	// after a while.
	Run(ctx context.Context, wake func(cause string)) error
}

// aimer is a Source that has to be told at which levels of usage to wake.
type aimer interface {
	Source
	// Aim replaces the levels, in bytes of usage as the kernel counts it. It
	// does not block. An error leaves them as they were.
	Aim(levels []int64) error
}

// Notifier is a Source and the signal that its signs are about.
type Notifier struct {
	Source Source
	Signal rank.Signal
}

const (
	// aimAgain is how often levels are set anew, as the kubelet does.
	aimAgain = 10 * time.Second

	// The back-off of a notifier that fails: figures are looked at on time
	// meanwhile, so that there is no hurry.
	minListen = time.Second
	maxListen = time.Minute
)

// listen runs a notifier, and again when it fails, until ctx ends. A kernel without
// pressure stall information, or a cgroup that is made anew, must not end the watch
// over the node.
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
		// One that ran for long starts over with the shortest wait.
		wait.Recovered(time.Since(began))
		again := wait.Next()
		if now := err.Error(); now != said || began.Add(maxListen).Before(time.Now()) {
			m.cfg.Log.Warn("a notifier failed; figures are looked at on time alone", zap.String("signal", string(n.Signal)), zap.Duration("again", again), zap.Error(err))
			said = now
		}
		if !retry.Sleep(ctx, again) {
			return
		}
	}
}

// aim gives notifiers the usage at which the thresholds are met: what the limit
// leaves above the threshold, and what the kernel could still drop. Counters of
// cgroup v1 include the page cache
// (Documentation/admin-guide/cgroup-v1/memory.rst), and the working set does not
// count its inactive part.
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
			l.m.cfg.Log.Warn("a notifier could not be aimed", zap.String("signal", string(n.Signal)), zap.Error(err))
		}
		l.aimed = time.Now()
	}
}
