package localapi

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/localapi/internal/objects"
	"github.com/nodewright/nodewright/podmeta"
)

// maxMessage is how much of an event's message is kept, in bytes; the API server's.
const maxMessage = 1 << 10

// Event records an event of a pod. A repeated event raises the count of the first.
func (s *Server) Event(pod *v1.Pod, eventType, reason, message string) {
	s.record(podReference(pod, ""), nil, eventType, reason, message)
}

// AnnotatedEvent is Event with annotations.
func (s *Server) AnnotatedEvent(pod *v1.Pod, annotations map[string]string, eventType, reason, message string) {
	s.record(podReference(pod, ""), annotations, eventType, reason, message)
}

// ContainerEvent records an event of a container.
func (s *Server) ContainerEvent(pod *v1.Pod, container, eventType, reason, message string) {
	s.record(podReference(pod, container), nil, eventType, reason, message)
}

// NodeEvent records an event of the node.
func (s *Server) NodeEvent(eventType, reason, message string) {
	s.record(v1.ObjectReference{Kind: "Node", Name: s.cfg.Node, UID: types.UID(s.cfg.Node)}, nil, eventType, reason, message)
}

func podReference(p *v1.Pod, container string) v1.ObjectReference {
	r := v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID}
	if container != "" {
		r.FieldPath = podmeta.FieldPath(p, container)
	}
	return r
}

func (s *Server) record(about v1.ObjectReference, annotations map[string]string, eventType, reason, message string) {
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage-3], "") + "..."
	}
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	s.mu.Lock()
	defer s.mu.Unlock()
	namespace := cmp.Or(about.Namespace, v1.NamespaceDefault)
	for _, it := range s.set.List(s.events, namespace) {
		e := it.Object.(*v1.Event)
		if e.Source.Component == component && e.InvolvedObject.UID == about.UID && e.InvolvedObject.FieldPath == about.FieldPath && e.Reason == reason && e.Type == eventType && e.Message == message {
			again := e.DeepCopy()
			again.Count++
			again.LastTimestamp = now
			s.note(change{Kind: s.events, Key: keyOf(again), Actor: objects.Agent, Verb: objects.Update, Object: again})
			return
		}
	}
	e := &v1.Event{
		InvolvedObject: about, Type: eventType, Reason: reason, Message: message, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source: v1.EventSource{Component: component, Host: s.cfg.Node}, ReportingController: component, ReportingInstance: s.cfg.Node,
	}
	e.Namespace, e.Annotations = namespace, annotations
	begin(e)
	e.Name = fmt.Sprintf("%s.%x", about.Name[:min(len(about.Name), 230)], time.Now().UnixNano())
	s.note(change{Kind: s.events, Key: keyOf(e), Actor: objects.Agent, Verb: objects.Create, Object: e})
	s.bound()
}

// component is who the agent's events are from; the kubelet's name, which tools look for.
const component = "kubelet"

// trimEvents forgets events that are too old, or too many.
func (s *Server) trimEvents() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trim()
}

// bound is trim if there are too many events, or nobody comes again for the oldest. s.mu is held.
func (s *Server) bound() {
	if s.expiry == nil || s.set.Len(s.events) > s.cfg.MaxEvents {
		s.trim()
	}
}

// trim is trimEvents. s.mu is held. It comes again when the oldest is too old; where
// there are none it does not.
func (s *Server) trim() {
	all := s.set.List(s.events, "")
	list := make([]*v1.Event, 0, len(all))
	for _, it := range all {
		list = append(list, it.Object.(*v1.Event))
	}
	slices.SortFunc(list, func(a, b *v1.Event) int { return lastSeen(a).Compare(lastSeen(b)) })
	keep := s.cfg.MaxEvents
	if len(list) > keep {
		keep -= keep / 10 // so that this is not done for each event
	}
	for len(list) > 0 && (len(list) > keep || time.Since(lastSeen(list[0])) >= s.cfg.EventTime) {
		s.note(change{Kind: s.events, Key: keyOf(list[0]), Actor: objects.Clock, Verb: objects.Gone})
		list = list[1:]
	}
	if s.expiry != nil {
		s.expiry.Stop()
		s.expiry = nil
	}
	if len(list) > 0 {
		s.expiry = time.AfterFunc(max(s.cfg.EventTime-time.Since(lastSeen(list[0])), time.Second), s.trimEvents)
	}
}

func lastSeen(e *v1.Event) time.Time {
	last := e.CreationTimestamp.Time
	times := []time.Time{e.LastTimestamp.Time, e.EventTime.Time}
	if e.Series != nil {
		times = append(times, e.Series.LastObservedTime.Time)
	}
	for _, t := range times {
		if t.After(last) && t.Before(time.Now()) {
			last = t
		}
	}
	return last
}

func (s *Server) stopExpiry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.expiry != nil {
		s.expiry.Stop()
	}
}
