package podsync

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/internal/manifestguard"
	"github.com/nodewright/nodewright/internal/wake"
	"github.com/nodewright/nodewright/kubeapi/seal"
)

// SourceMemory stores values over a restart, readable only by their owner: a
// [github.com/nodewright/nodewright/checkpoint.Store]. Values of different keys are
// written concurrently.
type SourceMemory interface {
	Keys() ([]string, error)
	// Read returns fs.ErrNotExist for a missing value.
	Read(key string) ([]byte, error)
	Write(key string, value []byte) error
	Delete(key string) error
}

const (
	// statusEvery is the shortest time between two writes of a pod of which only the
	// status has changed: the node has its own records of the status.
	statusEvery = time.Minute
	// writeAgain is the pause after a failed write.
	writeAgain = 30 * time.Second
	// maxObject is the approximate limit of a stored object's size in memory, in bytes:
	// ten times the API server's limit for a request.
	maxObject = 32 << 20
)

// item is a value to store.
type item struct {
	key string
	is  metav1.Object
}

// itemKey returns the key of an object: the UID of a pod, so that two pods of one
// name differ, and otherwise a hash of the name, which may be longer than a file's.
// FNV does not protect against collisions: an object that is read is compared with
// its key.
func itemKey(kind string, o metav1.Object) string {
	if kind == kindPod {
		return prefixes[kindPod] + string(o.GetUID())
	}
	h := fnv.New128a()
	_, _ = h.Write([]byte(o.GetNamespace() + "/" + o.GetName()))
	return prefixes[kind] + hex.EncodeToString(h.Sum(nil))
}

const kindPod = "Pod"

// prefixes begin the keys of each kind. They are on disks, and must not change.
var prefixes = map[string]string{kindPod: "pod-", kindConfigMap: "configmap-", kindSecret: "secret-", kindClaim: "claim-", kindVolume: "volume-", kindResource: "resourceclaim-"}

// keeper writes changes to the Memory in the background. Only its goroutine, and Run
// before and after it, use it, so that it has no lock. Concurrent writes use only its
// configuration. The fields have and unknown mirror the content of the Memory.
type keeper struct {
	memory SourceMemory
	seal   *seal.Sealer // nil: no Secrets are kept
	log    *zap.Logger
	signal wake.Signal

	have    map[string]saved
	unknown map[string]bool // keys whose values could not be decoded or decrypted
	failed  map[string]failure
	// failing means that the last write failed and was logged. So each outage has one log line.
	failing bool
}

// saved is the object written under a key.
type saved struct {
	is metav1.Object
	at time.Time
	// later is a newer version that the last comparison found and that differs from the saved one
	// only in its status, or nil if there is none.
	later metav1.Object
}

// failure is the failure of the last write or deletion of a key. The keeper checks for
// changes whenever any pod changes. It does not repeat a failed write at each check,
// since each check would repeat all of them on a failing disk.
type failure struct {
	is metav1.Object // the version that was not written; nil if a deletion failed
	at time.Time
}

// rests returns the time until the failed operation is repeated, or 0 if it is due. next is the
// version to write, or nil for a deletion. If another version failed, the result is 0.
func (f failure) rests(next metav1.Object) time.Duration {
	if (next == nil) != (f.is == nil) || next != nil && !same(f.is, next) && !statusOnly(f.is, next) {
		return 0
	}
	return max(0, writeAgain-time.Since(f.at))
}

// newKeeper returns a keeper, or nil if there is no Memory.
func newKeeper(cfg SourceConfig) *keeper {
	if cfg.Memory == nil {
		return nil
	}
	return &keeper{
		memory: cfg.Memory, seal: cfg.Seal, log: cfg.Log, signal: wake.New(),
		have: map[string]saved{}, unknown: map[string]bool{}, failed: map[string]failure{},
	}
}

// recall reads the stored state and uses it until the server answers. If k is nil, there is no
// stored state.
func (s *Source) recall(k *keeper) {
	if k == nil {
		return
	}
	pods, objects := k.recall()
	s.mu.Lock()
	defer s.mu.Unlock()
	// Objects come before pods, so that set finds them when it counts their users.
	for _, o := range objects {
		r := Ref{kindOf(o), o.GetNamespace(), o.GetName()}
		s.refs[r] = &object{ref: r, is: o, again: wake.New()}
	}
	for _, p := range pods {
		s.set(p)
	}
	// Objects without a pod were left by a crash between two writes.
	for r, o := range s.refs {
		if o.users == 0 {
			delete(s.refs, r)
		}
	}
}

// wanted returns all items to store. complete reports whether stored values that are not among
// the items may be removed. It is false until the server has answered: before that, such a value
// may be a pod that could not be read. The caller calls done once it has tried to write all
// items.
func (s *Source) wanted() (items []item, complete bool, done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	items = make([]item, 0, len(s.pods)+len(s.refs))
	for _, e := range s.pods {
		items = append(items, item{e.key, cmp.Or(e.over, e.pod)})
	}
	for _, o := range s.refs {
		if o.is != nil {
			items = append(items, item{itemKey(o.ref.Kind, o.is), o.is})
		}
	}
	waiting := s.waiting
	s.waiting = nil
	return items, s.synced, func() {
		for _, kept := range waiting {
			close(kept)
		}
	}
}

