package localapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/version"

	"github.com/nodewright/nodewright/internal/correlate"
	"github.com/nodewright/nodewright/internal/wake"
	"github.com/nodewright/nodewright/localapi/internal/objects"
	"github.com/nodewright/nodewright/localapi/store"
)

// Config holds what a Server needs. Node and Store are required; the zero value of
// every other field means the default named beside it.
type Config struct {
	// Node is the name of the only Node object, and of spec.nodeName in pods.
	Node string
	// Store stores the objects that clients create.
	Store store.Store
	// Describe sets the facts about the node: labels, addresses, capacity and status. It is
	// called when a client reads the node, and must return when ctx ends. Default: the node has
	// only a name.
	Describe func(ctx context.Context, node *v1.Node) error
	// Kubelet is the node's own API, without authentication: logs, streams and metrics. Without
	// it these subresources do not exist.
	Kubelet http.Handler
	// Version is the Kubernetes version that the server reports.
	Version version.Info

	MaxObjects int // limit of stored objects; 10,000
	MaxEvents  int // limit of events; the oldest are removed; 2,000
	// MaxWatches is the limit of concurrent watches; 500. One user may take at most a quarter, and
	// all users outside of GroupAdmin together three quarters. A part is reserved for root (see Root).
	MaxWatches int

	ReaderTimeout time.Duration // how long a client may read nothing of an answer; 30s

	Log *zap.Logger // silent
}

// requestTimeout limits a request that is neither a watch nor a stream.
const requestTimeout = time.Minute

func (c Config) withDefaults() Config {
	for _, f := range []struct {
		field *int
		def   int
	}{{&c.MaxObjects, 10_000}, {&c.MaxEvents, 2000}, {&c.MaxWatches, 500}} {
		if *f.field == 0 {
			*f.field = f.def
		}
	}
	if c.ReaderTimeout == 0 {
		c.ReaderTimeout = 30 * time.Second
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Store == nil {
		errs = append(errs, errors.New("Config.Store is required"))
	}
	if msgs := validation.IsDNS1123Subdomain(c.Node); len(msgs) > 0 {
		errs = append(errs, fmt.Errorf("Config.Node is %q: %s", c.Node, msgs[0]))
	}
	for _, f := range []struct {
		name string
		n    int64
	}{
		{"MaxObjects", int64(c.MaxObjects)}, {"MaxEvents", int64(c.MaxEvents)}, {"MaxWatches", int64(c.MaxWatches)},
		{"ReaderTimeout", int64(c.ReaderTimeout)},
	} {
		if f.n < 0 {
			errs = append(errs, fmt.Errorf("field Config.%s is %d; want a positive number", f.name, f.n))
		}
	}
	return errors.Join(errs...)
}

// Server is the API. It is safe for concurrent use.
type Server struct {
	cfg    Config
	scheme *runtime.Scheme
	codecs *codecs
	kinds  []*kind // the kinds in all versions
	// computed are the resources whose objects are computed for each answer.
	computed []computed
	// Kinds that need special handling.
	pods, nodes, namespaces, events, claims *kind

	managers managers
	openapi  openapi

	pools   pools
	loaded  chan struct{} // closed when all stored objects are loaded
	ending  chan struct{} // closed when Run ends
	wanted  wake.Signal   // signals that the source may have to deliver
	looking chan struct{} // held during a read of the node's facts
	later   wake.Signal   // signals that a change in memory may have consequences on disk

	set *objects.Set

	// mu is never held while the server waits for a client, or searches objects for a
	// client.
	mu      sync.Mutex
	sources int                                 // number of sources that are shown here
	shown   map[string]map[*kind]map[key]object // by source, as it was delivered
	// correlator and series are for the agent's own events. series has the names of the events of
	// a series.
	correlator *correlate.Correlator
	series     map[correlate.Series]string
	expiry     *time.Timer // timer for the oldest event; nil if there is none
	looked     time.Time   // time of the last read of the node's facts
	// asDescribed is the node as the agent described it; nil before that.
	asDescribed *v1.Node
	restored    atomic.Pointer[map[types.UID]v1.PodStatus] // see Server.Restore
}

// New returns a Server; call Run to start it. The error names every invalid field of cfg.
func New(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("localapi: %w", err)
	}
	kinds := newKinds()
	s := &Server{
		cfg: cfg, scheme: newScheme(kinds), kinds: kinds, computed: newComputed(),
		pools:  newPools(cfg.MaxWatches),
		loaded: make(chan struct{}), ending: make(chan struct{}), wanted: wake.New(), looking: make(chan struct{}, 1), later: wake.New(),
		shown: map[string]map[*kind]map[key]object{}, correlator: correlate.New(cfg.MaxEvents), series: map[correlate.Series]string{},
	}
	s.codecs = newCodecs(s.scheme)
	s.managers = newManagers(kinds)
	for _, k := range kinds {
		switch k.resource {
		case "pods":
			s.pods = k
		case "nodes":
			s.nodes = k
		case "namespaces":
			s.namespaces = k
		case "persistentvolumeclaims":
			s.claims = k
		case "events":
			s.events = k.kept()
		}
	}
	s.set = objects.New(objects.Config{
		Namespaces: s.namespaces, Store: cfg.Store, New: s.asRestored, Changed: s.want,
		Document: func(k objects.Kind, o object) (store.Document, error) { return s.document(k.(*kind), o) },
	})
	n := madeNamespace(v1.NamespaceDefault)
	s.note(change{Kind: s.namespaces, Key: keyOf(n), Actor: objects.Agent, Verb: objects.Create, Object: n})
	return s, nil
}

