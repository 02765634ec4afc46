package kubeapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// Key names an object. Namespace is empty for a cluster-scoped object.
type Key struct{ Namespace, Name string }

// String returns namespace/name, or the name alone.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// Config configures a Client. REST is required; the zero value of every other field
// means the default named beside it.
type Config struct {
	// REST names the server and the credentials. Its QPS and Burst limit all calls of
	// the client together, except those of [Client.Unlimited]. New copies REST. Its
	// Timeout and Dial are ignored.
	REST *rest.Config
	// Certificate, if not nil, returns the client certificate for each new connection,
	// in place of the certificate of REST. It may return an empty certificate, but not
	// nil.
	Certificate func() (*tls.Certificate, error)
	// Timeout limits each call except Watch. The default is 30 s.
	Timeout time.Duration
	// Observer gets each exchange. If it is nil, they are not reported.
	Observer Observer
}

// Client makes single calls to a Kubernetes API server, for the resources that a
// node agent uses.
//
//	c, err := kubeapi.New(kubeapi.Config{REST: restConfig})
//	if err != nil {
//		return err
//	}
//	var node v1.Node
//	err = c.Get(ctx, kubeapi.Nodes, kubeapi.Key{Name: "edge-1"}, &node)
//
// It uses only client-go's rest package: the clientset, whose scheme has all
// groups, weighs 17 MB. Objects of built-in groups are sent as protobuf.
//
// Its methods may be called from any goroutine. Clients returned by Once and
// Unlimited share its connections and rate limit.
//
// # Faults
//
// Every call except Watch ends after [Config.Timeout] at the latest, even if its ctx
// lasts longer. Calls are not repeated, with one exception: after a 429 with
// Retry-After, client-go repeats the call, unless it is a call of a client that
// [Client.Once] returned. If the server answered, errors are those of
// k8s.io/apimachinery/pkg/api/errors. Redirects are not followed: they could send the
// credentials to another server. [Client.CloseConnections] closes connections that may
// be dead, so that the next call opens a new one.
type Client struct {
	timeout time.Duration
	scheme  *runtime.Scheme
	params  runtime.ParameterCodec
	// groups has one REST client for each group version; it does not change after
	// New.
	groups map[schema.GroupVersion]rest.Interface
	conns  *dialer
	told   Observer // nil: none
	host   string
	once   bool

	unlimited bool
}

// vocabulary is the part that all clients share. It is never changed. It takes 50 kB, and each
// client would need it otherwise.
type vocabulary struct {
	scheme *runtime.Scheme
	params runtime.ParameterCodec
	codecs serializer.CodecFactory
}

// shared creates the vocabulary at the first call of New. An error would be a bug of this package.
var shared = sync.OnceValues(func() (vocabulary, error) {
	s, err := NewScheme()
	if err != nil {
		return vocabulary{}, err
	}
	return vocabulary{s, runtime.NewParameterCodec(s), serializer.NewCodecFactory(s)}, nil
})

// defaultTimeout limits calls to a server that is busy, or that accepts a call and never answers.
const defaultTimeout = 30 * time.Second

