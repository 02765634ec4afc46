// Package volumes creates the default volumes of an agent: a volumemgr.Manager with every plugin of
// this module, which reads objects from the agent's sources.
package volumes

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podspec"
	"github.com/nodewright/nodewright/volumemgr"

	"github.com/nodewright/nodewright/volumemgr/mount"
	"github.com/nodewright/nodewright/volumemgr/plugins"
)

// Sources provides the objects of volumes, and the claims and volumes of manifests. *podmgr.Manager
// implements it.
type Sources interface {
	ConfigMaps(namespace string) map[string]*v1.ConfigMap
	Secrets(namespace string) map[string]*v1.Secret
	Claim(namespace, name string) (*v1.PersistentVolumeClaim, bool)
	Volume(name string) (*v1.PersistentVolume, bool)
}

// Config configures the volumes. Root and Sources are required.
type Config struct {
	// Root is the agent's root directory.
	Root    string
	Sources Sources
	// Tokens, Bundles and Certificates provide data for projected volumes. If one is nil, pods
	// that need its data never start.
	Tokens       plugins.Tokens
	Bundles      plugins.Bundles
	Certificates plugins.Certificates
	// Mounter mounts file systems and lists mounts; default: the kernel's.
	Mounter mount.Mounter
	// BootID is the ID of the machine's current boot; default: the kernel's.
	BootID string
	// Plugins are volume plugins in addition to those of this module.
	Plugins []volumemgr.Plugin
	// Projects is plugins.Config.Projects.
	Projects bool
	// Node returns the node for the affinity of volumes.
	Node        func() volumemgr.Here
	Allocatable v1.ResourceList
	Events      volumemgr.Events
	// Ready is called with the UID of a pod when its volumes have become ready, or have
	// failed with a new error.
	Ready func(types.UID)

	Log     *zap.Logger           // if nil, nothing is logged
	Metrics prometheus.Registerer // if nil, metrics are not exported
}

// New returns the manager; it is not started.
func New(cfg Config) (*volumemgr.Manager, error) {
	mounter := orKernel(cfg.Mounter)
	list, err := plugins.New(plugins.Config{
		Mounter: mounter, BootID: cfg.BootID, Root: cfg.Root, Source: objects{cfg.Sources}, Projects: cfg.Projects,
		Tokens: cfg.Tokens, Bundles: cfg.Bundles, Certificates: cfg.Certificates,
		Allocatable: func() v1.ResourceList { return cfg.Allocatable },
	})
	if err != nil {
		return nil, err
	}
	list = append(list, cfg.Plugins...)
	resolver, err := plugins.NewClaimResolver(plugins.ClaimResolverConfig{Source: bound{cfg.Sources}, Alone: true})
	if err != nil {
		return nil, err
	}
	return volumemgr.New(volumemgr.Config{
		Root: cfg.Root, Plugins: list, Mounter: plugins.Mounter(mounter), Events: cfg.Events,
		Claims: resolver, Node: cfg.Node, Ready: cfg.Ready, Log: cfg.Log, Metrics: cfg.Metrics,
	})
}

// orKernel returns m, or a mounter of the kernel if m is nil.
func orKernel(m mount.Mounter) mount.Mounter {
	if m == nil {
		return &mount.Kernel{}
	}
	return m
}

// Share makes the mount that contains the agent's root directory shared, as the kubelet does: where
// systemd has not done so at boot, CSI drivers in pods could not mount in it. If m cannot share
// mounts, it does nothing. If m is nil, it uses the kernel's mounts.
func Share(ctx context.Context, m mount.Mounter, root string) error {
	if s, ok := orKernel(m).(mount.Sharer); ok {
		return s.Share(ctx, root)
	}
	return nil
}

// objects provides the ConfigMaps and Secrets of the sources for volumes.
type objects struct{ Sources }

func (o objects) Get(_ context.Context, kind, namespace, name string) (*plugins.ContentObject, error) {
	switch kind {
	case "ConfigMap":
		if c := o.ConfigMaps(namespace)[name]; c != nil {
			return plugins.ObjectOfConfigMap(c), nil
		}
	case "Secret":
		if s := o.Secrets(namespace)[name]; s != nil {
			return plugins.ObjectOfSecret(s), nil
		}
	}
	return nil, fmt.Errorf("%s %s/%s: %w", kind, namespace, name, plugins.ErrNotFound)
}

// bound provides the claims and volumes of the sources. A claim and a volume that name each
// other count as bound.
type bound struct{ sources Sources }

func (b bound) Claim(_ context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	if c, ok := b.sources.Claim(namespace, name); ok {
		return c, nil
	}
	return nil, plugins.ErrNotFound
}

func (b bound) Volume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	if pv, ok := b.sources.Volume(name); ok {
		return pv, nil
	}
	return nil, plugins.ErrNotFound
}

// SubPaths mounts subPaths of volumes for containers.
type SubPaths struct{ binder *mount.SubPathBinder }

// NewSubPaths returns SubPaths that use the mounter m. If m is nil, they use the kernel's mounts.
func NewSubPaths(m mount.Mounter) (SubPaths, error) {
	b, err := mount.NewSubPathBinder(mount.SubPathConfig{Mounter: orKernel(m)})
	return SubPaths{b}, err
}

// Bind implements podruntime.SubPaths.
func (p SubPaths) Bind(ctx context.Context, podDir, container string, s podspec.SubPath) (string, error) {
	return p.binder.Bind(ctx, mount.SubPathRequest{
		PodDir: podDir, Volume: s.Volume, VolumePath: s.VolumePath, Container: container, Index: s.Index, SubPath: s.Path,
	})
}
