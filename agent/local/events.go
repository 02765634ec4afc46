package local

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/wake"
	"github.com/nodewright/nodewright/podmeta"
)

// EventRecorder records events of pods. It must not block for long. A panic is logged, and the
// event counts as recorded.
type EventRecorder interface {
	Event(pod *v1.Pod, eventType, reason, message string)
}

// AnnotatedEventRecorder is an optional interface of an [EventRecorder] for events with
// annotations. Events of evictions have annotations with the resource usage of the pod.
type AnnotatedEventRecorder interface {
	AnnotatedEvent(pod *v1.Pod, annotations map[string]string, eventType, reason, message string)
}

// ContainerEventRecorder is an optional interface of an [EventRecorder] for events of containers.
// Without it they are recorded as events of their pods.
type ContainerEventRecorder interface {
	ContainerEvent(pod *v1.Pod, container, eventType, reason, message string)
}

// NodeEventRecorder is an optional interface of an [EventRecorder] for events of the node. It must
// not block for long.
type NodeEventRecorder interface {
	NodeEvent(eventType, reason, message string)
}

// EventRecorders passes each event to all of its recorders, in order. An
// [AnnotatedEventRecorder] also gets annotations, a [ContainerEventRecorder] gets the
// container, and a [NodeEventRecorder] gets events of the node.
type EventRecorders []EventRecorder

var _ interface {
	EventRecorder
	AnnotatedEventRecorder
	ContainerEventRecorder
	NodeEventRecorder
} = EventRecorders{}

// Event implements [EventRecorder].
func (rs EventRecorders) Event(pod *v1.Pod, eventType, reason, message string) {
	for _, r := range rs {
		r.Event(pod, eventType, reason, message)
	}
}

// AnnotatedEvent implements [AnnotatedEventRecorder].
func (rs EventRecorders) AnnotatedEvent(pod *v1.Pod, annotations map[string]string, eventType, reason, message string) {
	for _, r := range rs {
		if a, ok := r.(AnnotatedEventRecorder); ok && len(annotations) > 0 {
			a.AnnotatedEvent(pod, annotations, eventType, reason, message)
			continue
		}
		r.Event(pod, eventType, reason, message)
	}
}

// ContainerEvent implements [ContainerEventRecorder].
func (rs EventRecorders) ContainerEvent(pod *v1.Pod, container, eventType, reason, message string) {
	for _, r := range rs {
		if c, ok := r.(ContainerEventRecorder); ok && container != "" {
			c.ContainerEvent(pod, container, eventType, reason, message)
			continue
		}
		r.Event(pod, eventType, reason, message)
	}
}

// NodeEvent implements [NodeEventRecorder].
func (rs EventRecorders) NodeEvent(eventType, reason, message string) {
	for _, r := range rs {
		if n, ok := r.(NodeEventRecorder); ok {
			n.NodeEvent(eventType, reason, message)
		}
	}
}

// perObject limits the stored events of a pod or of the node. Repetitions of an event count as
// one, so a long-running pod does not reach the limit by repetitions.
const perObject = 32

// maxMessage limits the stored bytes of a message; an API server accepts 1 KiB. Together with
// perObject, a pod has at most 128 KiB.
const maxMessage = 4 << 10

// cut shortens a message to maxMessage bytes, at the end of a character.
func cut(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	n := maxMessage
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.Clone(s[:n]) + " ..."
}

// EventLog stores events. Equal events of one object are merged and counted, like event series of
// the API server. Its methods may be called from any goroutine.
type EventLog struct {
	log   *zap.Logger
	next  EventRecorders // one recorder, or none
	node  v1.ObjectReference
	panic func() // counts a panic of next

	changed wake.Signal // set when there is something to store

	mu      sync.Mutex
	pods    map[types.UID][]v1.Event // oldest first
	events  []v1.Event               // of the node, oldest first
	changes map[string]bool          // keys of the store that are to be written
}

// NewEventLog returns an empty log of the node with that name. It passes each event to next, if
// that is not nil. panicked is called for each panic of next.
func NewEventLog(log *zap.Logger, node string, next EventRecorder, panicked func()) *EventLog {
	l := &EventLog{
		log: log, panic: panicked, pods: map[types.UID][]v1.Event{}, changes: map[string]bool{}, changed: wake.New(),
		// As in the kubelet, events of the node have the node's name as the UID, which clients
		// search for.
		node: v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: types.UID(node)},
	}
	if next != nil {
		l.next = EventRecorders{next}
	}
	return l
}

// Event records an event of a pod. It blocks only as long as the recorder does.
func (l *EventLog) Event(pod *v1.Pod, eventType, reason, message string) {
	l.record(pod, "", nil, eventType, reason, message)
}

// ContainerEvent records an event of a container of a pod, by name.
func (l *EventLog) ContainerEvent(pod *v1.Pod, container, eventType, reason, message string) {
	l.record(pod, container, nil, eventType, reason, message)
}

// Annotated is [EventLog.Event] with annotations. A recorder that does not support annotations gets
// the event without them.
func (l *EventLog) Annotated(pod *v1.Pod, annotations map[string]string, eventType, reason, message string) {
	l.record(pod, "", annotations, eventType, reason, message)
}

