package csi

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/csitest"
	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/mount"
	"github.com/nodewright/nodewright/volumemgr/plugins"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

const testDriver = "disk.example.com"

// node is a machine with one driver, and the manager of one life of an agent.
type node struct {
	testing.TB
	root, socket string
	mounts       mount.Mounter
	driver       *csitest.Driver
	disks        *csitest.Loops // the driver's, if its volumes are on disks
	cfg          Config
	m            *Manager
	end          func()
}

// table is a mount table whose bind mounts are of the source's file system, as the
// kernel's are.
type table struct{ *plugintest.MountMemory }

func (t table) Table(ctx context.Context) (mount.Table, error) {
	all, err := t.MountMemory.Table(ctx)
	for i := range all {
		if at := all.At(all[i].Source); strings.HasPrefix(all[i].Source, "/") && len(at) > 0 {
			all[i].Root, all[i].Source = at[0].Root, at[0].Source
		}
	}
	return all, err
}

// newNode starts a driver; change may change its settings.
func newNode(t testing.TB, cluster plugins.StorageCluster, change func(*csitest.Config)) *node {
	t.Helper()
	top, err := os.MkdirTemp("", "csi") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	if top, err = filepath.EvalSymlinks(top); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	n := &node{TB: t, root: filepath.Join(top, "root"), socket: filepath.Join(top, "csi.sock"), mounts: table{&plugintest.MountMemory{}}}
	cfg := csitest.Config{Socket: n.socket, Mounter: n.mounts, Capabilities: nil}
	if change != nil {
		change(&cfg)
	}
	if cfg.Disks != nil { // devices are mounted by the kernel alone
		n.mounts = &mount.Kernel{}
		cfg.Mounter = n.mounts
	}
	if n.driver, err = csitest.Start(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.driver.Stop)
	n.cfg = Config{Root: n.root, NodeName: "edge-1", Mounter: n.mounts, Cluster: cluster, Secrets: secretsMap{}, Tokens: fakeTokens{}}
	return n
}

// listen creates an unused socket at the driver's path, for a driver that is reached in another
// way.
func (n *node) listen() {
	n.Helper()
	l, err := net.Listen("unix", n.socket)
	if err != nil {
		n.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		n.Fatal(err)
	}
}

// live begins a life of the agent, and ends it with the test.
func (n *node) live() *Manager {
	n.Helper()
	m, err := New(n.cfg)
	if err != nil {
		n.Fatal(err)
	}
	n.m, n.end = m, testrun.Start(n, m.Run)
	return m
}

// register begins a life in which the driver is registered.
func (n *node) register() *Manager {
	n.Helper()
	m := n.live()
	if err := m.Registrar().Register(n.Context(), testDriver, n.socket, []string{"1.0.0"}); err != nil {
		n.Fatal(err)
	}
	return m
}

func (n *node) stop() { n.end() }

// volume is a pod's, as a volume manager hands it to the plugin.
func (n *node) volume(uid string, spec *volumemgr.Spec) *volumemgr.Volume {
	kind := "volumes"
	if spec.Block() {
		kind = "volumeDevices"
	}
	v := &volumemgr.Volume{
		Spec: spec, Pod: pod(uid), UID: types.UID(uid), Name: spec.Name(), Warn: func(string, string) {},
		Path: filepath.Join(n.root, "pods", uid, kind, "kubernetes.io~csi", spec.Name()),
	}
	if d, err := n.m.Plugin().Device(v); err == nil {
		v.DevicePath = d.Path
	}
	return v
}

// found is a volume of which only the directory is known.
func found(v *volumemgr.Volume) *volumemgr.Volume {
	c := *v
	c.Spec, c.Pod, c.Found = nil, nil, true
	return &c
}

// mount mounts the device and publishes.
func (n *node) mount(v *volumemgr.Volume) (volumemgr.Result, error) {
	n.Helper()
	p := n.m.Plugin()
	if d, err := p.Device(v); err != nil {
		return volumemgr.Result{}, err
	} else if d.Name != "" {
		if err := p.MountDevice(n.Context(), v); err != nil {
			return volumemgr.Result{}, err
		}
	}
	return p.SetUp(n.Context(), v)
}

func (n *node) must(v *volumemgr.Volume) volumemgr.Result {
	n.Helper()
	r, err := n.mount(v)
	if err != nil {
		n.Fatal(err)
	}
	return r
}

// unmount removes the leftovers of a volume.
func (n *node) unmount(v *volumemgr.Volume) {
	n.Helper()
	p := n.m.Plugin()
	d, err := p.Device(v)
	if err != nil {
		n.Error(err)
	}
	if err := p.TearDown(n.Context(), v); err != nil {
		n.Error(err)
	}
	if d.Name != "" {
		if err := p.UnmountDevice(n.Context(), d); err != nil {
			n.Error(err)
		}
	}
}

