package pressure_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/pressure"
	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/gc"
	"github.com/nodewright/nodewright/pleg"
	"github.com/nodewright/nodewright/podworker"
)

const testbox = "localhost/nodewright/testbox:1"

// node is a part that runs, of a host over a runtime in memory.
type node struct {
	*pressure.Collection
	t      *testing.T
	host   *agenttest.Host
	rt     *critest.Runtime
	reader *cri.Reader
	logs   string
	stop   func()
	starts uint32
}

// newNode has every image go that may. It must be stopped.
func newNode(t *testing.T, change func(*pressure.CollectionConfig)) *node {
	t.Helper()
	n := &node{t: t, host: agenttest.NewHost(t), rt: critest.New(), logs: t.TempDir()}
	n.reader = cri.NewReader(n.rt)
	n.rt.AddImage(testbox)
	n.rt.SetImageFS(t.TempDir())
	cfg := pressure.CollectionConfig{Runtime: n.rt, Images: n.rt, ImagePolicy: &gc.ImagePolicy{}, PodLogsDir: n.logs}
	cfg.Logs.Poll = true // a bubble takes no notice of a wait for the kernel
	if change != nil {
		change(&cfg)
	}
	p, err := pressure.NewCollection(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Join(n.host); err != nil {
		t.Fatal(err)
	}
	n.Collection = p
	n.stop = agenttest.RunPart(t, p)
	return n
}

func newPod(name string, images ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)}}
	for _, i := range images {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: "c", Image: i})
	}
	return p
}

// start runs a container c of a pod, in a sandbox of its own, and returns its ID.
func (n *node) start(p *v1.Pod, script ...string) string {
	n.t.Helper()
	ctx := context.Background()
	labels := map[string]string{"io.kubernetes.pod.uid": string(p.UID), "io.kubernetes.pod.name": p.Name, "io.kubernetes.pod.namespace": p.Namespace}
	dir := filepath.Join(n.logs, p.Namespace+"_"+p.Name+"_"+string(p.UID))
	if err := os.MkdirAll(filepath.Join(dir, "c"), 0o700); err != nil {
		n.t.Fatal(err)
	}
	n.starts++
	sandbox, err := n.rt.RunPodSandbox(ctx, &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: p.Name, Uid: string(p.UID), Namespace: p.Namespace, Attempt: n.starts}, Labels: labels, LogDirectory: dir,
	}, "")
	if err != nil {
		n.t.Fatal(err)
	}
	labels = maps.Clone(labels) // the sandbox's are looked at by now
	labels["io.kubernetes.container.name"] = "c"
	id, err := n.rt.CreateContainer(ctx, sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Labels: labels, LogPath: "c/0.log",
		Image: &runtimeapi.ImageSpec{Image: testbox}, Args: script,
	}, nil)
	if err != nil {
		n.t.Fatal(err)
	}
	if err := n.rt.StartContainer(ctx, id); err != nil {
		n.t.Fatal(err)
	}
	n.observe(p.UID)
	return id
}

// observe has the host see what the runtime shows of a pod.
func (n *node) observe(uid types.UID) {
	n.t.Helper()
	obs, err := n.reader.Inspect(context.Background(), uid)
	if err != nil {
		n.t.Fatal(err)
	}
	n.host.SetObserved(obs)
}

// died has the part hear of the end of a container.
func (n *node) died(p *v1.Pod, id string) {
	n.t.Helper()
	n.observe(p.UID)
	n.Happened(pleg.Event{UID: p.UID, Changes: []pleg.Change{{ID: id, Type: pleg.ContainerDied}}})
}

// images are the names of the images that are there.
func (n *node) images() (out []string) {
	list, err := n.rt.ListImages(context.Background(), nil)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, i := range list {
		out = append(out, i.GetRepoTags()...)
	}
	slices.Sort(out)
	return out
}

func (n *node) containers() int {
	list, err := n.rt.ListContainers(context.Background(), nil)
	if err != nil {
		n.t.Fatal(err)
	}
	return len(list)
}

