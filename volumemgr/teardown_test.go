package volumemgr_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

// Subpath mounts of a volume are unmounted before the volume.
func TestSubPathsGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, plugintest.New(), nil)
		pod := newPod("u1", nfs("share"))
		r.mount(pod)
		subPath(r, pod)
		r.fake.Hook = func(_ context.Context, op string, _ *volumemgr.Volume) error {
			if m, _ := r.node.Mounts(root + "/pods/u1/volume-subpaths"); op == "teardown" && len(m) > 0 {
				t.Errorf("TearDown while there is %v", m)
			}
			return nil
		}
		r.unmount("u1")
	})
}

// forgetful reports an unmount as successful without doing it.
type forgetful struct{ plugintest.Fake }

func (*forgetful) TearDown(context.Context, *volumemgr.Volume) error { return nil }

func TestPluginIsNotTakenAtItsWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, plugintest.New(), func(c *volumemgr.Config) {
			c.Plugins = []volumemgr.Plugin{&forgetful{plugintest.Fake{Node: c.Files.(*plugintest.Node)}}}
		})
		r.mount(newPod("u1", nfs("share")))
		if err := r.Unmount(t.Context(), "u1"); err == nil || !strings.Contains(err.Error(), "still a mount point") {
			t.Errorf("Unmount = %v", err)
		}
		if got := r.state("u1", "share"); got != volumemgr.StateUncertain {
			t.Errorf("state = %s", got)
		}
	})
}

// A device that an earlier process left stays while not all pods are known,
// although the one that is known has come and gone.
func TestFoundDeviceIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := plugintest.New()
		_ = node.MkdirAll(root+"/plugins/fake-disk/pv", 0o750)
		r := start(t, node, nil)
		r.claims["data"] = localPV("pv", nil)
		r.disk.Hook = func(_ context.Context, op string, _ *volumemgr.Volume) error {
			if op == "mountdevice" {
				return errServer
			}
			return nil
		}
		_, _ = r.Mount(t.Context(), newPod("u1", claim("x", "data")))
		r.unmount("u1")
		synctest.Wait()
		if got := r.disk.Calls("unmountdevice"); got != 0 {
			t.Errorf("UnmountDevice calls = %d, want none before the sweep", got)
		}
		if err := r.Sweep(t.Context(), none); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := r.disk.Calls("unmountdevice"); got != 1 {
			t.Errorf("UnmountDevice calls = %d, want 1", got)
		}
	})
}

// Devices that could not be listed are known from the volumes of pods.
func TestDeviceFoundByItsVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := plugintest.New()
		r := start(t, node, nil)
		r.claims["data"] = localPV("pv", nil)
		r.mount(newPod("u1", claim("x", "data")))
		r.stop()
		node.Faults(func(_, path string) error {
			if strings.HasSuffix(path, "/plugins/fake-disk") {
				return errServer
			}
			return nil
		}, nil)
		r = start(t, node, nil)
		if err := r.Sweep(t.Context(), none); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if m, _ := node.Mounts("/"); len(m) > 0 {
			t.Errorf("mounts = %v, want none", m)
		}
	})
}

// Leftovers of a failed set-up are removed, even if the plugin reported that it left none.
func TestLeftoversOfFailedSetUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, plugintest.New(), nil)
		r.fake.Hook = func(_ context.Context, op string, v *volumemgr.Volume) error {
			if op != "setup" {
				return nil
			}
			_ = r.node.MkdirAll(v.Path, 0o750)
			_ = r.node.Write(v.Path+"/half", "data")
			return errServer
		}
		_, _ = r.Mount(t.Context(), newPod("u1", emptyDir("a")))
		r.unmount("u1")
		if left := r.node.Paths(root + "/pods/u1"); len(left) > 0 || r.fake.Calls("teardown") != 1 {
			t.Errorf("left: %v, TearDown calls = %d", left, r.fake.Calls("teardown"))
		}
	})
}

// An object that comes while the set-up that misses it runs is not waited for
// in back-off.
func TestChangeDuringSetUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, plugintest.New(), nil)
		first := true // operations on one volume do not overlap
		r.content.Hook = func(context.Context, string, *volumemgr.Volume) error {
			if !first {
				return nil
			}
			first = false
			r.Changed(volumemgr.Ref{Kind: "ConfigMap", Namespace: "default", Name: "web"})
			return errServer
		}
		begin := time.Now()
		_, _ = r.Mount(t.Context(), newPod("u1", configMap("conf", "web")))
		synctest.Wait()
		if got := r.state("u1", "conf"); got != volumemgr.StateMounted || time.Since(begin) != 0 {
			t.Errorf("state = %s after %v, want it mounted at once", got, time.Since(begin))
		}
	})
}