func (l *EventLog) record(pod *v1.Pod, container string, annotations map[string]string, eventType, reason, message string) {
	if pod == nil {
		return
	}
	message = cut(message)
	l.log.Debug("event", zap.String("pod", pod.Namespace+"/"+pod.Name), zap.String("container", container), zap.String("type", eventType),
		zap.String("reason", reason), zap.String("message", message))
	l.remember(pod, podmeta.FieldPath(pod, container), eventType, reason, message, time.Now())
	l.guard(func() {
		if container != "" {
			l.next.ContainerEvent(pod, container, eventType, reason, message)
			return
		}
		l.next.AnnotatedEvent(pod, annotations, eventType, reason, message)
	})
}

// Node records an event of the node.
func (l *EventLog) Node(eventType, reason, message string) {
	message = cut(message)
	l.log.Info("node event", zap.String("type", eventType), zap.String("reason", reason), zap.String("message", message))
	l.mu.Lock()
	all, again := add(l.events, v1.Event{InvolvedObject: l.node, Source: v1.EventSource{Host: l.node.Name}, Type: eventType, Reason: reason, Message: message}, time.Now())
	l.events = all
	l.note(nodeKey, again)
	l.mu.Unlock()
	l.guard(func() { l.next.NodeEvent(eventType, reason, message) })
}

// AlsoOfNode returns a recorder that also records a pod's events with this reason as events of the
// node.
func (l *EventLog) AlsoOfNode(reason string) *SharedEvent { return &SharedEvent{l, reason} }

// SharedEvent is an [EventLog] that records events with one reason twice: for the pod and for the
// node.
type SharedEvent struct {
	*EventLog
	reason string
}

// Event records an event of a pod. If it has the reason, it is recorded for the node too.
func (s *SharedEvent) Event(pod *v1.Pod, eventType, reason, message string) {
	s.EventLog.Event(pod, eventType, reason, message)
	if reason == s.reason {
		s.Node(eventType, reason, message)
	}
}

// guard recovers from a panic of the recorder.
func (l *EventLog) guard(record func()) {
	defer func() {
		if v := recover(); v != nil {
			l.log.Error("event recorder panicked", zap.String("panic", fmt.Sprint(v)), zap.ByteString("stack", debug.Stack()))
			l.panic()
		}
	}()
	record()
}

func (l *EventLog) remember(pod *v1.Pod, path, eventType, reason, message string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all, again := add(l.pods[pod.UID], v1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace},
		InvolvedObject: v1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, FieldPath: path,
		},
		Source: v1.EventSource{Host: l.node.Name}, Type: eventType, Reason: reason, Message: message,
	}, now)
	l.pods[pod.UID] = all
	l.note(podPrefix+string(pod.UID), again)
}

// note marks the events of an object for storage. A repetition is stored only with the next new
// event, so that a probe that always fails does not wear out the disk. The caller holds l.mu.
func (l *EventLog) note(key string, repetition bool) {
	l.changes[key] = true
	if repetition {
		return
	}
	l.changed.Set()
}

// add adds an event to the events of one object, which are sorted, oldest first. It may change evs.
// If an equal event exists, add increases its count and returns true. If there are too many events,
// it drops the oldest one.
func add(evs []v1.Event, ev v1.Event, now time.Time) (all []v1.Event, again bool) {
	for i := range evs {
		if was := evs[i]; sameEvent(&was, &ev) {
			was.Count++
			was.LastTimestamp = metav1.NewTime(now)
			copy(evs[i:], evs[i+1:])
			evs[len(evs)-1] = was
			return evs, true
		}
	}
	if len(evs) >= perObject {
		evs = slices.Delete(evs, 0, 1)
	}
	ev.Count, ev.FirstTimestamp, ev.LastTimestamp = 1, metav1.NewTime(now), metav1.NewTime(now)
	return append(evs, ev), false
}

// sameEvent reports whether two events of one object differ only in their times and counts.
func sameEvent(a, b *v1.Event) bool {
	return a.Reason == b.Reason && a.Message == b.Message && a.Type == b.Type && a.InvolvedObject.FieldPath == b.InvolvedObject.FieldPath
}

// Of returns a copy of the events of a pod, oldest first.
func (l *EventLog) Of(uid types.UID) []v1.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]v1.Event(nil), l.pods[uid]...)
}

// All returns a copy of all events, of pods and of the node, oldest first.
func (l *EventLog) All() []v1.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Clone(l.events)
	for _, events := range l.pods {
		all = append(all, events...)
	}
	slices.SortStableFunc(all, func(a, b v1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
	return all
}

// OfNode returns a copy of the events of the node, oldest first.
func (l *EventLog) OfNode() []v1.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]v1.Event(nil), l.events...)
}

// lasts is how long the events of a pod that is gone are kept after the last one.
const lasts = time.Hour

// maxGone limits the pods that are gone whose events are kept.
const maxGone = 200

// Retain drops the events of pods for which keep returns false, an hour after their last event. If
// there are too many such pods, those with the oldest last event are dropped.
func (l *EventLog) Retain(keep func(types.UID) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var gone []types.UID
	for uid := range l.pods {
		if !keep(uid) {
			gone = append(gone, uid)
		}
	}
	slices.SortFunc(gone, func(a, b types.UID) int { return l.last(b).Compare(l.last(a)) })
	for i, uid := range gone {
		if i >= maxGone || time.Since(l.last(uid)) > lasts {
			delete(l.pods, uid)
			l.note(podPrefix+string(uid), false)
		}
	}
}

// last returns the time of a pod's last event. The caller holds l.mu.
func (l *EventLog) last(uid types.UID) time.Time {
	events := l.pods[uid]
	return events[len(events)-1].LastTimestamp.Time
}
