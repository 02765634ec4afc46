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

// Registration of drivers. A driver is used only after it has returned its capabilities. It is
// listed as long as its socket is in the plugin directory.

const (
	// maxSocketPath is the longest path of a unix socket (unix(7)).
	maxSocketPath = 107
	// maxDriverName is the longest name of a driver (CSI specification).
	maxDriverName = 63
	// greetTime limits how long a registration retries a driver that does not answer. Later, the
	// plugin manager tries the socket again.
	greetTime = 30 * time.Second
)

// driverName matches valid names of drivers (CSI specification, GetPluginInfo).
var driverName = regexp.MustCompile(`^[a-zA-Z0-9]([-a-zA-Z0-9.]*[a-zA-Z0-9])?$`)

// checkDriver returns an error if the name of a driver is invalid. Names from records and pods
// are checked too, since they become parts of paths.
func checkDriver(name string) error {
	if len(name) > maxDriverName || !driverName.MatchString(name) {
		return fmt.Errorf("driver name is %.80q; want at most %d letters, digits, dashes and dots", name, maxDriverName)
	}
	return nil
}

// Registrar adds drivers that another package discovers, such as package pluginmgr with its type
// CSIPlugin.
type Registrar struct{ m *Manager }

// Registrar returns a Registrar for this manager. It has no state of its own.
func (m *Manager) Registrar() Registrar { return Registrar{m} }

// Validate returns an error if a driver would be rejected. A registered driver with the same name
// is replaced only by one with a higher version of the CSI specification: two endpoints with the
// same version would replace each other forever.
func (r Registrar) Validate(name, endpoint string, versions []string) error {
	_, err := r.validate(name, endpoint, versions)
	return err
}

// validate does the work of Validate, and returns the version of the CSI specification to use.
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
			return v, fmt.Errorf("driver %s is registered with version %s at %s; the new registration has version %s; want a higher one", name, old.version, old.endpoint, v)
		}
	}
	return v, nil
}

// Register adds the driver behind a socket, after it has returned its capabilities and its ID for
// this node. It blocks until then, at most for greetTime. The node's objects are updated in the
// background.
func (r Registrar) Register(ctx context.Context, name, endpoint string, versions []string) error {
	v, err := r.validate(name, endpoint, versions)
	if err != nil {
		return err
	}
	info, err := os.Stat(endpoint)
	if err != nil {
		return fmt.Errorf("inspect endpoint: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("endpoint %s is %s; want a socket", endpoint, info.Mode().Type())
	}
	c, err := dial(name, endpoint, r.m.cfg.Dial, r.m.met)
	if err != nil {
		return err
	}
	d := &driver{name: name, endpoint: endpoint, version: v, client: c}
	if err := r.m.readDriver(ctx, d); err != nil {
		return errors.Join(err, c.close())
	}
	// Another version may have registered meanwhile.
	if err := r.m.take(d); err != nil {
		return errors.Join(err, c.close())
	}
	return nil
}

// readDriver reads the driver's capabilities and node ID. A driver that cannot be reached may have
// just started, so readDriver retries for a while. Every other error is final.
func (m *Manager) readDriver(ctx context.Context, d *driver) error {
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

// ask reads the capabilities and the node ID of the driver d, and sets the fields of d. No other
// goroutine uses d yet.
func (m *Manager) ask(ctx context.Context, d *driver) (err error) {
	if d.can, err = d.client.abilities(ctx); err != nil {
		return err
	}
	d.info, err = d.client.info(ctx)
	// In a cluster, the CSIDriver object says whether volumes are attached.
	if m.cfg.Cluster != nil {
		return err
	}
	if is(err, codes.Unimplemented) { // without a cluster, the node ID is not needed
		err = nil
	}
	if err == nil {
		d.attaches, err = d.client.attaches(ctx)
	}
	return err
}

// take makes d the driver in use for its name, unless a newer one has registered meanwhile.
// Volumes that wait for the driver continue.
func (m *Manager) take(d *driver) error {
	m.mu.Lock()
	if m.flights.base.Err() != nil {
		m.mu.Unlock()
		return errEnded // Run has already closed all connections
	}
	all := m.drivers[d.name]
	if all == nil {
		all = &drivers{}
		m.drivers[d.name] = all
	} else if old := all.list[len(all.list)-1]; d.version.compare(old.version) <= 0 {
		m.mu.Unlock()
		return fmt.Errorf("driver %s is registered with version %s at %s; the new registration has version %s; want a higher one", d.name, old.version, old.endpoint, d.version)
	}
	all.list = append(all.list, d)
	delete(m.gone, d.name)
	m.mu.Unlock()
	if d.info.negative {
		m.log.Warn("ignored negative volume limit of driver", zap.String("driver", d.name))
	}
	m.log.Info("driver registered", zap.String("driver", d.name), zap.String("endpoint", d.endpoint),
		zap.Stringer("version", d.version), zap.String("nodeID", d.info.id))
	m.lookAtNode()
	m.cfg.Changed(volumemgr.Ref{Kind: kindDriver, Name: d.name})
	return nil
}

// Deregister removes the driver at an endpoint. Running calls are not cancelled. If an older
// version is still registered, it is used from then on.
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
	// The driver is removed from the list before the wait, so that no new call gets it.
	d := all.list[at]
	all.list = slices.Delete(all.list, at, at+1)
	if len(all.list) == 0 {
		delete(m.drivers, name)
		m.gone[name] = true
	}
	m.mu.Unlock()
	m.log.Info("driver deregistered", zap.String("driver", name), zap.String("endpoint", endpoint))
	m.lookAtNode()
	// After the end of Run, there are no calls to wait for.
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