// Run loads the stored objects, and then applies people's changes of the files until ctx ends.
// When Run returns, the watches of clients end. It may be called once. It returns an error if the
// store cannot be read; in this case nothing is served, and the source does not deliver.
func (s *Server) Run(ctx context.Context) error {
	defer close(s.ending)
	if err := s.load(ctx); err != nil {
		return fmt.Errorf("localapi: load objects: %w", err)
	}
	close(s.loaded)
	var keeping sync.WaitGroup
	defer keeping.Wait()
	keeping.Go(func() { s.followLater(ctx) })
	defer s.set.Close()
	defer s.stopExpiry()
	return s.cfg.Store.Watch(ctx, func(docs []store.Document) { s.edited(ctx, docs) })
}

// Handler serves the API. The function who returns the user of each request; the user's
// groups decide what the request may do.
func (s *Server) Handler(who Authenticate) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.deadlines(w, arrivalTime)
		if err := s.serve(w, r, who); err != nil {
			s.refuse(w, r, err)
		}
	})
}

// refuse answers with an error, in a form that the client accepts.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	a, _ := s.codecs.accept(r)
	a.as = ""
	if apierrors.IsTooManyRequests(err) { // it holds no slot
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(refusalTime)) // fails in tests with a recorder
	}
	s.codecs.fail(w, a, err)
}

// refusalTime limits the time for a client to read an answer 429.
const refusalTime = time.Second

// errUnknown returns the error for a request without a user.
func errUnknown() error {
	return apierrors.NewUnauthorized("the request has no client certificate; agent kubeconfig creates one")
}

// serve answers a request. If it returns an error, the caller answers with the error.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, who Authenticate) error {
	user, client, err := identify(r, who)
	if err != nil {
		return err
	}
	switch r.URL.Path {
	case "/healthz", "/livez", "/readyz":
		return s.healthz(w)
	}
	if err := checkHead(r); err != nil {
		return err
	}
	e, err := s.enter(r, client)
	defer e.leave()
	if err != nil {
		return err
	}
	q, ok := parse(r.URL.Path)
	q.values, q.user, q.client, q.entered, q.userAgent = r.URL.Query(), user, client, e, r.UserAgent()
	if !ok {
		q = query{verb: "get", user: user, client: client, entered: e, values: q.values}
		if user.level() < q.needs() {
			return apierrors.NewForbidden(s.pods.groupResource(), "", fmt.Errorf("user %q is in none of the groups %s, %s, %s", user.Name, GroupView, GroupEdit, GroupAdmin))
		}
		return s.work(w, r, &q, func(context.Context) error { return s.discover(w, r) })
	}
	q.verb = verbOf(r, &q)
	if user.level() < q.needs() {
		return forbiddenTo(&q)
	}
	select {
	case <-s.loaded:
	default:
		return apierrors.NewServiceUnavailable("the objects are being read; try again")
	}
	return s.objects(w, r, &q)
}

