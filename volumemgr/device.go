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

// startDevice starts an operation on d if there is a slot for it. Without one, the
// device is queued and turn calls decideDevice again. m.mu is held.
func (m *Manager) startDevice(d *device, o op) {
	s := m.slots.Acquire(d)
	if s == nil {
		return
	}
	// Any of the volumes can be used: they have the same device.
	var arg *Volume
	var spec *Spec
	for v := range d.users {
		if v.desired && v.spec != nil {
			arg, spec = m.arg(v), v.spec
			// Remount and Found of the volume's own mount do not apply to the
			// device.
			arg.Remount, arg.Found = false, d.found
			break
		}
	}
	limit := deadline(d.plugin, spec)
	// A hung operation keeps the device's record: waiting callers get an error now,
	// and no other operation starts on it.
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
				// The affinity of a mounted device is not checked again: the node's
				// labels may have changed since, and pods use it.
				if !arg.Found {
					if err := m.reachable(spec); err != nil {
						return err
					}
				}
				return d.plugin.MountDevice(ctx, arg)
			}
			return d.plugin.UnmountDevice(ctx, d.id)
		})
		// Read before the timer of the context is stopped: r.end cancels ctx, after
		// which every failure would look like a missed deadline.
		ended := ctx.Err() != nil
		m.mu.Lock()
		defer m.mu.Unlock()
		r.end()
		d.run = nil
		m.met.operation(label(d.plugin, nil, d.id), o.metric(false), err, time.Since(r.started))
		m.deviceDone(d, r, err, ended)
		// The slot is freed before the volumes of this device are woken, so that
		// they can use it.
		m.slots.Release(s)
		m.wakeShared(d)
	}()
}

// deviceDone stores the result of an operation on a device. Called with m.mu held; the caller
// wakes the users.
func (m *Manager) deviceDone(d *device, r *running, err error, ended bool) {
	// A failed UnmountDevice may have undone a part: with uncertain the next user
	// mounts it again.
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
	// An operation that the manager stopped itself has not failed: it is neither an
	// event nor a reason for back-off.
	if m.ctx.Err() != nil || r.canceled {
		return
	}
	d.fails.add(r.op, err, time.Now())
	m.cfg.Log.Warn("operation on device failed", append(d.fields(),
		zap.String("operation", r.op.metric(false)), zap.Int("failures", d.fails.count), zap.Error(err))...)
	// Nothing waits for an UnmountDevice: Unmount returns once the volumes of the
	// pod are gone.
	if r.op != opMountDevice {
		return
	}
	// One event for each pod: the description of a pod shows only its own events.
	for v := range d.users {
		if v.desired && v.has != present {
			m.cfg.Events.Event(v.object, v1.EventTypeWarning, "FailedMount",
				fmt.Sprintf("MountVolume.MountDevice failed for volume %q : %v", v.key.name, err))
			v.settle(v.failure(&d.fails))
		}
	}
}

// settleUsers ends the waits for all volumes of d that are not mounted, with err.
// Called with m.mu held.
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
