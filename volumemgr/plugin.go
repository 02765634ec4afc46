package volumemgr

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// What a plugin has to do and what it may do beyond that. The manager decides when;
// a plugin never calls the manager.

// Plugin makes one kind of volume. A [Manager] calls its methods from many
// goroutines, but never two operations on the same volume of the same pod at
// once, nor two on the same device.
//
// Operations are idempotent: each may be called again after it has failed,
// after it has succeeded, and after a crash in the middle of it. They return
// soon after ctx ends; ctx always has a deadline (see [Deadliner]).
//
// What a plugin can do beyond that it says by implementing [Refresher],
// [DevicePlugin], [BlockPlugin], [Deadliner], [Meter] or [Labeler].
type Plugin interface {
	// Name is the kubelet's name of the plugin, such as
	// "kubernetes.io/empty-dir". It is part of paths on disk.
	Name() string
	// Supports reports whether spec is of this plugin's kind. It is pure and
	// cheap, and looks at nothing but which source is set.
	Supports(spec *Spec) bool
	// SetUp makes the volume ready for the pod's containers: it makes v.Path,
	// with its missing parents (0750), and whatever is in it. On a volume that
	// is ready already it changes only what differs from what v asks for;
	// with v.Remount containers use the volume, so that SetUp never takes
	// anything away from them, least of all when it fails.
	//
	// An error means that nothing is mounted, unless it is ErrUncertain or
	// comes of ctx, after which TearDown will be called when the volume is no
	// longer wanted. See also ErrTransient.
	SetUp(ctx context.Context, v *Volume) (Result, error)
	// TearDown undoes SetUp and removes v.Path, whatever is left of either; what is
	// gone already is no error. It may know the volume from its directory alone:
	// then v.Spec and v.Pod are nil. It never removes what lies behind a mount
	// point, as that is data of the server or of other pods, and fails rather than
	// leave something mounted.
	TearDown(ctx context.Context, v *Volume) error
}

// Spec is what a volume is made from: a pod's own volume, or a persistent
// volume that its claim is bound to. Exactly one of the two is set. It is
// shared and not to be changed.
type Spec struct {
	Volume           *v1.Volume
	PersistentVolume *v1.PersistentVolume
	// ReadOnly is what the claim's reference says. The sources of inline
	// volumes have a field of their own.
	ReadOnly bool
}

// Name is the volume's name on disk: that of the persistent volume, else that
// of the pod's volume.
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

// Volume is one volume of one pod, as a plugin's operation sees it. It is the
// operation's own, but what it points to is shared and not to be changed.
type Volume struct {
	// Spec and Pod are nil if all that is known is a directory that an earlier
	// process left behind. SetUp always has both.
	Spec *Spec
	Pod  *v1.Pod
	// UID is the pod's, Name the volume's name on disk.
	UID  types.UID
	Name string
	// Path is ROOT/pods/<uid>/volumes/<plugin>/<name>, the plugin's name with
	// '~' for '/'; "volumeDevices" instead of "volumes" for a block device.
	Path string
	// StateDir is ROOT/pods/<uid>/plugins/<plugin>/<name>, a place for what a
	// plugin wants to remember. Nobody makes it but the plugin; TearDown
	// removes it.
	StateDir string
	// DevicePath is where a DevicePlugin's device is mounted, "" with other
	// plugins.
	DevicePath string
	// FSGroup is the group that the files shall belong to, FSGroupPolicy when
	// to look for those that do not: nil as Always. FSUser is the user that
	// all containers run as, nil if they differ or do not say.
	FSGroup       *int64
	FSGroupPolicy *v1.PodFSGroupChangePolicy
	FSUser        *int64
	// SizeLimit is what the volume may take of the node's disk, in bytes; 0 is
	// without limit. It is a matter of emptyDir volumes on disk, and of
	// volumes of ConfigMaps.
	SizeLimit int64
	// Remount reports that the volume was set up by this process and may be in
	// use; Found that an earlier process left it, so that it may be in use
	// as well.
	Remount, Found bool
	// Below are the directories, relative to the volume, that other volumes
	// of the pod are mounted on within this one (first level of nesting). A
	// read-only volume has to have them before its containers start.
	Below []string
	// Warn informs the pod's owner of something, in an event of type Warning.
	// It is never nil and never blocks.
	Warn func(reason, message string)
}

// Result is what a SetUp came to.
type Result struct {
	// Path is the host path that containers mount, "" if the runtime makes
	// the volume by itself (image volumes).
	Path string
	// ReadOnly reports that nothing may be written whatever a mount asks for.
	ReadOnly bool
	// Again is how long the content is good for: SetUp is called again that
	// long after it returned. 0 is for ever.
	Again time.Duration
}

// Errors of SetUp, MountDevice and MapDevice that say more than "it failed and
// left nothing". They are found anywhere in an error's tree (errors.Is).
var (
	// ErrUncertain means that the volume may be mounted all the same, or may
	// come to be. An operation whose context has ended counts as uncertain
	// whatever it returns.
	ErrUncertain = errors.New("the volume may be mounted")
	// ErrTransient means that nothing is known to have changed: what was
	// uncertain stays so, what was not mounted is not.
	ErrTransient = errors.New("the volume is as it was")
	// ErrNoDevice, of SetUp and MapDevice alone, means that the device is not
	// mounted although MountDevice returned without an error: MountDevice is
	// called again before the next try.
	ErrNoDevice = errors.New("the volume's device is not mounted")
)

