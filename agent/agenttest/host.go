package agenttest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/podworker"
	"github.com/nodewright/nodewright/record"
	"github.com/nodewright/nodewright/volumemgr"
)

// Host is a [part.Host] in memory. It also implements the interfaces of package part
// for single parts, such as part.Mirrors. All methods may be called from any goroutine;
// the zero value is not usable, see [NewHost].
type Host struct {
	listed, settled chan struct{}
	dir             string

	mu       sync.Mutex
	pods     []*v1.Pod
	mirrors  []*v1.Pod
	statuses map[types.UID]v1.PodStatus
	lives    map[types.UID]uint32
	workers  map[types.UID]podworker.Status
	seen     map[types.UID]*observed.Pod
	claims   map[string]map[string]*resourceapi.ResourceClaim
	storage  storage
	partial  bool
	calls    []string
	facts    []record.Fact
	end      func(*v1.Pod, podlife.Cause) error
	check    func(current, wanted *v1.Pod) (reason, message string)
}

var (
	_ part.Host    = (*Host)(nil)
	_ part.Resizes = (*Host)(nil)
	_ part.Mirrors = (*Host)(nil)
	_ part.Claims  = (*Host)(nil)
	_ part.Storage = (*Host)(nil)
	_ part.Garbage = (*Host)(nil)

	_ part.VolumeMeter = (*Host)(nil)
	_ part.Records     = (*Host)(nil)
)

// NewHost returns a host without pods, whose runtime has not been listed.
func NewHost(t testing.TB) *Host {
	return &Host{
		listed: make(chan struct{}), settled: make(chan struct{}), dir: t.TempDir(),
		statuses: map[types.UID]v1.PodStatus{}, lives: map[types.UID]uint32{}, workers: map[types.UID]podworker.Status{},
		seen: map[types.UID]*observed.Pod{}, claims: map[string]map[string]*resourceapi.ResourceClaim{},
	}
}

// List closes the channel of Listed, as after the first list of the runtime.
func (h *Host) List() { close(h.listed) }

// Settle closes the channel of Settled, as when every source has delivered.
func (h *Host) Settle() { close(h.settled) }

// SetPartial sets whether a source has delivered only its stored pods so far.
func (h *Host) SetPartial(partial bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.partial = partial
}

// SetPods sets the pods that the sources want. They are active unless their status shows that they
// have ended.
func (h *Host) SetPods(pods ...*v1.Pod) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pods = slices.Clone(pods)
}

// SetMirrors sets the mirrors that the cluster has.
func (h *Host) SetMirrors(pods ...*v1.Pod) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mirrors = slices.Clone(pods)
}

// SetStatus sets the status that the Host reports of a pod.
func (h *Host) SetStatus(uid types.UID, st v1.PodStatus) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.statuses[uid] = st
}

// SetWorker sets the state of a pod's worker.
func (h *Host) SetWorker(st podworker.Status) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.workers[st.UID] = st
}

// SetObserved sets the state of a pod in the runtime.
func (h *Host) SetObserved(pod *observed.Pod) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen[pod.UID] = pod
}

// SetClaim adds a ResourceClaim of the sources.
func (h *Host) SetClaim(c *resourceapi.ResourceClaim) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.claims[c.Namespace] == nil {
		h.claims[c.Namespace] = map[string]*resourceapi.ResourceClaim{}
	}
	h.claims[c.Namespace][c.Name] = c
}

// OnEnd sets the function that the method End calls, and whose result End returns. If fn is nil,
// End returns nil.
func (h *Host) OnEnd(fn func(*v1.Pod, podlife.Cause) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end = fn
}

// OnCheckResize sets the function whose results CheckResize returns. If fn is nil, every resize
// is allowed.
func (h *Host) OnCheckResize(fn func(current, wanted *v1.Pod) (reason, message string)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.check = fn
}

// Record implements [part.Records].
func (h *Host) Record(e record.Entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.facts = append(h.facts, e.Fact)
}

