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
	spamBurst       = 25                // events that an object may have at once
	spamEvery       = 300 * time.Second // then one more event in each period of this length
	maxSimilar      = 10                // different messages from which on events are combined
	similarInterval = 600 * time.Second
	combined        = "(combined from similar events): "
)

// MaxMessage is the maximum length of an event's message in bytes, a limit of the API server.
const MaxMessage = 1024

// Series identifies events that are counted in one Event object.
type Series struct {
	Object       v1.ObjectReference // ResourceVersion is ""
	Type, Reason string
	Message      string // "" for combined events
}

// Event is the result of Correlator.Note.
type Event struct {
	Series Series
	// Message is the newest message of the series, cut to MaxMessage.
	Message string
	// Allowed is false if the object has had too many events.
	Allowed bool
}

// Correlator counts recent events by object and series. It is not safe for concurrent use.
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

// similar has hashes of the different recent messages.
type similar struct {
	messages [maxSimilar]uint64
	count    int // number of messages
	last     time.Time
}

// New returns a Correlator. It stores about size objects, and as many keys of similar events, in
// each case at most twice as many. It forgets the least recently used first.
func New(size int) *Correlator {
	return &Correlator{spam: newRecent[types.UID, *rate.Limiter](size), similar: newRecent[similarKey, *similar](size), seed: maphash.MakeSeed()}
}

// Note records an event of an object and returns the Event to write. The caller must not
// write an Event that is not Allowed.
func (c *Correlator) Note(object v1.ObjectReference, eventType, reason, message string, now time.Time) Event {
	c.sweep(now)
	object.ResourceVersion = ""
	message = Cut(message)
	e := Event{Series: Series{object, eventType, reason, message}, Message: message}
	if c.isSimilar(similarKey{object.UID, eventType, reason}, message, now) {
		e.Series.Message, e.Message = "", Cut(combined+message)
	}
	e.Allowed = c.allowed(object.UID, now)
	return e
}

// isSimilar records a message, and reports whether the events of k have had at least maxSimilar
// different messages, without a pause longer than similarInterval.
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

// allowed reports whether an object may have one more event, and counts the event if so.
func (c *Correlator) allowed(uid types.UID, now time.Time) bool {
	l, ok := c.spam.get(uid)
	if !ok {
		l = rate.NewLimiter(rate.Every(spamEvery), spamBurst)
		c.spam.put(uid, l)
	}
	return l.AllowN(now, 1)
}

// sweep removes entries without an effect. It does so at most once in similarInterval.
func (c *Correlator) sweep(now time.Time) {
	if now.Sub(c.swept) < similarInterval {
		return
	}
	c.swept = now
	c.spam.drop(func(l *rate.Limiter) bool { return l.TokensAt(now) >= spamBurst })
	c.similar.drop(func(s *similar) bool { return now.Sub(s.last) > similarInterval })
}

// Cut shortens a message to at most MaxMessage bytes. It does not cut within a character.
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
