package devicetest

import (
	"context"
	"errors"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/devicemgr"
)

// Plugin is a device plugin. Its fields are set before it is offered.
type Plugin struct {
	calls

	// Does is what the plugin can do. With Prefer, Chooses is required.
	Does devicemgr.Options
	// Allocates and Starts may delay Allocate and PreStart, or return their errors.
	Allocates, Starts func(ctx context.Context) error
	// Chooses is Prefer.
	Chooses func(available []string) ([]string, error)
	// Lists has the devices to report. When it is closed, the plugin dies.
	Lists chan []devicemgr.Device
}

// NewPlugin returns a plugin with devices. In a test with virtual time it is made in the bubble.
func NewPlugin(list ...devicemgr.Device) *Plugin {
	p := &Plugin{Lists: make(chan []devicemgr.Device, 10)}
	p.Lists <- list
	return p
}

// Healthy returns healthy devices.
func Healthy(ids ...string) (list []devicemgr.Device) {
	for _, id := range ids {
		list = append(list, devicemgr.Device{ID: id, Healthy: true})
	}
	return list
}

// Options implements devicemgr.Plugin.
func (p *Plugin) Options(context.Context) (devicemgr.Options, error) { return p.Does, nil }

// Close implements devicemgr.Plugin.
func (p *Plugin) Close() error { return nil }

// Watch implements devicemgr.Plugin.
func (p *Plugin) Watch(ctx context.Context, list func([]devicemgr.Device)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case l, ok := <-p.Lists:
			if !ok {
				return errors.New("it died")
			}
			list(l)
		}
	}
}

// Prefer implements devicemgr.Plugin.
func (p *Plugin) Prefer(_ context.Context, available, _ []string, _ int) ([]string, error) {
	p.note("prefer")
	return p.Chooses(available)
}

// Allocate implements devicemgr.Plugin. A container gets one of everything, and the IDs of its
// devices in the variable DEVICES.
func (p *Plugin) Allocate(ctx context.Context, ids []string) (devicemgr.Attachment, error) {
	p.note("allocate " + strings.Join(ids, ","))
	if p.Allocates != nil {
		if err := p.Allocates(ctx); err != nil {
			return devicemgr.Attachment{}, err
		}
	}
	return devicemgr.Attachment{
		Env:         []v1.EnvVar{{Name: "DEVICES", Value: strings.Join(ids, ",")}},
		Mounts:      []devicemgr.Mount{{ContainerPath: "/lib/things", HostPath: "/opt/things", ReadOnly: true}},
		Nodes:       []devicemgr.DeviceNode{{ContainerPath: "/dev/thing", HostPath: "/dev/null", Permissions: "rw"}},
		Annotations: map[string]string{"example.com/from": "plugin"},
		CDI:         []string{"example.com/thing=" + ids[0]},
	}, nil
}

// PreStart implements devicemgr.Plugin.
func (p *Plugin) PreStart(ctx context.Context, ids []string) error {
	p.note("prestart " + strings.Join(ids, ","))
	if p.Starts != nil {
		return p.Starts(ctx)
	}
	return nil
}
