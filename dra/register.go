package dra

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Registration of drivers at sockets, which package pluginmgr finds. DRA drivers register the
// short names of gRPC services as their versions; device plugins and CSI drivers register version
// numbers.

// services maps the supported versions of the DRA API, as drivers register them
// (DRAPluginService), to gRPC services. The messages of v1beta1 are those of v1 without the share
// ID.
var services = map[string]string{
	"v1.DRAPlugin":      "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
	"v1beta1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin",
}

// maxSocketPath is the longest path of a unix socket in bytes: sun_path has 108, including a
// final zero (unix(7)).
const maxSocketPath = 107

// service returns the gRPC service to call for a driver. As in the kubelet, it is the first
// supported version in the driver's list. The list is in the driver's order of preference.
func service(versions []string) (string, error) {
	for _, v := range versions {
		if s := services[v]; s != "" {
			return s, nil
		}
	}
	// Limited, since the driver's list may have any length, and the error is logged and returned
	// to the driver.
	const some = 8 // names in the error
	return "", fmt.Errorf("supported versions are %.64q; want v1.DRAPlugin or v1beta1.DRAPlugin among them", versions[:min(len(versions), some)])
}

// Registrar adds drivers that another package discovers, such as package pluginmgr with its type
// DRAPlugin.
type Registrar struct{ m *Manager }

// Registrar returns a Registrar for this manager. Before Run its Register returns
// [ErrNotRunning].
func (m *Manager) Registrar() Registrar { return Registrar{m} }

// Validate returns all reasons to reject a driver, or nil. It neither accesses the disk nor
// connects.
func (r Registrar) Validate(name, endpoint string, versions []string) error {
	var errs []error
	if !filepath.IsAbs(endpoint) || len(endpoint) > maxSocketPath {
		errs = append(errs, fmt.Errorf("endpoint is %.256q; want an absolute path of at most %d bytes", endpoint, maxSocketPath))
	}
	_, err := service(versions)
	return errors.Join(append(errs, checkDriver(name), err)...)
}

// Register adds the driver behind a socket, and connects in the background: it does not wait for
// the driver. Several instances of one driver can register at different sockets; the newest
// connected one is used.
func (r Registrar) Register(_ context.Context, name, endpoint string, versions []string) error {
	if err := r.Validate(name, endpoint, versions); err != nil {
		return err
	}
	info, err := os.Stat(endpoint)
	if err != nil {
		return fmt.Errorf("inspect endpoint: %w", err)
	}
	// With a file that is not a socket, pods would wait for the driver without a visible reason.
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("endpoint %s is %s; want a socket", endpoint, info.Mode().Type())
	}
	s, err := service(versions)
	if err != nil {
		return err
	}
	d, err := r.m.dial(name, endpoint, s)
	if err != nil {
		return err
	}
	return r.m.offer(name, endpoint, d)
}

// Deregister removes a driver. Running calls are completed. An unknown driver is
// ignored.
func (r Registrar) Deregister(name, endpoint string) { r.m.Withdraw(name, endpoint) }
