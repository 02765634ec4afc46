package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/lifecycle"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/podworker"
)

// api is a cluster that notes what it is asked, fails as often as it is told to,
// and hangs for the pods that it is told of.
type api struct {
	mu    sync.Mutex
	calls []string
	fail  int
	hang  map[string]bool // by pod name; until the context ends
}

func (a *api) call(ctx context.Context, line, name string) error {
	a.mu.Lock()
	a.calls = append(a.calls, line)
	hang, fail := a.hang[name], a.fail > 0
	if fail {
		a.fail--
	}
	a.mu.Unlock()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	if fail {
		return errors.New("no route to host")
	}
	return nil
}

func (a *api) Ensure(ctx context.Context, pod, mirror *v1.Pod) error {
	line := "ensure " + pod.Name
	if mirror != nil {
		line += " beside " + string(mirror.UID)
	}
	if n := podmeta.LifeIn(pod.Annotations, podmeta.AnnotationLife); n > 0 {
		line += fmt.Sprint(" of life ", n)
	}
	return a.call(ctx, line, pod.Name)
}

func (a *api) Remove(ctx context.Context, mirror *v1.Pod) error {
	return a.call(ctx, "remove "+string(mirror.UID), mirror.Name)
}

func (a *api) taken() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := strings.Join(a.calls, "; ")
	a.calls = nil
	return out
}

func static(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name),
		Annotations: map[string]string{podmeta.AnnotationSource: "file"}}}
}

func mirrorOf(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("mirror-" + name),
		Annotations: map[string]string{podmeta.AnnotationMirror: "hash", podmeta.AnnotationSource: podmeta.SourceAPI}}}
}

// start returns a part that runs until the test's end.
func start(t *testing.T, a *api) (*lifecycle.Mirrors, *agenttest.Host) {
	t.Helper()
	p, err := lifecycle.NewMirrors(lifecycle.MirrorsConfig{API: a})
	if err != nil {
		t.Fatal(err)
	}
	h := agenttest.NewHost(t)
	if err := p.Join(h); err != nil {
		t.Fatal(err)
	}
	h.Settle()
	stop := testrun.Start(t, p.Run)
	t.Cleanup(func() {
		stop()
		p.Syncing(static("late"))
		synctest.Wait()
		if got := a.taken(); strings.Contains(got, "late") {
			t.Errorf("called after Run: %s", got)
		}
	})
	return p, h
}

func TestSyncEnsuresTheMirror(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{}
		p, h := start(t, a)
		web, other := static("web"), static("other")
		other.Annotations[podmeta.AnnotationSource] = podmeta.SourceAPI
		h.SetPods(web, other)
		for _, pod := range []*v1.Pod{web, other, static("unwanted")} {
			p.Syncing(pod)
		}
		synctest.Wait()
		if got := a.taken(); got != "ensure web" {
			t.Errorf("called %q", got)
		}
		h.SetMirrors(mirrorOf("web"))
		p.Syncing(web)
		synctest.Wait()
		if got := a.taken(); got != "ensure web beside mirror-web" {
			t.Errorf("called %q", got)
		}
	})
}

// A pod that is not synced any more gets its mirror by housekeeping: it has ended, or was
// rejected, while the cluster did not answer.
func TestHousekeepingMakesMirrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{}
		p, h := start(t, a)
		shown, ended, ending, other := static("shown"), static("ended"), static("ending"), static("other")
		other.Annotations[podmeta.AnnotationSource] = podmeta.SourceAPI
		h.SetPods(shown, ended, ending, other)
		h.SetMirrors(mirrorOf("shown"))
		h.SetWorker(podworker.Status{UID: ended.UID, Namespace: "default", Name: "ended", Kind: podworker.Terminated, TerminatingAt: time.Now()})
		h.SetWorker(podworker.Status{UID: "earlier", Namespace: "default", Name: "ending", Kind: podworker.Terminating, TerminatingAt: time.Now()})
		p.Housekeep(h.Pods())
		synctest.Wait()
		if got := a.taken(); got != "ensure ended" {
			t.Errorf("called %q", got)
		}
	})
}

