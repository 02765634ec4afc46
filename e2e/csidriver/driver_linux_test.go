package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nodewright/nodewright/internal/loopdev"
	"github.com/nodewright/nodewright/volumemgr/mount"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

func TestMain(m *testing.M) { os.Exit(plugintest.MainWithMounts(m)) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// got is a response without its error.
func got[T any](resp T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return resp
	}
}

// memoryDisks are disks without a kernel.
type memoryDisks struct {
	mu       sync.Mutex
	attached map[string]bool
	did      []string
}

func (m *memoryDisks) note(format string, args ...any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.did = append(m.did, fmt.Sprintf(format, args...))
	return nil
}

func (m *memoryDisks) attach(image string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.attached[image] = true
	return image, nil // is a file as well as a device
}

func (m *memoryDisks) detach(image string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.attached, image)
	return nil
}

func (m *memoryDisks) format(_ context.Context, device string) error {
	return m.note("format %s", filepath.Base(device))
}
func (m *memoryDisks) grow(image string) error { return m.note("grow %s", filepath.Base(image)) }
func (m *memoryDisks) growFS(_ string, bytes int64) error {
	return m.note("growFS %d", bytes)
}
func (m *memoryDisks) fit(_ context.Context, device string) error {
	return m.note("fit %s", filepath.Base(device))
}
func (m *memoryDisks) freeze(string) error { return m.note("freeze") }
func (m *memoryDisks) thaw(string) error   { return m.note("thaw") }

// rig is a driver in a directory of its own.
type rig struct {
	*driver
	t       testing.TB
	top     string
	staging string
	disks   *memoryDisks
}

func newRig(t testing.TB, m mount.Mounter) *rig {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	r := &rig{t: t, top: top, staging: filepath.Join(top, "staging"), disks: &memoryDisks{attached: map[string]bool{}}}
	must(t, os.Mkdir(r.staging, 0o755))
	r.driver = &driver{name: "disk.example.com", node: "n1", state: filepath.Join(top, "state"), dir: filepath.Join(top, "plugins"), mountGroup: true, mounter: m, disks: r.disks}
	must(t, r.check())
	must(t, r.open())
	return r
}

// again is the driver after it was killed.
func (r *rig) again() {
	r.t.Helper()
	d := r.driver
	r.driver = &driver{name: d.name, node: d.node, state: d.state, dir: d.dir, mountGroup: d.mountGroup, attach: d.attach, capacity: d.capacity, mounter: d.mounter, disks: d.disks}
	must(r.t, r.open())
}

func mountable(fsType string, mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType}},
	}
}

func asBlock() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
	}
}

var anyWriter = mountable("", csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER)

func (r *rig) create(name string, bytes int64, c *csi.VolumeCapability, source *csi.VolumeContentSource) *csi.Volume {
	r.t.Helper()
	return got(r.CreateVolume(r.t.Context(), &csi.CreateVolumeRequest{
		Name: name, VolumeCapabilities: []*csi.VolumeCapability{c}, CapacityRange: &csi.CapacityRange{RequiredBytes: bytes}, VolumeContentSource: source,
	}))(r.t).GetVolume()
}

func (r *rig) stage(id string, c *csi.VolumeCapability) error {
	_, err := r.NodeStageVolume(r.t.Context(), &csi.NodeStageVolumeRequest{VolumeId: id, StagingTargetPath: filepath.Join(r.staging, id), VolumeCapability: c})
	return err
}

func (r *rig) target(pod, id string) string { return filepath.Join(r.top, "pods", pod, id) }

func (r *rig) publish(pod, id string, c *csi.VolumeCapability, readOnly bool) error {
	_, err := r.NodePublishVolume(r.t.Context(), &csi.NodePublishVolumeRequest{
		VolumeId: id, StagingTargetPath: filepath.Join(r.staging, id), TargetPath: r.target(pod, id), VolumeCapability: c, Readonly: readOnly,
	})
	return err
}

func (r *rig) unpublish(pod, id string) error {
	_, err := r.NodeUnpublishVolume(r.t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: r.target(pod, id)})
	return err
}

func (r *rig) unstage(id string) error {
	_, err := r.NodeUnstageVolume(r.t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: filepath.Join(r.staging, id)})
	return err
}

