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

// The node's objects in a cluster: the CSINode, and the labels and the annotation of
// the Node. They follow the registered drivers; nothing else waits for them, as
// volumes can be made while an API server is away.

// Pauses between two tries to make the node's objects right.
const (
	// The kubelet gives up after four tries and deregisters the driver; here tries go
	// on, with longer and longer pauses.
	firstNodeRetry = 10 * time.Millisecond // the kubelet's
	lastNodeRetry  = time.Minute
)

// lookAtNode requests an update of the node's objects. It never blocks: several
// requests are one update.
func (m *Manager) lookAtNode() {
	select {
	case m.dirty <- struct{}{}:
	default:
	}
}

// wanted returns the drivers that the node's objects have to show, and those to
// remove. Other drivers are kept: they may register again after a restart of the
// agent.
func (m *Manager) wanted() (installed []plugins.CSINodeDriver, removed []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.drivers)) {
		l := m.drivers[name].list
		installed = append(installed, l[len(l)-1].info.driver(name))
	}
	return installed, slices.Sorted(maps.Keys(m.gone))
}

// keepNode updates the node's objects at the start, whenever a driver registers or
// deregisters, and again after each failure, until ctx ends. It writes all drivers
// each time, so that no change can be lost.
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
			// A driver that registers does not wait for the end of the pause.
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

// applied stores the result of an update. After the first success the node is
// ready, and InUse is called.
func (m *Manager) applied(removed []string, err error) {
	m.mu.Lock()
	before, was := m.shown, m.trouble
	m.trouble = err
	if err == nil {
		m.shown = true
		for _, name := range removed {
			// The driver may have registered again during the update.
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

// Ready returns why the node is not ready for CSI volumes: its CSINode is not known
// to exist, which the scheduler may require. Without a cluster it returns nil.
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

// minUpdate is the shortest time between two questions for a driver's limit (that
// of the API).
const minUpdate = 10 * time.Second

// keepLimits reads the volume limits of drivers again, as often as their CSIDriver
// objects demand. It checks the drivers at the shortest period that the API allows,
// so that a changed object needs no restart.
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

// updateLimits calls the drivers that are due. asked is owned by keepLimits, and
// has only drivers with an update period.
func (m *Manager) updateLimits(ctx context.Context, now time.Time, asked map[string]time.Time) {
	for _, d := range m.Drivers() {
		o, err := m.cfg.Cluster.Driver(ctx, d.Name)
		if err != nil || o.UpdatePeriod <= 0 {
			delete(asked, d.Name)
			continue
		}
		if last, ok := asked[d.Name]; !ok {
			asked[d.Name] = now // its limit was read when it registered
		} else if now.Sub(last) >= max(o.UpdatePeriod, minUpdate) {
			asked[d.Name] = now
			m.Refresh(d.Name)
		}
	}
}

// Refresh reads a driver's description of the node again, in the background, at
// most once at a time for a driver. It is also called when a volume could not be
// attached because the node is full: the scheduler needs the current limit. Unknown
// drivers are ignored, and failures are logged.
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

// refresh is the question itself. An answer that has not changed writes nothing.
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

// Why returns a line for people about why drivers are missing in the node's
// objects; "" if none is.
func (m *Manager) Why() string {
	err := m.Trouble()
	if err == nil {
		return ""
	}
	return "drivers are not shown on the node's objects: " + strings.ReplaceAll(err.Error(), "\n", "; ")
}