// A mirror of a pod that an earlier agent rejected, and that runs now, makes room for
// another one.
func TestMirrorThatItsPodHasOutlived(t *testing.T) {
	ran := v1.PodStatus{Phase: v1.PodFailed, ContainerStatuses: []v1.ContainerStatus{{Name: "c"}}}
	down := *ran.DeepCopy() // for a shutdown of the machine
	down.Conditions = []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet}}
	for _, tc := range []struct {
		name   string
		mirror v1.PodStatus
		status v1.PodPhase    // "": not known yet
		state  observed.State // of its container
		shown  bool
	}{
		{"rejected before", v1.PodStatus{Phase: v1.PodFailed}, "", observed.Unknown, false},
		{"rejected before, runs", v1.PodStatus{Phase: v1.PodFailed}, v1.PodRunning, observed.Running, false},
		{"rejected now", v1.PodStatus{Phase: v1.PodFailed}, v1.PodFailed, observed.Unknown, true},
		{"ended before", ran, "", observed.Exited, true},
		{"ended before, begun by an agent between", ran, "", observed.Running, false},
		{"ended by the node before", down, "", observed.Exited, false},
		{"ended by the node now", down, v1.PodFailed, observed.Exited, true},
		{"ended before, runs", ran, v1.PodPending, observed.Running, false},
		{"runs", v1.PodStatus{Phase: v1.PodRunning}, v1.PodRunning, observed.Running, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &api{}
				p, h := start(t, a)
				web, mirror := static("web"), mirrorOf("web")
				mirror.Status = tc.mirror
				h.SetPods(web)
				h.SetMirrors(mirror)
				// A sandbox may outlast the containers.
				h.SetObserved(&observed.Pod{
					UID: web.UID, Sandboxes: []observed.Sandbox{{State: observed.Running}}, Containers: []observed.Container{{Name: "c", State: tc.state}},
				})
				if tc.status != "" {
					h.SetStatus(web.UID, v1.PodStatus{Phase: tc.status})
				}
				if _, shown := p.PublishAs(web); shown != tc.shown {
					t.Errorf("shown by the mirror: %t, want %t", shown, tc.shown)
				}
				want := ""
				if !tc.shown {
					want = "remove mirror-web; ensure web"
				}
				p.Housekeep(h.Pods())
				synctest.Wait()
				if got := a.taken(); got != want {
					t.Errorf("called %q, want %q", got, want)
				}
			})
		})
	}
}

// The mirror of an earlier life is replaced by one with the number of this life, though the cluster does
// not show how that life ended.
func TestMirrorsHaveTheNumberOfALife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{}
		p, h := start(t, a)
		web, mirror := static("web"), mirrorOf("web")
		mirror.Status.Phase = v1.PodRunning
		h.SetPods(web)
		h.SetMirrors(mirror)
		h.SetLife(web.UID, 1)
		if _, shown := p.PublishAs(web); shown {
			t.Error("shown by the mirror of the life before")
		}
		p.Housekeep(h.Pods())
		synctest.Wait()
		if got, want := a.taken(), "remove mirror-web; ensure web of life 1"; got != want {
			t.Errorf("called %q, want %q", got, want)
		}
		mirror.Annotations = podmeta.WithLife(mirror.Annotations, podmeta.AnnotationLife, h.Life(web).N)
		if _, shown := p.PublishAs(web); !shown {
			t.Error("not shown by the mirror of this life")
		}
	})
}

