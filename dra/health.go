package dra

import (
	"context"
	"errors"
	"slices"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// healthTimeout is how long a report without a timeout is valid (the kubelet's value).
	healthTimeout = 30 * time.Second
	// watchRetry is the pause before a driver's health is watched again (the
	// kubelet's value).
	watchRetry = 5 * time.Second
	// maxHealth limits the devices of one plugin whose health is kept.
	maxHealth = 1 << 16
	// maxDeviceName limits the bytes of the names of devices and pools. The API's limits are
	// smaller (63 and 253).
	maxDeviceName = 256
)

// deviceName identifies a device of a driver.
type deviceName struct{ pool, device string }

// health is the last report about a device, and its time. It is replaced, never modified.
type health struct {
	health  Health
	message string
	timeout time.Duration
	at      time.Time
}

// fresh reports whether the report is still valid. Exactly at its timeout the report is still
// valid.
func (h *health) fresh(now time.Time) bool { return now.Sub(h.at) <= h.timeout }

// watch receives the health of a driver's devices until ctx ends, or until the
// driver returns ErrNoHealth.
func (m *Manager) watch(ctx context.Context, p *plugin) {
	for ctx.Err() == nil {
		err := p.driver.Watch(ctx, func(list []DeviceHealth) { m.report(ctx, p, list) })
		m.mu.Lock()
		// The stream has ended, so the health of the devices is unknown.
		m.unknown(p)
		m.mu.Unlock()
		if errors.Is(err, ErrNoHealth) {
			return // a new version of the driver registers again
		}
		m.cfg.Log.Debug("health stream of driver ended", zap.String("driver", p.name), zap.Error(err))
		t := time.NewTimer(watchRetry)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
}

// report stores the health that a driver reported. Devices that are not in the report keep their
// health until it times out.
func (m *Manager) report(ctx context.Context, p *plugin, list []DeviceHealth) {
	m.mu.Lock()
	defer m.mu.Unlock()
	// The plugin was withdrawn, so that a late report must not restore what unknown has cleared.
	if ctx.Err() != nil {
		return
	}
	now := time.Now()
	changed := map[deviceName]bool{}
	for _, d := range list {
		// No allocated device can have such a name.
		if len(d.Pool) > maxDeviceName || len(d.Device) > maxDeviceName {
			continue
		}
		name := deviceName{d.Pool, d.Device}
		h := health{d.Health, shorten(d.Message), d.Timeout, now}
		if h.timeout <= 0 {
			h.timeout = healthTimeout
		}
		old := p.health[name]
		if old == nil && len(p.health) >= maxHealth {
			continue
		}
		if old == nil || old.health != h.health || old.message != h.message {
			changed[name] = true
		}
		p.health[name] = &h
	}
	m.age(p, now, changed)
	m.tell(p.name, changed)
}

// age removes reports that have timed out, adds their devices to changed, and sets a timer for
// the next timeout. There is one timer per plugin, for any number of devices. Manager.mu is held.
func (m *Manager) age(p *plugin, now time.Time, changed map[deviceName]bool) {
	var next time.Time
	for name, h := range p.health {
		if !h.fresh(now) {
			delete(p.health, name)
			changed[name] = true
		} else if end := h.at.Add(h.timeout); next.IsZero() || end.Before(next) {
			next = end
		}
	}
	if p.stale != nil {
		p.stale.Stop()
		p.stale = nil
	}
	if next.IsZero() {
		return
	}
	// One millisecond more, since a report is valid up to and including its timeout.
	p.stale = time.AfterFunc(next.Sub(now)+time.Millisecond, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		changed := map[deviceName]bool{}
		m.age(p, time.Now(), changed)
		m.tell(p.name, changed)
	})
}

// unknown removes the reports of a plugin, and notifies the pods. Manager.mu is held.
func (m *Manager) unknown(p *plugin) {
	if p.stale != nil {
		p.stale.Stop()
		p.stale = nil
	}
	changed := make(map[deviceName]bool, len(p.health))
	for name := range p.health {
		changed[name] = true
	}
	clear(p.health)
	m.tell(p.name, changed)
}

// tell notifies the subscribers of the pods that have one of the devices, since the statuses of
// these pods are out of date. Any instance of the driver may have prepared the device. Manager.mu
// is held.
func (m *Manager) tell(driver string, devices map[deviceName]bool) {
	if len(devices) == 0 {
		return
	}
	var pods []types.UID
	for _, c := range m.claims {
		p := c.parts[driver]
		if p == nil || !slices.ContainsFunc(p.devices, func(d Device) bool { return devices[deviceName{d.Pool, d.Name}] }) {
			continue
		}
		for uid := range c.pods {
			pods = append(pods, uid)
		}
	}
	if len(pods) > 0 {
		m.notify(Change{Pods: pods})
	}
}

// healthOf returns the health of a device, from the newest instance that reported it. As in the
// kubelet, the resource ID is the first CDI name, or driver/pool/device if there is none.
// Manager.mu is held.
func (m *Manager) healthOf(d HeldDevice, now time.Time) v1.ResourceHealth {
	out := v1.ResourceHealth{ResourceID: v1.ResourceID(d.Driver + "/" + d.Pool + "/" + d.Name), Health: v1.ResourceHealthStatusUnknown}
	if len(d.CDI) > 0 {
		out.ResourceID = v1.ResourceID(d.CDI[0])
	}
	if m.drivers[d.Driver] == nil {
		return out
	}
	for _, p := range slices.Backward(m.drivers[d.Driver].plugins) {
		h := p.health[deviceName{d.Pool, d.Name}]
		if h == nil || !h.fresh(now) {
			continue
		}
		switch h.health {
		case Healthy:
			out.Health = v1.ResourceHealthStatusHealthy
		case Unhealthy:
			out.Health = v1.ResourceHealthStatusUnhealthy
		}
		if h.message != "" {
			message := h.message
			out.Message = &message
		}
		break
	}
	return out
}

// shorten cuts a message to the API's limit in bytes, at a character boundary.
func shorten(s string) string {
	if len(s) <= v1.ResourceHealthMessageMaxLength {
		return s
	}
	end := v1.ResourceHealthMessageMaxLength - len("...")
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "..."
}
