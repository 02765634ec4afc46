package volumemgr_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

var errServer = errors.New("no such server")

func TestMountAndUnmount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, plugintest.New(), nil)
		pod := newPod("u1", emptyDir("scratch"), hostPath("logs", "/var/log"), nfs("share"))
		pod.Spec.Volumes = append(pod.Spec.Volumes, emptyDir("unused"))
		before := time.Now()
		paths := r.mount(pod).Paths()
		want := map[string]string{"scratch": where("u1", "fake", "scratch"), "logs": "/var/log", "share": where("u1", "fake", "share")}
		if len(paths) != len(want) {
			t.Errorf("paths = %v, want %v", paths, want)
		}
		for name, p := range want {
			if paths[name] != p {
				t.Errorf("path of %s = %q, want %q", name, paths[name], p)
			}
		}
		if took := time.Since(before); took != 0 {
			t.Errorf("Mount took %v of waiting, want it to return when the volumes are mounted", took)
		}
		if !r.Mounted("u1") {
			t.Error("Mounted = false after Mount")
		}
		r.mount(pod)
		if got := r.fake.Calls("setup"); got != 3 {
			t.Errorf("SetUp calls after a second Mount = %d, want 3 as after the first", got)
		}

		if err := r.node.Write(where("u1", "fake", "share")+"/data", "kept"); err != nil {
			t.Fatal(err)
		}
		r.unmount("u1")
		if r.Mounted("u1") || len(r.Pods()) > 0 {
			t.Errorf("Mounted = %v, pods = %v after Unmount; want none", r.Mounted("u1"), r.Pods())
		}
		if got := r.node.Paths(root + "/pods/u1"); len(got) > 0 {
			t.Errorf("left on disk: %v", got)
		}
		if got := r.node.Content("server/share")["/data"]; got != "kept" {
			t.Errorf("the file on the server is %q, want it kept", got)
		}
		r.unmount("u1") // once more, and of a pod that never was
		r.unmount("u2")
		if got := r.fake.Calls("teardown"); got != 3 {
			t.Errorf("TearDown calls = %d, want 3", got)
		}
	})
}

func TestMountReturnsWithTheFirstError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, plugintest.New(), nil)
		var broken atomic.Bool
		broken.Store(true)
		r.fake.Hook = func(_ context.Context, op string, v *volumemgr.Volume) error {
			if broken.Load() && v.Name == "share" {
				return errServer
			}
			return nil
		}
		pod := newPod("u1", emptyDir("scratch"), nfs("share"))
		begin := time.Now()
		ms, err := r.Mount(t.Context(), pod)
		if !errors.Is(err, errServer) || !strings.Contains(err.Error(), `volume "share"`) {
			t.Fatalf("error = %v, want the cause and the volume", err)
		}
		if _, ok := ms["scratch"]; !ok || len(ms) != 1 {
			t.Errorf("mounts = %v, want the volume that is ready", ms)
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("Mount returned after %v, want at once", took)
		}
		var ve *volumemgr.Error
		if !errors.As(err, &ve) || !ve.RetryAt().Equal(begin.Add(500*time.Millisecond)) {
			t.Errorf("RetryAt = %v, want in 500ms", ve.RetryAt().Sub(begin))
		}
		// Mount does not wait in back-off either.
		if _, err := r.Mount(t.Context(), pod); !errors.Is(err, errServer) {
			t.Errorf("second Mount: %v", err)
		}
		if got := r.fake.Calls("setup"); got != 2 {
			t.Errorf("SetUp calls = %d, want none within the back-off", got)
		}

		time.Sleep(400 * time.Second)
		synctest.Wait()
		// 0.5+1+2+4+8+16+32+64+122+122 seconds after the first.
		if got := r.fake.Calls("setup"); got != 2+10 {
			t.Errorf("SetUp calls after 400s = %d, want 12", got)
		}
		why := r.Why("u1")[1]
		if why.State != volumemgr.StateWanted || why.Failures != 11 || why.First != errServer.Error() || !why.FirstAt.Equal(begin) || why.Next.IsZero() {
			t.Errorf("Why = %+v", why)
		}
		if len(r.heard()) > 0 {
			t.Error("Ready was called before all volumes were mounted")
		}
		broken.Store(false)
		time.Sleep(122 * time.Second)
		synctest.Wait()
		if got := r.heard(); len(got) != 1 || got[0] != "u1" {
			t.Errorf("Ready heard %v, want u1 once", got)
		}
		r.mount(pod)
		if why := r.Why("u1")[1]; why.Failures != 0 || why.State != volumemgr.StateMounted {
			t.Errorf("Why after success = %+v", why)
		}
		if len(r.events.all) != 11 || !strings.HasPrefix(r.events.all[0], `Warning FailedMount MountVolume.SetUp failed for volume "share" : no such server`) {
			t.Errorf("events = %q", r.events.all)
		}
	})
}

