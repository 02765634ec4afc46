package pressure

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A back-off doubles with each eviction, and starts anew for a pod that ran well
// for a while.
func TestBackoffs(t *testing.T) {
	b := newBackoffs()
	now := time.Unix(1000, 0)
	evict := func(want time.Duration) {
		t.Helper()
		if b.over("a", now) || !b.until("a").Equal(now.Add(want)) || !b.next(time.Time{}).Equal(now.Add(want)) {
			t.Fatalf("over at once, or until %v and next %v; want %v from now", b.until("a"), b.next(time.Time{}), want)
		}
		if b.over("a", now.Add(want-1)) || !b.over("a", now.Add(want)) {
			t.Fatalf("not over after exactly %v", want)
		}
		now = now.Add(want)
		b.began("a", now)
		if n := b.next(time.Time{}); !n.IsZero() {
			t.Fatalf("next is %v after it began", n)
		}
	}
	for _, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
		evict(want * time.Second)
		now = now.Add(time.Second)
	}
	now = now.Add(recovers - 2*time.Second)
	evict(maxBackoff)
	now = now.Add(recovers)
	evict(firstBackoff)

	b.retain(func(types.UID) bool { return false })
	b.began("a", now) // of one that is gone: nothing
	if !b.until("a").IsZero() {
		t.Error("a pod that is gone is not forgotten")
	}
	evict(firstBackoff)
}

// The next end is that of the first back-off that was not told of.
func TestNextEndOfABackoff(t *testing.T) {
	b := newBackoffs()
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	if n := b.next(time.Time{}); !n.IsZero() {
		t.Errorf("%v of none", n)
	}
	b.over("late", at(5))
	b.over("soon", at(1))
	for _, tc := range []struct{ told, want time.Time }{{time.Time{}, at(11)}, {at(11), at(15)}, {at(15), time.Time{}}} {
		if n := b.next(tc.told); !n.Equal(tc.want) {
			t.Errorf("after %v: %v, want %v", tc.told, n, tc.want)
		}
	}
}
