package volumemgr_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

func all(types.UID) bool  { return true }
func none(types.UID) bool { return false }

func only(uids ...types.UID) func(types.UID) bool {
	return func(uid types.UID) bool { return slices.Contains(uids, uid) }
}

// After a restart, volumes of running pods do not change until it is known that no pod needs
// them.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := plugintest.New()
		r := start(t, node, nil)
		r.claims["data"] = localPV("pv", nil)
		kept, gone := newPod("kept", nfs("share"), claim("x", "data")), newPod("gone", nfs("share"), claim("x", "data"))
		r.mount(kept)
		r.mount(gone)
		r.stop()
		before, _ := node.Mounts("/")
		if len(before) != 5 {
			t.Fatalf("mounts after the stop = %v, want all of them", before)
		}

		r = start(t, node, nil)
		r.claims["data"] = localPV("pv", nil)
		if !r.Mounted("kept") || !r.Mounted("gone") || r.state("kept", "share") != volumemgr.StateUncertain {
			t.Error("want every volume taken over as uncertain")
		}
		// A terminating pod has no Mount; a sweep that knows it spares it.
		if err := r.Sweep(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if after, _ := node.Mounts("/"); len(after) != len(before) {
			t.Errorf("mounts = %v, want them untouched", after)
		}
		r.mount(kept)
		if after, _ := node.Mounts("/"); len(after) != len(before) {
			t.Errorf("mounts = %v, want nothing mounted twice", after)
		}
		if err := r.Sweep(t.Context(), only("kept")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		after, _ := node.Mounts("/")
		if len(after) != 3 || slices.ContainsFunc(after, func(m volumemgr.Mount) bool { return strings.Contains(m.Path, "/gone/") }) {
			t.Errorf("mounts = %v, want those of the pod that is kept", after)
		}
		if got := r.disk.Calls("unmountdevice"); got != 0 {
			t.Errorf("UnmountDevice calls = %d while a pod uses it", got)
		}
		if err := r.Remove(t.Context(), "kept"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if after, _ := node.Mounts("/"); len(after) > 0 {
			t.Errorf("mounts = %v, want none", after)
		}
		if p := node.Paths(root + "/pods"); len(p) > 0 {
			t.Errorf("left: %v", p)
		}
	})
}

// A volume of a running pod that cannot be set up again stays uncertain, and
// is torn down when the pod goes and not before.
func TestFoundVolumeFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := plugintest.New()
		r := start(t, node, nil)
		pod := newPod("u1", nfs("share"))
		r.mount(pod)
		r.stop()

		r = start(t, node, nil)
		r.fake.Hook = func(_ context.Context, op string, v *volumemgr.Volume) error {
			if op == "setup" {
				if !v.Found || v.Remount {
					t.Errorf("Found = %v, Remount = %v", v.Found, v.Remount)
				}
				return errServer
			}
			if v.Spec != nil && v.Spec.Volume == nil {
				t.Error("a Spec of nothing")
			}
			return nil
		}
		if _, err := r.Mount(t.Context(), pod); !errors.Is(err, errServer) {
			t.Errorf("Mount = %v", err)
		}
		if got := r.state("u1", "share"); got != volumemgr.StateUncertain || r.fake.Calls("teardown") != 0 {
			t.Errorf("state = %s, TearDown calls = %d", got, r.fake.Calls("teardown"))
		}
		r.unmount("u1")
		if m, _ := node.Mounts("/"); len(m) > 0 || r.fake.Calls("teardown") != 1 {
			t.Errorf("mounts = %v, TearDown calls = %d", m, r.fake.Calls("teardown"))
		}
	})
}

// A claim that cannot be read does not make its volume an unused one.
func TestFoundVolumeOfUnresolvedClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := plugintest.New()
		r := start(t, node, nil)
		r.claims["data"] = localPV("pv", nil)
		pod := newPod("u1", claim("x", "data"), nfs("old"))
		r.mount(pod)
		r.stop()

		r = start(t, node, nil) // its API server does not answer
		if _, err := r.Mount(t.Context(), pod); err == nil {
			t.Fatal("Mount succeeded")
		}
		if err := r.Sweep(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := r.state("u1", "pv"); got != volumemgr.StateUncertain || r.disk.Calls("teardown")+r.disk.Calls("unmountdevice") > 0 {
			t.Errorf("state = %s, want it left alone", got)
		}
		r.claims["data"] = localPV("pv", nil)
		r.mount(pod)
		if got := r.state("u1", "pv"); got != volumemgr.StateMounted {
			t.Errorf("state = %s", got)
		}
	})
}

// A volume that the pod no longer uses is unmounted once all volumes of the pod are known.
func TestFoundVolumeThatThePodDoesNotUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := plugintest.New()
		r := start(t, node, nil)
		r.mount(newPod("u1", nfs("a"), nfs("b")))
		r.stop()
		r = start(t, node, nil)
		r.mount(newPod("u1", nfs("a")))
		synctest.Wait()
		if got := r.state("u1", "b"); got != "none" {
			t.Errorf("state = %s, want it gone", got)
		}
	})
}

// A device that was mounted for no volume, because the process died, goes when
// all pods are known.
func TestFoundDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := plugintest.New()
		if err := errors.Join(node.MkdirAll(root+"/plugins/fake-disk/pv", 0o750),
			node.Mount(t.Context(), "disk-pv", root+"/plugins/fake-disk/pv", "ext4", nil)); err != nil {
			t.Fatal(err)
		}
		r := start(t, node, nil)
		if got := r.disk.Calls("unmountdevice"); got != 0 {
			t.Errorf("UnmountDevice calls before all pods are known = %d", got)
		}
		if err := r.Sweep(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if m, _ := node.Mounts("/"); len(m) > 0 {
			t.Errorf("mounts = %v, want none", m)
		}
	})
}

