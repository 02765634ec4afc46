package agent_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri/critest"
)

// imageOf is the ID of the image that a pod's container was made of.
func (n *node) imageOf(pod string) string {
	list, err := n.rt.ListContainers(n.t.Context(), &runtimeapi.ContainerFilter{LabelSelector: map[string]string{"io.kubernetes.pod.name": pod}})
	if err != nil {
		n.t.Fatal(err)
	}
	if len(list) != 1 {
		n.t.Fatalf("%d containers of %s, want 1", len(list), pod)
	}
	return list[0].GetImageRef()
}

// ids are the IDs of the images that are there.
func (n *node) ids() []string {
	return n.ofImages(func(i *runtimeapi.Image) []string { return []string{i.GetId()} })
}

// A pod has found its image, and another pod pulls a newer one of the same
// name before the first has its container: from then on the first one's image
// has no name. No removal takes it, until the first pod is gone, and the second
// pod's image stays.
func TestTheNameOfAStartingPodsImageMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.rt.SetImageFS(n.root)
		n.gc = greedy()
		n.rt.OfferImage(image)
		n.rt.Around(func(c critest.Call) error {
			if c.Method == "CreateContainer" && c.Target == "first" {
				time.Sleep(10 * time.Second)
			}
			return nil
		}, nil)
		reclaim := func(l *life) {
			t.Helper()
			if err := l.ReclaimImages(t.Context()); err != nil {
				t.Error(err)
			}
		}
		second := newPod("second", runs("second"))
		second.Spec.Containers[0].ImagePullPolicy = v1.PullAlways
		n.want = []*v1.Pod{newPod("first", runs("first"))}
		l := n.start()
		time.Sleep(time.Second)
		before := n.ids()
		n.want = append(n.want, second)
		l.tell()
		for range 10 { // while the first waits for its container, and after it
			time.Sleep(time.Second)
			reclaim(l)
		}
		settle()
		reclaim(l)
		for _, p := range n.want {
			l.wantPhase(p.Name, v1.PodRunning)
			for _, ev := range l.Events(p) {
				if ev.Type != v1.EventTypeNormal {
					t.Errorf("%s: event %s: %s", p.Name, ev.Reason, ev.Message)
				}
			}
		}
		older, newer := n.imageOf("first"), n.imageOf("second")
		if !slices.Equal(before, []string{older}) || older == newer {
			t.Errorf("images %q and %q, want the one from before, %q, and another", older, newer, before)
		}
		if got := n.ids(); len(got) != 2 || !slices.Contains(got, older) || !slices.Contains(got, newer) {
			t.Errorf("images %q, want %q and %q", got, older, newer)
		}
		n.want = []*v1.Pod{second}
		l.tell()
		time.Sleep(15 * time.Second)
		settle()
		reclaim(l)
		if got := n.ids(); !slices.Equal(got, []string{newer}) {
			t.Errorf("images %q, want %q alone", got, newer)
		}
		l.stop()
	})
}