// Images go that no pod needs, when it is known which do; those of pods that are
// wanted stay, wherever in the pod they are named, and those that are pinned.
func TestImagesGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, func(c *pressure.CollectionConfig) { c.PinnedImages = []string{"localhost/tools/*"} })
		n.rt.AddImage("localhost/old:1", "localhost/init:1", "localhost/volume:1", "localhost/tools/a:1", "localhost/over:1")
		p, over := newPod("p", testbox), newPod("over", "localhost/over:1")
		p.Spec.InitContainers = []v1.Container{{Image: "localhost/init:1"}}
		p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "localhost/volume:1"}}}}
		n.host.SetPods(p, over)
		n.host.SetStatus(over.UID, v1.PodStatus{Phase: v1.PodFailed})
		n.host.List()
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := n.images(); len(got) != 6 {
			t.Errorf("images %q are left before the sources have spoken", got)
		}
		n.host.Settle()
		time.Sleep(time.Minute)
		synctest.Wait()
		want := []string{"localhost/init:1", testbox, "localhost/tools/a:1", "localhost/volume:1"}
		if got := n.images(); !slices.Equal(got, want) {
			t.Errorf("images %q, want %q", got, want)
		}
		told, err := n.Images(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		verdicts := map[string]string{}
		for _, i := range told.Images {
			verdicts[i.Name] = strings.TrimSpace(i.Verdict + " " + i.Why)
		}
		if verdicts["localhost/init:1"] != "desired localhost/init:1" || verdicts["localhost/tools/a:1"] != "pinned by name localhost/tools/*" {
			t.Errorf("verdicts %q", verdicts)
		}
		if told.Disk.Capacity == 0 || told.Wanted == 0 || !strings.Contains(told.Summary, "3 desired") {
			t.Errorf("told %+v", told)
		}
		n.host.SetPods()
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		if got := n.images(); !slices.Equal(got, []string{"localhost/tools/a:1"}) {
			t.Errorf("images %q are left when no pod is", got)
		}
		n.stop()
	})
}

// What a pod holds stays, until it is released; nobody can hold what is being
// removed, and who waits for that is told that what it knew is out of date.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, nil)
		n.host.List()
		ctx, reclaim := t.Context(), n.Reclaimer()
		p := newPod("p")
		since, release, err := n.Hold(ctx, p.UID)
		if err != nil || !since.IsZero() {
			t.Fatal(since, err)
		}
		asked := 0
		ensure := func(context.Context) (string, error) { asked++; return n.imageID(testbox), nil }
		if err := n.HoldImage(ctx, p.UID, testbox, ensure); err != nil || asked != 1 {
			t.Errorf("%v, asked %d times", err, asked)
		}
		n.host.Settle() // images that nobody holds go from now on
		_ = reclaim.Images(ctx)
		synctest.Wait()
		if len(n.images()) != 1 {
			t.Error("an image was removed that is held")
		}
		id := n.start(p, "exit", "0")
		time.Sleep(time.Second)
		n.died(p, id) // of a pod that is gone
		time.Sleep(10 * time.Second)
		if err := reclaim.Containers(ctx); err != nil || n.containers() != 1 {
			t.Errorf("%d containers are left of a pod that is held; %v", n.containers(), err)
		}
		hang := n.rt.Hang("RemoveContainer")
		release()
		release()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, _, err := n.Hold(short, p.UID); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("held while something of it is being removed: %v", err)
		}
		before := time.Now()
		type held struct {
			since   time.Time
			release func()
		}
		got := make(chan held, 1)
		go func() {
			since, release, err := n.Hold(ctx, p.UID)
			if err != nil {
				t.Error(err)
			}
			got <- held{since, release}
		}()
		time.Sleep(time.Second)
		hang()
		h := <-got
		if h.since.Before(before) || n.containers() != 0 {
			t.Errorf("observations since %v count, which is before %v; %d containers", h.since, before, n.containers())
		}
		h.release()
		// A sync that ended before it looked again is told again.
		if again, release, err := n.Hold(ctx, p.UID); err != nil || !again.Equal(h.since) {
			t.Errorf("%v, %v; want %v again", again, err, h.since)
		} else {
			release()
		}
		time.Sleep(11 * time.Minute)
		if err := n.Sweep(ctx, func(types.UID) bool { return false }); err != nil {
			t.Error(err)
		}
		if last, release, err := n.Hold(ctx, p.UID); err != nil || !last.IsZero() {
			t.Errorf("%v, %v; want it forgotten", last, err)
		} else {
			release()
		}
		if asked = 0; n.HoldImage(ctx, p.UID, testbox, ensure) != nil || asked != 1 {
			t.Errorf("outside of a hold: asked %d times", asked)
		}
		n.stop()
	})
}

func (n *node) imageID(name string) string {
	st, err := n.rt.ImageStatus(context.Background(), &runtimeapi.ImageSpec{Image: name}, false)
	if err != nil || st.GetImage() == nil {
		return ""
	}
	return st.GetImage().GetId()
}

