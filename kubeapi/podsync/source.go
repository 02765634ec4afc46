package podsync

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nodewright/nodewright/internal/wake"
	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/seal"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podmgr"
)

// SourceClient makes the calls of a Source; [kubeapi.Client] implements it.
type SourceClient interface {
	kubeapi.ListWatcher
	Get(ctx context.Context, r kubeapi.Resource, k kubeapi.Key, into runtime.Object, opts ...metav1.GetOptions) error
}

// SourceConfig configures a [Source]. Client and NodeName are required; the zero
// value of every other field means the default named beside it.
type SourceConfig struct {
	Client   SourceClient
	NodeName string

	// Memory stores the last state over a restart. If it is nil, nothing is stored.
	Memory SourceMemory
	// Seal encrypts the Secrets in Memory. If it is nil, Secrets are not stored, and are read
	// from the server at each start. With seal.Clear they are stored unencrypted.
	Seal *seal.Sealer

	Log *zap.Logger // if nil, nothing is logged
}

const (
	sourceTimeout = time.Second     // how long the stored pods wait for the server's first answer
	gatherTime    = 2 * time.Second // how long a new pod waits for the objects that it refers to
	wipeGrace     = 5 * time.Minute // how long pods stay that a wiped server lacks
)

// withDefaults returns a copy of c in which fields that are 0 or nil have their defaults.
func (c SourceConfig) withDefaults() SourceConfig {
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

// validate reports all mistakes at once.
func (c SourceConfig) validate() error {
	var errs []error
	if c.Client == nil {
		errs = append(errs, errors.New("SourceConfig.Client is required"))
	}
	if c.NodeName == "" {
		errs = append(errs, errors.New("SourceConfig.NodeName is required"))
	}
	// A Seal without a Memory has no effect; most likely the Memory was forgotten.
	if c.Seal != nil && c.Memory == nil {
		errs = append(errs, errors.New("SourceConfig.Seal requires SourceConfig.Memory"))
	}
	return errors.Join(errs...)
}

// Source is the API server as a source of pods: the pods bound to this node, and
// the ConfigMaps, Secrets, PersistentVolumeClaims, ResourceClaims and
// PersistentVolumes that they refer to.
//
//	src, err := podsync.NewSource(podsync.SourceConfig{Client: client, NodeName: "edge-1", Memory: store})
//	...
//	pods, err := podmgr.New(podmgr.Config{Sources: []podmgr.Source{src}})
//
// One watch follows the pods. Each object that they refer to has a watch of its own,
// since a node may not read other objects. This watch begins with the first pod that
// refers to the object. It ends with the last one, or when the object is immutable.
// Claims and volumes are read again and again, since a node may not watch them: often
// while a pod waits for them. A ResourceClaim is also read when another pod begins to
// use it. Pods that have ended, and mirror pods, need no objects.
//
// A new pod is delivered when each of its objects has been read or is known to be
// missing, but after two seconds at the latest. So it does not start with errors about
// objects that arrive a moment later. The first snapshot is complete.
//
// # Offline
//
// With a Memory, the last pods and objects are stored, each in its own file; Secrets
// are encrypted, and stored only if there is a key. At the start, the stored pods and
// objects are delivered if the API server fails, or has not answered after a second.
// The server's answer replaces them: pods of the same UID are the same pods, and pods
// that it no longer has are terminated.
//
// Failures change nothing: while the server is away, hangs, or refuses the node's
// credentials (401, 403), the last state is used.
//
// A server whose store was wiped, or restored from a backup, is detected by a resource
// version lower than an earlier one. Pods that this server lacks are kept for five
// minutes, so that they can be restored at the server without a restart; after that, or
// when another pod takes their name, they are terminated gracefully like any deleted
// pod. An empty answer of a store with an intact history deletes all pods.
//
// A deletion is never undone: a pod that was once seen with a deletion timestamp
// keeps it.
//
// Its methods may be called from any goroutine.
type Source struct {
	cfg SourceConfig
	// gate is closed while the server does not answer, so that hundreds of objects
	// do not each try on their own.
	gate   kubeapi.Gate
	signal wake.Signal // set when there may be something to deliver

	// mu guards all fields below except run.wg.
	mu      sync.Mutex
	pods    map[kubeapi.Key]*entry
	refs    map[Ref]*object
	version string // of the server's last complete answer
	// synced never becomes false again. troubled may.
	synced    bool // the server has answered since the start
	troubled  bool // its last answer was an error
	waited    bool // sourceTimeout is over
	delivered bool // something was delivered
	partial   bool // the last delivery may have lacked pods
	changed   bool // since the last delivery
	run       running
	waiting   []chan struct{} // channels of calls of Ended, closed once Memory is written
}

// running is the state of Run's watches.
type running struct {
	ctx    context.Context // nil before Run
	memory *keeper         // nil before Run, and without a Memory
	wg     sync.WaitGroup
}

// entry is what a Source knows about one pod of the API server.
type entry struct {
	pod  *v1.Pod // never changed
	over *v1.Pod // a later version in a terminal phase that the watch has not delivered yet; nil
	out  *v1.Pod // the delivered version; nil before the first delivery
	key  string  // in Memory
	refs []Ref
	// due is the time at which the pod is delivered even if objects that it refers to are not
	// known yet.
	due       time.Time
	delivered bool
	early     bool      // the pod is in the server's first answer: it may have run since before a restart
	held      time.Time // the end of wipeGrace, if a wiped server lacks it
}

// NewSource checks cfg and returns a Source, which Run starts.
func NewSource(cfg SourceConfig) (*Source, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("podsync: %w", err)
	}
	return &Source{
		cfg: cfg, signal: wake.New(),
		pods: map[kubeapi.Key]*entry{}, refs: map[Ref]*object{},
	}, nil
}

