package resources_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/resources"
	"github.com/nodewright/nodewright/dra"
	"github.com/nodewright/nodewright/internal/devicetest"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podspec"
)

func TestNewAndJoin(t *testing.T) {
	if _, err := resources.NewClaims(resources.ClaimsConfig{}); err == nil || !strings.Contains(err.Error(), "ClaimsConfig.Manager") {
		t.Errorf("New without a manager: %v", err)
	}
	lookup := &resources.ClaimLookup{}
	if _, err := lookup.Claim(t.Context(), "default", "a"); err == nil {
		t.Error("a claim before there is an agent")
	}
	m, err := dra.New(dra.Config{Store: part.OpenVolatileStore(t.TempDir(), nil), Claims: lookup})
	if err != nil {
		t.Fatal(err)
	}
	newPart := func() *resources.Claims {
		p, err := resources.NewClaims(resources.ClaimsConfig{Manager: m, Lookup: lookup})
		if err != nil || p.Name() != "claims" {
			t.Fatalf("name %q, %v", p.Name(), err)
		}
		return p
	}
	if err := newPart().Join(struct{ part.Host }{agenttest.NewHost(t)}); err == nil || !strings.Contains(err.Error(), "part.Claims") {
		t.Errorf("join of a host without claims: %v", err)
	}
	p := newPart()
	if err := p.Join(agenttest.NewHost(t)); err != nil {
		t.Error(err)
	}
	if err := p.Join(agenttest.NewHost(t)); err == nil {
		t.Error("a part of one agent joined another one")
	}
	if err := newPart().Join(agenttest.NewHost(t)); err == nil {
		t.Error("two agents share a Lookup")
	}
}

// A pod waits for its claim and its driver, has what that gives it, and its status
// shows how that is; all is undone at its end.
func TestPodWithClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, d := start(t, part.OpenVolatileStore(t.TempDir(), nil)), devicetest.NewDriver()
		pod := newPod("p", "a")
		n.host.SetPods(pod)
		err := n.Prepare(t.Context(), pod, nil)
		var shown interface{ Reason() string }
		if !errors.As(err, &shown) || shown.Reason() != resources.ReasonPrepareClaims {
			t.Errorf("without its claim: %v", err)
		}
		n.wantCalls("event default/p Warning FailedPrepareDynamicResources: Failed to prepare dynamic resources: " +
			"claim default/a: no ResourceClaim a is known in namespace default")
		n.host.SetClaim(newClaim("a"))
		if err := n.Prepare(t.Context(), pod, nil); !errors.As(err, new(*dra.NotYetError)) {
			t.Errorf("without its driver: %v", err)
		}
		if calls := n.host.Calls(); len(calls) != 1 || !strings.HasPrefix(calls[0], "event default/p Normal WaitingForDynamicResources: claim default/a waits for driver") {
			t.Errorf("host heard %q", calls)
		}
		if err := n.Compile(pod, &podspec.Input{}); !errors.Is(err, dra.ErrNotPrepared) {
			t.Errorf("compile: %v", err)
		}
		n.offer(d)
		n.wantCalls("resync p")

		for range 2 { // the second time nobody is asked
			if err := n.Prepare(t.Context(), pod, nil); err != nil {
				t.Error(err)
			}
		}
		if calls := d.Called(); calls != "prepare a" {
			t.Errorf("driver heard %q", calls)
		}
		in := podspec.Input{Attached: map[string]podspec.Attachment{"main": {CDI: []string{"v/c=other", "v/c=a"}}}}
		if err := n.Compile(pod, &in); err != nil || !slices.Equal(in.Attached["main"].CDI, []string{"v/c=other", "v/c=a"}) {
			t.Errorf("attached %v, %v", in.Attached, err)
		}
		shared := []string{"v/c=other", "v/c=b"}
		in = podspec.Input{Attached: map[string]podspec.Attachment{"main": {CDI: shared[:1]}}}
		if err := n.Compile(pod, &in); err != nil || !slices.Equal(in.Attached["main"].CDI, []string{"v/c=other", "v/c=a"}) {
			t.Errorf("attached %v, %v", in.Attached, err)
		}
		if shared[1] != "v/c=b" {
			t.Errorf("the devices of others are %v now", shared)
		}
		held := n.Held().Dynamic(pod, "main")
		if len(held) != 1 || held[0].GetClaimName() != "a" || held[0].GetClaimResources()[0].GetCdiDevices()[0].GetName() != "v/c=a" {
			t.Errorf("held %v", held)
		}

		st := v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "main", AllocatedResourcesStatus: []v1.ResourceStatus{{Name: "example.com/x"}, {Name: "claim:old"}}}}}
		before := st.ContainerStatuses[0].AllocatedResourcesStatus
		d.Health <- dra.Unhealthy
		n.wantCalls("resync p")
		n.Report(pod, &st)
		got := st.ContainerStatuses[0].AllocatedResourcesStatus
		if len(got) != 2 || got[1].Name != "claim:my-a" || got[1].Resources[0].Health != v1.ResourceHealthStatusUnhealthy || before[1].Name != "claim:old" {
			t.Errorf("status %v", got)
		}

		d.Fail(errors.New("it is in use"))
		if err := n.Stopped(t.Context(), part.RefOf(pod)); !errors.As(err, &shown) || shown.Reason() != resources.ReasonUnprepareClaims {
			t.Errorf("stopped: %v", err)
		}
		if calls := n.host.Calls(); len(calls) != 1 || !strings.HasPrefix(calls[0], "event default/p Warning FailedUnprepareDynamicResources: ") {
			t.Errorf("host heard %q", calls)
		}
		d.Fail(nil)
		if err := n.Stopped(t.Context(), part.RefOf(pod)); err != nil {
			t.Error(err)
		}
		n.wantCalls()
		n.stop()
	})
}

