package correlate

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func (r *recent[K, V]) len() int { return len(r.young) + len(r.old) }

func TestRecentKeepsWhatIsAskedFor(t *testing.T) {
	r := newRecent[int, string](10)
	r.put(0, "often")
	for i := 1; i < 1000; i++ {
		r.put(i, fmt.Sprint(i))
		if v, ok := r.get(0); !ok || v != "often" {
			t.Fatalf("after %d others: %q, %t", i, v, ok)
		}
		if _, ok := r.get(max(1, i-4)); !ok {
			t.Fatalf("one of the last 5 is forgotten after %d", i)
		}
		if r.len() > 20 {
			t.Fatalf("%d are kept", r.len())
		}
	}
	r.drop(func(string) bool { return true })
	if r.len() != 0 {
		t.Errorf("%d are left", r.len())
	}
}

// However many pods come and go, what is remembered of their events is bounded,
// and those of one that goes on are counted none the less.
func TestEventsOfManyPodsAreBounded(t *testing.T) {
	c, now := New(100), time.Unix(0, 0)
	var combined, silenced int
	for i := range 5000 {
		for _, reason := range []string{"Pulled", "Created", "Started", "Killing"} {
			if e := c.Note(v1.ObjectReference{UID: types.UID(fmt.Sprint("u", i))}, v1.EventTypeNormal, reason, fmt.Sprintf("%s %d", reason, i), now); !e.Allowed || e.Series.Message == "" {
				t.Fatalf("an event of a pod with few is %+v", e)
			}
		}
		e := c.Note(v1.ObjectReference{UID: "stays"}, v1.EventTypeWarning, "Failed", fmt.Sprint("attempt ", i), now)
		if e.Series.Message == "" {
			combined++
		}
		if !e.Allowed {
			silenced++
		}
		now = now.Add(time.Millisecond)
	}
	if c.spam.len() > 200 || c.similar.len() > 200 {
		t.Errorf("%d limits and %d messages are kept", c.spam.len(), c.similar.len())
	}
	if combined < 4900 || silenced < 4900 {
		t.Errorf("of 5000 events of one pod %d were combined and %d silenced", combined, silenced)
	}
}

func TestCut(t *testing.T) {
	for _, s := range []string{"", "short", strings.Repeat("x", MaxMessage), strings.Repeat("x", MaxMessage+1), strings.Repeat("\u00e4", MaxMessage)} {
		if got := Cut(s); len(got) > MaxMessage || !strings.HasPrefix(s, got) || !utf8.ValidString(got) || len(s) <= MaxMessage && got != s || len(got) < min(len(s), MaxMessage-3) {
			t.Errorf("of %d bytes %d are left", len(s), len(got))
		}
	}
}
