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

// Builder has the components of a node that exist so far, for makers of parts and
// of the connection to a cluster. It is used while [New] runs, and not changed
// afterwards.
type Builder struct {
	Config   *kubeletconfig.Config
	Settings Settings
	Node     node.Machine // description of the machine for pods
	Runtime  criapi.RuntimeService
	Images   criapi.ImageManagerService
	// Version is the Kubernetes version of the node.
	Version version.Info
	// Cluster is the connection to the cluster. It is nil if the node has no cluster.
	Cluster *Cluster
	// Hardware describes the node's machine. If it is nil, the node's machine is the one on which
	// the agent runs.
	Hardware *Hardware
	// Machine reports shutdowns. If it is nil, logind does.
	Machine shutdown.Machine
	// Facts are the values that parts share.
	Facts *Facts

	Log     *zap.Logger           // never nil
	Metrics prometheus.Registerer // if nil, metrics are not exported

	cgroups agent.Cgroups    // nil: the runtime manages pod cgroups
	host    *hostCgroups     // cgroups of processes outside pods
	rings   []images.Keyring // the node's own credentials
	claims  []node.Claim     // resources of the machine that only this node may use
	// debugged are the sources of static pods.
	debugged []*debugged
}

// Path returns a path below the node's root directory.
func (b *Builder) Path(elem ...string) string {
	return filepath.Join(append([]string{b.Config.RootDir}, elem...)...)
}

// Store returns a store of small values that survive a restart. dir is the store's directory
// below the node's root directory, which is created with the first value. Messages about damaged
// values are logged under name.
func (b *Builder) Store(dir, name string) part.Store {
	return part.OpenStore(b.Path(dir), b.Log.Named(name))
}

// rootedCgroups is implemented by cgroups whose pods are below one root cgroup, as in package
// cgroups.
type rootedCgroups interface{ Root() string }

// PodsCgroup returns the path of the cgroup of all pods, relative to the mount points. It returns
// "" if the runtime chooses each pod's cgroup. The path is known before the first part is made.
func (b *Builder) PodsCgroup() string {
	if r, ok := b.cgroups.(rootedCgroups); ok {
		return r.Root()
	}
	return ""
}
