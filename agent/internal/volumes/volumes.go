// Package volumes makes the volumes of an agent that was given none of its own: a
// volumemgr.Manager with every plugin of this module, fed from the agent's
// sources.
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

// Sources know the objects that volumes show, and the claims and volumes of
// manifests. A *podmgr.Manager is one.
type Sources interface {
	ConfigMaps(namespace string) map[string]*v1.ConfigMap
	Secrets(namespace string) map[string]*v1.Secret
	Claim(namespace, name string) (*v1.PersistentVolumeClaim, bool)
	Volume(name string) (*v1.PersistentVolume, bool)
}

// Config holds what the volumes are made with. Root and Sources are required.
type Config struct {
	// Root is the agent's root directory.
	Root    string
	Sources Sources
	// Tokens, Bundles and Certificates are for projected volumes; pods that
	// want one wait for it in vain without.
	Tokens       plugins.Tokens
	Bundles      plugins.Bundles
	Certificates plugins.Certificates
	// Mounter makes and lists the mounts; the kernel's.
	Mounter mount.Mounter
	// BootID names the present boot of the machine; that of the kernel.
	BootID string
	// Plugins make kinds of volumes beside those of this module; none.
	Plugins []volumemgr.Plugin
	// Node is the node as the affinity of volumes sees it.
	Node        func() volumemgr.Here
	Allocatable v1.ResourceList
	Events      volumemgr.Events
	// Ready is told of pods whose volumes became ready, or failed otherwise.
	Ready func(types.UID)

	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported
}

// New returns the manager, at rest.
func New(cfg Config) (*volumemgr.Manager, error) {
	mounter := orKernel(cfg.Mounter)
	list, err := plugins.New(plugins.Config{
		Mounter: mounter, BootID: cfg.BootID, Root: cfg.Root, Source: objects{cfg.Sources},
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

// orKernel returns m, or the kernel's mounts for nil.
func orKernel(m mount.Mounter) mount.Mounter {
	if m == nil {
		return &mount.Kernel{}
	}
	return m
}

// objects are the ConfigMaps and Secrets of the sources, as volumes show them.
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

// bound are the claims and the volumes of the sources, which nobody binds.
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

// SubPaths binds the parts of volumes that containers mount.
type SubPaths struct{ binder *mount.SubPathBinder }

// NewSubPaths returns a binder; without a mounter it mounts by the kernel.
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
