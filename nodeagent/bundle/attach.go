package bundle

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/bundle"
	"github.com/nodewright/nodewright/nodeagent"
)

// Config configures the bundles of a node. The zero value of every field means the default named
// beside it.
type Config struct {
	// Ref is the reference with a tag that is polled every Interval; none: bundles come by [Apply]
	// only.
	Ref      string
	Interval time.Duration // bundle.DefaultInterval
	// Verify decides whether a bundle may be used: see bundle.Config. Every bundle may.
	Verify func(ctx context.Context, ref, digest string, fetch bundle.Fetch) error
}

// Attach adds bundles to a node made from o. Options.Config must be set before.
func Attach(o *nodeagent.Options, cfg Config) {
	a := &attached{cfg: cfg, root: o.Config.RootDir}
	before := o.Agent
	o.Agent = func(c *agent.Config) {
		if before != nil {
			before(c)
		}
		a.plug(c)
	}
	o.Services = append([]nodeagent.Service{a.service}, o.Services...)
}

// attached is the source of bundles of one node.
type attached struct {
	cfg     Config
	root    string
	err     error
	manager *bundle.Manager
	node    atomic.Pointer[nodeagent.Node]
}

// plug creates the source, and adds it to the configuration of the agent.
func (a *attached) plug(c *agent.Config) {
	log := c.Log
	if log == nil {
		log = zap.NewNop()
	}
	log = log.Named("bundle")
	a.manager, a.err = bundle.New(bundle.Config{
		NodeName: c.Node.Name, Store: part.OpenStore(filepath.Join(a.root, "bundle"), log), Node: a,
		Ref: a.cfg.Ref, Interval: a.cfg.Interval, Registry: bundle.Registry{Keychain: a}, Verify: a.cfg.Verify, Log: log,
	})
	if a.err == nil {
		c.Sources = append(c.Sources, a.manager)
	}
}

// service adds the handlers to the agent's socket.
func (a *attached) service(n *nodeagent.Node) (string, func(context.Context) error, error) {
	if a.err != nil {
		return "", nil, a.err
	}
	a.node.Store(n)
	for pattern, h := range handlers(a.manager) {
		n.OnSocket(pattern, h)
	}
	return "bundle", nil, nil
}

var errNoNode = errors.New("the node has not been built yet")

// EnsureImages implements bundle.Node.
func (a *attached) EnsureImages(ctx context.Context, pod *v1.Pod) error {
	n := a.node.Load()
	if n == nil {
		return errNoNode
	}
	return n.EnsureImages(ctx, pod)
}

// Pods implements bundle.Node.
func (a *attached) Pods() []*v1.Pod {
	n := a.node.Load()
	if n == nil {
		return nil
	}
	return n.Pods()
}

// Resolve implements authn.Keychain.
func (a *attached) Resolve(r authn.Resource) (authn.Authenticator, error) {
	return a.ResolveContext(context.Background(), r)
}

// ResolveContext implements authn.ContextKeychain, with the first of the node's credentials.
func (a *attached) ResolveContext(ctx context.Context, r authn.Resource) (authn.Authenticator, error) {
	n := a.node.Load()
	if n == nil {
		return nil, errNoNode
	}
	found, err := n.Credentials(ctx, r.String())
	if len(found) == 0 {
		return authn.Anonymous, err
	}
	c := found[0]
	return authn.FromConfig(authn.AuthConfig{
		Username: c.GetUsername(), Password: c.GetPassword(), Auth: c.GetAuth(), IdentityToken: c.GetIdentityToken(), RegistryToken: c.GetRegistryToken(),
	}), nil
}
