package csi

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/csitest"
	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/plugins"
)

func stages(c *csitest.Config) { c.Capabilities = append(c.Capabilities, csitest.Stage) }

// last is the last request of a method.
func last[T proto.Message](t *testing.T, d *csitest.Driver) T {
	t.Helper()
	calls := d.Calls()
	for i := len(calls) - 1; i >= 0; i-- {
		if r, ok := calls[i].Request.(T); ok {
			return r
		}
	}
	t.Fatalf("there was no such call: %v", calls)
	panic("unreachable")
}

// A volume is staged and published at the kubelet's paths with the kubelet's
// records, in two calls and no others, and goes without a trace.
func TestVolumesAreStagedAndPublishedInTwoCalls(t *testing.T) {
	n := newNode(t, nil, stages)
	n.register()
	n.driver.Forget()
	v := n.volume("u1", persistent("h1"))
	r := n.must(v)
	var methods []string
	for _, c := range n.driver.Calls() {
		methods = append(methods, c.Method)
	}
	if want := []string{"NodeStageVolume", "NodePublishVolume"}; !reflect.DeepEqual(methods, want) {
		t.Errorf("calls %v, want %v", methods, want)
	}
	staging := filepath.Join(n.root, "plugins/kubernetes.io/csi", testDriver, hash("h1"), "globalmount")
	target := filepath.Join(n.root, "pods/u1/volumes/kubernetes.io~csi/pv-h1/mount")
	p, s := last[*spec.NodePublishVolumeRequest](t, n.driver), last[*spec.NodeStageVolumeRequest](t, n.driver)
	if r.Path != target || p.GetTargetPath() != target || p.GetStagingTargetPath() != staging || s.GetStagingTargetPath() != staging {
		t.Errorf("result %+v, publish %v, stage %v", r, p, s)
	}
	if c := p.GetVolumeContext(); c["tier"] != "gold" || c["csi.storage.k8s.io/pod.name"] != "web-u1" || c["csi.storage.k8s.io/ephemeral"] != "false" {
		t.Errorf("context %v", c)
	}
	if a := v.Spec.PersistentVolume.Spec.CSI.VolumeAttributes; len(a) != 1 {
		t.Errorf("the volume's own attributes are %v", a)
	}
	for dir, want := range map[string]map[string]string{
		filepath.Dir(staging): {"volumeHandle": "h1", "driverName": testDriver},
		filepath.Dir(target): {
			"specVolID": "pv-h1", "volumeHandle": "h1", "driverName": testDriver, "nodeName": "edge-1", "volumeLifecycleMode": "Persistent",
			"attachmentID": attachmentName("h1", testDriver, "edge-1"),
		},
	} {
		var got map[string]string
		b, err := os.ReadFile(filepath.Join(dir, "vol_data.json"))
		if err == nil {
			err = json.Unmarshal(b, &got)
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v (%v)", dir, got, err)
		}
	}
	// While containers use it, it is published once.
	v.Remount = true
	n.must(v)
	if got := n.driver.Count("NodePublishVolume"); got != 1 {
		t.Errorf("published %d times", got)
	}
	n.unmount(v)
	n.clean()
}

// After a restart, all that is known of a volume is where it is.
func TestVolumesAreTakenDownByTheirRecords(t *testing.T) {
	for name, s := range map[string]*volumemgr.Spec{"persistent": persistent("h1"), "inline": inline("scratch"), "block": persistent("h2", block)} {
		for _, can := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				n := newNode(t, nil, func(c *csitest.Config) {
					if can {
						stages(c)
					}
				})
				n.register()
				v := n.volume("u1", s)
				if s.Block() {
					p := n.m.Plugin()
					if err := p.MountDevice(t.Context(), v); err != nil {
						t.Fatal(err)
					}
					// The driver makes a plain file of it.
					if _, err := p.MapDevice(t.Context(), v); err == nil || !strings.Contains(err.Error(), "is not a block device") || !errors.Is(err, volumemgr.ErrUncertain) {
						t.Fatalf("mapped: %v", err)
					}
				} else {
					n.must(v)
				}
				n.stop()
				n.register()
				devices, err := n.m.Plugin().Devices(t.Context())
				if want := 0; err != nil || name != "inline" && (can || name == "block") && len(devices) != 1 || name == "inline" && len(devices) != want {
					t.Errorf("devices %v (%v)", devices, err)
				}
				if s.Block() {
					dev, err := n.m.Plugin().Device(found(v))
					if err != nil {
						t.Fatal(err)
					}
					if err := n.m.Plugin().UnmapDevice(t.Context(), found(v)); err != nil {
						t.Error(err)
					}
					if err := n.m.Plugin().UnmountDevice(t.Context(), dev); err != nil {
						t.Error(err)
					}
				} else {
					n.unmount(found(v))
				}
				n.clean()
			})
		}
	}
}

