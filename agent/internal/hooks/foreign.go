package hooks

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/statusmgr"
)

// Sources returns sources whose panics become their errors.
func (g *Guard) Sources(sources []podmgr.Source) []podmgr.Source {
	out := make([]podmgr.Source, 0, len(sources))
	for _, s := range sources {
		g.Expect("source " + s.Name())
		out = append(out, guardedSource{s, g})
	}
	return out
}

type guardedSource struct {
	podmgr.Source
	g *Guard
}

// Kind implements podmgr.Kinder.
func (s guardedSource) Kind() podmgr.Kind { return podmgr.KindOf(s.Source) }

func (s guardedSource) Run(ctx context.Context, deliver func(podmgr.Snapshot)) error {
	return s.g.Call("source "+s.Name(), func() error { return s.Source.Run(ctx, deliver) })
}

// Sink returns a sink whose panics become errors of the call, which is repeated.
func (g *Guard) Sink(sink statusmgr.Sink) statusmgr.Sink {
	if sink == nil {
		return nil
	}
	if l, ok := sink.(statusmgr.Loader); ok {
		return guardedLoader{guardedSink{sink, g}, l}
	}
	return guardedSink{sink, g}
}

type guardedSink struct {
	statusmgr.Sink
	g *Guard
}

func (s guardedSink) Update(ctx context.Context, pod *v1.Pod, status v1.PodStatus) error {
	return s.g.Call("sink", func() error { return s.Sink.Update(ctx, pod, status) })
}

func (s guardedSink) Delete(ctx context.Context, pod *v1.Pod) error {
	return s.g.Call("sink", func() error { return s.Sink.Delete(ctx, pod) })
}

type guardedLoader struct {
	guardedSink
	loader statusmgr.Loader
}

func (s guardedLoader) Load(ctx context.Context) (all map[types.UID]v1.PodStatus, err error) {
	err = s.g.Call("sink", func() error {
		all, err = s.loader.Load(ctx)
		return err
	})
	return all, err
}
