package kubeapi

import (
	"container/list"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/correlate"
)

// series is one Event object, with the count of the events that it stands for.
type series struct {
	key         correlate.Series
	name        string // of the Event; "" before it is sent
	message     string
	annotations map[string]string // of the first
	first, last time.Time
	count       int32
	sent        bool          // the server has it
	unsent      *list.Element // nil if the server has all of it
}

// record counts an event in its series.
func (r *EventRecorder) record(object v1.ObjectReference, annotations map[string]string, kind, reason, message string) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.correlator.Note(object, kind, reason, message, now)
	s := r.find(e.Series, annotations, now)
	s.message, s.last = e.Message, now
	s.count++
	if !e.Allowed {
		return
	}
	if s.unsent != nil {
		return
	}
	s.unsent = r.unsent.PushBack(s)
	r.signal.Set()
}

// find returns the series of a key, and creates it if there is none. It drops the
// oldest series beyond maxKept. The caller holds r.mu.
func (r *EventRecorder) find(key correlate.Series, annotations map[string]string, now time.Time) *series {
	if e := r.series[key]; e != nil {
		r.recent.MoveToFront(e)
		return e.Value.(*series)
	}
	for r.recent.Len() >= maxKept {
		old := r.recent.Remove(r.recent.Back()).(*series)
		delete(r.series, old.key)
		if old.unsent != nil {
			r.unsent.Remove(old.unsent)
			old.unsent = nil
		}
	}
	s := &series{key: key, annotations: annotations, first: now}
	r.series[key] = r.recent.PushFront(s)
	return s
}

// newName returns a unique name for a new Event, derived from its object's name. The
// caller holds r.mu.
func (r *EventRecorder) newName(s *series) string {
	r.named++
	name := s.key.Object.Name
	if len(name) > 200 {
		name = name[:200]
	}
	return fmt.Sprintf("%s.%x%x", name, s.first.UnixNano(), r.named)
}