// The error of a failing volume also has its first error.
func TestFirstErrorIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, plugintest.New(), nil)
		errs := []error{errServer, errors.New("already exists"), errors.New("already exists")}
		r.fake.Hook = func(_ context.Context, op string, _ *volumemgr.Volume) error {
			if op == "setup" && len(errs) > 0 {
				err := errs[0]
				errs = errs[1:]
				return err
			}
			return nil
		}
		pod := newPod("u1", emptyDir("a"))
		_, _ = r.Mount(t.Context(), pod)
		time.Sleep(time.Second)
		synctest.Wait()
		_, err := r.Mount(t.Context(), pod)
		if !errors.Is(err, errServer) || !strings.Contains(err.Error(), "already exists") {
			t.Errorf("error = %v, want the last and the first", err)
		}
		why := r.Why("u1")[0]
		if why.First != errServer.Error() || why.Last != "already exists" || why.Failures != 2 {
			t.Errorf("Why = %+v", why)
		}
	})
}

// A Mount whose caller gives up stops what it started; one whose time is over
// does not.
func TestMountGivenUp(t *testing.T) {
	hang := func(ctx context.Context, op string, _ *volumemgr.Volume) error {
		if op != "setup" {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(30 * time.Second):
			return nil
		}
	}
	t.Run("canceled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := start(t, plugintest.New(), nil)
			r.fake.Hook = hang
			pod := newPod("u1", nfs("share"))
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			_, err := r.Mount(ctx, pod)
			if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "share (mounting)") {
				t.Errorf("error = %v, want what it was waiting for", err)
			}
			synctest.Wait()
			if got := r.state("u1", "share"); got != volumemgr.StateUncertain {
				t.Errorf("state = %s, want uncertain: the operation was stopped", got)
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			if got := r.fake.Calls("setup"); got != 1 {
				t.Errorf("SetUp calls = %d, want no more while nobody asks", got)
			}
			r.mount(pod)
			if len(r.events.all) > 0 {
				t.Errorf("events of a canceled operation: %q", r.events.all)
			}
		})
	})
	t.Run("out of time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := start(t, plugintest.New(), nil)
			r.fake.Hook = hang
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := r.Mount(ctx, newPod("u1", nfs("share"))); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error = %v", err)
			}
			time.Sleep(30 * time.Second)
			synctest.Wait()
			if got := r.state("u1", "share"); got != volumemgr.StateMounted {
				t.Errorf("state = %s, want mounted in the end", got)
			}
			if len(r.heard()) != 1 {
				t.Error("Ready was not called")
			}
		})
	})
	t.Run("one of two", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := start(t, plugintest.New(), nil)
			r.fake.Hook = hang
			pod := newPod("u1", nfs("share"))
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			go func() { _, _ = r.Mount(ctx, pod) }()
			r.mount(pod) // waits all of the 30 seconds
			if got := r.fake.Calls("setup"); got != 1 {
				t.Errorf("SetUp calls = %d, want the one to go on for who still waits", got)
			}
		})
	})
}

