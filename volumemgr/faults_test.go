package volumemgr_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

// The life that faults are put into: two pods on one disk and one server, of
// which the first goes.
func twoPods() (a, b *v1.Pod) {
	volumes := func() []v1.Volume {
		return []v1.Volume{nfs("share"), emptyDir("scratch"), claim("data", "data"), configMap("conf", "web"), hostPath("host", "/srv")}
	}
	return newPod("a", volumes()...), newPod("b", volumes()...)
}

func live(r *rig, a, b *v1.Pod) {
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	_, _ = r.Mount(ctx, a)
	_, _ = r.Mount(ctx, b)
	subPath(r, a)
	_ = r.Unmount(ctx, a.UID)
	_ = r.Remove(ctx, a.UID)
}

// subPath mounts a part of a volume as the runtime is to get it.
func subPath(r *rig, pod *v1.Pod) {
	dir := path.Join(root, "pods", string(pod.UID), "volume-subpaths/share/app/0")
	_ = r.node.MkdirAll(dir, 0o750)
	_ = r.node.Mount(r.t.Context(), where(string(pod.UID), "fake", "share"), dir, "", []string{"bind"})
}

// seed returns a node with data that must never be lost.
func seed(t *testing.T) *plugintest.Node {
	t.Helper()
	node := plugintest.New()
	var errs []error
	for _, source := range []string{"server/share", "disk-pv"} {
		errs = append(errs, node.MkdirAll("/tmp/seed", 0o755), node.Mount(t.Context(), source, "/tmp/seed", "nfs", nil),
			node.Write("/tmp/seed/data", "kept"), node.Unmount(t.Context(), "/tmp/seed"))
	}
	errs = append(errs, node.MkdirAll("/srv", 0o755), node.Write("/srv/data", "kept"))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return node
}

func checkData(t *testing.T, node *plugintest.Node, when string) {
	t.Helper()
	host, _ := node.Read("/srv/data")
	for where, got := range map[string]string{
		"server": node.Content("server/share")["/data"], "disk": node.Content("disk-pv")["/data"], "host": host,
	} {
		if got != "kept" {
			t.Errorf("%s: the data on the %s was deleted", when, where)
		}
	}
}

// converge is the next run, without faults: b is wanted, a is not.
func converge(t *testing.T, node *plugintest.Node, b *v1.Pod, when string) {
	t.Helper()
	r := start(t, node, nil)
	r.claims["data"] = localPV("pv", nil)
	r.mount(b)
	if err := r.Sweep(t.Context(), only("b")); err != nil {
		t.Errorf("%s: Sweep: %v", when, err)
	}
	synctest.Wait()
	checkData(t, node, when)
	for _, s := range r.Why("b") {
		if s.State != volumemgr.StateMounted {
			t.Errorf("%s: %+v", when, s)
		}
	}
	mounts, _ := node.Mounts("/")
	var paths []string
	for _, m := range mounts {
		paths = append(paths, m.Path)
	}
	slices.Sort(paths)
	want := []string{root + "/plugins/fake-disk/pv", where("b", "fake-disk", "pv"), where("b", "fake", "share")}
	slices.Sort(want)
	if !slices.Equal(paths, want) {
		t.Errorf("%s: mounts = %v, want %v", when, paths, want)
	}
	if left := node.Paths(root + "/pods/a"); len(left) > 0 {
		t.Errorf("%s: left of the pod that went: %v", when, left)
	}
	if err := r.Sweep(t.Context(), none); err != nil {
		t.Errorf("%s: Sweep: %v", when, err)
	}
	synctest.Wait()
	if mounts, _ := node.Mounts("/"); len(mounts) > 0 {
		t.Errorf("%s: leaked mounts: %v", when, mounts)
	}
	if left := node.Paths(root + "/pods"); len(left) > 0 {
		t.Errorf("%s: left in the end: %v", when, left)
	}
	checkData(t, node, when+", in the end")
	r.stop()
}