func (r *rig) delete(id string) error {
	_, err := r.DeleteVolume(r.t.Context(), &csi.DeleteVolumeRequest{VolumeId: id})
	return err
}

// empty wants nothing to be left.
func (r *rig) empty(table mount.Table) {
	r.t.Helper()
	if left, err := entries(filepath.Join(r.state, "data")); err != nil || len(left) > 0 || len(r.volumes.all())+len(r.snapshots.all()) > 0 {
		r.t.Errorf("left %q, %v, %v (%v)", left, r.volumes.all(), r.snapshots.all(), err)
	}
	for _, e := range table {
		if strings.HasPrefix(e.Target, r.top) {
			r.t.Errorf("left mounted: %+v", e)
		}
	}
	if len(r.disks.attached) > 0 {
		r.t.Errorf("left attached: %v", r.disks.attached)
	}
}

// Whatever call of the mounter fails, or is the last one of a process, calls that
// are repeated bring the volume to where it shall be, and nothing leaks.
func TestEveryMountCallMayFail(t *testing.T) {
	for _, fsType := range []string{"", ext4} {
		for _, way := range []struct{ crash, after bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
			for failAt := 1; failAt < 16; failAt++ {
				m := &plugintest.MountMemory{Fail: plugintest.FailMountAt(failAt, way.crash), After: way.after}
				r := newRig(t, m)
				c := mountable(fsType, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER)
				id := r.create("v", 0, c, nil).GetVolumeId()
				must(t, os.Mkdir(filepath.Join(r.staging, id), 0o755))
				steps := []func() error{
					func() error { return r.stage(id, c) }, func() error { return r.publish("a", id, c, false) },
					func() error { return r.publish("b", id, c, true) }, func() error { return r.unpublish("b", id) },
					func() error { return r.unpublish("a", id) }, func() error { return r.unstage(id) }, func() error { return r.delete(id) },
				}
				for i, step := range steps {
					if step() != nil {
						m.Fail = nil
						r.again()
						if err := step(); err != nil {
							t.Fatalf("%q, %+v, fault %d: step %d again: %v", fsType, way, failAt, i, err)
						}
					}
				}
				m.Fail = nil
				table, err := m.Table(t.Context())
				must(t, err)
				r.empty(table)
			}
		}
	}
}

