package csi_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/csi"
	"github.com/nodewright/nodewright/agent/part"
	block "github.com/nodewright/nodewright/csi"
	"github.com/nodewright/nodewright/internal/csitest"
	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/plugins"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

const driver = "disk.example.com"

// node is a part with a host and a driver that is registered.
type node struct {
	*csi.Part
	host   *agenttest.Host
	driver *csitest.Driver
	root   string
}

func start(t *testing.T, cluster plugins.StorageCluster, change func(*csitest.Config)) *node {
	t.Helper()
	top, err := os.MkdirTemp("", "csi")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	mounts := &plugintest.MountMemory{}
	cfg := csitest.Config{Socket: filepath.Join(top, "csi.sock"), Mounter: mounts}
	if change != nil {
		change(&cfg)
	}
	d, err := csitest.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Stop)
	p, err := csi.New(csi.Config{CSI: block.Config{Root: filepath.Join(top, "root"), NodeName: "edge-1", Mounter: mounts, Cluster: cluster}})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{p, agenttest.NewHost(t), d, filepath.Join(top, "root")}
	if err := p.Join(n.host); err != nil {
		t.Fatal(err)
	}
	if err := p.Join(n.host); err == nil {
		t.Error("it belongs to two agents")
	}
	t.Cleanup(agenttest.RunPart(t, p))
	if err := p.Registrar().Register(t.Context(), driver, cfg.Socket, []string{"1.0.0"}); err != nil {
		t.Fatal(err)
	}
	return n
}

func pod(uid string, claims ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: uid, UID: types.UID(uid)}}
	for _, c := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: c, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: c}}})
	}
	return p
}

// volumes are claims and the volumes of the driver that they are bound to.
func volumes(size string, names ...string) (claims []*v1.PersistentVolumeClaim, pvs []*v1.PersistentVolume) {
	for _, n := range names {
		c := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: n}}
		c.Spec.VolumeName = "pv-" + n
		pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + n}}
		pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: n, NodePublishSecretRef: &v1.SecretReference{Namespace: "vault", Name: "key"}}
		pv.Spec.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse(size)}
		claims, pvs = append(claims, c), append(pvs, pv)
	}
	return claims, pvs
}

var secret = &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "vault", Name: "key"}, StringData: map[string]string{"password": "hunter22"}}

// A node has room for as many volumes of a driver as that says, whoever shares them.
func TestPodsAreTurnedAwayFromAFullNode(t *testing.T) {
	n := start(t, nil, func(c *csitest.Config) { c.Limit = 2 })
	claims, pvs := volumes("1Gi", "a", "b", "c")
	n.host.SetStorage(nil, claims, pvs)
	others := []*v1.Pod{pod("1", "a"), pod("2", "b")}
	for claim, fits := range map[string]bool{"a": true, "b": true, "c": false, "unknown": true} {
		why := n.Admit(pod("3", claim), others)
		if (why == nil) != fits {
			t.Errorf("%s: %v", claim, why)
		}
		if why != nil && (why.Reason != "VolumeAttachmentLimitExceeded" || !strings.Contains(why.Message, "3 volumes of driver disk.example.com, which allows 2")) {
			t.Errorf("%s: %v", claim, why)
		}
	}
	if why := n.Admit(pod("4"), others); why != nil {
		t.Errorf("without volumes: %v", why)
	}
}

// Volumes that wait for a driver go on when it comes; Secrets are those of the sources.
func TestDriversWakeTheirVolumes(t *testing.T) {
	n := start(t, nil, nil)
	if calls := n.host.Calls(); !slices.Contains(calls, "volumes changed CSIDriver /"+driver) {
		t.Errorf("calls %q", calls)
	}
	if _, err := n.Secret(t.Context(), "vault", "key"); !errors.Is(err, plugins.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	n.host.SetStorage([]*v1.Secret{secret}, nil, nil)
	if s, err := n.Secret(t.Context(), "vault", "key"); err != nil || string(s["password"]) != "hunter22" {
		t.Errorf("%q (%v)", s, err)
	}
}

// A volume of a running pod is made larger when its manifest says so.
func TestVolumesGrowWhileMounted(t *testing.T) {
	n := start(t, nil, func(c *csitest.Config) { c.Capabilities = append(c.Capabilities, csitest.Expand) })
	claims, pvs := volumes("1Gi", "a")
	n.host.SetStorage([]*v1.Secret{secret}, claims, pvs)
	p := pod("1", "a")
	n.host.SetPods(p)
	v := &volumemgr.Volume{
		Spec: &volumemgr.Spec{PersistentVolume: pvs[0]}, Pod: p, UID: p.UID, Name: "pv-a", Warn: func(string, string) {},
		Path: filepath.Join(n.root, "pods/1/volumes/kubernetes.io~csi/pv-a"),
	}
	if _, err := n.Plugin().SetUp(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	claims, pvs = volumes("2Gi", "a")
	n.host.SetStorage([]*v1.Secret{secret}, claims, pvs)
	n.Housekeep(nil)
	var calls []string
	for at := time.Now(); time.Since(at) < 2*time.Minute; time.Sleep(time.Millisecond) {
		if calls = append(calls, n.host.Calls()...); slices.ContainsFunc(calls, func(c string) bool { return strings.Contains(c, "FileSystemResizeSuccessful") }) {
			break
		}
	}
	if n.driver.Count("NodeExpandVolume") != 1 {
		t.Errorf("%d calls; host: %q", n.driver.Count("NodeExpandVolume"), calls)
	}
}

// hostWithout knows no objects of volumes.
type hostWithout struct{ part.Host }

func TestAnAgentWithoutObjectsIsRefused(t *testing.T) {
	p, err := csi.New(csi.Config{CSI: block.Config{Root: "/root", NodeName: "n", Mounter: &plugintest.MountMemory{}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Join(hostWithout{agenttest.NewHost(t)}); err == nil || !strings.Contains(err.Error(), "part.Storage") {
		t.Errorf("got %v", err)
	}
	for _, bad := range []block.Config{{}, {Root: "relative", NodeName: "n", Mounter: &plugintest.MountMemory{}}} {
		if _, err := csi.New(csi.Config{CSI: bad}); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}
