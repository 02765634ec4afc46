// Package keep removes the state of pods that are gone. Each component with state of pods is a
// [Store]; one call of [Keeper.Retire] removes a pod from all of them.
//
// State in memory is removed at once. State on disk is removed by a sweep in a goroutine of its
// own; sweeps do not overlap. A sweep runs on request, or after some time without one.
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
	// retryAfter is the minimum time between a failed sweep and the next one, and the time until
	// the first sweep without a request.
	retryAfter = time.Minute
	// longest is the maximum time between two sweeps without a request. It is long because a
	// sweep reads all directories. A sweep does not fail if it cannot remove some files, for
	// example because they are in use; the next sweep tries again.
	longest = 10 * time.Minute
)

// Store has state of pods.
type Store struct {
	Of string // what the state is about, for the log
	// Retain removes the state of pods for which keep returns false.
	Retain func(ctx context.Context, keep func(types.UID) bool) error
}

// Config configures a Keeper. All fields except the stores are required.
type Config struct {
	// Memory are the stores that do not block, and Disk those that may block, in the order in which
	// a sweep calls them.
	Memory, Disk []Store
	// Wanted reports whether a source wants a pod at the time of the call.
	Wanted func(types.UID) bool
	// Again is called at the end of a sweep if another sweep was requested during it.
	Again func()
	// Beside calls a function in another goroutine.
	Beside func(ctx context.Context, fn func(context.Context))
	Log    *zap.Logger
}

// state is the state of a Keeper's sweeps.
type state uint8

const (
	resting       state = iota
	asked               // the next Retire starts a sweep
	sweeping            // one is under way
	sweepingAsked       // a sweep is running, and another one has to follow
)

// Keeper removes the state of pods that are gone. Its methods may be called from any goroutine.
type Keeper struct {
	cfg Config

	mu    sync.Mutex
	state state
	last  time.Time     // time of the last request, or of the last sweep without one
	pause time.Duration // time until the next sweep without a request
	took  time.Duration // duration of the last sweep
}

// New returns a Keeper.
func New(cfg Config) *Keeper {
	return &Keeper{cfg: cfg, last: time.Now(), pause: retryAfter}
}

// Ask requests a sweep at the next Retire.
func (k *Keeper) Ask() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ask()
}

// ask records a requested sweep. The caller holds the lock.
func (k *Keeper) ask() {
	switch k.state {
	case resting:
		k.state = asked
	case sweeping:
		k.state = sweepingAsked
	}
}

// Due is called from time to time. It requests a sweep if none was requested for some time: a
// minute after the last request or failure, then twice the previous time. This catches things that
// a sweep skipped because they were in use.
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

// Begin reports whether a sweep is due, for the argument of [Keeper.Retire]. Call it before
// listing the pods, so that a request after the listing causes another sweep.
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

// Retire removes pods that are not known from the stores in memory. If sweep is true, it also
// starts a sweep of the other stores, or requests another one if a sweep is running. The caller
// must not change known after the call.
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
	case sweeping, sweepingAsked: // two sweeps would remove the same directories
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
		if again { // the next sweep removes what this one missed
			k.cfg.Again()
		}
	})
}

// Took returns the duration of the last sweep.
func (k *Keeper) Took() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.took
}

// sweep removes unknown pods from every store on disk, except pods that a source wants in the
// meantime. All stores are called, even after an error.
func (k *Keeper) sweep(ctx context.Context, known map[types.UID]bool) error {
	var errs []error
	for _, s := range k.cfg.Disk {
		errs = append(errs, k.retain(ctx, s, func(uid types.UID) bool { return known[uid] || k.cfg.Wanted(uid) }))
	}
	return errors.Join(errs...)
}

// retain removes the pods for which keep returns false from a store. It logs and returns the error.
func (k *Keeper) retain(ctx context.Context, s Store, keep func(types.UID) bool) error {
	err := s.Retain(ctx, keep)
	if err != nil && !errors.Is(err, context.Canceled) {
		k.cfg.Log.Warn("failed to remove records of pods that are gone", zap.String("of", s.Of), zap.Error(err))
	}
	return err
}