// Ref names an object in a pod's namespace, or in none. It is the key of
// Manager.Changed: a plugin's Sources and whoever watches objects have to spell it
// alike. Namespace is "" for objects of the cluster.
type Ref struct {
	// Kind is "ConfigMap", "Secret", "ClusterTrustBundle" or what else a
	// plugin and its source agree on.
	Kind, Namespace, Name string
}

// Refresher is a Plugin with volumes whose content changes while they are
// mounted. Nothing is polled: SetUp is called, with v.Remount, when one of the
// volume's sources is said to have changed (Manager.Changed), when the pod
// has changed so that Stale is true, and when Result.Again says so.
type Refresher interface {
	Plugin
	// Sources are the objects that the content comes from, those included that
	// do not exist (yet): a change of one of them also ends the wait of a
	// volume that could not be set up. It is pure.
	Sources(spec *Spec, pod *v1.Pod) []Ref
	// Stale reports whether the content that was made for the pod as it was has
	// to be made again for the pod as it is now. It is pure.
	Stale(spec *Spec, was, now *v1.Pod) bool
}

// DevicePlugin is a Plugin some of whose volumes are mounted once for the node
// and from there into every pod that uses them. MountDevice comes before the
// first SetUp, UnmountDevice after the last TearDown; the classes of their
// errors are those of SetUp.
type DevicePlugin interface {
	Plugin
	// Device is the device that v belongs to, "" if v has none. It has to be
	// found from v.Path and v.Name alone if v.Spec is nil. It touches nothing
	// but may read what the plugin has written.
	Device(v *Volume) (Device, error)
	// Devices lists the devices that are mounted now, as an earlier process
	// may have left them.
	Devices(ctx context.Context) ([]Device, error)
	// MountDevice mounts what v belongs to at v.DevicePath.
	MountDevice(ctx context.Context, v *Volume) error
	// UnmountDevice unmounts d and removes d.Path. It fails if anybody else
	// uses the device still.
	UnmountDevice(ctx context.Context, d Device) error
}

// Device is what volumes of several pods share.
type Device struct {
	// Name is unique within the plugin; "" is no device.
	Name string
	// Path is where it is mounted, below ROOT/plugins.
	Path string
}

// BlockPlugin is a Plugin that can hand out volumes as block devices. The
// manager keeps the link at v.Path that leads to the device.
type BlockPlugin interface {
	Plugin
	// MapDevice makes the device ready for the pod and returns its path, such
	// as /dev/sdb1, symbolic links resolved.
	MapDevice(ctx context.Context, v *Volume) (device string, err error)
	// UnmapDevice undoes MapDevice; v.Spec and v.Pod may be nil.
	UnmapDevice(ctx context.Context, v *Volume) error
}

// Deadliner is a Plugin that knows how long its operations may take. Those of
// others have two minutes.
type Deadliner interface {
	Plugin
	Deadline(spec *Spec) time.Duration // spec is nil in a TearDown of a found volume
}

// Meter is a Plugin that measures its volumes itself. Volumes of others are
// measured by statfs where something is mounted on v.Path, else by the
// directory's project quota, else by walking it.
type Meter interface {
	Plugin
	// Measure returns ErrNoUsage for a volume that has no size of its own.
	Measure(ctx context.Context, v *Volume) (Usage, error)
}

// Labeler is a Plugin that stands for several, which have names of their own in
// metrics.
type Labeler interface {
	Plugin
	// Label is the name of the plugin that makes a volume, of which spec or its
	// device may be all that is known: spec is nil then, or the device has no
	// name. "" is the plugin's own.
	Label(spec *Spec, d Device) string
}

// ErrNoUsage means that there is nothing to measure.
var ErrNoUsage = errors.New("the volume has no usage of its own")

// Usage is how full a volume is. Fields that are not known are -1.
type Usage struct {
	Capacity, Used, Available      int64 // bytes
	Inodes, InodesUsed, InodesFree int64
	// At is when it was measured.
	At time.Time
	// AtLeast means that Used and InodesUsed are lower bounds: part of the
	// volume has not been seen.
	AtLeast bool
}

// Mounter is the node's mount table and what changes it. Package mount below
// this one has it for Linux, and one in memory that fails on demand. The
// manager uses Mounts and Unmount, plugins take what they need.
type Mounter interface {
	// Mounts lists what is mounted on dir and below it, in the table's order:
	// of two with the same Path the later is on top. dir is absolute and free
	// of symbolic links; "/" lists everything. A dir that does not exist has
	// none, as long as the table has none for it.
	Mounts(dir string) ([]Mount, error)
	// Mount mounts source on target, which exists. Options are those of
	// mount(8); "bind" and "rbind" among them make it a bind mount, made
	// read-only and so on in the step that this takes. It leaves nothing
	// mounted when it fails, or the error is ErrUncertain.
	Mount(ctx context.Context, source, target, fsType string, options []string) error
	// Unmount removes the topmost mount of target, and never follows a
	// symbolic link. Nothing mounted there is no error.
	Unmount(ctx context.Context, target string) error
}

// Mount is a line of the mount table (proc_pid_mountinfo(5)).
type Mount struct {
	Path    string // the mount point
	Root    string // what of the file system is mounted there
	Device  string // major:minor
	FSType  string
	Source  string
	Options []string // of the mount and of the file system
}
