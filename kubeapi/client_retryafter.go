package kubeapi

import (
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// maxRetryAfter is the longest accepted Retry-After. An overloaded API server asks for seconds. A
// misconfigured proxy might ask for a day; the node must not stay away for that long.
const maxRetryAfter = time.Minute

// RetryAfter returns the delay that the server requested with an error (Retry-After),
// at most one minute, and whether it requested one.
func RetryAfter(err error) (time.Duration, bool) {
	seconds, ok := apierrors.SuggestsClientDelay(err)
	if !ok {
		return 0, false
	}
	// In seconds, as the header has it (RFC 9110, section 10.2.3).
	const most = int(maxRetryAfter / time.Second)
	return time.Duration(min(max(seconds, 0), most)) * time.Second, true
}

// shortRetryAfter limits the delay that a server requests before client-go waits for it.
type shortRetryAfter struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (p shortRetryAfter) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := p.next.RoundTrip(req)
	if err != nil {
		return res, err
	}
	const most = int64(maxRetryAfter / time.Second)
	const header = "Retry-After"
	// client-go ignores a value that is not a number.
	if seconds, err := strconv.ParseInt(res.Header.Get(header), 10, 64); err == nil && seconds > most {
		res.Header.Set(header, strconv.FormatInt(most, 10))
	}
	return res, nil
}
