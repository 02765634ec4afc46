package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/plugins"
)

// The plugin for the volume manager, and volumes with file systems. The volume manager makes sure
// that operations on one volume of one pod do not overlap. This package makes sure that calls to
// a driver about one of its volumes do not overlap.

// kindDriver is the kind of a [volumemgr.Ref] to a driver. The Ref changes when the driver
// registers or its CSIDriver object changes.
const kindDriver = "CSIDriver"

// Plugin is the volume plugin for all CSI drivers. It has no state of its own.
type Plugin struct{ m *Manager }

var (
	_ volumemgr.DevicePlugin = Plugin{}
	_ volumemgr.BlockPlugin  = Plugin{}
	_ volumemgr.Refresher    = Plugin{}
	_ volumemgr.Deadliner    = Plugin{}
	_ volumemgr.Meter        = Plugin{}
	_ volumemgr.Labeler      = Plugin{}
)

// Plugin returns the volume plugin of this manager, for volumemgr.Config.Plugins.
func (m *Manager) Plugin() Plugin { return Plugin{m} }

// Name returns "kubernetes.io/csi".
func (Plugin) Name() string { return pluginName }

// Label returns the plugin's name together with the driver's, as in the kubelet.
func (Plugin) Label(s *volumemgr.Spec, d volumemgr.Device) string {
	// Without a spec, the device was left by an earlier process. Its name begins with the
	// driver's name, except for block devices.
	name, _, staged := strings.Cut(d.Name, "/")
	if s != nil {
		if src, err := sourceOf(s, nil, ""); err == nil {
			return pluginName + ":" + src.driver
		}
	}
	if staged && name+"/" != blockDevice {
		return pluginName + ":" + name
	}
	return ""
}

// Supports reports whether a volume has the source of a CSI driver or of a former in-tree driver.
// The driver need not be registered.
func (Plugin) Supports(s *volumemgr.Spec) bool {
	if pv := s.PersistentVolume; pv != nil {
		return pv.Spec.CSI != nil || inTree.IsPVMigratable(pv)
	}
	return s.Volume.CSI != nil || inTree.IsInlineMigratable(s.Volume)
}

// Deadlines of operations: the wait for an attachment, and one or two calls.
const (
	// attachTime limits the wait for an attachment, as in the kubelet.
	attachTime = 10 * time.Minute
	// ownTime is longer than the two minutes of a call, so that an operation returns the result
	// of its call instead of its own timeout.
	ownTime = 3 * time.Minute
)

// Deadline returns the deadline of an operation; calls have their own. If s is nil, the deadline
// has no time for an attachment.
func (Plugin) Deadline(s *volumemgr.Spec) time.Duration {
	if s == nil {
		return 2 * ownTime
	}
	return attachTime + 2*ownTime
}

// Sources returns the driver, so that volumes that wait for it continue when it registers.
func (Plugin) Sources(s *volumemgr.Spec, pod *v1.Pod) []volumemgr.Ref {
	src, err := sourceOf(s, pod, pod.UID)
	if err != nil {
		return nil
	}
	return []volumemgr.Ref{{Kind: kindDriver, Name: src.driver}}
}

// Stale returns false, since the content does not depend on the pod's fields.
func (Plugin) Stale(*volumemgr.Spec, *v1.Pod, *v1.Pod) bool { return false }

// republishEvery is how often volumes are published again if their driver requires it. The
// kubelet does it about as often, at each sync of a pod. Tokens that expire earlier shorten the
// interval.
const republishEvery = time.Minute

// SetUp publishes the volume at v.Path/mount. A volume that an earlier process published is
// published again, which drivers must support. If the driver is not registered, the error is
// transient.
func (p Plugin) SetUp(ctx context.Context, v *volumemgr.Volume) (volumemgr.Result, error) {
	src, err := sourceOf(v.Spec, v.Pod, v.UID)
	if err != nil {
		return volumemgr.Result{}, err
	}
	object, err := p.m.object(ctx, src.driver)
	if err != nil {
		return volumemgr.Result{}, err
	}
	result := volumemgr.Result{Path: filepath.Join(v.Path, mountName), ReadOnly: src.readOnly}
	// Containers use the volume already, and the driver has nothing to renew.
	if v.Remount && !object.RequiresRepublish {
		return result, nil
	}
	again, err := p.m.publish(ctx, v, src, object)
	if err != nil {
		return volumemgr.Result{}, err
	}
	p.m.here(v.UID, v.Spec, v.Name, true)
	if object.RequiresRepublish {
		result.Again = again
	}
	return result, nil
}

