package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/checkpoint"
	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/kubeapi/apiclient"
	"github.com/nodewright/nodewright/kubeapi/catalog"
	"github.com/nodewright/nodewright/kubeapi/credentials"
	"github.com/nodewright/nodewright/kubeapi/events"
	"github.com/nodewright/nodewright/kubeapi/metrics"
	"github.com/nodewright/nodewright/kubeapi/mirror"
	kubenode "github.com/nodewright/nodewright/kubeapi/node"
	"github.com/nodewright/nodewright/kubeapi/podsource"
	"github.com/nodewright/nodewright/kubeapi/statussink"
	"github.com/nodewright/nodewright/kubeapi/tokenrequest"
	"github.com/nodewright/nodewright/kubeapi/trustbundles"
	"github.com/nodewright/nodewright/node/status"
	"github.com/nodewright/nodewright/node/status/cristatus"
)

// cluster is what makes the agent a node of one.
type cluster struct {
	name      string
	client    *apiclient.Client
	heartbeat *apiclient.Client // of the Node and its lease
	pods      *podsource.Source
	events    *events.Recorder
	catalog   *catalog.Catalog
	bundles   *trustbundles.Bundles
	status    *status.Manager
	node      *kubenode.Manager
	lease     *kubenode.Lease
	// own and serving keep certificates; nil if somebody else does.
	own, serving *credentials.Manager

	agent *agent.Agent // set by attach, before anything runs

	unbounded func() (*apiclient.Client, error) // one more client, whose calls are not counted
}

// statusBackoff is the longest pause between two tries to publish a status in
// a cluster: what was not taken arrives soon after the API server's return.
const statusBackoff = 10 * time.Second

// join makes the parts, and plugs into cfg those that the agent uses. It calls
// nobody: a node starts without its cluster.
func join(f *runFlags, c *kubeletconfig.KubeletConfiguration, cfg *agent.Config, runtime *cri.Client, log *zap.Logger, reg prometheus.Registerer) (*cluster, error) {
	cl := &cluster{name: cfg.Node.Name}
	met, err := metrics.New(reg)
	if err != nil {
		return nil, err
	}
	heartbeat, err := cl.clients(f, c, met, log, reg)
	if err != nil {
		return nil, err
	}
	memory, err := cl.memory(f.rootDir, log)
	if err != nil {
		return nil, err
	}
	once := cl.client.Once()
	if cl.pods, err = podsource.New(podsource.Config{
		Client: cl.client, NodeName: cl.name, Memory: memory("pods"), SecretKeyFile: f.secretKeyFile, Log: log.Named("podsource"),
	}); err != nil {
		return nil, err
	}
	sink, err := statussink.New(statussink.Config{Client: once, Pods: cl.pods})
	if err != nil {
		return nil, err
	}
	if cl.events, err = events.New(events.Config{
		Client: once, NodeName: cl.name, QPS: float64(*c.EventRecordQPS), Burst: int(c.EventBurst), Log: log.Named("events"),
	}); err != nil {
		return nil, err
	}
	if err := met.Add(metrics.Events(cl.events.Counts), metrics.Statuses(sink.Counts)); err != nil {
		return nil, err
	}
	if cl.catalog, err = catalog.New(catalog.Config{Client: cl.client, Memory: memory("catalog"), Log: log.Named("catalog")}); err != nil {
		return nil, err
	}
	if cl.bundles, err = trustbundles.New(trustbundles.Config{Client: cl.client, Memory: memory("bundles"), Log: log.Named("trustbundles")}); err != nil {
		return nil, err
	}
	mirrors, err := mirror.New(mirror.Config{Client: cl.client, NodeName: cl.name, Node: func() (types.UID, bool) {
		n, _ := cl.node.Node()
		if n == nil || n.DeletionTimestamp != nil {
			return "", false
		}
		return n.UID, n.UID != ""
	}})
	if err != nil {
		return nil, err
	}
	requester, err := tokenrequest.New(cl.client)
	if err != nil {
		return nil, err
	}
	keeper, err := tokenrequest.NewKeeper(tokenrequest.KeeperConfig{
		Requester: requester, Memory: memory("tokens"), SecretKeyFile: f.secretKeyFile, Log: log.Named("tokens"),
	})
	if err != nil {
		return nil, err
	}
	if err := cl.becomeNode(f, c, cfg, runtime, heartbeat, memory("node"), log, reg); err != nil {
		return nil, err
	}
	cfg.Sources = append(cfg.Sources, cl.pods)
	cfg.Sink, cfg.MaxPublishBackoff = sink, statusBackoff
	cfg.Events, cfg.Bundles = cl.events, cl.bundles
	cfg.Mirrors, cfg.Services, cfg.RuntimeClasses, cfg.Tokens = mirrors, cl.catalog.Services, cl.catalog.Handler, keeper
	cfg.NodeLabels, cfg.NodeResources = cl.labels, cl.resources
	cfg.Runtime = watchedRuntime{cfg.Runtime, cl.status.RuntimeChanged}
	cfg.Images = watchedImages{cfg.Images, cl.status.ImagesChanged}
	if cfg.Eviction != nil {
		cfg.Eviction.Changed = cl.status.Changed
	}
	if cfg.Shutdown != nil {
		cfg.Shutdown.Changed = func(bool) { cl.status.Changed() }
	}
	return cl, nil
}

