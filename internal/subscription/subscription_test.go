package subscription_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodewright/nodewright/internal/subscription"
)

// reader takes its time for each change, in a synctest bubble.
type reader struct {
	each time.Duration
	mu   sync.Mutex
	got  []string
}

func (r *reader) take(s string) {
	time.Sleep(r.each)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, s)
}

func (r *reader) want(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.got, want) {
		t.Errorf("got %q, want %q", r.got, want)
	}
}

func join(waiting, next string) string { return waiting + next }

func TestEverythingComesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l subscription.List[string]
		fast, slow, late := &reader{}, &reader{each: time.Minute}, &reader{}
		l.Publish("nobody hears it")
		l.Add(fast.take)
		l.Add(slow.take)
		l.Publish("a")
		l.Publish("b")
		l.Add(late.take)
		l.Publish("c")
		fast.want(t, "a", "b", "c")
		late.want(t, "c")
		slow.want(t)
		l.Close()
		l.Wait()
		slow.want(t, "a", "b", "c")
	})
}

func TestMerge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := subscription.List[string]{Merge: join}
		fast, slow := &reader{}, &reader{each: time.Minute}
		l.Add(fast.take)
		l.Add(slow.take)
		for _, c := range []string{"a", "b", "c", "d"} {
			l.Publish(c)
			synctest.Wait()
		}
		fast.want(t, "a", "b", "c", "d")
		time.Sleep(time.Hour)
		slow.want(t, "a", "bcd")
		l.Publish("e")
		time.Sleep(time.Hour)
		slow.want(t, "a", "bcd", "e")
		l.Close()
		l.Wait()
	})
}

func TestEnds(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(l *subscription.List[string], cancel func())
		want []string // of a reader that is at "a" then, and has "b" to come
	}{
		{"cancelled", func(l *subscription.List[string], cancel func()) { cancel(); cancel(); l.Close() }, []string{"a"}},
		{"closed", func(l *subscription.List[string], _ func()) { l.Close() }, []string{"a", "b"}},
		{"dropped", func(l *subscription.List[string], _ func()) { l.Drop() }, []string{"a"}},
		{"closed, then cancelled", func(l *subscription.List[string], cancel func()) { l.Close(); cancel() }, []string{"a"}},
		{"closed, then dropped", func(l *subscription.List[string], _ func()) { l.Close(); l.Drop() }, []string{"a"}},
	} {
		for _, merge := range []func(string, string) string{nil, join} {
			t.Run(fmt.Sprintf("%s, merged: %v", tc.name, merge != nil), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := subscription.List[string]{Merge: merge}
					r := &reader{each: time.Minute}
					cancel := l.Add(r.take)
					l.Publish("a")
					synctest.Wait()
					l.Publish("b")
					tc.end(&l, cancel)
					l.Wait()
					r.want(t, tc.want...)
					l.Publish("after the end")
					l.Add(r.take)
					l.Publish("to a closed list")
					l.Wait()
					r.want(t, tc.want...)
				})
			})
		}
	}
}

// What comes between Close and the last call is delivered to whoever is not
// done yet.
func TestPublishWhileClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l subscription.List[string]
		idle, busy := &reader{}, &reader{each: time.Minute}
		l.Add(idle.take)
		l.Add(busy.take)
		l.Publish("a")
		synctest.Wait()
		l.Close()
		synctest.Wait()
		l.Publish("b")
		l.Wait()
		idle.want(t, "a")
		busy.want(t, "a", "b")
	})
}

// A subscriber may publish, subscribe and cancel.
func TestCallsFromWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l subscription.List[string]
		inner := &reader{}
		var cancel func()
		both := make(chan struct{})
		cancel = l.Add(func(s string) {
			<-both
			l.Add(inner.take)
			cancel()
			l.Publish(s + "!")
		})
		l.Publish("a")
		l.Publish("b")
		close(both)
		inner.want(t, "a!")
		l.Close()
		l.Wait()
	})
}

// With many publishers and subscribers that come and go, each gets what each
// publisher says in order, without gaps before its end, and nobody hangs.
func TestConcurrentUse(t *testing.T) {
	type said struct{ by, n int }
	var l subscription.List[said]
	var publishers, readers sync.WaitGroup
	for by := range 4 {
		publishers.Go(func() {
			for n := range 500 {
				l.Publish(said{by, n})
			}
		})
	}
	for range 8 {
		readers.Go(func() {
			for range 20 {
				last := map[int]int{}
				cancel := l.Add(func(s said) {
					if n, ok := last[s.by]; ok && s.n != n+1 {
						t.Errorf("publisher %d: %d after %d", s.by, s.n, n)
					}
					last[s.by] = s.n
				})
				for range rand.IntN(100) {
					l.Publish(said{by: -1 - rand.Int()})
				}
				cancel()
			}
		})
	}
	publishers.Wait()
	readers.Wait()
	l.Close()
	l.Wait()
}

func TestUnion(t *testing.T) {
	a, b := []string{"c", "a"}, []string{"b", "a"}
	if got := subscription.Union(a, b); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Error(got)
	}
	if a[0] != "c" || b[0] != "b" {
		t.Error("its arguments have changed")
	}
	if got := subscription.Union[string](nil, nil); got != nil {
		t.Errorf("of nothing and nothing: %v", got)
	}
}

func ExampleList() {
	var l subscription.List[string]
	l.Add(func(s string) { fmt.Println("hello", s) })
	l.Publish("world")
	l.Close()
	l.Wait()
	// Output: hello world
}
