package agent_test

import (
	"context"
	"fmt"
	"math/rand/v2"
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
