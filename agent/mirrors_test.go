package agent_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/statusmgr"
)

// cluster has the mirrors of static pods. It is a source, a sink, and where
// mirrors are made.
type cluster struct {
	mu       sync.Mutex
	pods     map[string]*v1.Pod // by name
	statuses map[types.UID]v1.PodStatus
	made     int
	news     chan struct{}
}

func newCluster() *cluster {
	return &cluster{pods: map[string]*v1.Pod{}, statuses: map[types.UID]v1.PodStatus{}, news: make(chan struct{}, 100)}
}

func (*cluster) Name() string { return podmeta.SourceAPI }

func (c *cluster) Run(ctx context.Context, deliver func(podmgr.Snapshot)) error {
	for {
		c.mu.Lock()
		var snap podmgr.Snapshot
		for _, p := range c.pods {
			snap.Pods = append(snap.Pods, p.DeepCopy())
		}
		c.mu.Unlock()
		deliver(snap)
		select {
		case <-ctx.Done():
			return nil
		case <-c.news:
		}
	}
}

// change lets f change the cluster, of which its watchers hear.
func (c *cluster) change(f func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.news <- struct{}{}
	return f()
}

func (c *cluster) Ensure(_ context.Context, pod, mirror *v1.Pod) error {
	if mirror != nil {
		return nil
	}
	return c.change(func() error {
		if c.pods[pod.Name] != nil {
			return nil // it was made, and the agent has not heard of it yet
		}
		c.made++
		m := pod.DeepCopy()
		m.UID = types.UID("mirror-" + string(rune('0'+c.made)))
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, podmeta.AnnotationMirror, "hash")
		c.pods[pod.Name] = m
		return nil
	})
}

func (c *cluster) Remove(_ context.Context, mirror *v1.Pod) error {
	return c.change(func() error {
		delete(c.pods, mirror.Name)
		return nil
	})
}

func (c *cluster) Update(_ context.Context, pod *v1.Pod, status v1.PodStatus) error {
	return c.change(func() error {
		if p := c.pods[pod.Name]; p == nil || p.UID != pod.UID {
			return statusmgr.ErrGone
		}
		c.pods[pod.Name].Status = status
		c.statuses[pod.UID] = status
		return nil
	})
}

func (c *cluster) Delete(context.Context, *v1.Pod) error { return nil }

func (c *cluster) names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.pods))
}

func TestStaticPodHasAMirror(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, c := newNode(t), newCluster()
		n.cluster, n.want = c, []*v1.Pod{newPod("a", runs("main", "ignore", "sleep", "forever"))}
		l := n.start()
		time.Sleep(time.Minute)
		settle()
		if st := c.statuses["mirror-1"]; c.made != 1 || st.Phase != v1.PodRunning {
			t.Fatalf("%d mirrors made, the first's status is %+v", c.made, st)
		}

		// Somebody deletes it: it comes back, and so does its status.
		_ = c.change(func() error { delete(c.pods, "a"); return nil })
		settle()
		if st := c.statuses["mirror-2"]; c.made != 2 || st.Phase != v1.PodRunning {
			t.Errorf("%d mirrors made, the second's status is %+v", c.made, st)
		}

		// A status that somebody else wrote is put right.
		_ = c.change(func() error { c.pods["a"].Status.Phase = v1.PodPending; return nil })
		settle()
		if p := c.statuses["mirror-2"].Phase; p != v1.PodRunning {
			t.Errorf("the status says %s", p)
		}

		// It goes when the pod is over, and not before.
		n.want = nil
		l.tell()
		time.Sleep(time.Second)
		if len(c.names()) != 1 {
			t.Error("the mirror went before its pod")
		}
		time.Sleep(time.Minute)
		settle()
		if left := c.names(); len(left) > 0 {
			t.Errorf("mirrors left: %v", left)
		}
		l.stop()
	})
}
