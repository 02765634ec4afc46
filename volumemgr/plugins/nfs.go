package plugins

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/mount"
)

// nfsDeadline includes two attempts to unmount, of a minute each.
const nfsDeadline = 3 * time.Minute

// nfsConfig configures an nfsPlugin. Mounter is required.
type nfsConfig struct{ Mounter mount.Mounter }

// nfsPlugin mounts volumes from NFS servers, with the mount program and its helper.
//
//	p, err := newNFS(nfsConfig{Mounter: &mount.Kernel{}})
//	if err != nil {
//		return err
//	}
//	// p is a volumemgr.Plugin
//
// # Faults
//
// A server that does not answer blocks only the operation of its own volume, up to the deadline.
// A failed mount is unmounted again. An unmount that fails is forced, and finally the mount is
// detached.
type nfsPlugin struct{ cfg nfsConfig }

// newNFS validates cfg and returns the plugin.
func newNFS(cfg nfsConfig) (*nfsPlugin, error) {
	if cfg.Mounter == nil {
		return nil, errors.New("nfs: NFSConfig.Mounter is required")
	}
	return &nfsPlugin{cfg: cfg}, nil
}

// Name returns "kubernetes.io/nfs".
func (*nfsPlugin) Name() string { return "kubernetes.io/nfs" }

func nfsSource(spec *volumemgr.Spec) *v1.NFSVolumeSource {
	if spec.Volume != nil {
		return spec.Volume.NFS
	}
	return spec.PersistentVolume.Spec.NFS
}

// Supports reports whether spec is an NFS volume.
func (*nfsPlugin) Supports(spec *volumemgr.Spec) bool { return nfsSource(spec) != nil }

// Deadline returns three minutes.
func (*nfsPlugin) Deadline(*volumemgr.Spec) time.Duration { return nfsDeadline }

// request returns the NFS file system to mount. It returns an error if the volume's source is
// invalid.
func request(spec *volumemgr.Spec, target string) (f mount.FileSystem, readOnly bool, err error) {
	n := nfsSource(spec)
	switch {
	case n.Server == "" || strings.ContainsAny(n.Server, "/ \x00"):
		return f, false, fmt.Errorf("nfs.server %q, want a host name or an address", n.Server)
	case !path.IsAbs(n.Path) || strings.ContainsRune(n.Path, 0):
		return f, false, fmt.Errorf("nfs.path %q, want an absolute path", n.Path)
	}
	server := n.Server
	if a, err := netip.ParseAddr(server); err == nil && a.Is6() {
		server = "[" + server + "]"
	}
	var options []string
	readOnly = n.ReadOnly
	if pv := spec.PersistentVolume; pv != nil {
		readOnly = spec.ReadOnly
		options = mount.OptionsOf(pv.Annotations, pv.Spec.MountOptions)
	}
	if readOnly {
		options = append(options, "ro")
	}
	return mount.FileSystem{Type: "nfs", Source: server + ":" + n.Path, Target: target, Options: mount.Join(options), Helper: true}, readOnly, nil
}

// SetUp mounts the volume, unless it is mounted.
func (p *nfsPlugin) SetUp(ctx context.Context, v *volumemgr.Volume) (volumemgr.Result, error) {
	f, readOnly, err := request(v.Spec, v.Path)
	if err != nil {
		return volumemgr.Result{}, err
	}
	result := volumemgr.Result{Path: v.Path, ReadOnly: readOnly}
	found, err := mount.Find(ctx, p.cfg.Mounter, v.Path)
	if err != nil || len(found) > 0 {
		return result, err
	}
	if err := os.MkdirAll(v.Path, 0o750); err != nil {
		return volumemgr.Result{}, err
	}
	if err := p.cfg.Mounter.Mount(ctx, f); err != nil {
		if cerr := mount.Clean(ctx, p.cfg.Mounter, v.Path, mount.Network); cerr != nil {
			err = errors.Join(err, cerr, volumemgr.ErrUncertain)
		}
		return volumemgr.Result{}, err
	}
	return result, nil
}

// TearDown unmounts the volume.
func (p *nfsPlugin) TearDown(ctx context.Context, v *volumemgr.Volume) error {
	return mount.Clean(ctx, p.cfg.Mounter, v.Path, mount.Network)
}