// What asks for more than there may be is refused, whoever asks.
func TestHostileRequests(t *testing.T) {
	r := newRig(t, &plugintest.MountMemory{})
	id := r.create("v", 1<<20, anyWriter, nil).GetVolumeId()
	ctx := t.Context()
	long, huge := strings.Repeat("x", 129), strings.Repeat("y", maxMap)
	create := func(change func(*csi.CreateVolumeRequest)) func() error {
		return func() error {
			req := &csi.CreateVolumeRequest{Name: "w", VolumeCapabilities: []*csi.VolumeCapability{anyWriter}}
			change(req)
			_, err := r.CreateVolume(ctx, req)
			return err
		}
	}
	stage := func(change func(*csi.NodeStageVolumeRequest)) func() error {
		return func() error {
			req := &csi.NodeStageVolumeRequest{VolumeId: id, StagingTargetPath: r.staging, VolumeCapability: anyWriter, PublishContext: map[string]string{keyAttached: "n1"}}
			change(req)
			_, err := r.NodeStageVolume(ctx, req)
			return err
		}
	}
	source := func(v, s string) *csi.VolumeContentSource {
		if v != "" {
			return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: v}}}
		}
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: s}}}
	}
	for name, tc := range map[string]struct {
		call func() error
		want codes.Code
	}{
		"no name":             {create(func(q *csi.CreateVolumeRequest) { q.Name = "" }), codes.InvalidArgument},
		"long name":           {create(func(q *csi.CreateVolumeRequest) { q.Name = long }), codes.InvalidArgument},
		"no capability":       {create(func(q *csi.CreateVolumeRequest) { q.VolumeCapabilities = nil }), codes.InvalidArgument},
		"a nil capability":    {create(func(q *csi.CreateVolumeRequest) { q.VolumeCapabilities = []*csi.VolumeCapability{nil} }), codes.InvalidArgument},
		"no access type":      {create(func(q *csi.CreateVolumeRequest) { q.VolumeCapabilities = []*csi.VolumeCapability{{}} }), codes.InvalidArgument},
		"unknown access mode": {create(func(q *csi.CreateVolumeRequest) { q.VolumeCapabilities[0] = mountable("", 99) }), codes.InvalidArgument},
		"another file system": {create(func(q *csi.CreateVolumeRequest) { q.VolumeCapabilities[0] = mountable("../x", 1) }), codes.InvalidArgument},
		"huge parameters":     {create(func(q *csi.CreateVolumeRequest) { q.Parameters = map[string]string{"kind": huge} }), codes.InvalidArgument},
		"unknown parameter":   {create(func(q *csi.CreateVolumeRequest) { q.Parameters = map[string]string{"a": ""} }), codes.InvalidArgument},
		"unknown kind":        {create(func(q *csi.CreateVolumeRequest) { q.Parameters = map[string]string{"kind": "tape"} }), codes.InvalidArgument},
		"negative size":       {create(func(q *csi.CreateVolumeRequest) { q.CapacityRange = &csi.CapacityRange{RequiredBytes: -1} }), codes.InvalidArgument},
		"size over its limit": {create(func(q *csi.CreateVolumeRequest) {
			q.CapacityRange = &csi.CapacityRange{RequiredBytes: 2, LimitBytes: 1}
		}), codes.InvalidArgument},
		"size without end":     {create(func(q *csi.CreateVolumeRequest) { q.CapacityRange = &csi.CapacityRange{RequiredBytes: 1<<63 - 1} }), codes.OutOfRange},
		"more than there is":   {create(func(q *csi.CreateVolumeRequest) { q.CapacityRange = &csi.CapacityRange{RequiredBytes: maxSize} }), codes.ResourceExhausted},
		"another node":         {create(func(q *csi.CreateVolumeRequest) { q.AccessibilityRequirements = elsewhere(r.label()) }), codes.ResourceExhausted},
		"source is no source":  {create(func(q *csi.CreateVolumeRequest) { q.VolumeContentSource = &csi.VolumeContentSource{} }), codes.InvalidArgument},
		"source is not there":  {create(func(q *csi.CreateVolumeRequest) { q.VolumeContentSource = source("../v", "") }), codes.NotFound},
		"snapshot not there":   {create(func(q *csi.CreateVolumeRequest) { q.VolumeContentSource = source("", "../v") }), codes.NotFound},
		"staged nowhere":       {stage(func(q *csi.NodeStageVolumeRequest) { q.StagingTargetPath = "" }), codes.InvalidArgument},
		"staged on the root":   {stage(func(q *csi.NodeStageVolumeRequest) { q.StagingTargetPath = "/" }), codes.InvalidArgument},
		"staged somewhere":     {stage(func(q *csi.NodeStageVolumeRequest) { q.StagingTargetPath = "/tmp/../etc" }), codes.InvalidArgument},
		"staged relatively":    {stage(func(q *csi.NodeStageVolumeRequest) { q.StagingTargetPath = "x" }), codes.InvalidArgument},
		"staged too deep":      {stage(func(q *csi.NodeStageVolumeRequest) { q.StagingTargetPath = "/" + strings.Repeat("a/", 3000) + "a" }), codes.InvalidArgument},
		"not attached":         {func() error { r.attach = true; defer func() { r.attach = false }(); return r.stage(id, anyWriter) }, codes.FailedPrecondition},
		"a directory as disk":  {func() error { return r.stage(id, mountable(ext4, 1)) }, codes.InvalidArgument},
		"a directory as block": {func() error { return r.stage(id, asBlock()) }, codes.InvalidArgument},
		"group is no number":   {func() error { return r.stage(id, grouped("-1")) }, codes.InvalidArgument},
		"given ID is a path": {stage(func(q *csi.NodeStageVolumeRequest) {
			q.VolumeId, q.VolumeContext = "../../x", map[string]string{keyCreate: kindDir}
		}), codes.InvalidArgument},
		"given size is no size": {stage(func(q *csi.NodeStageVolumeRequest) {
			q.VolumeId, q.VolumeContext = "x", map[string]string{keyCreate: kindDir, keySize: "1e999999999"}
		}), codes.InvalidArgument},
		"published unstaged": {func() error { return r.publish("a", id, anyWriter, false) }, codes.FailedPrecondition},
		"listed elsewhere": {func() error {
			_, err := r.ListVolumes(ctx, &csi.ListVolumesRequest{StartingToken: "vol-../../x"})
			return err
		}, codes.Aborted},
		"stats of elsewhere": {func() error {
			_, err := r.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: id, VolumePath: "/etc"})
			return err
		}, codes.NotFound},
		"expanded elsewhere": {func() error {
			_, err := r.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{VolumeId: id, VolumePath: "/etc"})
			return err
		}, codes.NotFound},
		"another call at work": {func() error {
			release, err := r.hold(id)
			must(t, err)
			defer release()
			return r.delete(id)
		}, codes.Aborted},
	} {
		if err := tc.call(); status.Code(err) != tc.want {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
	if list := r.volumes.all(); len(list) != 1 {
		t.Errorf("volumes %+v", list)
	}
}

func grouped(gid string) *csi.VolumeCapability {
	c := mountable("", 1)
	c.GetMount().VolumeMountGroup = gid
	return c
}

func elsewhere(label string) *csi.TopologyRequirement {
	return &csi.TopologyRequirement{Requisite: []*csi.Topology{{Segments: map[string]string{label: "n2"}}}}
}

// It unmounts and removes what it has mounted, and nothing else.
func TestForeignTargetsAreLeftAlone(t *testing.T) {
	m := &plugintest.MountMemory{}
	r := newRig(t, m)
	id := r.create("v", 0, anyWriter, nil).GetVolumeId()
	foreign := filepath.Join(r.top, "foreign")
	must(t, os.Mkdir(foreign, 0o755))
	must(t, m.Mount(t.Context(), mount.FileSystem{Type: "tmpfs", Source: "tmpfs", Target: foreign}))
	_, err := r.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: foreign})
	must(t, err)
	_, err = r.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: foreign})
	must(t, err)
	if found, err := mount.Find(t.Context(), m, foreign); err != nil || len(found) != 1 {
		t.Errorf("%v (%v)", found, err)
	}
}

