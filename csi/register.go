package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"

	"github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/volumemgr"
)

// Registration: a driver is used only after it has answered what it can do. It is
// then in the map of drivers for as long as its socket is in the directory of
// plugins.

const (
	// maxSocketPath is the longest path of a unix socket (unix(7)).
	maxSocketPath = 107
	// maxDriverName is the longest name of a driver (CSI specification).
	maxDriverName = 63
	// greetTime is how long a driver that does not answer yet is asked at its
	// registration, before the plugin manager tries its socket again later.
	greetTime = 30 * time.Second
)

// driverName is the form of names of drivers (CSI specification, GetPluginInfo).
var driverName = regexp.MustCompile(`^[a-zA-Z0-9]([-a-zA-Z0-9.]*[a-zA-Z0-9])?$`)

// checkDriver returns what is wrong with the name of a driver. It becomes a part of
// paths, which is why names from records and pods are checked as well.
func checkDriver(name string) error {
	if len(name) > maxDriverName || !driverName.MatchString(name) {
		return fmt.Errorf("driver name is %.80q; want at most %d letters, digits, dashes and dots", name, maxDriverName)
	}
	return nil
}

// Registrar takes drivers that another finds: as package pluginmgr does, for the
// type CSIPlugin, with those in the directory it watches.
type Registrar struct{ m *Manager }

// Registrar returns the manager's. It has no state of its own.
func (m *Manager) Registrar() Registrar { return Registrar{m} }

// Validate reports whether a driver could be used. While one of its name is
// registered, only a higher version of the CSI specification takes its place: two
// endpoints of one version would take turns without end.
func (r Registrar) Validate(name, endpoint string, versions []string) error {
	_, err := r.validate(name, endpoint, versions)
	return err
}

// validate is Validate, and returns the version that will be spoken.
func (r Registrar) validate(name, endpoint string, versions []string) (version, error) {
	var errs []error
	if !filepath.IsAbs(endpoint) || len(endpoint) > maxSocketPath {
		errs = append(errs, fmt.Errorf("endpoint is %.256q; want an absolute path of at most %d bytes", endpoint, maxSocketPath))
	}
	v, err := newest(versions)
	errs = append(errs, checkDriver(name), err)
	if err := errors.Join(errs...); err != nil {
		return v, err
	}
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	if all := r.m.drivers[name]; all != nil {
		if old := all.list[len(all.list)-1]; v.compare(old.version) <= 0 {
			return v, fmt.Errorf("driver %s is registered with version %s at %s, and this one has %s; want a higher one", name, old.version, old.endpoint, v)
		}
	}
	return v, nil
}

// Register takes the driver behind a socket when it has said what it can do and what
// it calls this node. It blocks until then, at most for greetTime. The node's objects
// follow in the background.
func (r Registrar) Register(ctx context.Context, name, endpoint string, versions []string) error {
	v, err := r.validate(name, endpoint, versions)
	if err != nil {
		return err
	}
	info, err := os.Stat(endpoint)
	if err != nil {
		return fmt.Errorf("endpoint: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("endpoint %s is %s; want a socket", endpoint, info.Mode().Type())
	}
	c, err := dial(name, endpoint, r.m.cfg.Dial, r.m.met)
	if err != nil {
		return err
	}
	d := &driver{name: name, endpoint: endpoint, version: v, client: c}
	if err := r.m.greet(ctx, d); err != nil {
		return errors.Join(err, c.close())
	}
	// Another version may have registered while this one was asked.
	if err := r.m.take(d); err != nil {
		return errors.Join(err, c.close())
	}
	return nil
}

// greet asks a driver what is to be known of it before its first volume. One that
// cannot be reached is asked again for a while: it may just have begun. Every other
// error is final.
func (m *Manager) greet(ctx context.Context, d *driver) error {
	ctx, done := context.WithTimeout(ctx, greetTime)
	defer done()
	pause := retry.Backoff{First: 500 * time.Millisecond, Max: 5 * time.Second}
	for {
		err := m.ask(ctx, d)
		if err == nil || !is(err, codes.Unavailable) || !pause.Wait(ctx) {
			return err
		}
	}
}

// ask fills in d, which nobody else knows yet.
func (m *Manager) ask(ctx context.Context, d *driver) (err error) {
	if d.can, err = d.client.abilities(ctx); err != nil {
		return err
	}
	d.info, err = d.client.info(ctx)
	// Whether volumes are attached is said by the CSIDriver object there.
	if m.cfg.Cluster != nil {
		return err
	}
	if is(err, codes.Unimplemented) { // its name for the node is not needed without a cluster
		err = nil
	}
	if err == nil {
		d.attaches, err = d.client.attaches(ctx)
	}
	return err
}

// take makes d the driver that is used. It checks once more who else is there.
// Volumes that wait for the driver go on.
func (m *Manager) take(d *driver) error {
	m.mu.Lock()
	if m.flights.base.Err() != nil {
		m.mu.Unlock()
		return errEnded // Run has closed all connections already
	}
	all := m.drivers[d.name]
	if all == nil {
		all = &drivers{}
		m.drivers[d.name] = all
	} else if old := all.list[len(all.list)-1]; d.version.compare(old.version) <= 0 {
		m.mu.Unlock()
		return fmt.Errorf("driver %s is registered with version %s at %s, and this one has %s; want a higher one", d.name, old.version, old.endpoint, d.version)
	}
	all.list = append(all.list, d)
	delete(m.gone, d.name)
	m.mu.Unlock()
	if d.info.negative {
		m.log.Warn("driver's limit of volumes is negative and does not count", zap.String("driver", d.name))
	}
	m.log.Info("driver registered", zap.String("driver", d.name), zap.String("endpoint", d.endpoint),
		zap.Stringer("version", d.version), zap.String("nodeID", d.info.id))
	m.lookAtNode()
	m.cfg.Changed(volumemgr.Ref{Kind: kindDriver, Name: d.name})
	return nil
}

// Deregister ends the use of the driver at an endpoint. Calls that are under way
// are not cancelled. An older version that is still there takes its place.
func (r Registrar) Deregister(name, endpoint string) {
	m := r.m
	m.mu.Lock()
	all := m.drivers[name]
	if all == nil {
		m.mu.Unlock()
		return
	}
	at := slices.IndexFunc(all.list, func(d *driver) bool { return d.endpoint == endpoint })
	if at < 0 {
		m.mu.Unlock()
		return
	}
	// The driver is off the list before it is waited for: no new call gets it.
	d := all.list[at]
	all.list = slices.Delete(all.list, at, at+1)
	if len(all.list) == 0 {
		delete(m.drivers, name)
		m.gone[name] = true
	}
	m.mu.Unlock()
	m.log.Info("driver deregistered", zap.String("driver", name), zap.String("endpoint", endpoint))
	m.lookAtNode()
	// After the end of Run there are no calls to wait for.
	if !m.flights.enter() {
		_ = d.client.close()
		return
	}
	go func() {
		defer m.flights.leave()
		d.calls.Wait()
		_ = d.client.close()
	}()
}