// publish publishes a volume with a file system: it writes the record, calls the driver, checks the
// result and sets the group. The result again is the time until the next publication, for drivers
// that require one.
func (m *Manager) publish(ctx context.Context, v *volumemgr.Volume, src source, object plugins.CSIDriver) (again time.Duration, err error) {
	d, release, err := m.hold(src.driver)
	if err != nil {
		return 0, transient(err)
	}
	defer release()
	target := filepath.Join(v.Path, mountName)
	// Everything that can fail without the driver comes before the record is written.
	req, again, err := m.publication(ctx, v, src, object, d, target)
	if err != nil {
		return 0, err
	}
	if d.can.stage && !src.ephemeral {
		req.StagingTargetPath = m.stagingDir(src.driver, src.handle)
	}
	// Only the first publication may be undone after a failure.
	_, before := readRecord(v.Path)
	fresh := !v.Found && !v.Remount
	// The record is written before the call, so that a teardown, even by another process, knows
	// the driver.
	if err := m.write(v.Path, m.recordOf(v, src, m.context(v, src, object))); err != nil {
		return 0, m.undo(ctx, v, fresh && before != nil, err)
	}
	if err = m.call(ctx, d, src.handle, "NodePublishVolume", req, &spec.NodePublishVolumeResponse{}, req.Secrets); err != nil {
		// After a final error, or if the driver was not called, nothing is published.
		var answer *CallError
		nothing := errors.As(err, &answer) && answer.Final() || errors.Is(err, volumemgr.ErrTransient) && errors.Is(before, fs.ErrNotExist)
		return 0, m.undo(ctx, v, fresh && nothing, err)
	}
	// From here on, the volume is mounted, so every failure is an ErrUncertain.
	if err := m.published(ctx, src.driver, target); err != nil {
		return 0, err
	}
	// A driver with VOLUME_MOUNT_GROUP has received the group, and changes the files itself.
	if !v.Remount && !d.can.mountGroup && ownsFiles(src, object.FSGroupPolicy, v.FSGroup) {
		if err := own(ctx, v, target); err != nil {
			return 0, fmt.Errorf("fsGroup: %w: %w", err, volumemgr.ErrUncertain)
		}
	}
	return again, nil
}

// undo cleans up after a failed publication and returns cause. unpublished reports that the
// driver has not published the volume; undo then removes the publication's directories. It
// continues after the end of ctx.
func (m *Manager) undo(ctx context.Context, v *volumemgr.Volume, unpublished bool, cause error) error {
	if !unpublished {
		return cause
	}
	if err := m.removePublication(context.WithoutCancel(ctx), v.Path); err != nil {
		return errors.Join(cause, err, volumemgr.ErrUncertain)
	}
	return cause
}

// recordOf returns the record of a publication. As in the kubelet, Attachment is also set for
// volumes that are not attached.
func (m *Manager) recordOf(v *volumemgr.Volume, src source, label string) record {
	return record{
		Volume: v.Name, Handle: src.handle, Driver: src.driver, Node: m.cfg.NodeName,
		Attachment: attachmentName(src.handle, src.driver, m.cfg.NodeName), Ephemeral: src.ephemeral, Context: label,
	}
}

// TearDown undoes SetUp. It uses the record, since the spec may have changed. It succeeds only
// after the driver has succeeded, so that no volume is forgotten that the driver still has.
func (p Plugin) TearDown(ctx context.Context, v *volumemgr.Volume) error {
	m := p.m
	m.quiet(v)
	rec, err := readRecord(v.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist): // it is written before the first call to the driver
		return m.removePublication(ctx, v.Path)
	// If the pod is known, the spec replaces the damaged record. Otherwise the mount point is
	// unmounted without the driver.
	case errors.Is(err, ErrRecord):
		src, serr := source{}, err
		if v.Spec != nil {
			src, serr = sourceOf(v.Spec, v.Pod, v.UID)
		}
		if serr != nil {
			return m.abandon(ctx, v.Path, filepath.Join(v.Path, mountName), err)
		}
		rec = record{Driver: src.driver, Handle: src.handle, Ephemeral: src.ephemeral}
	case err != nil:
		return err
	}
	target := filepath.Join(v.Path, mountName)
	if err := m.unpublish(ctx, rec, target); err != nil {
		return err
	}
	return m.removePublication(ctx, v.Path)
}

// unpublish calls the driver to undo a publication. An inline volume exists only while it is
// published, so one that the driver does not know is unpublished: the answer of an earlier call
// was lost. If the driver is not registered, the error is transient, and mount and record are
// kept.
func (m *Manager) unpublish(ctx context.Context, rec record, target string) error {
	d, release, err := m.hold(rec.Driver)
	if err != nil {
		return transient(err)
	}
	defer release()
	req := &spec.NodeUnpublishVolumeRequest{VolumeId: rec.Handle, TargetPath: target}
	err = m.call(ctx, d, rec.Handle, "NodeUnpublishVolume", req, &spec.NodeUnpublishVolumeResponse{}, nil)
	if rec.Ephemeral && is(err, codes.NotFound) {
		return nil
	}
	return err
}

// call makes a call for a volume once no other call for the volume is running, and does not
// cancel it when ctx ends. The caller holds d. The call holds d as well, since it may outlive the
// caller.
func (m *Manager) call(ctx context.Context, d *driver, handle, method string, req, resp message, secrets map[string]string) error {
	if err := m.cfg.step(); err != nil {
		return transient(err)
	}
	d.calls.Add(1) // allowed, since the caller holds d
	begun, err := m.flights.do(ctx, d.name+"^"+handle, d.name+": "+method, func(ctx context.Context) error {
		defer d.calls.Done()
		return d.client.node(ctx, method, req, resp, secrets)
	})
	// The function that would release d is never called.
	if !begun {
		d.calls.Done()
	}
	return errors.Join(err, m.cfg.step())
}
