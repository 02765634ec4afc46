package hooks

import (
	"fmt"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Guard turns panics of an embedder's values into errors. Its methods may be called from any
// goroutine.
type Guard struct {
	Log    *zap.Logger
	Panics *prometheus.CounterVec // by name
}

// Expect creates the counters of panics with the value 0, so that an alert on an increase fires at
// the first panic.
func (g *Guard) Expect(names ...string) {
	for _, who := range names {
		g.Panics.WithLabelValues(who)
	}
}

// PanicError is the error of a call that panicked, in a part or in another value of the embedder.
type PanicError struct {
	Who   string
	Value any
}

func (e *PanicError) Error() string { return fmt.Sprintf("%s panicked: %v", e.Who, e.Value) }

// Call calls fn. If fn panics, Call returns a [*PanicError], logs the panic with its stack, and
// counts it under name.
func (g *Guard) Call(name string, fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			g.Log.Error("call panicked", zap.String("of", name), zap.String("panic", fmt.Sprint(v)), zap.ByteString("stack", debug.Stack()))
			g.Panics.WithLabelValues(name).Inc()
			err = &PanicError{name, v}
		}
	}()
	return fn()
}

// Each calls a hook of every part that has it. A panic ends only the call of that part.
func Each[T any](g *Guard, list []Of[T], fn func(T)) {
	for _, h := range list {
		_ = g.Call(h.Name, func() error { fn(h.Hook); return nil })
	}
}

// InTurn calls fn with each hook of the list, in order, until fn returns an error.
func InTurn[T any](g *Guard, list []Of[T], fn func(T) error) error {
	for _, h := range list {
		if err := g.Call(h.Name, func() error { return fn(h.Hook) }); err != nil {
			return err
		}
	}
	return nil
}

// Ask calls a hook and returns its result. After a panic the result is the zero value.
func Ask[T, A any](g *Guard, h Of[T], fn func(T) A) (answer A) {
	_ = g.Call(h.Name, func() error { answer = fn(h.Hook); return nil })
	return answer
}