// A driver that was killed between data and record, either way round, has no
// volume, and no data.
func TestHalfMadeDataIsSwept(t *testing.T) {
	r := newRig(t, &plugintest.MountMemory{})
	must(t, os.WriteFile(r.data("vol-x"), []byte("x"), 0o600))
	must(t, os.MkdirAll(filepath.Join(r.data("snap-x"), "a"), 0o700))
	id := r.create("kept", 0, anyWriter, nil).GetVolumeId()
	r.again()
	if left, err := entries(filepath.Join(r.state, "data")); err != nil || !slices.Equal(left, []string{id}) {
		t.Errorf("%q (%v)", left, err)
	}
	must(t, os.WriteFile(filepath.Join(r.state, "volumes", "x.json"), []byte("{"), 0o600))
	if err := (&driver{state: r.state}).open(); err == nil {
		t.Error("a damaged record, and no error")
	}
}

// Pods make what they like of their directories: the copy of it has their files,
// and nothing else.
func TestCopyOfHostileTree(t *testing.T) {
	r := newRig(t, &plugintest.MountMemory{})
	id := r.create("v", 1<<20, anyWriter, nil).GetVolumeId()
	tree, secret := r.data(id), filepath.Join(r.top, "secret")
	must(t, os.WriteFile(secret, []byte("secret"), 0o600))
	must(t, os.MkdirAll(filepath.Join(tree, "a/b"), 0o750))
	must(t, os.WriteFile(filepath.Join(tree, "a/b/file"), []byte("data"), 0o640))
	must(t, os.Symlink(secret, filepath.Join(tree, "link")))
	must(t, os.Symlink(r.top, filepath.Join(tree, "dirlink")))
	must(t, syscall.Mkfifo(filepath.Join(tree, "fifo"), 0o600))
	sparse, err := os.Create(filepath.Join(tree, "sparse"))
	must(t, err)
	must(t, sparse.Truncate(1<<40))
	_, err = sparse.WriteAt([]byte("end"), 1<<40-3)
	must(t, err)
	must(t, sparse.Close())
	snap := got(r.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: id}))(t).GetSnapshot()
	clone := r.create("c", 1<<20, anyWriter, &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
		Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: snap.GetSnapshotId()},
	}}).GetVolumeId()
	for path, want := range map[string]string{"a/b/file": "data"} {
		if b, err := os.ReadFile(filepath.Join(r.data(clone), path)); err != nil || string(b) != want {
			t.Errorf("%s: %q (%v)", path, b, err)
		}
	}
	for path, want := range map[string]string{"link": secret, "dirlink": r.top} {
		if to, err := os.Readlink(filepath.Join(r.data(clone), path)); err != nil || to != want {
			t.Errorf("%s: %q (%v)", path, to, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(r.data(clone), "fifo")); err == nil {
		t.Error("a pipe was copied")
	}
	info, err := os.Stat(filepath.Join(r.data(clone), "sparse"))
	must(t, err)
	if blocks := info.Sys().(*syscall.Stat_t).Blocks; info.Size() != 1<<40 || blocks > 2000 {
		t.Errorf("%d bytes in %d blocks", info.Size(), blocks)
	}
	deep := filepath.Join(tree, strings.Repeat("d/", maxDepth+2))
	must(t, os.MkdirAll(deep, 0o700))
	if _, err := r.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "deep", SourceVolumeId: id}); !errors.Is(err, errTooMuch) {
		t.Errorf("a deep tree: %v", err)
	}
	if left, err := entries(filepath.Join(r.state, "data")); err != nil || len(left) != 3 {
		t.Errorf("%q (%v)", left, err)
	}
}

