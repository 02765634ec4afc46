package plugins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/internal/durable"
	"github.com/nodewright/nodewright/internal/fsgroup"
	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/internal/disk"
	"github.com/nodewright/nodewright/volumemgr/mount"
)

// lunTarget identifies a disk on a storage network. It is stored in the disk's record.
type lunTarget struct {
	// Key identifies the disk on this node; all volumes on the disk have the same key. It can be
	// the name of a directory.
	Key string `json:"key"`
	// Lock names the lock for calls that must not overlap, such as those for disks of one target.
	// If it is "", Key names the lock.
	Lock string `json:"lock,omitempty"`
	// Block means that pods use the disk as a block device, not as a file system.
	Block bool `json:"block,omitempty"`
	// Detail is data of the lunNetwork. It contains no secrets.
	Detail json.RawMessage `json:"detail"`
}

// lunNetwork attaches the disks of one kind of storage network. Calls with the same Lock do not
// overlap.
type lunNetwork interface {
	// Name is the kubelet's name of the plugin.
	Name() string
	// Source returns the disk of a volume, its file system, and whether the volume is read-only.
	// If fsType is "", the file system is ext4. Source has no side effects. ok is false if the
	// volume is of another kind. The error names the invalid field.
	Source(spec *volumemgr.Spec) (t lunTarget, fsType string, readOnly, ok bool, err error)
	// Attach makes the disk available and returns its device: the multipath device if there are
	// several paths. others are the other targets that are, or may be, attached. note stores a
	// changed Detail.
	Attach(ctx context.Context, t lunTarget, v *volumemgr.Volume, others []lunTarget, note func(detail any) error) (device string, err error)
	// Detach undoes Attach. others are the remaining targets. A missing disk is not an error.
	Detach(ctx context.Context, t lunTarget, others []lunTarget) error
}

// lunConfig configures a lunPlugin. Mounter, Root and Network are required.
type lunConfig struct {
	Mounter mount.Mounter
	Network lunNetwork
	// Root is the agent's directory.
	Root string
	// Run executes programs. If it is nil, os/exec does.
	Run Run
}

// lunDeadline limits each operation on an iSCSI or Fibre Channel volume.
const lunDeadline = 5 * time.Minute

const (
	maxRecord = 64 << 10 // bytes
	maxDisks  = 10_000   // disks on a node
	recordOf  = "target.json"
	mountOf   = "mount"
	deviceOf  = "device" // file in a volume's StateDir with the name of its device
	blockMark = "block-"
	ext4      = "ext4"
)

// lunPlugin implements the part of volumes on network disks that is the same for all storage
// networks. newISCSI and newFC add the rest.
//
// A disk is attached once for the node. It is found by its identity, never by a kernel name,
// which another disk may have after a restart. With volumeMode Filesystem it is formatted if it
// is empty, checked, mounted below Root/plugins and bind-mounted from there into pods.
//
// # Faults
//
// Each disk has one record, without secrets. It is written before the disk is attached and
// removed after it is detached. Calls for a disk run one after the other. A device is not
// detached while it is mounted elsewhere.
type lunPlugin struct {
	cfg   lunConfig
	turns detached.Queue // one call at a time for each Lock
}