// An image that is removed under its ID after it was looked up is asked for
// again.
func TestImageIsRemovedWhileItIsLookedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, nil)
		n.host.List()
		ctx := t.Context()
		before := n.imageID(testbox)
		_, release, err := n.Hold(ctx, "uid-p")
		if err != nil {
			t.Fatal(err)
		}
		var asked []string
		if err := n.HoldImage(ctx, "uid-p", testbox, func(ctx context.Context) (string, error) {
			id := n.imageID(testbox)
			asked = append(asked, id)
			if len(asked) == 1 {
				n.rt.AddImage(testbox) // a newer one takes the name, and the other goes
				_ = n.Reclaimer().Images(ctx)
			}
			return id, nil
		}); err != nil {
			t.Error(err)
		}
		if len(asked) != 2 || asked[0] != before || asked[1] == before || asked[1] != n.imageID(testbox) {
			t.Errorf("asked for %q, with %q there before and %q now", asked, before, n.imageID(testbox))
		}
		no := errors.New("no")
		if err := n.HoldImage(ctx, "uid-p", testbox, func(context.Context) (string, error) { return "", no }); !errors.Is(err, no) {
			t.Error(err)
		}
		release()
		n.stop()
	})
}

// Dead containers of pods go by the policy; of pods that are over when space is
// wanted, and all of those that are gone, with their logs.
func TestDeadContainersGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, func(c *pressure.CollectionConfig) { c.ImagePolicy = nil })
		n.host.List()
		n.host.Settle()
		web, job, gone, refused := newPod("web"), newPod("job"), newPod("gone"), newPod("refused")
		n.host.SetPods(web, job, refused)
		n.host.SetWorker(podworker.Status{UID: web.UID, Kind: podworker.Sync})
		n.host.SetWorker(podworker.Status{UID: job.UID, Kind: podworker.Terminated})
		n.host.SetStatus(refused.UID, v1.PodStatus{Phase: v1.PodFailed})
		for _, p := range []*v1.Pod{web, web, job, gone, refused} {
			id := n.start(p, "exit", "0")
			time.Sleep(time.Millisecond)
			n.died(p, id)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		left := func() (out []string) {
			list, err := n.rt.ListContainers(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range list {
				out = append(out, c.GetLabels()["io.kubernetes.pod.name"])
			}
			slices.Sort(out)
			return out
		}
		if got := left(); !slices.Equal(got, []string{"job", "refused", "web"}) {
			t.Errorf("containers of %q are left", got)
		}
		if err := n.Reclaimer().Containers(t.Context()); err != nil {
			t.Error(err)
		}
		if got := left(); !slices.Equal(got, []string{"web"}) {
			t.Errorf("containers of %q are left when space is wanted", got)
		}
		dir := filepath.Join(n.logs, "default_old_uid-old")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := n.Sweep(t.Context(), func(types.UID) bool { return true }); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("logs of a pod that is gone are left: %v", err)
		}
		n.rt.Fail("ListContainers", errors.New("no"))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := n.Sweep(t.Context(), func(types.UID) bool { return true }); err == nil || !strings.HasPrefix(err.Error(), "remove logs of pods that are gone: ") {
			t.Error(err)
		}
		n.stop()
	})
}

// The dead containers of a pod that no source names stay while a source only remembers: it may
// be wanted, and its restarts are counted by them.
func TestWhatIsNotRememberedStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, func(c *pressure.CollectionConfig) { c.ImagePolicy = nil })
		n.host.List()
		n.host.Settle()
		n.host.SetPartial(true)
		p := newPod("wanted")
		n.died(p, n.start(p, "exit", "1"))
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if got := n.containers(); got != 1 {
			t.Errorf("%d containers while a source only remembers, want 1", got)
		}
		n.host.SetPartial(false)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if got := n.containers(); got != 0 {
			t.Errorf("%d containers of a pod that is gone", got)
		}
		n.stop()
	})
}

