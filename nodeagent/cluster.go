package nodeagent

import (
	"context"
	"crypto/tls"

	v1 "k8s.io/api/core/v1"
	criapi "k8s.io/cri-api/pkg/apis"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/agent/lifecycle"
	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/server/auth"
	"github.com/nodewright/nodewright/volumemgr/plugins"
)

// Cluster is what connects a node to one: what Options.Join returns. Package
// nodeagent/cluster has one for API servers; an embedder may write one for a
// control plane of its own. Run is required; the node does without the others.
type Cluster struct {
	// Run keeps the connection until ctx ends. An error is logged.
	Run func(ctx context.Context) error

	// Source says which pods the cluster wants here.
	Source podmgr.Source
	// Status takes what pods and the node report.
	Status agent.Status
	Events local.EventRecorder
	// Node is what the cluster knows of the node.
	Node agent.Cluster
	// Mirrors makes pods that stand for static ones.
	Mirrors lifecycle.MirrorAPI
	// Tokens and Bundles are for projected volumes.
	Tokens  plugins.Tokens
	Bundles plugins.Bundles
	// Certificates are for projected volumes; nil without the gate
	// PodCertificateRequest.
	Certificates plugins.Certificates
	// ServiceAccount returns a service account; credential providers may want its
	// annotations, and a token of Tokens beside.
	ServiceAccount func(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error)
	// Storage is what the cluster knows of CSI drivers, and Claims notes on claims
	// how far volumes were made larger. Nobody is called before drivers are.
	Storage plugins.StorageCluster
	Claims  ClaimStatuses
	// Runtime and Images take the place of the Builder's.
	Runtime criapi.RuntimeService
	Images  criapi.ImageManagerService

	// Reviewer returns who says who may use the node's API; without it HTTPS is as
	// on a node that stands alone, see [NodeAPI].
	Reviewer func() (Reviewer, error)
	// Certificate is that of the node's API; that of the configuration, or one
	// that the node signs itself.
	Certificate func() *tls.Certificate
}

// ClaimStatuses notes on claims how far their volumes have been made larger.
type ClaimStatuses interface {
	// Get reads a claim as it is now.
	Get(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error)
	// UpdateStatus gives a claim, as it was read, another status, and returns the
	// claim with that.
	UpdateStatus(ctx context.Context, claim *v1.PersistentVolumeClaim, status v1.PersistentVolumeClaimStatus) (*v1.PersistentVolumeClaim, error)
}

// Reviewer reports whose token something is, and what its owner may do.
type Reviewer interface {
	auth.TokenReviewer
	auth.AccessReviewer
}

// into has the agent use the cluster. Fields that the cluster leaves nil are nil in
// the agent's configuration, which has its own defaults for them.
func (cl *Cluster) into(cfg *agent.Config) {
	if cl.Source != nil {
		cfg.Sources = append(cfg.Sources, cl.Source)
	}
	cfg.Status, cfg.Events, cfg.Cluster = cl.Status, cl.Events, cl.Node
	cfg.Volumes.Tokens, cfg.Volumes.Bundles, cfg.Volumes.Certificates = cl.Tokens, cl.Bundles, cl.Certificates
}
