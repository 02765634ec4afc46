package agent_test

import (
	"context"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	criapi "k8s.io/cri-api/pkg/apis"

	"github.com/nodewright/nodewright/agent/lifecycle"
	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/pressure"
	"github.com/nodewright/nodewright/agent/resources"
	"github.com/nodewright/nodewright/gc"
)

// has are those parts of one agent that tests ask.
type has struct {
	placement  *resources.Placement
	devices    *resources.Devices
	collection *pressure.Collection
	stats      *pressure.Stats
	eviction   *pressure.Eviction
	shutdown   *lifecycle.Shutdown
}

// must is for parts of tests, which can be made.
func must[P any](n *node) func(P, error) P {
	return func(p P, err error) P {
		n.t.Helper()
		if err != nil {
			n.t.Fatal(err)
		}
		return p
	}
}

// list makes all parts of this module for an agent, as far as the node has them.
func (n *node) list(rt criapi.RuntimeService, images criapi.ImageManagerService, h *has) []part.Part {
	n.t.Helper()
	root := filepath.Join(n.root, "root")
	store := func(name string) part.Store {
		if n.hung != nil {
			return n.hung
		}
		return part.OpenStore(filepath.Join(root, name), nil)
	}

	h.stats = must[*pressure.Stats](n)(pressure.NewStats(pressure.StatsConfig{
		NodeName: "n1", Runtime: rt, Images: images, RootDir: root, LogDir: filepath.Join(n.root, "logs"), PodsCgroup: pressure.NoCgroup, Metrics: n.metrics,
	}))
	collect := n.gc
	collect.Runtime, collect.Images, collect.Store, collect.Metrics = rt, images, store("imagegc"), n.metrics
	collect.PodLogsDir, collect.ContainerLogsDir = filepath.Join(n.root, "logs"), filepath.Join(n.root, "containers")
	collect.Logs.Poll = true // the kernel's word is not waited for in a bubble
	if collect.ImagePolicy == nil {
		collect.ImagePolicy = &gc.ImagePolicy{High: 100, Low: 99} // however full the disk of this machine is
	}
	h.collection = must[*pressure.Collection](n)(pressure.NewCollection(collect))
	out := []part.Part{h.stats, h.collection}
	if n.eviction != nil {
		c := *n.eviction
		if c.Stats == nil {
			c.Stats = h.stats.ForEviction()
		}
		if c.Reclaim == nil {
			c.Reclaim = h.collection.Reclaimer()
		}
		c.Hold, c.Metrics = func() bool { return h.ShuttingDown() != nil }, n.metrics
		h.eviction = must[*pressure.Eviction](n)(pressure.NewEviction(c))
		out = append(out, h.eviction)
	}
	if n.shutdown != nil {
		c := *n.shutdown
		c.Store, c.Metrics = store("shutdown"), n.metrics
		h.shutdown = must[*lifecycle.Shutdown](n)(lifecycle.NewShutdown(c))
		out = append(out, h.shutdown)
	}
	out = append(out, n.admitters...)
	if n.cluster != nil {
		out = append(out, must[*lifecycle.Mirrors](n)(lifecycle.NewMirrors(lifecycle.MirrorsConfig{API: n.cluster})))
	}
	out = append(out,
		must[*resources.UserNamespaces](n)(resources.NewUserNamespaces(resources.UserNamespacesConfig{Store: store("userns")})),
		must[*resources.Resize](n)(resources.NewResize(resources.ResizeConfig{Store: store("grants"), Metrics: n.metrics})))
	if m := n.devices.manager(n); m != nil {
		h.devices = must[*resources.Devices](n)(resources.NewDevices(resources.DevicesConfig{Manager: m}))
		out = append(out, h.devices)
	}
	h.placement = must[*resources.Placement](n)(resources.NewPlacement(resources.PlacementConfig{Fit: n.placement, Runtime: rt, Store: store("placement"), Metrics: n.metrics}))
	out = append(out, h.placement)
	if m, lookup := n.claims.manager(n); m != nil {
		out = append(out, must[*resources.Claims](n)(resources.NewClaims(resources.ClaimsConfig{Manager: m, Lookup: lookup})))
	}
	return append(out, n.parts...)
}

// What an agent answers by its parts.

func (h *has) Pressure() []v1.NodeCondition {
	if h.eviction == nil {
		return nil
	}
	return h.eviction.Pressure()
}

func (h *has) ShuttingDown() error {
	if h.shutdown == nil {
		return nil
	}
	return h.shutdown.ShuttingDown()
}

func (h *has) FreshDevices() bool { return h.devices != nil && h.devices.FreshDevices() }

func (h *has) Details() ([]pressure.PodDetail, error) { return h.stats.Details() }

func (h *has) ReclaimImages(ctx context.Context) error { return h.collection.Reclaimer().Images(ctx) }

func (h *has) ReclaimContainers(ctx context.Context) error {
	return h.collection.Reclaimer().Containers(ctx)
}

func (l *life) WhyNode() local.NodeWhy {
	why := local.NodeWhy{Name: "n1", Conditions: l.Pressure(), Events: l.NodeEvents(), ShuttingDown: l.ShuttingDown() != nil, Parts: l.Parts()}
	if l.eviction != nil {
		l.eviction.ExplainNode(&why)
	}
	return why
}
