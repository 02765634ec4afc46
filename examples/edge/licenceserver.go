package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	// acquireTimeout is the limit of one request for a licence, which delays one
	// pod. returnTimeout is the limit of one return, which delays other cleanup.
	acquireTimeout = 10 * time.Second
	returnTimeout  = 3 * time.Second
	// returnPause is how long no licence is returned after the server failed. Otherwise
	// the return of each of many licences would wait for the server.
	returnPause = 20 * time.Second
)

// licenceServer is a client of the licence server that doc.go describes. Its methods
// may be called from any goroutine.
type licenceServer struct {
	url    string
	client *http.Client

	mu     sync.Mutex
	failed error     // of the last return
	until  time.Time // when a next one is tried
}

// acquire requests a licence. It succeeds only if the answer names the licence: a
// proxy or a login page may answer 200 to any request.
func (s *licenceServer) acquire(ctx context.Context, id, product, pod string) error {
	body, err := json.Marshal(map[string]string{"product": product, "pod": pod})
	if err != nil {
		return err
	}
	said, err := s.do(ctx, http.MethodPut, id, body, acquireTimeout)
	switch {
	case err != nil:
		return err
	case said.status != http.StatusOK:
		return said.refusal()
	}
	var grant struct{ Granted string }
	if err := json.Unmarshal(said.body, &grant); err != nil || grant.Granted != id {
		return errors.New("the server answered without a grant")
	}
	return nil
}

// giveBack returns a licence.
func (s *licenceServer) giveBack(ctx context.Context, id string) error {
	s.mu.Lock()
	failed, until := s.failed, s.until
	s.mu.Unlock()
	if failed != nil && time.Now().Before(until) {
		return failed
	}
	said, err := s.do(ctx, http.MethodDelete, id, nil, returnTimeout)
	if err == nil && said.status != http.StatusNoContent {
		err = said.refusal()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed, s.until = err, time.Now().Add(returnPause)
	return err
}

func (s *licenceServer) do(ctx context.Context, method, id string, body []byte, within time.Duration) (answer, error) {
	at, err := url.JoinPath(s.url, "licences", id)
	if err != nil {
		return answer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	said, err := exchange(s.client, req)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("the server did not answer within %v", within)
	}
	return said, err
}