// onLoops is a rig on the real kernel with real loop devices.
func onLoops(t *testing.T) *rig {
	t.Helper()
	plugintest.RequireMounts(t)
	r := newRig(t, &mount.Kernel{})
	r.driver.disks = loops{}
	probe := filepath.Join(r.top, "probe")
	must(t, makeImage(probe, minDisk))
	device, err := loopdev.Attach(probe, false)
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, os.ErrPermission) {
		t.Skip("no loop devices: ", err)
	}
	must(t, err)
	t.Cleanup(func() {
		for _, v := range r.volumes.all() {
			for _, path := range v.mounted() {
				_ = mount.Clean(context.Background(), r.mounter, path, mount.Plain)
			}
			_ = r.removeData(v.ID)
		}
	})
	if err := (loops{}).format(t.Context(), device); err != nil {
		_ = loopdev.Free(device)
		t.Skip("no file systems: ", err)
	}
	must(t, loopdev.Free(device))
	return r
}

// The life of a disk: staged, published twice, snapshotted while mounted, cloned
// larger, expanded while mounted, with the driver killed between all of it.
func TestDisk(t *testing.T) {
	r := onLoops(t)
	c := mountable(ext4, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER)
	c.GetMount().VolumeMountGroup, c.GetMount().MountFlags = "2000", []string{"noatime"}
	id := r.create("v", 32<<20, c, nil).GetVolumeId()
	must(t, os.Mkdir(filepath.Join(r.staging, id), 0o755))
	for range 2 {
		must(t, r.stage(id, c))
		r.again()
		must(t, r.publish("a", id, c, false))
		must(t, r.publish("b", id, c, true))
		r.again()
	}
	must(t, os.WriteFile(filepath.Join(r.target("a", id), "file"), []byte("data"), 0o640))
	if err := os.WriteFile(filepath.Join(r.target("b", id), "file"), nil, 0o640); !errors.Is(err, syscall.EROFS) {
		t.Errorf("read-only: %v", err)
	}
	info, err := os.Stat(filepath.Join(r.target("a", id), "file"))
	must(t, err)
	if gid := info.Sys().(*syscall.Stat_t).Gid; gid != 2000 {
		t.Errorf("group %d", gid)
	}
	if devices, err := loopdev.Of(r.data(id)); err != nil || len(devices) != 1 {
		t.Errorf("loop devices %q (%v)", devices, err)
	}
	for _, code := range []error{r.delete(id), r.publish("a", id, c, true)} {
		if c := status.Code(code); c != codes.FailedPrecondition && c != codes.AlreadyExists {
			t.Error(code)
		}
	}

	snap := got(r.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: id}))(t).GetSnapshot().GetSnapshotId()
	must(t, os.WriteFile(filepath.Join(r.target("a", id), "file"), []byte("later"), 0o640)) // thawed
	clone := r.create("c", 128<<20, c, &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
		Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: snap},
	}}).GetVolumeId()
	must(t, os.Mkdir(filepath.Join(r.staging, clone), 0o755))
	must(t, r.stage(clone, c))
	must(t, r.publish("a", clone, c, false))
	if b, err := os.ReadFile(filepath.Join(r.target("a", clone), "file")); err != nil || string(b) != "data" {
		t.Errorf("clone: %q (%v)", b, err)
	}
	if total := r.total(clone); total < 100<<20 {
		t.Errorf("clone: %d bytes", total)
	}

	r.expand(id, 96<<20)
	for _, v := range []string{id, clone} {
		must(t, r.unpublish("b", v))
		must(t, r.unpublish("a", v))
		r.again()
		must(t, r.unstage(v))
		must(t, r.unstage(v))
		must(t, r.stage(v, c))
		must(t, r.publish("a", v, c, false))
		if total := r.total(v); total < 80<<20 {
			t.Errorf("staged again: %d bytes", total)
		}
		must(t, r.unpublish("a", v))
		must(t, r.unstage(v))
		if devices, err := loopdev.Of(r.data(v)); err != nil || len(devices) != 0 {
			t.Errorf("loop devices %q (%v)", devices, err)
		}
		must(t, r.delete(v))
		must(t, r.unpublish("a", v))
	}
	got(r.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: snap}))(t)
	table, err := r.mounter.Table(t.Context())
	must(t, err)
	r.empty(table)
}

