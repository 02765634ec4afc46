package podruntime

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodewright/nodewright/cri/observed"
)

// The waits after failures in a row grow, what was seen has its first failure
// free, and what lasted begins anew.
func TestPromiseWaits(t *testing.T) {
	boom := errors.New("boom")
	for _, tc := range []struct {
		name string
		seen bool
		must bool
		last time.Duration // how long each lasts before it fails
		want []time.Duration
	}{
		{"never seen", false, false, 0, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}},
		{"seen", true, false, time.Second, []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second}},
		{"seen, and runs unlisted", true, true, 0, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}},
		{"lasted a minute", true, false, time.Minute, []time.Duration{0, 0, 0}},
		{"lasted a minute, never seen", false, false, time.Minute, []time.Duration{time.Second, time.Second}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPromises()
				for i, want := range tc.want {
					p.made("u", "c", "id", time.Now())
					time.Sleep(tc.last)
					obs := &observed.Pod{UID: "u", ObservedAt: time.Now()}
					if tc.seen {
						obs.Containers = []observed.Container{{ID: "id", Name: "c", State: observed.Running}}
					}
					p.look(obs)
					if _, ok := p.owed(obs, "c"); !ok {
						t.Fatal("nothing is owed")
					}
					wait := time.Duration(0)
					if err := p.strike("u", "c", tc.must, boom, time.Now()); err != nil {
						held := (*heldError)(nil)
						if !errors.As(err, &held) || !errors.Is(err, boom) || !errors.Is(err, errUndone) {
							t.Fatalf("error %v", err)
						}
						wait = time.Until(held.until)
						e, _ := p.owed(obs, "c")
						if e.held(time.Now()) == nil || e.held(held.until) != nil {
							t.Error("it is not held as long as it says")
						}
					}
					if wait != want {
						t.Errorf("failure %d: a wait of %v, want %v", i+1, wait, want)
					}
					time.Sleep(wait)
				}
			})
		})
	}
}

// A look of before the promise reports nothing, and what was removed owes nothing.
func TestPromisesThatAreNotOwed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, before := newPromises(), &observed.Pod{UID: "u", ObservedAt: time.Now()}
		time.Sleep(time.Second)
		p.made("u", "c", "id", time.Now())
		p.made("u", ending("x"), "x", time.Now())
		if _, ok := p.owed(before, "c"); ok {
			t.Error("an older look counts")
		}
		if _, ok := p.owed(&observed.Pod{UID: "u"}, "c"); ok {
			t.Error("a look of no time counts")
		}
		after := &observed.Pod{UID: "u", ObservedAt: time.Now()}
		if _, ok := p.owed(after, "c"); !ok {
			t.Error("a newer look does not count")
		}
		if err := p.again(after, "x", "container x", time.Now()); err == nil {
			t.Error("what runs on is ended again at once")
		}
		p.look(after) // which has nothing that runs
		if err := p.again(after, "x", "container x", time.Now()); err != nil {
			t.Errorf("what ended: %v", err)
		}
		p.released("id")
		if _, ok := p.owed(after, "c"); ok {
			t.Error("something is owed for what was removed")
		}
		p.forget("u")
		if len(p.pods) != 0 {
			t.Error("a pod that is gone is remembered")
		}
	})
}

// A removal is believed once; what is there again is an error, and no more is
// remembered than there is room for.
func TestRemovalsThatAreNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPromises()
		look := func() *observed.Pod {
			return &observed.Pod{UID: "u", ObservedAt: time.Now(), Sandboxes: []observed.Sandbox{{ID: "s"}}, Containers: []observed.Container{{ID: "c"}}}
		}
		if err := p.goes(look(), time.Now()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if err := p.goes(look(), time.Now()); err == nil {
			t.Error("what was removed is there, and nobody says so")
		}
		time.Sleep(removedFor + time.Second)
		if err := p.goes(&observed.Pod{UID: "v", ObservedAt: time.Now()}, time.Now()); err != nil || len(p.removed.at) != 0 {
			t.Errorf("%v; %d removals are remembered", err, len(p.removed.at))
		}
		many := &observed.Pod{UID: "w", ObservedAt: time.Now(), Containers: make([]observed.Container, 2*removedMost)}
		for i := range many.Containers {
			many.Containers[i].ID = string(rune('a'+i%26)) + time.Duration(i).String()
		}
		if err := p.goes(many, time.Now()); err != nil || len(p.removed.at) > removedMost {
			t.Errorf("%v; %d removals are remembered", err, len(p.removed.at))
		}
	})
}
