package serial

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Nothing of a Manager stays behind when Run has returned, and a call in flight
// sees the end of Run's context.
func TestRunReleasesItsTimers(t *testing.T) {
	type call = Call[string, time.Duration]
	synctest.Test(t, func(t *testing.T) {
		m, err := New(Config[string, time.Duration]{
			Limit: 2, SlotTimeout: time.Minute,
			Handle: func(ctx context.Context, c *call) (Next, error) {
				select {
				case <-time.After(c.Update):
				case <-ctx.Done():
				}
				return Again(time.Minute, "resync"), nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = m.Run(ctx) // always nil
		}()
		m.Update("resting", 0)
		m.Update("in-flight", time.Hour)
		synctest.Wait()
		begin := time.Now()
		cancel()
		<-ended
		if d := time.Since(begin); d != 0 {
			t.Errorf("Run waited %v for a call that it should have cancelled", d)
		}
		for _, w := range m.workers {
			if w.alarm.timer != nil && w.alarm.timer.Stop() {
				t.Errorf("%s: the timer of its next call still runs", w.call.Key)
			}
		}
		if n := m.slots.Free(); n != m.cfg.Limit {
			t.Errorf("%d slots are free, want all %d", n, m.cfg.Limit)
		}
	})
}

// A slot that was given for a call that is not limited any more goes back.
func TestSlotOfACallThatNeedsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := New(Config[string, int]{
			Limit: 1, Limited: func(c *Call[string, int]) bool { return c.Update > 0 },
			Handle: func(context.Context, *Call[string, int]) (Next, error) { return Rest(), nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = m.Run(ctx) // always nil
		}()
		synctest.Wait()
		l := m.Lock() // so that no worker comes between
		l.Update("a", 1)
		l.Update("a", -1)
		l.Update("b", 1)
		m.Unlock()
		synctest.Wait()
		if st, _ := m.State("b"); st.Activity != Resting || st.Waiting {
			t.Errorf("the next key: %+v, want it called", st)
		}
		if n := m.slots.Free(); n != 1 {
			t.Errorf("%d slots are free, want one", n)
		}
		cancel()
		<-ended
	})
}

// The timer of an alarm that is moved later and later is not moved with it.
func TestAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rang := 0
		var mu sync.Mutex
		var a alarm
		a.ring = func() {
			mu.Lock()
			defer mu.Unlock()
			if a.fired(time.Now()) {
				rang++
			}
		}
		begin := time.Now()
		mu.Lock()
		for _, s := range []time.Duration{10, 20, 5, 30} {
			a.set(begin.Add(s*time.Second), s*time.Second, "test")
		}
		if want := begin.Add(5 * time.Second); !a.armed.Equal(want) {
			t.Errorf("armed for %v, want the earliest", a.armed.Sub(begin))
		}
		mu.Unlock()
		time.Sleep(29 * time.Second)
		synctest.Wait()
		mu.Lock()
		if rang != 0 {
			t.Error("it rang too early")
		}
		mu.Unlock()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		mu.Lock()
		if rang != 1 || !a.at.IsZero() {
			t.Errorf("it rang %d times, want once", rang)
		}
		a.set(time.Now().Add(time.Second), time.Second, "test")
		a.stop()
		mu.Unlock()
		time.Sleep(time.Minute)
		if rang != 1 {
			t.Error("it rang after stop")
		}
	})
}

// Called may ask the Manager: it is not locked.
func TestCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m *Manager[string, int]
		var seen []time.Duration
		m, err := New(Config[string, int]{
			Handle: func(context.Context, *Call[string, int]) (Next, error) {
				time.Sleep(time.Second)
				return Rest(), nil
			},
			Called: func(c *Call[string, int], r *Result) {
				if st, ok := m.State(c.Key); !ok || st.Activity != Calling {
					t.Errorf("state %+v", st)
				}
				seen = append(seen, r.At.Sub(c.Start))
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = m.Run(ctx) // always nil
		}()
		m.Update("a", 1)
		time.Sleep(time.Minute)
		cancel()
		<-ended
		if len(seen) != 1 || seen[0] != time.Second {
			t.Errorf("calls %v, want one of a second", seen)
		}
	})
}
