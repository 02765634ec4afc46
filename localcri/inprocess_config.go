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

// defaultRootDir is the runtime's directory on a node with the kubelet's default root directory.
const defaultRootDir = "/var/lib/kubelet/localcri"

// InProcessConfig configures an in-process runtime. Every field has a default for its zero value.
type InProcessConfig struct {
	// RootDir is the absolute path of the directory for everything that outlasts a reboot. It is
	// created if it does not exist. The default is /var/lib/kubelet/localcri.
	RootDir string
	// StreamsSocket is the absolute path of the unix socket for streams, to which clients connect. The
	// default is in a directory below /run.
	StreamsSocket string
	// Monitor is [Config].Monitor. If it is "", the program that this package contains is used.
	Monitor string
	// Handlers are the OCI runtimes by handler name. If it is empty, runc and crun are looked for
	// in the PATH, and runc is the default handler.
	Handlers map[string]Handler
	// CgroupDriver is "cgroupfs" (the default) or "systemd".
	CgroupDriver string
	// Network is NetworkCNI, NetworkBridge or NetworkNone. If it is "", the runtime chooses the
	// network as the package's documentation says.
	Network string
	// Cluster means that the node belongs to a cluster, so that its pods must be reachable
	// from other nodes; this needs CNI.
	Cluster bool
	// Bridge configures NetworkBridge. This package sets its StateDir and names. Its
	// Reserved also applies to CNI.
	Bridge bridge.Config
	// CNI configures NetworkCNI, for example where configurations and plugins are. This
	// package sets its CacheDir and Reserved.
	CNI cni.Config
	// PreloadDir is a directory with image archives that are imported at the start. If it is "",
	// no images are imported.
	PreloadDir string
	// Projects has the meaning of [Config].Projects.
	Projects bool
	// CDIDirs are the directories of CDI specifications. The default is /etc/cdi and
	// /var/run/cdi.
	CDIDirs []string
	// Hooks has the meaning of [Config].Hooks.
	Hooks Hooks
	// Registries says how to reach registries. A registry without an entry is reached by HTTPS,
	// without mirrors.
	Registries map[string]image.Registry
	// HostsDir is a directory with the same settings in files, in the format of containerd's
	// certs.d; see [image.Config]. If it is "", no such files are read.
	HostsDir string
	// Verify decides whether images may be used: see [image.Verifier]. If it is nil, every image may
	// be used.
	Verify image.Verifier
	// PullBytesPerSecond limits the downloads of image layers, all together. If it is 0, there is no
	// limit.
	PullBytesPerSecond int64
	// ImageReserve is [image.Config].ReserveOf: the bytes and inodes that pulls must leave free
	// on a file system with the given numbers of bytes and inodes. If it is nil, only the default
	// reserve applies.
	ImageReserve func(bytes, inodes int64) (int64, int64)

	Log     *zap.Logger           // if nil, nothing is logged
	Metrics prometheus.Registerer // if nil, metrics are not exported
}

func (c InProcessConfig) withDefaults() (InProcessConfig, error) {
	if c.RootDir == "" {
		c.RootDir = defaultRootDir
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	var errs []error
	for field, path := range map[string]string{"RootDir": c.RootDir, "StreamsSocket": c.StreamsSocket, "Monitor": c.Monitor, "PreloadDir": c.PreloadDir, "HostsDir": c.HostsDir} {
		if path != "" && !filepath.IsAbs(path) {
			errs = append(errs, fmt.Errorf("%s %q: want an absolute path", field, path))
		}
	}
	return c, errors.Join(errs...)
}

func (c *InProcessConfig) path(elem ...string) string {
	return filepath.Join(append([]string{c.RootDir}, elem...)...)
}
