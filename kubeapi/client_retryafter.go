package kubeapi

import (
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// maxRetryAfter is the longest that a server's Retry-After has anybody wait. An API
// server that sheds load asks for seconds; whoever answers with a day, such as a
// proxy, must not keep the node away for as long.
const maxRetryAfter = time.Minute

// RetryAfter returns how long the server that an error came from asks to wait
// before the next try, maxRetryAfter at most, and reports whether it does.
func RetryAfter(err error) (time.Duration, bool) {
	seconds, ok := apierrors.SuggestsClientDelay(err)
	if !ok {
		return 0, false
	}
	// In seconds, as the header has it (RFC 9110, section 10.2.3).
	const most = int(maxRetryAfter / time.Second)
	return time.Duration(min(max(seconds, 0), most)) * time.Second, true
}

// patient shortens the time that a server asks for before client-go waits for it.
type patient struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (p patient) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := p.next.RoundTrip(req)
	if err != nil {
		return res, err
	}
	const most = int64(maxRetryAfter / time.Second)
	const header = "Retry-After"
	// What is no number, client-go takes as no request to wait.
	if seconds, err := strconv.ParseInt(res.Header.Get(header), 10, 64); err == nil && seconds > most {
		res.Header.Set(header, strconv.FormatInt(most, 10))
	}
	return res, nil
}