// Init containers show nothing, unless they are sidecars.
func TestReportInitContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, part.OpenVolatileStore(t.TempDir(), nil))
		pod := newPod("p", "a")
		always := v1.ContainerRestartPolicyAlways
		init, side := pod.Spec.Containers[0], pod.Spec.Containers[0]
		init.Name, side.Name, side.RestartPolicy = "init", "side", &always
		pod.Spec.InitContainers = []v1.Container{init, side}
		n.host.SetPods(pod)
		n.host.SetClaim(newClaim("a"))
		n.offer(devicetest.NewDriver())
		if err := n.Prepare(t.Context(), pod, nil); err != nil {
			t.Fatal(err)
		}
		st := v1.PodStatus{InitContainerStatuses: []v1.ContainerStatus{{Name: "init"}, {Name: "side"}}}
		n.Report(pod, &st)
		if st.InitContainerStatuses[0].AllocatedResourcesStatus != nil || len(st.InitContainerStatuses[1].AllocatedResourcesStatus) != 1 {
			t.Errorf("status %+v", st)
		}
		n.stop()
	})
}

// After a restart of the agent what runs has its claims still, and those of pods
// that are gone are undone.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := part.OpenVolatileStore(t.TempDir(), nil), devicetest.NewDriver()
		runs, gone := newPod("runs", "a"), newPod("gone", "b")
		n := start(t, store)
		n.host.SetPods(runs, gone)
		n.host.SetClaim(newClaim("a"))
		n.host.SetClaim(newClaim("b"))
		n.offer(d)
		for _, pod := range []*v1.Pod{runs, gone} {
			if err := n.Prepare(t.Context(), pod, nil); err != nil {
				t.Fatal(err)
			}
		}
		n.stop()
		d.Called()

		n = start(t, store, runs)
		n.offer(d)
		if err := n.Prepare(t.Context(), runs, nil); err != nil {
			t.Error(err)
		}
		if err := n.Sweep(t.Context(), func(uid types.UID) bool { return uid == "runs" }); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if calls := d.Called(); calls != "unprepare b" {
			t.Errorf("driver heard %q", calls)
		}
		n.stop()
	})
}

