package nodeagent

import (
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/version"
	criapi "k8s.io/cri-api/pkg/apis"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/images"
	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/node"
	"github.com/nodewright/nodewright/node/shutdown"
)

// Builder is what a node is made with: what there is already when a part, or what
// connects to a cluster, is made. It is used while [New] runs, and not changed
// after that.
type Builder struct {
	Config   *kubeletconfig.Config
	Settings Settings
	Node     node.Machine // what pods may know and have of it
	Runtime  criapi.RuntimeService
	Images   criapi.ImageManagerService
	// Version is the release of Kubernetes that the node presents itself as.
	Version version.Info
	// Cluster is nil for a node that stands alone.
	Cluster *Cluster
	// Hardware is the node's machine; nil is the one that the agent runs on.
	Hardware *Hardware
	// Machine reports when the machine goes down; nil is logind.
	Machine shutdown.Machine
	// Facts are what parts let others know.
	Facts *Facts

	Log     *zap.Logger           // never nil
	Metrics prometheus.Registerer // nil: not exported

	cgroups agent.Cgroups    // nil: the runtime does as it likes
	host    *hostCgroups     // of what runs beside pods
	rings   []images.Keyring // the node's own credentials
	claims  []node.Claim     // what of the machine is the node's alone
}

// Path is a path below the node's root directory.
func (b *Builder) Path(elem ...string) string {
	return filepath.Join(append([]string{b.Config.RootDir}, elem...)...)
}

// Store keeps small values over a restart, in a directory below the root that is
// made with the first value. What is found damaged is logged under the name.
func (b *Builder) Store(dir, name string) part.Store {
	return part.OpenStore(b.Path(dir), b.Log.Named(name))
}

// rootedCgroups have one cgroup above those of all pods. Those of package cgroups
// do.
type rootedCgroups interface{ Root() string }

// PodsCgroup is the cgroup of all pods, below the mount points; "" if each is where
// the runtime puts it. It is known before the first part is made.
func (b *Builder) PodsCgroup() string {
	if r, ok := b.cgroups.(rootedCgroups); ok {
		return r.Root()
	}
	return ""
}
