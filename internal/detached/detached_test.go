package detached

import (
	"context"
	"errors"
	"fmt"
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
