package podmgr

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podmeta"
)

// Op describes what became of some pods.
type Op int

// The operations. Delete is a pod that is to end gracefully, Remove one that
// its source does not name any more; Reconcile a change of nothing but status.
const (
	Add Op = iota
	Update
	Remove
	Delete
	Reconcile
)

// String returns the operation in upper case, as the kubelet logs it.
func (o Op) String() string { return [...]string{"ADD", "UPDATE", "REMOVE", "DELETE", "RECONCILE"}[o] }

// Change describes what became of some pods of one source. An Add without pods
// says that a source has spoken for the first time and wants nothing.
type Change struct {
	Op     Op
	Source string
	// Pods are shared and read-only; of a Remove they are the last known versions.
	Pods []*v1.Pod
	// Configs are the objects beside pods that came, went or changed.
	Configs []Object
}

// Object names an object that pods refer to.
type Object struct {
	Kind      string // ConfigMap, Secret, PersistentVolumeClaim, PersistentVolume or ResourceClaim
	Namespace string // "" of a PersistentVolume
	Name      string
}

// Snapshot is the full state of a source. Ownership goes to the receiver. What has not
// changed since the last one may be given again, the same pods and objects: nothing is
// compared then.
type Snapshot struct {
	Pods       []*v1.Pod
	ConfigMaps []*v1.ConfigMap
	Secrets    []*v1.Secret
	Claims     []*v1.PersistentVolumeClaim
	Volumes    []*v1.PersistentVolume
	// ResourceClaims are allocated.
	ResourceClaims []*resourceapi.ResourceClaim
	Problems       []Problem
	// Partial means that there may be pods which are not in it: the source has what it
	// remembers, and nobody has confirmed that yet, or pods of its first answer are still to come.
	// What runs is not ended for it.
	Partial bool
}

// Problem is something in a source that is not in effect.
type Problem struct {
	// Source is the name of the source; the Manager sets it.
	Source string
	// File is the path or the URL, Document counts from 1 within it.
	File     string
	Document int
	// Pod is namespace/name of the object, as far as it could be read.
	Pod string
	// Field is its path within the object, "" for the object as a whole.
	Field  string
	Reason string
	// Kept reports that an earlier, good version stays in effect.
	Kept bool
}

// Error reports everything in one line.
func (p Problem) Error() string {
	var where []string
	if p.File != "" {
		where = append(where, p.File)
	}
	if p.Document > 0 {
		where = append(where, fmt.Sprintf("document %d", p.Document))
	}
	if p.Pod != "" {
		where = append(where, "("+p.Pod+")")
	}
	s := strings.Join(where, " ")
	for _, more := range []string{p.Field, p.Reason} {
		if s != "" && more != "" {
			s += ": "
		}
		s += more
	}
	return s
}

// Source delivers which pods should run.
type Source interface {
	// Name distinguishes sources; it becomes the pods' source annotation. What
	// the pods are is said by [Kinder].
	Name() string
	// Run calls deliver with the full state, first as soon as that is known
	// and then whenever it changed, until ctx ends. deliver does not block. After
	// an error Run is called again, see [Manager.Run].
	Run(ctx context.Context, deliver func(Snapshot)) error
}

// Config holds what a Manager needs. Sources is required; the zero value of
// every other field means the default named beside it.
type Config struct {
	Sources []Source
	// Refused is told of pods that are not in effect since another has their name or
	// their UID, once for as long as that is so, and why. It must not block; nobody.
	Refused func(pod *v1.Pod, why string)

	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported
}

// Manager keeps which pods should run. Its methods may be called from any
// goroutine. Each source has a goroutine of its own; all are merged under one mutex.
type Manager struct {
	cfg Config
	// out has no buffer: a change counts as received when the send returns.
	out chan Change

	// signal wakes deliver after something was queued; its buffer holds one.
	signal chan struct{}
	ready  chan struct{} // closed when every source has spoken
	// confirmed is closed when every source of kind API has spoken for itself.
	confirmed chan struct{}

	// mu guards the fields below.
	mu      sync.Mutex
	store   store
	sources map[string]*sourceState
	queue   queue
}

// sourceState is what one source said last. Manager.mu guards it, except for kind, which
// never changes.
type sourceState struct {
	kind Kind
	// spoken is never reset: a source that fails later keeps the pods that it named.
	spoken   bool
	failure  string // why it failed, until it speaks
	snapshot Snapshot
	pods     map[types.UID]*v1.Pod
	given    map[types.UID]*v1.Pod // as the source gave them last: one that it gives again has not changed
	waiting  []*v1.Pod             // their name or UID is taken by a pod of another source
	told     map[types.UID]bool    // those that Config.Refused was told of
	first    map[types.UID]*v1.Pod // of pods whose spec has changed: the first version under the UID
	refused  []Problem             // of pods that are not in effect for what else the source has
}

// New checks cfg and returns a Manager at rest. It starts nothing: sources run in
// [Manager.Run]. The error names every mistake in cfg.
func New(cfg Config) (*Manager, error) {
	var errs []error
	if len(cfg.Sources) == 0 {
		errs = append(errs, errors.New("Config.Sources is empty; at least one is required"))
	}
	m := &Manager{
		cfg: cfg, out: make(chan Change), signal: make(chan struct{}, 1), ready: make(chan struct{}), confirmed: make(chan struct{}),
		store: newStore(), queue: newQueue(), sources: map[string]*sourceState{},
	}
	for _, s := range cfg.Sources {
		if m.sources[s.Name()] != nil {
			errs = append(errs, fmt.Errorf("Config.Sources has two named %q", s.Name()))
		}
		m.sources[s.Name()] = &sourceState{kind: KindOf(s), pods: map[types.UID]*v1.Pod{}, given: map[types.UID]*v1.Pod{}, first: map[types.UID]*v1.Pod{}}
	}
	if cfg.Log == nil {
		m.cfg.Log = zap.NewNop()
	}
	m.confirm()
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("podmgr: %w", err)
	}
	if err := registerMetrics(cfg.Metrics, m); err != nil {
		return nil, fmt.Errorf("podmgr: %w", err)
	}
	return m, nil
}

