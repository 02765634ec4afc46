// Package cluster connects a node to a Kubernetes cluster: [Join] is for
// nodeagent.Options. It is separate from package nodeagent, so that a node without
// a cluster does not link a client of API servers.
//
// It makes no call before it runs: a node starts without its cluster, with the pods
// that it had.
//
// Tier: stable.
package cluster

import (
	"context"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	intree "k8s.io/csi-translation-lib/plugins"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/podsync"
	"github.com/nodewright/nodewright/kubeapi/seal"
	"github.com/nodewright/nodewright/node/status"
	"github.com/nodewright/nodewright/nodeagent"
	"github.com/nodewright/nodewright/nodeagent/internal/kubemetrics"
	"github.com/nodewright/nodewright/podmgr"
)

// The API server gets events of containers and the node, and messages of evictions.
var _ interface {
	local.AnnotatedEventRecorder
	local.ContainerEventRecorder
	local.NodeEventRecorder
} = (*kubeapi.EventRecorder)(nil)

// migrated are the former in-tree plugins whose volumes package csi translates, sorted.
var migrated = []string{
	intree.AWSEBSInTreePluginName, intree.AzureDiskInTreePluginName, intree.AzureFileInTreePluginName, intree.CinderInTreePluginName,
	intree.GCEPDInTreePluginName, intree.PortworxVolumePluginName, intree.VSphereInTreePluginName,
}

// cluster is the connection to an API server.
type cluster struct {
	name      string
	transport http.RoundTripper // nil: the transport of the kubeconfig
	client    *kubeapi.Client
	heartbeat *kubeapi.Client // client for the Node and its lease
	pods      *podsync.Source
	sink      *podsync.Sink
	events    *kubeapi.EventRecorder
	catalog   *podsync.Catalog
	bundles   *podsync.Bundles
	storage   *podsync.Storage
	seal      *seal.Sealer // encrypts secret values; if nil, they are not stored
	slices    *kubeapi.SliceWiper
	status    *status.Manager
	node      *kubeapi.NodeManager
	lease     *kubeapi.Lease
	// own rotates the node's client certificate, and serving the serving certificate. Each is nil
	// if the agent does not rotate that certificate.
	own, serving *kubeapi.Credentials

	hasDrivers func() bool // reports whether a part uses DRA drivers

	unbounded func() (*kubeapi.Client, error) // one more client, whose calls are not counted
}

// statusBackoff is the longest pause between two tries to publish a status, so that statuses are
// published soon after the API server answers again.
const statusBackoff = 10 * time.Second

// Join connects to the cluster in the configuration's kubeconfig. The node's state
// for the cluster comes from the Builder's Facts, when it runs.
func Join(b *nodeagent.Builder) (*nodeagent.Cluster, error) { return join(b, nil) }

// Through is [Join] with another transport, such as one that several nodes share.
// The kubeconfig must have no TLS options then.
func Through(t http.RoundTripper) func(*nodeagent.Builder) (*nodeagent.Cluster, error) {
	return func(b *nodeagent.Builder) (*nodeagent.Cluster, error) { return join(b, t) }
}

func join(b *nodeagent.Builder, t http.RoundTripper) (*nodeagent.Cluster, error) {
	cl := &cluster{name: b.Node.Name, transport: t, seal: sealer(b)}
	met, err := kubemetrics.New(b.Metrics)
	if err != nil {
		return nil, err
	}
	heartbeat, err := cl.clients(b, met)
	if err != nil {
		return nil, err
	}
	if err := cl.publish(b); err != nil {
		return nil, err
	}
	if err := cl.follow(b); err != nil {
		return nil, err
	}
	if err := cl.becomeNode(b, heartbeat); err != nil {
		return nil, err
	}
	b.Facts.OnChange(cl.status.Changed)
	if err := cl.wipe(b); err != nil {
		return nil, err
	}
	return cl.parts(b)
}

// wipe creates the component that deletes the ResourceSlices of drivers that are gone.
func (cl *cluster) wipe(b *nodeagent.Builder) (err error) {
	f := b.Facts
	cl.hasDrivers = func() bool { return f.Drivers != nil } // parts set Drivers later, when they are made
	cl.slices, err = kubeapi.NewSliceWiper(kubeapi.SliceWiperConfig{
		Client: cl.client.Once(), NodeName: cl.name, Connected: func() []string { return f.Drivers() }, Log: b.Log.Named("resourceslices"),
	})
	if err != nil {
		return err
	}
	f.OnDrivers(cl.slices.Changed)
	return nil
}

