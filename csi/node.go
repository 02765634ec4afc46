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

// lookAtNode has the node's objects looked at soon. It never blocks: one token stands
// for any number of changes.
func (m *Manager) lookAtNode() {
	select {
	case m.dirty <- struct{}{}:
	default:
	}
}

// wanted is what the node's objects are to show, and what they are to show no more.
// Drivers in neither list stay as they are: they may be about to register again after
// a restart of the agent.
func (m *Manager) wanted() (installed []plugins.CSINodeDriver, removed []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.drivers)) {
		l := m.drivers[name].list
		installed = append(installed, l[len(l)-1].info.driver(name))
	}
	return installed, slices.Sorted(maps.Keys(m.gone))
}

// keepNode makes the node's objects right: at the start, whenever a driver comes or
// goes, and again after each failure, until ctx ends. It applies all drivers each
// time, so that no change can be lost.
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
			// A driver that comes does not wait for the end of the pause.
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

// applied notes what came of a try. The first success makes the node ready, and InUse
// is called.
func (m *Manager) applied(removed []string, err error) {
	m.mu.Lock()
	before, was := m.shown, m.trouble
	m.trouble = err
	if err == nil {
		m.shown = true
		for _, name := range removed {
			// It may have come back while the objects were being written.
			if m.drivers[name] == nil {
				delete(m.gone, name)
			}
		}
	}
	now := m.shown
	m.mu.Unlock()
	if err != nil && (was == nil || was.Error() != err.Error()) {
		m.log.Warn("failed to show drivers on the node's objects", zap.Error(err))
	}
	if now != before {
		m.cfg.InUse()
	}
}

// Ready returns why the node is not ready for volumes of drivers: its CSINode is
// not known to be there, without which the scheduler may not place pods. A node that stands
// alone is ready.
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

// Trouble is why the node's objects do not show all drivers, or nil. It is that of
// the last try.
func (m *Manager) Trouble() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.trouble
}

// minUpdate is the shortest time between two questions for a driver's limit (that
// of the API).
const minUpdate = 10 * time.Second

// keepLimits asks drivers again how many volumes the node can have, as often as their
// CSIDriver objects want it. The drivers are gone through at the shortest period that
// the API allows, so that nothing has to be restarted when an object changes.
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

// updateLimits asks those drivers whose time has come. asked is keepLimits' own, and
// has only drivers that want it.
func (m *Manager) updateLimits(ctx context.Context, now time.Time, asked map[string]time.Time) {
	for _, d := range m.Drivers() {
		o, err := m.cfg.Cluster.Driver(ctx, d.Name)
		if err != nil || o.UpdatePeriod <= 0 {
			delete(asked, d.Name)
			continue
		}
		if last, ok := asked[d.Name]; !ok {
			asked[d.Name] = now // it was asked when it registered
		} else if now.Sub(last) >= max(o.UpdatePeriod, minUpdate) {
			asked[d.Name] = now
			m.Refresh(d.Name)
		}
	}
}

// Refresh asks a driver again, in the background, what it says of the node. At most
// one question to a driver is under way. It is also called when a volume could not be
// attached because the node is full: the scheduler needs the limit of now. An unknown
// driver and an answer that fails are ignored, but for a log line.
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
			m.log.Warn("failed to ask driver about the node", zap.String("driver", name), zap.Error(err))
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

// Why lists what keeps drivers from being shown, for people, in one line; "" if
// nothing does.
func (m *Manager) Why() string {
	err := m.Trouble()
	if err == nil {
		return ""
	}
	return "drivers are not shown on the node's objects: " + strings.ReplaceAll(err.Error(), "\n", "; ")
}
