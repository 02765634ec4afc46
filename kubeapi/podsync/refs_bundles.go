package podsync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"go.uber.org/zap"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nodewright/nodewright/internal/wake"
	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/volumemgr/plugins"
)

// BundlesMemory stores values over a restart.
// [github.com/nodewright/nodewright/checkpoint.Store] implements it.
type BundlesMemory interface {
	// Read returns fs.ErrNotExist for a missing value.
	Read(key string) ([]byte, error)
	Write(key string, value []byte) error
}

// BundlesConfig configures [Bundles]. Client is required; the zero value of every
// other field means the default named beside it.
type BundlesConfig struct {
	Client kubeapi.ListWatcher
	Memory BundlesMemory // if nil, nothing is stored over a restart
	Log    *zap.Logger   // if nil, nothing is logged
}

const (
	// bundlesTimeout is how long the first call waits for the server's answer, as in the kubelet.
	bundlesTimeout = 10 * time.Second
	// recalledTimeout is how long to wait for an answer if Memory has the last one.
	recalledTimeout = 2 * time.Second
)

var (
	errBundlesUnsupported = errors.New("the API server does not serve ClusterTrustBundles (certificates.k8s.io/v1beta1)")
	errNotYet             = errors.New("the API server has not answered yet")
)

// bundle is the stored part of a ClusterTrustBundle.
type bundle struct {
	signer  string
	labels  labels.Set
	anchors anchors
}

// Bundles returns the ClusterTrustBundles of an API server (KEP-3257): it
// implements plugins.Bundles for projected volumes on a node of a cluster.
//
//	b, err := podsync.NewBundles(podsync.BundlesConfig{Client: client})
//	...
//	go b.Run(ctx)
//	pem, err := b.Bundle(ctx, plugins.Bundle{Name: "example.com:root"})
//
// One watch follows the bundles. It begins with the first call and not earlier, since most
// clusters have no bundles, and many servers do not support them.
//
// A result has each certificate once, without the other text of the bundles. The
// certificates are sorted by their hashes: their order has no meaning, and a stable
// order avoids needless writes of the volume.
//
// # Faults
//
// The first call waits for the server's answer, at most ten seconds, or two seconds if a Memory
// has the last bundles. While the server is unreachable, the last state is used. If the server
// does not support ClusterTrustBundles, the error says so, and the watch is tried again from time
// to time.
//
// Its methods may be called from any goroutine.
type Bundles struct {
	cfg    BundlesConfig
	asked  chan struct{} // closed with the first call
	told   chan struct{} // closed with the first answer, or when none will arrive
	change wake.Signal   // something has to be stored

	mu       sync.Mutex
	all      map[string]bundle // by name; nil: not known
	recalled bool              // they are from the Memory
	problem  error             // why the bundles are not known; nil if they are
}

var _ plugins.Bundles = (*Bundles)(nil)

