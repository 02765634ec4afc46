package podsync

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/wake"
	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/volumemgr/plugins"
)

// StorageClient makes the calls; [kubeapi.Client] implements it.
type StorageClient interface {
	kubeapi.ListWatcher
	Get(ctx context.Context, r kubeapi.Resource, k kubeapi.Key, into runtime.Object, opts ...metav1.GetOptions) error
	Create(ctx context.Context, r kubeapi.Resource, k kubeapi.Key, obj, into runtime.Object, subresources ...string) error
	Patch(ctx context.Context, r kubeapi.Resource, k kubeapi.Key, kind types.PatchType, patch []byte, into runtime.Object, subresources ...string) error
	Delete(ctx context.Context, r kubeapi.Resource, k kubeapi.Key, opts metav1.DeleteOptions) error
}

// StorageMemory stores values over a restart.
// [github.com/nodewright/nodewright/checkpoint.Store] implements it.
type StorageMemory interface {
	// Read returns fs.ErrNotExist for a missing value.
	Read(key string) ([]byte, error)
	Write(key string, value []byte) error
}

// StorageConfig configures a [Storage]. Client, NodeName and Node are required; the
// zero value of every other field means the default named beside it.
type StorageConfig struct {
	Client   StorageClient
	NodeName string
	// Node returns the newest known Node object, or nil if there is none. live is true if the
	// Node came from the API server since the start of the agent, and not from a store.
	Node     func() (n *v1.Node, live bool)
	Migrated []string      // in-tree plugins replaced by CSI drivers, in order
	Memory   StorageMemory // if nil, nothing is stored over a restart
	Log      *zap.Logger   // if nil, nothing is logged
}

const (
	// storageTimeout is how long calls wait for the first answer about CSIDrivers.
	storageTimeout   = 10 * time.Second
	storageMemoryKey = "drivers"
)

// Storage implements [plugins.StorageCluster] for package csi at an API server:
// CSIDriver objects, the node's CSINode, its attached volumes, and the statuses of
// claims whose volumes are expanded.
//
//	s, err := podsync.NewStorage(podsync.StorageConfig{Client: client, NodeName: "edge-1", Node: node.Node})
//	...
//	go s.Run(ctx)
//	// and whenever the Node object is another one:
//	s.NodeChanged()
//
// CSIDriver objects are followed from the first call on, and stored over a restart.
//
// A node may read single VolumeAttachments, but not watch them. So Storage waits for
// changes of the Node object, in whose status a controller lists the attached volumes.
// It reads a VolumeAttachment when that list changes. It also reads it from time to
// time, since only the VolumeAttachment shows a failure.
//
// Its methods may be called from any goroutine.
type Storage struct {
	cfg    StorageConfig
	asked  chan struct{} // closed with the first call
	known  chan struct{} // closed with the first answer, or when the wait is over
	change wake.Signal   // something has to be stored

	mu      sync.Mutex
	drivers map[string]plugins.CSIDriver // nil: not known
	node    chan struct{}                // closed when the node's object changes
}

var _ plugins.StorageCluster = (*Storage)(nil)

// NewStorage checks cfg and returns a Storage, which Run starts.
func NewStorage(cfg StorageConfig) (*Storage, error) {
	var errs []error
	if cfg.Client == nil {
		errs = append(errs, errors.New("StorageConfig.Client is required"))
	}
	if cfg.NodeName == "" {
		errs = append(errs, errors.New("StorageConfig.NodeName is required"))
	}
	if cfg.Node == nil {
		errs = append(errs, errors.New("StorageConfig.Node is required"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("podsync: %w", err)
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return &Storage{
		cfg: cfg, asked: make(chan struct{}), known: make(chan struct{}), change: wake.New(), node: make(chan struct{}),
	}, nil
}

// Run follows the CSIDrivers until ctx ends, from the first call of Driver on, and
// returns nil when the watch has ended. It may be called once.
func (s *Storage) Run(ctx context.Context) error {
	f, err := kubeapi.NewFollower(kubeapi.FollowConfig[*storagev1.CSIDriver]{
		Client: s.cfg.Client, Resource: kubeapi.CSIDrivers, NewList: func() runtime.Object { return &storagev1.CSIDriverList{} },
		Replace: s.replace, Put: s.put, Delete: s.remove,
		Failed: func(err error, again time.Duration) {
			s.cfg.Log.Debug("failed to read CSIDrivers", zap.Error(err), zap.Duration("retry", again))
		},
	})
	if err != nil {
		return fmt.Errorf("podsync: %w", err)
	}
	select {
	case <-ctx.Done():
		return nil
	case <-s.asked:
	}
	s.recall()
	late := time.AfterFunc(storageTimeout, s.release)
	defer late.Stop()
	var wg sync.WaitGroup
	wg.Go(func() { _ = f.Run(ctx) })
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-s.change:
			s.remember()
		}
	}
	wg.Wait()
	s.release()
	return nil
}

func (s *Storage) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered()
}

