package dra_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/dra"
)

func bubble(t *testing.T, fn func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		fn(t, r)
		r.stop()
	})
}

func TestLifeOfAClaim(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.claims.put(claim("a", "p", "q"), claim("b", "p"), claim("c", "q"))
		p, q := pod("p", "a", "b"), pod("q", "a", "c")
		if _, err := r.Attachment(p, "main"); !errors.Is(err, dra.ErrNotPrepared) {
			t.Errorf("attachment before prepare: %v", err)
		}
		r.prepare(p)
		r.called("prepare a,b") // one call for both
		r.prepare(p)
		r.called("")
		if n := len(r.claims.asked); n != 2 {
			t.Errorf("claims were looked up %d times, want 2", n)
		}
		r.prepare(q)
		r.called("prepare c") // a is shared
		if ids, err := r.Attachment(q, "main"); err != nil || !slices.Equal(ids, []string{gpu + "/dev=a", gpu + "/dev=c"}) {
			t.Errorf("q gets %v, %v", ids, err)
		}
		r.unprepare("p")
		r.called("unprepare b")
		r.unprepare("p") // again: q must not lose its claim
		r.called("")
		r.unprepare("q")
		r.called("unprepare a,c")
		if keys, _ := r.store.Keys(); len(keys) != 0 {
			t.Errorf("store has %v at the end", keys)
		}
		r.unprepare("nobody")
		r.prepare(pod("none"))
		r.called("")
	})
}

// Two pods share a claim while the disk is slow: the writes of its record wait for each other, and
// time goes on meanwhile (simulated seed 41006260).
func TestWritesOfAClaimWait(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.claims.put(claim("a", "p", "q"))
		r.store.Fault(checkpointtest.Slow(10*time.Second, "write"))
		ended := make(chan error)
		for _, name := range []string{"p", "q"} {
			go func() { ended <- r.Prepare(context.Background(), pod(name, "a")) }()
		}
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Error(err)
		}
		r.restart(nil, r.gpu)
		if keys, _ := r.store.Keys(); len(keys) != 1 {
			t.Errorf("records %v, want one", keys)
		}
	})
}

func TestBothEndAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.claims.put(claim("a", "p", "q"))
		r.prepare(pod("p", "a"))
		r.prepare(pod("q", "a"))
		r.gpu.called()
		ended := make(chan error)
		for _, uid := range []types.UID{"p", "q"} {
			go func() { ended <- r.Unprepare(context.Background(), uid) }()
		}
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Error(err)
		}
		r.called("unprepare a")
	})
}

func TestChecks(t *testing.T) {
	str := func(s string) *string { return &s }
	for _, tt := range []struct {
		name   string
		change func(r *rig, p *v1.Pod)
		want   string
	}{
		{"missing", func(r *rig, p *v1.Pod) { delete(r.claims.all, "a") }, "claim default/a: resourceclaim default/a not found"},
		{"not reserved", func(r *rig, p *v1.Pod) { r.claims.put(claim("a", "q")) }, "may not use the claim"},
		{"reserved for a pod group", func(r *rig, p *v1.Pod) {
			r.claims.all["a"].Status.ReservedFor[0].APIGroup, r.claims.all["a"].Status.ReservedFor[0].Resource = "scheduling.k8s.io", "podgroups"
		}, "may not use the claim"},
		{"not allocated", func(r *rig, p *v1.Pod) { r.claims.all["a"].Status.Allocation = nil }, "not allocated"},
		{"bad UID", func(r *rig, p *v1.Pod) { r.claims.all["a"].UID = "../x" }, "metadata.uid"},
		{"bad driver", func(r *rig, p *v1.Pod) { r.claims.put(claim("a=.x", "p")) }, "driver name"},
		{"unknown driver", func(r *rig, p *v1.Pod) { r.claims.put(claim("a="+gpu+",nic.example.com", "p")) }, "nic.example.com"},
		{"no name", func(r *rig, p *v1.Pod) { p.Spec.ResourceClaims[0].ResourceClaimName = nil }, "resourceClaimName and"},
		{"not generated", func(r *rig, p *v1.Pod) {
			p.Spec.ResourceClaims[0] = v1.PodResourceClaim{Name: "my-a", ResourceClaimTemplateName: str("t")}
		}, "claim my-a: not generated yet from template t"},
		{"generated for another pod", func(r *rig, p *v1.Pod) {
			p.Spec.ResourceClaims[0] = v1.PodResourceClaim{Name: "my-a", ResourceClaimTemplateName: str("t")}
			p.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "my-a", ResourceClaimName: str("a")}}
		}, "was not generated for the pod (UID p)"},
		{"container with an unknown name", func(r *rig, p *v1.Pod) { p.Spec.Containers[0].Resources.Claims[0].Name = "other" }, "container main uses the claim"},
		{"disk broken", func(r *rig, p *v1.Pod) { r.store.Fault(checkpointtest.Fail(errBroken, "write", "delete")) }, "store its record: disk is broken"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.claims.put(claim("a", "p"))
				p := pod("p", "a")
				tt.change(r, p)
				err := r.Prepare(t.Context(), p)
				fails(t, err, tt.want)
				r.called("")
				if keys, _ := r.store.Keys(); len(keys) != 0 {
					t.Errorf("something was changed: %v", keys)
				}
				if _, err := r.Attachment(p, "main"); err == nil {
					t.Error("the container may start")
				}
				r.unprepare("p")
				r.called("")
			})
		})
	}
}

