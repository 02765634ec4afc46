package agent_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/resources"
	"github.com/nodewright/nodewright/dra"
	"github.com/nodewright/nodewright/internal/devicetest"
)

const gpuDriver = "gpu.example.com"

// fakeClaims is what of a node's claims outlives the agent: the store, the driver
// and the manifests. It is a driver, with the CDI device v/c=CLAIM for each.
type fakeClaims struct {
	*fakeDevices // as a store, and for what containers were made with
	n            *node
	all          []*resourceapi.ResourceClaim
	current      *dra.Manager // of the agent that runs

	*devicetest.Driver
}

func claimNode(t *testing.T) *node {
	n := newNode(t)
	n.devices = newFakeDevices()
	n.claims = &fakeClaims{fakeDevices: newFakeDevices(), n: n, Driver: devicetest.NewDriver()}
	return n
}

// manager makes what prepares the claims for an agent.
func (f *fakeClaims) manager(n *node) (resources.ClaimManager, *resources.ClaimLookup) {
	if f == nil {
		return nil, nil
	}
	lookup := &resources.ClaimLookup{}
	var store dra.Store = f
	if n.hung != nil {
		store = n.hung
	}
	m, err := dra.New(dra.Config{Store: store, Claims: lookup, Boot: "1"})
	if err != nil {
		n.t.Fatal(err)
	}
	f.current = m
	return m, lookup
}

func (f *fakeClaims) list() []*resourceapi.ResourceClaim {
	if f == nil {
		return nil
	}
	return f.all
}

// add adds a claim that is allocated.
func (f *fakeClaims) add(name string) {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}}
	c.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Driver: gpuDriver, Pool: "n", Device: name, Request: "r"}},
	}}
	f.all = append(f.all, c)
}

// come registers the driver.
func (f *fakeClaims) come() {
	f.n.t.Helper()
	synctest.Wait()
	if err := f.current.Offer(gpuDriver, "1", f); err != nil {
		f.n.t.Fatal(err)
	}
}

func (f *fakeClaims) called(want string) {
	f.n.t.Helper()
	if got := f.Called(); got != want {
		f.n.t.Errorf("driver heard %q, want %q", got, want)
	}
}

// claiming has a pod use claims, in all of its containers.
func claiming(p *v1.Pod, claims ...string) *v1.Pod {
	for _, c := range claims {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, v1.PodResourceClaim{Name: "my-" + c, ResourceClaimName: &c})
		for i := range p.Spec.Containers {
			p.Spec.Containers[i].Resources.Claims = append(p.Spec.Containers[i].Resources.Claims, v1.ResourceClaim{Name: "my-" + c})
		}
	}
	return p
}

func (n *node) cdi(container string) string {
	n.t.Helper()
	var names []string
	for _, d := range n.config(container).GetCDIDevices() {
		names = append(names, d.GetName())
	}
	return strings.Join(names, ",")
}

// An agent without it does not start what wants it.
func TestNoDRA(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.want = []*v1.Pod{claiming(newPod("p", runs("c")), "a")}
		l := n.start()
		settle()
		l.wantPhase("p", v1.PodPending)
		if r := l.reasons("p"); !slices.Contains(r, "FailedPrepareDynamicResources") {
			t.Errorf("events %v", r)
		}
		l.stop()
	})
}
