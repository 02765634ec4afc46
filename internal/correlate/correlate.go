package correlate

import (
	"hash/maphash"
	"slices"
	"time"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The settings of client-go's correlator.
const (
	spamBurst       = 25                // events of one object at once
	spamEvery       = 300 * time.Second // for each further event
	maxSimilar      = 10                // similar events before they are combined
	similarInterval = 600 * time.Second
	combined        = "(combined from similar events): "
)

// MaxMessage is the API server's limit for a message, in bytes.
const MaxMessage = 1024

// Series identifies the events that become one Event.
type Series struct {
	Object       v1.ObjectReference // without its version
	Type, Reason string
	Message      string // "" for combined ones
}

// Event is the result for an event.
type Event struct {
	Series Series
	// Message is the newest message of the series, cut to MaxMessage.
	Message string
	// Combined reports that the event is combined with others that differ in the message.
	Combined bool
	// Allowed is false if the object has had too many events.
	Allowed bool
}

// Correlator stores recent events. It is not safe for concurrent use.
type Correlator struct {
	spam    *recent[types.UID, *rate.Limiter] // by object
	similar *recent[similarKey, *similar]
	seed    maphash.Seed
	swept   time.Time
}

// similarKey identifies events that may be combined.
type similarKey struct {
	uid          types.UID
	kind, reason string
}

// similar has the recent messages, as hashes.
type similar struct {
	messages [maxSimilar]uint64
	count    int // number of messages
	last     time.Time
}

// New returns a Correlator that stores at least about size objects and series of events, and at
// most twice as many.
func New(size int) *Correlator {
	return &Correlator{spam: newRecent[types.UID, *rate.Limiter](size), similar: newRecent[similarKey, *similar](size), seed: maphash.MakeSeed()}
}

// Note records an event of an object, and returns the Event that has to be written for
// it.
func (c *Correlator) Note(object v1.ObjectReference, eventType, reason, message string, now time.Time) Event {
	c.sweep(now)
	object.ResourceVersion = ""
	message = Cut(message)
	e := Event{Series: Series{object, eventType, reason, message}, Message: message}
	if c.isSimilar(similarKey{object.UID, eventType, reason}, message, now) {
		e.Series.Message, e.Message, e.Combined = "", Cut(combined+message), true
	}
	e.Allowed = c.allowed(object.UID, now)
	return e
}

// isSimilar reports whether an event is one of many that differ only in their messages.
func (c *Correlator) isSimilar(k similarKey, message string, now time.Time) bool {
	s, ok := c.similar.get(k)
	if !ok || now.Sub(s.last) > similarInterval {
		s = &similar{}
		c.similar.put(k, s)
	}
	s.last = now
	if h := maphash.String(c.seed, message); s.count < maxSimilar && !slices.Contains(s.messages[:s.count], h) {
		s.messages[s.count] = h
		s.count++
	}
	return s.count >= maxSimilar
}

// allowed reports whether an object may have one more event.
func (c *Correlator) allowed(uid types.UID, now time.Time) bool {
	l, ok := c.spam.get(uid)
	if !ok {
		l = rate.NewLimiter(rate.Every(spamEvery), spamBurst)
		c.spam.put(uid, l)
	}
	return l.AllowN(now, 1)
}

// sweep removes, from time to time, entries that no longer have an effect.
func (c *Correlator) sweep(now time.Time) {
	if now.Sub(c.swept) < similarInterval {
		return
	}
	c.swept = now
	c.spam.drop(func(l *rate.Limiter) bool { return l.TokensAt(now) >= spamBurst })
	c.similar.drop(func(s *similar) bool { return now.Sub(s.last) > similarInterval })
}

// Cut shortens a message to MaxMessage, at a character boundary.
func Cut(s string) string {
	if len(s) <= MaxMessage {
		return s
	}
	n := MaxMessage
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n]
}
