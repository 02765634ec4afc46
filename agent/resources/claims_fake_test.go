package resources_test

import (
	"slices"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/resources"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/dra"
	"github.com/nodewright/nodewright/internal/devicetest"
)

const gpu = "gpu.example.com"

// node is a part with its surroundings.
type node struct {
	*resources.Claims
	t    *testing.T
	host *agenttest.Host
	m    *dra.Manager
	stop func() // ends Run
}

// join makes a part of a host, and runs it, but for Restore.
func join(t *testing.T, store part.Store) *node {
	t.Helper()
	lookup := &resources.ClaimLookup{}
	m, err := dra.New(dra.Config{Store: store, Claims: lookup, Boot: "1"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := resources.NewClaims(resources.ClaimsConfig{Manager: m, Lookup: lookup})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{Claims: p, t: t, host: agenttest.NewHost(t), m: m}
	if err := p.Join(n.host); err != nil {
		t.Fatal(err)
	}
	n.stop = agenttest.RunPart(t, p)
	return n
}

// start is join, and Restore with the pods that run.
func start(t *testing.T, store part.Store, running ...*v1.Pod) *node {
	t.Helper()
	n := join(t, store)
	for _, pod := range running {
		n.host.SetObserved(&observed.Pod{UID: pod.UID, Containers: []observed.Container{{Name: "main", State: observed.Running}}})
	}
	if err := n.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return n
}

func (n *node) offer(d *devicetest.Driver) {
	n.t.Helper()
	if err := n.m.Offer(gpu, "1", d); err != nil {
		n.t.Fatal(err)
	}
	synctest.Wait()
}

func (n *node) wantCalls(want ...string) {
	n.t.Helper()
	synctest.Wait()
	if got := n.host.Calls(); !slices.Equal(got, want) {
		n.t.Errorf("host heard %q, want %q", got, want)
	}
}

// newClaim is one that is allocated, and reserved for nobody.
func newClaim(name string) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}}
	c.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Driver: gpu, Pool: "n", Device: name, Request: "r"}},
	}}
	return c
}

// newPod uses claims in its container main. Its UID is its name.
func newPod(name string, list ...string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
	main := v1.Container{Name: "main"}
	for _, c := range list {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, v1.PodResourceClaim{Name: "my-" + c, ResourceClaimName: &c})
		main.Resources.Claims = append(main.Resources.Claims, v1.ResourceClaim{Name: "my-" + c})
	}
	pod.Spec.Containers = []v1.Container{main}
	return pod
}