func TestTemplates(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		name, tmpl, yes := "p-abc", "t", true
		c := claim(name, "p")
		c.OwnerReferences = []metav1.OwnerReference{{UID: "p", Controller: &yes}}
		r.claims.put(c)
		p := pod("p")
		p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "x", ResourceClaimTemplateName: &tmpl}, {Name: "none", ResourceClaimTemplateName: &tmpl}}
		p.Spec.Containers[0].Resources.Claims = []v1.ResourceClaim{{Name: "x", Request: "r"}, {Name: "none"}}
		p.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "none"}, {Name: "x", ResourceClaimName: &name}}
		r.prepare(p)
		r.called("prepare " + name)
		if ids, err := r.Attachment(p, "main"); err != nil || len(ids) != 1 {
			t.Errorf("%v, %v", ids, err)
		}
	})
}

func TestExtendedResources(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.claims.put(claim("e", "p"))
		p := pod("p")
		p.Spec.Containers[0].Resources.Limits = v1.ResourceList{"example.com/gpu": resource.MustParse("1")}
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: "other"})
		p.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{ResourceClaimName: "e", RequestMappings: []v1.ContainerExtendedResourceRequest{
			{ContainerName: "main", ResourceName: "example.com/gpu", RequestName: "r"},
			{ContainerName: "other", ResourceName: "example.com/gpu", RequestName: "r"},
		}}
		r.prepare(p)
		r.called("prepare e")
		for name, want := range map[string]int{"main": 1, "other": 0} {
			if ids, err := r.Attachment(p, name); err != nil || len(ids) != want {
				t.Errorf("%s: %v, %v, want %d", name, ids, err, want)
			}
			if got := dra.Claimed(p, name, "example.com/gpu"); got != (want == 1) {
				t.Errorf("Claimed(%s) = %v", name, got)
			}
		}
		if dra.Claimed(p, "main", "example.com/nic") || dra.Claimed(pod("q"), "main", "x") || dra.Claimed(p, "nobody", "example.com/gpu") {
			t.Error("claims more than there is")
		}
		if h := r.Health("p", "main"); len(h) != 0 {
			t.Errorf("health of an extended resource: %v", h)
		}
	})
}