// memory makes the stores of what outlasts a restart without a network.
func (cl *cluster) memory(root string, log *zap.Logger) (func(name string) *checkpoint.Store, error) {
	stores := map[string]*checkpoint.Store{}
	for _, name := range []string{"pods", "catalog", "bundles", "tokens", "node"} {
		s, err := openStore(filepath.Join(root, "cluster", name), log)
		if err != nil {
			return nil, err
		}
		stores[name] = s
	}
	return func(name string) *checkpoint.Store { return stores[name] }, nil
}

// heartbeats makes a client of its own for the Node and its lease.
type heartbeats func(lease time.Duration) (*apiclient.Client, error)

// clients makes the API client, with a certificate that is kept fresh if that
// is asked for, and returns how the heartbeat's is made.
func (cl *cluster) clients(f *runFlags, c *kubeletconfig.KubeletConfiguration, met *metrics.Metrics, log *zap.Logger, reg prometheus.Registerer) (heartbeats, error) {
	store := &credentials.Store{Dir: f.certDir, Prefix: "kubelet-client"}
	user, bootstrap, err := credentials.Load(credentials.Files{
		Kubeconfig: f.kubeconfig, Bootstrap: f.bootstrapKubeconfig, Current: store.CurrentPath(),
	}, time.Now())
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig=%q: %w", f.kubeconfig, err)
	}
	user.QPS, user.Burst = float32(*c.KubeAPIQPS), int(c.KubeAPIBurst)
	anonymous, initial, err := credentials.Rotating(user)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig=%q: %w", f.kubeconfig, err)
	}
	rotates := bootstrap != nil || c.RotateCertificates && initial != nil
	var certificate func() (*tls.Certificate, error) // nil: that of the kubeconfig
	if rotates {
		user = anonymous
		certificate = func() (*tls.Certificate, error) { return cl.own.ClientCertificate() }
	}
	if cl.client, err = apiclient.New(apiclient.Config{REST: user, Certificate: certificate, Observer: met}); err != nil {
		return nil, err
	}
	cl.unbounded = func() (*apiclient.Client, error) {
		free := *user
		free.QPS = -1
		return apiclient.New(apiclient.Config{REST: &free, Certificate: certificate})
	}
	if rotates {
		cfg := credentials.Config{
			Store: store, API: cl.client, Initial: initial,
			Template:         func() *x509.CertificateRequest { return credentials.ClientTemplate(cl.name) },
			CloseConnections: cl.closeConnections, Log: log.Named("credentials"), Metrics: reg,
		}
		if bootstrap != nil {
			if cfg.Bootstrap, err = apiclient.New(apiclient.Config{REST: bootstrap, Observer: met}); err != nil {
				return nil, err
			}
		}
		if cl.own, err = credentials.New(cfg); err != nil {
			return nil, err
		}
	}
	if c.ServerTLSBootstrap {
		cl.serving, err = credentials.New(credentials.Config{
			Purpose: credentials.Server, Store: &credentials.Store{Dir: f.certDir, Prefix: "kubelet-server"}, API: cl.client,
			Template: func() *x509.CertificateRequest {
				n, _ := cl.node.Node()
				if n == nil {
					return nil
				}
				return credentials.ServerTemplate(cl.name, n.Status.Addresses, true)
			},
			Log: log.Named("credentials"), Metrics: reg,
		})
	}
	return func(lease time.Duration) (*apiclient.Client, error) {
		return kubenode.Heartbeat(user, lease, func(a *apiclient.Config) { a.Certificate, a.Observer = certificate, met })
	}, err
}

