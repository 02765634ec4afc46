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

// Cluster is the connection of a node to a cluster: the result of Options.Join.
// Package nodeagent/cluster has one for API servers; an embedder may write one for
// another control plane. Run is required; all other fields are optional.
type Cluster struct {
	// Run maintains the connection until ctx ends. An error is logged.
	Run func(ctx context.Context) error

	// Source delivers the pods that the cluster has bound to this node.
	Source podmgr.Source
	// Status receives the statuses of pods and of the node.
	Status agent.Status
	Events local.EventRecorder
	// Node returns the cluster's state of the node.
	Node agent.Cluster
	// Mirrors creates mirror pods of static pods.
	Mirrors lifecycle.MirrorAPI
	// Tokens and Bundles provide tokens of service accounts and trust bundles for projected
	// volumes.
	Tokens  plugins.Tokens
	Bundles plugins.Bundles
	// Certificates provides certificates of pods for projected volumes. It is nil if the feature
	// gate PodCertificateRequest is off.
	Certificates plugins.Certificates
	// ServiceAccount returns a service account, for credential providers that need
	// its annotations together with a token.
	ServiceAccount func(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error)
	// Storage reads the cluster's objects about CSI drivers, and Claims updates claims whose
	// volumes were expanded. Neither is called before a CSI driver has registered.
	Storage plugins.StorageCluster
	Claims  ClaimStatuses
	// Runtime and Images replace the Builder's, unless they are nil.
	Runtime criapi.RuntimeService
	Images  criapi.ImageManagerService

	// Reviewer returns the component that authenticates and authorizes users of the
	// node's API. If it is nil, HTTPS works as on a node without a cluster; see
	// [NodeAPI].
	Reviewer func() (Reviewer, error)
	// Certificate returns the serving certificate of the node's API. If it is nil, the
	// configured certificate or a self-signed one is used.
	Certificate func() *tls.Certificate
}

// ClaimStatuses reads claims and updates the status of their expansion.
type ClaimStatuses interface {
	// Get reads the current claim.
	Get(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error)
	// UpdateStatus replaces the status of a claim, and returns the updated claim.
	UpdateStatus(ctx context.Context, claim *v1.PersistentVolumeClaim, status v1.PersistentVolumeClaimStatus) (*v1.PersistentVolumeClaim, error)
}

// Reviewer determines the owner of a token, and the permissions of its owner.
type Reviewer interface {
	auth.TokenReviewer
	auth.AccessReviewer
}

// into copies the fields of cl into the configuration of the agent. For a field that is nil, the
// agent uses its default.
func (cl *Cluster) into(cfg *agent.Config) {
	if cl.Source != nil {
		cfg.Sources = append(cfg.Sources, cl.Source)
	}
	cfg.Status, cfg.Events, cfg.Cluster = cl.Status, cl.Events, cl.Node
	cfg.Volumes.Tokens, cfg.Volumes.Bundles, cfg.Volumes.Certificates = cl.Tokens, cl.Bundles, cl.Certificates
}