// What an error leaves behind depends on whether the driver has given up.
func TestFailedCallsLeaveWhatTheyMayHaveMade(t *testing.T) {
	for _, method := range []string{"NodeStageVolume", "NodePublishVolume"} {
		for code, want := range map[codes.Code]bool{
			codes.Internal: false, codes.InvalidArgument: false, codes.NotFound: false, codes.PermissionDenied: false, codes.Unknown: false,
			codes.Aborted: true, codes.DeadlineExceeded: true, codes.Canceled: true, codes.Unavailable: true, codes.ResourceExhausted: true,
		} {
			fails := true
			n := newNode(t, nil, func(c *csitest.Config) {
				stages(c)
				c.Fault = func(m string, _ proto.Message) csitest.Fault {
					if fails && m == method {
						return csitest.Code(code)
					}
					return csitest.Fault{}
				}
			})
			n.register()
			v := n.volume("u1", persistent("h1"))
			_, err := n.mount(v)
			if err == nil || errors.Is(err, volumemgr.ErrUncertain) != want {
				t.Errorf("%s, %s: %v", method, code, err)
			}
			dir := filepath.Dir(v.DevicePath)
			if method == "NodePublishVolume" {
				dir = v.Path
			}
			if _, err := os.Lstat(filepath.Join(dir, "vol_data.json")); (err == nil) != want {
				t.Errorf("%s, %s: the record: %v", method, code, err)
			}
			fails = false
			n.must(v)
			n.unmount(v)
			n.clean()
			n.stop()
		}
	}
}

// Drivers delete an inline volume when they unpublish it, so that a second call, after one whose
// answer was lost, finds no volume (https://github.com/kubernetes/kubernetes/issues/90752).
func TestAnInlineVolumeThatTheDriverDoesNotKnowIsGone(t *testing.T) {
	for name, tt := range map[string]struct {
		spec  *volumemgr.Spec
		first bool // the driver carries out the first call, whose answer is lost
		gone  bool
	}{
		"inline":        {inline("scratch"), true, true},
		"still mounted": {inline("scratch"), false, false},
		"persistent":    {persistent("h1"), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			n := newNode(t, nil, func(c *csitest.Config) {
				c.Fault = func(m string, _ proto.Message) csitest.Fault {
					if m != "NodeUnpublishVolume" {
						return csitest.Fault{}
					}
					if calls++; calls == 1 && tt.first {
						return csitest.Fault{Err: status.Error(codes.DeadlineExceeded, "lost"), After: true}
					}
					return csitest.Code(codes.NotFound)
				}
			})
			n.register()
			v := n.volume("u1", tt.spec)
			n.must(v)
			if err := n.m.Plugin().TearDown(t.Context(), v); err == nil {
				t.Fatal("no error of the first call")
			}
			if err := n.m.Plugin().TearDown(t.Context(), found(v)); (err == nil) != tt.gone {
				t.Errorf("the second call: %v", err)
			}
			if _, err := os.Lstat(filepath.Join(v.Path, "vol_data.json")); (err != nil) != tt.gone {
				t.Errorf("the record: %v", err)
			}
		})
	}
}

