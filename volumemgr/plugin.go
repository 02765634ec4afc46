package volumemgr

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The interface of a plugin, and its optional extensions. The manager decides when to call the
// methods; a plugin never calls the manager.

// Plugin implements one kind of volume. A [Manager] calls its methods from many goroutines, but
// never two operations at once on the same volume of a pod, or on the same device.
//
// Operations are idempotent: each may be called again after a failure, after a success, and after
// a crash in the middle. They must return soon after ctx ends; ctx always has a deadline (see
// [Deadliner]).
//
// The interfaces [Refresher], [DevicePlugin], [BlockPlugin], [Checker], [Deadliner], [Meter] and
// [Labeler] are optional.
type Plugin interface {
	// Name is the kubelet's name of the plugin, such as
	// "kubernetes.io/empty-dir". It is part of paths on disk.
	Name() string
	// Supports reports whether spec is of this plugin's kind. It only checks which source is set,
	// without side effects.
	Supports(spec *Spec) bool
	// SetUp makes the volume ready for the pod's containers: it creates v.Path, with missing
	// parents (0750), and its content. If the volume is ready already, it changes only what
	// differs from v. With v.Remount, containers use the volume: SetUp must not remove anything
	// from it, even if it fails.
	//
	// An error means that nothing is mounted, unless it is ErrUncertain or caused by ctx. In
	// these two cases, TearDown is called when the volume is no longer wanted. See also
	// ErrTransient.
	SetUp(ctx context.Context, v *Volume) (Result, error)
	// TearDown undoes SetUp and removes v.Path; missing parts are not an error. If only the
	// volume's directory is known, v.Spec and v.Pod are nil. TearDown must never remove anything
	// below a mount point, which is data of a server or of other pods. It returns an error if
	// anything remains mounted.
	TearDown(ctx context.Context, v *Volume) error
}

// Spec is the source of a volume: a volume of a pod's spec, or the persistent volume to which its
// claim is bound. Exactly one of the two is set. A Spec is shared; do not modify it.
type Spec struct {
	Volume           *v1.Volume
	PersistentVolume *v1.PersistentVolume
	// ReadOnly is the readOnly field of the reference to the claim. Sources of inline volumes
	// have their own field.
	ReadOnly bool
}

// Name returns the volume's name on disk: that of the persistent volume, or else of
// the pod's volume.
func (s *Spec) Name() string {
	if s.PersistentVolume != nil {
		return s.PersistentVolume.Name
	}
	return s.Volume.Name
}

// Block reports whether pods get the volume as a block device.
func (s *Spec) Block() bool {
	pv := s.PersistentVolume
	return pv != nil && pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == v1.PersistentVolumeBlock
}

// Volume is one volume of one pod, the argument of a plugin's operation. The operation owns it,
// but the objects that it points to are shared; do not modify them.
type Volume struct {
	// Spec and Pod are nil if an earlier process left the volume's directory and nothing else is
	// known. For SetUp they are always set.
	Spec *Spec
	Pod  *v1.Pod
	// UID is the pod's UID, and Name the volume's name on disk.
	UID  types.UID
	Name string
	// Path is ROOT/pods/<uid>/volumes/<plugin>/<name>, the plugin's name with
	// '~' for '/'; "volumeDevices" instead of "volumes" for a block device.
	Path string
	// StateDir is ROOT/pods/<uid>/plugins/<plugin>/<name>, a directory for the
	// plugin's own files. The plugin creates it if it needs it; TearDown removes
	// it.
	StateDir string
	// DevicePath is the mount point of a DevicePlugin's device, and "" for other plugins.
	DevicePath string
	// FSGroup is the group that has to own the files. FSGroupPolicy says when the owner is checked;
	// nil means Always. FSUser is the user of all containers; nil if they differ or one has none.
	FSGroup       *int64
	FSGroupPolicy *v1.PodFSGroupChangePolicy
	FSUser        *int64
	// SizeLimit is the limit of disk space in bytes; 0 means none. It applies to emptyDir volumes
	// on disk, and to volumes of ConfigMaps.
	SizeLimit int64
	// Remount reports whether this process has set the volume up before, so that it may be in use.
	// Found reports that an earlier process has set it up.
	Remount, Found bool
	// Below are the directories in this volume, as relative paths, on which other volumes of the
	// pod are mounted (first level of nesting). In a read-only volume they have to exist before
	// its containers start.
	Below []string
	// Warn sends an event of type Warning about the pod. It is never nil and does not block.
	Warn func(reason, message string)
}

// Result says where SetUp has made a volume, and when its content has to be renewed.
type Result struct {
	// Path is the host path that containers mount, "" if the runtime creates the
	// volume itself (image volumes).
	Path string
	// ReadOnly reports whether the volume is read-only, whatever a mount requests.
	ReadOnly bool
	// Again is the time after which the content expires and SetUp has to be called again; 0 means
	// never.
	Again time.Duration
}

// SetUp, MountDevice and MapDevice return these errors if a failure has not left the volume
// unmounted. They are matched with errors.Is.
var (
	// ErrUncertain means that the volume may be mounted, or may be later. An operation that fails
	// after its context has ended counts as uncertain, whatever it returns.
	ErrUncertain = errors.New("the volume may be mounted")
	// ErrTransient means that the operation changed nothing: the volume is as mounted, uncertain
	// or unmounted as before.
	ErrTransient = errors.New("the operation changed nothing")
	// ErrNoDevice means that the device is not mounted although MountDevice succeeded.
	// MountDevice is called again before the next attempt. Only SetUp and MapDevice may return
	// it.
	ErrNoDevice = errors.New("the volume's device is not mounted")
)

