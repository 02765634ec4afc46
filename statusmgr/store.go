package statusmgr

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/internal/wake"
	"github.com/nodewright/nodewright/podlife"
)

// Statuses on disk that the sink has not taken. A healthy sink takes most statuses
// at once, so that a node at work writes next to nothing here.

// Store keeps values over a crash, each under the UID of a pod. A checkpoint.Store implements it.
type Store interface {
	Write(key string, value []byte) error
	// Read returns fs.ErrNotExist if there is no value, or only a partial one.
	Read(key string) ([]byte, error)
	Delete(key string) error
	Keys() ([]string, error)
}

// record is the stored form of an unpublished status. Later versions of the agent read its JSON
// (docs/reference/formats.md): fields may be added, and none may change.
type record struct {
	Finished bool              `json:"finished,omitempty"`
	Stopped  bool              `json:"stopped,omitempty"` // no container of the pod ran
	Life     uint32            `json:"life,omitempty"`
	Cause    *podlife.Cause    `json:"cause,omitempty"`
	Meta     metav1.ObjectMeta `json:"metadata"`
	Status   v1.PodStatus      `json:"status"`
}

// recordOf returns the record of an entry. It has only the fields of the pod that publication and
// deletion need. It is called with m.mu held; the caller marshals the record without the lock.
func recordOf(e *entry) record {
	p := e.pod
	r := record{Finished: e.finished, Life: e.life, Stopped: e.runs == observed.No, Status: *e.status, Meta: metav1.ObjectMeta{
		Namespace: p.Namespace, Name: p.Name, UID: p.UID, Labels: p.Labels, Generation: p.Generation,
		CreationTimestamp: p.CreationTimestamp, DeletionTimestamp: p.DeletionTimestamp, DeletionGracePeriodSeconds: p.DeletionGracePeriodSeconds,
	}}
	if e.why != (podlife.Cause{}) {
		why := e.why
		r.Cause = &why
	}
	for k, v := range p.Annotations { // they mark static pods and mirrors
		if strings.HasPrefix(k, "kubernetes.io/config.") {
			if r.Meta.Annotations == nil {
				r.Meta.Annotations = map[string]string{}
			}
			r.Meta.Annotations[k] = v
		}
	}
	return r
}

// why returns the cause of the stored status. A record without a cause, as earlier builds wrote
// it, has the cause that its status shows.
func (r *record) why() podlife.Cause {
	given := Report{Status: r.Status}
	if r.Cause != nil {
		given.Why = *r.Cause
	}
	return given.cause()
}

// retryDelete is the time after which a failed deletion of a value is tried again.
const retryDelete = time.Minute

// storeWriter writes unpublished statuses to the store.
type storeWriter struct {
	mu     sync.Mutex                  // not held during calls of the store, so that a disk that hangs delays one pod only
	stored map[types.UID]stored        // guarded by mu
	busy   map[types.UID]chan struct{} // pods whose value is being written; guarded by mu

	// Manager.mu guards dirty and all.
	dirty  map[types.UID]bool // pods whose stored value may have to change
	all    bool               // Run ends: every unpublished status is stored
	signal wake.Signal
}

// stored is what the store has of a pod.
type stored struct {
	version uint64 // 0 means no value
	perhaps bool   // a write failed, but may still reach the disk
}

func newStoreWriter() storeWriter {
	return storeWriter{stored: map[types.UID]stored{}, busy: map[types.UID]chan struct{}{}, dirty: map[types.UID]bool{}, signal: wake.New()}
}

// take waits until no other goroutine writes the pod's value, and returns what the store has. The
// caller has to call release with what the store has afterwards. Until then other calls of take
// for the pod wait.
func (k *storeWriter) take(uid types.UID) (current stored, release func(stored)) {
	mine := make(chan struct{})
	for {
		k.mu.Lock()
		before := k.busy[uid]
		if before == nil {
			k.busy[uid], current = mine, k.stored[uid]
			k.mu.Unlock()
			break
		}
		k.mu.Unlock()
		<-before
	}
	return current, func(now stored) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.stored[uid] = now; now == (stored{}) {
			delete(k.stored, uid)
		}
		delete(k.busy, uid)
		close(mine)
	}
}

// saveSoon requests an update of the pod's stored value. The caller holds m.mu.
func (m *Manager) saveSoon(uid types.UID) {
	if m.cfg.Store == nil {
		return
	}
	m.store.dirty[uid] = true
	// A signal that is there already covers this pod, too: dirty is read after it.
	m.store.signal.Set()
}

// runStore saves values until stop is called, which saves every pending status.
func (m *Manager) runStore() (stop func()) {
	if m.cfg.Store == nil {
		return func() {}
	}
	quit, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		for {
			select {
			case <-m.store.signal:
				m.saveDirty()
			case <-quit:
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-gone
		m.mu.Lock()
		m.store.all = true
		for uid := range m.entries {
			m.store.dirty[uid] = true
		}
		m.mu.Unlock()
		m.saveDirty()
	}
}

// saveDirty stores all values that may have changed, one after the other. A disk that hangs blocks
// this loop. It does not block writes to the sink, except for pods whose value has to be stored
// first.
func (m *Manager) saveDirty() {
	m.mu.Lock()
	dirty := m.store.dirty
	m.store.dirty = map[types.UID]bool{}
	m.mu.Unlock()
	for uid := range dirty {
		m.save(uid)
	}
}

// save updates the pod's value in the store. A final status is stored as soon as it is known, since
// it cannot be computed again after a crash. Any other status is stored only if a write to the sink
// fails or takes long, or when the agent ends.
func (m *Manager) save(uid types.UID) {
	if m.cfg.Store == nil {
		return
	}
	k := &m.store
	is, release := k.take(uid)
	defer func() { release(is) }()
	m.mu.Lock()
	e := m.entries[uid]
	// Decided under both the pod's turn at the store and m.mu: what is written is
	// the newest, and never older than what is stored.
	pending := e != nil && e.unsent() && m.cfg.Sink != nil
	worth := pending && (e.final || e.failing() || k.all)
	var rec record
	var version uint64
	if worth {
		rec, version = recordOf(e), e.version
	}
	m.mu.Unlock()

	var err error
	switch {
	case !pending && is != (stored{}):
		if err = m.cfg.Store.Delete(string(uid)); err == nil {
			is = stored{}
		} else {
			time.AfterFunc(retryDelete, func() {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.saveSoon(uid)
			})
		}
	case worth && is.version < version:
		var value []byte
		if value, err = json.Marshal(rec); err == nil {
			err = m.cfg.Store.Write(string(uid), value)
		}
		// A write that failed may still reach the disk: the value has to be deleted
		// later as if it were there.
		if is.perhaps = true; err == nil {
			is = stored{version: version}
		}
	}
	if err != nil {
		m.cfg.Log.Warn("failed to store unpublished status", zap.String("uid", string(uid)), zap.Error(err))
	}
}

// parseRecord parses a value of the store. It returns an error for a value under another pod's key,
// since the value would be published as that pod's final status.
func parseRecord(key string, value []byte) (r record, err error) {
	if err := json.Unmarshal(value, &r); err != nil {
		return r, fmt.Errorf("decode stored status %s: %w", key, err)
	}
	if string(r.Meta.UID) != key || r.Meta.Name == "" {
		return r, fmt.Errorf("stored status %s: it is for pod %s/%s with UID %q; want a name and this UID", key, r.Meta.Namespace, r.Meta.Name, r.Meta.UID)
	}
	return r, nil
}