// Containers get the devices of their requests.
func TestRequests(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.claims.put(claim("a", "p"))
		dev := func(name string, requests ...string) dra.Device {
			return dra.Device{Pool: "n", Name: name, Requests: requests, CDI: []string{"v/c=" + name}}
		}
		r.gpu.prepare = func(_ context.Context, list []dra.ClaimRef) (map[types.UID]dra.Prepared, error) {
			return map[types.UID]dra.Prepared{list[0].UID: {Devices: []dra.Device{dev("all"), dev("one", "one"), dev("sub", "two/small"), dev("both", "one", "two/small")}}}, nil
		}
		p := pod("p", "a")
		for i, reqs := range [][]string{{""}, {"one"}, {"two"}, {"two/small"}, {"one", "two"}, {"none"}, nil} {
			c := v1.Container{Name: fmt.Sprint("c", i)}
			for _, req := range reqs {
				c.Resources.Claims = append(c.Resources.Claims, v1.ResourceClaim{Name: "my-a", Request: req})
			}
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		}
		r.prepare(p)
		for i, want := range []string{"all one sub both", "all one both", "all sub both", "all sub both", "all one both sub", "all", ""} {
			ids, err := r.Attachment(p, fmt.Sprint("c", i))
			if got := strings.ReplaceAll(strings.Join(ids, " "), "v/c=", ""); err != nil || got != want {
				t.Errorf("c%d gets %q, %v, want %q", i, got, err, want)
			}
			n := 0
			for _, h := range r.Holdings("p", fmt.Sprint("c", i)) {
				n += len(h.Devices)
			}
			if n != len(ids) {
				t.Errorf("c%d: %d holdings, want %d", i, n, len(ids))
			}
		}
	})
}

func TestDriverAnswers(t *testing.T) {
	type prepared = map[types.UID]dra.Prepared
	for _, tt := range []struct {
		name   string
		answer prepared
		err    error
		want   string // "": no error
		again  string // expected calls at the next try
	}{
		{"nothing", prepared{}, nil, "lacks the claim", "prepare a,b"},
		{"no devices", prepared{"uid-a": {}, "uid-b": {}}, nil, "", ""},
		{"half", prepared{"uid-a": {}}, nil, "NodePrepareResources of claim default/b: the driver's answer lacks", "prepare b"},
		{"an error for one", prepared{"uid-a": {Err: errBroken}, "uid-b": {}}, nil, "claim default/a: disk is broken", "prepare a"},
		{"more than asked for", prepared{"uid-a": {}, "uid-b": {}, "uid-x": {}}, nil, `has claim "uid-x"`, "prepare a,b"},
		{"failure", nil, errBroken, "driver gpu.example.com: NodePrepareResources of claim default/a, default/b: disk is broken", "prepare a,b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.claims.put(claim("a", "p"), claim("b", "p"))
				p := pod("p", "a", "b")
				r.gpu.prepare = func(context.Context, []dra.ClaimRef) (map[types.UID]dra.Prepared, error) { return tt.answer, tt.err }
				err := r.Prepare(t.Context(), p)
				if tt.want == "" && err != nil {
					t.Error(err)
				} else if tt.want != "" {
					fails(t, err, tt.want)
				}
				r.called("prepare a,b")
				r.gpu.prepare = nil
				r.prepare(p)
				r.called(tt.again)
				r.unprepare("p")
				r.called("unprepare a,b")
			})
		})
	}
}

func TestUnprepareAnswers(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer map[types.UID]error
		err    error
		want   string
		again  string
	}{
		{"nothing", nil, nil, "lacks the claim", "unprepare a,b"},
		{"half", map[types.UID]error{"uid-a": nil}, nil, "default/b", "unprepare b"},
		{"an error for one", map[types.UID]error{"uid-a": errBroken, "uid-b": nil}, nil, "NodeUnprepareResources of claim default/a: disk", "unprepare a"},
		{"more than asked for", map[types.UID]error{"x": nil}, nil, `claim "x"`, "unprepare a,b"},
		{"failure", nil, errBroken, "default/a, default/b: disk is broken", "unprepare a,b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.claims.put(claim("a", "p"), claim("b", "p"))
				r.prepare(pod("p", "a", "b"))
				r.gpu.called()
				r.gpu.unprepare = func(context.Context, []dra.ClaimRef) (map[types.UID]error, error) { return tt.answer, tt.err }
				fails(t, r.Unprepare(t.Context(), "p"), tt.want)
				r.called("unprepare a,b")
				r.gpu.unprepare = nil
				r.unprepare("p")
				r.called(tt.again)
				if keys, _ := r.store.Keys(); len(keys) != 0 {
					t.Errorf("store has %v", keys)
				}
			})
		})
	}
}

