package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/kernel"
	"github.com/nodewright/nodewright/internal/seconds"
	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/node/status"
	"github.com/nodewright/nodewright/node/status/cristatus"
	"github.com/nodewright/nodewright/nodeagent"
	"github.com/nodewright/nodewright/podmeta"
)

// becomeNode creates the component that registers the Node and reports its status.
func (cl *cluster) becomeNode(b *nodeagent.Builder, heartbeat heartbeats) error {
	c, f, log := b.Config, b.Facts, b.Log
	asked := strings.Join(c.NodeIPs, ",")
	ips, _, err := status.ParseNodeIPs(asked)
	if err != nil {
		return fmt.Errorf("--node-ip=%q: %w", asked, err)
	}
	network, since := status.Network(status.Host{}), booted(context.Background(), kernel.This)
	if h := b.Hardware; h != nil {
		network, since = h, h.Booted
	}
	source := cristatus.New(client{b.Runtime, b.Images})
	if cl.status, err = status.New(status.Config{
		Hostname: cl.name, NodeIPs: ips, MaxPods: int64(c.MaxPods), PodsPerCore: int64(c.PodsPerCore),
		LocalStorage: *c.LocalStorageCapacityIsolation, External: c.ExternalProvider,
		Reserved: c.Node(b.Node.Capacity).Reserved(), Version: b.Version.GitVersion, Port: c.Port, MaxImages: int(*c.NodeStatusMaxImages),
		Machine: b.Describer(), Network: network, Runtime: source, Images: source, Pressures: pressures{f},
		Devices: func() status.Devices { return devices(f) }, Declared: declared(c),
		Volumes:  func() ([]v1.UniqueVolumeName, bool) { return f.VolumesInUse() },
		Shutdown: func() error { return f.ShuttingDown() },
		Checks:   []status.Check{{Name: "PLEG", Err: func() error { return f.Healthy() }}, {Name: "Storage", Err: func() error { return f.StorageReady() }}},
		Log:      log.Named("nodestatus"),
	}); err != nil {
		return err
	}
	update, lease := c.NodeStatusUpdateFrequency.Duration, seconds.Of(c.NodeLeaseDurationSeconds)
	if cl.heartbeat, err = heartbeat(lease); err != nil {
		return err
	}
	if cl.node, err = kubeapi.NewNodeManager(kubeapi.NodeConfig{
		Name: cl.name, API: cl.heartbeat, Status: cl.status, Register: *c.RegisterNode, Labels: c.NodeLabels, Taints: c.RegisterWithTaints,
		ProviderID: c.ProviderID, ExternalProvider: c.ExternalProvider, PodCIDR: podCIDR(b.Runtime), Update: update,
		Report: c.NodeStatusReportFrequency.Duration, Store: b.Store("cluster/node", "node"),
		ControllerAttach: c.EnableControllerAttachDetach == nil || *c.EnableControllerAttachDetach,
		Changed: func(*v1.Node) {
			cl.storage.NodeChanged()
			if cl.serving != nil {
				cl.serving.TemplateChanged()
			}
		},
		FreshDevices: func() bool { return f.FreshDevices() }, Booted: since,
		Event: func(e status.Event) { cl.events.NodeEvent(e.Type, e.Reason, e.Message) },
		Log:   log.Named("node"), Metrics: b.Metrics,
	}); err != nil {
		return err
	}
	cl.lease, err = kubeapi.NewLease(kubeapi.LeaseConfig{
		Name: cl.name, API: cl.heartbeat, Duration: lease, Owner: cl.node.UID, Log: log.Named("lease"),
	})
	return err
}

// client combines the runtime service and the image service of a runtime.
type client struct {
	criapi.RuntimeService
	criapi.ImageManagerService
}

// booted returns the time at which the machine was booted. It returns the zero time if that is
// not known.
func booted(ctx context.Context, machine *kernel.Reader) time.Time {
	if s, err := machine.Stat(ctx); err == nil && s.Boot > 0 {
		return time.Unix(s.Boot, 0)
	}
	return time.Time{}
}

// podCIDR passes the node's pod CIDRs to the runtime, which configures the network.
func podCIDR(rt criapi.RuntimeService) func(ctx context.Context, cidrs string) error {
	return func(ctx context.Context, cidrs string) error {
		return rt.UpdateRuntimeConfig(ctx, &runtimeapi.RuntimeConfig{NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: cidrs}})
	}
}

// labels returns the Node's current labels.
func (cl *cluster) labels() map[string]string {
	if n, _ := cl.node.Node(); n != nil {
		return n.Labels
	}
	return nil
}

// resources returns the Node's resources at the API server.
func (cl *cluster) resources() v1.ResourceList {
	if n, live := cl.node.Node(); n != nil && live {
		return n.Status.Allocatable
	}
	return nil
}

// taints returns the node's taints at the API server. It does not return stored taints, since a
// node that was away has some for that reason.
func (cl *cluster) taints() []v1.Taint {
	if n, live := cl.node.Node(); n != nil && live {
		return n.Spec.Taints
	}
	return nil
}

// pressures returns the pressure conditions of the node's parts.
type pressures struct{ *nodeagent.Facts }

// UnderPressure implements status.Pressures.
func (p pressures) UnderPressure(kind v1.NodeConditionType) bool {
	for _, c := range p.Pressure() {
		if c.Type == kind {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

// devices returns the devices of plugins.
func devices(f *nodeagent.Facts) status.Devices {
	capacity, allocatable := f.Resources()
	return status.Devices{Capacity: capacity, Allocatable: allocatable}
}

// declared returns the names of the features that the node declares to schedulers and the API
// server (KEP-5328), sorted. It returns nil if it declares none.
func declared(c *kubeletconfig.Config) []string {
	if !c.Declares("") {
		return nil
	}
	features := []string{}
	for _, f := range []string{
		podmeta.FeatureWebSocketsToTheServer, podmeta.FeatureResizePods, podmeta.FeatureResizeInitContainers, podmeta.FeatureRestartAllContainers,
	} {
		if c.Declares(f) && (f != podmeta.FeatureWebSocketsToTheServer || *c.EnableServer) {
			features = append(features, f)
		}
	}
	return features
}
