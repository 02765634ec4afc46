package resources_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/resources"
	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/internal/devicetest"
	"github.com/nodewright/nodewright/numa"
)

const thing = "example.com/thing"

// devicesNode is a part with its surroundings.
type devicesNode struct {
	*resources.Devices
	t    *testing.T
	host *agenttest.Host
	m    *devicemgr.Manager
	stop func() // ends Run
}

// devicesJoin makes a part of a host, and runs it, but for Restore.
func devicesJoin(t *testing.T, store part.Store) *devicesNode {
	t.Helper()
	m, err := devicemgr.New(devicemgr.Config{Store: store, Machine: numa.Uniform(2, 1, 4, 1, 4<<30)})
	if err != nil {
		t.Fatal(err)
	}
	p, err := resources.NewDevices(resources.DevicesConfig{Manager: m})
	if err != nil {
		t.Fatal(err)
	}
	n := &devicesNode{Devices: p, t: t, host: agenttest.NewHost(t), m: m}
	if err := p.Join(n.host); err != nil {
		t.Fatal(err)
	}
	n.stop = agenttest.RunPart(t, p)
	return n
}

// devicesStart is join, and Restore with the pods that run.
func devicesStart(t *testing.T, store part.Store, running ...*v1.Pod) *devicesNode {
	t.Helper()
	n := devicesJoin(t, store)
	for _, pod := range running {
		n.run(pod)
	}
	if err := n.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return n
}

// run has the containers of a pod run.
func (n *devicesNode) run(pod *v1.Pod) {
	obs := &observed.Pod{UID: pod.UID, Name: pod.Name, Namespace: pod.Namespace}
	for _, c := range pod.Spec.Containers {
		obs.Containers = append(obs.Containers, observed.Container{ID: c.Name, Name: c.Name, State: observed.Running})
	}
	n.host.SetObserved(obs)
}

// bubble runs a test of a node whose plugin of thing is p.
func bubble(t *testing.T, p func() *devicetest.Plugin, fn func(t *testing.T, n *devicesNode, p *devicetest.Plugin)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := devicesStart(t, &checkpointtest.Disk{})
		made := p()
		n.offer(thing, made)
		n.host.Calls()
		fn(t, n, made)
		n.stop()
	})
}

func (n *devicesNode) offer(name string, p *devicetest.Plugin) {
	n.t.Helper()
	synctest.Wait()
	if err := n.m.Offer(n.t.Context(), name, p); err != nil {
		n.t.Fatal(err)
	}
	synctest.Wait()
}

// admit does what an agent does with a pod.
func (n *devicesNode) admit(pod *v1.Pod) error {
	n.Waits(pod)
	r, no := n.Reserve(n.t.Context(), part.Request{Pod: pod})
	if no != nil {
		return no
	}
	if r == nil {
		return nil
	}
	return r.Commit(n.t.Context())
}

func (n *devicesNode) wantAdmitted(pods ...*v1.Pod) {
	n.t.Helper()
	for _, pod := range pods {
		if err := n.admit(pod); err != nil {
			n.t.Fatalf("pod %s: %v", pod.Name, err)
		}
	}
}

func (n *devicesNode) has(uid, container string) string {
	var ids []string
	for _, h := range n.m.Holdings(types.UID(uid), container) {
		for _, d := range h.Devices {
			ids = append(ids, d.ID)
		}
	}
	return strings.Join(ids, ",")
}

func (n *devicesNode) wantCalls(want ...string) {
	n.t.Helper()
	synctest.Wait()
	if got := n.host.Calls(); !slices.Equal(got, want) {
		n.t.Errorf("host heard %q, want %q", got, want)
	}
}

// newDevicesPod has one container for each wish: "main=1", "main=1@example.com/other".
// Its UID is its name.
func newDevicesPod(name string, wishes ...string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
	for _, w := range wishes {
		c, count, asks := strings.Cut(w, "=")
		count, res, other := strings.Cut(count, "@")
		if !other {
			res = thing
		}
		con := v1.Container{Name: c}
		if asks {
			con.Resources.Limits = v1.ResourceList{v1.ResourceName(res): resource.MustParse(count)}
		}
		pod.Spec.Containers = append(pod.Spec.Containers, con)
	}
	return pod
}