// Recorded returns the facts that the part has recorded.
func (h *Host) Recorded() []record.Fact {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.facts)
}

// Calls returns and clears the recorded calls, a line each: "resync uid", "retry uid", "readmit",
// "housekeep", "event ns/name Type Reason: message", "node event Type Reason: message", "end
// ns/name grace=5", "update ns/name", "republish uid", "reconcile ns/name".
func (h *Host) Calls() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.calls
	h.calls = nil
	return out
}

func (h *Host) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, fmt.Sprintf(format, args...))
}

func key(pod *v1.Pod) string { return pod.Namespace + "/" + pod.Name }

// Pods implements part.Pods.
func (h *Host) Pods() []*v1.Pod {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.pods)
}

// Pod implements part.Pods.
func (h *Host) Pod(uid types.UID) (*v1.Pod, bool) {
	return find(h.Pods(), func(p *v1.Pod) bool { return p.UID == uid })
}

func find(pods []*v1.Pod, match func(*v1.Pod) bool) (*v1.Pod, bool) {
	if i := slices.IndexFunc(pods, match); i >= 0 {
		return pods[i], true
	}
	return nil, false
}

// SetLife sets the number of a pod's life.
func (h *Host) SetLife(uid types.UID, n uint32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lives[uid] = n
}

// Life implements part.Mirrors.
func (h *Host) Life(pod *v1.Pod) podlife.Life {
	h.mu.Lock()
	defer h.mu.Unlock()
	return podlife.Life{UID: pod.UID, N: h.lives[pod.UID]}
}

// ActivePods implements part.Pods.
func (h *Host) ActivePods() []*v1.Pod {
	return slices.DeleteFunc(h.Pods(), func(p *v1.Pod) bool {
		st, ok := h.Status(p.UID)
		return ok && podmeta.IsTerminal(st.Phase)
	})
}

// Status implements part.Pods.
func (h *Host) Status(uid types.UID) (v1.PodStatus, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	st, ok := h.statuses[uid]
	return *st.DeepCopy(), ok
}

// Phase implements part.Pods.
func (h *Host) Phase(uid types.UID) (v1.PodPhase, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	st, ok := h.statuses[uid]
	return st.Phase, ok
}

// Worker implements part.Pods.
func (h *Host) Worker(uid types.UID) (podworker.Status, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	st, ok := h.workers[uid]
	return st, ok
}

// AllReady implements part.Pods.
func (h *Host) AllReady() bool {
	select {
	case <-h.settled:
		return true
	default:
		return false
	}
}

// Want implements part.Pods.
func (h *Host) Want(uid types.UID) podmgr.Want {
	pod, _ := h.Pod(uid)
	h.mu.Lock()
	defer h.mu.Unlock()
	w := podmgr.Want{Pod: pod, By: podlife.Confirmed}
	switch {
	case !h.AllReady():
		w.By = podlife.Unheard
	case h.partial:
		w.By = podlife.Remembered
	}
	return w
}

// Settled implements part.Pods.
func (h *Host) Settled() <-chan struct{} { return h.settled }

// Dir implements part.Pods.
func (h *Host) Dir(uid types.UID) string { return filepath.Join(h.dir, "pods", string(uid)) }

// Listed implements part.Runtime.
func (h *Host) Listed() <-chan struct{} { return h.listed }

// RuntimePods implements part.Runtime.
func (h *Host) RuntimePods() []observed.Listed {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []observed.Listed
	for _, p := range h.seen {
		l := observed.Listed{UID: p.UID, Name: p.Name, Namespace: p.Namespace}
		for i := range p.Sandboxes {
			l.Sandboxes = append(l.Sandboxes, observed.Item{ID: p.Sandboxes[i].ID, State: p.Sandboxes[i].State})
		}
		for i := range p.Containers {
			l.Containers = append(l.Containers, observed.Item{ID: p.Containers[i].ID, State: p.Containers[i].State})
		}
		out = append(out, l)
	}
	slices.SortFunc(out, func(x, y observed.Listed) int { return cmp.Compare(x.UID, y.UID) })
	return out
}