// A driver that hangs costs its own pods, and those no longer than its time.
func TestHungDriver(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		nic := newDriver(t, "nic.example.com")
		hang := func(ctx context.Context, _ []dra.ClaimRef) (map[types.UID]dra.Prepared, error) {
			<-ctx.Done()
			return nil, fmt.Errorf("no answer in time: %w", ctx.Err())
		}
		nic.prepare = hang
		r.offer(nic)
		r.claims.put(claim("a", "p", "q"), claim("n=nic.example.com", "p", "s"), claim("b", "q"))
		begin := time.Now()
		both, shares := make(chan error), make(chan error)
		go func() { both <- r.Prepare(context.Background(), pod("p", "a", "n")) }()
		synctest.Wait()
		go func() { shares <- r.Prepare(context.Background(), pod("s", "n")) }()
		synctest.Wait()
		r.prepare(pod("q", "a", "b")) // shares a with p
		if d := time.Since(begin); d != 0 {
			t.Errorf("another pod waited for %v", d)
		}
		fails(t, <-both, "driver nic.example.com", "claim default/n", "in time")
		fails(t, <-shares, "driver nic.example.com", "in time") // the same call
		if d := time.Since(begin); d != 45*time.Second {
			t.Errorf("the pod waited for %v, want 45s", d)
		}
		if got := nic.called(); got != "prepare n" {
			t.Errorf("nic heard %q", got)
		}
		// Whoever waits no longer does not end the call: the opposite waits.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err := r.Prepare(ctx, pod("p", "a", "n"))
		fails(t, err, "nic.example.com has not answered yet")
		ended := make(chan error)
		go func() { ended <- r.Unprepare(context.Background(), "s") }()
		go func() { ended <- r.Unprepare(context.Background(), "p") }()
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Error(err)
		}
		if got := nic.called(); got != "prepare n; unprepare n" {
			t.Errorf("nic heard %q", got)
		}
	})
}

// A pod that comes while its claim is being undone has it prepared after that.
func TestPrepareDuringUnprepare(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.claims.put(claim("a", "p", "q"))
		r.prepare(pod("p", "a"))
		go1 := make(chan struct{})
		r.gpu.unprepare = func(context.Context, []dra.ClaimRef) (map[types.UID]error, error) {
			<-go1
			return map[types.UID]error{"uid-a": nil}, nil
		}
		ended := make(chan error)
		go func() { ended <- r.Unprepare(context.Background(), "p") }()
		synctest.Wait()
		go func() { ended <- r.Prepare(context.Background(), pod("q", "a")) }()
		synctest.Wait()
		r.called("prepare a; unprepare a")
		close(go1)
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Error(err)
		}
		r.called("prepare a")
		if _, err := r.Attachment(pod("q", "a"), "main"); err != nil {
			t.Error(err)
		}
		r.gpu.unprepare = nil
		r.unprepare("q")
		r.called("unprepare a")
	})
}

