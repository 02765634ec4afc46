package volumemgr

import (
	"fmt"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
)

// Operations on devices, the mounts that several pods share (staging in CSI). They
// work like operations on volumes in operate.go; a failure applies to every volume
// that waits for the device.

// startDevice starts an operation on d if there is a free slot. Otherwise it queues the device,
// and turn calls decideDevice again. The caller holds m.mu.
func (m *Manager) startDevice(d *device, o op) {
	s := m.slots.Acquire(d)
	if s == nil {
		return
	}
	// Any of its volumes will do, since they all have the same device.
	var arg *Volume
	var spec *Spec
	for v := range d.users {
		if v.desired && v.spec != nil {
			arg, spec = m.arg(v), v.spec
			// Remount and Found describe the volume's own mount; the device has its own Found.
			arg.Remount, arg.Found = false, d.found
			break
		}
	}
	limit := deadline(d.plugin, spec)
	// A hung operation keeps the device's record: callers that wait get an error now, and no
	// other operation on the device starts.
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
				// The affinity of a device that an earlier process mounted is not checked again:
				// pods use it, and the node's labels may have changed since.
				if !arg.Found {
					if err := m.reachable(spec); err != nil {
						return err
					}
				}
				return d.plugin.MountDevice(ctx, arg)
			}
			return d.plugin.UnmountDevice(ctx, d.id)
		})
		// Read before r.end cancels ctx: afterwards every failure would look like a missed
		// deadline.
		ended := ctx.Err() != nil
		m.mu.Lock()
		defer m.mu.Unlock()
		r.end()
		d.run = nil
		m.met.operation(label(d.plugin, nil, d.id), o.metric(false), err, time.Since(r.started))
		m.deviceDone(d, r, err, ended)
		// The slot is freed before the volumes of this device are woken, so that they can use it.
		m.slots.Release(s)
		m.wakeShared(d)
	}()
}

// deviceDone stores the result of an operation on a device. m.mu is held. The caller has to call
// wakeShared afterwards.
func (m *Manager) deviceDone(d *device, r *running, err error, ended bool) {
	// A failed UnmountDevice may have unmounted a part. With uncertain, the next user mounts it
	// again.
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
	// An operation that the manager itself canceled has not failed: it causes neither an event
	// nor a back-off.
	if m.ctx.Err() != nil || r.canceled {
		return
	}
	d.fails.add(r.op, err, time.Now())
	m.cfg.Log.Warn("operation on device failed", append(d.fields(),
		zap.String("operation", r.op.metric(false)), zap.Int("failures", d.fails.count), zap.Error(err))...)
	// Unmount returns once the volumes of the pod are gone, so no caller waits for an
	// UnmountDevice.
	if r.op != opMountDevice {
		return
	}
	// Each pod gets its own event, since the description of a pod shows only events about it.
	for v := range d.users {
		if v.desired && v.has != present {
			m.cfg.Events.Event(v.object, v1.EventTypeWarning, "FailedMount",
				fmt.Sprintf("MountVolume.MountDevice failed for volume %q : %v", v.key.name, err))
			v.settle(v.failure(&d.fails))
		}
	}
}

// settleUsers ends the waits for all volumes of d that are not mounted, with err. The caller
// holds m.mu.
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
