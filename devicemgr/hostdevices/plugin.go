//go:build linux

package hostdevices

import (
	"context"
	"fmt"
	"slices"

	"github.com/nodewright/nodewright/devicemgr"
)

// plugin implements devicemgr.Plugin for one resource.
type plugin struct {
	of       *Provider
	resource string
}

// Options has PreStart, which looks whether the devices are there.
func (p *plugin) Options(context.Context) (devicemgr.Options, error) {
	return devicemgr.Options{PreStart: true}, nil
}

// Watch lists the devices after each scan; the manager ignores equal lists.
func (p *plugin) Watch(ctx context.Context, list func([]devicemgr.Device)) error {
	for {
		devices, ok, news := p.of.list(p.resource)
		if ok {
			list(devices)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-news:
		}
	}
}

// Allocate returns the device nodes or CDI names of devices.
func (p *plugin) Allocate(ctx context.Context, ids []string) (devicemgr.Attachment, error) {
	devices, err := p.find(ctx, ids)
	var a devicemgr.Attachment
	for _, d := range devices {
		a.Nodes = append(a.Nodes, d.attach.Nodes...)
		a.CDI = append(a.CDI, d.attach.CDI...)
	}
	return a, err
}

// PreStart returns an error if a device is missing: its node may be that of another device by the
// time it is there again.
func (p *plugin) PreStart(ctx context.Context, ids []string) error {
	_, err := p.find(ctx, ids)
	return err
}

// find reads the machine and returns devices, all of which are there. Its errors are ErrAway, so that
// a pod is not rejected because a device was unplugged while the pod was admitted.
func (p *plugin) find(ctx context.Context, ids []string) ([]*device, error) {
	if err := p.of.refresh(ctx); err != nil {
		return nil, awayError{err}
	}
	p.of.mu.Lock()
	all := p.of.last.devices[p.resource]
	p.of.mu.Unlock()
	var out []*device
	for _, id := range slices.Sorted(slices.Values(ids)) {
		d := all[id]
		if d == nil || !d.present {
			return nil, awayError{fmt.Errorf("device %q of %s is missing", id, p.resource)}
		}
		out = append(out, d)
	}
	return out, nil
}

// awayError is an ErrAway with a text of its own.
type awayError struct{ error }

func (awayError) Is(target error) bool { return target == devicemgr.ErrAway }
func (e awayError) Unwrap() error      { return e.error }

// Prefer is not called.
func (*plugin) Prefer(context.Context, []string, []string, int) ([]string, error) { return nil, nil }

// Close has nothing to release.
func (*plugin) Close() error { return nil }