func TestDriverNotYet(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.Withdraw(gpu, "1")
		var told []dra.Change
		cancel := r.Subscribe(func(c dra.Change) { told = append(told, c) })
		defer cancel()
		r.claims.put(claim("a", "p"), claim("b", "q"))
		p := pod("p", "a")
		var notYet *dra.NotYetError
		// A pod that goes does not wait for a driver that was not called for it.
		if err := r.Prepare(t.Context(), pod("q", "b")); !errors.As(err, &notYet) {
			t.Errorf("without its driver: %v", err)
		}
		r.unprepare("q")
		if err := r.Prepare(t.Context(), p); !errors.As(err, &notYet) || notYet.Driver != gpu || notYet.Claim != "default/a" ||
			time.Until(notYet.Until) != 5*time.Minute {
			t.Errorf("without its driver: %v", err)
		}
		time.Sleep(5 * time.Minute)
		var gone *dra.GoneError
		if err := r.Prepare(t.Context(), p); !errors.As(err, &gone) {
			t.Errorf("after the grace: %v", err)
		} else {
			fails(t, err, "default/a", gpu, "deregistered")
		}
		r.offer(r.gpu)
		synctest.Wait()
		if len(told) != 1 || !slices.Equal(told[0].Pods, []types.UID{"p"}) || !slices.Equal(told[0].Drivers, []string{gpu}) {
			t.Errorf("told %v", told)
		}
		r.prepare(p)
		r.Withdraw(gpu, "1")
		r.prepare(p) // all claims are prepared
		if _, err := r.Attachment(p, "main"); err != nil {
			t.Error(err)
		}
		if err := r.Unprepare(t.Context(), "p"); !errors.As(err, &notYet) {
			t.Errorf("unprepare without the driver: %v", err)
		}
		if keys, _ := r.store.Keys(); len(keys) != 1 {
			t.Error("the claim is forgotten although it was not unprepared")
		}
		r.offer(r.gpu)
		r.unprepare("p")
	})
}

// The newest connected instance of a driver is used.
func TestInstances(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		second := newDriver(t, gpu)
		if err := r.Offer(gpu, "2", second); err != nil {
			t.Fatal(err)
		}
		fails(t, r.Offer(gpu, "2", newDriver(t, gpu)), "registered at 2 already")
		fails(t, r.Offer("-x", "2", newDriver(t, gpu)), "driver name")
		r.claims.put(claim("a", "p"), claim("b", "q"))
		r.prepare(pod("p", "a"))
		if got := second.called(); got != "prepare a" {
			t.Errorf("the second heard %q", got)
		}
		if n := len(r.Drivers()); n != 2 {
			t.Errorf("%d drivers", n)
		}
		r.Withdraw(gpu, "2")
		r.Withdraw(gpu, "3")
		r.Withdraw("unknown", "3")
		synctest.Wait()
		if second.closed != 1 {
			t.Errorf("closed %d times", second.closed)
		}
		r.prepare(pod("q", "b"))
		r.called("prepare b")
	})
}

func TestSameNameAnotherClaim(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.claims.put(claim("a", "p"))
		r.prepare(pod("p", "a"))
		again := claim("a", "q")
		again.UID = "uid-2"
		r.claims.put(again)
		fails(t, r.Prepare(t.Context(), pod("q", "a")), "uid-2", "uid-a", "deleted by force")
		r.prepare(pod("p", "a")) // a pod keeps its claims
		r.Retain(func(uid types.UID) bool { return uid == "q" })
		synctest.Wait()
		r.called("prepare a; unprepare a")
		r.prepare(pod("q", "a"))
		r.called("prepare a")
	})
}

func TestRetain(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.claims.put(claim("a", "p"), claim("b", "q"))
		r.prepare(pod("p", "a"))
		r.prepare(pod("q", "b"))
		r.gpu.called()
		fail := true
		r.gpu.unprepare = func(_ context.Context, list []dra.ClaimRef) (map[types.UID]error, error) {
			if fail {
				return nil, errBroken
			}
			return map[types.UID]error{list[0].UID: nil}, nil
		}
		only := func(keep types.UID) { r.Retain(func(uid types.UID) bool { return uid == keep }) }
		only("q")
		only("q")
		time.Sleep(4 * time.Second)
		r.called("unprepare a; unprepare a; unprepare a") // at 0, 1 and 3 s
		r.prepare(pod("p", "a"))                          // it is not gone after all
		r.called("prepare a")
		time.Sleep(time.Hour)
		r.called("")
		fail = false
		only("q")
		synctest.Wait()
		r.called("unprepare a")
		if keys, _ := r.store.Keys(); !slices.Equal(keys, []string{"claim.uid-b"}) {
			t.Errorf("store has %v", keys)
		}
		r.Withdraw(gpu, "1") // one that is away is waited for
		only("p")
		time.Sleep(10 * time.Minute)
		r.offer(r.gpu)
		synctest.Wait()
		r.called("unprepare b")
		only("p")
		synctest.Wait()
		r.called("")
	})
}

