// Package cluster connects a node to a Kubernetes cluster: [Join] is for
// nodeagent.Options. It is apart from package nodeagent, so that a node that stands
// alone does not link a client of API servers.
//
// It calls nobody before it runs: a node starts without its cluster, with the pods
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

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/internal/csimigration"
	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/podsync"
	"github.com/nodewright/nodewright/kubeapi/seal"
	"github.com/nodewright/nodewright/node/status"
	"github.com/nodewright/nodewright/nodeagent"
	"github.com/nodewright/nodewright/nodeagent/internal/kubemetrics"
)

// The API server hears of containers' events, of the node's, and what evictions say beside.
var _ interface {
	local.AnnotatedEventRecorder
	local.ContainerEventRecorder
	local.NodeEventRecorder
} = (*kubeapi.EventRecorder)(nil)

// cluster is what makes the agent a node of one.
type cluster struct {
	name      string
	transport http.RoundTripper // nil: that of the kubeconfig
	client    *kubeapi.Client
	heartbeat *kubeapi.Client // of the Node and its lease
	pods      *podsync.Source
	sink      *podsync.Sink
	events    *kubeapi.EventRecorder
	catalog   *podsync.Catalog
	bundles   *podsync.Bundles
	storage   *podsync.Storage
	seal      *seal.Sealer // of what is secret; nil: that is not kept
	slices    *kubeapi.SliceWiper
	status    *status.Manager
	node      *kubeapi.NodeManager
	lease     *kubeapi.Lease
	// own and serving keep certificates; nil if somebody else does.
	own, serving *kubeapi.Credentials

	hasDrivers func() bool // a part takes DRA drivers

	unbounded func() (*kubeapi.Client, error) // one more client, whose calls are not counted
}

// statusBackoff is the longest pause between two tries to publish a status in
// a cluster: what was not taken arrives soon after the API server's return.
const statusBackoff = 10 * time.Second

// Join connects to the cluster of the configuration's kubeconfig. What it reports the
// cluster of the node it asks the Builder's Facts, when it runs.
func Join(b *nodeagent.Builder) (*nodeagent.Cluster, error) { return join(b, nil) }

// Through is [Join] over a transport of one's own, such as one that several nodes
// share. The kubeconfig must have no options of TLS then, which are the transport's.
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
	if err := cl.publish(b, met); err != nil {
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

// wipe makes what deletes the ResourceSlices of drivers that have gone.
func (cl *cluster) wipe(b *nodeagent.Builder) (err error) {
	f := b.Facts
	cl.hasDrivers = func() bool { return f.Drivers != nil } // which parts say, when they are made
	cl.slices, err = kubeapi.NewSliceWiper(kubeapi.SliceWiperConfig{
		Client: cl.client.Once(), NodeName: cl.name, Connected: func() []string { return f.Drivers() }, Log: b.Log.Named("resourceslices"),
	})
	if err != nil {
		return err
	}
	f.OnDrivers(cl.slices.Changed)
	return nil
}

// parts are what the node gets.
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
		Source: cl.pods, Status: agent.Status{Sink: cl.sink, MaxBackoff: statusBackoff}, Events: cl.events,
		Node:    agent.Cluster{NodeLabels: cl.labels, NodeResources: cl.resources, NodeTaints: cl.taints, Features: declared(b.Config), Services: cl.catalog.Services, RuntimeClasses: cl.catalog.Handler},
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

// publish makes what writes to the API server: statuses and events.
func (cl *cluster) publish(b *nodeagent.Builder, met *kubemetrics.Metrics) (err error) {
	if cl.pods, err = podsync.NewSource(podsync.SourceConfig{
		Client: cl.client, NodeName: cl.name, Memory: b.Store("cluster/pods", "podsource"),
		Seal: cl.seal, Log: b.Log.Named("podsource"),
	}); err != nil {
		return err
	}
	if cl.sink, err = podsync.NewSink(podsync.SinkConfig{Client: cl.client.Once(), Pods: cl.pods, Ended: cl.pods.Ended}); err != nil {
		return err
	}
	// Events have a budget of their own (eventRecordQPS): those of a burst of pods
	// must not hold up the statuses of these.
	if cl.events, err = kubeapi.NewEventRecorder(kubeapi.EventConfig{
		Client: cl.client.Once().Unlimited(), NodeName: cl.name,
		QPS: float64(*b.Config.EventRecordQPS), Burst: int(b.Config.EventBurst), Log: b.Log.Named("events"),
	}); err != nil {
		return err
	}
	return met.Add(kubemetrics.Events(cl.events.Counts), kubemetrics.Statuses(cl.sink.Counts))
}

// follow makes what reads from the API server what all pods need.
func (cl *cluster) follow(b *nodeagent.Builder) (err error) {
	if cl.catalog, err = podsync.NewCatalog(podsync.CatalogConfig{
		Client: cl.client, Memory: b.Store("cluster/catalog", "catalog"), Log: b.Log.Named("catalog"),
	}); err != nil {
		return err
	}
	if cl.storage, err = podsync.NewStorage(podsync.StorageConfig{
		Client: cl.client, NodeName: cl.name, Node: func() (*v1.Node, bool) { return cl.node.Node() }, Migrated: csimigration.Plugins(),
		Memory: b.Store("cluster/storage", "storage"), Log: b.Log.Named("storage"),
	}); err != nil {
		return err
	}
	cl.bundles, err = podsync.NewBundles(podsync.BundlesConfig{
		Client: cl.client, Memory: b.Store("cluster/bundles", "trustbundles"), Log: b.Log.Named("trustbundles"),
	})
	return err
}

// tokens makes what gets tokens of service accounts, and keeps them.
func (cl *cluster) tokens(b *nodeagent.Builder) (*podsync.TokenKeeper, error) {
	requester, err := podsync.NewTokenRequester(cl.client)
	if err != nil {
		return nil, err
	}
	return podsync.NewTokenKeeper(podsync.TokenKeeperConfig{
		Requester: requester, Memory: b.Store("cluster/tokens", "tokens"), Seal: cl.seal, Log: b.Log.Named("tokens"),
	})
}

// podCertificates makes what gets certificates of pods; their keys are in memory alone.
func (cl *cluster) podCertificates(b *nodeagent.Builder) (*podsync.CertificateIssuer, error) {
	return podsync.NewCertificateIssuer(podsync.CertificateConfig{
		Client: cl.client.Once(), NodeName: cl.name, Node: cl.uid, ServiceAccount: cl.serviceAccount,
		Events: cl.events, Log: b.Log.Named("podcertificates"), Metrics: b.Metrics,
	})
}

// serviceAccount reads one, as the API server has it now.
func (cl *cluster) serviceAccount(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error) {
	sa := &v1.ServiceAccount{}
	if err := cl.client.Once().Get(ctx, kubeapi.ServiceAccounts, kubeapi.Key{Namespace: namespace, Name: name}, sa); err != nil {
		return nil, err
	}
	return sa, nil
}

// uid is that of the Node, if it is there to stay.
func (cl *cluster) uid() (types.UID, bool) {
	n, _ := cl.node.Node()
	if n == nil || n.DeletionTimestamp != nil {
		return "", false
	}
	return n.UID, n.UID != ""
}