// clean checks that nothing is left, and that the driver has nothing to complain of.
func (n *node) clean() {
	n.Helper()
	if s, p := n.driver.Staged(), n.driver.Published(); len(s)+len(p) > 0 {
		n.Errorf("staged %v, published %v", s, p)
	}
	if v := n.driver.Violations(); len(v) > 0 {
		n.Errorf("the driver says: %s", strings.Join(v, "; "))
	}
	if table := n.mounted(); len(table) > 0 {
		n.Errorf("mounted: %+v", table)
	}
	for _, f := range n.files() {
		n.Errorf("%s is left", f)
	}
	if u := n.m.VolumesInUse(); len(u) > 0 {
		n.Errorf("in use: %v", u)
	}
}

// mounted returns the mounts below the agent's directory.
func (n *node) mounted() mount.Table {
	n.Helper()
	table, err := mount.Under(context.Background(), n.mounts, n.root)
	if err != nil {
		n.Fatal(err)
	}
	return table
}

// files returns the leftovers below the root: files, and directories of volumes.
func (n *node) files() (out []string) {
	_ = filepath.WalkDir(n.root, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it is gone
		}
		rel, _ := filepath.Rel(n.root, path)
		depth := strings.Count(rel, "/")
		if !e.IsDir() || strings.HasPrefix(rel, "pods/") && depth >= 4 || strings.HasPrefix(rel, "plugins/kubernetes.io/csi/"+testDriver+"/") {
			out = append(out, rel)
		}
		return nil
	})
	return out
}

func pod(uid string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-" + uid, UID: types.UID(uid)},
		Spec:       v1.PodSpec{ServiceAccountName: "clerk", Containers: []v1.Container{{Name: "c"}}},
	}
}

// persistent is a persistent volume of the driver.
func persistent(handle string, change ...func(*v1.PersistentVolume)) *volumemgr.Spec {
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + handle}}
	pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: testDriver, VolumeHandle: handle, VolumeAttributes: map[string]string{"tier": "gold"}}
	pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	for _, f := range change {
		f(pv)
	}
	return &volumemgr.Spec{PersistentVolume: pv}
}

func block(pv *v1.PersistentVolume) { pv.Spec.VolumeMode = new(v1.PersistentVolumeBlock) }

// inline is a pod's own volume of the driver.
func inline(name string) *volumemgr.Spec {
	return &volumemgr.Spec{Volume: &v1.Volume{Name: name, VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{
		Driver: testDriver, VolumeAttributes: map[string]string{"tier": "silver"}, FSType: new("ext4"),
		NodePublishSecretRef: &v1.LocalObjectReference{Name: "key"},
	}}}}
}

// secretsMap are Secrets; "shop/key" is always there.
type secretsMap map[string]map[string][]byte

func (s secretsMap) Secret(_ context.Context, namespace, name string) (map[string][]byte, error) {
	if d, ok := s[namespace+"/"+name]; ok {
		return d, nil
	}
	if namespace == "shop" && name == "key" {
		return map[string][]byte{"password": []byte("hunter22")}, nil
	}
	return nil, plugins.ErrNotFound
}

type fakeTokens struct{}

func (fakeTokens) Token(_ context.Context, namespace, account string, spec authv1.TokenRequestSpec) (plugins.Token, error) {
	return plugins.Token{
		Value: "token of " + namespace + "/" + account + " for " + strings.Join(spec.Audiences, ","), Refresh: 20 * time.Second,
		Expires: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC),
	}, nil
}

// fakeCluster has the objects of a cluster.
type fakeCluster struct {
	drivers map[string]plugins.CSIDriver
	away    bool
	apply   func(installed []plugins.CSINodeDriver, removed []string) error
	wait    func(ctx context.Context, a plugins.Attachment, note func(string)) (map[string]string, error)
}

func (c *fakeCluster) Driver(_ context.Context, name string) (plugins.CSIDriver, error) {
	if c.away {
		return plugins.CSIDriver{}, errors.New("the API server does not answer")
	}
	d, ok := c.drivers[name]
	if !ok {
		return d, plugins.ErrNotFound
	}
	return d, nil
}

func (c *fakeCluster) Apply(_ context.Context, installed []plugins.CSINodeDriver, removed []string) error {
	if c.apply == nil {
		return nil
	}
	return c.apply(installed, removed)
}

func (c *fakeCluster) Wait(ctx context.Context, a plugins.Attachment, note func(string)) (map[string]string, error) {
	if c.wait == nil {
		return map[string]string{"lun": "7"}, nil
	}
	return c.wait(ctx, a, note)
}

// object is a CSIDriver that makes all kinds of volumes.
func object(change func(*plugins.CSIDriver)) *fakeCluster {
	d := plugins.CSIDriver{Name: testDriver, Persistent: true, Ephemeral: true, FSGroupPolicy: plugins.FSGroupNone}
	if change != nil {
		change(&d)
	}
	return &fakeCluster{drivers: map[string]plugins.CSIDriver{testDriver: d}}
}
