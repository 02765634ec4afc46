package detached

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestACallThatReturns(t *testing.T) {
	var g Group[int]
	boom := errors.New("boom")
	if v, err := g.Do(t.Context(), "k", func() (int, error) { return 7, boom }); v != 7 || !errors.Is(err, boom) {
		t.Errorf("%d, %v", v, err)
	}
	if n := g.InFlight(); n != 0 {
		t.Errorf("%d in flight", n)
	}
}

func TestAPanicIsAnError(t *testing.T) {
	var g Group[int]
	if _, err := g.Do(t.Context(), "k", func() (int, error) { panic("boom") }); !errors.Is(err, ErrPanicked) {
		t.Errorf("%v", err)
	}
	if n := g.InFlight(); n != 0 {
		t.Errorf("%d in flight", n)
	}
}

// However often it is tried, a call that hangs is made once, and what it
// returns in the end is known to those who wait.
func TestACallThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[string]
		var calls atomic.Int32
		hang := make(chan struct{})
		f := func() (string, error) {
			calls.Add(1)
			<-hang
			return "late", nil
		}
		for range 1000 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := g.Do(ctx, "k", f); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%v", err)
			}
			cancel()
		}
		if v, err := g.Do(t.Context(), "other", func() (string, error) { return "now", nil }); v != "now" || err != nil {
			t.Errorf("another key: %q, %v", v, err)
		}
		got := make(chan string)
		go func() {
			v, _ := g.Do(t.Context(), "k", f)
			got <- v
		}()
		synctest.Wait()
		close(hang)
		if v := <-got; v != "late" || calls.Load() != 1 {
			t.Errorf("%q after %d calls", v, calls.Load())
		}
	})
}

func TestTooManyCallsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := Group[int]{Limit: 3}
		hang := make(chan struct{})
		try := func(key string) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := g.Do(ctx, key, func() (int, error) {
				<-hang
				return 0, nil
			})
			return err
		}
		for i := range 3 {
			if err := try(fmt.Sprint(i)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("call %d: %v", i, err)
			}
		}
		if err := try("more"); !errors.Is(err, ErrBusy) {
			t.Errorf("%v, want ErrBusy", err)
		}
		close(hang)
		synctest.Wait()
		if err := try("again"); err != nil {
			t.Error(err)
		}
	})
}

func TestAnEndedContext(t *testing.T) {
	var g Group[int]
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("cause")
	cancel(cause)
	if _, err := g.Do(ctx, "k", func() (int, error) { t.Error("called"); return 0, nil }); !errors.Is(err, cause) {
		t.Errorf("%v", err)
	}
}

// With Wait, more calls than are allowed at a time are all made, and one that finds
// no place until its context ends says why.
func TestCallsWaitForAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := Group[int]{Limit: 3, Wait: true}
		var now, most atomic.Int32
		var wg sync.WaitGroup
		begun := time.Now()
		for i := range 30 {
			wg.Go(func() {
				v, err := g.Do(t.Context(), fmt.Sprint(i), func() (int, error) {
					n := now.Add(1)
					defer now.Add(-1)
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
					}
					time.Sleep(time.Second)
					return i, nil
				})
				if v != i || err != nil {
					t.Errorf("call %d: %d, %v", i, v, err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(begun); took != 10*time.Second || most.Load() != 3 {
			t.Errorf("took %v with %d at a time, want 10s with 3", took, most.Load())
		}
		hang := make(chan struct{})
		for i := range 3 {
			go func() {
				_, _ = g.Do(context.Background(), fmt.Sprint(i), func() (int, error) { <-hang; return 0, nil })
			}()
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := g.Do(ctx, "late", func() (int, error) { return 0, nil }); !errors.Is(err, ErrBusy) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want busy and the end of the context", err)
		}
		if n := g.InFlight(); n != 3 {
			t.Errorf("%d in flight, want 3", n)
		}
		close(hang)
		synctest.Wait()
	})
}