// look makes the keeper check for changes to write. If k is nil, look does nothing.
func (k *keeper) look() {
	if k == nil {
		return
	}
	k.signal.Set()
}

// run writes until ctx ends. It may block on the disk; no other goroutine waits for
// it.
func (k *keeper) run(ctx context.Context, wanted func() ([]item, bool, func())) {
	// Initially nothing is due; the timer is set to any long time.
	again := time.NewTimer(time.Hour)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.signal:
		case <-again.C:
		}
		items, complete, done := wanted()
		if next := k.keep(items, complete, false); next > 0 {
			again.Reset(next)
		}
		done()
	}
}

// keepAll is called when Run ends. It writes everything that has changed.
func (k *keeper) keepAll(wanted func() ([]item, bool, func())) {
	items, complete, done := wanted()
	k.keep(items, complete, true)
	done()
}

// keep writes changed items and deletes values that are no longer wanted. If it did not write
// everything, it returns the time until the next try. If now is true, it also writes items whose
// write could wait.
func (k *keeper) keep(items []item, complete, now bool) (next time.Duration) {
	want := make(map[string]bool, len(items))
	var errs []error
	soonest := func(wait time.Duration) {
		if next == 0 || wait < next {
			next = wait
		}
	}
	var news []item
	for _, it := range items {
		// A Secret never reaches the disk in the clear unless the configuration says
		// so.
		if k.seal == nil && isSecret(it.key) {
			continue
		}
		want[it.key] = true
		old, ok := k.have[it.key]
		if ok && (old.is == it.is || same(old.is, it.is)) {
			continue
		}
		// Statuses that this node has published come back through the watch, often many in a
		// minute. They are not all written, to spare flash storage.
		if wait := statusEvery - time.Since(old.at); ok && !now && wait > 0 && (old.later == it.is || statusOnly(old.is, it.is)) {
			old.later = it.is
			k.have[it.key] = old
			soonest(wait)
			continue
		}
		if wait := k.failed[it.key].rests(it.is); !now && wait > 0 {
			soonest(wait)
			continue
		}
		news = append(news, it)
	}
	// A failed write does not prevent the others.
	for i, err := range k.writeAll(news) {
		if err != nil {
			errs = append(errs, err)
			k.failed[news[i].key] = failure{news[i].is, time.Now()}
			continue
		}
		delete(k.failed, news[i].key)
		delete(k.unknown, news[i].key)
		k.have[news[i].key] = saved{is: news[i].is, at: time.Now()}
	}
	// Deletions come last: if a crash prevents them, too much is stored, which the server's next
	// answer corrects.
	if complete {
		remove := func(key string) {
			if wait := k.failed[key].rests(nil); !now && wait > 0 {
				soonest(wait)
				return
			}
			errs = append(errs, k.delete(key))
		}
		for key := range k.have {
			if !want[key] {
				remove(key)
			}
		}
		for key := range k.unknown {
			remove(key)
		}
		maps.DeleteFunc(k.failed, func(key string, f failure) bool { return (f.is == nil) == want[key] })
	}
	err := errors.Join(errs...)
	if err != nil {
		soonest(writeAgain)
		if !k.failing {
			k.log.Error("failed to update local copies of API objects", zap.Error(err))
		}
	}
	k.failing = len(k.failed) > 0
	return next
}

// same reports whether two versions of an object are equal.
func same(a, b metav1.Object) bool {
	return a.GetUID() == b.GetUID() && a.GetResourceVersion() == b.GetResourceVersion()
}

// statusOnly reports whether two versions of a pod differ only in the node's own status and
// in irrelevant fields. A changed phase also counts as a difference, unless startMayWait
// returns true for the change.
func statusOnly(a, b metav1.Object) bool {
	p, ok := a.(*v1.Pod)
	q, ok2 := b.(*v1.Pod)
	return ok && ok2 && p.UID == q.UID && (p.Status.Phase == q.Status.Phase || startMayWait(p, q)) &&
		equality.Semantic.DeepEqual(p.Spec, q.Spec) && equality.Semantic.DeepEqual(p.DeletionTimestamp, q.DeletionTimestamp) &&
		equality.Semantic.DeepEqual(p.Labels, q.Labels) && equality.Semantic.DeepEqual(p.Annotations, q.Annotations)
}

// startMayWait reports whether the change from p to q is a start that need not be stored at
// once: after a crash, the pod's containers would be started again anyway. The start of a
// pod with a deadline, with init containers, or with containers that may end without a
// restart, has to be stored.
func startMayWait(p, q *v1.Pod) bool {
	return p.Status.Phase == v1.PodPending && q.Status.Phase == v1.PodRunning && len(q.Spec.InitContainers) == 0 &&
		q.Spec.RestartPolicy == v1.RestartPolicyAlways && q.Spec.ActiveDeadlineSeconds == nil
}

