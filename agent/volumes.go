package agent

import (
	"context"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/podspec"
	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/claims"
	"github.com/nodewright/nodewright/volumemgr/content"
	"github.com/nodewright/nodewright/volumemgr/mount"
	"github.com/nodewright/nodewright/volumemgr/plugins"
	"github.com/nodewright/nodewright/volumemgr/subpath"
)

// Volumes makes a pod's volumes ready on the node and takes them down again.
// A *volumemgr.Manager is one; of its other methods the agent uses Run,
// Changed and Why, if they are there.
type Volumes interface {
	// Mount makes every volume of pod ready, and returns those that are with
	// the errors of the others.
	Mount(ctx context.Context, pod *v1.Pod) (volumemgr.Mounts, error)
	// Unmount takes down whatever is mounted for the pod of that UID and
	// removes what it kept, the content of emptyDir volumes included.
	Unmount(ctx context.Context, uid types.UID) error
	// Remove is Unmount, and removes the pod's directory.
	Remove(ctx context.Context, uid types.UID) error
	// Sweep tells that all pods are known, and removes what is left of others.
	Sweep(ctx context.Context, known func(types.UID) bool) error
}

// newVolumes makes the volumes of an agent that was given none.
func (a *Agent) newVolumes() (Volumes, error) {
	kernel := &mount.Kernel{}
	list, err := plugins.New(plugins.Config{
		Mounter: kernel, Root: a.cfg.RootDir, Source: objects{a},
		Tokens: a.cfg.Tokens, Bundles: a.cfg.Bundles, Certificates: a.cfg.Certificates,
		Allocatable: func() v1.ResourceList { return a.cfg.Node.Allocatable },
	})
	if err != nil {
		return nil, err
	}
	resolver, err := claims.New(claims.Config{Source: bound{a}, Alone: true})
	if err != nil {
		return nil, err
	}
	return volumemgr.New(volumemgr.Config{
		Root: a.cfg.RootDir, Plugins: list, Mounter: plugins.Mounter(kernel), Events: a.events,
		Claims: resolver, Node: a.here,
		Ready: func(uid types.UID) { a.workers.Resync(uid) },
		Log:   a.cfg.Log.Named("volumemgr"), Metrics: a.cfg.Metrics,
	})
}

// objects are the ConfigMaps and Secrets of the sources, as volumes show them.
type objects struct{ *Agent }

func (o objects) Get(_ context.Context, kind, namespace, name string) (*content.Object, error) {
	switch kind {
	case "ConfigMap":
		if c := o.pods.ConfigMaps(namespace)[name]; c != nil {
			return content.OfConfigMap(c), nil
		}
	case "Secret":
		if s := o.pods.Secrets(namespace)[name]; s != nil {
			return content.OfSecret(s), nil
		}
	}
	return nil, fmt.Errorf("%s %s/%s: %w", kind, namespace, name, content.ErrNotFound)
}

// changed tells the volumes which objects are other ones now.
func (a *Agent) changed(configs []podmgr.Object) {
	v, ok := a.volumes.(interface{ Changed(volumemgr.Ref) })
	if !ok {
		return
	}
	for _, c := range configs {
		v.Changed(volumemgr.Ref{Kind: c.Kind, Namespace: c.Namespace, Name: c.Name})
	}
}

// runVolumes runs the volumes until ctx ends. An operation that hangs is not
// waited for.
func (a *Agent) runVolumes(ctx context.Context) error {
	v, ok := a.volumes.(interface{ Run(context.Context) error })
	if !ok {
		return nil
	}
	ended := make(chan error, 1)
	go func() { ended <- v.Run(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(hungVolumesWait):
		a.log.Warn("a volume's operation hangs and is left alone")
		return nil
	}
}

// hungVolumesWait is how long the agent's end waits for volumes.
const hungVolumesWait = 5 * time.Second

// volumesWhy says in one line which volumes a pod waits for.
func (a *Agent) volumesWhy(uid types.UID) string {
	v, ok := a.volumes.(interface {
		Why(types.UID) []volumemgr.Status
	})
	if !ok {
		return ""
	}
	for _, s := range v.Why(uid) {
		if s.State == volumemgr.StateMounted && s.Failures == 0 || len(s.Names) == 0 {
			continue
		}
		line := fmt.Sprintf("volume %s (%s): %s since %s", strings.Join(s.Names, ", "), s.Plugin, s.State, s.Since.Format(time.TimeOnly))
		if s.Hung {
			line += ", and it hangs"
		}
		if s.Failures > 0 {
			line += fmt.Sprintf("; failed %d times, first with: %s", s.Failures, s.First)
			if s.Last != s.First {
				line += "; last with: " + s.Last
			}
		}
		if !s.Next.IsZero() {
			line += "; next try at " + s.Next.Format(time.TimeOnly)
		}
		return line
	}
	return ""
}

// parts are the parts of volumes that containers mount.
type parts struct{ binder *subpath.Binder }

func newParts() (parts, error) {
	b, err := subpath.New(subpath.Config{Mounter: &mount.Kernel{}})
	return parts{b}, err
}

func (p parts) Bind(ctx context.Context, podDir, container string, s podspec.SubPath) (string, error) {
	return p.binder.Bind(ctx, subpath.Request{
		PodDir: podDir, Volume: s.Volume, VolumePath: s.VolumePath, Container: container, Index: s.Index, SubPath: s.Path,
	})
}