// NewBundles checks cfg and returns Bundles, which Run starts.
func NewBundles(cfg BundlesConfig) (*Bundles, error) {
	var errs []error
	if cfg.Client == nil {
		errs = append(errs, errors.New("BundlesConfig.Client is required"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("podsync: %w", err)
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return &Bundles{
		cfg: cfg, asked: make(chan struct{}), told: make(chan struct{}), change: wake.New(), problem: errNotYet,
	}, nil
}

// Run follows the bundles until ctx ends, from the first call of Bundle on, and
// returns nil when the watch has ended. It may be called once.
func (b *Bundles) Run(ctx context.Context) error {
	defer b.release()
	f, err := kubeapi.NewFollower(kubeapi.FollowConfig[*certificatesv1beta1.ClusterTrustBundle]{
		Client: b.cfg.Client, Resource: kubeapi.ClusterTrustBundles,
		NewList: func() runtime.Object { return &certificatesv1beta1.ClusterTrustBundleList{} },
		Replace: b.replace, Put: b.put, Delete: b.remove, Failed: b.failed,
	})
	if err != nil {
		return fmt.Errorf("podsync: %w", err)
	}
	b.recall()
	select {
	case <-ctx.Done():
		return nil
	case <-b.asked:
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = f.Run(ctx) })
	wg.Go(func() { b.remembers(ctx) })
	wg.Wait()
	return nil
}

// Bundle returns the selected certificates in PEM. The error is plugins.ErrNotFound if no bundle
// has the name, or if no bundle of the signer has the wanted labels.
func (b *Bundles) Bundle(ctx context.Context, selection plugins.Bundle) ([]byte, error) {
	selects, err := selector(selection)
	if err != nil {
		return nil, err
	}
	if err := b.wait(ctx); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all == nil {
		return nil, b.problem
	}
	all := anchors{}
	found := false
	for name, is := range b.all {
		if selects(name, is) {
			found = true
			maps.Copy(all, is.anchors)
		}
	}
	if !found {
		return nil, fmt.Errorf("no ClusterTrustBundle is %s: %w", describe(selection), plugins.ErrNotFound)
	}
	return all.encode(), nil
}

func describe(selection plugins.Bundle) string {
	if selection.Name != "" {
		return fmt.Sprintf("named %q", selection.Name)
	}
	return fmt.Sprintf("of signer %q with labels %q", selection.Signer, metav1.FormatLabelSelector(selection.Selector))
}

// selector returns a function that selects the wanted bundles.
func selector(selection plugins.Bundle) (func(name string, is bundle) bool, error) {
	if selection.Name != "" {
		return func(name string, _ bundle) bool { return name == selection.Name }, nil
	}
	by, err := metav1.LabelSelectorAsSelector(selection.Selector) // nil selects nothing
	if err != nil {
		return nil, fmt.Errorf("labelSelector: %w", err)
	}
	return func(_ string, is bundle) bool { return is.signer == selection.Signer && by.Matches(is.labels) }, nil
}

// wait starts the watch with its first call, and waits at most bundlesTimeout for the
// server's first answer.
func (b *Bundles) wait(ctx context.Context) error {
	b.mu.Lock()
	timeout := bundlesTimeout
	if b.recalled {
		timeout = recalledTimeout
	}
	select {
	case <-b.asked:
	default:
		close(b.asked)
		time.AfterFunc(timeout, b.release)
	}
	b.mu.Unlock()
	select {
	case <-b.told:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errNotYet, ctx.Err())
	}
}

// release ends all calls of wait, when the time has passed or Run has ended.
func (b *Bundles) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tell()
}

// tell wakes the calls of wait. The caller holds b.mu.
func (b *Bundles) tell() {
	select {
	case <-b.told:
	default:
		close(b.told)
	}
}

func (b *Bundles) failed(err error, again time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.problem
	b.problem = fmt.Errorf("the API server does not answer: %w", err)
	if apierrors.IsNotFound(err) {
		b.problem = errBundlesUnsupported
		b.tell()
	}
	if was == nil || was.Error() != b.problem.Error() {
		b.cfg.Log.Warn("failed to read ClusterTrustBundles; keeping the last ones", zap.Error(err), zap.Duration("retry", again))
	}
}

func (b *Bundles) replace(all []*certificatesv1beta1.ClusterTrustBundle, _ string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all, b.recalled, b.problem = map[string]bundle{}, false, nil
	for _, o := range all {
		b.all[o.Name] = bundle{o.Spec.SignerName, o.Labels, decode(o.Spec.TrustBundle)}
	}
	b.tell()
	b.changed()
}

func (b *Bundles) put(o *certificatesv1beta1.ClusterTrustBundle) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all[o.Name] = bundle{o.Spec.SignerName, o.Labels, decode(o.Spec.TrustBundle)}
	b.changed()
}

func (b *Bundles) remove(o *certificatesv1beta1.ClusterTrustBundle) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.all, o.Name)
	b.changed()
}