// A set-up that fails takes nothing away from containers that use the volume.
func TestFailuresKeepWhatContainersUse(t *testing.T) {
	fails := false
	n := newNode(t, object(func(d *plugins.CSIDriver) { d.RequiresRepublish = true }), func(c *csitest.Config) {
		c.Fault = func(m string, _ proto.Message) csitest.Fault {
			if fails && m == "NodePublishVolume" {
				return csitest.Code(codes.Internal)
			}
			return csitest.Fault{}
		}
	})
	n.register()
	v := n.volume("u1", inline("scratch"))
	if r := n.must(v); r.Again != republishEvery {
		t.Errorf("published again after %v", r.Again)
	}
	fails = true
	for _, use := range []func(*volumemgr.Volume){func(v *volumemgr.Volume) { v.Remount = true }, func(v *volumemgr.Volume) { v.Found = true }} {
		again := *v
		use(&again)
		if _, err := n.mount(&again); err == nil {
			t.Error("no error")
		}
		if _, err := os.Lstat(filepath.Join(v.Path, "mount")); err != nil || len(n.driver.Published()) != 1 {
			t.Errorf("it is gone: %v", err)
		}
	}
	fails = false
	n.unmount(v)
	n.clean()
}

// A driver that is away is named, and nothing changes meanwhile.
func TestADriverThatIsAwayIsNamed(t *testing.T) {
	n := newNode(t, nil, stages)
	n.live()
	v := n.volume("u1", persistent("h1"))
	_, err := n.mount(v)
	if !errors.Is(err, volumemgr.ErrTransient) || !errors.Is(err, ErrNoDriver) || !strings.Contains(err.Error(), testDriver) {
		t.Errorf("got %v", err)
	}
	n.stop()
	n.register()
	v = n.volume("u1", persistent("h1"))
	n.must(v)
	n.m.Registrar().Deregister(testDriver, n.socket)
	if err := n.m.Plugin().TearDown(t.Context(), v); !errors.Is(err, ErrNoDriver) {
		t.Errorf("torn down: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(v.Path, "vol_data.json")); err != nil {
		t.Error(err)
	}
	if err := n.m.Registrar().Register(t.Context(), testDriver, n.socket, []string{"1.0.0"}); err != nil {
		t.Fatal(err)
	}
	n.unmount(v)
	n.clean()
}

// Secrets reach only the driver. They are in no error, even if the driver returns them in one.
func TestSecretsAreInNoError(t *testing.T) {
	n := newNode(t, nil, func(c *csitest.Config) {
		c.Fault = func(m string, req proto.Message) csitest.Fault {
			if r, ok := req.(*spec.NodePublishVolumeRequest); ok {
				return csitest.Fault{Err: status.Error(codes.Internal, "cannot log in with "+r.GetSecrets()["password"])}
			}
			return csitest.Fault{}
		}
	})
	n.register()
	_, err := n.mount(n.volume("u1", inline("scratch")))
	if err == nil || strings.Contains(err.Error(), "hunter22") || !strings.Contains(err.Error(), "cannot log in with ***") {
		t.Errorf("got %v", err)
	}
	if last[*spec.NodePublishVolumeRequest](t, n.driver).GetSecrets()["password"] != "hunter22" {
		t.Error("the driver has not got it")
	}
}

// A secret that is missing is named by its field, and the driver hears nothing.
func TestAMissingSecretIsNamed(t *testing.T) {
	n := newNode(t, nil, stages)
	n.register()
	n.driver.Forget()
	s := persistent("h1", func(pv *v1.PersistentVolume) {
		pv.Spec.CSI.NodeStageSecretRef = &v1.SecretReference{Namespace: "vault", Name: "none"}
	})
	_, err := n.mount(n.volume("u1", s))
	if !errors.Is(err, volumemgr.ErrTransient) || !strings.Contains(err.Error(), "nodeStageSecretRef: Secret vault/none: not found") || len(n.driver.Calls()) != 0 {
		t.Errorf("got %v, and calls %v", err, n.driver.Calls())
	}
	n.clean()
}

// Tokens are where the driver wants them, the same until they are renewed.
func TestTokensTravelAsTheDriverWants(t *testing.T) {
	for _, inSecrets := range []bool{false, true} {
		n := newNode(t, object(func(d *plugins.CSIDriver) {
			d.RequiresRepublish, d.TokensInSecrets = true, inSecrets
			d.TokenRequests = []plugins.TokenRequest{{Audience: "vault"}, {}}
		}), nil)
		n.register()
		v := n.volume("u1", inline("scratch"))
		r := n.must(v)
		if r.Again.Seconds() != 20 {
			t.Errorf("again after %v", r.Again)
		}
		req := last[*spec.NodePublishVolumeRequest](t, n.driver)
		there, other := req.GetVolumeContext()[keyTokens], req.GetSecrets()[keyTokens]
		if inSecrets {
			there, other = other, there
		}
		want := `{"":{"token":"token of shop/clerk for ","expirationTimestamp":"2030-01-02T03:04:05Z"},"vault":{"token":"token of shop/clerk for vault","expirationTimestamp":"2030-01-02T03:04:05Z"}}`
		if there != want || other != "" {
			t.Errorf("in secrets %t: %s, and %q", inSecrets, there, other)
		}
		if _, ok := req.GetVolumeContext()["csi.storage.k8s.io/pod.name"]; ok {
			t.Error("the pod is told unasked")
		}
		n.unmount(v)
		n.clean()
	}
}

// A volume that is not attached is waited for, and the wait is explained.
func TestVolumesWaitForTheirAttachment(t *testing.T) {
	attached, asked := make(chan struct{}), make(chan plugins.Attachment, 1)
	cluster := object(func(d *plugins.CSIDriver) { d.AttachRequired = true })
	cluster.wait = func(ctx context.Context, a plugins.Attachment, note func(string)) (map[string]string, error) {
		note("its attacher")
		asked <- a
		<-attached
		return map[string]string{"lun": "7"}, nil
	}
	n := newNode(t, cluster, stages)
	n.register()
	v := n.volume("u1", persistent("h1"))
	done := make(chan error)
	go func() {
		_, err := n.mount(v)
		done <- err
	}()
	a := <-asked
	if a.Name != attachmentName("h1", testDriver, "edge-1") || a.Volume != "kubernetes.io/csi/"+testDriver+"^h1" {
		t.Errorf("asked for %+v", a)
	}
	if why := n.m.Waits("u1"); why != "volume pv-h1 of driver disk.example.com waits for its attacher" {
		t.Errorf("why: %q", why)
	}
	if u := n.m.VolumesInUse(); len(u) != 1 || u[0] != a.Volume {
		t.Errorf("in use: %v", u)
	}
	close(attached)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if c := last[*spec.NodeStageVolumeRequest](t, n.driver).GetPublishContext(); c["lun"] != "7" {
		t.Errorf("stage has %v", c)
	}
	if c := last[*spec.NodePublishVolumeRequest](t, n.driver).GetPublishContext(); c["lun"] != "7" {
		t.Errorf("publish has %v", c)
	}
	if why := n.m.Waits("u1"); why != "" {
		t.Errorf("why: %q", why)
	}
	n.unmount(v)
	n.clean()
}

// A volume whose wait for its attachment was cut short is not in use once its device
// is unmounted: a controller would never detach it.
func TestAWaitThatWasCutShortLeavesNothingInUse(t *testing.T) {
	for name, change := range map[string][]func(*v1.PersistentVolume){"file system": nil, "block": {block}} {
		t.Run(name, func(t *testing.T) {
			cluster := object(func(d *plugins.CSIDriver) { d.AttachRequired = true })
			cluster.wait = func(ctx context.Context, _ plugins.Attachment, _ func(string)) (map[string]string, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			n := newNode(t, cluster, stages)
			n.register()
			v, p := n.volume("u1", persistent("h1", change...)), n.m.Plugin()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := p.MountDevice(ctx, v); err == nil {
				t.Error("mounted without an attachment")
			}
			d, err := p.Device(v)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.UnmountDevice(t.Context(), d); err != nil {
				t.Error(err)
			}
			if u := n.m.VolumesInUse(); len(u) != 0 {
				t.Errorf("in use: %v", u)
			}
		})
	}
}

// A node without room for a volume is reported, and its capacity read again.
func TestANodeWithoutRoomIsToldOf(t *testing.T) {
	cluster := object(func(d *plugins.CSIDriver) { d.AttachRequired = true })
	cluster.wait = func(context.Context, plugins.Attachment, func(string)) (map[string]string, error) {
		return nil, plugins.ErrExhausted
	}
	n := newNode(t, cluster, stages)
	var told []string
	n.cfg.Exhausted = func(pod *v1.Pod, _ error) { told = append(told, string(pod.UID)) }
	n.register()
	if _, err := n.mount(n.volume("u1", persistent("h1"))); !errors.Is(err, plugins.ErrExhausted) || !errors.Is(err, volumemgr.ErrTransient) {
		t.Errorf("got %v", err)
	}
	if !reflect.DeepEqual(told, []string{"u1"}) {
		t.Errorf("told of %v", told)
	}
	n.clean()
}

// A node that stands alone says so of a driver that wants a controller.
func TestAloneADriverThatAttachesIsRefused(t *testing.T) {
	n := newNode(t, nil, func(c *csitest.Config) { stages(c); c.Attaches = true })
	n.register()
	if _, err := n.mount(n.volume("u1", persistent("h1"))); err == nil || !strings.Contains(err.Error(), "needs a controller to attach its volumes") {
		t.Errorf("got %v", err)
	}
	n.must(n.volume("u1", inline("scratch"))) // it is attached nowhere
}

// Kinds of volumes that the CSIDriver does not name are refused.
func TestKindsOfVolumes(t *testing.T) {
	for name, c := range map[string]struct {
		cluster            *fakeCluster
		persistent, inline bool
	}{
		"no object":  {&fakeCluster{}, true, false},
		"persistent": {object(func(d *plugins.CSIDriver) { d.Ephemeral = false }), true, false},
		"ephemeral":  {object(func(d *plugins.CSIDriver) { d.Persistent = false }), false, true},
		"both":       {object(nil), true, true},
		"not known":  {&fakeCluster{away: true}, false, false},
	} {
		n := newNode(t, c.cluster, stages)
		n.register()
		for s, want := range map[*volumemgr.Spec]bool{persistent("h1"): c.persistent, inline("scratch"): c.inline} {
			if _, err := n.mount(n.volume("u1", s)); (err == nil) != want || err != nil && !errors.Is(err, volumemgr.ErrTransient) {
				t.Errorf("%s, %s: %v", name, s.Name(), err)
			}
		}
	}
}

// A driver that says it has published gets no link past the agent.
func TestALinkIsNoVolume(t *testing.T) {
	n := newNode(t, nil, func(c *csitest.Config) {
		c.Fault = func(m string, req proto.Message) csitest.Fault {
			if r, ok := req.(*spec.NodePublishVolumeRequest); ok {
				if err := os.Symlink("/etc", r.GetTargetPath()); err != nil && !errors.Is(err, fs.ErrExist) {
					return csitest.Fault{Err: err}
				}
				return csitest.Fault{Lie: true}
			}
			return csitest.Fault{}
		}
	})
	n.register()
	v := n.volume("u1", inline("scratch"))
	if _, err := n.mount(v); !errors.Is(err, volumemgr.ErrUncertain) || !strings.Contains(err.Error(), "want a directory") {
		t.Errorf("got %v", err)
	}
	n.unmount(v)
	n.clean()
	if _, err := os.Stat("/etc"); err != nil {
		t.Error(err)
	}
}

// A driver that only says it has taken a volume down is asked again, and nothing
// that is mounted is removed.
func TestWhatIsStillMountedStays(t *testing.T) {
	lies := true
	n := newNode(t, nil, func(c *csitest.Config) {
		stages(c)
		c.Fault = func(m string, _ proto.Message) csitest.Fault {
			return csitest.Fault{Lie: lies && strings.HasPrefix(m, "NodeUn")}
		}
	})
	n.register()
	v := n.volume("u1", persistent("h1"))
	n.must(v)
	p := n.m.Plugin()
	d, _ := p.Device(v)
	if err := p.TearDown(t.Context(), v); err == nil || !strings.Contains(err.Error(), "still a mount point") {
		t.Errorf("torn down: %v", err)
	}
	if err := p.UnmountDevice(t.Context(), d); err == nil || !strings.Contains(err.Error(), "still mounted") {
		t.Errorf("unstaged: %v", err)
	}
	if n.driver.Count("NodeUnstageVolume") != 0 {
		t.Error("unstaged under a pod")
	}
	lies = false
	n.unmount(v)
	n.clean()
}

// A record damaged by a power failure does not prevent the end of the pod.
func TestDamagedRecordsAreGotOver(t *testing.T) {
	for _, content := range []string{"", "{", "[]", `{"driverName":"../x","volumeHandle":"h"}`, `{"driverName":"d"}`, strings.Repeat("x", maxRecord+1)} {
		n := newNode(t, nil, stages)
		n.register()
		v := n.volume("u1", persistent("h1"))
		n.must(v)
		for _, dir := range []string{v.Path, filepath.Dir(v.DevicePath)} {
			if err := os.WriteFile(filepath.Join(dir, "vol_data.json"), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		p := n.m.Plugin()
		if _, err := p.Device(found(v)); !errors.Is(err, ErrRecord) {
			t.Errorf("device: %v", err)
		}
		d, err := p.Device(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(p.TearDown(t.Context(), found(v)), p.UnmountDevice(t.Context(), d)); err != nil {
			t.Errorf("%.20q: %v", content, err)
		}
		table, _ := n.mounts.Table(t.Context())
		if files := n.files(); len(files)+len(table) > 0 {
			t.Errorf("%.20q: left %v %v", content, files, table)
		}
		n.stop()
	}
}

// How a volume may be used is said in the words that the driver knows.
func TestAccessModes(t *testing.T) {
	const rwo, rox, rwx, rwop = v1.ReadWriteOnce, v1.ReadOnlyMany, v1.ReadWriteMany, v1.ReadWriteOncePod
	type modes = []v1.PersistentVolumeAccessMode
	for _, c := range []struct {
		modes     modes
		old, with string
	}{
		{nil, "SINGLE_NODE_WRITER", "SINGLE_NODE_MULTI_WRITER"}, {modes{rwo}, "SINGLE_NODE_WRITER", "SINGLE_NODE_MULTI_WRITER"},
		{modes{rwop}, "SINGLE_NODE_WRITER", "SINGLE_NODE_SINGLE_WRITER"}, {modes{rox}, "MULTI_NODE_READER_ONLY", "MULTI_NODE_READER_ONLY"},
		{modes{rwx}, "MULTI_NODE_MULTI_WRITER", "MULTI_NODE_MULTI_WRITER"}, {modes{rox, rwx}, "MULTI_NODE_MULTI_WRITER", "MULTI_NODE_MULTI_WRITER"},
		{modes{rox, rwo}, "SINGLE_NODE_WRITER", "SINGLE_NODE_MULTI_WRITER"},
	} {
		if got := accessMode(c.modes, false).String(); got != c.old {
			t.Errorf("%v: %s, want %s", c.modes, got, c.old)
		}
		if got := accessMode(c.modes, true).String(); got != c.with {
			t.Errorf("%v, and several writers: %s, want %s", c.modes, got, c.with)
		}
	}
}

func TestWhoseFilesAreGivenToAGroup(t *testing.T) {
	group := new(int64(7))
	rwo, rwx, rox := []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}, []v1.PersistentVolumeAccessMode{v1.ReadOnlyMany}
	for name, c := range map[string]struct {
		s      source
		policy plugins.FSGroupPolicy
		group  *int64
		want   bool
	}{
		"no group":              {source{fsType: "ext4", modes: rwo}, plugins.FSGroupByType, nil, false},
		"read-only":             {source{fsType: "ext4", modes: rwo, readOnly: true}, plugins.FSGroupFile, group, false},
		"none":                  {source{fsType: "ext4", modes: rwo}, plugins.FSGroupNone, group, false},
		"file":                  {source{modes: rwx}, plugins.FSGroupFile, group, true},
		"by type, no type":      {source{modes: rwo}, plugins.FSGroupByType, group, false},
		"by type, once":         {source{fsType: "ext4", modes: rwo}, plugins.FSGroupByType, group, true},
		"by type, one pod":      {source{fsType: "ext4", modes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}}, plugins.FSGroupByType, group, true},
		"by type, many":         {source{fsType: "ext4", modes: rwx}, plugins.FSGroupByType, group, false},
		"by type, read by many": {source{fsType: "ext4", modes: rox}, plugins.FSGroupByType, group, false},
		"by type, no modes":     {source{fsType: "ext4"}, plugins.FSGroupByType, group, false},
		"by type, inline":       {source{fsType: "ext4", ephemeral: true}, plugins.FSGroupByType, group, true},
		"block":                 {source{block: true, modes: rwo}, plugins.FSGroupFile, group, false},
	} {
		if got := ownsFiles(c.s, c.policy, c.group); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// A driver that mounts with a group gets it, and no file is touched here.
func TestADriverMountsWithTheGroup(t *testing.T) {
	n := newNode(t, object(func(d *plugins.CSIDriver) { d.FSGroupPolicy = plugins.FSGroupFile }), func(c *csitest.Config) {
		c.Capabilities = []spec.NodeServiceCapability_RPC_Type{csitest.Stage, csitest.MountGroup}
	})
	n.register()
	v := n.volume("u1", persistent("h1"))
	v.FSGroup = new(int64(1234))
	n.must(v)
	for _, c := range []*spec.VolumeCapability{last[*spec.NodeStageVolumeRequest](t, n.driver).GetVolumeCapability(), last[*spec.NodePublishVolumeRequest](t, n.driver).GetVolumeCapability()} {
		if c.GetMount().GetVolumeMountGroup() != "1234" {
			t.Errorf("capability %v", c)
		}
	}
}

// A context that only one pod can have is among the mount options.
func TestSELinuxContextsAreMountOptions(t *testing.T) {
	n := newNode(t, object(func(d *plugins.CSIDriver) { d.SELinuxMount = true }), stages)
	n.cfg.FileLabel = func(o *v1.SELinuxOptions) (string, bool) {
		return "system_u:object_r:container_file_t:" + o.Level, true
	}
	n.register()
	only := func(pv *v1.PersistentVolume) {
		pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
		pv.Spec.MountOptions = []string{"noatime"}
	}
	v := n.volume("u1", persistent("h1", only))
	v.Pod.Spec.SecurityContext = &v1.PodSecurityContext{SELinuxOptions: &v1.SELinuxOptions{Level: "s0:c1,c2"}}
	n.must(v)
	want := []string{"noatime", `context="system_u:object_r:container_file_t:s0:c1,c2"`}
	if got := last[*spec.NodeStageVolumeRequest](t, n.driver).GetVolumeCapability().GetMount().GetMountFlags(); !reflect.DeepEqual(got, want) {
		t.Errorf("flags %q", got)
	}
	if r, err := readRecord(v.Path); err != nil || r.Context != "system_u:object_r:container_file_t:s0:c1,c2" {
		t.Errorf("record %+v (%v)", r, err)
	}
	many := n.volume("u2", persistent("h2"))
	many.Pod.Spec.SecurityContext = v.Pod.Spec.SecurityContext
	n.must(many)
	if got := last[*spec.NodeStageVolumeRequest](t, n.driver).GetVolumeCapability().GetMount().GetMountFlags(); len(got) != 0 {
		t.Errorf("flags %q of a volume that several pods may have", got)
	}
}

func TestMetricsNameTheDriver(t *testing.T) {
	n := newNode(t, nil, nil)
	n.register()
	p := n.m.Plugin()
	want := "kubernetes.io/csi:" + testDriver
	for _, s := range []*volumemgr.Spec{persistent("h"), inline("v"), persistent("h", block)} {
		if got := p.Label(s, volumemgr.Device{}); got != want {
			t.Errorf("%s: %s", s.Name(), got)
		}
	}
	d, err := p.Device(n.volume("u1", persistent("h")))
	if got := p.Label(nil, d); err != nil || got != want {
		t.Errorf("device: %s (%v)", got, err)
	}
	if got := p.Label(nil, n.m.blockDeviceOf("pv")) + p.Label(nil, volumemgr.Device{}); got != "" {
		t.Errorf("unknown: %s", got)
	}
}
