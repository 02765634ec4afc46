package agent_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/agent/pressure"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/gc"
)

// greedy has every image go that may.
func greedy() pressure.CollectionConfig {
	return pressure.CollectionConfig{ImagePolicy: &gc.ImagePolicy{}}
}

// images are the names of the images that are there.
func (n *node) images() []string {
	return n.ofImages(func(i *runtimeapi.Image) []string { return i.GetRepoTags() })
}

// ofImages lists, in order, what of says of each image that is there.
func (n *node) ofImages(of func(*runtimeapi.Image) []string) (out []string) {
	list, err := n.rt.ListImages(context.Background(), nil)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, i := range list {
		out = append(out, of(i)...)
	}
	slices.Sort(out)
	return out
}

// Images go that no pod needs; those of pods that are stored stay, wherever in
// the pod they are named, and those that are pinned.
func TestImagesGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.rt.SetImageFS(n.root)
		n.gc = greedy()
		n.gc.PinnedImages = []string{"localhost/tools/*"}
		n.rt.AddImage("localhost/old:1", "localhost/init:1", "localhost/volume:1", "localhost/tools/a:1", "localhost/later:1")
		p := newPod("p", runs("c"))
		init := runs("i", "exit", "0")
		init.Image = "localhost/init:1"
		later := runs("later")
		later.Image = "localhost/later:1"
		p.Spec.InitContainers = []v1.Container{runs("waits", "sleep", "1h", "exit", "0"), init}
		p.Spec.Containers = append(p.Spec.Containers, later)
		p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "localhost/volume:1"}}}}
		n.want = []*v1.Pod{p}
		l := n.start()
		time.Sleep(time.Minute)
		synctest.Wait()
		want := []string{image, "localhost/init:1", "localhost/later:1", "localhost/tools/a:1", "localhost/volume:1"}
		if got := n.images(); !slices.Equal(got, want) {
			t.Errorf("images %q, want %q", got, want)
		}
		told, err := l.Images(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		verdicts := map[string]string{}
		for _, i := range told.Images {
			verdicts[i.Name] = strings.TrimSpace(i.Verdict + " " + i.Why)
		}
		for name, want := range map[string]string{
			image: "in use default/p/waits", "localhost/init:1": "desired localhost/init:1", "localhost/tools/a:1": "pinned by name localhost/tools/*",
		} {
			if verdicts[name] != want {
				t.Errorf("%s: %q, want %q", name, verdicts[name], want)
			}
		}
		if told.Disk.Capacity == 0 || told.Wanted == 0 || !strings.Contains(told.Summary, "3 desired") {
			t.Errorf("told %+v", told)
		}
		n.want = nil
		l.tell()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := n.images(); !slices.Equal(got, []string{"localhost/tools/a:1"}) {
			t.Errorf("images %q are left when no pod is", got)
		}
		l.stop()
	})
}

// No image goes before it is known what is to run here, unless space runs out.
func TestNoImageGoesBeforeTheSourcesHaveSpoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.rt.SetImageFS(n.root)
		n.gc = greedy()
		late := &fakeSource{}
		n.more = append(n.more, lateSource{late})
		l := n.start()
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := n.images(); !slices.Equal(got, []string{image}) {
			t.Errorf("images %q", got)
		}
		if err := l.ReclaimImages(t.Context()); err != nil || len(n.images()) != 0 {
			t.Errorf("%v, %q are left", err, n.images())
		}
		l.stop()
	})
}

// lateSource says nothing.
type lateSource struct{ *fakeSource }

func (lateSource) Name() string { return "http" }

// What cannot be told of the disk is an event about the node, from the second
// time on.
func TestImageCollectionThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t) // without a file system of its images
		l := n.start()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := l.NodeEvents(); len(got) != 0 {
			t.Errorf("events %+v after the first time", got)
		}
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		got := l.NodeEvents()
		if len(got) != 1 || got[0].Reason != gc.ReasonImageGCFailed || got[0].Count != 2 {
			t.Errorf("events %+v", got)
		}
		l.stop()
	})
}