// A claim that is reserved for nobody is so for the pods of manifests that name
// it.
func TestLookup(t *testing.T) {
	lookup := &resources.ClaimLookup{}
	m, err := dra.New(dra.Config{Store: part.OpenVolatileStore(t.TempDir(), nil), Claims: lookup})
	if err != nil {
		t.Fatal(err)
	}
	p, err := resources.NewClaims(resources.ClaimsConfig{Manager: m, Lookup: lookup})
	if err != nil {
		t.Fatal(err)
	}
	h := agenttest.NewHost(t)
	if err := p.Join(h); err != nil {
		t.Fatal(err)
	}
	scheduled, elsewhere := newPod("scheduled", "a"), newPod("elsewhere", "a")
	scheduled.Annotations = map[string]string{podmeta.AnnotationSource: podmeta.SourceAPI}
	elsewhere.Namespace = "other"
	h.SetPods(newPod("p", "a"), newPod("q", "b"), scheduled, elsewhere)
	free, taken := newClaim("a"), newClaim("b")
	taken.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "r", UID: "r"}}
	h.SetClaim(free)
	h.SetClaim(taken)
	for name, want := range map[string]types.UID{"a": "p", "b": "r"} {
		c, err := lookup.Claim(t.Context(), "default", name)
		if err != nil || len(c.Status.ReservedFor) != 1 || c.Status.ReservedFor[0].UID != want {
			t.Errorf("claim %s is reserved for %v, %v; want %s", name, c.Status.ReservedFor, err, want)
		}
	}
	if len(free.Status.ReservedFor) != 0 {
		t.Error("the claim of the sources was changed")
	}
}

// A disk that hangs at the start holds up pods with claims, and no others.
func TestDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung := &agenttest.HungStore{}
		n := join(t, hung)
		restored := make(chan error, 1)
		go func() { restored <- n.Restore(t.Context()) }()
		synctest.Wait()
		pod, plain := newPod("p", "a"), newPod("plain")
		n.host.SetPods(pod)
		n.host.SetClaim(newClaim("a"))

		begin := time.Now()
		if err := n.Prepare(t.Context(), plain, nil); err != nil {
			t.Error(err)
		}
		if err := n.Compile(plain, &podspec.Input{}); err != nil {
			t.Error(err)
		}
		n.Report(pod, &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "main"}}})
		for _, ref := range []part.Ref{part.RefOf(plain), {UID: "orphan"}} {
			if err := n.Stopped(t.Context(), ref); err != nil {
				t.Error(err)
			}
		}
		if err := n.Sweep(t.Context(), func(types.UID) bool { return false }); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("the hooks waited %v for the disk", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := n.Prepare(ctx, pod, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("prepare: %v", err)
		}
		if err := n.Stopped(ctx, part.RefOf(pod)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stopped: %v", err)
		}
		cancel()
		n.wantCalls() // no event for an end of the call

		hung.Release()
		if err := <-restored; err != nil {
			t.Error(err)
		}
		<-n.Ready()
		n.offer(devicetest.NewDriver())
		if err := n.Prepare(t.Context(), pod, nil); err != nil {
			t.Error(err)
		}
		n.stop()
	})
}

// The disk hangs at the start for longer than its calls last: a pod that was deleted
// meanwhile has its claim undone all the same.
func TestDiskComesBackLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d, gone := part.OpenVolatileStore(t.TempDir(), nil), devicetest.NewDriver(), newPod("gone", "a")
		n := start(t, store)
		n.host.SetPods(gone)
		n.host.SetClaim(newClaim("a"))
		n.offer(d)
		if err := n.Prepare(t.Context(), gone, nil); err != nil {
			t.Fatal(err)
		}
		n.stop()
		d.Called()

		n = join(t, &lateToList{store, 3})
		restored := make(chan error, 1)
		go func() { restored <- n.Restore(t.Context()) }()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := n.Stopped(ctx, part.RefOf(gone)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stopped before anything is known of its claims: %v", err)
		}
		cancel()
		if err := <-restored; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		n.offer(d)
		if err := n.Stopped(t.Context(), part.RefOf(gone)); err != nil {
			t.Error(err)
		}
		if calls := d.Called(); calls != "unprepare a" {
			t.Errorf("driver heard %q", calls)
		}
		n.stop()

		n = join(t, &lateToList{store, 1 << 30})
		ctx, cancel = context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := n.Restore(ctx); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a disk that never answers: %v", err)
		}
		n.stop()
	})
}

// lateToList is a store of which Keys is given up some times.
type lateToList struct {
	part.Store
	times int
}

func (s *lateToList) Keys() ([]string, error) {
	if s.times--; s.times >= 0 {
		return nil, os.ErrDeadlineExceeded
	}
	return s.Store.Keys()
}