// The process dies after each of the calls that change something.
func TestCrashAnywhere(t *testing.T) {
	var writes int
	synctest.Test(t, func(t *testing.T) {
		node := seed(t)
		r := start(t, node, nil)
		r.claims["data"] = localPV("pv", nil)
		node.Revive()
		a, b := twoPods()
		live(r, a, b)
		synctest.Wait()
		r.stop()
		writes = node.Writes()
		converge(t, node, b, "without a crash")
	})
	if writes < 20 {
		t.Fatalf("only %d calls change something; the test has lost its sense", writes)
	}
	for at := 1; at <= writes; at++ {
		synctest.Test(t, func(t *testing.T) {
			node := seed(t)
			r := start(t, node, nil)
			r.claims["data"] = localPV("pv", nil)
			node.Die(at)
			a, b := twoPods()
			live(r, a, b)
			r.stop()
			checkData(t, node, fmt.Sprintf("crash at %d", at))
			node.Revive()
			converge(t, node, b, fmt.Sprintf("crash at %d", at))
		})
	}
}

// Any call may fail, before or after it took effect; calls for b never destroy its data.
func TestFaultsAnywhere(t *testing.T) {
	for seeded := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			node := seed(t)
			r := start(t, node, nil)
			r.claims["data"] = localPV("pv", nil)
			rng := rand.New(rand.NewPCG(seeded, 1))
			fault := func(op, path string) error { // the node calls it with its lock held
				if rng.IntN(4) == 0 {
					return fmt.Errorf("%s %s: input/output error", op, path)
				}
				return nil
			}
			if seeded%2 == 0 {
				node.Faults(fault, fault)
			} else {
				node.Faults(fault, nil)
			}
			a, b := twoPods()
			live(r, a, b)
			time.Sleep(5 * time.Minute)
			checkData(t, node, fmt.Sprintf("faults %d", seeded))
			if seeded%4 < 2 {
				// The same process recovers by itself once the faults are over.
				synctest.Wait()
				node.Faults(nil, nil)
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				for _, s := range r.Why("b") {
					if s.State != volumemgr.StateMounted {
						t.Errorf("faults %d: %+v", seeded, s)
					}
				}
				for _, s := range r.Why("a") {
					t.Errorf("faults %d: still there: %+v", seeded, s)
				}
			}
			r.stop()
			node.Faults(nil, nil)
			converge(t, node, b, fmt.Sprintf("faults %d", seeded))
		})
	}
}

// For any content of a pod's directory, a new process neither crashes nor deletes files that no
// plugin created.
func FuzzReconstruct(f *testing.F) {
	f.Add("volumes/kubernetes.io~fake/x/data\nvolumes/strange/y/data\nvolume-subpaths/x/app/0\netc-hosts")
	f.Add("volumes\nvolumeDevices/kubernetes.io~fake-disk/pv\n.\n..\nvolumes/~/x")
	f.Add("volume-subpaths\nvolumeDevices\nplugins/kubernetes.io~fake/x/ready")
	f.Fuzz(func(t *testing.T, tree string) {
		if len(tree) > 1000 || strings.ContainsRune(tree, 0) {
			t.Skip()
		}
		synctest.Test(t, func(t *testing.T) {
			node := plugintest.New()
			const dir = root + "/pods/u1"
			_ = node.MkdirAll(dir, 0o750)
			var kept []string
			for line := range strings.Lines(tree) {
				p := path.Clean(path.Join(dir, strings.TrimSuffix(line, "\n")))
				if !strings.HasPrefix(p, dir+"/") {
					continue
				}
				_ = node.MkdirAll(path.Dir(p), 0o750)
				if node.Write(p, "content") != nil {
					continue
				}
				parts := strings.Split(strings.TrimPrefix(p, dir+"/"), "/")
				volume := len(parts) > 3 && parts[0] == "volumes" && strings.HasPrefix(parts[1], "kubernetes.io~fake")
				if !volume && slices.Contains([]string{"volumes", "volumeDevices", "volume-subpaths"}, parts[0]) {
					kept = append(kept, p)
				}
			}
			r := start(t, node, nil)
			if err := r.Sweep(t.Context(), all); err != nil {
				t.Errorf("Sweep of a pod that is known: %v", err)
			}
			err := r.Sweep(t.Context(), none)
			for _, p := range kept {
				if _, ok := node.Read(p); !ok {
					t.Errorf("%s was deleted", p)
				}
			}
			if _, lerr := node.Lstat(dir); (err == nil) == (lerr == nil) {
				t.Errorf("Sweep = %v, and the directory: %v", err, lerr)
			}
		})
	})
}
