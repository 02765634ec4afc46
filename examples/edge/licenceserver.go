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
	// acquireTimeout limits one request for a licence, which delays one pod.
	// returnTimeout limits the return of a licence, which delays other cleanup.
	acquireTimeout = 10 * time.Second
	returnTimeout  = 3 * time.Second
	// returnPause is the time after a failure in which no licence is returned, so that
	// the returns of many licences do not all wait for a server that is down.
	returnPause = 20 * time.Second
)

// licenceServer is a client of the licence server that doc.go describes. Its methods
// may be called from any goroutine.
type licenceServer struct {
	url    string
	client *http.Client

	mu     sync.Mutex
	failed error     // result of the last return
	until  time.Time // end of the pause after a failed return
}

// acquire requests a licence. It succeeds only if the response contains the licence's ID: a
// proxy or a login page may answer any request with 200.
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

// giveBack returns a licence to the server. In the pause after a failure it returns that error
// without a request.
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
