package slots_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodewright/nodewright/internal/slots"
)

// works is who has slots of one queue.
type works struct {
	mu     sync.Mutex
	q      *slots.Queue[string]
	held   map[string]*slots.Slot
	begun  []string
	unwish map[string]bool // do not want one any more at their turn
}

func newWorks(n int, limit time.Duration) *works {
	w := &works{held: map[string]*slots.Slot{}, unwish: map[string]bool{}}
	w.q = slots.New(slots.Config[string]{Slots: n, Limit: limit, Lock: &w.mu, Turn: w.turn})
	return w
}

func (w *works) turn(name string) {
	if w.unwish[name] {
		return
	}
	if s := w.q.Acquire(name); s != nil {
		w.held[name] = s
		w.begun = append(w.begun, name)
	}
}

func (w *works) want(t *testing.T, begun string, free int) {
	t.Helper()
	if got := strings.Join(w.begun, " "); got != begun || w.q.Free() != free {
		t.Errorf("%q have begun and %d slots are free, want %q and %d", got, w.q.Free(), begun, free)
	}
}

func TestQueue(t *testing.T) {
	w := newWorks(2, time.Hour)
	for _, name := range []string{"a", "b", "c", "d", "c", "e"} {
		w.turn(name)
	}
	w.want(t, "a b", 0)
	w.q.Release(w.held["b"])
	w.q.Release(w.held["b"])
	w.q.Release(nil)
	w.want(t, "a b c", 0)
	w.unwish["d"] = true
	w.q.Release(w.held["a"])
	w.want(t, "a b c e", 0)
	w.q.Release(w.held["c"])
	w.q.Release(w.held["e"])
	w.want(t, "a b c e", 2)
	if w.held["e"].Held() || (*slots.Slot)(nil).Held() {
		t.Error("a slot that was given back is held")
	}
}

// What hangs delays others once.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorks(1, time.Second)
		step := func(d time.Duration, begun string, free int) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			w.want(t, begun, free)
		}
		w.mu.Lock()
		for _, name := range []string{"hangs", "b", "c"} {
			w.turn(name)
		}
		w.mu.Unlock()
		step(time.Second-1, "hangs", 0)
		step(1, "hangs b", 0)
		w.mu.Lock()
		if w.held["hangs"].Held() || !w.held["b"].Held() {
			t.Error("who holds a slot is not said")
		}
		w.q.Release(w.held["hangs"])
		w.want(t, "hangs b", 0)
		w.q.Release(w.held["b"])
		w.want(t, "hangs b c", 0)
		w.mu.Unlock()
		step(time.Second-1, "hangs b c", 0) // b's limit is not c's
		step(1, "hangs b c", 1)
	})
}

// Whatever happens: never more than so many hold slots, none is lost, and
// nobody waits while one is free.
func TestSlotsAreKept(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			n := 1 + random.IntN(4)
			w := newWorks(n, time.Second)
			asked := []string{}
			check := func() {
				held := 0
				for _, s := range w.held {
					if s.Held() {
						held++
					}
				}
				if w.q.Free() > 0 && len(w.begun) < len(asked) {
					t.Fatalf("seed %d: %d slots are free, and %d of %d wait", seed, w.q.Free(), len(asked)-len(w.begun), len(asked))
				}
				if held+w.q.Free() != n {
					t.Fatalf("seed %d: %d of %d slots are held and %d free", seed, held, n, w.q.Free())
				}
			}
			for i := range 200 {
				w.mu.Lock()
				switch random.IntN(4) {
				case 0, 1:
					name := fmt.Sprint(i)
					asked = append(asked, name)
					w.turn(name)
				case 2:
					if len(w.begun) > 0 {
						w.q.Release(w.held[w.begun[random.IntN(len(w.begun))]])
					}
				}
				check()
				w.mu.Unlock()
				time.Sleep(time.Duration(random.IntN(200)) * time.Millisecond)
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			check()
			if w.q.Free() != n || !slices.Equal(w.begun, asked) {
				t.Errorf("seed %d: %d of %d slots are free at the end; begun were %v, asked for %v", seed, w.q.Free(), n, w.begun, asked)
			}
		})
	}
}