func TestRestart(t *testing.T) {
	running := map[types.UID][]string{"p": {"main"}}
	prepared := func(t *testing.T, r *rig) {
		r.claims.put(claim("a", "p", "q"), claim("b", "q"))
		r.prepare(pod("p", "a"))
		r.gpu.called()
	}
	t.Run("of the agent", func(t *testing.T) {
		bubble(t, func(t *testing.T, r *rig) {
			prepared(t, r)
			r.claims.hang = true // no call of the API server
			r.restart(running)   // before the driver
			r.prepare(pod("p", "a"))
			if ids, err := r.Attachment(pod("p", "a"), "main"); err != nil || len(ids) != 1 {
				t.Errorf("after the restart: %v, %v", ids, err)
			}
			if h := r.Holdings("p", "main"); len(h) != 1 || h[0].Claim != "a" || len(h[0].Devices) != 1 {
				t.Errorf("holdings %v", h)
			}
			r.claims.hang = false
			r.offer(r.gpu)
			r.prepare(pod("q", "a", "b"))
			r.called("prepare b")
			r.unprepare("p")
			r.called("")
			r.restart(nil, r.gpu)
			r.unprepare("q")
			r.called("unprepare a,b")
		})
	})
	t.Run("of the machine", func(t *testing.T) {
		bubble(t, func(t *testing.T, r *rig) {
			prepared(t, r)
			r.cfg.Boot = "2"
			r.restart(map[types.UID][]string{}, r.gpu)
			if _, err := r.Attachment(pod("p", "a"), "main"); !errors.Is(err, dra.ErrNotPrepared) {
				t.Errorf("after the boot: %v", err)
			}
			r.prepare(pod("p", "a"))
			r.called("prepare a")
		})
	})
	t.Run("of who knows what", func(t *testing.T) {
		bubble(t, func(t *testing.T, r *rig) {
			r.cfg.Boot = ""
			r.restart(nil, r.gpu)
			prepared(t, r)
			r.restart(running, r.gpu)
			r.prepare(pod("p", "a"))
			r.called("")
			r.restart(map[types.UID][]string{"p": nil}, r.gpu)
			r.prepare(pod("p", "a"))
			r.called("prepare a")
		})
	})
	t.Run("after a crash in between", func(t *testing.T) {
		bubble(t, func(t *testing.T, r *rig) {
			r.claims.put(claim("a", "p", "q"))
			for _, call := range []string{"prepare", "unprepare"} {
				crash := func() { r.store.Fault(checkpointtest.Fail(errBroken, "write", "delete")) } // the driver has prepared it, but the answer is lost
				r.gpu.prepare = func(_ context.Context, list []dra.ClaimRef) (map[types.UID]dra.Prepared, error) {
					if call == "prepare" {
						crash()
					}
					return map[types.UID]dra.Prepared{"uid-a": {}}, nil
				}
				r.gpu.unprepare = func(context.Context, []dra.ClaimRef) (map[types.UID]error, error) {
					crash()
					return map[types.UID]error{"uid-a": nil}, nil
				}
				_ = r.Prepare(t.Context(), pod("p", "a"))
				if call == "unprepare" {
					_ = r.Unprepare(t.Context(), "p")
				}
				r.stop()
				r.store.Fault(nil)
				r.gpu.called()
				r.gpu.prepare, r.gpu.unprepare = nil, nil
				r.restart(nil, r.gpu)
				r.prepare(pod("q", "a")) // q must not treat it as prepared
				r.called("prepare a")
				r.Retain(func(uid types.UID) bool { return uid == "q" })
				synctest.Wait()
				r.called("")
				r.unprepare("q")
				r.called("unprepare a")
			}
		})
	})
}