// Name returns the source's name in pods.
func (s *Source) Name() string { return podmeta.SourceAPI }

// Kind implements podmgr.Kinder: the API server defaults and validates the pods,
// and follows them.
func (s *Source) Kind() podmgr.Kind { return podmgr.API }

// Pod returns the newest version of a pod that the API server has sent since the start.
// It does not return stored pods, which may have ended. The pod is shared and must not
// be changed.
func (s *Source) Pod(namespace, name string) (*v1.Pod, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.pods[kubeapi.Key{Namespace: namespace, Name: name}]
	if e == nil || !s.synced {
		return nil, false
	}
	return e.pod, true
}

// Synced reports whether the API server has sent the list of pods since the start.
func (s *Source) Synced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced
}

// Run follows the node's pods until ctx ends, and returns nil when every watch has
// ended and the state is stored. It may be called once. deliver is called only from
// its goroutine, without the lock.
func (s *Source) Run(ctx context.Context, deliver func(podmgr.Snapshot)) error {
	pods, err := kubeapi.NewFollower(kubeapi.FollowConfig[*v1.Pod]{
		Client: s.cfg.Client, Resource: kubeapi.Pods, Fields: "spec.nodeName=" + s.cfg.NodeName,
		NewList: func() runtime.Object { return &v1.PodList{} },
		Replace: s.replace, Put: s.put, Delete: s.remove, Failed: s.failed,
	})
	if err != nil {
		return fmt.Errorf("podsync: %w", err)
	}
	// Set before stored objects are read: from then on, objects that pods refer to are followed.
	s.run.ctx = ctx
	memory := newKeeper(s.cfg)
	s.mu.Lock()
	s.run.memory = memory
	s.mu.Unlock()
	// Before the watch begins: its first answer is compared with the stored pods, to find those
	// that were deleted.
	s.recall(memory)
	s.run.wg.Go(func() { _ = pods.Run(ctx) })
	if memory != nil {
		s.run.wg.Go(func() { memory.run(ctx, s.wanted) })
	}
	// After sourceTimeout the stored pods are delivered, even if the server may still answer.
	late := time.AfterFunc(sourceTimeout, s.endFirstWait)
	defer late.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-s.signal:
		case <-timer.C:
		}
		snap, ok, next := s.snapshot(time.Now())
		if ok && ctx.Err() == nil {
			deliver(snap)
			// Only delivered state is stored.
			memory.look()
		}
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(max(time.Until(next), time.Millisecond))
		}
	}
	// The state no longer changes; it is stored a last time below.
	s.run.wg.Wait()
	if memory != nil {
		memory.keepAll(s.wanted)
	}
	return nil
}

// endedTimeout limits how long the terminal status of a pod waits for the disk.
const endedTimeout = time.Second

// Ended stores a version of a pod whose phase is terminal in Memory at once; it is
// for [SinkConfig.Ended]. The watch may deliver that version much later, and a
// start without the server would run the pod again. It returns when the write has
// succeeded or failed, after a second, or when ctx ends. The Source owns p
// afterwards. It may be called from any goroutine.
func (s *Source) Ended(ctx context.Context, p *v1.Pod) {
	s.mu.Lock()
	e, memory := s.pods[keyOf(p)], s.run.memory
	if memory == nil || e == nil || e.pod.UID != p.UID {
		s.mu.Unlock()
		return
	}
	if kubeapi.Older(e.pod.ResourceVersion, p.ResourceVersion) {
		e.over = p
	}
	kept := make(chan struct{})
	s.waiting = append(s.waiting, kept)
	s.mu.Unlock()
	memory.look()
	late := time.NewTimer(endedTimeout)
	defer late.Stop()
	select {
	case <-kept:
	case <-late.C:
	case <-ctx.Done():
	}
}

// endFirstWait is called when sourceTimeout is over. It ends the wait for the server's first
// answer.
func (s *Source) endFirstWait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waited = true
	s.signal.Set()
}

// failed records that the server did not answer, or answered with an error. The argument again is
// the time until the next try.
func (s *Source) failed(err error, again time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// 401 and 403 are answers: the gate stays open, since the next attempt may have a new
	// certificate.
	if !kubeapi.IsAnswer(err) {
		s.gate.Close()
	}
	// Logged once for each outage, not for each attempt.
	if !s.troubled {
		s.cfg.Log.Warn("failed to read pods from the API server; keeping the last state", zap.Error(err), zap.Duration("retry", again))
	}
	s.troubled = true
	s.signal.Set()
}

// well records that the server answers. The caller holds s.mu.
func (s *Source) well() {
	if s.troubled {
		s.cfg.Log.Info("pods can be read from the API server again")
	}
	// The server has confirmed the stored state, which is delivered as complete even if it did not
	// change.
	s.changed = s.changed || !s.synced && s.delivered
	s.troubled, s.synced = false, true
	s.gate.Open()
}
