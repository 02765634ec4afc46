package podsync

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/statusmgr"
)

// SinkClient makes the calls: what [kubeapi.Client.Once] returns, since statusmgr
// does what is to be done about a server that is busy.
type SinkClient interface {
	Get(ctx context.Context, r kubeapi.Resource, k kubeapi.Key, into runtime.Object, opts ...metav1.GetOptions) error
	Patch(ctx context.Context, r kubeapi.Resource, k kubeapi.Key, kind types.PatchType, patch []byte, into runtime.Object, subresources ...string) error
	Delete(ctx context.Context, r kubeapi.Resource, k kubeapi.Key, opts metav1.DeleteOptions) error
}

// SinkPods knows the newest version of a pod that the API server told of: a
// [Source]. It is shared and not changed. What is older than the last start is no such
// version: the difference to it, sent to a pod that is over, would show its containers running.
type SinkPods interface {
	Pod(namespace, name string) (*v1.Pod, bool)
}

// SinkConfig holds what a Sink needs. Client is required.
type SinkConfig struct {
	Client SinkClient
	// Pods spares a GET of each pod before its first PATCH; there is one.
	Pods SinkPods
	// Ended is called with the first version of a pod whose phase is terminal, before Update
	// returns: a store of pods has to have that version before the status counts as published, or
	// a start without the server runs the pod again. It is called from any goroutine, and should
	// not block on a disk that hangs; nil is not called. See [Source.Ended].
	Ended func(ctx context.Context, p *v1.Pod)
}

// Sink publishes the statuses of pods to the API server: the
// [statusmgr.Sink] of a node of a cluster.
//
//	sink, err := podsync.NewSink(podsync.SinkConfig{Client: client.Once(), Pods: source})
//	...
//	statuses, err := statusmgr.New(statusmgr.Config{Sink: sink, Parallel: 8})
//
// A status is one PATCH of the status subresource, a strategic merge patch of
// what differs from the newest version of the pod that this node knows: the one
// that its watch told of, or the one that the last PATCH returned. Nothing is
// read before it. What others write stays as it is: their conditions, the
// statuses of resource claims.
//
// The patch and the deletion of a pod that is over name the pod's UID, so that
// they never meet another pod of that name: that one, and a pod that is not
// there, are [statusmgr.ErrGone]. When the server says that they conflict, the
// pod is read and, if it is still the one, patched once more.
//
// # Faults
//
// Errors are for [statusmgr.Manager] to try again, with back-off, and later if
// the server says when (429, 503): until then calls for that pod end at once
// with the same error. Calls of different pods run side by side, as many as
// statusmgr allows, so that one that is slow holds up no other.
//
// A status never goes back, even if it was computed before an outage: a pod
// that the server shows as Succeeded or Failed stays so, and nothing more of it is
// published until all of its containers have ended; of two generations that were
// observed the later one counts.
//
// Its methods may be called from any goroutine.
type Sink struct {
	cfg SinkConfig

	mu sync.Mutex
	// pods has what the last calls told, by UID; entries go after keep.
	pods   map[types.UID]known
	counts SinkCounts
}

// SinkCounts are what became of what was to be published since the Sink was made.
type SinkCounts struct {
	Patched   uint64 // statuses that the server took
	Same      uint64 // statuses that it had already
	Deleted   uint64 // pods
	Gone      uint64 // pods that it does not have any more
	Conflicts uint64 // patches that were made again on what it has
	Failed    uint64 // statuses and deletions that were not taken
}

// Counts returns them.
func (s *Sink) Counts() SinkCounts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// count adds to one of them.
func (s *Sink) count(add func(*SinkCounts)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	add(&s.counts)
}

// known is what the last calls for a pod told.
type known struct {
	version string // of status; "" if there is none
	status  v1.PodStatus
	wait    time.Time // before this there is no use in trying again: err
	err     error
	at      time.Time
}

// keep is how long what a call told is kept: the watch has told it long before. It
// bounds the memory to the pods of ten minutes.
const keep = 10 * time.Minute

// NewSink checks cfg and returns a Sink.
func NewSink(cfg SinkConfig) (*Sink, error) {
	if cfg.Client == nil {
		return nil, errors.New("podsync: SinkConfig.Client is required")
	}
	return &Sink{cfg: cfg, pods: map[types.UID]known{}}, nil
}

// Update publishes a pod's status. It blocks for at most four calls to the server.
func (s *Sink) Update(ctx context.Context, pod *v1.Pod, status v1.PodStatus) error {
	// Not an outcome: the server was not asked, and the time that it wants does not begin
	// anew with each try that is too early.
	if err := s.mustWait(pod); err != nil {
		return err
	}
	api, err := s.before(ctx, pod)
	if err == nil {
		err = s.patch(ctx, pod, api, status)
	}
	// The name is another pod's, or the pod has changed in a way that the patch does
	// not allow: once more on what the server has now. A second conflict is for
	// statusmgr's back-off.
	if apierrors.IsConflict(err) {
		s.count(func(c *SinkCounts) { c.Conflicts++ })
		if api, err = s.read(ctx, pod); err == nil {
			err = s.patch(ctx, pod, api, status)
		}
	}
	return s.outcome(pod, "status", err)
}

