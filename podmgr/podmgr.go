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

	"github.com/nodewright/nodewright/internal/promshare"
	"github.com/nodewright/nodewright/internal/wake"
	"github.com/nodewright/nodewright/podmeta"
)

// Op is the kind of a Change.
type Op int

// The operations. Delete means that the pod has a deletion timestamp and ends gracefully. Remove
// means that the pod's source no longer names it. Reconcile means that only the pod's status
// changed.
const (
	Add Op = iota
	Update
	Remove
	Delete
	Reconcile
)

// String returns the operation in upper case, as the kubelet logs it.
func (o Op) String() string { return [...]string{"ADD", "UPDATE", "REMOVE", "DELETE", "RECONCILE"}[o] }

// Change is an operation on some pods of one source. An Add without pods means that the source
// delivered its first snapshot, without pods.
type Change struct {
	Op     Op
	Source string
	// Pods are shared and read-only. In a Remove they are the last known versions.
	Pods []*v1.Pod
	// Configs names the objects other than pods that were added, removed or modified.
	Configs []Object
}

// Object identifies an object that pods refer to.
type Object struct {
	Kind      string // ConfigMap, Secret, PersistentVolumeClaim, PersistentVolume or ResourceClaim
	Namespace string // "" of a PersistentVolume
	Name      string
}

// Snapshot is the full state of a source. The receiver owns it. Pods and objects that did not
// change may be the same pointers as in the last Snapshot; then they are not compared.
type Snapshot struct {
	Pods       []*v1.Pod
	ConfigMaps []*v1.ConfigMap
	Secrets    []*v1.Secret
	Claims     []*v1.PersistentVolumeClaim
	Volumes    []*v1.PersistentVolume
	// ResourceClaims have an allocation in their status.
	ResourceClaims []*resourceapi.ResourceClaim
	Problems       []Problem
	// Files has the files that pods come from, by the UIDs of the pods. It may be nil.
	Files map[types.UID]string
	// Partial means that pods may be missing, for example because the source returns remembered
	// pods until its server answers. A running pod that is missing in a partial Snapshot is not
	// ended.
	Partial bool
}

// Problem describes an object of a source that is not in effect, and why.
type Problem struct {
	// Source is the name of the source; the Manager sets it.
	Source string
	// File is the path or URL of the manifest. Document is the number of the document in the
	// file, from 1 on, or 0 for the whole file.
	File     string
	Document int
	// Line is the line in the file, from 1 on. It is 0 if the line is not known.
	Line int
	// Pod is namespace/name of the object, as far as it could be read.
	Pod string
	// Field is the path of the field within the object. It is "" for the object as a whole.
	Field  string
	Reason string
	// Kept reports that an earlier, good version stays in effect.
	Kept bool
}

