package podsync_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
	"github.com/nodewright/nodewright/kubeapi/podsync"
	"github.com/nodewright/nodewright/kubeapi/seal"
	"github.com/nodewright/nodewright/podmgr"
)

// device is a ResourceClaim that is allocated and reserved for some pods.
func device(name string, pods ...types.UID) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("claim-" + name)}}
	c.Status.Allocation = &resourcev1.AllocationResult{}
	for _, uid := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: "p", UID: uid})
	}
	return c
}

// using is a pod with ResourceClaims.
func using(name string, claims ...string) *v1.Pod {
	p := pod(name)
	p.UID = types.UID(name)
	for i := range claims {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, v1.PodResourceClaim{Name: claims[i], ResourceClaimName: &claims[i]})
	}
	return p
}

func (r *running) resources() (out []*resourcev1.ResourceClaim) {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.snaps) == 0 {
		return nil
	}
	return r.snaps[len(r.snaps)-1].ResourceClaims
}

func names(claims []*resourcev1.ResourceClaim) string {
	var out []string
	for _, c := range claims {
		out = append(out, c.Name)
	}
	return strings.Join(out, " ")
}

func TestResourceClaimsOfPods(t *testing.T) {
	template, generated, other := "template", "a-gpu-x7", "a-extended"
	for _, tc := range []struct {
		name   string
		change func(*v1.Pod)
		want   string
	}{
		{"named", func(p *v1.Pod) { *p = *using("a", "gpu", "nic") }, "gpu nic"},
		{"named twice", func(p *v1.Pod) { *p = *using("a", "gpu", "gpu") }, "gpu"},
		{"generated from a template", func(p *v1.Pod) {
			p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &template}}
			p.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "other", ResourceClaimName: &other}, {Name: "gpu", ResourceClaimName: &generated}}
		}, "a-gpu-x7"},
		{"not generated yet", func(p *v1.Pod) {
			p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &template}}
		}, ""},
		{"none is needed", func(p *v1.Pod) {
			p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &template}}
			p.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "gpu"}}
		}, ""},
		{"of extended resources", func(p *v1.Pod) {
			p.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{ResourceClaimName: other}
		}, "a-extended"},
		{"of a pod that is over", func(p *v1.Pod) { *p = *using("a", "gpu"); p.Status.Phase = v1.PodFailed }, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *kubeapitest.Server) {
				for _, n := range []string{"gpu", "nic", generated, other} {
					srv.Create(device(n, "a"))
				}
				p := using("a")
				tc.change(p)
				srv.Create(p)
				r := start(t, srv, podsync.SourceConfig{})
				defer r.stop()
				r.want(t, "a")
				if got := names(r.resources()); got != tc.want {
					t.Errorf("claims %q, want %q", got, tc.want)
				}
				if n := r.count(); n != 1 {
					t.Errorf("%d states, want one that is complete", n)
				}
				if n := srv.Watches(kubeapi.ResourceClaims); n != 0 {
					t.Errorf("%d watches, which the node authorizer allows nobody", n)
				}
			})
		})
	}
}

// A pod waits two seconds at most for a claim that is not there, not allocated
// or not reserved for it, and what comes then is told within three.
func TestResourceClaimsThatAreNotReady(t *testing.T) {
	for _, tc := range []struct {
		name string
		is   *resourcev1.ResourceClaim
	}{
		{"absent", nil},
		{"not allocated", func() *resourcev1.ResourceClaim { c := device("gpu", "a"); c.Status.Allocation = nil; return c }()},
		{"reserved for another pod", device("gpu", "b")},
		{"reserved for a group", func() *resourcev1.ResourceClaim {
			c := device("gpu", "a")
			c.Status.ReservedFor[0].APIGroup = "scheduling.k8s.io"
			return c
		}()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *kubeapitest.Server) {
				r := start(t, srv, podsync.SourceConfig{})
				defer r.stop()
				r.want(t, "")
				if tc.is != nil {
					srv.Create(tc.is)
				}
				srv.Create(using("a", "gpu"))
				r.want(t, "")
				time.Sleep(2001 * time.Millisecond)
				r.want(t, "a")
				srv.Put(device("gpu", "a"))
				time.Sleep(3 * time.Second)
				got := r.resources()
				if len(got) != 1 || len(got[0].Status.ReservedFor) != 1 || got[0].Status.ReservedFor[0].UID != "a" || got[0].Status.Allocation == nil {
					t.Errorf("claims %v", got)
				}
				srv.ForgetRequests()
				time.Sleep(time.Hour)
				if n := srv.Count("get", kubeapi.ResourceClaims); n > 120 {
					t.Errorf("a claim that is ready was read %d times in an hour", n)
				}
			})
		})
	}
}

// Of two pods that share a claim, the second is not told of with what the claim
// was before it.
func TestASharedResourceClaim(t *testing.T) {
	bubble(t, func(t *testing.T, srv *kubeapitest.Server) {
		srv.Create(device("gpu", "a"))
		srv.Create(using("a", "gpu"))
		r := start(t, srv, podsync.SourceConfig{})
		defer r.stop()
		r.want(t, "a")
		time.Sleep(10 * time.Second)
		srv.Put(device("gpu", "a", "b"))
		srv.Create(using("b", "gpu"))
		r.want(t, "a b")
		if got := r.resources(); len(got) != 1 || len(got[0].Status.ReservedFor) != 2 {
			t.Errorf("claims %v", got)
		}
		srv.Remove(kubeapi.Pods, "ns", "a")
		srv.Remove(kubeapi.Pods, "ns", "b")
		r.want(t, "")
		srv.ForgetRequests()
		time.Sleep(time.Hour)
		if n := srv.Count("get", kubeapi.ResourceClaims); n != 0 {
			t.Errorf("asked %d times for nobody", n)
		}
	})
}

func TestResourceClaimsOffline(t *testing.T) {
	bubble(t, func(t *testing.T, srv *kubeapitest.Server) {
		srv.Create(device("gpu", "a"))
		srv.Create(using("a", "gpu"))
		m := &checkpointtest.Disk{}
		r := start(t, srv, podsync.SourceConfig{Memory: m, Seal: seal.Clear()})
		r.want(t, "a")
		r.stop()
		srv.Stop()
		r = start(t, srv, podsync.SourceConfig{Memory: m, Seal: seal.Clear()})
		time.Sleep(time.Second)
		r.want(t, "a")
		if got := r.resources(); len(got) != 1 || got[0].UID != "claim-gpu" || len(got[0].Status.ReservedFor) != 1 {
			t.Errorf("remembered %v", got)
		}
		srv.Remove(kubeapi.Pods, "ns", "a")
		srv.Remove(kubeapi.ResourceClaims, "ns", "gpu")
		srv.Start()
		time.Sleep(20 * time.Second)
		r.want(t, "")
		r.stop()
		if got := stored(m); strings.Contains(got, "resourceclaim") {
			t.Errorf("kept %s", got)
		}
	})
}

var _ podmgr.Source = (*podsync.Source)(nil)
