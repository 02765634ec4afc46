package volumemgr

import (
	"fmt"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
)

// startDevice starts an operation on d if there is a slot for it.
func (m *Manager) startDevice(d *device, o op) {
	s := m.slots.Acquire(d)
	if s == nil {
		return
	}
	// Any of the volumes will do: they come from the same device.
	var arg *Volume
	var spec *Spec
	for v := range d.users {
		if v.desired && v.spec != nil {
			arg, spec = m.arg(v), v.spec
			arg.Remount, arg.Found = false, d.found
			break
		}
	}
	limit := deadline(d.plugin, spec)
	ctx, r := m.begin(o, limit, func() {
		if d.run != nil && d.run.overdue {
			m.cfg.Log.Warn("operation on device hangs", append(d.fields(), zap.String("operation", o.metric(false)))...)
			m.settleUsers(d, fmt.Errorf("%w: %s for %v", ErrHung, o.metric(false), limit+overdueAfter))
		}
	})
	d.run = r
	go func() {
		defer m.wg.Done()
		err := m.guard(func() error {
			if o == opMountDevice {
				if !arg.Found {
					if err := m.reachable(spec); err != nil {
						return err
					}
				}
				return d.plugin.MountDevice(ctx, arg)
			}
			return d.plugin.UnmountDevice(ctx, d.id)
		})
		ended := ctx.Err() != nil
		m.mu.Lock()
		defer m.mu.Unlock()
		r.end()
		d.run = nil
		m.met.operation(label(d.plugin, nil, d.id), o.metric(false), err, time.Since(r.started))
		m.deviceDone(d, r, err, ended)
		m.slots.Release(s)
		m.wakeShared(d)
	}()
}

// deviceDone notes how an operation on a device ended.
func (m *Manager) deviceDone(d *device, r *running, err error, ended bool) {
	if r.op == opMountDevice {
		d.has = after(d.has, classify(err, ended), d.found)
	} else if d.has = uncertain; err == nil {
		d.has = absent
	}
	if err == nil {
		d.found = false
		d.fails.clear()
		return
	}
	if m.ctx.Err() != nil || r.canceled {
		return
	}
	d.fails.add(r.op, err, time.Now())
	m.cfg.Log.Warn("operation on device failed", append(d.fields(),
		zap.String("operation", r.op.metric(false)), zap.Int("failures", d.fails.count), zap.Error(err))...)
	if r.op != opMountDevice {
		return
	}
	for v := range d.users {
		if v.desired && v.has != present {
			m.cfg.Events.Event(v.object, v1.EventTypeWarning, "FailedMount",
				fmt.Sprintf("MountVolume.MountDevice failed for volume %q : %v", v.key.name, err))
			v.settle(v.failure(&d.fails))
		}
	}
}

// settleUsers informs all who wait for volumes of d that they wait in vain.
func (m *Manager) settleUsers(d *device, err error) {
	for v := range d.users {
		if v.has != present {
			v.settle(err)
		}
	}
}

func (d *device) fields() []zap.Field {
	return []zap.Field{zap.String("plugin", d.plugin.Name()), zap.String("device", d.id.Name)}
}
