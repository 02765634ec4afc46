//go:build linux

package localcri

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodewright/nodewright/checkpoint"
)

func TestClaimIsDeliveredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		undone := 0
		c := newClaim(func() { undone++ })
		second := c.join(true)
		got := make(chan error, 2)
		for range 2 {
			go func() { got <- c.take(t.Context()) }()
		}
		c.complete(nil)
		if err := errors.Join(<-got, <-got); err != nil || second != joinWait {
			t.Errorf("both callers: %v, result %d", err, second)
		}
		if f := c.join(true); f != joinDelivered {
			t.Errorf("a third one: %d, want that it is delivered", f)
		}
		time.Sleep(2 * unclaimedTime)
		synctest.Wait()
		if undone != 0 {
			t.Error("what was delivered is undone")
		}
	})
}

func TestClaimOfACallerThatWentIsKeptForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		undone := 0
		c := newClaim(func() { undone++ })
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.take(ctx); err == nil {
			t.Error("a caller that is gone is served")
		}
		c.complete(nil)
		time.Sleep(unclaimedTime - time.Second)
		if f := c.join(true); f != joinWait {
			t.Fatalf("a caller that comes again: %d", f)
		}
		time.Sleep(2 * time.Second) // its clock does not run while somebody waits
		if err := c.take(t.Context()); err != nil || undone != 0 {
			t.Errorf("%v, undone %d times", err, undone)
		}
	})
}

func TestClaimThatNobodyTakesIsUndone(t *testing.T) {
	for _, other := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			undone := 0
			c := newClaim(func() { undone++ })
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_ = c.take(ctx)
			c.complete(nil)
			if other { // somebody wants something else of that name
				if f := c.join(false); f != joinUndoing {
					t.Errorf("result %d", f)
				}
			} else {
				time.Sleep(unclaimedTime + time.Second)
			}
			synctest.Wait()
			if f := c.join(true); undone != 1 || f != joinUndoing {
				t.Errorf("undone %d times, result %d", undone, f)
			}
		})
	}
}

// A write that was put off does not bring a removed record back.
func TestSaverRemovesForGood(t *testing.T) {
	store, err := checkpoint.Open(checkpoint.Config{Dir: t.TempDir(), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	s, value := newSaver(), func() []byte { return []byte("x") }
	ctx := t.Context()
	if err := errors.Join(s.save(ctx, store, "a", value), s.remove(ctx, store, "a"), s.save(ctx, store, "a", value)); err != nil {
		t.Fatal(err)
	}
	if b, err := store.Read("a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read %q, %v; want none", b, err)
	}
}