// Error reports everything in one line.
func (p Problem) Error() string {
	var where []string
	switch {
	case p.File != "" && p.Line > 0:
		where = append(where, fmt.Sprintf("%s:%d", p.File, p.Line))
	case p.File != "":
		where = append(where, p.File)
	case p.Line > 0:
		where = append(where, fmt.Sprintf("line %d", p.Line))
	}
	if p.Document > 0 && p.Line == 0 {
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

// Source delivers the pods that should run.
type Source interface {
	// Name identifies the source. It becomes the source annotation of its pods. [Kinder] says
	// who owns the pods.
	Name() string
	// Run calls deliver with the full state as soon as it is known and after each change, until
	// ctx ends. deliver does not block. After an error Run is called again: see [Manager.Run].
	Run(ctx context.Context, deliver func(Snapshot)) error
}

// Config holds what a Manager needs. Sources is required; the zero value of
// every other field means the default named beside it.
type Config struct {
	Sources []Source
	// Refused is called for each pod that is not in effect because another pod has its name or
	// UID. For the same pod it is called again only if the pod was in effect in between. It must
	// not block. If Refused is nil, nothing is called.
	Refused func(pod *v1.Pod, why string)
	// Mistakes is called when the problems of a file have changed. problems is empty when the file
	// has no more problems. It is called by one goroutine of each source, without locks.
	Mistakes func(file string, problems []Problem)

	Log     *zap.Logger           // if nil, nothing is logged
	Metrics prometheus.Registerer // if nil, metrics are not exported
}

// Manager holds the pods that should run. Its methods may be called from any goroutine. Each
// source has its own goroutine; one mutex guards the merged state.
type Manager struct {
	cfg Config
	// out has no buffer: a change counts as received when the send returns.
	out chan Change

	signal wake.Signal   // set when something was queued
	ready  chan struct{} // closed when every source has delivered a snapshot
	// confirmed is closed when every source of kind API has delivered a snapshot that is not
	// Partial.
	confirmed chan struct{}

	// mu guards the fields below.
	mu      sync.Mutex
	store   store
	sources map[string]*sourceState
	queue   queue
}

// sourceState has the last snapshot of one source. Manager.mu guards it, except kind, which
// never changes.
type sourceState struct {
	kind Kind
	// delivered is set by the first snapshot and never reset: a source that fails later keeps its
	// pods.
	delivered bool
	failure   string // why it failed; "" after its next snapshot
	snapshot  Snapshot
	pods      map[types.UID]*v1.Pod
	given     map[types.UID]*v1.Pod // pods as the source delivered them last; a pod with the same pointer is unchanged
	waiting   []*v1.Pod             // pods whose name or UID a pod of another source has
	told      map[types.UID]bool    // pods for which Config.Refused was called
	first     map[types.UID]*v1.Pod // pods whose spec has changed under one UID: the first version
	refused   []Problem             // pods whose name or UID another pod of this source has, or whose spec has changed under one UID
}

// New checks cfg and returns a Manager. New starts nothing: sources run in [Manager.Run]. The error
// names every mistake in cfg.
func New(cfg Config) (*Manager, error) {
	var errs []error
	if len(cfg.Sources) == 0 {
		errs = append(errs, errors.New("Config.Sources is empty; at least one is required"))
	}
	m := &Manager{
		cfg: cfg, out: make(chan Change), signal: wake.New(), ready: make(chan struct{}), confirmed: make(chan struct{}),
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
	if err := promshare.Register(cfg.Metrics, collector{m}); err != nil {
		return nil, fmt.Errorf("podmgr: %w", err)
	}
	return m, nil
}

// Changes returns the channel of changes, in order. Sources do not wait for the receiver:
// pending changes of one pod are merged, and cancel out if the pod was added and removed. A
// static pod that was removed and added again gets both changes, since it has to restart. The
// channel is never closed, not even when Run ends.
func (m *Manager) Changes() <-chan Change { return m.out }

// deliver sends queued changes to the channel until ctx ends.
func (m *Manager) deliver(ctx context.Context) {
	for {
		m.mu.Lock()
		next, some := m.queue.take()
		m.mu.Unlock()
		out := m.out
		// A nil channel blocks: without a change, only a signal ends the wait.
		if !some {
			out = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-m.signal:
			// Put back into the queue, where newer changes of the same pods are merged
			// into it.
			m.mu.Lock()
			m.queue.putBack(next)
			m.mu.Unlock()
		case out <- next.Change:
			// From now on the receiver knows that this source has delivered.
			m.mu.Lock()
			m.queue.told[next.Source] = true
			m.mu.Unlock()
		}
	}
}

// Ready returns a channel that is closed when every source has delivered its first snapshot. For
// a single pod, use [Manager.Want].
func (m *Manager) Ready() <-chan struct{} { return m.ready }

// AllReady reports whether every source has delivered its first snapshot.
func (m *Manager) AllReady() bool {
	select {
	case <-m.ready:
		return true
	default:
		return false
	}
}

// Confirmed returns a channel that is closed when every source of kind API has delivered a
// snapshot that is not Partial. From then on, the statuses of API pods and mirror pods are those
// of the server. Without such a source it is closed from the start.
func (m *Manager) Confirmed() <-chan struct{} { return m.confirmed }

// confirm closes m.confirmed once all sources of kind API are confirmed. m.mu is held, except in
// New.
func (m *Manager) confirm() {
	for _, st := range m.sources {
		if st.kind == API && (!st.delivered || st.snapshot.Partial) {
			return
		}
	}
	if !m.IsConfirmed() { // else it was before: a source that fails later is confirmed still
		close(m.confirmed)
	}
}

// noteFirst records the first snapshot of a source, and closes m.ready after the last source. It is
// called at most once per source, with m.mu held.
func (m *Manager) noteFirst(st *sourceState) {
	st.delivered = true
	for _, s := range m.sources {
		if !s.delivered {
			return
		}
	}
	close(m.ready)
}

// Pods returns the pods that should run, without mirror pods, in the order of their arrival. The
// caller owns the slice; the pods are shared.
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

// File returns the file that a wanted pod comes from, or "" if the pod comes from no file.
func (m *Manager) File(uid types.UID) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.store.byUID[uid] == nil {
		return ""
	}
	for _, st := range m.sources {
		if file := st.snapshot.Files[uid]; file != "" {
			return file
		}
	}
	return ""
}

// PodByName returns a wanted pod by its name.
func (m *Manager) PodByName(namespace, name string) (*v1.Pod, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.store.byName[podmeta.FullName(namespace, name)]
	return p, p != nil
}

// Claim returns a PersistentVolumeClaim, which is shared and read-only. If two sources have it,
// the first source in Config.Sources is used.
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

// Volume returns a PersistentVolume, which is shared and read-only. If two sources have it, the
// first source in Config.Sources is used.
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

// Mirror returns the mirror pod of the static pod with that name.
func (m *Manager) Mirror(namespace, name string) (*v1.Pod, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.store.mirrors[podmeta.FullName(namespace, name)]
	return p, p != nil
}

// Mirrors returns all mirror pods in no order, including those whose static pod is gone.
func (m *Manager) Mirrors() []*v1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.store.mirrors))
}

// byName returns the objects of one namespace from all sources, by name.
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

// ConfigMaps returns the ConfigMaps of a namespace, by name. The caller owns the map; the objects
// are shared and read-only. If two sources have a ConfigMap of the same name, the first source in
// Config.Sources is used.
func (m *Manager) ConfigMaps(namespace string) map[string]*v1.ConfigMap {
	return byName(m, namespace, func(s *Snapshot) []*v1.ConfigMap { return s.ConfigMaps })
}

// Secrets returns the Secrets of a namespace, by name, with the rules of ConfigMaps.
func (m *Manager) Secrets(namespace string) map[string]*v1.Secret {
	return byName(m, namespace, func(s *Snapshot) []*v1.Secret { return s.Secrets })
}
