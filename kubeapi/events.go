package kubeapi

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"

	"go.uber.org/zap"
	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/correlate"
	"github.com/nodewright/nodewright/internal/wake"
	"github.com/nodewright/nodewright/podmeta"
)

// EventClient makes the calls of an EventRecorder; the result of [Client.Once]
// implements it.
type EventClient interface {
	Create(ctx context.Context, r Resource, k Key, obj, into runtime.Object, subresources ...string) error
	Patch(ctx context.Context, r Resource, k Key, kind types.PatchType, patch []byte, into runtime.Object, subresources ...string) error
}

// maxKept is how many events are kept in memory, sent or not. It also limits the objects and kinds
// of events whose rates are tracked.
const maxKept = 1000

// EventConfig configures an [EventRecorder]. Client and NodeName are required; the
// zero value of every other field means the default named beside it.
type EventConfig struct {
	Client   EventClient
	NodeName string
	// Component is the source of the events. The default is "kubelet", for which tools search.
	Component string
	// QPS and Burst limit the sent events. The defaults are 50 and 100, the kubelet's
	// eventRecordQPS and eventBurst. A negative QPS means no limit.
	QPS   float64
	Burst int

	Log *zap.Logger // if nil, nothing is logged
}

func (c EventConfig) withDefaults() EventConfig {
	if c.Component == "" {
		c.Component = "kubelet"
	}
	if c.QPS == 0 {
		c.QPS = 50
	}
	if c.Burst == 0 {
		c.Burst = 100
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

func (c EventConfig) validate() error {
	var errs []error
	if c.Client == nil {
		errs = append(errs, errors.New("EventConfig.Client is required"))
	}
	if c.NodeName == "" {
		errs = append(errs, errors.New("EventConfig.NodeName is required"))
	}
	if c.Burst < 0 {
		errs = append(errs, fmt.Errorf("EventConfig.Burst is %d; want a positive number", c.Burst))
	}
	return errors.Join(errs...)
}

// EventRecorder creates Event objects for events of pods and of the node.
//
//	rec, err := kubeapi.NewEventRecorder(kubeapi.EventConfig{Client: client.Once(), NodeName: "edge-1"})
//	...
//	go rec.Run(ctx)
//	rec.Event(pod, v1.EventTypeWarning, "FailedMount", "no such disk")
//
// A repeated event updates the count of the first Event, by a PATCH. More than ten
// events of one reason and object within ten minutes that differ only in their
// message are combined into one. An object can have 25 events, and then one more
// each five minutes. These are the numbers of client-go's correlator.
//
// Its methods may be called from any goroutine and do not block.
//
// # Faults
//
// While the server is unreachable, up to 1000 events are stored, with their times
// and counts, and sent later; the oldest are dropped first. An event that the
// server refuses permanently is dropped.
type EventRecorder struct {
	cfg    EventConfig
	limit  *rate.Limiter
	signal wake.Signal

	mu         sync.Mutex
	series     map[correlate.Series]*list.Element // of *series
	recent     *list.List                         // of *series, the one with the latest event in front
	unsent     *list.List                         // of *series, the oldest in front
	correlator *correlate.Correlator
	named      uint64
}

// NewEventRecorder checks cfg and returns a Recorder, which Run starts.
func NewEventRecorder(cfg EventConfig) (*EventRecorder, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	limit := rate.Limit(cfg.QPS)
	if cfg.QPS < 0 {
		limit = rate.Inf
	}
	return &EventRecorder{
		cfg: cfg, limit: rate.NewLimiter(limit, cfg.Burst), signal: wake.New(),
		series: map[correlate.Series]*list.Element{}, recent: list.New(), unsent: list.New(), correlator: correlate.New(maxKept),
	}, nil
}

// Event records an event of a pod. A repeated event raises the count of the first one.
// eventType is v1.EventTypeNormal or v1.EventTypeWarning.
func (r *EventRecorder) Event(pod *v1.Pod, eventType, reason, message string) {
	r.AnnotatedEvent(pod, nil, eventType, reason, message)
}

// AnnotatedEvent records an event of a pod with annotations, which are not changed
// later. Combined events have the annotations of the first one.
func (r *EventRecorder) AnnotatedEvent(pod *v1.Pod, annotations map[string]string, eventType, reason, message string) {
	r.record(v1.ObjectReference{
		Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
	}, annotations, eventType, reason, message)
}

// ContainerEvent records an event of a container of a pod, by name.
func (r *EventRecorder) ContainerEvent(pod *v1.Pod, container, eventType, reason, message string) {
	r.record(v1.ObjectReference{
		Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		FieldPath: podmeta.FieldPath(pod, container),
	}, nil, eventType, reason, message)
}

// NodeEvent records an event of the node. By convention the UID of a node in its
// events is its name.
func (r *EventRecorder) NodeEvent(eventType, reason, message string) {
	r.record(v1.ObjectReference{
		Kind: "Node", Name: r.cfg.NodeName, UID: types.UID(r.cfg.NodeName),
	}, nil, eventType, reason, message)
}

// create returns the Event of a series that the server does not have yet.
func (r *EventRecorder) create(s *series) *v1.Event {
	namespace := s.key.Object.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return &v1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace, Name: s.name, Annotations: s.annotations},
		InvolvedObject:      s.key.Object,
		Type:                s.key.Type,
		Reason:              s.key.Reason,
		Message:             s.message,
		Source:              v1.EventSource{Component: r.cfg.Component, Host: r.cfg.NodeName},
		FirstTimestamp:      metav1.NewTime(s.first),
		LastTimestamp:       metav1.NewTime(s.last),
		Count:               s.count,
		ReportingController: r.cfg.Component,
		ReportingInstance:   r.cfg.NodeName,
	}
}
