package kernel

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func newBatchTest(t *testing.T) *Calls {
	t.Helper()
	hang := 0
	c := NewCalls(10*time.Second, func(by int) { hang += by })
	t.Cleanup(func() {
		if hang != 0 {
			t.Errorf("%d calls hang in the end", hang)
		}
	})
	return c
}

// Each call of a batch has the whole timeout.
func TestABatchOfSlowCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newBatchTest(t)
		failed := errors.New("no")
		err := c.Together(t.Context(), func(b *Batch) error {
			var errs []error
			for _, target := range []string{"a", "b", "c", "d"} {
				errs = append(errs, b.Do(t.Context(), "write", target, func() error {
					time.Sleep(9 * time.Second)
					if target == "b" {
						return failed
					}
					return nil
				}))
			}
			if !errors.Is(errs[1], failed) || errs[1].Error() != "write b: no" {
				t.Errorf("the second call: %v", errs[1])
			}
			return errors.Join(errs[0], errs[2], errs[3])
		})
		if err != nil || len(c.stuck) > 0 {
			t.Errorf("%v, stuck: %v", err, c.stuck)
		}
	})
}

// One that hangs is named, keeps others of its target from starting until it is back, and
// is the last of its batch.
func TestABatchThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newBatchTest(t)
		var mu sync.Mutex
		var made []string
		try := func(ctx context.Context, hang chan struct{}) error {
			return c.Together(ctx, func(b *Batch) error {
				for _, target := range []string{"a", "b", "c"} {
					if err := b.Do(ctx, "mkdir", target, func() error {
						mu.Lock()
						made = append(made, target)
						mu.Unlock()
						if target == "b" {
							<-hang
						}
						return nil
					}); err != nil {
						return err
					}
				}
				return nil
			})
		}
		hang, back := make(chan struct{}), make(chan struct{})
		close(back)
		began := time.Now()
		if err := try(t.Context(), hang); !errors.Is(err, ErrNoAnswer) || !strings.Contains(err.Error(), "mkdir b: ") || time.Since(began) != 10*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if err := try(t.Context(), hang); !errors.Is(err, ErrNoAnswer) || !strings.Contains(err.Error(), "mkdir b: ") || time.Since(began) != 10*time.Second {
			t.Errorf("again, after %v: %v", time.Since(began), err)
		}
		if err := c.Do(t.Context(), "rmdir", "b", func() error { return nil }); !errors.Is(err, ErrNoAnswer) {
			t.Errorf("another call: %v", err)
		}
		close(hang)
		synctest.Wait()
		if want := []string{"a", "b", "a"}; !slices.Equal(made, want) || len(c.stuck) > 0 {
			t.Errorf("made %q, want %q; stuck: %v", made, want, c.stuck)
		}
		if err := try(t.Context(), back); err != nil {
			t.Errorf("when it is back: %v", err)
		}

		hang = make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := try(ctx, hang); !errors.Is(err, ErrNoAnswer) || !errors.Is(err, context.DeadlineExceeded) || len(c.stuck) != 1 {
			t.Errorf("given up by its caller: %v, stuck: %v", err, c.stuck)
		}
		close(hang)
		synctest.Wait()
	})
}

// A caller may leave while no call is under way, as in a wait between two attempts to remove a
// directory. Then nothing hangs, and the target of the last call is not refused to others.
func TestABatchThatIsLeftBetweenItsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newBatchTest(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		nothing := func() error { return nil }
		after := make(chan error, 1)
		err := c.Together(ctx, func(b *Batch) error {
			if err := b.Do(ctx, "rmdir", "a", nothing); err != nil {
				t.Errorf("the first call: %v", err)
			}
			time.Sleep(30 * time.Second) // longer than a call may take
			if err := b.Do(ctx, "rmdir", "a", nothing); err != nil {
				t.Errorf("after a long wait: %v", err)
			}
			time.Sleep(time.Minute)
			after <- b.Do(t.Context(), "rmdir", "b", nothing)
			return nil
		})
		if !errors.Is(err, ErrNoAnswer) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller that left: %v", err)
		}
		if err := c.Do(t.Context(), "rmdir", "a", nothing); err != nil {
			t.Errorf("the last call's target: %v", err)
		}
		if err := <-after; !errors.Is(err, ErrNoAnswer) {
			t.Errorf("a call after its caller left: %v", err)
		}
		if err := c.Do(t.Context(), "rmdir", "b", nothing); err != nil || len(c.stuck) > 0 {
			t.Errorf("%v, stuck: %v", err, c.stuck)
		}
	})
}
