package plugins

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/mount"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

func inline(server, path string, readOnly bool) *volumemgr.Spec {
	return &volumemgr.Spec{Volume: &v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{Server: server, Path: path, ReadOnly: readOnly}}}}
}

func persistent(readOnly bool, annotations map[string]string, options ...string) *volumemgr.Spec {
	return &volumemgr.Spec{ReadOnly: readOnly, PersistentVolume: &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv", Annotations: annotations},
		Spec: v1.PersistentVolumeSpec{
			MountOptions: options, PersistentVolumeSource: v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{Server: "s", Path: "/p"}},
		},
	}}
}

func TestRequest(t *testing.T) {
	old := map[string]string{"volume.beta.kubernetes.io/mount-options": "soft, bg,soft"}
	for _, tc := range []struct {
		name     string
		spec     *volumemgr.Spec
		source   string // "": an error
		options  []string
		readOnly bool
	}{
		{"inline", inline("s", "/p", false), "s:/p", nil, false},
		{"inline, read-only", inline("s", "/p", true), "s:/p", []string{"ro"}, true},
		{"IPv4", inline("10.0.0.1", "/p", false), "10.0.0.1:/p", nil, false},
		{"IPv6", inline("fd00::1", "/p", false), "[fd00::1]:/p", nil, false},
		{"persistent", persistent(false, nil, "tcp", "bg", "tcp"), "s:/p", []string{"bg", "tcp"}, false},
		{"persistent, read-only", persistent(true, nil, "tcp", "ro"), "s:/p", []string{"ro", "tcp"}, true},
		{"the annotation wins", persistent(true, old, "tcp"), "s:/p", []string{"bg", "ro", "soft"}, true},
		{"no server", inline("", "/p", false), "", nil, false},
		{"a server with a path", inline("s/x", "/p", false), "", nil, false},
		{"a relative path", inline("s", "p", false), "", nil, false},
		{"a path with NUL", inline("s", "/p\x00", false), "", nil, false},
	} {
		f, readOnly, err := request(tc.spec, "/t")
		if (err == nil) != (tc.source != "") {
			t.Errorf("%s: %v", tc.name, err)
		}
		if err != nil {
			continue
		}
		want := mount.FileSystem{Type: "nfs", Source: tc.source, Target: "/t", Options: tc.options, Helper: true}
		if !reflect.DeepEqual(f, want) || readOnly != tc.readOnly {
			t.Errorf("%s: %+v %t, want %+v", tc.name, f, readOnly, want)
		}
	}
}

func TestNFSNewAndSupports(t *testing.T) {
	if _, err := newNFS(nfsConfig{}); err == nil {
		t.Error("no mounter, no error")
	}
	p, err := newNFS(nfsConfig{Mounter: &plugintest.MountMemory{}})
	if err != nil {
		t.Fatal(err)
	}
	if !p.Supports(inline("", "", false)) || !p.Supports(persistent(false, nil)) || p.Supports(&volumemgr.Spec{Volume: &v1.Volume{}}) {
		t.Error("supports the wrong kind")
	}
	if p.Deadline(nil) < 2*time.Minute { // an unmount tries twice for a minute
		t.Errorf("deadline %v", p.Deadline(nil))
	}
}

// If any call of the mounter fails or dies, the next calls succeed.
func TestNFSEveryMountCallMayFail(t *testing.T) {
	for _, way := range []struct{ crash, after bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		for failAt := 1; failAt < 10; failAt++ {
			m := &plugintest.MountMemory{Fail: plugintest.FailMountAt(failAt, way.crash), After: way.after}
			p, err := newNFS(nfsConfig{Mounter: m})
			if err != nil {
				t.Fatal(err)
			}
			v := &volumemgr.Volume{Spec: inline("s", "/p", false), Path: filepath.Join(t.TempDir(), "a/v")}
			_, err = p.SetUp(t.Context(), v)
			m.Fail = nil
			var table mount.Table
			if table, _ = m.Table(t.Context()); err != nil && len(table) > 0 && !errors.Is(err, volumemgr.ErrUncertain) {
				t.Errorf("fault %d: says it is not mounted, and %v", failAt, table)
			}
			for range 2 {
				if r, err := p.SetUp(t.Context(), v); err != nil || r.Path != v.Path {
					t.Errorf("%+v (%v)", r, err)
				}
			}
			if table, _ = m.Table(t.Context()); len(table) != 1 {
				t.Errorf("fault %d: %v", failAt, table)
			}
			m.Fail = plugintest.FailMountAt(m.Calls()+failAt, way.crash)
			_ = p.TearDown(t.Context(), v)
			m.Fail = nil
			if err := p.TearDown(t.Context(), v); err != nil {
				t.Error(err)
			}
			if table, _ = m.Table(t.Context()); len(table) != 0 {
				t.Errorf("fault %d: leaked %v", failAt, table)
			}
			if _, err := os.Lstat(v.Path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("left: %v", err)
			}
		}
	}
}
