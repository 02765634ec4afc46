package hollow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/resources"
	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/nodeagent"
	"github.com/nodewright/nodewright/numa"
)

// offers holds the devices of a node. No plugin process serves them.
type offers struct {
	devices map[string]int
	nodes   int
	machine numa.Machine
	manager *devicemgr.Manager
}

func newDevices(cfg Config) *offers {
	return &offers{devices: cfg.Devices, nodes: cfg.NUMANodes, machine: cfg.hardware().NUMA}
}

// part makes the part that gives devices to pods.
func (o *offers) part(b *nodeagent.Builder) (part.Part, error) {
	m, err := devicemgr.New(devicemgr.Config{Store: b.Store("devices", "devicemgr"), Machine: o.machine, Log: b.Log.Named("devicemgr"), Metrics: b.Metrics})
	if err != nil {
		return nil, err
	}
	p, err := resources.NewDevices(resources.DevicesConfig{Manager: m, Log: b.Log.Named("devices")})
	if err != nil {
		return nil, err
	}
	o.manager = m
	b.Facts.Devices.Give(m)
	b.Facts.FreshDevices = p.FreshDevices
	return p, nil
}

// serve is the service that offers the devices, once the agent knows the devices of
// its pods.
func (o *offers) serve(n *nodeagent.Node) (name string, run func(context.Context) error, err error) {
	return "hollow devices", func(ctx context.Context) error {
		select {
		case <-n.Ready():
		case <-ctx.Done():
			return nil
		}
		var errs []error
		for _, name := range slices.Sorted(maps.Keys(o.devices)) {
			errs = append(errs, o.offer(ctx, name))
		}
		return errors.Join(errs...)
	}, nil
}

// offer offers the devices of a resource as soon as the manager runs, at about the time when the
// agent becomes ready.
func (o *offers) offer(ctx context.Context, name string) error {
	pause := retry.Backoff{First: 10 * time.Millisecond, Max: time.Second}
	for {
		err := o.manager.Offer(ctx, name, plugin{o.list(o.devices[name])})
		if !errors.Is(err, devicemgr.ErrNotRunning) || ctx.Err() != nil {
			return err
		}
		pause.Wait(ctx)
	}
}

// list returns the devices of a resource, spread evenly over the NUMA nodes.
func (o *offers) list(count int) []devicemgr.Device {
	out := make([]devicemgr.Device, count)
	for i := range out {
		out[i] = devicemgr.Device{ID: fmt.Sprintf("device-%d", i), Healthy: true, Nodes: numa.Nodes(i % o.nodes)}
	}
	return out
}

// plugin serves devices that need no preparation.
type plugin struct{ devices []devicemgr.Device }

// Options implements devicemgr.Plugin.
func (plugin) Options(context.Context) (devicemgr.Options, error) { return devicemgr.Options{}, nil }

// Watch implements devicemgr.Plugin.
func (p plugin) Watch(ctx context.Context, list func([]devicemgr.Device)) error {
	list(p.devices)
	<-ctx.Done()
	return nil
}

// Prefer implements devicemgr.Plugin.
func (plugin) Prefer(_ context.Context, available, _ []string, size int) ([]string, error) {
	return available[:min(size, len(available))], nil
}

// Allocate implements devicemgr.Plugin.
func (plugin) Allocate(context.Context, []string) (devicemgr.Attachment, error) {
	return devicemgr.Attachment{}, nil
}

// PreStart implements devicemgr.Plugin.
func (plugin) PreStart(context.Context, []string) error { return nil }

// Close implements devicemgr.Plugin.
func (plugin) Close() error { return nil }
