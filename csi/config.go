package csi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	authv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/mount"
	"github.com/nodewright/nodewright/volumemgr/plugins"
)

// The configuration, and the interfaces for reading cluster objects. All of these may be nil on a
// node without a cluster.

// Secrets reads the Secrets that CSI volumes name, for the calls of their drivers.
type Secrets interface {
	// Secret returns the data of a Secret, or plugins.ErrNotFound. The map is shared and not
	// modified. Secret is called without locks. It may call a server, and must return when ctx
	// ends.
	Secret(ctx context.Context, namespace, name string) (map[string][]byte, error)
}

// Tokens issues tokens of service accounts. plugins.TokenCache implements it.
type Tokens interface {
	// Token returns a valid token, and the time after which it should be renewed. It is called at
	// each publication of a volume whose driver requires tokens.
	Token(ctx context.Context, namespace, account string, spec authv1.TokenRequestSpec) (plugins.Token, error)
}

// Config holds what a Manager needs. Root, NodeName and Mounter are required; the
// zero value of every other field means the default named beside it.
type Config struct {
	// Root is the agent's directory, an absolute and clean path.
	Root string
	// NodeName is the name of the Node object. It is part of the names of VolumeAttachments: with
	// a wrong name, attachments are not found.
	NodeName string
	// Mounter is the node's mount table. The Manager never mounts with it; it only unmounts
	// volumes whose driver is no longer known.
	Mounter mount.Mounter

	// Cluster gives access to the cluster's objects about drivers. If Cluster is nil, no volume is
	// attached, every driver may serve persistent and ephemeral volumes and gets the pod's name, and
	// volumes of a driver whose controller attaches volumes fail.
	Cluster plugins.StorageCluster
	Secrets Secrets // if it is nil, volumes that name a Secret fail
	Tokens  Tokens  // if it is nil, volumes of drivers that require a token fail

	// Changed is called when volumes that wait for an object can continue; the method Changed of
	// volumemgr.Manager fits. It must not block. If Changed is nil, nothing is called.
	Changed func(volumemgr.Ref)
	// Exhausted is called with a pod whose volume cannot be attached because the node has reached
	// its limit. It must not block. If Exhausted is nil, nothing is called.
	Exhausted func(pod *v1.Pod, why error)
	// InUse is called when the result of VolumesInUse or Ready has changed. It must not block. If
	// InUse is nil, nothing is called.
	InUse func()
	// FileLabel returns the SELinux label of the files that containers with these options may
	// use, and whether the machine has SELinux. If FileLabel is nil, the machine has none.
	FileLabel func(o *v1.SELinuxOptions) (label string, enabled bool)

	// Dial connects to a driver by the path of its socket. ctx may end the attempt. It is called
	// again after each loss of the connection. The default connects to a unix socket.
	Dial func(ctx context.Context, path string) (net.Conn, error)

	Log     *zap.Logger           // if nil, nothing is logged
	Metrics prometheus.Registerer // if nil, metrics are not exported

	step func() error // called between two steps; tests set it to simulate the end of the process
}

// withDefaults sets the optional functions and returns the configuration. Cluster, Secrets,
// Tokens and Metrics may stay nil.
func (c Config) withDefaults() Config {
	if c.Changed == nil {
		c.Changed = func(volumemgr.Ref) {}
	}
	if c.Exhausted == nil {
		c.Exhausted = func(*v1.Pod, error) {}
	}
	if c.InUse == nil {
		c.InUse = func() {}
	}
	if c.FileLabel == nil {
		c.FileLabel = func(*v1.SELinuxOptions) (string, bool) { return "", false }
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	if c.step == nil {
		c.step = func() error { return nil }
	}
	return c
}

// validate returns all mistakes, each with the field's name, its value and the allowed values.
func (c *Config) validate() error {
	var errs []error
	// Paths are passed to drivers and compared with the mount table byte by byte.
	if !filepath.IsAbs(c.Root) || filepath.Clean(c.Root) != c.Root {
		errs = append(errs, fmt.Errorf("Config.Root is %q; want an absolute, clean path", c.Root))
	}
	if c.NodeName == "" {
		errs = append(errs, errors.New("Config.NodeName is required"))
	}
	if c.Mounter == nil {
		errs = append(errs, errors.New("Config.Mounter is required"))
	}
	return errors.Join(errs...)
}
