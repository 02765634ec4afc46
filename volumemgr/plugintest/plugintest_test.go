package plugintest_test

import (
	"errors"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/rmtree"
	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

// The fakes pass the conformance tests for plugins.
func TestFakesConform(t *testing.T) {
	node := plugintest.New()
	volume := func(source v1.VolumeSource) volumemgr.Volume {
		return volumemgr.Volume{
			Spec: &volumemgr.Spec{Volume: &v1.Volume{Name: "x", VolumeSource: source}}, Pod: &v1.Pod{}, UID: "u", Name: "x",
			Path: "/root/pods/u/volumes/p/x", StateDir: "/root/pods/u/plugins/p/x",
		}
	}
	for name, s := range map[string]plugintest.Subject{
		"emptyDir": {
			New:    func() volumemgr.Plugin { return &plugintest.Fake{Node: node} },
			Volume: volume(v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}),
		},
		"nfs": {
			New:    func() volumemgr.Plugin { return &plugintest.Fake{Node: node} },
			Volume: volume(v1.VolumeSource{NFS: &v1.NFSVolumeSource{Server: "server", Path: "/x"}}),
		},
		"configMap": {
			New:    func() volumemgr.Plugin { return &plugintest.FakeContent{Fake: plugintest.Fake{Node: node}} },
			Volume: volume(v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}),
		},
	} {
		s.Mounter, s.Exists = node, func(path string) bool {
			_, err := node.Lstat(path)
			return err == nil
		}
		t.Run(name, func(t *testing.T) { plugintest.Conform(t, s) })
	}
}

// The node is only worth something if it is as unforgiving as a real one.
func TestNodeMounts(t *testing.T) {
	n := plugintest.New()
	check := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	check("mkdir", n.MkdirAll("/a/b", 0o755))
	check("write", n.Write("/a/b/below", "hidden"))
	check("mount", n.Mount(t.Context(), "server", "/a/b", "nfs", nil))
	check("write", n.Write("/a/b/file", "data"))
	check("bind", errors.Join(n.MkdirAll("/c", 0o755), n.Mount(t.Context(), "/a/b", "/c", "", []string{"bind"})))
	if got, _ := n.Read("/c/file"); got != "data" {
		t.Errorf("through the bind mount: %q", got)
	}
	if _, ok := n.Read("/a/b/below"); ok {
		t.Error("what is below the mount point shows")
	}
	if err := n.Remove("/a/b"); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("Remove of a mount point = %v", err)
	}
	if err := n.RemoveAll("/a"); !errors.Is(err, rmtree.ErrMountPoint) {
		t.Errorf("RemoveAll above a mount point = %v", err)
	}
	check("remove", n.Remove("/c/file"))
	if len(n.Content("server")) != 0 {
		t.Error("what is removed through a mount stayed")
	}
	check("unmount", n.Unmount(t.Context(), "/a/b"))
	if got, _ := n.Read("/a/b/below"); got != "hidden" {
		t.Errorf("after unmounting: %q", got)
	}
}

func TestNodeDies(t *testing.T) {
	n := plugintest.New()
	n.Die(2)
	if err := n.MkdirAll("/a", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := n.Write("/a/x", "data"); !errors.Is(err, plugintest.ErrCrashed) {
		t.Errorf("the last call = %v", err)
	}
	if _, err := n.ReadDir("/a"); !errors.Is(err, plugintest.ErrCrashed) {
		t.Errorf("a call after it = %v", err)
	}
	n.Revive()
	if got, _ := n.Read("/a/x"); got != "data" {
		t.Errorf("what the last call did = %q, want it done", got)
	}
}