// A pod that ended, went, and is back before the cluster has deleted its mirror begins anew,
// with another mirror.
func TestBackBeforeItsMirrorIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{}
		p, h := start(t, a)
		web, mirror := static("web"), mirrorOf("web")
		mirror.Status = v1.PodStatus{Phase: v1.PodFailed, ContainerStatuses: []v1.ContainerStatus{{Name: "c"}}}
		h.SetPods(web)
		h.SetMirrors(mirror)
		if _, shown := p.PublishAs(web); !shown {
			t.Error("not shown by the mirror, which may be all that is left of it")
		}
		h.SetPods()
		p.Housekeep(h.Pods())
		synctest.Wait()
		h.SetPods(web)
		if _, shown := p.PublishAs(web); shown {
			t.Error("shown by the mirror of before")
		}
		p.Housekeep(h.Pods())
		synctest.Wait()
		if got, want := a.taken(), "remove mirror-web; remove mirror-web; ensure web"; got != want {
			t.Errorf("called %q, want %q", got, want)
		}
		h.SetMirrors()
		p.Housekeep(h.Pods()) // what is gone is forgotten
		h.SetMirrors(mirror)
		if _, shown := p.PublishAs(web); !shown {
			t.Error("a mirror that is gone is not forgotten")
		}
	})
}

// A call that fails is made again later and later, and not once it is needed no
// more.
func TestFailuresAreRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{fail: 3}
		p, h := start(t, a)
		web := static("web")
		h.SetPods(web)
		p.Syncing(web)
		for _, want := range []int{1, 1, 0, 1, 0, 0, 0, 1} { // at 0, 1, 3 and 7 s
			synctest.Wait()
			if got := a.taken(); strings.Count(got, "ensure") != want {
				t.Errorf("after %v: called %q, want %d calls", time.Now(), got, want)
			}
			time.Sleep(time.Second)
		}
		a.mu.Lock()
		a.fail = 100
		a.mu.Unlock()
		p.Syncing(web)
		synctest.Wait()
		h.SetPods()
		a.taken()
		time.Sleep(time.Hour)
		if got := a.taken(); got != "" {
			t.Errorf("called for a pod that is gone: %s", got)
		}
		h.SetMirrors(mirrorOf("web"))
		p.Housekeep(h.Pods())
		synctest.Wait()
		if got, want := a.taken(), "remove mirror-web"; got != want {
			t.Errorf("called %q, want %q", got, want)
		}
		h.SetPods(web)
		time.Sleep(time.Hour)
		if got := a.taken(); got != "" {
			t.Errorf("called for a mirror whose pod is back: %s", got)
		}
	})
}

// A cluster that does not answer holds up no hook and no other mirror; a call
// ends after its time, and with Run.
func TestClusterHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{hang: map[string]bool{"web": true}}
		p, h := start(t, a)
		web, db := static("web"), static("db")
		h.SetPods(web, db)
		h.SetMirrors(mirrorOf("gone"), mirrorOf("db"))
		for range 3 {
			p.Syncing(web)
			p.MirrorChanged(podmgr.Remove, mirrorOf("web"))
			p.Housekeep(h.Pods())
			p.PublishAs(web)
			synctest.Wait()
		}
		p.Syncing(db)
		synctest.Wait()
		if got := a.taken(); strings.Count(got, "ensure web") != 1 || strings.Count(got, "ensure db") != 1 || !strings.Contains(got, "remove mirror-gone") {
			t.Errorf("called %q", got)
		}
		time.Sleep(32 * time.Second)
		if got := a.taken(); got != "ensure web" {
			t.Errorf("called %q", got)
		}
	})
}

func TestOrphansAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{}
		p, h := start(t, a)
		web := static("web")
		h.SetPods(web)
		h.SetMirrors(mirrorOf("web"), mirrorOf("ending"), mirrorOf("gone"))
		h.SetWorker(podworker.Status{UID: "uid-ending", Namespace: "default", Name: "ending", Kind: podworker.Terminating})
		p.Housekeep(h.Pods())
		synctest.Wait()
		if got := a.taken(); got != "remove mirror-gone" {
			t.Errorf("called %q", got)
		}
	})
}