// delete removes a value. It is not an error if the value is missing.
func (k *keeper) delete(key string) error {
	if err := k.memory.Delete(key); err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.failed[key] = failure{at: time.Now()}
		return err
	}
	delete(k.failed, key)
	delete(k.have, key)
	delete(k.unknown, key)
	return nil
}

// isSecret reports whether a key belongs to a Secret.
func isSecret(key string) bool { return strings.HasPrefix(key, prefixes[kindSecret]) }

// writesAtOnce is the maximum number of concurrent writes. Several concurrent syncs of a disk
// take no longer than one.
const writesAtOnce = 8

// writeAll writes objects, and returns an error or nil for each.
func (k *keeper) writeAll(items []item) []error {
	errs := make([]error, len(items))
	slots := make(chan struct{}, writesAtOnce)
	var wg sync.WaitGroup
	for i, it := range items {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			errs[i] = k.write(it)
		})
	}
	wg.Wait()
	return errs
}

// write stores one object. A Secret is encrypted, and its key is authenticated together with the
// value, so that a value is not accepted under another key.
func (k *keeper) write(it item) error {
	b, err := json.Marshal(it.is)
	if err == nil && isSecret(it.key) {
		b, err = k.seal.Seal(it.key, b)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", it.key, err)
	}
	return k.memory.Write(it.key, b)
}

// recall returns all stored values that can be decoded and decrypted.
func (k *keeper) recall() (pods []*v1.Pod, objects []metav1.Object) {
	keys, err := k.memory.Keys()
	if err != nil {
		k.log.Error("failed to read stored state of the API server", zap.Error(err))
		return nil, nil
	}
	locked, cause := 0, error(nil)
	defer func() {
		if locked > 0 {
			k.log.Warn("failed to decrypt stored Secrets; reading them from the API server again", zap.Int("secrets", locked), zap.Error(cause))
		}
	}()
	for _, key := range keys {
		into := empty(key)
		if into == nil {
			// Other values may be in the same store.
			continue // not a value of this package
		}
		if err := k.read(key, into); err != nil {
			// Without a key, encrypted values are kept: the next start may have the key. Values
			// that were encrypted with another key are removed once the server has answered.
			noKey := errors.Is(err, seal.ErrNoKey)
			if !noKey {
				k.unknown[key] = true
			}
			if noKey || errors.Is(err, seal.ErrWrongKey) {
				locked, cause = locked+1, err
				continue
			}
			k.log.Error("failed to read stored object; reading it from the API server again", zap.String("key", key), zap.Error(err))
			continue
		}
		if p, ok := into.(*v1.Pod); ok {
			pods = append(pods, p)
		} else {
			objects = append(objects, into)
		}
	}
	return pods, objects
}

// empty returns an object into which the value of a key can be decoded.
func empty(key string) metav1.Object {
	switch {
	case strings.HasPrefix(key, prefixes[kindPod]):
		return &v1.Pod{}
	case strings.HasPrefix(key, prefixes[kindConfigMap]):
		return &v1.ConfigMap{}
	case isSecret(key):
		return &v1.Secret{}
	case strings.HasPrefix(key, prefixes[kindClaim]):
		return &v1.PersistentVolumeClaim{}
	case strings.HasPrefix(key, prefixes[kindVolume]):
		return &v1.PersistentVolume{}
	case strings.HasPrefix(key, prefixes[kindResource]):
		return &resourcev1.ResourceClaim{}
	}
	return nil
}

// read decodes the value of a key into into, and records it as saved.
func (k *keeper) read(key string, into metav1.Object) error {
	b, err := k.memory.Read(key)
	if err != nil {
		return err
	}
	// The value may have been written without a key.
	clear := !seal.Sealed(b)
	if b, err = k.seal.Unseal(key, b); err != nil {
		return err
	}
	// A file may be damaged or forged: its size in memory is checked before it is
	// decoded.
	if err := manifestguard.Decodable(b, into, maxObject); err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return err
	}
	// A value under another object's key must not replace that object.
	if itemKey(kindOf(into), into) != key {
		return fmt.Errorf("record has object %s; want %s", itemKey(kindOf(into), into), key)
	}
	if _, ok := into.(*v1.Secret); ok && clear && k.seal.Encrypts() {
		return nil // not recorded as saved, so that it is written again, encrypted
	}
	k.have[key] = saved{is: into, at: time.Now()}
	return nil
}

// kindOf returns the kind of an object that empty makes.
func kindOf(o metav1.Object) string {
	switch o.(type) {
	case *v1.Pod:
		return kindPod
	case *v1.Secret:
		return kindSecret
	case *v1.PersistentVolumeClaim:
		return kindClaim
	case *v1.PersistentVolume:
		return kindVolume
	case *resourcev1.ResourceClaim:
		return kindResource
	default:
		return kindConfigMap
	}
}
