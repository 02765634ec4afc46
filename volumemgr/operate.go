package volumemgr

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
)

// Operations on volumes. start takes a slot, a goroutine calls the plugin without m.mu, and
// setUpDone or tornDown stores the result with m.mu held.

// defaultDeadline is the deadline of plugins that are not a Deadliner. An operation counts as
// hung if it has not returned overdueAfter after its deadline.
const (
	defaultDeadline = 2 * time.Minute
	overdueAfter    = time.Second
)

// ErrHung means that an operation did not return after its deadline. No other operation on the
// volume starts until it returns.
var ErrHung = errors.New("the operation hangs")

// deadline returns the timeout of an operation of p: the plugin's own if it is above 0,
// otherwise the default.
func deadline(p Plugin, spec *Spec) time.Duration {
	if d, ok := p.(Deadliner); ok {
		if t := d.Deadline(spec); t > 0 {
			return t
		}
	}
	return defaultDeadline
}

// begin returns the record and the context of an operation that starts now. overdue is called,
// with m.mu held, once the operation counts as hung. When the operation has returned, the caller
// must call end of the record, and m.wg.Done, for which Run waits.
func (m *Manager) begin(o op, limit time.Duration, overdue func()) (context.Context, *running) {
	ctx, stop := context.WithTimeout(m.ctx, limit)
	r := &running{op: o, cancel: stop, started: time.Now()}
	r.late = time.AfterFunc(limit+overdueAfter, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		r.overdue = true
		overdue()
	})
	m.wg.Add(1)
	return ctx, r
}

// end stops the timers of an operation that has returned. The caller holds m.mu.
func (r *running) end() {
	r.cancel()
	r.late.Stop()
}

// start starts an operation on v if there is a free slot. Otherwise it queues the volume, and
// turn calls decide again. The caller holds m.mu.
func (m *Manager) start(v *volume, o op) {
	s := m.slots.Acquire(v)
	if s == nil {
		return
	}
	// A copy, since the record may change while the operation runs.
	arg, now := m.arg(v), time.Now()
	limit := deadline(v.plugin, v.spec)
	ctx, r := m.begin(o, limit, func() {
		if v.run != nil && v.run.overdue {
			m.cfg.Log.Warn("operation on volume hangs", append(v.fields(), zap.String("operation", o.metric(v.key.block)))...)
			v.settle(fmt.Errorf("%w: %s for %v", ErrHung, o.metric(v.key.block), limit+overdueAfter))
		}
	})
	v.run = r
	if v.has != present || o == opTearDown {
		v.since = now
	}
	if o == opTearDown {
		// From now on, the volume may be partly mounted.
		v.setPresence(uncertain, now)
	} else {
		// Cleared at the start, not at the end, so that a change during the set-up marks the
		// content as stale again.
		v.stale, v.expires, v.made = false, time.Time{}, v.object
	}
	go func() {
		defer m.wg.Done()
		var res Result
		err := m.guard(func() (err error) {
			if o == opTearDown {
				return m.tearDown(ctx, v.plugin, arg, v.key.block)
			}
			res, err = m.setUp(ctx, v, arg)
			return err
		})
		// Read before r.end cancels ctx.
		ended := ctx.Err() != nil
		m.mu.Lock()
		defer m.mu.Unlock()
		r.end()
		v.run = nil
		m.met.operation(v.label(), o.metric(v.key.block), err, time.Since(r.started))
		if o == opTearDown {
			m.tornDown(v, err)
		} else {
			m.setUpDone(v, r, res, err, ended)
		}
		// First free the slot, then wake the volume and the others on its device, which may wait
		// for it.
		m.slots.Release(s)
		m.wake(v)
		m.wakeShared(v.device)
	}()
}

// guard turns a panic into an error, since a bug in a plugin must not end the agent.
func (m *Manager) guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			m.cfg.Log.Error("volume plugin panicked", zap.String("panic", fmt.Sprint(p)), zap.ByteString("stack", debug.Stack()))
			// It is unknown how far the plugin got, so a TearDown is needed.
			err = fmt.Errorf("panic: %v: %w", p, ErrUncertain)
		}
	}()
	return f()
}