// Unmount stops a set-up, and what may have come of it is torn down.
func TestUnmountStopsSetUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, plugintest.New(), nil)
		r.fake.Hook = func(ctx context.Context, op string, v *volumemgr.Volume) error {
			if op == "setup" {
				_ = r.node.Mount(ctx, "server", v.Path, "nfs", nil)
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		mounting := make(chan error)
		go func() {
			_, err := r.Mount(t.Context(), newPod("u1", nfs("share")))
			mounting <- err
		}()
		synctest.Wait()
		go func() {
			if err := r.Unmount(t.Context(), "u1"); err != nil {
				t.Errorf("Unmount: %v", err)
			}
		}()
		if err := <-mounting; !errors.Is(err, volumemgr.ErrUnwanted) {
			t.Errorf("Mount = %v, want ErrUnwanted", err)
		}
		synctest.Wait()
		if got := r.fake.Calls("teardown"); got != 1 || r.Mounted("u1") {
			t.Errorf("TearDown calls = %d, mounted = %v; want 1 and false", got, r.Mounted("u1"))
		}
	})
}

// A call that never returns takes its own volume and nothing else.
func TestHungOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, plugintest.New(), nil)
		release := make(chan struct{})
		r.fake.Limit = 10 * time.Second
		r.fake.Hook = func(_ context.Context, op string, v *volumemgr.Volume) error {
			if strings.HasPrefix(v.Name, "share") && op == "setup" {
				<-release
			}
			return nil
		}
		begin := time.Now()
		volumes := make([]v1.Volume, 16) // as many as may be set up at a time
		for i := range volumes {
			volumes[i] = nfs(fmt.Sprint("share", i))
		}
		pod := newPod("u1", append(volumes, emptyDir("scratch"))...)
		_, err := r.Mount(t.Context(), pod)
		if !errors.Is(err, volumemgr.ErrHung) || time.Since(begin) != 11*time.Second {
			t.Errorf("Mount = %v after %v, want ErrHung after 11s", err, time.Since(begin))
		}
		if got := r.state("u1", "scratch"); got != volumemgr.StateMounted {
			t.Errorf("the other volume is %s", got)
		}
		if _, err := r.Mount(t.Context(), pod); !errors.Is(err, volumemgr.ErrHung) {
			t.Errorf("Mount while it hangs = %v", err)
		}
		if err := r.Unmount(t.Context(), "u1"); !errors.Is(err, volumemgr.ErrHung) {
			t.Errorf("Unmount while it hangs = %v", err)
		}
		for _, s := range r.Why("u1") {
			if strings.HasPrefix(s.Volume, "share") && !s.Hung {
				t.Errorf("Why = %+v, want Hung", s)
			}
		}
		close(release)
		synctest.Wait()
		r.unmount("u1")
	})
}

// What the limit holds back runs in its turn.
func TestParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, plugintest.New(), nil)
		now, most := 0, 0
		r.fake.Hook = func(_ context.Context, op string, v *volumemgr.Volume) error {
			r.mu.Lock()
			now++
			most = max(most, now)
			r.mu.Unlock()
			time.Sleep(100 * time.Millisecond)
			r.mu.Lock()
			now--
			r.mu.Unlock()
			return nil
		}
		volumes := make([]v1.Volume, 40)
		for i := range volumes {
			volumes[i] = emptyDir(fmt.Sprint("v", i))
		}
		begin := time.Now()
		r.mount(newPod("u1", volumes...))
		if took := time.Since(begin); most != 16 || took != 300*time.Millisecond {
			t.Errorf("most at a time = %d, took %v; want 16 and 300ms", most, took)
		}
	})
}

func TestPanicIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, plugintest.New(), nil)
		r.fake.Hook = func(_ context.Context, op string, v *volumemgr.Volume) error {
			if op == "setup" {
				panic("nil map")
			}
			return nil
		}
		if _, err := r.Mount(t.Context(), newPod("u1", emptyDir("a"))); err == nil || !strings.Contains(err.Error(), "nil map") {
			t.Errorf("error = %v", err)
		}
		if got := r.state("u1", "a"); got != volumemgr.StateUncertain {
			t.Errorf("state = %s, want uncertain", got)
		}
		r.unmount("u1")
		if got := r.fake.Calls("teardown"); got != 1 {
			t.Errorf("TearDown calls = %d, want 1", got)
		}
	})
}

// A set-up that failed for sure has left nothing to tear down.
func TestFailedForSure(t *testing.T) {
	for _, tc := range []struct {
		name      string
		err       error
		tearDowns int
	}{
		{"for sure", errServer, 0},
		{"uncertain", volumemgr.ErrUncertain, 1},
		{"transient", volumemgr.ErrTransient, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, plugintest.New(), nil)
				r.fake.Hook = func(_ context.Context, op string, _ *volumemgr.Volume) error {
					if op == "setup" {
						return tc.err
					}
					return nil
				}
				_, err := r.Mount(t.Context(), newPod("u1", nfs("share")))
				if !errors.Is(err, tc.err) {
					t.Errorf("Mount = %v", err)
				}
				r.unmount("u1")
				if got := r.fake.Calls("teardown"); got != tc.tearDowns {
					t.Errorf("TearDown calls = %d, want %d", got, tc.tearDowns)
				}
			})
		})
	}
}

// A tear-down that fails is tried again until it works, or the pod is back.
func TestUnmountFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, plugintest.New(), nil)
		var busy atomic.Bool
		busy.Store(true)
		r.fake.Hook = func(_ context.Context, op string, _ *volumemgr.Volume) error {
			if op == "teardown" && busy.Load() {
				return errors.New("device busy")
			}
			return nil
		}
		pod := newPod("u1", nfs("share"))
		r.mount(pod)
		err := r.Unmount(t.Context(), "u1")
		if err == nil || !strings.Contains(err.Error(), `volume "share": device busy`) {
			t.Errorf("Unmount = %v", err)
		}
		if got := r.state("u1", "share"); got != volumemgr.StateUncertain || !r.Mounted("u1") {
			t.Errorf("state = %s, mounted = %v; want uncertain, true", got, r.Mounted("u1"))
		}
		// Asked again it tries again at once.
		if err := r.Unmount(t.Context(), "u1"); err == nil || r.fake.Calls("teardown") != 2 {
			t.Errorf("Unmount = %v after %d tries", err, r.fake.Calls("teardown"))
		}
		r.mount(pod)
		if got := r.state("u1", "share"); got != volumemgr.StateMounted {
			t.Errorf("state after a new Mount = %s", got)
		}
		_ = r.Unmount(t.Context(), "u1")
		busy.Store(false)
		time.Sleep(time.Second)
		synctest.Wait()
		if r.Mounted("u1") {
			t.Error("the retry did not unmount it")
		}
		if got := r.Pods(); len(got) > 0 {
			t.Errorf("pods = %v, want the record forgotten with its last volume", got)
		}
	})
}

func TestContentChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, plugintest.New(), nil)
		web, db := newPod("u1", configMap("conf", "web")), newPod("u2", configMap("conf", "db"))
		r.mount(web)
		r.mount(db)
		ref := volumemgr.Ref{Kind: "ConfigMap", Namespace: "default", Name: "web"}
		setUps := func() int {
			synctest.Wait()
			return r.content.Calls("setup")
		}
		r.Changed(ref)
		if got := setUps(); got != 3 {
			t.Errorf("SetUp calls after a change of one of two = %d, want 3", got)
		}
		r.Changed(volumemgr.Ref{Kind: "ConfigMap", Namespace: "other", Name: "web"})
		r.Changed(volumemgr.Ref{Kind: "Secret", Namespace: "default", Name: "web"})
		if got := setUps(); got != 3 {
			t.Errorf("SetUp calls after changes of others = %d, want 3", got)
		}

		// The pod itself is a source.
		web = web.DeepCopy()
		web.Annotations = map[string]string{"not": "shown"}
		r.mount(web)
		if got := setUps(); got != 3 {
			t.Errorf("SetUp calls after a change that does not show = %d, want 3", got)
		}
		web = web.DeepCopy()
		web.Labels = map[string]string{"tier": "front"}
		r.mount(web)
		if got := setUps(); got != 4 {
			t.Errorf("SetUp calls after a change of labels = %d, want 4", got)
		}
		if got, _ := r.node.Read(where("u1", "fake-content", "conf") + "/labels"); got != "map[tier:front]" {
			t.Errorf("content = %q", got)
		}

		r.unmount("u1")
		r.Changed(ref)
		if got := setUps(); got != 4 {
			t.Errorf("SetUp calls of an unmounted volume = %d, want none", got)
		}
	})
}