// Logs are rotated from when the runtime has reported a container, those of
// containers from before too, and no longer when it has ended.
func TestLogsAreRotated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, func(c *pressure.CollectionConfig) { c.Logs.MaxSize, c.Logs.MaxFiles = 1000, 2 })
		before, later := newPod("before"), newPod("later")
		n.host.SetPods(before, later)
		n.start(before, "sleep", "forever")
		n.host.List()
		synctest.Wait()
		id := n.start(later, "sleep", "forever")
		n.Happened(pleg.Event{UID: later.UID, Changes: []pleg.Change{{ID: id, Type: pleg.ContainerStarted}}})
		rotated := func(p *v1.Pod) bool {
			dir := filepath.Join(n.logs, "default_"+p.Name+"_"+string(p.UID), "c")
			if err := os.WriteFile(filepath.Join(dir, "0.log"), make([]byte, 2000), 0o600); err != nil {
				t.Fatal(err)
			}
			n.rt.ForgetCalls()
			time.Sleep(21 * time.Second)
			synctest.Wait()
			return len(n.rt.Calls("ReopenContainerLog")) > 0
		}
		if !rotated(before) || !rotated(later) {
			t.Error("a log is not rotated")
		}
		n.rt.Kill(id)
		synctest.Wait()
		n.died(later, id)
		if rotated(later) {
			t.Error("the log of a container that has ended is rotated")
		}
		n.stop()
		for _, c := range must(n.rt.ListContainers(context.Background(), nil)) {
			n.rt.Kill(c.GetId())
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// While the store hangs, and so the collection of images, hooks on the loop
// return, pods are held and released, and dead containers go.
func TestHooksReturnWhileTheStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &agenttest.HungStore{}
		n := newNode(t, func(c *pressure.CollectionConfig) { c.Store = store })
		n.host.List()
		n.host.Settle()
		synctest.Wait()
		if store.Calls() == 0 {
			t.Fatal("the store was not asked")
		}
		p := newPod("p")
		id := n.start(p, "exit", "0")
		_, release, err := n.Hold(t.Context(), p.UID)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.HoldImage(t.Context(), p.UID, testbox, func(context.Context) (string, error) { return n.imageID(testbox), nil }); err != nil {
			t.Error(err)
		}
		release()
		n.died(p, id)
		time.Sleep(5 * time.Second)
		if n.containers() != 0 {
			t.Error("a dead container is left")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := n.Reclaimer().Images(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		store.Release()
		time.Sleep(6 * time.Minute) // what was held during a pass is left to the next
		if got := n.images(); len(got) != 0 {
			t.Errorf("images %q are left", got)
		}
		n.stop()
	})
}

// How many dead containers a sync leaves.
func TestKeepDead(t *testing.T) {
	for _, tc := range []struct {
		policy *gc.ContainerPolicy
		want   int
	}{
		{nil, 1},
		{&gc.ContainerPolicy{MaxPerContainer: 3, MaxContainers: -1}, 3},
		{&gc.ContainerPolicy{MaxPerContainer: 0, MaxContainers: -1}, 1}, // the last state is the pod's
		{&gc.ContainerPolicy{MaxPerContainer: -1, MaxContainers: 2}, -1},
		{&gc.ContainerPolicy{MinAge: time.Hour, MaxPerContainer: 1}, -1},
	} {
		rt := critest.New()
		p, err := pressure.NewCollection(pressure.CollectionConfig{Runtime: rt, Images: rt, ContainerPolicy: tc.policy, Logs: pressure.LogRotation{Off: true}})
		if err != nil {
			t.Fatal(err)
		}
		if got := p.KeepDead(); got != tc.want {
			t.Errorf("%+v: %d, want %d", tc.policy, got, tc.want)
		}
	}
}

// other is an agent that does not know which pods have ended.
type other struct{ part.Host }

// Mistakes are said all at once, and a part is of one agent, which has to know
// which pods have ended.
func TestNewAndJoin(t *testing.T) {
	if _, err := pressure.NewCollection(pressure.CollectionConfig{}); err == nil || !strings.Contains(err.Error(), "CollectionConfig.Runtime is required") || !strings.Contains(err.Error(), "CollectionConfig.Images is required") {
		t.Error(err)
	}
	rt := critest.New()
	_, err := pressure.NewCollection(pressure.CollectionConfig{Runtime: rt, Images: rt, ImagePolicy: &gc.ImagePolicy{High: 101}, PodLogsDir: "logs", Logs: pressure.LogRotation{MaxFiles: 1}})
	for _, want := range []string{"imagegc", "containergc", "logrotate"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want it to name %s", err, want)
		}
	}
	p, err := pressure.NewCollection(pressure.CollectionConfig{Runtime: rt, Images: rt})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Join(other{agenttest.NewHost(t)}); err == nil || !strings.Contains(err.Error(), "part.Garbage") {
		t.Error(err)
	}
	if err := p.Join(agenttest.NewHost(t)); err != nil {
		t.Error(err)
	}
	if err := p.Join(agenttest.NewHost(t)); err == nil {
		t.Error("joined twice")
	}
}

// Before the runtime was listed nothing is removed, and a part of an agent that ends then returns.
func TestRunEndsBeforeTheRuntimeIsListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, gone := newNode(t, nil), newPod("gone")
		n.host.Settle()
		n.died(gone, n.start(gone, "exit", "0"))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := n.containers(); got != 1 {
			t.Errorf("%d containers are left, want 1", got)
		}
		n.stop()
	})
}
