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

// Request is a call that was made.
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
	oldest   uint64 // that watches may begin at
	created  uint64 // objects, ever: UIDs are made of it
	objects  map[kubeapi.Resource]map[kubeapi.Key]object
	events   []event
	history  int // of events that are kept; 0: all
	streams  map[kubeapi.Resource]map[*stream]bool
	ended    chan struct{} // closed to end watches and hanging calls
	down     bool
	hang     bool
	silent   bool
	noList   bool // no watch begins with a list
	json     bool
	faults   []Fault
	requests []Request
	calls    int            // that were made
	lean     bool           // requests are counted alone
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

// Config leads to the server without a socket and without a bound on calls.
func (s *Server) Config() *rest.Config {
	return &rest.Config{Host: "http://kubeapitest", QPS: -1, Transport: s.Transport()}
}

// Transport calls the server without a socket.
func (s *Server) Transport() http.RoundTripper { return transport{s} }

// Requests returns the calls so far, refused ones included.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// Count counts the calls so far of a verb on a resource.
func (s *Server) Count(verb string, r kubeapi.Resource) int {
	n := 0
	for _, q := range s.Requests() {
		if q.Verb == verb && q.Resource == r {
			n++
		}
	}
	return n
}

// ForgetRequests has Requests and Count begin anew.
func (s *Server) ForgetRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = nil
}

// Lean has the server forget what a long life does not need: calls are counted and not
// kept, so that Requests and Count report none, and watches begin at one of the last
// events only, as many as history, 1 or more; older ones get 410.
func (s *Server) Lean(history int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lean, s.history, s.requests = true, max(1, history), nil
}

// Calls is how many calls were made, refused ones and those that ForgetRequests has
// forgotten included.
func (s *Server) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// Watches is how many watches of a resource are open.
func (s *Server) Watches(r kubeapi.Resource) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[r.String()]
}

// UseJSON has the server answer in JSON to those too who would take protobuf.
func (s *Server) UseJSON() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.json = true
}

// WithoutWatchList makes an older server of it, whose watches cannot begin
// with a list.
func (s *Server) WithoutWatchList() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noList = true
}

// Handler answers calls that are more than reading and writing objects. It
// gets what was sent and returns what to answer.
type Handler func(q Request, body runtime.Object) (runtime.Object, error)

// Handle has fn answer what is posted to a resource, or to a subresource, as
// of "tokenreviews" and "serviceaccounts/token".
func (s *Server) Handle(resource string, fn Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers[resource] = fn
}
