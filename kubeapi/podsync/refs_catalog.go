package podsync

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nodewright/nodewright/kubeapi"
)

// CatalogMemory stores values over a restart.
// [github.com/nodewright/nodewright/checkpoint.Store] implements it.
type CatalogMemory interface {
	// Read returns fs.ErrNotExist for a missing value.
	Read(key string) ([]byte, error)
	Write(key string, value []byte) error
}

// catalogTimeout is how long calls wait for the server's first answer.
const catalogTimeout = 2 * time.Second

// CatalogConfig configures a [Catalog]. Client is required; the zero value of every
// other field means the default named beside it.
type CatalogConfig struct {
	Client kubeapi.ListWatcher
	Memory CatalogMemory // if nil, nothing is stored over a restart
	Log    *zap.Logger   // if nil, nothing is logged
}

// memoryKey is the key of the stored catalog. settle is the shortest time between two writes of a
// changed catalog.
const (
	memoryKey = "catalog"
	settle    = 10 * time.Second
)

// Catalog has the objects that are the same for all pods of a cluster: its
// services, for the environment of containers, and its runtime classes.
//
//	cat, err := podsync.NewCatalog(podsync.CatalogConfig{Client: client})
//	...
//	go cat.Run(ctx)
//	services := cat.Services()
//	handler, err := cat.Handler(ctx, "gvisor")
//
// One watch follows each kind. Only the needed fields of an object are kept: for a
// service the names, the address and the ports.
//
// # Faults
//
// While the server is unreachable, the last state is used. At the start, callers wait
// for the server's first answer, at most until two seconds after Run began: a container
// that is started without the variables of its services never gets them. With a Memory,
// the services and classes of the last run are known at once.
//
// Its methods may be called from any goroutine.
type Catalog struct {
	cfg      CatalogConfig
	services chan struct{} // closed when they are known, or the wait is over
	classes  chan struct{}

	mu      sync.Mutex
	known   [2]bool // services, classes
	service map[kubeapi.Key]*v1.Service
	handler map[string]string // by class
	changed bool
}

// NewCatalog checks cfg and returns a Catalog, which Run starts.
func NewCatalog(cfg CatalogConfig) (*Catalog, error) {
	var errs []error
	if cfg.Client == nil {
		errs = append(errs, errors.New("CatalogConfig.Client is required"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("podsync: %w", err)
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return &Catalog{
		cfg: cfg, services: make(chan struct{}), classes: make(chan struct{}),
		service: map[kubeapi.Key]*v1.Service{}, handler: map[string]string{},
	}, nil
}

// Run follows services and runtime classes until ctx ends, and returns nil when
// both watches have ended.
func (c *Catalog) Run(ctx context.Context) error {
	services, err := kubeapi.NewFollower(kubeapi.FollowConfig[*v1.Service]{
		Client: c.cfg.Client, Resource: kubeapi.Services, NewList: func() runtime.Object { return &v1.ServiceList{} }, Trim: trim,
		Replace: c.replaceServices, Put: c.putService, Delete: c.deleteService, Failed: c.failed,
	})
	classes, err2 := kubeapi.NewFollower(kubeapi.FollowConfig[*nodev1.RuntimeClass]{
		Client: c.cfg.Client, Resource: kubeapi.RuntimeClasses, NewList: func() runtime.Object { return &nodev1.RuntimeClassList{} },
		Replace: c.replaceClasses, Put: c.putClass, Delete: c.deleteClass, Failed: c.failed,
	})
	if err := errors.Join(err, err2); err != nil {
		return fmt.Errorf("podsync: %w", err)
	}
	c.recall()
	late := time.AfterFunc(catalogTimeout, c.release)
	defer late.Stop()
	var wg sync.WaitGroup
	wg.Go(func() { _ = services.Run(ctx) })
	wg.Go(func() { _ = classes.Run(ctx) })
	tick := time.NewTicker(settle)
	defer tick.Stop()
	for !over(ctx) {
		select {
		case <-ctx.Done():
		case <-tick.C:
			c.remember()
		}
	}
	wg.Wait()
	c.release()
	c.remember()
	return nil
}

func over(ctx context.Context) bool { return ctx.Err() != nil }

// Services returns all services that have an address, sorted. It waits for the server's
// first answer, at most for two seconds. The caller may change the slice, but not its
// elements.
func (c *Catalog) Services() []*v1.Service {
	<-c.services
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]*v1.Service, 0, len(c.service))
	for _, s := range c.service {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *v1.Service) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// Handler returns the name of the runtime's handler for a RuntimeClass. It waits for the first list
// of RuntimeClasses until ctx ends.
func (c *Catalog) Handler(ctx context.Context, class string) (string, error) {
	select {
	case <-c.classes:
	case <-ctx.Done():
		return "", fmt.Errorf("wait for the list of runtime classes, to find %q: %w", class, ctx.Err())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if h, ok := c.handler[class]; ok {
		return h, nil
	}
	if !c.known[1] {
		return "", fmt.Errorf("runtime class %q: the API server has not answered yet", class)
	}
	return "", fmt.Errorf("runtime class %q is not found", class)
}

// release ends all waits for services and classes, when catalogTimeout has passed or Run has
// ended.
func (c *Catalog) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.know(0)
	c.know(1)
}

// know records that services or classes are known, and wakes the callers that wait for
// them. The caller holds c.mu.
func (c *Catalog) know(which int) {
	ch := [2]chan struct{}{c.services, c.classes}[which]
	select {
	case <-ch:
	default:
		close(ch)
	}
}

func (c *Catalog) failed(err error, again time.Duration) {
	c.cfg.Log.Debug("failed to read services or runtime classes", zap.Error(err), zap.Duration("retry", again))
}

// trim removes the fields of a service that the environment does not need.
func trim(s *v1.Service) {
	ports := make([]v1.ServicePort, 0, len(s.Spec.Ports))
	for _, p := range s.Spec.Ports {
		ports = append(ports, v1.ServicePort{Name: p.Name, Protocol: p.Protocol, Port: p.Port})
	}
	*s = v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, ResourceVersion: s.ResourceVersion},
		Spec:       v1.ServiceSpec{ClusterIP: s.Spec.ClusterIP, Ports: ports},
	}
}

