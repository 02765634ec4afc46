package detached

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestEachCallOfAQueueHasItsOwnResult(t *testing.T) {
	var q Queue
	var wg sync.WaitGroup
	inside := 0 // the race detector sees two at a time
	for i := range 50 {
		wg.Go(func() {
			want := fmt.Errorf("error %d", i)
			if v, err := Next(t.Context(), &q, "k", func() (int, error) { inside++; return i, want }); v != i || !errors.Is(err, want) {
				t.Errorf("call %d: %d, %v", i, v, err)
			}
		})
	}
	wg.Wait()
	if inside != 50 || q.InFlight() != 0 {
		t.Errorf("%d calls, %d in flight", inside, q.InFlight())
	}
	if v, err := Next(t.Context(), &q, "k", func() (error, error) { return nil, nil }); v != nil || err != nil {
		t.Errorf("%v, %v", v, err)
	}
	if _, err := Next(t.Context(), &q, "k", func() (int, error) { panic("boom") }); !errors.Is(err, ErrPanicked) {
		t.Errorf("%v, want ErrPanicked", err)
	}
}

// Who waits behind a call that hangs gives up, and was never called.
func TestAQueueBehindACallThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := Queue{Limit: 2}
		hang := make(chan struct{})
		try := func(key string, f func()) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := Next(ctx, &q, key, func() (int, error) { f(); return 0, nil })
			return err
		}
		wait := func() { <-hang }
		if err := try("k", wait); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		for range 100 {
			if err := try("k", func() { t.Error("called") }); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v", err)
			}
		}
		if err := try("other", func() {}); err != nil || q.InFlight() != 1 {
			t.Errorf("%v with %d in flight", err, q.InFlight())
		}
		_ = try("other", wait)
		if err := try("third", wait); !errors.Is(err, ErrBusy) {
			t.Errorf("%v, want ErrBusy", err)
		}
		close(hang)
		synctest.Wait()
		if err := try("k", func() {}); err != nil {
			t.Error(err)
		}
	})
}
