package kubeapi

import (
	"container/list"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The numbers of client-go's correlator.
const (
	spamBurst       = 25                // of one object
	spamEvery       = 300 * time.Second // and then one more
	maxSimilar      = 10                // before they are combined
	similarInterval = 600 * time.Second
	combined        = "(combined from similar events): "
)

// maxMessage is the API server's limit of a message, in bytes.
const maxMessage = 1024

// seriesKey is the same for events that are one Event.
type seriesKey struct {
	object       v1.ObjectReference // without its version
	kind, reason string
	message      string // "" for combined ones
}

// series is one Event.
type series struct {
	key         seriesKey
	name        string // of the Event; "" before it is sent
	message     string
	annotations map[string]string // of the first
	first, last time.Time
	count       int32
	sent        bool          // the server has it
	unsent      *list.Element // nil if the server has all of it
}

// similarKey is the same for events that may be combined.
type similarKey struct {
	uid          types.UID
	kind, reason string
}

// similar are the messages of a while, as hashes.
type similar struct {
	messages [maxSimilar]uint64
	count    int // of messages
	last     time.Time
}

// record notes an event.
func (r *EventRecorder) record(object v1.ObjectReference, annotations map[string]string, kind, reason, message string) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweep(now)
	r.counts.Recorded++
	object.ResourceVersion = ""
	message = cut(message)
	key := seriesKey{object, kind, reason, message}
	if r.isSimilar(similarKey{object.UID, kind, reason}, message, now) {
		key.message, message = "", cut(combined+message)
		r.counts.Combined++
	}
	s := r.find(key, annotations, now)
	s.message, s.last = message, now
	s.count++
	if !r.allowed(object.UID, now) {
		r.counts.Silenced++
		return
	}
	if s.unsent != nil {
		return
	}
	s.unsent = r.unsent.PushBack(s)
	select {
	case r.signal <- struct{}{}:
	default:
	}
}

// find finds the series of a key or begins one, in place of the oldest if there
// are many. r.mu is held.
func (r *EventRecorder) find(key seriesKey, annotations map[string]string, now time.Time) *series {
	if e := r.series[key]; e != nil {
		r.recent.MoveToFront(e)
		return e.Value.(*series)
	}
	for r.recent.Len() >= r.cfg.Kept {
		old := r.recent.Remove(r.recent.Back()).(*series)
		delete(r.series, old.key)
		if old.unsent != nil {
			r.unsent.Remove(old.unsent)
			old.unsent = nil
			r.counts.Lost++
		}
	}
	s := &series{key: key, annotations: annotations, first: now}
	r.series[key] = r.recent.PushFront(s)
	return s
}

// isSimilar reports whether an event is one of many that differ in their messages
// alone. r.mu is held.
func (r *EventRecorder) isSimilar(k similarKey, message string, now time.Time) bool {
	s, ok := r.similar.get(k)
	if !ok || now.Sub(s.last) > similarInterval {
		s = &similar{}
		r.similar.put(k, s)
	}
	s.last = now
	if h := maphash.String(r.seed, message); s.count < maxSimilar && !slices.Contains(s.messages[:s.count], h) {
		s.messages[s.count] = h
		s.count++
	}
	return s.count >= maxSimilar
}

// allowed reports whether one more event of an object may be sent. r.mu is held.
func (r *EventRecorder) allowed(uid types.UID, now time.Time) bool {
	l, ok := r.spam.get(uid)
	if !ok {
		l = rate.NewLimiter(rate.Every(spamEvery), spamBurst)
		r.spam.put(uid, l)
	}
	return l.AllowN(now, 1)
}

// sweep removes, from time to time, entries that no longer have an effect. r.mu is
// held.
func (r *EventRecorder) sweep(now time.Time) {
	if now.Sub(r.swept) < similarInterval {
		return
	}
	r.swept = now
	r.spam.drop(func(l *rate.Limiter) bool { return l.TokensAt(now) >= spamBurst })
	r.similar.drop(func(s *similar) bool { return now.Sub(s.last) > similarInterval })
}

// cut shortens a message to the server's limit, at a character boundary.
func cut(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	n := maxMessage
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n]
}

// newName returns a unique name for a new Event, derived from its object's. r.mu is
// held.
func (r *EventRecorder) newName(s *series) string {
	r.named++
	name := s.key.object.Name
	if len(name) > 200 {
		name = name[:200]
	}
	return fmt.Sprintf("%s.%x%x", name, s.first.UnixNano(), r.named)
}
