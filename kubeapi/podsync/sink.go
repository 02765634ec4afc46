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

// SinkClient makes the calls of a Sink. Use the result of [kubeapi.Client.Once]:
// statusmgr repeats calls to a busy server itself.
type SinkClient interface {
	Get(ctx context.Context, r kubeapi.Resource, k kubeapi.Key, into runtime.Object, opts ...metav1.GetOptions) error
	Patch(ctx context.Context, r kubeapi.Resource, k kubeapi.Key, kind types.PatchType, patch []byte, into runtime.Object, subresources ...string) error
	Delete(ctx context.Context, r kubeapi.Resource, k kubeapi.Key, opts metav1.DeleteOptions) error
}

// SinkPods returns the newest version of a pod that the API server has sent since the
// start; a [Source] implements it. The pod is shared and must not be changed. Versions
// from before the start do not count: a patch against one of them could show containers
// of a finished pod as running.
type SinkPods interface {
	Pod(namespace, name string) (*v1.Pod, bool)
}

// SinkConfig configures a [Sink]. Client is required.
type SinkConfig struct {
	Client SinkClient
	// Pods has the version of a pod from which the first PATCH of the pod is computed. If it is
	// nil, the Sink gets each pod from the server before its first PATCH.
	Pods SinkPods
	// Ended is called with the first version of a pod whose phase is terminal, before Update
	// returns. It should store that version for the next start of the agent: if the API server
	// does not answer then, the agent would otherwise run the finished pod again. Ended is called
	// from any goroutine, and should not block on a disk that hangs. If Ended is nil, nothing is
	// called. See [Source.Ended].
	Ended func(ctx context.Context, p *v1.Pod)
}

// Sink publishes the statuses of pods to the API server: it implements
// [statusmgr.Sink] for a node of a cluster.
//
//	sink, err := podsync.NewSink(podsync.SinkConfig{Client: client.Once(), Pods: source})
//	...
//	statuses, err := statusmgr.New(statusmgr.Config{Sink: sink, Parallel: 8})
//
// A status is published by one PATCH of the status subresource. It is a strategic merge
// patch with the differences to the newest version of the pod that this node knows,
// from its watch or from the last PATCH; the pod is not read first. Fields of other
// writers are kept: their conditions, and the statuses of resource claims.
//
// Patches and deletions name the pod's UID, so that they never affect another pod
// of that name. If the pod does not exist, or another one has its name, the error
// is [statusmgr.ErrGone]. After a conflict the pod is read and, if it still is the
// same, patched once more.
//
// # Faults
//
// [statusmgr.Manager] repeats failed calls with back-off. If the server requests a
// longer wait (429, 503), calls for that pod return the same error at once until the
// wait is over. Calls for different pods run in parallel, as many as statusmgr allows,
// so that a slow one does not delay others.
//
// A status never goes back, even if it was computed before an outage: a pod that is
// Succeeded or Failed at the server stays so, and nothing more is published about it
// until all of its containers have ended. The larger observed generation is kept.
//
// Its methods may be called from any goroutine.
type Sink struct {
	cfg SinkConfig

	mu sync.Mutex
	// pods has the results of the last calls by UID. An entry is removed after the time keep.
	pods map[types.UID]known
}

// known is what the last calls for a pod returned.
type known struct {
	version string // of status; "" if there is none
	status  v1.PodStatus
	wait    time.Time // calls before this time return err
	err     error
	at      time.Time
}

// keep is how long the result of a call is kept in memory. The watch returns the same
// version much earlier.
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
	// The error is not an answer of the server: a call that comes too early must not extend the
	// requested delay.
	if err := s.mustWait(pod); err != nil {
		return err
	}
	api, err := s.before(ctx, pod)
	if err == nil {
		err = s.patch(ctx, pod, api, status)
	}
	// The name belongs to another pod, or the patch does not apply to the server's version of the
	// pod. The call is repeated once with the server's current version. A second conflict is left
	// to statusmgr's back-off.
	if apierrors.IsConflict(err) {
		if api, err = s.read(ctx, pod); err == nil {
			err = s.patch(ctx, pod, api, status)
		}
	}
	return s.outcome(pod, "status", err)
}

// Delete deletes a pod that has ended completely. A missing pod is ErrGone.
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
		_, err = s.read(ctx, pod) // returns ErrGone if the pod is another one
		if err == nil {
			err = errors.New("the API server reports a conflict, but its pod has the expected UID")
		}
	}
	if err == nil {
		s.forget(pod.UID)
	}
	return s.outcome(pod, "deletion", err)
}

// before returns the newest published status that is known.
func (s *Sink) before(ctx context.Context, pod *v1.Pod) (v1.PodStatus, error) {
	s.mu.Lock()
	k := s.pods[pod.UID]
	s.mu.Unlock()
	// The result of the last call may be newer than the watch: the larger version
	// is used.
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

// read reads the pod from the server. A pod with another UID is ErrGone.
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

// patch publishes the difference between the API's status and status, and stores
// the server's result.
func (s *Sink) patch(ctx context.Context, pod *v1.Pod, api, status v1.PodStatus) error {
	body, err := patchOf(pod.UID, api, forward(api, status))
	if err != nil {
		return err
	}
	if body == nil {
		return nil
	}
	var p v1.Pod
	if err := s.cfg.Client.Patch(ctx, kubeapi.Pods, sinkKeyOf(pod), types.StrategicMergePatchType, body, &p, "status"); err != nil {
		return err
	}
	// The patch names the UID, so that this is a check of the server.
	if p.UID == pod.UID {
		s.learn(&p)
		if !podmeta.IsTerminal(api.Phase) {
			s.over(ctx, &p)
		}
	}
	return nil
}

// over calls SinkConfig.Ended if the pod has a terminal phase.
func (s *Sink) over(ctx context.Context, p *v1.Pod) {
	if s.cfg.Ended != nil && podmeta.IsTerminal(p.Status.Phase) {
		s.cfg.Ended(ctx, p)
	}
}

// learn stores the version of a pod that a call returned.
func (s *Sink) learn(p *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	// Done here instead of by a timer: without calls, no entries are added.
	for uid, k := range s.pods {
		if now.Sub(k.at) > keep {
			delete(s.pods, uid)
		}
	}
	s.pods[p.UID] = known{version: p.ResourceVersion, status: p.Status, at: now}
}

// forget drops the entry of a pod that is gone.
func (s *Sink) forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, uid)
}

// mustWait returns the error of the last call for a pod, until the time that the server
// has requested with it has passed, and nil afterwards.
func (s *Sink) mustWait(pod *v1.Pod) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.pods[pod.UID]; time.Now().Before(k.wait) {
		return k.err
	}
	return nil
}

// outcome stores the result of a call and converts it to statusmgr's errors.
func (s *Sink) outcome(pod *v1.Pod, what string, err error) error {
	// The entry of a pod that is gone is dropped: its next status, if any, starts
	// with a GET.
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		s.forget(pod.UID)
		return fmt.Errorf("%s of %s: %w", what, sinkKeyOf(pod), statusmgr.ErrGone)
	case errors.Is(err, statusmgr.ErrGone):
		s.forget(pod.UID)
	}
	err = fmt.Errorf("%s of %s: %w", what, sinkKeyOf(pod), err)
	// A busy server is not called again for other changes of this pod.
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