// A damaged record is created again, with the other running pods.
func TestDamage(t *testing.T) {
	for _, value := range []string{"damaged", "{", `{"version":1,"uid":"uid-x","namespace":"default","name":"a","pods":[{"uid":"p"}],"drivers":null}`} {
		bubble(t, func(t *testing.T, r *rig) {
			reg := prometheus.NewRegistry()
			r.cfg.Metrics = reg
			r.claims.put(claim("a", "p", "q", "s"))
			for _, name := range []string{"p", "q", "s"} {
				r.prepare(pod(name, "a"))
			}
			r.gpu.called()
			r.stop()
			r.store.Put("claim.uid-a", value)
			if value == "damaged" {
				r.store.Damage("claim.uid-a")
			}
			r.store.Put("other", "is not ours")
			r.restart(map[types.UID][]string{"p": {"main"}, "q": {"main"}}, r.gpu)
			if got := gather(t, reg)["nodewright_dra_records_damaged_total"]; got != 1 {
				t.Errorf("damaged records: %v, want 1", got)
			}
			r.prepare(pod("p", "a"))
			r.called("prepare a")
			r.unprepare("p") // q runs, though it was not prepared again yet
			r.called("")
			r.unprepare("q")
			r.called("unprepare a")
		})
	}
}

// What does not stay in the store is no reason to fail a pod that ends.
func TestDiskBreaksAtTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.claims.put(claim("a", "p", "q"))
		r.prepare(pod("p", "a"))
		r.store.Fault(checkpointtest.Fail(errBroken, "write", "delete"))
		fails(t, r.Prepare(t.Context(), pod("q", "a")), "disk is broken")
		if _, err := r.Attachment(pod("p", "a"), "main"); err != nil {
			t.Error(err)
		}
		r.prepare(pod("p", "a")) // it is not about p
		r.unprepare("q")
		fails(t, r.Unprepare(t.Context(), "p"), "NodeUnprepareResources of claim default/a", "disk is broken")
		r.called("prepare a")
		r.store.Fault(nil)
		r.unprepare("p")
		r.called("unprepare a")
	})
}

func TestNotRunning(t *testing.T) {
	m, err := dra.New(dra.Config{Store: &checkpointtest.Disk{}, Claims: &claims{all: nil}})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Offer(gpu, "1", newDriver(t, gpu)); !errors.Is(err, dra.ErrNotRunning) {
		t.Errorf("Offer before Run: %v", err)
	}
	m.Retain(func(types.UID) bool { return false })
	c := &claims{}
	c.put(claim("a", "p"))
	m, err = dra.New(dra.Config{Store: &checkpointtest.Disk{}, Claims: c})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Prepare(t.Context(), pod("p", "a")); !errors.Is(err, dra.ErrNotRunning) {
		t.Errorf("Prepare before Run: %v", err)
	}
	if err := m.Restore(nil); err != nil {
		t.Error(err)
	}
	fails(t, m.Restore(nil), "already")
}

func TestNewNamesMistakes(t *testing.T) {
	_, err := dra.New(dra.Config{Timeout: -1})
	fails(t, err, "Config.Store", "Config.Claims", "Config.Timeout is -1ns")
	reg := prometheus.NewRegistry()
	for i := range 2 {
		if _, err := dra.New(dra.Config{Store: &checkpointtest.Disk{}, Claims: &claims{}, Metrics: reg}); err != nil {
			t.Errorf("New number %d: %v", i, err)
		}
	}
}

func TestMetrics(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		reg := prometheus.NewRegistry()
		r.cfg.Metrics = reg
		nic := newDriver(t, "nic.example.com")
		r.restart(nil, r.gpu, nic)
		r.claims.put(claim("a", "p"), claim("b="+gpu+",nic.example.com", "q"))
		r.prepare(pod("p", "a"))
		r.prepare(pod("q", "b"))
		r.unprepare("p")
		got := gather(t, reg)
		for name, want := range map[string]float64{
			"dra_resource_claims_in_use <any>":                         1,
			"dra_resource_claims_in_use " + gpu:                        1,
			"dra_resource_claims_in_use nic.example.com":               1,
			"dra_operations_duration_seconds false PrepareResources":   2,
			"dra_operations_duration_seconds false UnprepareResources": 1,
		} {
			if n, ok := got[name]; !ok || n != want {
				t.Errorf("%s is %v, want %v", name, n, want)
			}
		}
	})
}

// gather reads metrics: "name label values", and of histograms the count.
func gather(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			out[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}
