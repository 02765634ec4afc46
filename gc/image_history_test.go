package gc

import (
	"testing"
	"time"
)

// An image that was pulled and used between two passes ages from its use.
func TestUseBetweenPasses(t *testing.T) {
	var h history
	start := time.Unix(1_000_000, 0)
	none := func(*Image) bool { return false }
	h.observe(nil, none, start)
	h.touch("a", start.Add(time.Minute))
	h.touch("gone", start.Add(time.Minute))
	h.observe([]Image{{ID: "a"}, {ID: "b"}}, none, start.Add(5*time.Minute))
	if s := h.images["a"]; !s.first.Equal(start.Add(time.Minute)) || !s.used.Equal(s.first) {
		t.Errorf("a was seen at %v and used at %v", s.first, s.used)
	}
	if s := h.images["b"]; !s.first.Equal(start.Add(5*time.Minute)) || !s.used.IsZero() {
		t.Errorf("b was seen at %v and used at %v", s.first, s.used)
	}
	if len(h.images) != 2 {
		t.Errorf("history of %v", h.images)
	}
}