// New checks cfg and returns a Client. It makes no call.
func New(cfg Config) (*Client, error) {
	if cfg.REST == nil {
		return nil, errors.New("kubeapi: REST: required")
	}
	if cfg.Timeout < 0 {
		return nil, fmt.Errorf("kubeapi: Timeout: %v: must not be negative", cfg.Timeout)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	known, err := shared()
	if err != nil {
		return nil, fmt.Errorf("kubeapi: %w", err)
	}
	scheme := known.scheme
	c := &Client{
		timeout: cfg.Timeout, scheme: scheme, params: known.params,
		groups: map[schema.GroupVersion]rest.Interface{}, conns: newDialer(), told: cfg.Observer,
	}
	// A copy is changed, not the caller's configuration.
	base := rest.CopyConfig(cfg.REST)
	// client-go's timeout would end watches too, so do sets a timeout for each call.
	base.Timeout, base.Dial = 0, c.conns.dial
	base.NegotiatedSerializer = checked(known.codecs.WithoutConversion(), scheme)
	base.ContentType = runtime.ContentTypeProtobuf
	// JSON is accepted too, for servers that do not encode a type as protobuf.
	base.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	base.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		// From the outside in: a redirect becomes an error, Retry-After is limited, bodies are
		// limited, and the innermost reports each request.
		return noRedirects{shortRetryAfter{boundedAnswers{observed(rt, cfg.Observer)}}}
	})
	transport, err := httpClient(base, cfg.Certificate)
	if err != nil {
		return nil, fmt.Errorf("kubeapi: %w", err)
	}
	if u, _, err := rest.DefaultServerUrlFor(base); err == nil {
		c.host = u.Host
	}
	// A second guard: noRedirects returns an error for each redirect. Following one
	// would send the credentials.
	transport.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	// There is one rate limit for all API groups, since the server limits the total
	// number of the node's requests.
	limit := throttled(limiter(base), cfg.Observer)
	for _, gv := range scheme.PrioritizedVersionsAllGroups() {
		g := rest.CopyConfig(base)
		g.GroupVersion, g.APIPath, g.RateLimiter = &gv, "/apis", limit
		if gv.Group == "" {
			g.APIPath = "/api"
		}
		if c.groups[gv], err = rest.RESTClientForConfigAndClient(g, transport); err != nil {
			return nil, fmt.Errorf("kubeapi: %s: %w", gv, err)
		}
	}
	return c, nil
}

// CloseConnections closes every connection to the server, so that the next calls
// and watches open new ones: with another certificate, or after a connection has
// died silently.
func (c *Client) CloseConnections() { c.conns.closeAll() }

// Once returns a Client that repeats nothing: the caller gets the error of a busy
// server, with the requested delay ([RetryAfter]). Everything else is shared with
// c.
func (c *Client) Once() *Client {
	d := *c
	d.once = true
	return &d
}

// Unlimited returns a Client whose calls ignore the rate limit of Config.REST, for
// callers with a limit of their own. Everything else is shared with c.
func (c *Client) Unlimited() *Client {
	d := *c
	d.unlimited = true
	return &d
}

// Get reads an object into into. If opts has the resourceVersion "0", the server may answer from
// its cache.
func (c *Client) Get(ctx context.Context, r Resource, k Key, into runtime.Object, opts ...metav1.GetOptions) error {
	req, err := c.begin(r, k, http.MethodGet)
	if err != nil {
		return err
	}
	for i := range opts {
		req = req.VersionedParams(&opts[i], c.params)
	}
	// The limit of a single object is far below that of a list.
	return c.do(context.WithValue(ctx, oneObject{}, true), http.MethodGet, req, into)
}

// ListWatcher is the part of a [Client] that followers of objects use. Tests
// replace it.
type ListWatcher interface {
	List(ctx context.Context, r Resource, namespace string, opts metav1.ListOptions, into runtime.Object) error
	Watch(ctx context.Context, r Resource, namespace string, opts metav1.ListOptions) (watch.Interface, error)
}

var _ ListWatcher = (*Client)(nil)

// List reads the objects of a namespace that opts select. If namespace is "", it reads them in
// all namespaces.
func (c *Client) List(ctx context.Context, r Resource, namespace string, opts metav1.ListOptions, into runtime.Object) error {
	req, err := c.begin(r, Key{Namespace: namespace}, http.MethodGet)
	if err != nil {
		return err
	}
	return c.do(ctx, http.MethodGet, req.VersionedParams(&opts, c.params), into)
}