func (r *rig) expand(id string, bytes int64) {
	r.t.Helper()
	got(r.ControllerExpandVolume(r.t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: bytes}}))(r.t)
	r.again()
}

// A file system grows while pods use it.
func TestExpandedWhileMounted(t *testing.T) {
	r := onLoops(t)
	c := mountable(ext4, csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)
	id := r.create("v", 32<<20, c, nil).GetVolumeId()
	must(t, os.Mkdir(filepath.Join(r.staging, id), 0o755))
	must(t, r.stage(id, c))
	must(t, r.publish("a", id, c, false))
	r.expand(id, 96<<20)
	_, err := r.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{VolumeId: id, VolumePath: r.target("a", id)})
	if status.Code(err) == codes.FailedPrecondition {
		t.Skip(err)
	}
	must(t, err)
	if total := r.total(id); total < 80<<20 {
		t.Errorf("%d bytes", total)
	}
}

func (r *rig) total(id string) int64 {
	r.t.Helper()
	stats := got(r.NodeGetVolumeStats(r.t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: id, VolumePath: r.target("a", id)}))(r.t)
	health := got(r.NodeGetVolumeHealth(r.t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: id, VolumePublishPath: r.target("a", id)}))(r.t)
	if ill := health.GetVolumeHealth().GetHealthStatuses(); len(ill) > 0 {
		r.t.Errorf("%s: %v", id, ill)
	}
	return stats.GetUsage()[0].GetTotal()
}

// A block device keeps what was written to it, and is larger after it was expanded.
func TestBlockDevice(t *testing.T) {
	r := onLoops(t)
	id := r.create("v", 8<<20, asBlock(), nil).GetVolumeId()
	for round := range 2 {
		must(t, r.stage(id, asBlock()))
		must(t, r.publish("a", id, asBlock(), false))
		f, err := os.OpenFile(r.target("a", id), os.O_RDWR|os.O_SYNC, 0)
		must(t, err)
		if round == 0 {
			_, err = f.WriteAt([]byte("mine"), 4096)
			must(t, err)
			got(r.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: 16 << 20}}))(t)
			got(r.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{VolumeId: id, VolumePath: r.target("a", id)}))(t)
		}
		b := make([]byte, 4)
		_, err = f.ReadAt(b, 4096)
		must(t, err)
		if end, err := f.Seek(0, 2); err != nil || end != 16<<20 || string(b) != "mine" {
			t.Errorf("round %d: %d bytes, %q (%v)", round, end, b, err)
		}
		must(t, f.Close())
		must(t, r.unpublish("a", id))
		must(t, r.unstage(id))
		r.again()
	}
	// What a pod has written is not formatted.
	must(t, os.MkdirAll(filepath.Join(r.staging, id), 0o755))
	if err := r.stage(id, mountable(ext4, 1)); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("staged as a file system: %v", err)
	}
	must(t, r.unstage(id))
	must(t, r.delete(id))
}

