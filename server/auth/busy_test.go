package auth_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/nodewright/nodewright/server/auth"
)

// from is a request with a token from an address.
func from(addr, token string) *http.Request {
	r := withToken("Bearer " + token)
	r.RemoteAddr = addr
	return r
}

// A host has a share of what may wait for reviews, and the rest is for others.
func TestHowManyWaitForReviewsOfTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, most := 0, 0
		var mu sync.Mutex
		a := auth.Tokens(auth.TokensConfig{Reviewer: auth.TokenReviewerFunc(func(ctx context.Context, r *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
			mu.Lock()
			out++
			most = max(most, out)
			mu.Unlock()
			<-ctx.Done()
			mu.Lock()
			out--
			mu.Unlock()
			return r, ctx.Err()
		})})
		busy, failed := 0, 0
		var wg sync.WaitGroup
		flood := func(n int, addr func(i int) string) {
			for i := range n {
				wg.Go(func() {
					_, err := a.Authenticate(from(addr(i), fmt.Sprint(addr(i), i)))
					mu.Lock()
					defer mu.Unlock()
					switch {
					case errors.Is(err, auth.ErrBusy):
						busy++
					case err != nil:
						failed++
					}
				})
			}
			synctest.Wait()
		}
		want := func(what string, wantBusy int) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if busy != wantBusy || failed != 0 || out > 32 {
				t.Errorf("%s: %d are refused, %d have failed and %d reviews are out; want %d, none and at most 32", what, busy, failed, out, wantBusy)
			}
			busy = 0
		}
		flood(1000, func(i int) string { return fmt.Sprint("10.0.0.1:", i) })
		want("one host", 1000-64)
		flood(1000, func(i int) string { return fmt.Sprintf("[2001:db8::%x]:1", i) })
		want("one network of IPv6", 1000-64)
		flood(1000, func(i int) string { return fmt.Sprintf("10.1.%d.1:1", i%256) })
		want("many hosts", 1000-(512-128))
		began := time.Now()
		wg.Wait()
		if d := time.Since(began); d > 10*time.Second {
			t.Errorf("they waited %v, want 10s", d)
		}
		if most != 32 {
			t.Errorf("%d reviews were out at a time, want 32", most)
		}
		flood(64, func(int) string { return "10.0.0.1:1" })
		mu.Lock()
		busy0 := busy
		mu.Unlock()
		if busy0 != 0 {
			t.Errorf("%d are refused when nobody waits any more", busy0)
		}
		wg.Wait()
	})
}

// Tokens that are nobody's do not push out of memory those that are somebody's.
func TestUnknownTokensLeaveTheKnown(t *testing.T) {
	k := &tokens{}
	a := auth.Tokens(auth.TokensConfig{Reviewer: k})
	for i := range 5000 {
		if _, err := a.Authenticate(withToken("Bearer good")); err != nil {
			t.Fatal(err)
		}
		_, _ = a.Authenticate(withToken(fmt.Sprint("Bearer ", i)))
	}
	if n := k.asked.Load(); n != 5001 {
		t.Errorf("%d reviews, want one of the known token and one of each of 5000 others", n)
	}
}

// A reviewer that panics leaves nobody waiting.
func TestReviewThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		a := auth.Tokens(auth.TokensConfig{Reviewer: auth.TokenReviewerFunc(func(context.Context, *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
			asked++
			time.Sleep(time.Second)
			panic("oops")
		})})
		var wg sync.WaitGroup
		for range 40 { // more than may be out
			wg.Go(func() {
				defer func() { _ = recover() }() // as net/http does
				if _, err := a.Authenticate(withToken("Bearer x")); err == nil {
					t.Error("no error for one who waited for a review that panicked")
				}
			})
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
		for range 40 {
			wg.Go(func() {
				defer func() { _ = recover() }()
				_, _ = a.Authenticate(withToken("Bearer x"))
			})
			wg.Wait()
		}
		if asked != 41 {
			t.Errorf("%d reviews, want 41", asked)
		}
	})
}
