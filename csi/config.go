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

// What an embedder sets, and the interfaces through which the package reads a
// cluster. Every one of them may be nil on a node that stands alone.

// Secrets has what Secrets hold.
type Secrets interface {
	// Secret returns storage.ErrNotFound if there is none of that name. The map is
	// shared and not changed. It may ask a server, is called without locks, and ends
	// when ctx does.
	Secret(ctx context.Context, namespace, name string) (map[string][]byte, error)
}

// Tokens issues tokens of service accounts; a tokens.Cache.
type Tokens interface {
	// Token returns a token that is valid for now, and when it should be fetched
	// again. It is called at each publication of a volume whose driver wants tokens.
	Token(ctx context.Context, namespace, account string, spec authv1.TokenRequestSpec) (plugins.Token, error)
}

// Config holds what a Manager needs. Root, NodeName and Mounter are required; the
// zero value of every other field means the default named beside it.
type Config struct {
	// Root is the agent's directory: absolute, and clean.
	Root string
	// NodeName is the name of the Node object. It is part of the names of
	// VolumeAttachments: another name would never find its attachments.
	NodeName string
	// Mounter is the node's mount table, and takes down what no driver does any
	// more. Nothing is mounted by it.
	Mounter mount.Mounter

	// Cluster says what a cluster knows of drivers; nil: the node stands alone.
	// Then no volume is attached, every driver makes persistent and ephemeral
	// volumes and is told whose they are, and one that has its volumes attached
	// by a controller is refused.
	Cluster plugins.StorageCluster
	Secrets Secrets // volumes that name a Secret fail
	Tokens  Tokens  // drivers that want one are refused

	// Changed is called when volumes that wait for an object may go on: a
	// volumemgr.Manager has it. It must not block. Default: no call.
	Changed func(volumemgr.Ref)
	// Exhausted is called with a pod whose volume cannot be attached because the
	// node has as many as it can. It must not block. Default: no call.
	Exhausted func(pod *v1.Pod, why error)
	// InUse is called when VolumesInUse or Ready has another answer. It must not
	// block. Default: no call.
	InUse func()
	// FileLabel is the SELinux label of files that containers with these options
	// may use, and whether the machine has SELinux. Default: it has none.
	FileLabel func(o *v1.SELinuxOptions) (label string, enabled bool)

	// Dial connects to a driver at the path of its socket, until ctx ends; by the
	// unix socket that is there. It is called again after each loss of the
	// connection.
	Dial func(ctx context.Context, path string) (net.Conn, error)

	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported

	step func() error // tests let the process die between two changes
}

// withDefaults returns the configuration with its optional functions set. Cluster,
// Secrets, Tokens and Metrics stay nil, as their absence has a meaning.
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
	if c.Dial == nil {
		c.Dial = func(ctx context.Context, path string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}
	}
	if c.step == nil {
		c.step = func() error { return nil }
	}
	return c
}

// validate reports every mistake at once, by the field's name, its value and the
// wanted values.
func (c *Config) validate() error {
	var errs []error
	// Paths are told to drivers and compared with those of the mount table, byte by
	// byte.
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
