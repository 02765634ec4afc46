package plugintest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/volumemgr"
)

// Fake is a small working plugin on a [Node]. emptyDir volumes are directories, hostPath volumes
// are existing paths, NFS volumes are mounted.
type Fake struct {
	Node *Node
	// Hook is called at the start of each operation, unless it is nil. If it returns an error,
	// the operation fails. op is setup, teardown, mountdevice, unmountdevice, map or unmap. For
	// unmountdevice, v has only a Name.
	Hook func(ctx context.Context, op string, v *volumemgr.Volume) error
	// Again becomes Result.Again.
	Again time.Duration
	// Limit is the deadline of operations. The default is 1 minute.
	Limit time.Duration

	mu    sync.Mutex
	calls map[string]int
}

// Calls returns how often an operation was called.
func (f *Fake) Calls(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

func (f *Fake) call(ctx context.Context, op string, v *volumemgr.Volume) error {
	f.mu.Lock()
	if f.calls == nil {
		f.calls = map[string]int{}
	}
	f.calls[op]++
	f.mu.Unlock()
	if f.Hook == nil {
		return nil
	}
	return f.Hook(ctx, op, v)
}

// Name returns "kubernetes.io/fake".
func (f *Fake) Name() string { return "kubernetes.io/fake" }

// Supports reports whether spec is an emptyDir, hostPath or NFS volume.
func (f *Fake) Supports(spec *volumemgr.Spec) bool {
	v := spec.Volume
	return v != nil && (v.EmptyDir != nil || v.HostPath != nil || v.NFS != nil)
}

// Deadline returns f.Limit.
func (f *Fake) Deadline(*volumemgr.Spec) time.Duration {
	if f.Limit == 0 {
		return time.Minute
	}
	return f.Limit
}

// SetUp mounts a fake file system for an NFS volume. For other volumes it creates a directory,
// except for a hostPath.
func (f *Fake) SetUp(ctx context.Context, v *volumemgr.Volume) (volumemgr.Result, error) {
	if err := f.call(ctx, "setup", v); err != nil {
		return volumemgr.Result{}, err
	}
	res := volumemgr.Result{Path: v.Path, Again: f.Again}
	switch vol := v.Spec.Volume; {
	case vol.HostPath != nil:
		res.Path = vol.HostPath.Path
	case vol.NFS != nil:
		return res, f.mount(ctx, vol.NFS.Server+vol.NFS.Path, v.Path, nil)
	default:
		return res, f.Node.MkdirAll(v.Path, 0o777)
	}
	return res, nil
}

// mount creates target and mounts source on it.
func (f *Fake) mount(ctx context.Context, source, target string, options []string) error {
	if err := f.Node.MkdirAll(target, 0o750); err != nil {
		return err
	}
	mounts, err := f.Node.Mounts(target)
	if err != nil || len(mounts) > 0 {
		return err
	}
	if err := f.Node.Mount(ctx, source, target, "nfs", options); err != nil {
		// The mount may exist nevertheless.
		return fmt.Errorf("%w: %w", err, volumemgr.ErrUncertain)
	}
	return nil
}

// TearDown unmounts and removes the volume.
func (f *Fake) TearDown(ctx context.Context, v *volumemgr.Volume) error {
	if err := f.call(ctx, "teardown", v); err != nil {
		return err
	}
	return f.remove(ctx, v.Path)
}

func (f *Fake) remove(ctx context.Context, target string) error {
	mounts, err := f.Node.Mounts(target)
	if err != nil {
		return err
	}
	for range mounts {
		if err := f.Node.Unmount(ctx, target); err != nil {
			return err
		}
	}
	return f.Node.RemoveAll(target)
}

// FakeContent is a plugin for ConfigMap volumes: it writes a file with the pod's
// labels.
type FakeContent struct{ Fake }

// Name returns "kubernetes.io/fake-content".
func (f *FakeContent) Name() string { return "kubernetes.io/fake-content" }

// Supports reports whether spec is a configMap.
func (f *FakeContent) Supports(spec *volumemgr.Spec) bool {
	return spec.Volume != nil && spec.Volume.ConfigMap != nil
}

// SetUp creates the volume's directory with a file in it.
func (f *FakeContent) SetUp(ctx context.Context, v *volumemgr.Volume) (volumemgr.Result, error) {
	if err := f.call(ctx, "setup", v); err != nil {
		return volumemgr.Result{}, err
	}
	if err := f.Node.MkdirAll(v.Path, 0o755); err != nil {
		return volumemgr.Result{}, err
	}
	return volumemgr.Result{Path: v.Path, Again: f.Again}, f.Node.Write(path.Join(v.Path, "labels"), fmt.Sprint(v.Pod.Labels))
}

// Sources returns the ConfigMap.
func (f *FakeContent) Sources(spec *volumemgr.Spec, pod *v1.Pod) []volumemgr.Ref {
	return []volumemgr.Ref{{Kind: "ConfigMap", Namespace: pod.Namespace, Name: spec.Volume.ConfigMap.Name}}
}

// Stale reports whether the labels have changed.
func (f *FakeContent) Stale(_ *volumemgr.Spec, before, after *v1.Pod) bool {
	return fmt.Sprint(before.Labels) != fmt.Sprint(after.Labels)
}

// FakeDisk is a plugin for local persistent volumes. Each is a device, which is mounted once at
// /root/plugins/fake-disk/NAME and from there into pods.
type FakeDisk struct{ Fake }

// Name returns "kubernetes.io/fake-disk".
func (f *FakeDisk) Name() string { return "kubernetes.io/fake-disk" }

// Supports reports whether spec is a local volume.
func (f *FakeDisk) Supports(spec *volumemgr.Spec) bool {
	return spec.PersistentVolume != nil && spec.PersistentVolume.Spec.Local != nil
}

// disks is the directory in which devices are mounted.
const disks = "/root/plugins/fake-disk"

// Device returns a device with the volume's name.
func (f *FakeDisk) Device(v *volumemgr.Volume) (volumemgr.Device, error) {
	return volumemgr.Device{Name: v.Name, Path: path.Join(disks, v.Name)}, nil
}

// Devices returns one device for each entry of disks.
func (f *FakeDisk) Devices(context.Context) ([]volumemgr.Device, error) {
	entries, err := f.Node.ReadDir(disks)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var out []volumemgr.Device
	for _, e := range entries {
		out = append(out, volumemgr.Device{Name: e.Name(), Path: path.Join(disks, e.Name())})
	}
	return out, err
}

// MountDevice mounts the disk.
func (f *FakeDisk) MountDevice(ctx context.Context, v *volumemgr.Volume) error {
	if err := f.call(ctx, "mountdevice", v); err != nil {
		return err
	}
	return f.mount(ctx, "disk-"+v.Name, v.DevicePath, nil)
}

// UnmountDevice unmounts the disk.
func (f *FakeDisk) UnmountDevice(ctx context.Context, d volumemgr.Device) error {
	if err := f.call(ctx, "unmountdevice", &volumemgr.Volume{Name: d.Name}); err != nil {
		return err
	}
	all, err := f.Node.Mounts("/")
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.Device == "disk-"+d.Name && m.Path != d.Path {
			return fmt.Errorf("%s is still in use at %s", d.Path, m.Path)
		}
	}
	return f.remove(ctx, d.Path)
}

// SetUp bind-mounts the disk into the pod's directory.
func (f *FakeDisk) SetUp(ctx context.Context, v *volumemgr.Volume) (volumemgr.Result, error) {
	if err := f.call(ctx, "setup", v); err != nil {
		return volumemgr.Result{}, err
	}
	return volumemgr.Result{Path: v.Path}, f.mount(ctx, v.DevicePath, v.Path, []string{"bind"})
}

// MapDevice returns the path of the device.
func (f *FakeDisk) MapDevice(ctx context.Context, v *volumemgr.Volume) (string, error) {
	return "/dev/" + v.Name, f.call(ctx, "map", v)
}

// UnmapDevice does nothing.
func (f *FakeDisk) UnmapDevice(ctx context.Context, v *volumemgr.Volume) error {
	return f.call(ctx, "unmap", v)
}
