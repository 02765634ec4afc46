package localapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/internal/httpbound"
)

// Limits for the parts of a request, in bytes, which are checked before anything is parsed. The
// listener limits the total size of the head.
const (
	maxPath         = 4 << 10
	maxQuery        = 16 << 10
	maxStreamQuery  = 128 << 10 // exec has its command in the query
	maxHeader       = 16 << 10  // of all fields together
	maxParameters   = 1000      // number of parameters of a query
	maxSelector     = 4 << 10
	maxRequirements = 100 // number of requirements of a selector
)

const (
	// arrivalTime limits the time to receive the body of a request.
	arrivalTime = 10 * time.Second
	// ofRequest is charged to the pool of incoming bytes for each request, in addition
	// to its head and body.
	ofRequest = 16 << 10
	// ofBody is the number of bytes that are charged for one byte of a body, since the
	// decoded object is larger.
	ofBody = 5
)

// Limits for all clients together. One client may take a quarter of each, which has to be enough
// for the largest body and object.
const (
	maxRequests = 200                          // concurrent requests without watches and streams
	maxStreams  = 200                          // concurrent logs, exec and so on
	maxIncoming = 4 * (ofBody*maxBody + 1<<20) // bytes of requests that are being read or decoded
	maxOutgoing = maxIncoming                  // bytes of answers that are being encoded or sent
)

// pools have the slots and bytes that requests take. Each client may have at most a quarter of a
// pool.
type pools struct {
	requests, watches, streams *httpbound.Pool // slots
	incoming                   *httpbound.Pool // bytes of requests that wait for a slot, and of bodies
	outgoing                   *httpbound.Pool // bytes of answers until their clients have read them
}

func newPools(maxWatches int) pools {
	quarter := func(n int) *httpbound.Pool { return httpbound.NewPool(n, n/4) }
	return pools{quarter(maxRequests), quarter(maxWatches), quarter(maxStreams), quarter(maxIncoming), quarter(maxOutgoing)}
}

// checkHead rejects a head that is too long to be parsed.
func checkHead(r *http.Request) error {
	if n := len(r.URL.Path); n > maxPath {
		return generic(http.StatusRequestURITooLong, metav1.StatusReasonBadRequest, fmt.Sprintf("the path has %d bytes; want at most %d", n, maxPath))
	}
	if n := len(r.URL.RawQuery); n > maxStreamQuery {
		return generic(http.StatusRequestURITooLong, metav1.StatusReasonBadRequest, fmt.Sprintf("the query has %d bytes; want at most %d", n, maxStreamQuery))
	}
	if n := strings.Count(r.URL.RawQuery, "&") + 1; n > maxParameters {
		return apierrors.NewBadRequest(fmt.Sprintf("the query has %d parameters; want at most %d", n, maxParameters))
	}
	if n := headerSize(r.Header); n > maxHeader {
		return generic(http.StatusRequestHeaderFieldsTooLarge, metav1.StatusReasonBadRequest, fmt.Sprintf("the header has %d bytes; want at most %d", n, maxHeader))
	}
	return nil
}

// headerSize returns the number of bytes in the fields of a header.
func headerSize(h http.Header) (n int) {
	for name, values := range h {
		for _, v := range values {
			n += len(name) + len(v)
		}
	}
	return n
}

// checkSelector rejects a selector that is too long. Commas outside of parentheses separate its
// requirements.
func checkSelector(field, s string) error {
	if len(s) > maxSelector {
		return apierrors.NewBadRequest(fmt.Sprintf("%s has %d bytes; want at most %d", field, len(s), maxSelector))
	}
	n, inside := 1, 0
	for _, r := range s {
		switch {
		case r == '(':
			inside++
		case r == ')':
			inside--
		case r == ',' && inside <= 0:
			n++
		}
	}
	if n > maxRequirements {
		return apierrors.NewBadRequest(fmt.Sprintf("%s has %d requirements; want at most %d", field, n, maxRequirements))
	}
	return nil
}

// entered has the bytes that a request has taken from the pool of incoming bytes. leave
// returns them to the pool, once.
type entered struct {
	pool   *httpbound.Pool
	client httpbound.Client
	bytes  int64
}

// enter takes the bytes for the head of a request from the pool of incoming bytes.
func (s *Server) enter(r *http.Request, c httpbound.Client) (*entered, error) {
	e := &entered{pool: s.pools.incoming, client: c}
	return e, e.take(int64(ofRequest + len(r.URL.Path) + len(r.URL.RawQuery) + headerSize(r.Header)))
}

func (e *entered) take(n int64) error {
	if !e.pool.Take(e.client, n) {
		return tooMany(httpbound.ErrNoRoom.Error())
	}
	e.bytes += n
	return nil
}

func (e *entered) leave() {
	if e.bytes > 0 {
		e.pool.Give(e.client, e.bytes)
	}
	e.bytes = 0
}

// arrived is a body that has been read completely.
type arrived struct{ data []byte }

func (arrived) Read([]byte) (int, error) { return 0, io.EOF }

func (arrived) Close() error { return nil }

// arrive reads the body of a request. The request takes a slot only afterwards.
func (e *entered) arrive(w http.ResponseWriter, r *http.Request) error {
	data, err := httpbound.Body(w, r, maxBody, func(n int) bool { return e.take(int64(ofBody*n)) == nil })
	var large *http.MaxBytesError
	switch {
	case err == nil:
		r.Body = arrived{data}
		return nil
	case errors.Is(err, httpbound.ErrNoRoom):
		return tooMany(err.Error())
	case errors.As(err, &large):
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the body has more than %d bytes", maxBody))
	case errors.Is(err, os.ErrDeadlineExceeded):
		return generic(http.StatusRequestTimeout, metav1.StatusReasonTimeout, fmt.Sprintf("the body was not received within %v", arrivalTime))
	default:
		return apierrors.NewBadRequest(err.Error())
	}
}

// work calls do with a slot for the request, once the request has been read completely.
func (s *Server) work(w http.ResponseWriter, r *http.Request, q *query, do func(context.Context) error) error {
	if n := len(r.URL.RawQuery); n > maxQuery {
		return generic(http.StatusRequestURITooLong, metav1.StatusReasonBadRequest, fmt.Sprintf("the query has %d bytes; want at most %d", n, maxQuery))
	}
	if err := q.entered.arrive(w, r); err != nil {
		return err
	}
	if !s.pools.requests.Take(q.client, 1) {
		return tooMany("too many concurrent requests")
	}
	defer s.pools.requests.Give(q.client, 1)
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	s.deadlines(w, requestTimeout+s.cfg.ReaderTimeout)
	return do(ctx)
}

// deadlines sets a deadline for reading the request, and Config.Timeout for writing the answer.
func (s *Server) deadlines(w http.ResponseWriter, d time.Duration) {
	rc := http.NewResponseController(w)
	now := time.Now()
	_, _ = rc.SetReadDeadline(now.Add(d)), rc.SetWriteDeadline(now.Add(requestTimeout+s.cfg.ReaderTimeout)) // fails in tests with a recorder
}
