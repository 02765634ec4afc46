package localapi

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/correlate"
	"github.com/nodewright/nodewright/localapi/internal/objects"
	"github.com/nodewright/nodewright/podmeta"
)

// maxMessage limits the bytes of an event's message that are kept.
const maxMessage = correlate.MaxMessage

// Event records an event of a pod. A repeated event raises the count of the first one. If more
// than ten events within ten minutes differ only in their messages, they are combined. A pod may
// have 25 events, and then one more every five minutes.
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
	at := time.Now()
	now := metav1.NewTime(at.Truncate(time.Second))
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.correlator.Note(about, eventType, reason, message, at)
	if !n.Allowed {
		return
	}
	namespace := cmp.Or(about.Namespace, v1.NamespaceDefault)
	if it, ok := s.item(s.events, key{Namespace: namespace, Name: s.series[n.Series]}); ok {
		again := it.Object.(*v1.Event).DeepCopy()
		again.Count++
		again.Message, again.LastTimestamp = n.Message, now
		s.note(change{Kind: s.events, Key: keyOf(again), Actor: objects.Agent, Verb: objects.Update, Object: again})
		return
	}
	e := &v1.Event{
		InvolvedObject: about, Type: eventType, Reason: reason, Message: n.Message, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source: v1.EventSource{Component: component, Host: s.cfg.Node}, ReportingController: component, ReportingInstance: s.cfg.Node,
	}
	e.Namespace, e.Annotations = namespace, annotations
	begin(e)
	e.Name = fmt.Sprintf("%s.%x", about.Name[:min(len(about.Name), 230)], time.Now().UnixNano())
	s.note(change{Kind: s.events, Key: keyOf(e), Actor: objects.Agent, Verb: objects.Create, Object: e})
	s.series[n.Series] = e.Name
	s.bound()
}

// component is the source of the agent's events. It is the kubelet's name, which tools look for.
const component = "kubelet"

// trimEvents removes events that are too old, or too many.
func (s *Server) trimEvents() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trim()
}

// eventTime is how long events are kept, as the API server's --event-ttl.
const eventTime = time.Hour

// bound calls trim if there are too many events, or if no timer runs for the oldest one. The
// caller holds s.mu.
func (s *Server) bound() {
	if s.expiry == nil || s.set.Len(s.events) > s.cfg.MaxEvents {
		s.trim()
	}
}

// trim is trimEvents for a caller that holds s.mu. It sets a timer for the time at which the
// oldest event is too old. If there are too many events, it removes the oldest ones of the
// object with the most events, in the namespace with the most events.
func (s *Server) trim() {
	all := s.set.List(s.events, "")
	list := make([]*v1.Event, 0, len(all))
	for _, it := range all {
		list = append(list, it.Object.(*v1.Event))
	}
	slices.SortFunc(list, func(a, b *v1.Event) int { return lastSeen(a).Compare(lastSeen(b)) })
	old := 0
	for old < len(list) && time.Since(lastSeen(list[old])) >= eventTime {
		old++
	}
	gone := list[:old]
	list = list[old:]
	if most := s.cfg.MaxEvents; len(list) > most {
		most -= most / 10 // leaves space, so that the next event does not cause this again
		var more []*v1.Event
		list, more = fewer(list, most)
		gone = append(gone, more...)
	}
	for _, e := range gone {
		s.note(change{Kind: s.events, Key: keyOf(e), Actor: objects.Clock, Verb: objects.Gone})
	}
	left := make(map[string]bool, len(list))
	for _, e := range list {
		left[e.Name] = true
	}
	maps.DeleteFunc(s.series, func(_ correlate.Series, name string) bool { return !left[name] })
	if s.expiry != nil {
		s.expiry.Stop()
		s.expiry = nil
	}
	if len(list) > 0 {
		oldest := slices.MinFunc(list, func(a, b *v1.Event) int { return lastSeen(a).Compare(lastSeen(b)) })
		s.expiry = time.AfterFunc(max(eventTime-time.Since(lastSeen(oldest)), time.Second), s.trimEvents)
	}
}

// fewer splits a list of events, oldest first, into the events that stay (kept, at most limit
// events) and the events to remove (removed). Each namespace keeps an equal number of its newest
// events, and so does each object within a namespace. A group with fewer events than that keeps all
// of them.
func fewer(list []*v1.Event, limit int) (kept, removed []*v1.Event) {
	list = slices.Clone(list)
	slices.Reverse(list)
	type group struct {
		namespace string
		uid       types.UID
	}
	for _, groupOf := range []func(*v1.Event) group{
		func(e *v1.Event) group { return group{e.Namespace, e.InvolvedObject.UID} },
		func(e *v1.Event) group { return group{namespace: e.Namespace} },
	} {
		size, place := map[group]int{}, make(map[*v1.Event]int, len(list)) // size of each group, and the place of an event in its group
		for _, e := range list {
			g := groupOf(e)
			place[e] = size[g]
			size[g]++
		}
		slices.SortStableFunc(list, func(a, b *v1.Event) int { return cmp.Compare(place[a], place[b]) })
	}
	return list[:limit], list[limit:]
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