// A refresh that fails takes nothing from containers and fails no pod, but is
// tried again and told of.
func TestRefreshFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, plugintest.New(), nil)
		var broken atomic.Bool
		r.content.Hook = func(_ context.Context, op string, v *volumemgr.Volume) error {
			if broken.Load() && op == "setup" {
				if !v.Remount {
					t.Error("Remount is not set")
				}
				return errServer
			}
			return nil
		}
		pod := newPod("u1", configMap("conf", "web"))
		r.mount(pod)
		broken.Store(true)
		ref := volumemgr.Ref{Kind: "ConfigMap", Namespace: "default", Name: "web"}
		r.Changed(ref)
		synctest.Wait()
		if ms := r.mount(pod); ms["conf"].Path == "" {
			t.Error("a mounted volume is not among the mounts")
		}
		why := r.Why("u1")[0]
		if why.State != volumemgr.StateMounted || why.Failures != 1 || why.Next.IsZero() {
			t.Errorf("Why = %+v", why)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := r.content.Calls("setup"); got != 1+5 {
			t.Errorf("SetUp calls = %d, want retries with back-off", got)
		}
		broken.Store(false)
		r.Changed(ref) // ends the back-off
		synctest.Wait()
		if why := r.Why("u1")[0]; why.Failures != 0 {
			t.Errorf("Why = %+v", why)
		}
		if got := r.content.Calls("teardown"); got != 0 {
			t.Errorf("TearDown calls = %d, want none", got)
		}
	})
}

// What was missing comes: the volume does not wait for its back-off.
func TestMissingObjectComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, plugintest.New(), nil)
		var missing atomic.Bool
		missing.Store(true)
		r.content.Hook = func(_ context.Context, op string, _ *volumemgr.Volume) error {
			if missing.Load() {
				return errors.New("configmap not found")
			}
			return nil
		}
		_, err := r.Mount(t.Context(), newPod("u1", configMap("conf", "web")))
		if err == nil {
			t.Fatal("Mount succeeded without the object")
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		missing.Store(false)
		at := time.Now()
		r.Changed(volumemgr.Ref{Kind: "ConfigMap", Namespace: "default", Name: "web"})
		synctest.Wait()
		if len(r.heard()) != 1 || !time.Now().Equal(at) {
			t.Error("want the volume mounted, and Ready called, at once")
		}
	})
}

// Content with an end is made again before anybody asks.
func TestContentExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, plugintest.New(), nil)
		r.content.Again = 48 * time.Minute
		pod := newPod("u1", configMap("token", "web"))
		r.mount(pod)
		time.Sleep(2*time.Hour + time.Second)
		synctest.Wait()
		if got := r.content.Calls("setup"); got != 3 {
			t.Errorf("SetUp calls in two hours = %d, want 3", got)
		}
		r.unmount("u1")
		time.Sleep(2 * time.Hour)
		if got := r.content.Calls("setup"); got != 3 {
			t.Errorf("SetUp calls after Unmount = %d, want no more", got)
		}
	})
}