// closeConnections ends those that were made with a certificate of before.
func (cl *cluster) closeConnections() {
	cl.client.CloseConnections()
	cl.heartbeat.CloseConnections()
}

// becomeNode makes what registers the Node and reports its status.
func (cl *cluster) becomeNode(f *runFlags, c *kubeletconfig.KubeletConfiguration, cfg *agent.Config, runtime *cri.Client, heartbeat heartbeats, store *checkpoint.Store, log *zap.Logger, reg prometheus.Registerer) error {
	ips, _, err := status.ParseNodeIPs(f.nodeIP)
	if err != nil {
		return fmt.Errorf("--node-ip=%q: %w", f.nodeIP, err)
	}
	source := cristatus.New(runtime)
	if cl.status, err = status.New(status.Config{
		Hostname: cl.name, NodeIPs: ips, MaxPods: int64(c.MaxPods), PodsPerCore: int64(c.PodsPerCore), LocalStorage: true,
		Reserved: divided(c, cfg.Node.Capacity).Reserved(), Version: kubernetesVersion, Port: c.Port, MaxImages: int(*c.NodeStatusMaxImages),
		Machine: status.System{Files: os.DirFS("/")}, Runtime: source, Images: source, Pressures: cl,
		Devices: cl.devices, Declared: declared(c),
		Volumes:  func() ([]v1.UniqueVolumeName, bool) { return cl.agent.VolumesInUse() },
		Shutdown: func() error { return cl.agent.ShuttingDown() },
		Checks:   []status.Check{{Name: "PLEG", Err: func() error { return cl.agent.Healthy() }}},
		Log:      log.Named("nodestatus"),
	}); err != nil {
		return err
	}
	update, lease := c.NodeStatusUpdateFrequency.Duration, time.Duration(c.NodeLeaseDurationSeconds)*time.Second
	if cl.heartbeat, err = heartbeat(lease); err != nil {
		return err
	}
	labels, _ := f.labels() // checked with the flags
	if cl.node, err = kubenode.New(kubenode.Config{
		Name: cl.name, API: cl.heartbeat, Status: cl.status, Register: f.registerNode, Labels: labels, Taints: c.RegisterWithTaints,
		ProviderID: c.ProviderID, Update: update, Report: c.NodeStatusReportFrequency.Duration, Store: store,
		Changed: func(*v1.Node) {
			if cl.serving != nil {
				cl.serving.TemplateChanged()
			}
		},
		FreshDevices: func() bool { return cl.agent.FreshDevices() },
		Event:        func(e status.Event) { cl.events.NodeEvent(e.Type, e.Reason, e.Message) },
		Log:          log.Named("node"), Metrics: reg,
	}); err != nil {
		return err
	}
	cl.lease, err = kubenode.NewLease(kubenode.LeaseConfig{
		Name: cl.name, API: cl.heartbeat, Duration: lease, Owner: cl.node.UID, Log: log.Named("lease"),
	})
	return err
}

// kubernetesVersion is the release of Kubernetes that this agent behaves as:
// what a node of its k8s.io modules would say.
const kubernetesVersion = "v1.36.0"

// attach gives the parts the agent that they tell of. It comes before run.
func (cl *cluster) attach(a *agent.Agent) { cl.agent = a }

// run keeps the node in its cluster until ctx ends. The lease is kept until
// then, and no certificate is waited for.
func (cl *cluster) run(ctx context.Context, log *zap.Logger) error {
	if err := cl.node.Restore(); err != nil {
		log.Warn("what is known of the node is read from the API server alone", zap.Error(err))
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, m := range []*credentials.Manager{cl.own, cl.serving} {
		if m != nil {
			g.Go(func() error { return m.Run(ctx) })
		}
	}
	for _, run := range []func(context.Context) error{cl.events.Run, cl.catalog.Run, cl.bundles.Run, cl.status.Run, cl.node.Run, cl.lease.Run} {
		g.Go(func() error { return run(ctx) })
	}
	return g.Wait()
}

// labels are those that the Node has now.
func (cl *cluster) labels() map[string]string {
	if n, _ := cl.node.Node(); n != nil {
		return n.Labels
	}
	return nil
}

// UnderPressure implements status.Pressures.
func (cl *cluster) UnderPressure(kind v1.NodeConditionType) bool {
	for _, c := range cl.agent.Pressure() {
		if c.Type == kind {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

// devices are those of plugins.
func (cl *cluster) devices() status.Devices {
	capacity, allocatable := cl.agent.Resources()
	return status.Devices{Capacity: capacity, Allocatable: allocatable}
}