// Inline volumes, and those of manifests, are made when they are wanted.
func TestVolumesThatNobodyCreates(t *testing.T) {
	for _, kind := range []string{kindDir, kindDisk} {
		t.Run(kind, func(t *testing.T) {
			r := onLoops(t)
			inline := func(target string) error {
				_, err := r.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{VolumeId: "csi-1", TargetPath: target, VolumeCapability: mountable("", 1),
					VolumeContext: map[string]string{keyEphemeral: "true", reserved + "pod.name": "p", keyKind: kind, keySize: "16Mi"}})
				return err
			}
			must(t, inline(r.target("a", "csi-1")))
			must(t, inline(r.target("a", "csi-1")))
			must(t, os.WriteFile(filepath.Join(r.target("a", "csi-1"), "x"), []byte("x"), 0o600))
			r.again()
			must(t, r.unpublish("a", "csi-1"))
			must(t, r.unpublish("a", "csi-1"))

			stage := func() error {
				_, err := r.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{VolumeId: "mine", StagingTargetPath: filepath.Join(r.staging, "mine"),
					VolumeCapability: anyWriter, VolumeContext: map[string]string{keyCreate: kind, keySize: "16Mi"}})
				return err
			}
			must(t, stage())
			must(t, stage())
			must(t, r.publish("a", "mine", anyWriter, false))
			list := got(r.ListVolumes(t.Context(), &csi.ListVolumesRequest{}))(t)
			if len(list.GetEntries()) > 0 {
				t.Errorf("listed %v", list)
			}
			must(t, r.unpublish("a", "mine"))
			must(t, r.unstage("mine"))
			must(t, r.delete("mine"))
			table, err := r.mounter.Table(t.Context())
			must(t, err)
			r.empty(table)
		})
	}
}

// A second writer is refused where there may be one alone.
func TestSingleWriter(t *testing.T) {
	r := newRig(t, &plugintest.MountMemory{})
	one := mountable("", csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER)
	id := r.create("v", 0, one, nil).GetVolumeId()
	must(t, r.stage(id, one))
	must(t, r.publish("a", id, one, false))
	must(t, r.publish("a", id, one, false))
	if err := r.publish("b", id, one, false); status.Code(err) != codes.FailedPrecondition {
		t.Error(err)
	}
	must(t, r.unpublish("a", id))
	must(t, r.publish("b", id, one, false))
}

// Volumes together have no more than --capacity.
func TestCapacity(t *testing.T) {
	r := newRig(t, &plugintest.MountMemory{})
	r.capacity = 3 << 20
	r.create("a", 2<<20, anyWriter, nil)
	room := func() int64 {
		return got(r.GetCapacity(t.Context(), &csi.GetCapacityRequest{}))(t).GetAvailableCapacity()
	}
	if n := room(); n != 1<<20 {
		t.Errorf("%d bytes", n)
	}
	_, err := r.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: "b", VolumeCapabilities: []*csi.VolumeCapability{anyWriter}, CapacityRange: &csi.CapacityRange{RequiredBytes: 2 << 20}})
	if status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
	if resp := got(r.GetCapacity(t.Context(), &csi.GetCapacityRequest{AccessibleTopology: elsewhere(r.label()).GetRequisite()[0]}))(t); resp.GetAvailableCapacity() != 0 {
		t.Errorf("elsewhere: %d bytes", resp.GetAvailableCapacity())
	}
}

// An image is taken for what is in it, whoever has written it.
func FuzzFormatIn(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 2000))
	f.Fuzz(func(t *testing.T, head []byte) {
		is := formatIn(head)
		empty := len(strings.Trim(string(head), "\x00")) == 0
		if empty != (is == "") || is != "" && is != ext4 && is != raw {
			t.Fatalf("%q", is)
		}
		if n := sizeIn(head); n < 0 || n > maxSize || n > 0 && is != ext4 {
			t.Fatalf("%d bytes of %q", n, is)
		}
	})
}
