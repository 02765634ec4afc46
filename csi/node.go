package csi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/volumemgr/plugins"
)

// The objects of this node in a cluster: the CSINode, and labels and an annotation of the Node.
// They follow the registered drivers. Only Ready waits for them: volumes can be mounted while no
// API server is reachable.

// Pauses between two attempts to write the node's objects.
const (
	// The kubelet gives up after four attempts and deregisters the driver. Here attempts
	// continue, with increasing pauses.
	firstNodeRetry = 10 * time.Millisecond // the kubelet's
	lastNodeRetry  = time.Minute
)

// lookAtNode requests an update of the Node and CSINode objects of this node. It does not block.
// Several requests lead to one update.
func (m *Manager) lookAtNode() {
	m.dirty.Set()
}

// wanted returns the drivers that the node's objects have to list, and those to remove. Other
// drivers in the objects are kept: after a restart of the agent they may not have registered yet.
func (m *Manager) wanted() (installed []plugins.CSINodeDriver, removed []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.drivers)) {
		l := m.drivers[name].list
		installed = append(installed, l[len(l)-1].info.driver(name))
	}
	return installed, slices.Sorted(maps.Keys(m.gone))
}

// keepNode updates the node's objects at the start, whenever a driver registers or deregisters,
// and again after each failure, until ctx ends. Each update writes all drivers, so that no change
// can be lost.
func (m *Manager) keepNode(ctx context.Context) {
	if m.cfg.Cluster == nil {
		return
	}
	pause := retry.Backoff{First: firstNodeRetry, Max: lastNodeRetry, Factor: 5, Jitter: 0.1}
	for ctx.Err() == nil {
		installed, removed := m.wanted()
		err := m.cfg.Cluster.Apply(ctx, installed, removed)
		if ctx.Err() != nil {
			return
		}
		m.applied(removed, err)
		if err != nil {
			// A new registration ends the pause.
			t := time.NewTimer(pause.Next())
			select {
			case <-ctx.Done():
			case <-m.dirty:
			case <-t.C:
			}
			t.Stop()
			continue
		}
		pause.Reset()
		select {
		case <-ctx.Done():
		case <-m.dirty:
		}
	}
}

// applied records the result of an update. After the first success the node is ready, and InUse
// is called.
func (m *Manager) applied(removed []string, err error) {
	m.mu.Lock()
	before, was := m.shown, m.trouble
	m.trouble = err
	if err == nil {
		m.shown = true
		for _, name := range removed {
			// Unless the driver has registered again during the update.
			if m.drivers[name] == nil {
				delete(m.gone, name)
			}
		}
	}
	now := m.shown
	m.mu.Unlock()
	if err != nil && (was == nil || was.Error() != err.Error()) {
		m.log.Warn("failed to update drivers in the node's objects", zap.Error(err))
	}
	if now != before {
		m.cfg.InUse()
	}
}

// Ready returns an error while the node is not ready for CSI volumes: its CSINode may not exist
// yet, which the scheduler may require. Without a cluster it returns nil.
func (m *Manager) Ready() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cfg.Cluster == nil || m.shown {
		return nil
	}
	if m.trouble != nil {
		return fmt.Errorf("CSINode is not yet initialized: %w", m.trouble)
	}
	return errors.New("CSINode is not yet initialized")
}

// Trouble returns the error of the last update of the node's objects, or nil.
func (m *Manager) Trouble() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.trouble
}

// minUpdate is the shortest interval at which a driver's limit is read, as in the API.
const minUpdate = 10 * time.Second

// keepLimits reads the volume limit of each driver again, at the interval in the driver's CSIDriver
// object. It reads these objects every minUpdate, so that a changed interval takes effect without a
// restart.
func (m *Manager) keepLimits(ctx context.Context) {
	if m.cfg.Cluster == nil {
		return
	}
	tick := time.NewTicker(minUpdate)
	defer tick.Stop()
	asked := map[string]time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			m.updateLimits(ctx, now, asked)
		}
	}
}

// updateLimits reads the limits that are due. asked has the time of the last read, for drivers
// with an update interval; keepLimits owns it.
func (m *Manager) updateLimits(ctx context.Context, now time.Time, asked map[string]time.Time) {
	for _, d := range m.Drivers() {
		o, err := m.cfg.Cluster.Driver(ctx, d.Name)
		if err != nil || o.UpdatePeriod <= 0 {
			delete(asked, d.Name)
			continue
		}
		if last, ok := asked[d.Name]; !ok {
			asked[d.Name] = now // read when it registered
		} else if now.Sub(last) >= max(o.UpdatePeriod, minUpdate) {
			asked[d.Name] = now
			m.Refresh(d.Name)
		}
	}
}

// Refresh reads a driver's description of the node again, in the background, one read at a time
// for each driver. It is also called when a volume could not be attached because the node is
// full, since the scheduler needs the current limit. Unknown drivers are ignored, and failures
// are logged.
func (m *Manager) Refresh(name string) {
	d, release, err := m.hold(name)
	if err != nil {
		return
	}
	if !m.flights.enter() {
		release()
		return
	}
	go func() {
		defer m.flights.leave()
		defer release()
		_, err := m.asks.Do(m.flights.base, "info "+name, func() (struct{}, error) { return struct{}{}, m.refresh(m.flights.base, d) })
		if err != nil {
			m.log.Warn("failed to get driver's description of the node", zap.String("driver", name), zap.Error(err))
		}
	}()
}

// refresh calls the driver and stores its answer. An unchanged answer causes no update of the
// node's objects.
func (m *Manager) refresh(ctx context.Context, d *driver) error {
	info, err := d.client.info(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	same := d.info.limit == info.limit && d.info.id == info.id && maps.Equal(d.info.topology, info.topology)
	d.info = info
	m.mu.Unlock()
	if !same {
		m.lookAtNode()
	}
	return nil
}

// Why says for people, in one line, which drivers are missing in the node's objects and why. It
// returns "" if none is missing.
func (m *Manager) Why() string {
	err := m.Trouble()
	if err == nil {
		return ""
	}
	return "drivers are not shown on the node's objects: " + strings.ReplaceAll(err.Error(), "\n", "; ")
}