// newLUN validates cfg and returns the plugin.
func newLUN(cfg lunConfig) (*lunPlugin, error) {
	var errs []error
	if cfg.Mounter == nil {
		errs = append(errs, errors.New("lun: LUNConfig.Mounter is required"))
	}
	if cfg.Network == nil {
		errs = append(errs, errors.New("lun: LUNConfig.Network is required"))
	}
	if !filepath.IsAbs(cfg.Root) {
		errs = append(errs, fmt.Errorf("lun: LUNConfig.Root %q, want an absolute path", cfg.Root))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if cfg.Run == nil {
		cfg.Run = disk.Program
	}
	return &lunPlugin{cfg: cfg, turns: detached.Queue{Limit: 1000}}, nil
}

// Name returns the name of the storage network's plugin: kubernetes.io/iscsi or kubernetes.io/fc.
func (p *lunPlugin) Name() string { return p.cfg.Network.Name() }

// Supports reports whether spec is of the network's kind.
func (p *lunPlugin) Supports(spec *volumemgr.Spec) bool {
	_, _, _, ok, _ := p.cfg.Network.Source(spec)
	return ok
}

// Deadline returns five minutes, since a login to a slow server takes long.
func (p *lunPlugin) Deadline(*volumemgr.Spec) time.Duration { return lunDeadline }

func (p *lunPlugin) disksDir() string { return filepath.Join(p.cfg.Root, "plugins", p.Name()) }

// lunName returns the name of the device. A disk that is used both as a file system and as a
// block device counts as two devices.
func lunName(t lunTarget) string {
	if t.Block {
		return blockMark + t.Key
	}
	return t.Key
}

func (p *lunPlugin) device(name string) volumemgr.Device {
	return volumemgr.Device{Name: name, Path: filepath.Join(p.disksDir(), name, mountOf)}
}

func (p *lunPlugin) source(spec *volumemgr.Spec) (t lunTarget, fsType string, readOnly bool, err error) {
	t, fsType, readOnly, ok, err := p.cfg.Network.Source(spec)
	if err == nil && !ok {
		err = errors.New("the volume has no source of this plugin")
	}
	t.Block = spec.Block()
	if fsType == "" {
		fsType = ext4
	}
	return t, fsType, readOnly || spec.ReadOnly, err
}

// Device returns the volume's disk. If only the volume's directory is known, the device is read
// from a file in its state directory.
func (p *lunPlugin) Device(v *volumemgr.Volume) (volumemgr.Device, error) {
	if v.Spec != nil {
		t, _, _, err := p.source(v.Spec)
		if err != nil {
			return volumemgr.Device{}, err
		}
		return p.device(lunName(t)), nil
	}
	b, err := safefile.ReadFile(filepath.Join(v.StateDir, deviceOf), maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return volumemgr.Device{}, nil
	}
	if err != nil {
		return volumemgr.Device{}, err
	}
	if n := string(b); plain(n) {
		return p.device(n), nil
	}
	return volumemgr.Device{}, fmt.Errorf("%s: %.64q is not the name of a device", filepath.Join(v.StateDir, deviceOf), b)
}

// plain reports whether name can be the name of one directory.
func plain(name string) bool {
	return name != "" && len(name) <= 255 && filepath.Base(name) == name && name != ".." && name != "." && !strings.ContainsRune(name, 0)
}

// Devices returns the disks that have a record.
func (p *lunPlugin) Devices(context.Context) ([]volumemgr.Device, error) {
	names, err := safefile.Names(p.disksDir(), maxDisks)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var out []volumemgr.Device
	for _, n := range names {
		out = append(out, p.device(n))
	}
	return out, err
}

func (p *lunPlugin) records(name string, sync bool) durable.Dir {
	return durable.Dir{Path: filepath.Join(p.disksDir(), name), Disk: durable.OS{DirMode: 0o750, FileMode: 0o600, Limit: maxRecord}, Sync: sync}
}

// lunVersion is the version of the records' format.
const lunVersion = 1

// lunRecord is the file format of a disk's record.
type lunRecord struct {
	Version int `json:"version"`
	lunTarget
}

func (p *lunPlugin) write(t lunTarget) error {
	data, err := json.Marshal(lunRecord{Version: lunVersion, lunTarget: t})
	if err != nil {
		return err
	}
	dir := p.records(lunName(t), true)
	if err := dir.Disk.MakeDir(dir.Path); err != nil {
		return err
	}
	return dir.Replace(recordOf, data)
}

// read returns the record of a disk. If there is none, the error is fs.ErrNotExist.
func (p *lunPlugin) read(name string) (t lunTarget, err error) {
	data, err := p.records(name, false).Read(recordOf)
	if err != nil {
		return t, err
	}
	var r lunRecord
	if err := json.Unmarshal(data, &r); err != nil {
		return t, fmt.Errorf("decode record of %s: %w", name, err)
	}
	if r.Version != lunVersion {
		return t, fmt.Errorf("record of %s: version is %d; want %d", name, r.Version, lunVersion)
	}
	return r.lunTarget, nil
}

// others returns the records of other disks, and of the same disk in the other volumeMode. An
// unreadable record is an error, since its session may be in use.
func (p *lunPlugin) others(except string) (out []lunTarget, err error) {
	list, err := p.Devices(context.Background())
	if err != nil {
		return nil, err
	}
	for _, d := range list {
		if d.Name == except {
			continue
		}
		t, err := p.read(d.Name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// turn calls f once no other call with the same Lock is running. A call that never returns blocks
// only that Lock.
func (p *lunPlugin) turn(ctx context.Context, t lunTarget, f func() error) error {
	key := t.Lock
	if key == "" {
		key = t.Key
	}
	_, err := detached.Next(ctx, &p.turns, key, func() (struct{}, error) { return struct{}{}, f() })
	if err != nil && ctx.Err() != nil {
		err = errors.Join(err, volumemgr.ErrUncertain)
	}
	return err
}

// attach attaches the disk.
func (p *lunPlugin) attach(ctx context.Context, t lunTarget, v *volumemgr.Volume) (string, error) {
	if have, err := p.read(lunName(t)); err == nil {
		t.Detail = have.Detail // as changed by an earlier Attach
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := p.write(t); err != nil {
		return "", err
	}
	others, err := p.others(lunName(t))
	if err != nil {
		return "", err
	}
	return p.cfg.Network.Attach(ctx, t, v, others, func(detail any) error {
		data, err := json.Marshal(detail)
		if err != nil {
			return err
		}
		t.Detail = data
		return p.write(t)
	})
}

// MountDevice attaches the disk. With volumeMode Filesystem it prepares the file
// system and mounts it, unless it is mounted.
func (p *lunPlugin) MountDevice(ctx context.Context, v *volumemgr.Volume) error {
	t, fsType, readOnly, err := p.source(v.Spec)
	if err != nil {
		return err
	}
	return p.turn(ctx, t, func() error {
		found, err := mount.Find(ctx, p.cfg.Mounter, v.DevicePath)
		if err != nil || len(found) > 0 {
			return err
		}
		device, err := p.attach(ctx, t, v)
		if err != nil {
			return errors.Join(err, volumemgr.ErrUncertain)
		}
		if t.Block {
			return nil
		}
		f := mount.FileSystem{Type: fsType, Source: device, Target: v.DevicePath, Options: lunOptions(v.Spec)}
		if readOnly {
			f.Options = mount.Join(f.Options, []string{"ro"})
		}
		if err := disk.Prepare(ctx, p.cfg.Run, f); err != nil {
			return errors.Join(err, volumemgr.ErrUncertain) // the disk is attached
		}
		if err := os.MkdirAll(v.DevicePath, 0o750); err != nil {
			return errors.Join(err, volumemgr.ErrUncertain)
		}
		if err := p.cfg.Mounter.Mount(ctx, f); err != nil {
			return errors.Join(err, volumemgr.ErrUncertain)
		}
		return nil
	})
}

func lunOptions(spec *volumemgr.Spec) []string {
	if pv := spec.PersistentVolume; pv != nil {
		return mount.Join(mount.OptionsOf(pv.Annotations, pv.Spec.MountOptions))
	}
	return nil
}

// UnmountDevice unmounts a disk and detaches it. It returns an error if a pod still uses it.
func (p *lunPlugin) UnmountDevice(ctx context.Context, d volumemgr.Device) error {
	if !plain(d.Name) {
		return fmt.Errorf("%.64q is not the name of a device", d.Name)
	}
	known, err := p.read(d.Name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if known.Key == "" {
		known.Key = strings.TrimPrefix(d.Name, blockMark)
	}
	return p.turn(ctx, known, func() error {
		if err := p.unmount(ctx, d); err != nil {
			return err
		}
		t, err := p.read(d.Name)
		if err == nil {
			var others []lunTarget
			if others, err = p.others(d.Name); err != nil {
				return err
			}
			if err := p.cfg.Network.Detach(ctx, t, others); err != nil {
				return err
			}
			if err := p.records(d.Name, true).Remove(recordOf); err != nil {
				return err
			}
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		err = os.Remove(filepath.Dir(d.Path))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}

func (p *lunPlugin) unmount(ctx context.Context, d volumemgr.Device) error {
	path, err := mount.Resolve(d.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	table, err := p.cfg.Mounter.Table(ctx)
	if err != nil {
		return err
	}
	if at := p.sharing(table, path); len(at) > 0 {
		return fmt.Errorf("device %s is still mounted at %s", d.Name, at[0].Target)
	}
	return mount.Clean(ctx, p.cfg.Mounter, d.Path, mount.Plain)
}

// sharing returns the mounts, in pods, of the disk that is mounted at path.
func (p *lunPlugin) sharing(table mount.Table, path string) (out []mount.Entry) {
	at := table.At(path)
	if len(at) == 0 {
		return nil
	}
	own, escaped := at[len(at)-1], "/volumes/"+strings.ReplaceAll(p.Name(), "/", "~")+"/"
	for _, e := range table {
		if e.Major == own.Major && e.Minor == own.Minor && e.Root == own.Root && e.Target != path && strings.Contains(e.Target, escaped) {
			out = append(out, e)
		}
	}
	return out
}

// remember writes the name of a volume's device into its state directory.
func remember(v *volumemgr.Volume, name string) error {
	if v.StateDir == "" {
		return nil
	}
	dir := durable.Dir{Path: v.StateDir, Disk: durable.OS{DirMode: 0o750, FileMode: 0o600}}
	if err := dir.Disk.MakeDir(dir.Path); err != nil {
		return err
	}
	return dir.Replace(deviceOf, []byte(name))
}

// forget removes the file that remember wrote.
func forget(v *volumemgr.Volume) error {
	if v.StateDir == "" {
		return nil
	}
	for _, path := range []string{filepath.Join(v.StateDir, deviceOf+durable.TempSuffix), filepath.Join(v.StateDir, deviceOf), v.StateDir} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// SetUp bind-mounts the disk's file system into the pod's directory.
func (p *lunPlugin) SetUp(ctx context.Context, v *volumemgr.Volume) (volumemgr.Result, error) {
	t, _, readOnly, err := p.source(v.Spec)
	if err != nil {
		return volumemgr.Result{}, err
	}
	if v.DevicePath == "" {
		return volumemgr.Result{}, errors.New("the volume's disk is not mounted")
	}
	result := volumemgr.Result{Path: v.Path, ReadOnly: readOnly}
	found, err := mount.Find(ctx, p.cfg.Mounter, v.Path)
	if err != nil {
		return volumemgr.Result{}, err
	}
	if len(found) > 0 && v.Remount {
		return result, nil
	}
	if err := remember(v, lunName(t)); err != nil {
		return volumemgr.Result{}, err
	}
	if len(found) == 0 {
		if err = os.MkdirAll(v.Path, 0o750); err == nil {
			err = p.cfg.Mounter.Bind(ctx, mount.Bind{Source: v.DevicePath, Target: v.Path, ReadOnly: readOnly})
		}
	}
	if err == nil {
		err = p.own(ctx, v, readOnly)
	}
	if err == nil || v.Found && len(found) > 0 {
		return result, err
	}
	if cerr := p.TearDown(context.WithoutCancel(ctx), v); cerr != nil {
		err = errors.Join(err, cerr, volumemgr.ErrUncertain)
	}
	return volumemgr.Result{}, err
}

// own gives the files to the pod's fsGroup, unless another pod uses the volume.
func (p *lunPlugin) own(ctx context.Context, v *volumemgr.Volume, readOnly bool) error {
	if v.FSGroup == nil || readOnly {
		return nil
	}
	table, err := p.cfg.Mounter.Table(ctx)
	if err != nil {
		return fmt.Errorf("look for other pods with the volume: %w", err)
	}
	path, err := mount.Resolve(v.Path)
	if err != nil {
		return err
	}
	if len(p.sharing(table, path)) > 0 {
		return nil // another pod has decided the group
	}
	return fsgroup.Apply(ctx, fsgroup.Request{
		Root: v.Path, GID: *v.FSGroup,
		OnRootMismatch: v.FSGroupPolicy != nil && *v.FSGroupPolicy == v1.FSGroupChangeOnRootMismatch,
	})
}

// TearDown unmounts the volume.
func (p *lunPlugin) TearDown(ctx context.Context, v *volumemgr.Volume) error {
	if err := mount.Clean(ctx, p.cfg.Mounter, v.Path, mount.Plain); err != nil {
		return err
	}
	return forget(v)
}

// MapDevice attaches the disk, and returns the path of its block device.
func (p *lunPlugin) MapDevice(ctx context.Context, v *volumemgr.Volume) (device string, err error) {
	t, _, _, err := p.source(v.Spec)
	if err != nil {
		return "", err
	}
	if err := remember(v, lunName(t)); err != nil {
		return "", err
	}
	var found string
	err = p.turn(ctx, t, func() (err error) {
		found, err = p.attach(ctx, t, v)
		return err
	})
	if err != nil {
		return "", err // the abandoned call may still write found
	}
	return found, nil
}

// UnmapDevice removes the volume's file in the state directory.
func (p *lunPlugin) UnmapDevice(_ context.Context, v *volumemgr.Volume) error { return forget(v) }
