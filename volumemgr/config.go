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

// What an embedder sets, with the defaults and the checks of New. All mistakes are
// reported at once, so that a configuration is corrected in one go.

// Claims finds what claims are bound to.
type Claims interface {
	// Resolve returns the spec of pod's volume vol, which has a
	// PersistentVolumeClaim or an Ephemeral source. A claim that is not bound, is
	// being deleted, or belongs to another pod (Ephemeral) is an error that names
	// it. It may ask a server, and is called without locks, at each Mount of a pod
	// that has such a volume.
	Resolve(ctx context.Context, pod *v1.Pod, vol *v1.Volume) (*Spec, error)
}

// Events takes events about pods. It does not block.
type Events interface {
	// Event may be called with the manager's lock held, so that it must not call
	// the manager.
	Event(pod *v1.Pod, eventType, reason, message string)
}

// Config holds what a Manager needs. Root, Plugins and Mounter are required;
// the zero value of every other field means the default named beside it.
type Config struct {
	// Root is the agent's directory: absolute, and clean.
	Root string
	// Plugins make the volumes. The first that supports a spec has it.
	Plugins []Plugin
	// Mounter is the node's mount table.
	Mounter Mounter
	// Claims finds persistent volumes; none: such volumes are an error.
	Claims Claims
	// Node says what the affinity of persistent volumes is matched against; nil:
	// every volume is for this node.
	Node func() Here
	// Files is the disk; the operating system's.
	Files Files
	// Events hears of volumes that cannot be mounted; nobody.
	Events Events
	// Ready is called, from a goroutine of its own, when all volumes of a pod
	// are mounted after a Mount of it returned without; nobody. It is the
	// time to sync that pod.
	Ready func(types.UID)
	// Parallel is how many operations run at a time. One that takes longer
	// than a second no longer counts; 16.
	Parallel int
	Log      *zap.Logger           // silent
	Metrics  prometheus.Registerer // not exported
}

// withDefaults returns the configuration with every optional field set, so that no
// other code asks for nil. Claims, Node and Metrics stay nil: their absence has a
// meaning.
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
	if c.Parallel == 0 {
		c.Parallel = 16
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

// validate reports every field that New cannot work with, by name, value and wanted
// values.
func (c *Config) validate() error {
	var errs []error
	// Paths of volumes are compared with those of the mount table, byte by byte: a
	// path with ".." or a double slash would never match.
	if !filepath.IsAbs(c.Root) || filepath.Clean(c.Root) != c.Root {
		errs = append(errs, fmt.Errorf("Config.Root is %q; want an absolute, clean path", c.Root))
	}
	if c.Mounter == nil {
		errs = append(errs, errors.New("Config.Mounter is required"))
	}
	if c.Parallel < 0 {
		errs = append(errs, fmt.Errorf("Config.Parallel is %d; want a positive number", c.Parallel))
	}
	if len(c.Plugins) == 0 {
		errs = append(errs, errors.New("Config.Plugins is required"))
	}
	// Records and directories are found by the plugin's name: two plugins of one
	// name would tear down each other's volumes.
	seen := map[string]bool{}
	for i, p := range c.Plugins {
		if p == nil {
			errs = append(errs, fmt.Errorf("Config.Plugins[%d] is nil", i))
			continue
		}
		name := p.Name()
		// The name becomes a directory and has to be found from it again.
		if !plain(escape(name)) || unescape(escape(name)) != name {
			errs = append(errs, fmt.Errorf("Config.Plugins[%d] is named %q; want a name such as kubernetes.io/empty-dir, without '~'", i, name))
		}
		if seen[name] {
			errs = append(errs, fmt.Errorf("Config.Plugins[%d]: a plugin named %q is there already", i, name))
		}
		seen[name] = true
	}
	return errors.Join(errs...)
}

// noEvents is Events for an agent without any.
type noEvents struct{}

func (noEvents) Event(*v1.Pod, string, string, string) {}