// Observed implements part.Runtime. If the test has not set a state for the pod, the View shows a
// pod that is gone.
func (h *Host) Observed(uid types.UID) observed.View {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.seen[uid]; p != nil {
		return observed.View{Pod: p, Depth: observed.Whole}
	}
	return observed.View{Pod: &observed.Pod{UID: uid, ObservedAt: time.Now()}, Depth: observed.Whole}
}

// Observe implements part.Runtime.
func (h *Host) Observe(ctx context.Context, uid types.UID) (*observed.Pod, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return h.Observed(uid).Pod, nil
}

// Resync implements part.Host.
func (h *Host) Resync(uid types.UID) bool {
	h.note("resync %s", uid)
	_, ok := h.Worker(uid)
	return ok
}

// Retry implements part.Host.
func (h *Host) Retry(uid types.UID) { h.note("retry %s", uid) }

// Readmit implements part.Host.
func (h *Host) Readmit() { h.note("readmit") }

// Housekeep implements part.Host.
func (h *Host) Housekeep() { h.note("housekeep") }

// Event implements part.Host.
func (h *Host) Event(pod *v1.Pod, _ map[string]string, eventType, reason, message string) {
	h.note("event %s %s %s: %s", key(pod), eventType, reason, message)
}

// NodeEvent implements part.Host.
func (h *Host) NodeEvent(eventType, reason, message string) {
	h.note("node event %s %s: %s", eventType, reason, message)
}

// ErrNoEnd is the error of End if its context ends first.
var ErrNoEnd = errors.New("the pod has not ended")

// End implements part.Host.
func (h *Host) End(ctx context.Context, pod *v1.Pod, cause podlife.Cause) error {
	h.note("end %s grace=%d", key(pod), podlife.GraceSeconds(pod, cause))
	h.mu.Lock()
	end := h.end
	h.mu.Unlock()
	if ctx.Err() != nil {
		return errors.Join(ErrNoEnd, ctx.Err())
	}
	if end == nil {
		return nil
	}
	return end(pod, cause)
}

// CheckResize implements part.Resizes.
func (h *Host) CheckResize(current, wanted *v1.Pod) (reason, message, detail string) {
	h.mu.Lock()
	check := h.check
	h.mu.Unlock()
	if check == nil {
		return "", "", ""
	}
	reason, message = check(current, wanted)
	if reason == v1.PodReasonInfeasible {
		detail = "parttest"
	}
	return reason, message, detail
}

// Update implements part.Resizes.
func (h *Host) Update(pod *v1.Pod) { h.note("update %s", key(pod)) }

// PodByName implements part.Mirrors.
func (h *Host) PodByName(namespace, name string) (*v1.Pod, bool) {
	return find(h.Pods(), func(p *v1.Pod) bool { return p.Namespace == namespace && p.Name == name })
}

// Mirror implements part.Mirrors.
func (h *Host) Mirror(namespace, name string) (*v1.Pod, bool) {
	return find(h.Mirrors(), func(p *v1.Pod) bool { return p.Namespace == namespace && p.Name == name })
}

// Mirrors implements part.Mirrors.
func (h *Host) Mirrors() []*v1.Pod {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.mirrors)
}

// Terminating implements part.Mirrors.
func (h *Host) Terminating(fullName string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.workers {
		if podmeta.FullName(w.Namespace, w.Name) == fullName && w.Kind == podworker.Terminating {
			return true
		}
	}
	return false
}

// Republish implements part.Mirrors.
func (h *Host) Republish(uid types.UID) { h.note("republish %s", uid) }

// Reconcile implements part.Mirrors.
func (h *Host) Reconcile(pod *v1.Pod) { h.note("reconcile %s", key(pod)) }

