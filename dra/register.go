package dra

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Registration through sockets, as package pluginmgr finds them. The names of
// versions are gRPC services in a short form, which is a peculiarity of DRA: device
// plugins and CSI drivers register plain version numbers.

// services are the versions of the DRA API that are spoken, by what drivers
// register them as (DRAPluginService), and the names of their gRPC services. A
// driver has the first one of its own list. The messages of v1beta1 are those of
// v1 without the share ID.
var services = map[string]string{
	"v1.DRAPlugin":      "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
	"v1beta1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin",
}

// maxSocketPath is the longest path of a unix socket in bytes: sun_path has 108, of
// which one is the final zero (unix(7)).
const maxSocketPath = 107

// service chooses the gRPC service of a driver: the first of its list that is known
// here, as the kubelet does. A driver thus says which one it prefers.
func service(versions []string) (string, error) {
	for _, v := range versions {
		if s := services[v]; s != "" {
			return s, nil
		}
	}
	// The list is the driver's and of any length, and the error ends up in logs and
	// in the answer to the driver.
	const some = 8 // that are named
	return "", fmt.Errorf("supported versions are %.64q; want v1.DRAPlugin or v1beta1.DRAPlugin among them", versions[:min(len(versions), some)])
}

// Registrar takes drivers that another finds: as package pluginmgr does, for the
// type DRAPlugin, with those in the directory it watches.
type Registrar struct{ m *Manager }

// Registrar returns the manager's. Before Run its Register returns [ErrNotRunning].
func (m *Manager) Registrar() Registrar { return Registrar{m} }

// Validate reports whether a driver could be used, with all that is wrong. It neither
// touches the disk nor connects.
func (r Registrar) Validate(name, endpoint string, versions []string) error {
	var errs []error
	if !filepath.IsAbs(endpoint) || len(endpoint) > maxSocketPath {
		errs = append(errs, fmt.Errorf("endpoint is %.256q; want an absolute path of at most %d bytes", endpoint, maxSocketPath))
	}
	_, err := service(versions)
	return errors.Join(append(errs, checkDriver(name), err)...)
}

// Register takes the driver behind a socket, and connects to it in the background: it
// does not wait for an answer of the driver. Several instances of one driver can be
// registered at different sockets: the newest that is connected is used.
func (r Registrar) Register(_ context.Context, name, endpoint string, versions []string) error {
	if err := r.Validate(name, endpoint, versions); err != nil {
		return err
	}
	info, err := os.Stat(endpoint)
	if err != nil {
		return fmt.Errorf("endpoint: %w", err)
	}
	// A file of another kind would never connect, and pods would wait for the driver
	// in vain without anybody being told why.
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

// Deregister ends the use of a driver. Calls that are under way are let finish. A
// driver that is not registered is no error.
func (r Registrar) Deregister(name, endpoint string) { r.m.Withdraw(name, endpoint) }