// answered wakes the callers that wait for the first answer. The caller holds s.mu.
func (s *Storage) answered() {
	select {
	case <-s.known:
	default:
		close(s.known)
	}
}

// Driver returns the content of a CSIDriver object.
func (s *Storage) Driver(ctx context.Context, name string) (plugins.CSIDriver, error) {
	s.mu.Lock()
	select {
	case <-s.asked:
	default:
		close(s.asked)
	}
	s.mu.Unlock()
	select {
	case <-s.known:
	case <-ctx.Done():
		return plugins.CSIDriver{}, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, ok := s.drivers[name]; ok {
		return d, nil
	}
	if s.drivers == nil {
		return plugins.CSIDriver{}, errors.New("the API server has not answered yet")
	}
	return plugins.CSIDriver{}, fmt.Errorf("CSIDriver %s: %w", name, plugins.ErrNotFound)
}

// driverOf returns the content of a CSIDriver, with the API's defaults.
func driverOf(o *storagev1.CSIDriver) plugins.CSIDriver {
	is := func(b *bool) bool { return b != nil && *b }
	d := plugins.CSIDriver{
		Name: o.Name, AttachRequired: o.Spec.AttachRequired == nil || *o.Spec.AttachRequired, PodInfoOnMount: is(o.Spec.PodInfoOnMount),
		FSGroupPolicy: plugins.FSGroupByType, TokensInSecrets: is(o.Spec.ServiceAccountTokenInSecrets),
		RequiresRepublish: is(o.Spec.RequiresRepublish), SELinuxMount: is(o.Spec.SELinuxMount),
		Persistent: len(o.Spec.VolumeLifecycleModes) == 0,
	}
	for _, m := range o.Spec.VolumeLifecycleModes {
		d.Persistent = d.Persistent || m == storagev1.VolumeLifecyclePersistent
		d.Ephemeral = d.Ephemeral || m == storagev1.VolumeLifecycleEphemeral
	}
	if p := o.Spec.FSGroupPolicy; p != nil && *p != "" {
		d.FSGroupPolicy = plugins.FSGroupPolicy(*p)
	}
	for _, r := range o.Spec.TokenRequests {
		d.TokenRequests = append(d.TokenRequests, plugins.TokenRequest(r))
	}
	if n := o.Spec.NodeAllocatableUpdatePeriodSeconds; n != nil && *n > 0 {
		d.UpdatePeriod = time.Duration(min(*n, int64(24*time.Hour/time.Second))) * time.Second
	}
	return d
}

func (s *Storage) replace(all []*storagev1.CSIDriver, _ string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drivers = map[string]plugins.CSIDriver{}
	for _, o := range all {
		s.drivers[o.Name] = driverOf(o)
	}
	s.answered()
	s.change.Set()
}

func (s *Storage) put(o *storagev1.CSIDriver) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drivers == nil {
		s.drivers = map[string]plugins.CSIDriver{}
	}
	s.drivers[o.Name] = driverOf(o)
	s.change.Set()
}

func (s *Storage) remove(o *storagev1.CSIDriver) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.drivers, o.Name)
	s.change.Set()
}

// recall restores the drivers that an earlier process stored.
func (s *Storage) recall() {
	if s.cfg.Memory == nil {
		return
	}
	var all map[string]plugins.CSIDriver
	b, err := s.cfg.Memory.Read(storageMemoryKey)
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			s.cfg.Log.Error("failed to read stored CSIDrivers", zap.Error(err))
		}
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drivers == nil && all != nil {
		s.drivers = all
	}
}

func (s *Storage) remember() {
	if s.cfg.Memory == nil {
		return
	}
	s.mu.Lock()
	b, err := json.Marshal(s.drivers)
	s.mu.Unlock()
	if have, rerr := s.cfg.Memory.Read(storageMemoryKey); err == nil && rerr == nil && string(have) == string(b) {
		return
	}
	if err == nil {
		err = s.cfg.Memory.Write(storageMemoryKey, b)
	}
	if err != nil {
		s.cfg.Log.Error("failed to store CSIDrivers", zap.Error(err))
	}
}
