package network

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/callerror"
)

// outcome is the result of a call. It may be read after done is closed.
type outcome[T any] struct {
	value T
	err   error
	done  chan struct{}
}

// call runs f, usually a call of a plugin, with a timeout, and waits until f returns. If f has
// not returned some time (grace) after the deadline, call returns anyway with late set, and f
// continues. The context of f also ends when Run ends.
func call[T any](n *Network, who, verb string, timeout time.Duration, f func(ctx context.Context) (T, error)) (o *outcome[T], late bool) {
	ctx, cancel := context.WithTimeout(n.run, timeout)
	o = &outcome[T]{done: make(chan struct{})}
	if n.run.Err() != nil {
		cancel()
		o.err = errStopped
		close(o.done)
		return o, false
	}
	go func() {
		defer close(o.done)
		defer cancel()
		defer func() {
			if p := recover(); p != nil {
				n.cfg.Log.Error("call of network plugin panicked", zap.String("of", who), zap.String("call", verb), zap.String("panic", fmt.Sprint(p)), zap.ByteString("stack", debug.Stack()))
				o.err = callerror.Brief(fmt.Errorf("%s: %s: panic: %v", who, verb, p), maxText)
			}
		}()
		o.value, o.err = f(ctx)
		if o.err != nil {
			o.err = fault(ctx, who, verb, timeout, o.err)
		}
	}()
	select {
	case <-o.done:
		return o, false
	case <-ctx.Done():
	}
	waited := time.NewTimer(grace)
	defer waited.Stop()
	select {
	case <-o.done:
		return o, false
	case <-waited.C:
		n.cfg.Log.Error("call of network plugin did not return in time", zap.String("of", who), zap.String("call", verb), zap.Duration("timeout", timeout))
		return o, true
	}
}

// fault adds the name of the call to an error, and its timeout if the deadline was the cause.
func fault(ctx context.Context, who, verb string, timeout time.Duration, err error) error {
	err = callerror.Brief(err, maxText)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && CodeOf(err) == Unknown {
		return Errorf(DeadlineExceeded, "%s: %s: not done within %v: %w", who, verb, timeout, err)
	}
	return fmt.Errorf("%s: %s: %w", who, verb, err)
}

// lateError is the error of a call that did not return.
func lateError(who, verb string, timeout time.Duration) error {
	return Errorf(DeadlineExceeded, "%s: %s: call has not returned %v after its deadline of %v", who, verb, grace, timeout)
}

// maxText limits the text of a plugin's error, in bytes.
const maxText = 8 << 10

var errStopped = Errorf(Unavailable, "network has stopped")

// acquire waits for a slot; release frees it.
func (n *Network) acquire(places chan struct{}) (release func(), err error) {
	if n.run.Err() != nil {
		return nil, errStopped
	}
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-n.run.Done():
		return nil, errStopped
	}
}