// A crash loop leaves as many dead containers as the policy says, for as long.
func TestDeadContainersOfACrashLoop(t *testing.T) {
	for _, tc := range []struct {
		policy *gc.ContainerPolicy
		want   int // dead ones, at most and in the end; it dies 10 times
	}{
		{nil, 1},
		{&gc.ContainerPolicy{MaxPerContainer: 3, MaxContainers: -1}, 3},
		{&gc.ContainerPolicy{MaxPerContainer: 0, MaxContainers: -1}, 1}, // the last state is the pod's
		{&gc.ContainerPolicy{MaxPerContainer: -1, MaxContainers: -1}, 10},
		{&gc.ContainerPolicy{MaxPerContainer: -1, MaxContainers: 2}, 2},
		{&gc.ContainerPolicy{MinAge: time.Hour, MaxPerContainer: 1, MaxContainers: -1}, 10},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			n.gc.ContainerPolicy = tc.policy
			n.want = []*v1.Pod{newPod("p", runs("c", "sleep", "1s", "exit", "1"))}
			l := n.start()
			dead := 0
			for range 60 {
				time.Sleep(25 * time.Second) // 10, 20, 40, 80, 160 s and then each 5 minutes
				synctest.Wait()
				all, running := n.containers()
				if dead = all["p/c"] - running["p/c"]; dead > tc.want { // one may have died within this second
					time.Sleep(1500 * time.Millisecond)
					synctest.Wait()
					all, running = n.containers()
					dead = all["p/c"] - running["p/c"]
				}
				if dead > tc.want {
					t.Fatalf("%+v: %d dead containers, want at most %d", tc.policy, dead, tc.want)
				}
			}
			if dead != tc.want {
				t.Errorf("%+v: %d dead containers, want %d", tc.policy, dead, tc.want)
			}
			if st := l.pod("p").Status.ContainerStatuses[0]; st.RestartCount < 6 {
				t.Errorf("%+v: %d restarts", tc.policy, st.RestartCount)
			}
			n.want = nil
			l.tell()
			time.Sleep(15 * time.Second)
			settle()
			n.wantNothingLeft()
			l.stop()
		})
	}
}

// Of a pod that is over the remains stay until space is wanted.
func TestReclaimOfPodsThatAreOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		job := newPod("job", runs("c", "exit", "0"))
		job.Spec.RestartPolicy = v1.RestartPolicyNever
		n.want = []*v1.Pod{job, newPod("web", runs("c"))}
		l := n.start()
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		if all, _ := n.containers(); all["job/c"] != 1 {
			t.Errorf("containers %v", all)
		}
		err := l.ReclaimContainers(t.Context())
		if all, running := n.containers(); err != nil || all["job/c"] != 0 || running["web/c"] != 1 {
			t.Errorf("%v; left %v", err, all)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		l.wantPhase("job", v1.PodSucceeded)
		if n := len(n.rt.Calls("StartContainer")); n != 2 {
			t.Errorf("%d starts, want 2", n)
		}
		l.stop()
	})
}

// Logs are rotated from the moment a container runs, those of before the
// agent's start too, and no longer when it has ended.
func TestLogsAreRotated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.gc.Logs.MaxSize, n.gc.Logs.MaxFiles = 1000, 2
		n.want = []*v1.Pod{newPod("p", runs("c"))}
		l := n.start()
		settle()
		fill := func() (files []string) {
			path, err := l.LogPath(l.pod("p"), "c", false)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, make([]byte, 2000), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(11 * time.Second)
			synctest.Wait()
			entries, err := os.ReadDir(filepath.Dir(path))
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				files = append(files, e.Name())
			}
			return files
		}
		for range 3 {
			if files := fill(); len(files) != 2 || files[0] != "0.log" || !strings.HasPrefix(files[1], "0.log.2") {
				t.Errorf("files %q, want the log and one that was rotated", files)
			}
		}
		l.stop()
		l = n.start()
		settle()
		if files := fill(); len(files) != 2 || n.rt.Calls("ReopenContainerLog") == nil || len(n.rt.Calls("ReopenContainerLog")) != 4 {
			t.Errorf("after the agent's restart: files %q, %d rotations", files, len(n.rt.Calls("ReopenContainerLog")))
		}
		n.rt.Kill(n.id("c"))
		settle()
		if files := fill(); !slices.Contains(files, "1.log") {
			t.Errorf("after the container's restart: files %q", files)
		}
		l.stop()
	})
}