// Directories of unknown pods are removed.
func TestSweep(t *testing.T) {
	const dir = root + "/pods/u1"
	for _, tc := range []struct {
		name    string
		dirs    []string
		files   []string
		mounted string
		gone    bool
	}{
		{name: "no volumes", dirs: []string{""}, gone: true},
		{name: "other directories", dirs: []string{"not/a/volume"}, files: []string{"etc-hosts", "not/a/file"}, gone: true},
		{name: "an empty volume of no plugin", dirs: []string{"volumes/strange/x/empty"}, gone: true},
		{name: "a volume of no plugin with content", dirs: []string{"volumes/strange/x"}, files: []string{"volumes/strange/x/data"}},
		{name: "a file among the plugins", dirs: []string{"volumes"}, files: []string{"volumes/data"}},
		{name: "a file for volumes", dirs: []string{""}, files: []string{"volumes"}},
		{name: "a file for a volume", dirs: []string{"volumes/kubernetes.io~fake"}, files: []string{"volumes/kubernetes.io~fake/x"}},
		{name: "a directory for a block device", dirs: []string{"volumeDevices/kubernetes.io~fake-disk/x"}, gone: true},
		{name: "a file for a block device", dirs: []string{"volumeDevices/kubernetes.io~fake-disk"}, files: []string{"volumeDevices/kubernetes.io~fake-disk/x"}},
		{name: "a volume of a plugin", dirs: []string{"volumes/kubernetes.io~fake/x"}, files: []string{"volumes/kubernetes.io~fake/x/data"}, gone: true},
		{name: "empty subPaths", dirs: []string{"volume-subpaths/x/app"}, gone: true},
		{name: "subPath mount points", dirs: []string{"volume-subpaths/x/app/0"}, files: []string{"volume-subpaths/x/app/1"}, gone: true},
		{name: "a subPath that is mounted", dirs: []string{"volume-subpaths/x/app/0"}, mounted: "volume-subpaths/x/app/0", gone: true},
		{name: "a subPath with content", dirs: []string{"volume-subpaths/x/app/0"}, files: []string{"volume-subpaths/x/app/0/data"}},
		{name: "a file for a subPath", dirs: []string{"volume-subpaths"}, files: []string{"volume-subpaths/x"}},
		{name: "a mount of no plugin", dirs: []string{"volumes/strange/x"}, mounted: "volumes/strange/x"},
		{name: "a mount elsewhere", dirs: []string{"containers/app"}, files: []string{"etc-hosts"}, mounted: "containers/app"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				node := plugintest.New()
				var errs []error
				for _, d := range tc.dirs {
					errs = append(errs, node.MkdirAll(dir+"/"+d, 0o750))
				}
				for _, f := range tc.files {
					data := "content"
					if strings.HasSuffix(f, "/1") {
						data = ""
					}
					errs = append(errs, node.Write(dir+"/"+f, data))
				}
				if tc.mounted != "" {
					errs = append(errs, node.Mount(t.Context(), "elsewhere", dir+"/"+tc.mounted, "nfs", nil),
						node.Write(dir+"/"+tc.mounted+"/behind", "kept"))
				}
				if err := errors.Join(errs...); err != nil {
					t.Fatal(err)
				}
				before := node.Paths(root)

				r := start(t, node, nil)
				if err := r.Sweep(t.Context(), only("u1")); err != nil {
					t.Errorf("Sweep of pods that are known: %v", err)
				}
				if after := node.Paths(root); !slices.Equal(after, before) {
					t.Errorf("a sweep touched what is known: %v", after)
				}
				err := r.Sweep(t.Context(), none)
				if (err == nil) != tc.gone {
					t.Errorf("Sweep = %v", err)
				}
				if _, lerr := node.Lstat(dir); (lerr != nil) != tc.gone {
					t.Errorf("the directory is gone: %v, want %v", lerr != nil, tc.gone)
				}
				for _, f := range tc.files {
					if _, there := node.Read(dir + "/" + f); !tc.gone && !there {
						t.Errorf("%s was deleted", f)
					}
				}
				if tc.mounted != "" && node.Content("elsewhere")["/behind"] != "kept" {
					t.Error("what lies behind a mount point was deleted")
				}
			})
		})
	}
}

func TestSweepWithoutPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := plugintest.New()
		r := start(t, node, nil)
		if err := r.Sweep(t.Context(), none); err != nil {
			t.Errorf("Sweep without a directory for pods: %v", err)
		}
		node.Faults(func(op, path string) error {
			if path == root+"/pods" {
				return errServer
			}
			return nil
		}, nil)
		if err := r.Sweep(t.Context(), none); !errors.Is(err, errServer) {
			t.Errorf("Sweep of a directory that cannot be read: %v", err)
		}
	})
}

// A pod that comes back while it is swept keeps its directory.
func TestSweepSparesWhoComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := plugintest.New()
		_ = node.MkdirAll(root+"/pods/u1/containers", 0o750)
		r := start(t, node, nil)
		asked := 0
		err := r.Sweep(t.Context(), func(types.UID) bool {
			asked++
			return asked > 1
		})
		if _, lerr := node.Lstat(root + "/pods/u1"); err != nil || lerr != nil {
			t.Errorf("Sweep = %v; directory: %v", err, lerr)
		}
	})
}