// setUpDone stores the result of a SetUp and wakes its waiters. The caller holds m.mu.
func (m *Manager) setUpDone(v *volume, r *running, res Result, err error, ended bool) {
	now := time.Now()
	was := v.has
	v.setPresence(after(v.has, classify(err, ended), v.found), now)
	if err == nil {
		v.result, v.found, v.abandoned = res, false, false
		// The measured usage belongs to the former content. A running walk drops its result.
		v.usage, v.survey, v.due = Usage{}, nil, time.Time{}
		v.since = now
		if res.Again > 0 {
			v.expires = now.Add(res.Again)
		}
		m.met.mounted(v.label(), v.fails.since, now, r.started)
		v.fails.clear()
		v.settle(nil)
		m.tellReady(v.pod)
		return
	}
	// start cleared the flag. If it is set, something changed during the set-up.
	changed := v.stale
	if was == present {
		v.stale = true // the content still has to be updated
	}
	if m.ctx.Err() != nil || r.canceled {
		return // canceled by the manager, not failed: waiters wait for the next operation
	}
	v.fails.add(opSetUp, err, now)
	if d := v.device; d != nil && d.has == present && errors.Is(err, ErrNoDevice) {
		d.has = uncertain // not absent, since the plugin may be wrong about this too
	}
	if changed {
		v.fails.retryNow() // retry at once: the change may have removed the cause
	}
	v.settle(v.failure(&v.fails))
	log := m.cfg.Log.Debug // Mount returns the error
	if was == present {
		log = m.cfg.Log.Warn // nobody waits for an update
	}
	log("failed to set up volume", append(v.fields(), zap.Int("failures", v.fails.count), zap.Error(err))...)
	// The kubelet's words, which tools search for in events.
	reason, what := "FailedMount", "MountVolume.SetUp"
	if v.key.block {
		reason, what = "FailedMapVolume", "MapVolume.MapPodDevice"
	}
	m.cfg.Events.Event(v.object, v1.EventTypeWarning, reason, fmt.Sprintf("%s failed for volume %q : %v", what, v.key.name, err))
}

// tornDown stores the result of a TearDown. The caller holds m.mu. If the volume is gone, wake
// removes its record, which ends the waits for it.
func (m *Manager) tornDown(v *volume, err error) {
	now := time.Now()
	if err == nil {
		v.setPresence(absent, now)
		v.found, v.stale, v.expires, v.result = false, false, time.Time{}, Result{}
		v.usage, v.survey, v.due = Usage{}, nil, time.Time{}
		v.fails.clear()
		return
	}
	// Run is ending. The next process finds the directory and tears the volume down.
	if m.ctx.Err() != nil {
		return
	}
	v.fails.add(opTearDown, err, now)
	v.settle(v.failure(&v.fails))
	m.cfg.Log.Warn("failed to tear down volume", append(v.fields(), zap.Int("failures", v.fails.count), zap.Error(err))...)
}

// setUp executes a SetUp: first the checks for all plugins, then the plugin's own part. m.mu must
// not be held.
func (m *Manager) setUp(ctx context.Context, v *volume, arg *Volume) (Result, error) {
	if err := m.alone(v, arg); err != nil {
		return Result{}, err
	}
	// A volume that is mounted, or was found after a restart, is not checked against the node's
	// present labels.
	if !arg.Remount && !arg.Found {
		if err := m.reachable(arg.Spec); err != nil {
			return Result{}, err
		}
	}
	if !v.key.block {
		return v.plugin.SetUp(ctx, arg)
	}
	p, ok := v.plugin.(BlockPlugin)
	if !ok {
		return Result{}, fmt.Errorf("plugin %s does not support volumeMode Block", v.key.plugin)
	}
	// The parent directory of the link is created first, so that as few steps as possible can
	// fail after the device is mapped.
	if err := m.cfg.Files.MkdirAll(filepath.Dir(arg.Path), dirMode); err != nil {
		return Result{}, err
	}
	dev, err := p.MapDevice(ctx, arg)
	if err != nil {
		return Result{}, err
	}
	// The device is already mapped for the pod, so a TearDown is needed.
	if err := m.link(dev, arg.Path); err != nil {
		return Result{}, fmt.Errorf("%w: %w", err, ErrUncertain)
	}
	m.mu.Lock()
	// v.object rather than arg's, since events refer to the newest object of the pod.
	object := v.object
	m.mu.Unlock()
	m.cfg.Events.Event(object, v1.EventTypeNormal, "SuccessfulMountVolume",
		fmt.Sprintf("MapVolume.MapPodDevice succeeded for volume %q volumeMapPath %q", arg.Name, filepath.Dir(arg.Path)))
	return Result{Path: dev, ReadOnly: arg.Spec.ReadOnly}, nil
}

