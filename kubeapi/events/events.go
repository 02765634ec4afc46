package events

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/kubeapi/apiclient"
	"github.com/nodewright/nodewright/podmeta"
)

// Client makes the calls: what [apiclient.Client.Once] returns.
type Client interface {
	Create(ctx context.Context, r apiclient.Resource, k apiclient.Key, obj, into runtime.Object, subresources ...string) error
	Patch(ctx context.Context, r apiclient.Resource, k apiclient.Key, kind types.PatchType, patch []byte, into runtime.Object, subresources ...string) error
}

// Config holds what a Recorder needs. Client and NodeName are required; the
// zero value of every other field means the default named beside it.
type Config struct {
	Client   Client
	NodeName string
	// Component is who reports; "kubelet", which is what tools look for.
	Component string
	// QPS and Burst bound what is sent; 50 and 100, the kubelet's
	// eventRecordQPS and eventBurst. A negative QPS is no bound.
	QPS   float64
	Burst int
	// Kept is how many events are remembered, sent or not, and of how many
	// objects and kinds of events it is known that they are too many; 1000.
	Kept int

	Log *zap.Logger // silent
}

func (c Config) withDefaults() Config {
	if c.Component == "" {
		c.Component = "kubelet"
	}
	if c.QPS == 0 {
		c.QPS = 50
	}
	if c.Burst == 0 {
		c.Burst = 100
	}
	if c.Kept == 0 {
		c.Kept = 1000
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Client == nil {
		errs = append(errs, errors.New("Config.Client is required"))
	}
	if c.NodeName == "" {
		errs = append(errs, errors.New("Config.NodeName is required"))
	}
	if c.Burst < 0 {
		errs = append(errs, fmt.Errorf("Config.Burst is %d; want a positive number", c.Burst))
	}
	if c.Kept < 0 {
		errs = append(errs, fmt.Errorf("Config.Kept is %d; want a positive number", c.Kept))
	}
	return errors.Join(errs...)
}

// Recorder records events. Its methods may be called from any goroutine and
// never wait.
type Recorder struct {
	cfg    Config
	limit  *rate.Limiter
	signal chan struct{}

	mu      sync.Mutex
	series  map[seriesKey]*list.Element       // of *series
	recent  *list.List                        // of *series, the one that happened last in front
	unsent  *list.List                        // of *series, the oldest in front
	spam    *recent[types.UID, *rate.Limiter] // by object
	similar *recent[similarKey, *similar]
	seed    maphash.Seed
	swept   time.Time
	named   uint64
	counts  Counts
}

// Counts are what became of events since the Recorder was made.
type Counts struct {
	Recorded uint64 // by Event and NodeEvent
	Combined uint64 // of those, told as one with others that differ in the message
	Silenced uint64 // of those, not told by themselves, since their object has had too many
	Sent     uint64 // calls that the server took: one may tell of many
	Failed   uint64 // calls that are made again
	Refused  uint64 // calls that the server said no to for good
	Lost     uint64 // series that made room before they were sent
}

// Counts returns them.
func (r *Recorder) Counts() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts
}

// New checks cfg and returns a Recorder at rest.
func New(cfg Config) (*Recorder, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	limit := rate.Limit(cfg.QPS)
	if cfg.QPS < 0 {
		limit = rate.Inf
	}
	return &Recorder{
		cfg: cfg, limit: rate.NewLimiter(limit, cfg.Burst), signal: make(chan struct{}, 1),
		series: map[seriesKey]*list.Element{}, recent: list.New(), unsent: list.New(),
		spam: newRecent[types.UID, *rate.Limiter](cfg.Kept), similar: newRecent[similarKey, *similar](cfg.Kept), seed: maphash.MakeSeed(),
	}, nil
}

// Event records what happened to a pod. eventType is v1.EventTypeNormal or
// v1.EventTypeWarning.
func (r *Recorder) Event(pod *v1.Pod, eventType, reason, message string) {
	r.record(v1.ObjectReference{
		Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
	}, eventType, reason, message)
}

// ContainerEvent records what happened to a container of a pod, by name.
func (r *Recorder) ContainerEvent(pod *v1.Pod, container, eventType, reason, message string) {
	r.record(v1.ObjectReference{
		Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		FieldPath: podmeta.FieldPath(pod, container),
	}, eventType, reason, message)
}

// NodeEvent records what happened to the node. By custom the UID of a node in
// its events is its name.
func (r *Recorder) NodeEvent(eventType, reason, message string) {
	r.record(v1.ObjectReference{
		Kind: "Node", Name: r.cfg.NodeName, UID: types.UID(r.cfg.NodeName),
	}, eventType, reason, message)
}

// create is the Event of a series that the server has not got yet.
func (r *Recorder) create(s *series) *v1.Event {
	namespace := s.key.object.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return &v1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace, Name: s.name},
		InvolvedObject:      s.key.object,
		Type:                s.key.kind,
		Reason:              s.key.reason,
		Message:             s.message,
		Source:              v1.EventSource{Component: r.cfg.Component, Host: r.cfg.NodeName},
		FirstTimestamp:      metav1.NewTime(s.first),
		LastTimestamp:       metav1.NewTime(s.last),
		Count:               s.count,
		ReportingController: r.cfg.Component,
		ReportingInstance:   r.cfg.NodeName,
	}
}
