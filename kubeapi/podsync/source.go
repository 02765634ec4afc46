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

	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/seal"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podmgr"
)

// SourceClient makes the calls: an [kubeapi.Client].
type SourceClient interface {
	kubeapi.ListWatcher
	Get(ctx context.Context, r kubeapi.Resource, k kubeapi.Key, into runtime.Object, opts ...metav1.GetOptions) error
}

// SourceConfig holds what a Source needs. Client and NodeName are required; the zero
// value of every other field means the default named beside it.
type SourceConfig struct {
	Client   SourceClient
	NodeName string

	// Memory keeps the last state over a restart; nothing is kept.
	Memory SourceMemory
	// Seal encrypts the Secrets that Memory keeps; without one they are not kept,
	// and read from the server again. With seal.Clear they are kept as they are.
	Seal *seal.Sealer

	Patience  time.Duration // for the server's first answer; 1s
	Gather    time.Duration // for what a new pod refers to; 2s
	WipeGrace time.Duration // for pods that a wiped server does not have; 5m

	Log *zap.Logger // silent
}

// withDefaults returns a copy in which 0 and nil are replaced.
func (c SourceConfig) withDefaults() SourceConfig {
	for d, v := range map[*time.Duration]time.Duration{&c.Patience: time.Second, &c.Gather: 2 * time.Second, &c.WipeGrace: 5 * time.Minute} {
		if *d == 0 {
			*d = v
		}
	}
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
	for name, d := range map[string]time.Duration{"Patience": c.Patience, "Gather": c.Gather, "WipeGrace": c.WipeGrace} {
		if d < 0 {
			errs = append(errs, errors.New("SourceConfig."+name+" is "+d.String()+"; want a positive duration"))
		}
	}
	// A key without a place to keep anything is most likely a forgotten Memory.
	if c.Seal != nil && c.Memory == nil {
		errs = append(errs, errors.New("SourceConfig.Seal is set, but there is no SourceConfig.Memory to keep Secrets in"))
	}
	return errors.Join(errs...)
}

// Source is the API server as a source of pods: those that are bound
// to this node, and the ConfigMaps, Secrets, claims of volumes and of devices, and
// volumes that they refer to.
//
//	src, err := podsync.NewSource(podsync.SourceConfig{Client: client, NodeName: "edge-1", Memory: store})
//	...
//	pods, err := podmgr.New(podmgr.Config{Sources: []podmgr.Source{src}})
//
// Pods are followed by one watch, each object that they refer to by a watch of
// its own, since a node may read no others: it begins with the first pod that
// refers to the object and ends with the last one, or when the object says that
// it never changes. Claims, of volumes and of devices, and volumes are read again
// and again, since a node may not watch them: soon while a pod waits for them, and
// a ResourceClaim when one more pod uses it. Pods that are over, and mirror pods,
// need nothing any more.
//
// A new pod is handed on when all it refers to has been read, or is known not
// to be there, or two seconds have passed, so that it does not begin with an
// error that is over in a moment. What is handed on first is complete.
//
// # Offline
//
// With a Memory, the last pods and objects are kept, each in a file of its own;
// Secrets encrypted, if there is a key. At start they are handed on if the API
// server fails or has not answered after a second. When it answers, what it
// says counts: pods of the same UID are the same pods, those that it no longer
// has are over.
//
// What is not an answer changes nothing: while the server is away, hangs, or
// refuses the node's credentials (401, 403), everything stays as it was last.
//
// A server whose store was wiped, or restored from a copy of earlier, is
// recognised by a resource version lower than one that was seen. Pods that it
// does not have then are held for five minutes, so that whoever repairs it can
// put them back with nothing restarted; after that, or when another pod takes
// their name, they end gracefully like any pod that is gone. An empty answer of
// a store with its history intact is taken at its word.
//
// A deletion is never taken back: a pod that was once seen as to be deleted
// stays so.
//
// Its methods may be called from any goroutine.
type Source struct {
	cfg SourceConfig
	// gate is closed while the server does not answer, so that hundreds of objects do
	// not each try on their own.
	gate kubeapi.Gate
	// signal has a token when Run has to look.
	signal chan struct{}

	// mu guards all below, but run.wg.
	mu      sync.Mutex
	pods    map[kubeapi.Key]*entry
	refs    map[Ref]*object
	version string // of the server's last complete answer
	// synced never becomes false again; troubled may.
	synced   bool // the server has answered
	troubled bool // its last answer was none
	patient  bool // Patience is over
	spoken   bool // something was delivered
	partial  bool // which may lack pods
	changed  bool // since the last delivery
	run      running
	waiting  []chan struct{} // of calls of Ended, closed once Memory was written
}

// running is what Run has begun.
type running struct {
	ctx    context.Context // nil before Run
	memory *keeper         // nil before Run, and without a Memory
	wg     sync.WaitGroup
}

