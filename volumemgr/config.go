package volumemgr

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The configuration, with its defaults and validation.

// Claims resolves claims to their volumes.
type Claims interface {
	// Resolve returns the spec of pod's volume vol, which has a PersistentVolumeClaim or an
	// Ephemeral source. The error names the claim: it may be unbound, being deleted, or
	// (Ephemeral) owned by another pod. Resolve may call a server. It is called without locks, at
	// each Mount of a pod with such a volume.
	Resolve(ctx context.Context, pod *v1.Pod, vol *v1.Volume) (*Spec, error)
}

// Events receives events about pods. It must not block.
type Events interface {
	// Event may be called with the manager's lock held: it must not call the
	// manager.
	Event(pod *v1.Pod, eventType, reason, message string)
}

// Config holds what a Manager needs. Root, Plugins and Mounter are required;
// the zero value of every other field means the default named beside it.
type Config struct {
	// Root is the agent's directory, an absolute and clean path.
	Root string
	// Plugins implement the kinds of volumes. The first one that supports a spec is used.
	Plugins []Plugin
	// Mounter is the node's mount table.
	Mounter Mounter
	// Claims resolves claims. If it is nil, a volume with a claim cannot be mounted.
	Claims Claims
	// Node returns the node against which the affinity of persistent volumes is matched. If it is
	// nil, every volume may be used on this node.
	Node func() Here
	// Files accesses the disk. If it is nil, the operating system's files are used.
	Files Files
	// Events receives events about volumes that cannot be mounted. If it is nil, they are
	// dropped.
	Events Events
	// Ready is called when a Mount of a pod has failed and all its volumes are mounted now. The
	// caller should then sync the pod. Ready is called in its own goroutine. It may be nil.
	Ready   func(types.UID)
	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported
}

// parallel limits the concurrent operations. An operation no longer counts after slowAfter.
const parallel = 16

// withDefaults returns the configuration with its optional fields set. Claims, Node
// and Metrics may stay nil.
func (c Config) withDefaults() Config {
	if c.Files == nil {
		c.Files = osFiles{}
	}
	if c.Events == nil {
		c.Events = noEvents{}
	}
	if c.Ready == nil {
		c.Ready = func(types.UID) {}
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

// validate returns an error for every invalid field, with its name, value and
// allowed values.
func (c *Config) validate() error {
	var errs []error
	// Paths of volumes are compared with the mount table byte by byte, so a path with ".." or a
	// double slash would never match.
	if !filepath.IsAbs(c.Root) || filepath.Clean(c.Root) != c.Root {
		errs = append(errs, fmt.Errorf("Config.Root is %q; want an absolute, clean path", c.Root))
	}
	if c.Mounter == nil {
		errs = append(errs, errors.New("Config.Mounter is required"))
	}
	if len(c.Plugins) == 0 {
		errs = append(errs, errors.New("Config.Plugins is required"))
	}
	// Records and directories are found by the plugin's name, so two plugins with the same name
	// would tear down each other's volumes.
	seen := map[string]bool{}
	for i, p := range c.Plugins {
		if p == nil {
			errs = append(errs, fmt.Errorf("Config.Plugins[%d] is nil", i))
			continue
		}
		name := p.Name()
		// The name becomes that of a directory, from which the plugin is found again.
		if !plain(escape(name)) || unescape(escape(name)) != name {
			errs = append(errs, fmt.Errorf("Config.Plugins[%d] is named %q; want a name such as kubernetes.io/empty-dir, without '~'", i, name))
		}
		if seen[name] {
			errs = append(errs, fmt.Errorf("Config.Plugins[%d]: another plugin has the name %q", i, name))
		}
		seen[name] = true
	}
	return errors.Join(errs...)
}

// noEvents drops all events.
type noEvents struct{}

func (noEvents) Event(*v1.Pod, string, string, string) {}
