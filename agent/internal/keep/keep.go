// Package keep forgets pods that are gone. Whatever keeps something of pods is a [Store]:
// one call of [Keeper.Retire] drops it everywhere.
//
// What is in memory alone is dropped at once. What may block on a disk is removed by a
// sweep beside the caller, of which there is one at a time. A sweep is asked for, or comes
// by itself after a while.
package keep

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// retryAfter is the shortest time between a sweep that failed and the next, and that until
	// the first sweep that nobody asked for.
	retryAfter = time.Minute
	// longest is the longest time between two sweeps that nobody asked for: they look at all
	// directories. Some of what a sweep cannot remove is no error of it, but tried again by the
	// next one.
	longest = 10 * time.Minute
)

// Store keeps something of pods.
type Store struct {
	Of string // for the log
	// Retain drops what the store has of pods that are not to be kept.
	Retain func(ctx context.Context, keep func(types.UID) bool) error
}

// Config holds what a Keeper needs. All fields but the stores are required.
type Config struct {
	// Memory are the stores that do not block, and Disk those that may, in the order in
	// which a sweep calls them.
	Memory, Disk []Store
	// Wanted reports whether a source wants a pod now.
	Wanted func(types.UID) bool
	// Again is called when a sweep has ended and another was asked for meanwhile.
	Again func()
	// Beside calls a function in another goroutine.
	Beside func(ctx context.Context, fn func(context.Context))
	Log    *zap.Logger
}

// state is how far a Keeper is with its sweeps.
type state uint8

const (
	resting       state = iota
	asked               // a sweep is to come with the next Retire
	sweeping            // one is under way
	sweepingAsked       // one is under way, and another is to follow
)

// Keeper forgets pods that are gone. Its methods may be called from any goroutine.
type Keeper struct {
	cfg Config

	mu    sync.Mutex
	state state
	last  time.Time     // when a sweep was last asked for, or due
	pause time.Duration // until the next one that nobody asks for
	took  time.Duration // by the last sweep
}

// New returns a Keeper.
func New(cfg Config) *Keeper {
	return &Keeper{cfg: cfg, last: time.Now(), pause: retryAfter}
}

// Ask has the next Retire begin a sweep.
func (k *Keeper) Ask() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ask()
}

// ask notes that a sweep is to come. The lock is held.
func (k *Keeper) ask() {
	switch k.state {
	case resting:
		k.state = asked
	case sweeping:
		k.state = sweepingAsked
	}
}

// Due is called from time to time: it asks for a sweep that nobody else asked for, if its time
// has come. The first one comes a minute after one that was asked for, or failed, and each other
// one after twice the time: what a sweep passed over, for being in use, is gone soon after that
// ends.
func (k *Keeper) Due(now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.state == asked, k.state == sweepingAsked:
		k.pause = retryAfter
	case now.Sub(k.last) >= k.pause:
		k.pause = min(2*k.pause, longest)
	default:
		return
	}
	k.last = now
	k.ask()
}

// Begin reports whether a sweep is due, for [Keeper.Retire]. It is called before the pods are
// listed: who asks later asks again.
func (k *Keeper) Begin() (sweep bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch k.state {
	case asked:
		k.state = resting
	case sweepingAsked:
		k.state = sweeping
	default:
		return false
	}
	return true
}

// Retire drops what the stores in memory have of pods that are not known and, with sweep, begins
// a sweep of the others, or has one follow the one that is under way. The caller must not change
// known any more.
func (k *Keeper) Retire(ctx context.Context, known map[types.UID]bool, sweep bool) {
	for _, s := range k.cfg.Memory {
		_ = k.retain(ctx, s, func(uid types.UID) bool { return known[uid] })
	}
	if !sweep {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch k.state {
	case sweeping, sweepingAsked: // two would remove the same directories
		k.state = sweepingAsked
		return
	case asked:
		k.state = sweepingAsked
	case resting:
		k.state = sweeping
	}
	k.cfg.Beside(ctx, func(ctx context.Context) {
		begin := time.Now()
		err := k.sweep(ctx, known)
		k.mu.Lock()
		k.took = time.Since(begin)
		if err != nil {
			k.pause = retryAfter
		}
		again := k.state == sweepingAsked
		if k.state = resting; again {
			k.state = asked
		}
		k.mu.Unlock()
		if again { // what this one missed, the next one finds
			k.cfg.Again()
		}
	})
}

// Took is how long the last sweep took.
func (k *Keeper) Took() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.took
}

// sweep has every store on disk drop what it has of pods that nothing knows. Each sees pods that
// came after known was made, and each is called, whatever becomes of the others.
func (k *Keeper) sweep(ctx context.Context, known map[types.UID]bool) error {
	var errs []error
	for _, s := range k.cfg.Disk {
		errs = append(errs, k.retain(ctx, s, func(uid types.UID) bool { return known[uid] || k.cfg.Wanted(uid) }))
	}
	return errors.Join(errs...)
}

// retain has a store drop what it has of the pods that keep does not report. It logs and returns the error.
func (k *Keeper) retain(ctx context.Context, s Store, keep func(types.UID) bool) error {
	err := s.Retain(ctx, keep)
	if err != nil && !errors.Is(err, context.Canceled) {
		k.cfg.Log.Warn("failed to remove records of pods that are gone", zap.String("of", s.Of), zap.Error(err))
	}
	return err
}