// Changes is where changes are told, in order. The sources do not wait for who
// takes them: what became of a pod before a change of it was taken is told as
// one change, and not at all if the pod came and went. A static pod that was
// removed and came back is told as both, for it is to begin anew. The channel is never
// closed, also not at the end of Run.
func (m *Manager) Changes() <-chan Change { return m.out }

// deliver hands on the queue's changes, one at a time, until ctx ends.
func (m *Manager) deliver(ctx context.Context) {
	for {
		m.mu.Lock()
		next, some := m.queue.take()
		m.mu.Unlock()
		out := m.out
		// A send to a nil channel never happens: without a change only a signal counts.
		if !some {
			out = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-m.signal:
			// Back into the queue with it, where a newer
			// change of the same pod is merged into it.
			m.mu.Lock()
			m.queue.putBack(next)
			m.mu.Unlock()
		case out <- next.Change:
			// From now on the receiver knows that this source has spoken.
			m.mu.Lock()
			m.queue.told[next.Source] = true
			m.mu.Unlock()
		}
	}
}

// Ready is closed when every source has spoken. See [Manager.Want] for single pods.
func (m *Manager) Ready() <-chan struct{} { return m.ready }

// AllReady reports whether every source has spoken.
func (m *Manager) AllReady() bool {
	select {
	case <-m.ready:
		return true
	default:
		return false
	}
}

// Confirmed is closed when every source of kind API has spoken for itself, and not only given
// what it remembers. From then on the statuses of its pods, and those of mirror pods, are
// those that others see. Without such a source it is closed from the start.
func (m *Manager) Confirmed() <-chan struct{} { return m.confirmed }

// confirm closes m.confirmed when that is due. m.mu is held, but by New.
func (m *Manager) confirm() {
	for _, st := range m.sources {
		if st.kind == API && (!st.spoken || st.snapshot.Partial) {
			return
		}
	}
	if !m.isConfirmed() { // else it was before: a source that fails later is confirmed still
		close(m.confirmed)
	}
}

// spoke notes that a source has spoken for the first time. m.mu is held. It must be called
// once per source at most: the last one closes m.ready.
func (m *Manager) spoke(st *sourceState) {
	st.spoken = true
	for _, s := range m.sources {
		if !s.spoken {
			return
		}
	}
	close(m.ready)
}

// Pods lists the pods that should run, mirror pods left out, in the order they
// came. The slice is the caller's, the pods are not.
func (m *Manager) Pods() []*v1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.store.list()
}

// Pod returns a wanted pod by its UID.
func (m *Manager) Pod(uid types.UID) (*v1.Pod, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.store.byUID[uid]
	return p, p != nil
}

// PodByName returns a wanted pod by its name.
func (m *Manager) PodByName(namespace, name string) (*v1.Pod, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.store.byName[podmeta.FullName(namespace, name)]
	return p, p != nil
}

// Claim returns a claim to a persistent volume, shared and read-only. If two sources have
// it, the one that is first in the configuration counts.
func (m *Manager) Claim(namespace, name string) (*v1.PersistentVolumeClaim, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.cfg.Sources {
		for _, c := range m.sources[s.Name()].snapshot.Claims {
			if c.Namespace == namespace && c.Name == name {
				return c, true
			}
		}
	}
	return nil, false
}

// Volume returns a persistent volume, shared and read-only. If two sources have it, the
// one that is first in the configuration counts.
func (m *Manager) Volume(name string) (*v1.PersistentVolume, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.cfg.Sources {
		for _, pv := range m.sources[s.Name()].snapshot.Volumes {
			if pv.Name == name {
				return pv, true
			}
		}
	}
	return nil, false
}

// Mirror returns the pod that stands in the API for the static pod of that
// name.
func (m *Manager) Mirror(namespace, name string) (*v1.Pod, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.store.mirrors[podmeta.FullName(namespace, name)]
	return p, p != nil
}

// Mirrors lists the pods that stand in the API for static ones, whether these
// are there or not. They are in no order.
func (m *Manager) Mirrors() []*v1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.store.mirrors))
}

// byName returns the objects of a namespace that sources list.
func byName[T metav1.Object](m *Manager, namespace string, list func(*Snapshot) []T) map[string]T {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]T{}
	// From last to first, so that the first source has the last word.
	for _, s := range slices.Backward(m.cfg.Sources) {
		for _, o := range list(&m.sources[s.Name()].snapshot) {
			if o.GetNamespace() == namespace {
				out[o.GetName()] = o
			}
		}
	}
	return out
}

// ConfigMaps returns those of a namespace by name. The map is the caller's. The objects
// are shared and read-only. Of two sources that have one of that name, the first of
// Config.Sources counts.
func (m *Manager) ConfigMaps(namespace string) map[string]*v1.ConfigMap {
	return byName(m, namespace, func(s *Snapshot) []*v1.ConfigMap { return s.ConfigMaps })
}

// Secrets returns those of a namespace by name. The map is the caller's. The objects are
// shared and read-only, and chosen as those of ConfigMaps.
func (m *Manager) Secrets(namespace string) map[string]*v1.Secret {
	return byName(m, namespace, func(s *Snapshot) []*v1.Secret { return s.Secrets })
}
