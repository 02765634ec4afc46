package localcri

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/nodewright/nodewright/localcri/image"
	"github.com/nodewright/nodewright/network/bridge"
	"github.com/nodewright/nodewright/network/cni"
)

// defaultRootDir is the directory of the runtime of a node with the kubelet's root
// directory.
const defaultRootDir = "/var/lib/kubelet/localcri"

// InProcessConfig defines how a runtime is made. The zero value of every field means the default
// named beside it.
type InProcessConfig struct {
	// RootDir is the absolute path of the directory of all that outlasts a reboot;
	// defaultRootDir. It is made if it is not there.
	RootDir string
	// Monitor is that of [Config]; the program that this package carries.
	Monitor string
	// Handlers are the OCI runtimes by their names; runc and crun as the PATH has
	// them, runc being the default.
	Handlers map[string]Handler
	// CgroupDriver is cgroupfs or systemd; cgroupfs.
	CgroupDriver string
	// Network is CNI, Bridge or None; see the package's documentation.
	Network string
	// Cluster says that the node is one of a cluster: its pods must be reached from
	// other nodes, which is the business of CNI.
	Cluster bool
	// Bridge is the network that Bridge has. StateDir and names are filled in. Its
	// Reserved holds for CNI as well.
	Bridge bridge.Config
	// CNI is where CNI finds its configurations and plugins. CacheDir and Reserved are filled in.
	CNI cni.Config
	// PreloadDir has archives of images, which are read at the start; none.
	PreloadDir string
	// CDIDirs are the directories of specifications of CDI devices; /etc/cdi and
	// /var/run/cdi.
	CDIDirs []string
	// Registries says how registries are reached; by HTTPS, without mirrors.
	Registries map[string]image.Registry
	// HostsDir has files that say the same, as containerd's certs.d: see [image.Config]; none.
	HostsDir string
	// ImageReserve is how much of the disk images leave free, beside the default: see
	// [image.Config]; nothing.
	ImageReserve func(bytes, inodes int64) (int64, int64)

	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported
}

func (c InProcessConfig) withDefaults() (InProcessConfig, error) {
	if c.RootDir == "" {
		c.RootDir = defaultRootDir
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	var errs []error
	for field, path := range map[string]string{"RootDir": c.RootDir, "Monitor": c.Monitor, "PreloadDir": c.PreloadDir, "HostsDir": c.HostsDir} {
		if path != "" && !filepath.IsAbs(path) {
			errs = append(errs, fmt.Errorf("%s %q: want an absolute path", field, path))
		}
	}
	return c, errors.Join(errs...)
}

func (c *InProcessConfig) path(elem ...string) string {
	return filepath.Join(append([]string{c.RootDir}, elem...)...)
}
