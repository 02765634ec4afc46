package volumemgr

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
)

// Finding the volumes that an earlier process left. There are no records of volumes on disk.
// Instead, the directories below ROOT/pods and the plugins' lists of devices are read: they are
// correct even after a crash in the middle of an operation.

// foundVolume is the directory of a volume that an earlier process left. Neither
// the pod's object nor the spec is known.
type foundVolume struct {
	key    volumeKey
	plugin Plugin
	device Device
	// devErr is the error of DevicePlugin.Device. If the volume has no device, device and devErr
	// are zero.
	devErr error
}

// reconstruct creates records of the volumes that an earlier process left, as uncertain. A Mount
// of the pod sets such a volume up again in place, and an Unmount or a Sweep tears it down. An
// unreadable directory is logged and counted, and reconstruct continues with the others.
func (m *Manager) reconstruct(ctx context.Context) {
	for _, p := range m.cfg.Plugins {
		dp, ok := p.(DevicePlugin)
		if !ok {
			continue
		}
		// Devices come first, so that a volume found after them uses the record of
		// its device.
		if err := m.findDevices(ctx, dp); err != nil {
			m.met.reconstructErrors.Inc()
			m.cfg.Log.Warn("failed to list mounted devices", zap.String("plugin", p.Name()), zap.Error(err))
		}
	}
	uids, err := m.podDirs()
	if err != nil {
		m.met.reconstructErrors.Inc()
		m.cfg.Log.Warn("failed to list pod directories", zap.Error(err))
		return
	}
	for _, uid := range uids {
		found, strange, err := m.scan(uid)
		if err != nil || len(strange) > 0 {
			m.met.reconstructErrors.Inc()
			m.cfg.Log.Warn("found unknown entries in directory of pod",
				zap.String("uid", string(uid)), zap.Strings("paths", strange), zap.Error(err))
		}
		m.mu.Lock()
		if len(found) > 0 {
			m.adopt(m.pod(uid), found)
		}
		m.mu.Unlock()
	}
}