// Delete deletes a pod of which nothing is left. A pod that is not there is ErrGone.
func (s *Sink) Delete(ctx context.Context, pod *v1.Pod) error {
	if err := s.mustWait(pod); err != nil {
		return err
	}
	var now int64
	err := s.cfg.Client.Delete(ctx, kubeapi.Pods, sinkKeyOf(pod), metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
	// The precondition failed, or the server could not decide.
	if apierrors.IsConflict(err) {
		_, err = s.read(ctx, pod) // which reports whether it is another one
		if err == nil {
			err = errors.New("the API server reports a conflict, and has the pod")
		}
	}
	if err == nil {
		s.forget(pod.UID)
		s.count(func(c *SinkCounts) { c.Deleted++ })
	}
	return s.outcome(pod, "deletion", err)
}

// before is the newest status that is known to be published.
func (s *Sink) before(ctx context.Context, pod *v1.Pod) (v1.PodStatus, error) {
	s.mu.Lock()
	k := s.pods[pod.UID]
	s.mu.Unlock()
	// What the last call returned may be newer than what the watch has told: the larger
	// version is the later one.
	if s.cfg.Pods != nil {
		p, ok := s.cfg.Pods.Pod(pod.Namespace, pod.Name)
		if ok && p.UID == pod.UID && (k.version == "" || kubeapi.Older(k.version, p.ResourceVersion)) {
			return p.Status, nil
		}
	}
	if k.version == "" {
		return s.read(ctx, pod)
	}
	return k.status, nil
}

// read asks the server. A pod of another UID is ErrGone.
func (s *Sink) read(ctx context.Context, pod *v1.Pod) (v1.PodStatus, error) {
	var p v1.Pod
	if err := s.cfg.Client.Get(ctx, kubeapi.Pods, sinkKeyOf(pod), &p); err != nil {
		return v1.PodStatus{}, err
	}
	if p.UID != pod.UID {
		return v1.PodStatus{}, fmt.Errorf("pod has UID %s: %w", p.UID, statusmgr.ErrGone)
	}
	s.learn(&p)
	s.over(ctx, &p)
	return p.Status, nil
}

// patch publishes the difference between what the API has and status, and notes what
// the server made of it.
func (s *Sink) patch(ctx context.Context, pod *v1.Pod, api, status v1.PodStatus) error {
	body, err := patchOf(pod.UID, api, forward(api, status))
	if err != nil {
		return err
	}
	if body == nil {
		s.count(func(c *SinkCounts) { c.Same++ })
		return nil
	}
	var p v1.Pod
	if err := s.cfg.Client.Patch(ctx, kubeapi.Pods, sinkKeyOf(pod), types.StrategicMergePatchType, body, &p, "status"); err != nil {
		return err
	}
	s.count(func(c *SinkCounts) { c.Patched++ })
	// The patch names the UID, so that this is a check of the server.
	if p.UID == pod.UID {
		s.learn(&p)
		if !podmeta.IsTerminal(api.Phase) {
			s.over(ctx, &p)
		}
	}
	return nil
}

// over calls SinkConfig.Ended for a pod in a terminal phase.
func (s *Sink) over(ctx context.Context, p *v1.Pod) {
	if s.cfg.Ended != nil && podmeta.IsTerminal(p.Status.Phase) {
		s.cfg.Ended(ctx, p)
	}
}

// learn notes what a call returned.
func (s *Sink) learn(p *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	// Here and not by a timer: a Sink without calls has nothing that grows.
	for uid, k := range s.pods {
		if now.Sub(k.at) > keep {
			delete(s.pods, uid)
		}
	}
	s.pods[p.UID] = known{version: p.ResourceVersion, status: p.Status, at: now}
}

// forget drops what is known of a pod that is gone.
func (s *Sink) forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, uid)
}

// mustWait is the error of a call that is too early. It is nil once the time that the
// server has asked for is over.
func (s *Sink) mustWait(pod *v1.Pod) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.pods[pod.UID]; time.Now().Before(k.wait) {
		return k.err
	}
	return nil
}

// outcome notes what became of a call and says it as statusmgr wants to hear it.
func (s *Sink) outcome(pod *v1.Pod, what string, err error) error {
	// Nothing of a pod that is gone is kept: its next status, if any, begins with a
	// GET.
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		s.forget(pod.UID)
		s.count(func(c *SinkCounts) { c.Gone++ })
		return fmt.Errorf("%s of %s: %w", what, sinkKeyOf(pod), statusmgr.ErrGone)
	case errors.Is(err, statusmgr.ErrGone):
		s.forget(pod.UID)
		s.count(func(c *SinkCounts) { c.Gone++ })
	default:
		s.count(func(c *SinkCounts) { c.Failed++ })
	}
	err = fmt.Errorf("%s of %s: %w", what, sinkKeyOf(pod), err)
	// A server that is busy is not asked again by other changes of this pod.
	if asked, ok := kubeapi.RetryAfter(err); ok {
		s.mu.Lock()
		k := s.pods[pod.UID]
		k.at = time.Now()
		k.wait, k.err = k.at.Add(asked), err
		s.pods[pod.UID] = k
		s.mu.Unlock()
	}
	return err
}

// sinkKeyOf names a pod for calls.
func sinkKeyOf(p *v1.Pod) kubeapi.Key { return kubeapi.Key{Namespace: p.Namespace, Name: p.Name} }
