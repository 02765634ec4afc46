package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/mount"
)

// Volumes as block devices: the driver publishes a device node for each pod. The volume manager
// creates a link to it, and the runtime passes it to the containers.

// podFile returns the path at which a pod's block device is published.
func (m *Manager) podFile(volume, pod string) string { return m.blockDir("publish", volume, pod) }

// MapDevice publishes the volume as a block device and returns the device's path. Like SetUp, it
// publishes a volume again that an earlier process left.
func (p Plugin) MapDevice(ctx context.Context, v *volumemgr.Volume) (string, error) {
	m := p.m
	src, err := sourceOf(v.Spec, v.Pod, v.UID)
	if err != nil {
		return "", err
	}
	object, err := m.object(ctx, src.driver)
	if err != nil {
		return "", err
	}
	target := m.podFile(v.Name, string(v.UID))
	if v.Remount && !object.RequiresRepublish {
		return m.blockAt(ctx, src.driver, target)
	}
	d, release, err := m.hold(src.driver)
	if err != nil {
		return "", transient(err)
	}
	defer release()
	req, _, err := m.publication(ctx, v, src, object, d, target)
	if err != nil {
		return "", err
	}
	if d.can.stage {
		req.StagingTargetPath = m.blockDir("staging", v.Name)
	}
	// MountDevice wrote the same record; this write restores it if it has been
	// lost.
	if err := m.write(m.blockDir(v.Name, dataName), record{Handle: src.handle, Driver: src.driver}); err != nil {
		return "", err
	}
	// Only the parent directory: the driver creates the file itself (CSI specification).
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return "", err
	}
	if err := m.call(ctx, d, src.handle, "NodePublishVolume", req, &spec.NodePublishVolumeResponse{}, req.Secrets); err != nil {
		// Only if this was the first publication, and the driver returned a final error, is it
		// certain that nothing is published.
		var answer *CallError
		if errors.As(err, &answer) && answer.Final() && !v.Found && !v.Remount {
			if rerr := m.removeTarget(context.WithoutCancel(ctx), target); rerr != nil {
				err = errors.Join(err, rerr, volumemgr.ErrUncertain)
			}
		}
		return "", err
	}
	path, err := m.blockAt(ctx, src.driver, target)
	if err == nil {
		m.here(v.UID, v.Spec, v.Name, true)
	}
	return path, err
}

// blockAt returns the device that a driver has published, with symbolic links resolved. It
// returns at the end of ctx at the latest. Anything but a block device is an ErrUncertain, since
// only the driver can remove it.
func (m *Manager) blockAt(ctx context.Context, driver, target string) (string, error) {
	path, err := m.devices.Do(ctx, target, func() (string, error) {
		path, err := filepath.EvalSymlinks(target)
		if err != nil {
			return "", err
		}
		info, err := os.Stat(path)
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeDevice == 0 || info.Mode()&fs.ModeCharDevice != 0 {
			return "", fmt.Errorf("%s is not a block device; its mode is %s", path, info.Mode())
		}
		return path, nil
	})
	if err != nil {
		return "", fmt.Errorf("driver %s reports the volume as published: %w: %w", driver, err, volumemgr.ErrUncertain)
	}
	return path, nil
}

// UnmapDevice unpublishes the device of the pod. The volume stays staged for other
// pods.
func (p Plugin) UnmapDevice(ctx context.Context, v *volumemgr.Volume) error {
	p.m.quiet(v)
	return p.m.unmap(ctx, v.Name, string(v.UID))
}

// unmap unpublishes the volume for a pod, and removes the pod's file.
func (m *Manager) unmap(ctx context.Context, volume, pod string) error {
	target := m.podFile(volume, pod)
	rec, err := readRecord(m.blockDir(volume, dataName))
	switch {
	case errors.Is(err, fs.ErrNotExist): // the driver was never called
	case errors.Is(err, ErrRecord):
		// The driver is no longer known, so the pod's mount is removed without it.
		if uerr := mount.Clean(ctx, m.cfg.Mounter, target, mount.Plain); uerr != nil {
			return errors.Join(err, uerr)
		}
	case err != nil:
		return err
	default:
		if err := m.unpublish(ctx, rec, target); err != nil {
			return err
		}
	}
	if err := m.removeTarget(ctx, target); err != nil {
		return err
	}
	// The kubelet bind-mounts the device on another file; remove that too.
	return mount.Clean(ctx, m.cfg.Mounter, m.blockDir(volume, devName, pod), mount.Plain)
}

// unmapLeft removes publications that no pod uses: the process ended after the publication of the
// device and before it created the link. It continues after a failure.
func (m *Manager) unmapLeft(ctx context.Context, volume string) error {
	pods, err := list(m.blockDir("publish", volume), maxVolumes)
	errs := []error{err}
	for _, pod := range pods {
		errs = append(errs, m.unmap(ctx, volume, pod))
	}
	return errors.Join(errs...)
}
