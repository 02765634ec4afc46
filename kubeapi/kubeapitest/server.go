package kubeapitest

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/nodewright/nodewright/kubeapi"
)

// Request is a recorded call.
type Request struct {
	// Verb is get, list, watch, create, update, patch or delete.
	Verb        string
	Resource    kubeapi.Resource
	Key         kubeapi.Key
	Subresource string
	Fields      string // the field selector
	Body        []byte // as it was sent
	At          time.Time
}

// Server is an API server in memory. Its methods may be called from any
// goroutine.
type Server struct {
	scheme *runtime.Scheme
	codecs serializer.CodecFactory
	kinds  map[string]kind // by group/version/resource

	mu       sync.Mutex
	revision uint64
	oldest   uint64 // the oldest one at which watches may begin
	created  uint64 // objects ever created: UIDs are derived from it
	objects  map[kubeapi.Resource]map[kubeapi.Key]object
	events   []event
	history  int // limit of stored events; 0: all
	streams  map[kubeapi.Resource]map[*stream]bool
	ended    chan struct{} // closed to end watches and hanging calls
	down     bool
	hang     bool
	silent   bool
	noList   bool // watches cannot begin with a list
	json     bool
	faults   []Fault
	requests []Request
	calls    int            // number of calls
	lean     bool           // requests are only counted
	open     map[string]int // watches by resource
	handlers map[string]Handler
}

// New returns an empty server.
func New() *Server {
	scheme, err := kubeapi.NewScheme()
	if err != nil {
		panic(err)
	}
	return &Server{
		scheme: scheme, codecs: serializer.NewCodecFactory(scheme), kinds: kinds(),
		revision: 100, oldest: 1,
		objects: map[kubeapi.Resource]map[kubeapi.Key]object{},
		streams: map[kubeapi.Resource]map[*stream]bool{}, ended: make(chan struct{}),
		open: map[string]int{}, handlers: map[string]Handler{},
	}
}

// Config returns the configuration of a client that connects to the server without a
// socket and without a rate limit.
func (s *Server) Config() *rest.Config {
	return &rest.Config{Host: "http://kubeapitest", QPS: -1, Transport: s.Transport()}
}

// Transport returns a transport that calls the server without a socket.
func (s *Server) Transport() http.RoundTripper { return transport{s} }

// Requests returns the calls so far, including refused ones.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// Count returns the number of calls so far of a verb on a resource.
func (s *Server) Count(verb string, r kubeapi.Resource) int {
	n := 0
	for _, q := range s.Requests() {
		if q.Verb == verb && q.Resource == r {
			n++
		}
	}
	return n
}

// ForgetRequests clears the calls of Requests and Count.
func (s *Server) ForgetRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = nil
}

// Lean reduces the server's memory: calls are only counted, so that Requests and
// Count return none, and only as many events are stored as history, 1 or more;
// older watches get 410.
func (s *Server) Lean(history int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lean, s.history, s.requests = true, max(1, history), nil
}

// Calls returns the number of calls, including refused ones and those before
// ForgetRequests.
func (s *Server) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// Watches returns the number of open watches of a resource.
func (s *Server) Watches(r kubeapi.Resource) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[r.String()]
}

// UseJSON makes the server answer in JSON even to clients that accept protobuf.
func (s *Server) UseJSON() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.json = true
}

// WithoutWatchList makes the server behave like an older one, whose watches cannot
// begin with a list.
func (s *Server) WithoutWatchList() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noList = true
}

// Handler answers calls beyond reading and writing objects. It gets the body and
// returns the answer.
type Handler func(q Request, body runtime.Object) (runtime.Object, error)

// Handle sets fn for posts to a resource, or to a subresource, such as
// "tokenreviews" and "serviceaccounts/token".
func (s *Server) Handle(resource string, fn Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers[resource] = fn
}