// findDevices creates records of the devices that p lists as mounted, including those listed
// before an error. It blocks up to the plugin's deadline.
func (m *Manager) findDevices(ctx context.Context, p DevicePlugin) error {
	ctx, stop := context.WithTimeout(ctx, deadline(p, nil))
	defer stop()
	var found []Device
	err := m.guard(func() (err error) {
		found, err = p.Devices(ctx)
		return err
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range found {
		// The directories of volumes, read later, show which pods use the device.
		if id.Name != "" {
			d := m.deviceOf(p, id)
			d.has, d.found = uncertain, true
		}
	}
	return err
}

// podDirs returns the names of the directories below ROOT/pods, which are UIDs. It ignores files.
// If ROOT/pods is missing, there are no pods.
func (m *Manager) podDirs() ([]types.UID, error) {
	entries, err := m.cfg.Files.ReadDir(filepath.Join(m.root, podsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []types.UID
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, types.UID(e.Name()))
		}
	}
	return out, nil
}

// scan returns the volumes in a pod's directory, and unknown entries where volumes are expected.
// It reads only names and types of directory entries, since a stat could hang on a mount whose
// server does not answer.
func (m *Manager) scan(uid types.UID) (found []foundVolume, strange []string, err error) {
	dir := m.podDir(uid)
	var errs []error
	list := func(path string) []fs.DirEntry {
		entries, err := m.cfg.Files.ReadDir(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		return entries
	}
	for _, top := range list(dir) {
		kind := top.Name()
		// Other directories have no volumes; removeDir removes them.
		if kind != volumesDir && kind != devicesDir {
			continue
		}
		if !top.IsDir() {
			strange = append(strange, filepath.Join(dir, kind))
			continue
		}
		for _, pe := range list(filepath.Join(dir, kind)) {
			path := filepath.Join(dir, kind, pe.Name())
			// A volume without its plugin cannot be torn down safely.
			plugin := m.plugin(unescape(pe.Name()))
			if !pe.IsDir() || plugin == nil {
				strange = append(strange, path)
				continue
			}
			for _, ve := range list(path) {
				block := kind == devicesDir
				// A block volume has a link to the device in place of a directory.
				if ok := ve.IsDir() && !block || ve.Type()&fs.ModeSymlink != 0 && block; !ok {
					strange = append(strange, filepath.Join(path, ve.Name()))
					continue
				}
				found = append(found, m.foundVolume(uid, plugin, ve.Name(), block))
			}
		}
	}
	return found, strange, errors.Join(errs...)
}

// foundVolume returns a found volume with its device, which it asks the plugin for. If the plugin
// fails or panics, devErr is set, and the volume itself is adopted anyway.
func (m *Manager) foundVolume(uid types.UID, p Plugin, name string, block bool) foundVolume {
	f := foundVolume{key: volumeKey{p.Name(), name, block}, plugin: p}
	if dp, ok := p.(DevicePlugin); ok {
		arg := &Volume{UID: uid, Name: name, Found: true, Warn: func(string, string) {}}
		arg.Path, arg.StateDir = m.paths(uid, p.Name(), name, block)
		f.devErr = m.guard(func() (err error) {
			f.device, err = dp.Device(arg)
			return err
		})
	}
	return f
}

// adopt creates records for found volumes that have none. The caller holds m.mu. It is called at
// the start and by each Unmount, since a failed set-up may leave a directory even if it reported
// that nothing is mounted.
func (m *Manager) adopt(p *pod, found []foundVolume) {
	for _, f := range found {
		if v := p.volumes[f.key]; v != nil {
			// The record says absent, but the directory exists: the record is wrong.
			if v.has == absent && v.run == nil && !v.desired {
				v.has, v.found = uncertain, true
			}
			continue
		}
		m.met.reconstructed.Inc()
		v := &volume{m: m, key: f.key, pod: p, plugin: f.plugin, has: uncertain, found: true, since: time.Now()}
		p.volumes[f.key] = v
		// See Manager.lost: until this volume is gone, no device of the plugin is unmounted.
		if f.devErr != nil {
			v.lost = true
			m.lost[f.key.plugin]++
			m.cfg.Log.Warn("failed to find device of volume", append(v.fields(), zap.Error(f.devErr))...)
		} else if f.device.Name != "" {
			d := m.deviceOf(f.plugin.(DevicePlugin), f.device)
			if d.has == absent {
				// The plugin does not list the device, but it may be mounted anyway.
				d.has, d.found = uncertain, true
			}
			m.setDevice(v, d)
		}
	}
}

// Sweep reports that all pods of this node are known, and removes everything of other pods: their
// volumes, devices that no volume needs, and, like Remove, their directories. known must return
// true for a pod before Mount is called for it.
//
// The error has the obstacles to all remaining directories. Call Sweep only when a pod is gone.
// known is called from several goroutines and with the manager's lock held, so it must be fast
// and must not call the manager.
func (m *Manager) Sweep(ctx context.Context, known func(types.UID) bool) error {
	if err := m.begun(ctx); err != nil {
		return err
	}
	uids, err := m.podDirs()
	if err != nil {
		return fmt.Errorf("list pod directories: %w", err)
	}
	gone := map[types.UID]bool{}
	for _, uid := range uids {
		gone[uid] = !known(uid)
	}
	m.mu.Lock()
	// Pods with a record but no directory count as well, since their devices may be mounted.
	for uid := range m.pods {
		gone[uid] = !known(uid)
	}
	// Devices that were kept because not all pods were known can now be unmounted, if no volume
	// uses them.
	m.allKnown = true
	for _, d := range m.devices {
		m.wakeDevice(d)
	}
	m.mu.Unlock()
	return m.removeAll(ctx, gone, known)
}