// Ref is the identity of an object on which the content of a volume depends. Callers of
// Manager.Changed and the plugin's Sources must use the same values. Namespace is "" for
// cluster-scoped objects.
type Ref struct {
	// Kind is "ConfigMap", "Secret", "ClusterTrustBundle", or any other value on
	// which a plugin and its source agree.
	Kind, Namespace, Name string
}

// Refresher is a Plugin whose volumes change their content while they are mounted. SetUp is
// called, with v.Remount, when Manager.Changed reports one of the volume's sources, when the pod
// has changed and Stale returns true, and after Result.Again. Nothing is polled.
type Refresher interface {
	Plugin
	// Sources returns the objects that the content depends on, including those that do not exist
	// yet: a change of one of them also retries a failed set-up. It has no side effects.
	Sources(spec *Spec, pod *v1.Pod) []Ref
	// Stale reports whether the change of the pod from was to now changes the content. It has no
	// side effects.
	Stale(spec *Spec, was, now *v1.Pod) bool
}

// DevicePlugin is a Plugin whose volumes are mounted once for the node, and from there into each
// pod. MountDevice is called before the first SetUp, UnmountDevice after the last TearDown. Their
// errors mean the same as SetUp's.
type DevicePlugin interface {
	Plugin
	// Device returns the device of v; its Name is "" if v has none. If v.Spec is nil, Device
	// finds the device by v.Path, v.Name and the plugin's own files. It changes nothing.
	Device(v *Volume) (Device, error)
	// Devices returns the devices that are mounted now, including those of an earlier process.
	Devices(ctx context.Context) ([]Device, error)
	// MountDevice mounts the device of v at v.DevicePath.
	MountDevice(ctx context.Context, v *Volume) error
	// UnmountDevice unmounts d and removes d.Path. It returns an error while the
	// device is in use.
	UnmountDevice(ctx context.Context, d Device) error
}

// Device is the part of a volume that several pods share.
type Device struct {
	// Name is unique within the plugin; "" means no device.
	Name string
	// Path is its mount point, below ROOT/plugins.
	Path string
}

// BlockPlugin is a Plugin whose volumes can be used as block devices. The manager creates the
// symbolic link at v.Path to the device.
type BlockPlugin interface {
	Plugin
	// MapDevice makes the device ready for the pod and returns its path, such as
	// /dev/sdb1, with symbolic links resolved.
	MapDevice(ctx context.Context, v *Volume) (device string, err error)
	// UnmapDevice undoes MapDevice; v.Spec and v.Pod may be nil.
	UnmapDevice(ctx context.Context, v *Volume) error
}

// Checker is a Plugin that knows before a set-up whether it would fail. Check has no side effects.
type Checker interface {
	Plugin
	Check(ctx context.Context, spec *Spec) error
}

// Deadliner is a Plugin that sets the deadlines of its operations.
type Deadliner interface {
	Plugin
	// Deadline returns the timeout of an operation on a volume with that spec; 0 means the
	// default, two minutes. spec is nil for Devices and UnmountDevice, and for the TearDown of a
	// volume of which only the directory is known.
	Deadline(spec *Spec) time.Duration
}

// Meter is a Plugin that measures its volumes itself. Other volumes are measured by statfs if
// something is mounted on v.Path, otherwise by the project quota of v.StateDir, otherwise by
// walking the directory.
type Meter interface {
	Plugin
	// Measure returns the volume's usage, or ErrNoUsage for a volume without a size of its own.
	Measure(ctx context.Context, v *Volume) (Usage, error)
}

// Labeler is a Plugin that sets the plugin name of its volumes in metrics, such as the name of a
// CSI driver.
type Labeler interface {
	Plugin
	// Label returns the plugin name of a volume; "" means Plugin.Name. spec is nil if only the
	// device is known; d.Name is "" if there is no device.
	Label(spec *Spec, d Device) string
}

// ErrNoUsage is returned for a volume whose space is counted elsewhere, such as an image volume.
var ErrNoUsage = errors.New("the usage of this volume is not measured separately")

// Usage is the used and free space of a volume. Unknown fields are -1.
type Usage struct {
	Capacity, Used, Available      int64 // bytes
	Inodes, InodesUsed, InodesFree int64
	// At is the time of the measurement.
	At time.Time
	// AtLeast reports that Used and InodesUsed are lower bounds, since a part of the volume was
	// not counted.
	AtLeast bool
}

// Mounter is the node's mount table. Package mount implements it for Linux. Package mounttest
// implements it in memory, with failures on demand. The manager uses Mounts and Unmount; plugins
// use what they need.
type Mounter interface {
	// Mounts returns the mounts at and below dir, in the table's order: of two mounts with the same
	// Path, the later one is on top. dir is absolute and free of symbolic links; "/" returns all. If
	// dir does not exist, there are none.
	Mounts(dir string) ([]Mount, error)
	// Mount mounts source on target, which must exist. Options are those of mount(8). With "bind"
	// or "rbind" it is a bind mount, which is remounted if other options require it. After an
	// error nothing is mounted, unless the error is ErrUncertain.
	Mount(ctx context.Context, source, target, fsType string, options []string) error
	// Unmount unmounts the topmost mount of target, and never follows a symbolic link. It
	// succeeds if nothing is mounted there.
	Unmount(ctx context.Context, target string) error
}

// Mount is a line of the mount table (proc_pid_mountinfo(5)).
type Mount struct {
	Path    string // the mount point
	Root    string // the mounted path within the file system
	Device  string // major:minor
	FSType  string
	Source  string
	Options []string // options of the mount and of the file system
}