func hasAddress(s *v1.Service) bool {
	return s.Spec.ClusterIP != "" && s.Spec.ClusterIP != v1.ClusterIPNone
}

func (c *Catalog) replaceServices(all []*v1.Service, _ string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.service)
	for _, s := range all {
		if hasAddress(s) {
			c.service[keyOf(s)] = s
		}
	}
	c.known[0], c.changed = true, true
	c.know(0)
}

func (c *Catalog) putService(s *v1.Service) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed = true
	if hasAddress(s) {
		c.service[keyOf(s)] = s
	} else {
		delete(c.service, keyOf(s))
	}
}

func (c *Catalog) deleteService(s *v1.Service) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed = true
	delete(c.service, keyOf(s))
}

func (c *Catalog) replaceClasses(all []*nodev1.RuntimeClass, _ string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.handler)
	for _, r := range all {
		c.handler[r.Name] = r.Handler
	}
	c.known[1], c.changed = true, true
	c.know(1)
}

func (c *Catalog) putClass(r *nodev1.RuntimeClass) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handler[r.Name], c.changed = r.Handler, true
}

func (c *Catalog) deleteClass(r *nodev1.RuntimeClass) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.handler, r.Name)
	c.changed = true
}

// record is the stored catalog.
type record struct {
	Services []*v1.Service     `json:"services"`
	Classes  map[string]string `json:"classes"`
}

func (c *Catalog) recall() {
	if c.cfg.Memory == nil {
		return
	}
	var r record
	b, err := c.cfg.Memory.Read(memoryKey)
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			c.cfg.Log.Error("failed to read stored services and runtime classes", zap.Error(err))
		}
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range r.Services {
		c.service[keyOf(s)] = s
	}
	for name, h := range r.Classes {
		c.handler[name] = h
	}
}

// remember stores the catalog if it differs from the stored one.
func (c *Catalog) remember() {
	c.mu.Lock()
	changed := c.changed && c.cfg.Memory != nil && c.known[0] && c.known[1]
	if changed {
		c.changed = false
	}
	r := record{Classes: map[string]string{}}
	for name, h := range c.handler {
		r.Classes[name] = h
	}
	c.mu.Unlock()
	if !changed {
		return
	}
	for _, s := range c.Services() {
		s := *s
		s.ResourceVersion = ""
		r.Services = append(r.Services, &s)
	}
	b, err := json.Marshal(r)
	if err != nil {
		return
	}
	if have, err := c.cfg.Memory.Read(memoryKey); err == nil && string(have) == string(b) {
		return
	}
	if err := c.cfg.Memory.Write(memoryKey, b); err != nil {
		c.cfg.Log.Error("failed to store services and runtime classes", zap.Error(err))
		c.mu.Lock()
		c.changed = true
		c.mu.Unlock()
	}
}