// Before every source has spoken no mirror is an orphan.
func TestNoOrphansBeforeAllHaveSpoken(t *testing.T) {
	a := &api{}
	p, err := lifecycle.NewMirrors(lifecycle.MirrorsConfig{API: a})
	if err != nil {
		t.Fatal(err)
	}
	h := agenttest.NewHost(t)
	if err := p.Join(h); err != nil {
		t.Fatal(err)
	}
	h.SetMirrors(mirrorOf("web"))
	p.Housekeep([]*v1.Pod{static("db")})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Run(ctx); err != nil { // it waits for all calls
		t.Error(err)
	}
	if got := a.taken(); got != "" {
		t.Errorf("called %q", got)
	}
}

func TestChangesOfMirrors(t *testing.T) {
	for _, tc := range []struct {
		name  string
		op    podmgr.Op
		pod   *v1.Pod
		calls []string
		api   string
	}{
		{"of no pod", podmgr.Add, nil, []string{"housekeep"}, ""},
		{"status", podmgr.Reconcile, static("web"), []string{"reconcile default/web"}, ""},
		{"new", podmgr.Add, static("web"), []string{"republish uid-web"}, "ensure web"},
		{"gone", podmgr.Remove, static("web"), []string{"republish uid-web"}, "ensure web"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &api{}
				p, h := start(t, a)
				if tc.pod != nil {
					h.SetPods(tc.pod)
				}
				p.MirrorChanged(tc.op, mirrorOf("web"))
				synctest.Wait()
				if got := h.Calls(); !slices.Equal(got, tc.calls) {
					t.Errorf("asked the host for %q, want %q", got, tc.calls)
				}
				if got := a.taken(); got != tc.api {
					t.Errorf("called %q, want %q", got, tc.api)
				}
			})
		})
	}
}

func TestPublishAs(t *testing.T) {
	deleted := mirrorOf("web")
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	plain := static("web")
	plain.Annotations = nil
	this, edited := static("web"), static("web")
	this.Annotations[podmeta.AnnotationHash], edited.Annotations[podmeta.AnnotationHash] = "hash", "other"
	for _, tc := range []struct {
		name        string
		pod, mirror *v1.Pod
		want        types.UID // "": not yet
	}{
		{"not static", plain, mirrorOf("web"), "uid-web"},
		{"static", static("web"), mirrorOf("web"), "mirror-web"},
		{"no mirror", static("web"), mirrorOf("db"), ""},
		{"mirror is being deleted", static("web"), deleted, ""},
		{"mirror of this version", this, mirrorOf("web"), "mirror-web"},
		{"mirror of an earlier version", edited, mirrorOf("web"), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := lifecycle.NewMirrors(lifecycle.MirrorsConfig{API: &api{}})
			if err != nil {
				t.Fatal(err)
			}
			h := agenttest.NewHost(t)
			if err := p.Join(h); err != nil {
				t.Fatal(err)
			}
			h.SetMirrors(tc.mirror)
			got, ok := p.PublishAs(tc.pod)
			if ok != (tc.want != "") || ok && got.UID != tc.want {
				t.Errorf("published as %v, %v; want %q", got, ok, tc.want)
			}
		})
	}
}

func TestConfigAndJoin(t *testing.T) {
	if _, err := lifecycle.NewMirrors(lifecycle.MirrorsConfig{}); err == nil {
		t.Error("no API, and no error")
	}
	p, err := lifecycle.NewMirrors(lifecycle.MirrorsConfig{API: &api{}})
	if err != nil {
		t.Fatal(err)
	}
	h := agenttest.NewHost(t)
	if err := p.Join(struct{ part.Host }{h}); err == nil || !strings.Contains(err.Error(), "part.Mirrors") {
		t.Errorf("joined a host without mirrors: %v", err)
	}
	if err := p.Join(h); err != nil {
		t.Error(err)
	}
	if err := p.Join(h); err == nil {
		t.Error("joined twice")
	}
}