func TestMistakesInPods(t *testing.T) {
	blockPV := localPV("raw", block)
	filePV := localPV("files", nil)
	for _, tc := range []struct {
		name string
		pod  *v1.Pod
		want string
	}{
		{"no plugin", newPod("u1", v1.Volume{Name: "x", VolumeSource: v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{}}}), "no plugin supports volumes of type iscsi"},
		{"unbound claim", newPod("u1", claim("x", "unbound")), "claim unbound is not bound"},
		{"block in volumeMounts", newPod("u1", claim("x", "raw")), "want volumeDevices"},
		{"file system in volumeDevices", mapped(newPod("u1", claim("x", "files"))), "want volumeMounts"},
		{"emptyDir in volumeDevices", mapped(newPod("u1", emptyDir("x"))), "want volumeMounts"},
		{"a name that leads elsewhere", newPod("u1", emptyDir("../x")), "cannot be the name of a directory"},
		{"a UID that leads elsewhere", newPod("../u1", emptyDir("x")), "cannot be the name of a directory"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, plugintest.New(), nil)
				r.claims["raw"], r.claims["files"] = blockPV, filePV
				if _, err := r.Mount(t.Context(), tc.pod); err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("error = %v, want %q", err, tc.want)
				}
			})
		})
	}
}

// One bad volume does not keep the others from being mounted.
func TestUnresolvedVolumeAmongOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, plugintest.New(), nil)
		ms, err := r.Mount(t.Context(), newPod("u1", emptyDir("a"), claim("data", "unbound")))
		if err == nil || ms["a"].Path == "" {
			t.Errorf("Mount = %v, %v", ms, err)
		}
	})
}

func TestReadWriteOncePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, plugintest.New(), nil)
		r.claims["data"] = localPV("pv", func(pv *v1.PersistentVolume) {
			pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
		})
		r.mount(newPod("u1", claim("x", "data")))
		_, err := r.Mount(t.Context(), newPod("u2", claim("x", "data")))
		if err == nil || !strings.Contains(err.Error(), "ReadWriteOncePod") {
			t.Errorf("error = %v", err)
		}
		r.unmount("u1")
		time.Sleep(time.Second)
		synctest.Wait()
		if got := r.state("u2", "pv"); got != volumemgr.StateMounted {
			t.Errorf("state once the other pod has gone = %s", got)
		}
	})
}

// One claim under two names is one volume with both.
func TestOneClaimTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, plugintest.New(), nil)
		r.claims["data"] = localPV("pv", func(pv *v1.PersistentVolume) {
			pv.Annotations = map[string]string{"pv.beta.kubernetes.io/gid": "77"}
		})
		pod := newPod("u1", claim("x", "data"), claim("y", "data"))
		ms := r.mount(pod)
		if ms["x"].Path == "" || ms["x"].Path != ms["y"].Path {
			t.Errorf("mounts = %v", ms)
		}
		if got := r.disk.Calls("setup"); got != 1 {
			t.Errorf("SetUp calls = %d, want 1", got)
		}
		if got := ms.Groups(pod); len(got) != 1 || got[0] != 77 {
			t.Errorf("groups = %v, want 77", got)
		}
	})
}

// 100 pods with 500 volumes at rest: nothing runs and nothing is due.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := plugintest.New()
		r := start(t, node, nil)
		for i := range 100 {
			uid := types.UID("u" + string(rune('a'+i/26)) + string(rune('a'+i%26)))
			r.mount(newPod(uid, emptyDir("a"), emptyDir("b"), nfs("c"), configMap("d", "x"), hostPath("e", "/tmp")))
		}
		synctest.Wait()
		calls := 0
		node.Faults(func(string, string) error {
			calls++
			return nil
		}, nil)
		for _, uid := range r.Pods() {
			for _, s := range r.Why(uid) {
				if !s.Next.IsZero() || s.State != volumemgr.StateMounted {
					t.Fatalf("something is due: %+v", s)
				}
			}
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if calls > 0 {
			t.Errorf("calls in a day of rest = %d, want none", calls)
		}
	})
}