// alone returns an error if another pod has a volume of access mode ReadWriteOncePod (KEP-2485).
// A volume that may be mounted counts as mounted: it is better that one pod waits than that two
// write.
func (m *Manager) alone(v *volume, arg *Volume) error {
	if !onlyOnePod(arg.Spec) {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pods {
		if u := p.volumes[v.key]; u != nil && u != v && u.has != absent {
			return fmt.Errorf("volume uses the ReadWriteOncePod access mode and is already in use by another pod (%s)", p.uid)
		}
	}
	return nil
}

// link makes path a symbolic link to dev, and replaces a link to another device: after a reboot
// the disk may have another name.
func (m *Manager) link(dev, path string) error {
	switch to, err := m.cfg.Files.Readlink(path); {
	case err == nil && to == dev:
		return nil
	case err == nil:
		if err := m.cfg.Files.Remove(path); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return m.cfg.Files.Symlink(dev, path)
}

// tearDown executes a TearDown. Whatever the plugin returns, it succeeds only if nothing is
// mounted at the volume's path and the path is gone. m.mu must not be held.
func (m *Manager) tearDown(ctx context.Context, p Plugin, arg *Volume, block bool) error {
	// Mounts of subPaths are unmounted first.
	if err := m.cleanSubPaths(ctx, filepath.Join(m.podDir(arg.UID), subPathsDir, arg.Name)); err != nil {
		return fmt.Errorf("unmount subPath mounts: %w", err)
	}
	if block {
		b, ok := p.(BlockPlugin)
		if !ok {
			return fmt.Errorf("plugin %s does not support volumeMode Block", p.Name())
		}
		// The link is removed before the device is unmapped. After a crash in between,
		// UnmountDevice removes the rest.
		if _, err := m.cfg.Files.Readlink(arg.Path); err == nil {
			if err := m.cfg.Files.Remove(arg.Path); err != nil {
				return err
			}
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return b.UnmapDevice(ctx, arg)
	}
	if err := p.TearDown(ctx, arg); err != nil {
		return err
	}
	// A mount point cannot be removed, so a missing path is certainly not mounted.
	if _, err := m.cfg.Files.Lstat(arg.Path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	// The plugin's result is verified, since a remaining mount would never be found again once
	// the record is removed.
	mounts, err := m.cfg.Mounter.Mounts(arg.Path)
	if err != nil {
		return fmt.Errorf("read mount table: %w", err)
	}
	if len(mounts) > 0 {
		return fmt.Errorf("%s is still a mount point after %s tore it down", mounts[0].Path, p.Name())
	}
	// Only directories are removed: a file is data that the plugin should have removed, or does
	// not own.
	if err := m.cfg.Files.RemoveDirs(arg.Path); err != nil {
		return fmt.Errorf("%s did not remove its directory: %w", p.Name(), err)
	}
	return nil
}

// metric returns the operation's name in the kubelet's metrics. Operations on the devices of
// block volumes have the same names as mounts.
func (o op) metric(block bool) string {
	name := [...]string{"", "volume_mount", "volume_unmount", "mount_device", "unmount_device"}[o]
	if block {
		name = strings.Replace(name, "volume_mount", "map_volume", 1)
		name = strings.Replace(name, "volume_unmount", "unmap_volume", 1)
	}
	return name
}