// Create creates an object. With subresources it posts obj to that subresource of the object k,
// for example to request a service account token. The answer is decoded into the argument into,
// which may be obj or nil.
func (c *Client) Create(ctx context.Context, r Resource, k Key, obj, into runtime.Object, subresources ...string) error {
	// A create request has the name in the body, not in the path.
	if len(subresources) == 0 {
		k.Name = ""
	}
	req, err := c.begin(r, k, http.MethodPost, subresources...)
	if err != nil {
		return err
	}
	return c.do(context.WithValue(ctx, oneObject{}, true), http.MethodPost, req.Body(obj), into)
}

// Update replaces an object, and decodes the answer into the argument into, which may be obj or
// nil.
func (c *Client) Update(ctx context.Context, r Resource, k Key, obj, into runtime.Object, subresources ...string) error {
	req, err := c.begin(r, k, http.MethodPut, subresources...)
	if err != nil {
		return err
	}
	return c.do(context.WithValue(ctx, oneObject{}, true), http.MethodPut, req.Body(obj), into)
}

// Patch changes an object, and decodes the answer into the argument into, which may be nil.
func (c *Client) Patch(ctx context.Context, r Resource, k Key, kind types.PatchType, patch []byte, into runtime.Object, subresources ...string) error {
	req, err := c.begin(r, k, http.MethodPatch, subresources...)
	if err != nil {
		return err
	}
	return c.do(context.WithValue(ctx, oneObject{}, true), http.MethodPatch, req.SetHeader("Content-Type", string(kind)).Body(patch), into)
}

// Delete deletes an object.
func (c *Client) Delete(ctx context.Context, r Resource, k Key, opts metav1.DeleteOptions) error {
	req, err := c.begin(r, k, http.MethodDelete)
	if err != nil {
		return err
	}
	return c.do(context.WithValue(ctx, oneObject{}, true), http.MethodDelete, req.Body(&opts), nil)
}

// DeleteAll deletes the objects of a namespace that opts select. If namespace is "", it deletes
// them in all namespaces.
func (c *Client) DeleteAll(ctx context.Context, r Resource, namespace string, opts metav1.ListOptions) error {
	req, err := c.begin(r, Key{Namespace: namespace}, http.MethodDelete)
	if err != nil {
		return err
	}
	return c.do(ctx, http.MethodDelete, req.VersionedParams(&opts, c.params), nil)
}

// Watch reports changes until ctx ends, the server ends the watch, or Stop is called.
// The server ends it after opts.TimeoutSeconds.
func (c *Client) Watch(ctx context.Context, r Resource, namespace string, opts metav1.ListOptions) (watch.Interface, error) {
	req, err := c.begin(r, Key{Namespace: namespace}, http.MethodGet)
	if err != nil {
		return nil, err
	}
	opts.Watch = true
	// Without do's timeout: only opts and ctx limit a watch.
	return req.VersionedParams(&opts, c.params).Watch(c.tracked(ctx, http.MethodGet, c.host))
}

// begin returns a request for the object k, or for all objects in k's namespace if k
// has no name. It returns an error for a resource of a group that is not in NewScheme.
func (c *Client) begin(r Resource, k Key, verb string, subresources ...string) (*rest.Request, error) {
	g, ok := c.groups[schema.GroupVersion{Group: r.Group, Version: r.Version}]
	if !ok {
		return nil, fmt.Errorf("%s %s: the client does not support this API group", verb, r)
	}
	req := g.Verb(verb).Resource(r.Name).NamespaceIfScoped(k.Namespace, r.Namespaced && k.Namespace != "")
	if k.Name != "" {
		req = req.Name(k.Name)
	}
	if c.once {
		req = req.MaxRetries(0)
	}
	if c.unlimited {
		req = req.Throttle(nil)
	}
	return req.SubResource(subresources...), nil
}

// do makes one call and decodes its answer into the argument into, unless that is nil. It blocks
// until the answer, the end of ctx, or the timeout.
func (c *Client) do(ctx context.Context, verb string, req *rest.Request, into runtime.Object) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	res := req.Do(c.tracked(ctx, verb, c.host))
	if into == nil {
		return res.Error()
	}
	return res.Into(into)
}