// forbiddenTo returns the error for a user without the necessary rights, with the API
// server's text.
func forbiddenTo(q *query) error {
	what := q.resource
	if q.subresource != "" {
		what += "/" + q.subresource
	}
	where := "at the cluster scope"
	if q.namespace != "" {
		where = fmt.Sprintf("in the namespace %q", q.namespace)
	}
	return generic(http.StatusForbidden, metav1.StatusReasonForbidden, fmt.Sprintf(
		"%s %q is forbidden: User %q cannot %s resource %q in API group %q %s", what, q.name, q.user.Name, q.verb, what, q.group, where))
}

func (s *Server) healthz(w http.ResponseWriter) error {
	select {
	case <-s.loaded:
		_, err := w.Write([]byte("ok"))
		return err
	default:
		return apierrors.NewServiceUnavailable("the objects are being read")
	}
}

// objects answers a request about objects.
func (s *Server) objects(w http.ResponseWriter, r *http.Request, q *query) error {
	if c := s.computedOf(q); c != nil {
		return s.compute(w, r, c, q)
	}
	k, err := s.kindOf(q)
	if err != nil {
		return err
	}
	q.form, k = k, k.kept()
	if q.namespace != "" && k.namespaced {
		if msgs := validation.IsDNS1123Label(q.namespace); len(msgs) > 0 {
			return apierrors.NewBadRequest(fmt.Sprintf("namespace is %.100q: %s", q.namespace, msgs[0]))
		}
	}
	if err := q.options(); err != nil {
		return err
	}
	if q.accept, err = s.codecs.accept(r); err != nil {
		return err
	}
	if contains(k.streams, q.subresource) {
		return s.stream(w, r, k, q)
	}
	if q.verb == "watch" {
		return s.watch(w, r, k, q)
	}
	return s.work(w, r, q, func(ctx context.Context) error { return s.do(ctx, w, r, k, q) })
}

// do calls the handler of a verb.
func (s *Server) do(ctx context.Context, w http.ResponseWriter, r *http.Request, k *kind, q *query) error {
	switch {
	case q.verb == "get":
		return s.get(ctx, w, k, q)
	case q.verb == "list":
		return s.listed(ctx, w, k, q)
	case q.verb == "create" && q.subresource == "eviction":
		return s.evict(ctx, w, r, q)
	case q.verb == "create" && q.name == "":
		return s.create(ctx, w, r, k, q)
	case q.verb == "update" && q.name != "":
		return s.update(ctx, w, r, k, q)
	case q.verb == "patch" && q.name != "":
		return s.patch(ctx, w, r, k, q)
	case q.verb == "delete" && q.subresource == "":
		return s.delete(ctx, w, r, k, q)
	case q.verb == "deletecollection":
		return s.deleteAll(ctx, w, r, k, q)
	default:
		return notAllowed(q.verb, "this resource has no such verb")
	}
}

// kindOf returns the kind that a path names, or an error that says what to use instead.
func (s *Server) kindOf(q *query) (*kind, error) {
	for _, k := range s.kinds {
		if k.Group != q.group || k.Version != q.version || k.resource != q.resource {
			continue
		}
		switch {
		case k.namespaced && q.namespace == "" && q.verb != "list" && q.verb != "watch":
			return nil, apierrors.NewBadRequest(k.resource + " are namespaced; the path has no namespace")
		case q.subresource == "" || contains(k.subresources, q.subresource) || contains(k.streams, q.subresource):
			return k, nil
		case k == s.pods && q.subresource == "eviction":
			return k, nil
		case k == s.pods && q.subresource == "binding":
			return nil, notAllowed(q.verb, "pods are bound to this node when they are created, unless it is cordoned")
		}
		return nil, apierrors.NewGenericServerResponse(http.StatusNotFound, q.verb, k.groupResource(), q.name, "there is no subresource "+q.subresource, 0, true)
	}
	return nil, generic(http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf(
		"the server could not find the requested resource: this is the API of one node, which has no %s", strings.TrimSuffix(q.resource+"."+q.group, ".")))
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return s != ""
		}
	}
	return false
}