// However starts, ends and removals meet: no image goes and no container of a
// pod that needs it, and every pod runs in the end.
func TestStartsAndRemovalsInterleaved(t *testing.T) {
	images, containers := 0, 0
	for seed := range *seeds {
		i, c := interleave(t, uint64(seed))
		if images, containers = images+i, containers+c; t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if t.Logf("%d images and %d containers were removed", images, containers); images == 0 || containers == 0 {
		t.Error("nothing was removed")
	}
}

// interleave returns how many images and containers were removed.
func interleave(t *testing.T, seed uint64) (images, containers int) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		rnd := rand.New(rand.NewPCG(seed, 1))
		random := func(n int) int {
			mu.Lock()
			defer mu.Unlock()
			return rnd.IntN(n)
		}
		n := newNode(t)
		n.rt.SetImageFS(n.root)
		n.gc = greedy()
		n.gc.ContainerPolicy = &gc.ContainerPolicy{MaxPerContainer: 0, MaxContainers: 0}
		var names []string
		for i := range 3 {
			names = append(names, fmt.Sprintf("localhost/app:%d", i))
		}
		n.rt.OfferImage(append(names, image)...)
		// Calls take their time before they do their work, and those that the
		// runtime is not locked for, after it. The others some of the agent's
		// own locks wait for, which hold up a bubble.
		slow := []string{"RunPodSandbox", "CreateContainer", "StartContainer", "PullImage", "RemoveImage", "RemovePodSandbox"}
		looks := []string{"ListContainers", "ListPodSandbox", "ListImages", "ImageStatus", "ContainerStatus", "RemoveContainer", "StopContainer", "StopPodSandbox", "ImageFsInfo"}
		n.rt.Around(func(c critest.Call) error {
			if slices.Contains(looks, c.Method) || slices.Contains(slow, c.Method) {
				time.Sleep(time.Duration(random(30)) * time.Millisecond)
			}
			return nil
		}, func(c critest.Call) error {
			if slices.Contains(slow, c.Method) {
				time.Sleep(time.Duration(random(30)) * time.Millisecond)
			}
			return nil
		})
		l := n.start()
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				for ctx.Err() == nil {
					_ = l.ReclaimImages(ctx)
					time.Sleep(time.Duration(random(100)) * time.Millisecond)
				}
			})
		}
		wg.Go(func() {
			for ctx.Err() == nil {
				_ = l.ReclaimContainers(ctx)
				time.Sleep(time.Duration(random(100)) * time.Millisecond)
			}
		})
		pods := make([]*v1.Pod, 4)
		for i := range pods { // UIDs come back, as those of static pods do
			c := runs("c")
			c.Image = names[random(len(names))]
			if random(3) == 0 {
				c.ImagePullPolicy = v1.PullAlways
			}
			second := runs("d", "sleep", "700ms", "exit", "1") // a crash loop
			second.Image = names[random(len(names))]
			pods[i] = newPod(fmt.Sprint("p", i), c, second)
			grace := int64(1)
			pods[i].Spec.TerminationGracePeriodSeconds = &grace
		}
		for range 8 {
			if random(2) == 0 { // a newer image of that name
				n.rt.OfferImage(names[random(len(names))])
			}
			n.want = nil
			for _, p := range pods {
				if random(2) == 0 {
					n.want = append(n.want, p)
				}
			}
			l.tell()
			time.Sleep(time.Duration(random(1500)) * time.Millisecond)
		}
		n.want = pods
		l.tell()
		time.Sleep(12 * time.Second)
		cancel()
		wg.Wait()
		n.rt.Around(nil, nil)
		synctest.Wait()
		for _, p := range pods {
			st := l.pod(p.Name)
			if st == nil || st.Status.ContainerStatuses[0].State.Running == nil {
				t.Errorf("%s: %+v", p.Name, st)
				continue
			}
			for _, ev := range l.Events(p) {
				if ev.Reason == "Failed" || ev.Reason == "InspectFailed" || strings.Contains(ev.Message, "not found") {
					t.Errorf("%s: event %s: %s", p.Name, ev.Reason, ev.Message)
				}
			}
		}
		list, err := n.rt.ListContainers(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list { // what runs has its image
			st, err := n.rt.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: c.GetImageRef()}, false)
			if err != nil || st.GetImage() == nil {
				t.Errorf("image %s of a container is gone: %v", c.GetImageRef(), err)
			}
		}
		images, containers = len(n.rt.Calls("RemoveImage")), len(n.rt.Calls("RemoveContainer"))
		l.stop()
	})
	return images, containers
}

var _ local.Imager = (*pressure.Collection)(nil)