// storage has the objects of volumes.
type storage struct {
	secrets []*v1.Secret
	claims  []*v1.PersistentVolumeClaim
	volumes []*v1.PersistentVolume
}

// SetStorage sets the Secrets, claims and persistent volumes that the sources have.
func (h *Host) SetStorage(secrets []*v1.Secret, claims []*v1.PersistentVolumeClaim, volumes []*v1.PersistentVolume) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.storage = storage{secrets, claims, volumes}
}

// Secrets implements part.Storage.
func (h *Host) Secrets(namespace string) map[string]*v1.Secret {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[string]*v1.Secret{}
	for _, s := range h.storage.secrets {
		if s.Namespace == namespace {
			out[s.Name] = s
		}
	}
	return out
}

// Claim implements part.Storage.
func (h *Host) Claim(namespace, name string) (*v1.PersistentVolumeClaim, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.storage.claims {
		if c.Namespace == namespace && c.Name == name {
			return c, true
		}
	}
	return nil, false
}

// Volume implements part.Storage.
func (h *Host) Volume(name string) (*v1.PersistentVolume, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, v := range h.storage.volumes {
		if v.Name == name {
			return v, true
		}
	}
	return nil, false
}

// VolumesChanged implements part.Storage; Calls has "volumes changed Kind ns/name".
func (h *Host) VolumesChanged(r volumemgr.Ref) {
	h.note("volumes changed %s %s/%s", r.Kind, r.Namespace, r.Name)
}

// ResourceClaims implements part.Claims.
func (h *Host) ResourceClaims(namespace string) map[string]*resourceapi.ResourceClaim {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[string]*resourceapi.ResourceClaim{}
	for name, c := range h.claims[namespace] {
		out[name] = c
	}
	return out
}

// VolumeStats implements part.VolumeMeter: there are no volumes.
func (h *Host) VolumeStats(ctx context.Context, _ types.UID) ([]volumemgr.Stats, error) {
	return nil, ctx.Err()
}

// KnownTerminated implements part.Garbage.
func (h *Host) KnownTerminated(uid types.UID) bool {
	w, ok := h.Worker(uid)
	return ok && w.Kind == podworker.Terminated
}

// ContentRemovable implements part.Garbage. It returns true if no source wants the pod and the
// pod has no worker.
func (h *Host) ContentRemovable(uid types.UID) bool {
	_, wanted := h.Pod(uid)
	_, works := h.Worker(uid)
	return !wanted && !works
}

// PruneImages implements part.Garbage.
func (h *Host) PruneImages(ctx context.Context, _ []string, _ time.Time) error { return ctx.Err() }

// HungStore is a [part.Store] on a disk that hangs. Every call blocks until Release is called,
// and then behaves as if the store were empty. It counts the calls.
type HungStore struct {
	once sync.Once
	free chan struct{}

	mu    sync.Mutex
	calls int
}

func (s *HungStore) hang() {
	s.once.Do(func() { s.free = make(chan struct{}) })
	s.mu.Lock()
	s.calls++
	s.mu.Unlock()
	<-s.free
}

// Release lets all hanging calls return. Later calls do not hang.
func (s *HungStore) Release() {
	s.once.Do(func() { s.free = make(chan struct{}) })
	close(s.free)
}

// Calls returns the number of calls.
func (s *HungStore) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// Read implements part.Store.
func (s *HungStore) Read(string) ([]byte, error) { s.hang(); return nil, errNothing }

// Write implements part.Store.
func (s *HungStore) Write(string, []byte) error { s.hang(); return nil }

// Delete implements part.Store.
func (s *HungStore) Delete(string) error { s.hang(); return nil }

// Keys implements part.Store.
func (s *HungStore) Keys() ([]string, error) { s.hang(); return nil, nil }

var errNothing = fmt.Errorf("no value: %w", fs.ErrNotExist)
