package server_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/nodewright/nodewright/server"
	"github.com/nodewright/nodewright/server/auth"
)

// named takes a request for that of the user in its header.
type named struct{}

func (named) Authenticate(r *http.Request) (*auth.User, error) {
	return &auth.User{Name: r.Header.Get("X-Name")}, nil
}

// One user, whatever it does, leaves places for others.
func TestOneUserOfTheNodeAPI(t *testing.T) {
	for name, tc := range map[string]struct {
		path string
		want int // of 16 places
	}{
		"requests": {"https://node/healthz/waits", 14},
		"streams":  {"https://node/containerLogs/default/web/c?follow=true", 12}, // which are of one kind
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				c := guarded(t)
				c.Authenticator, c.Logs, c.Streams, c.Requests = named{}, hungLogs{}, 16, 16
				c.Health = []server.Check{{Name: "waits", Check: func(r *http.Request) error {
					if r.Header.Get("X-Name") == "greedy" {
						<-r.Context().Done()
					}
					return nil
				}}}
				h := handler(t, c)
				ask := func(ctx context.Context, user, path string) int {
					r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody)
					r.Header.Set("X-Name", user)
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					return w.Code
				}
				var wg sync.WaitGroup
				refused := make(chan int, 100)
				for range 100 {
					wg.Go(func() { refused <- ask(ctx, "greedy", tc.path) })
				}
				synctest.Wait()
				if held := 100 - len(refused); held != tc.want {
					t.Errorf("one user has %d of 16 places, want %d", held, tc.want)
				}
				if code := ask(t.Context(), "modest", "https://node/healthz/waits"); code != http.StatusOK {
					t.Errorf("another user is answered %d", code)
				}
				cancel()
				wg.Wait()
			})
		})
	}
}

// A body that does not come holds no place of an expensive endpoint.
func TestBodiesTakeNoHeavyPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := handler(t, guarded(t))
		out, in := io.Pipe()
		var wg sync.WaitGroup
		for range 8 { // as many as there are places
			wg.Go(func() {
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "https://node/stats/summary", out))
			})
		}
		synctest.Wait()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "https://node/stats/summary", http.NoBody))
		if w.Code != http.StatusOK {
			t.Errorf("beside a body that does not come: %d %s", w.Code, w.Body)
		}
		_ = in.Close()
		wg.Wait()
	})
}
