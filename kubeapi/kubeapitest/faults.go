package kubeapitest

import (
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/kubeapi"
)

// Fault decides about a call before the server executes it: the call is delayed, and
// then fails if err is not nil.
type Fault func(q Request) (delay time.Duration, err error)

// Any selects every call for a fault.
func Any(Request) bool { return true }

// Of selects the calls of a verb on a resource. If verb is "", it selects all verbs.
func Of(verb string, r kubeapi.Resource) func(Request) bool {
	return func(q Request) bool { return q.Resource == r && (verb == "" || q.Verb == verb) }
}

// Slow returns a Fault that delays the calls for which selects returns true.
func Slow(d time.Duration, selects func(Request) bool) Fault {
	return func(q Request) (time.Duration, error) {
		if selects(q) {
			return d, nil
		}
		return 0, nil
	}
}

// Refuse returns a Fault. The first n calls for which selects returns true fail with err. If n is
// negative, all such calls fail.
func Refuse(n int, err error, selects func(Request) bool) Fault {
	return func(q Request) (time.Duration, error) {
		if n == 0 || !selects(q) {
			return 0, nil
		}
		n--
		return 0, err
	}
}

// Status returns an error like a server's answer with that status code.
func Status(code int) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), Reason: reasons[code], Message: fmt.Sprintf("kubeapitest: %s", http.StatusText(code)),
	}}
}

// TooMany returns a 429 with Retry-After.
func TooMany(after time.Duration) error {
	return apierrors.NewTooManyRequests("kubeapitest: too many requests", int(after/time.Second))
}

var reasons = map[int]metav1.StatusReason{
	http.StatusUnauthorized: metav1.StatusReasonUnauthorized, http.StatusForbidden: metav1.StatusReasonForbidden,
	http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusConflict: metav1.StatusReasonConflict,
	http.StatusGone: metav1.StatusReasonGone, http.StatusInternalServerError: metav1.StatusReasonInternalError,
	http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable, http.StatusGatewayTimeout: metav1.StatusReasonTimeout,
	http.StatusUnprocessableEntity: metav1.StatusReasonInvalid,
}

// Fail adds f to the faults of later calls. It is called without locks held, one
// call at a time.
func (s *Server) Fail(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, f)
}

// Heal ends the effects of Fail, Hang, Silence and Stop.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults, s.down, s.silent = nil, false, false
	if s.hang {
		s.hang = false
		s.end()
	}
}

// Stop makes the server unreachable and ends its watches.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = true
	s.end()
}

// Start makes the server reachable again after Stop.
func (s *Server) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = false
}

// Hang blocks calls until their callers give up, or until Heal.
func (s *Server) Hang() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hang = true
}

// Silence makes the open watches send nothing more, but keeps them open. New watches
// work.
func (s *Server) Silence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = true
	for _, streams := range s.streams {
		for st := range streams {
			st.silent = true
			st.news.Set()
		}
	}
}

// EndWatches ends the open watches, as servers do from time to time.
func (s *Server) EndWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
}

// Compact drops all earlier events: a watch that begins at an earlier revision gets
// 410.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	s.oldest, s.events = s.revision, nil
}

// Wipe drops everything, restarts the revisions and ends the watches, like a new
// etcd.
func (s *Server) Wipe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision, s.oldest, s.events = 1, 1, nil
	clear(s.objects)
	s.end()
}

// end ends watches and hanging calls. The caller holds s.mu.
func (s *Server) end() {
	close(s.ended)
	s.ended = make(chan struct{})
}