// parts returns the Cluster for the node.
func (cl *cluster) parts(b *nodeagent.Builder) (*nodeagent.Cluster, error) {
	mirrors, err := podsync.NewMirrors(podsync.MirrorsConfig{Client: cl.client, NodeName: cl.name, Node: cl.uid})
	if err != nil {
		return nil, err
	}
	tokens, err := cl.tokens(b)
	if err != nil {
		return nil, err
	}
	out := &nodeagent.Cluster{
		Run:    func(ctx context.Context) error { return cl.run(ctx, b.Log) },
		Source: pods{cl.pods, cl.node.Known()}, Status: agent.Status{Sink: cl.sink, MaxBackoff: statusBackoff}, Events: cl.events,
		Node: agent.Cluster{
			NodeLabels: cl.labels, NodeResources: cl.resources, NodeTaints: cl.taints, Features: declared(b.Config),
			Services: cl.catalog.Services, RuntimeClasses: cl.catalog.Handler,
		},
		Mirrors: mirrors, Tokens: tokens, Bundles: cl.bundles,
		Runtime: watchedRuntime{b.Runtime, cl.status.RuntimeChanged}, Images: watchedImages{b.Images, cl.status.ImagesChanged},
		ServiceAccount: cl.serviceAccount, Reviewer: cl.reviewer, Storage: cl.storage, Claims: cl.storage.Claims(),
	}
	if b.Config.PodCertificates() {
		if out.Certificates, err = cl.podCertificates(b); err != nil {
			return nil, err
		}
	}
	if cl.serving != nil {
		out.Certificate = cl.serving.Current
	}
	return out, nil
}

// pods delivers the API server's pods. It begins only when the Node's labels and taints are
// known, since pods are admitted by them, and a rejection is final.
type pods struct {
	*podsync.Source
	known <-chan struct{}
}

// Run implements podmgr.Source.
func (p pods) Run(ctx context.Context, deliver func(podmgr.Snapshot)) error {
	select {
	case <-ctx.Done():
		return nil
	case <-p.known:
		return p.Source.Run(ctx, deliver)
	}
}

// publish creates the components that write statuses and events to the API server.
func (cl *cluster) publish(b *nodeagent.Builder) (err error) {
	if cl.pods, err = podsync.NewSource(podsync.SourceConfig{
		Client: cl.client, NodeName: cl.name, Memory: b.Store("cluster/pods", "podsource"),
		Seal: cl.seal, Log: b.Log.Named("podsource"),
	}); err != nil {
		return err
	}
	if cl.sink, err = podsync.NewSink(podsync.SinkConfig{Client: cl.client.Once(), Pods: cl.pods, Ended: cl.pods.Ended}); err != nil {
		return err
	}
	// Events have a rate limit of their own (eventRecordQPS): the events of many
	// pods must not delay their statuses.
	cl.events, err = kubeapi.NewEventRecorder(kubeapi.EventConfig{
		Client: cl.client.Once().Unlimited(), NodeName: cl.name,
		QPS: float64(*b.Config.EventRecordQPS), Burst: int(b.Config.EventBurst), Log: b.Log.Named("events"),
	})
	return err
}

// follow creates the components that read objects for all pods from the API server.
func (cl *cluster) follow(b *nodeagent.Builder) (err error) {
	if cl.catalog, err = podsync.NewCatalog(podsync.CatalogConfig{
		Client: cl.client, Memory: b.Store("cluster/catalog", "catalog"), Log: b.Log.Named("catalog"),
	}); err != nil {
		return err
	}
	if cl.storage, err = podsync.NewStorage(podsync.StorageConfig{
		Client: cl.client, NodeName: cl.name, Node: func() (*v1.Node, bool) { return cl.node.Node() }, Migrated: migrated,
		Memory: b.Store("cluster/storage", "storage"), Log: b.Log.Named("storage"),
	}); err != nil {
		return err
	}
	cl.bundles, err = podsync.NewBundles(podsync.BundlesConfig{
		Client: cl.client, Memory: b.Store("cluster/bundles", "trustbundles"), Log: b.Log.Named("trustbundles"),
	})
	return err
}

// tokens creates the component that requests and stores tokens of service accounts.
func (cl *cluster) tokens(b *nodeagent.Builder) (*podsync.TokenKeeper, error) {
	requester, err := podsync.NewTokenRequester(cl.client)
	if err != nil {
		return nil, err
	}
	return podsync.NewTokenKeeper(podsync.TokenKeeperConfig{
		Requester: requester, Memory: b.Store("cluster/tokens", "tokens"), Seal: cl.seal, Log: b.Log.Named("tokens"),
	})
}

// podCertificates creates the component that requests certificates of pods; their
// keys are only in memory.
func (cl *cluster) podCertificates(b *nodeagent.Builder) (*podsync.CertificateIssuer, error) {
	return podsync.NewCertificateIssuer(podsync.CertificateConfig{
		Client: cl.client.Once(), NodeName: cl.name, Node: cl.uid, ServiceAccount: cl.serviceAccount,
		Events: cl.events, Log: b.Log.Named("podcertificates"), Metrics: b.Metrics,
	})
}

// serviceAccount reads a service account from the API server.
func (cl *cluster) serviceAccount(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error) {
	sa := &v1.ServiceAccount{}
	if err := cl.client.Once().Get(ctx, kubeapi.ServiceAccounts, kubeapi.Key{Namespace: namespace, Name: name}, sa); err != nil {
		return nil, err
	}
	return sa, nil
}

// uid returns the Node's UID. It returns false if there is no Node, or if the Node is being
// deleted.
func (cl *cluster) uid() (types.UID, bool) {
	n, _ := cl.node.Node()
	if n == nil || n.DeletionTimestamp != nil {
		return "", false
	}
	return n.UID, n.UID != ""
}