// entry is one pod.
type entry struct {
	pod  *v1.Pod // never changed
	over *v1.Pod // a later version in a terminal phase that the watch has not delivered yet; nil
	out  *v1.Pod // as it was handed out; nil before
	key  string  // in Memory
	refs []Ref
	// due is when the pod is delivered with or without all it refers to.
	due       time.Time
	delivered bool
	early     bool      // the server's first answer has it: it may run from before a restart
	held      time.Time // until when, if a wiped server does not have it
}

// NewSource checks cfg and returns a Source at rest.
func NewSource(cfg SourceConfig) (*Source, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("podsync: %w", err)
	}
	return &Source{
		cfg: cfg, signal: make(chan struct{}, 1),
		pods: map[kubeapi.Key]*entry{}, refs: map[Ref]*object{},
	}, nil
}

// Name is what pods of the API server are marked with.
func (s *Source) Name() string { return podmeta.SourceAPI }

// Kind implements podmgr.Kinder: the API server defaults and validates the pods,
// and follows them.
func (s *Source) Kind() podmgr.Kind { return podmgr.API }

// Pod returns the newest version of a pod that the API server has told of since the
// start; one that is only remembered may be over. It is shared and must not be changed.
func (s *Source) Pod(namespace, name string) (*v1.Pod, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.pods[kubeapi.Key{Namespace: namespace, Name: name}]
	if e == nil || !s.synced {
		return nil, false
	}
	return e.pod, true
}

// Synced reports whether the API server has answered since the start.
func (s *Source) Synced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced
}

// Run follows the node's pods until ctx ends, and returns nil when every watch
// has ended and what is to be remembered is. It may be called once. deliver is called
// from its goroutine alone, without the lock.
func (s *Source) Run(ctx context.Context, deliver func(podmgr.Snapshot)) error {
	pods, err := kubeapi.NewFollower(kubeapi.FollowConfig[*v1.Pod]{
		Client: s.cfg.Client, Resource: kubeapi.Pods, Fields: "spec.nodeName=" + s.cfg.NodeName,
		NewList: func() runtime.Object { return &v1.PodList{} },
		Replace: s.replace, Put: s.put, Delete: s.remove, Failed: s.failed,
	})
	if err != nil {
		return fmt.Errorf("podsync: %w", err)
	}
	// Before anything is recalled: objects that pods refer to are followed from then
	// on.
	s.run.ctx = ctx
	memory := newKeeper(s.cfg)
	s.mu.Lock()
	s.run.memory = memory
	s.mu.Unlock()
	// Before the watch begins, so that its first answer meets the pods of before, and
	// can say which of them are over.
	s.recall(memory)
	s.run.wg.Go(func() { _ = pods.Run(ctx) })
	if memory != nil {
		s.run.wg.Go(func() { memory.run(ctx, s.wanted) })
	}
	// After Patience the remembered pods are delivered, although the server may yet
	// answer.
	impatient := time.AfterFunc(s.cfg.Patience, s.impatient)
	defer impatient.Stop()
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
			// Only what was delivered is worth a write.
			memory.look()
		}
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(max(time.Until(next), time.Millisecond))
		}
	}
	// Nothing changes the state any more when it is kept for the last time.
	s.run.wg.Wait()
	if memory != nil {
		memory.keepAll(s.wanted)
	}
	return nil
}

// endedPatience bounds how long the terminal status of a pod waits for the disk.
const endedPatience = time.Second

// Ended stores a version of a pod whose phase is terminal in Memory at once; it is for
// [SinkConfig.Ended]. The watch may deliver that version much later, and a start without the server
// runs a pod whose stored phase is not terminal. It returns when the write has succeeded or failed,
// after a second, or when ctx ends. The Source owns p afterwards. It may be called from any goroutine.
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
	late := time.NewTimer(endedPatience)
	defer late.Stop()
	select {
	case <-kept:
	case <-late.C:
	case <-ctx.Done():
	}
}

// wake has Run look whether there is something to deliver.
func (s *Source) wake() {
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// impatient ends the wait for the server's first answer.
func (s *Source) impatient() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.patient = true
	s.wake()
}

// failed notes that the server did not answer, or not with pods.
func (s *Source) failed(err error, again time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// 401 and 403 are answers: the gate stays open, as the next try may have a new
	// certificate.
	if !kubeapi.IsAnswer(err) {
		s.gate.Close()
	}
	// Once for each time of trouble, and not for each try.
	if !s.troubled {
		s.cfg.Log.Warn("pods cannot be read from the API server; all stays as it was", zap.Error(err), zap.Duration("retry", again))
	}
	s.troubled = true
	s.wake()
}

// well notes that the server answers. s.mu is held.
func (s *Source) well() {
	if s.troubled {
		s.cfg.Log.Info("pods are read from the API server again")
	}
	// What was remembered is confirmed, also where nothing is another.
	s.changed = s.changed || !s.synced && s.spoken
	s.troubled, s.synced = false, true
	s.gate.Open()
}
