package agenttest

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmgr"
)

// Source is a source of pods in memory. Its methods may be called from any goroutine.
type Source struct {
	name string
	kind podmgr.Kind

	mu        sync.Mutex
	now       podmgr.Snapshot
	delivered bool
	changed   chan struct{} // closed when now changes
}

// NewSource returns a source with a name and a kind of pods. It delivers nothing before Set is
// called: agents remove nothing until every source has delivered.
func NewSource(name string, kind podmgr.Kind) *Source {
	return &Source{name: name, kind: kind, changed: make(chan struct{})}
}

// Name implements podmgr.Source.
func (s *Source) Name() string { return s.name }

// Kind implements podmgr.Kinder.
func (s *Source) Kind() podmgr.Kind { return s.kind }

// Set sets the snapshot that the source delivers from now on. snap is copied.
func (s *Source) Set(snap podmgr.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now, s.delivered = clone(snap), true
	close(s.changed)
	s.changed = make(chan struct{})
}

// Run implements podmgr.Source. One agent after another may run it.
func (s *Source) Run(ctx context.Context, deliver func(podmgr.Snapshot)) error {
	for {
		s.mu.Lock()
		snap, delivered, changed := clone(s.now), s.delivered, s.changed
		s.mu.Unlock()
		if delivered {
			deliver(snap)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// clone copies a snapshot, since the receiver owns it.
func clone(s podmgr.Snapshot) podmgr.Snapshot {
	return podmgr.Snapshot{
		Pods: copied(s.Pods), ConfigMaps: copied(s.ConfigMaps), Secrets: copied(s.Secrets), Claims: copied(s.Claims),
		Volumes: copied(s.Volumes), ResourceClaims: copied(s.ResourceClaims), Problems: append([]podmgr.Problem(nil), s.Problems...),
	}
}

func copied[T interface{ DeepCopy() T }](all []T) []T {
	var out []T
	for _, o := range all {
		out = append(out, o.DeepCopy())
	}
	return out
}

// A Report is a recorded call of a Sink.
type Report struct {
	Pod     string       // namespace/name
	Status  v1.PodStatus // of an update
	Deleted bool         // the pod was removed completely
}

// Sink records the statuses of pods. Its methods may be called from any goroutine; the zero value
// is ready.
type Sink struct {
	mu      sync.Mutex
	reports []Report
	err     error
}

// Update implements statusmgr.Sink.
func (s *Sink) Update(_ context.Context, pod *v1.Pod, status v1.PodStatus) error {
	return s.add(Report{Pod: pod.Namespace + "/" + pod.Name, Status: *status.DeepCopy()})
}

// Delete implements statusmgr.Sink.
func (s *Sink) Delete(_ context.Context, pod *v1.Pod) error {
	return s.add(Report{Pod: pod.Namespace + "/" + pod.Name, Deleted: true})
}

func (s *Sink) add(r Report) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.reports = append(s.reports, r)
	}
	return s.err
}

// Fail makes every call return err until Fail(nil) is called. Calls that fail are not recorded.
func (s *Sink) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// Reports returns all recorded calls, in order.
func (s *Sink) Reports() []Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Report(nil), s.reports...)
}
