package kubeapi_test

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
)

func hold(t *testing.T, srv *kubeapitest.Server, owner func() types.UID) (stop func()) {
	t.Helper()
	l, err := kubeapi.NewLease(kubeapi.LeaseConfig{Name: "edge-1", API: must(kubeapi.HeartbeatClient(srv.Config(), 0, nil)), Owner: owner})
	if err != nil {
		t.Fatal(err)
	}
	return testrun.Start(t, l.Run)
}

func lease(srv *kubeapitest.Server) *coordinationv1.Lease {
	l, _ := srv.Get(&coordinationv1.Lease{}, v1.NamespaceNodeLease, "edge-1").(*coordinationv1.Lease)
	return l
}

// TestLeaseOfANewNode: the lease belongs to the Node from the moment it is made.
func TestLeaseOfANewNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, begun := kubeapitest.New(), time.Now()
		stop := hold(t, srv, func() types.UID {
			if time.Since(begun) < 3*time.Second {
				return ""
			}
			return "u-1"
		})
		time.Sleep(5 * time.Second)
		if l := lease(srv); l == nil || len(l.OwnerReferences) != 1 || l.OwnerReferences[0].UID != "u-1" {
			t.Errorf("with a Node that is 2 seconds old: %+v", l)
		}
		if n := srv.Count("update", kubeapi.Leases); n != 0 {
			t.Errorf("%d updates until then", n)
		}
		stop()
	})
}

func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := kubeapitest.New()
		var mu sync.Mutex
		var uid types.UID
		stop := hold(t, srv, func() types.UID { mu.Lock(); defer mu.Unlock(); return uid })
		time.Sleep(9 * time.Second)
		if l := lease(srv); l != nil {
			t.Fatalf("made before the Node: %+v", l)
		}
		time.Sleep(3 * time.Second)
		l := lease(srv)
		if l == nil || *l.Spec.HolderIdentity != "edge-1" || *l.Spec.LeaseDurationSeconds != 40 || l.Spec.RenewTime == nil || len(l.OwnerReferences) != 0 {
			t.Fatalf("without a Node: %+v", l)
		}
		if srv.Count("get", kubeapi.Nodes) != 0 {
			t.Error("the Node is read for an owner")
		}
		mu.Lock()
		uid = "u-1"
		mu.Unlock()
		time.Sleep(11 * time.Second)
		l = lease(srv)
		if len(l.OwnerReferences) != 1 || l.OwnerReferences[0] != (metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "edge-1", UID: "u-1"}) {
			t.Errorf("with one: %+v", l.OwnerReferences)
		}
		srv.ForgetRequests()
		time.Sleep(10 * time.Minute)
		if updates, gets := srv.Count("update", kubeapi.Leases), srv.Count("get", kubeapi.Leases); updates < 57 || updates > 60 || gets != 0 {
			t.Errorf("%d updates, %d reads in 10 minutes", updates, gets)
		}
		stop()
		if lease(srv) == nil {
			t.Error("the lease went with the agent")
		}
	})
}

func TestLeaseThatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, holder, other := kubeapitest.New(), "somebody", metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "x", UID: "y"}
		srv.Create(&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: v1.NamespaceNodeLease, Name: "edge-1", Labels: map[string]string{"a": "b"}, OwnerReferences: []metav1.OwnerReference{other}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
		})
		hold(t, srv, func() types.UID { return "u-1" })
		synctest.Wait()
		l := lease(srv)
		if l.Labels["a"] != "b" || *l.Spec.HolderIdentity != "somebody" || l.Spec.RenewTime == nil || *l.Spec.LeaseDurationSeconds != 40 || l.OwnerReferences[0] != other {
			t.Errorf("got %+v", l)
		}
	})
}

func TestLeaseConflictsAndDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := kubeapitest.New()
		hold(t, srv, nil)
		synctest.Wait()
		l := lease(srv)
		l.Labels = map[string]string{"a": "b"}
		srv.Put(l) // another version
		time.Sleep(12 * time.Second)
		if got := lease(srv); got.Labels["a"] != "b" || !got.Spec.RenewTime.After(l.Spec.RenewTime.Time) {
			t.Errorf("after a conflict: %+v", got)
		}
		srv.Remove(kubeapi.Leases, v1.NamespaceNodeLease, "edge-1")
		time.Sleep(12 * time.Second)
		if lease(srv) == nil {
			t.Error("a lease that was deleted is not made again")
		}
		srv.Wipe()
		time.Sleep(12 * time.Second)
		if lease(srv) == nil {
			t.Error("not made again in a new store")
		}
	})
}

func TestLeaseInStorms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := kubeapitest.New()
		hold(t, srv, nil)
		time.Sleep(time.Minute)
		for _, code := range []int{http.StatusConflict, http.StatusInternalServerError, http.StatusUnauthorized} {
			srv.ForgetRequests()
			srv.Fail(kubeapitest.Refuse(-1, kubeapitest.Status(code), kubeapitest.Of("update", kubeapi.Leases)))
			time.Sleep(time.Minute)
			if got := srv.Count("update", kubeapi.Leases); got < 5 || got > 40 {
				t.Errorf("%d: %d tries in a minute", code, got)
			}
			srv.Heal()
			healed := time.Now()
			time.Sleep(17 * time.Second)
			if got := lease(srv).Spec.RenewTime; got.Time.Before(healed.Add(-time.Microsecond)) {
				t.Errorf("%d: renewed at %v, healed at %v", code, got, healed)
			}
		}
		srv.Stop()
		time.Sleep(2 * time.Hour)
		srv.Start()
		back := time.Now()
		time.Sleep(17 * time.Second)
		if lease(srv).Spec.RenewTime.Time.Before(back.Add(-time.Microsecond)) {
			t.Error("not renewed after two hours")
		}
	})
}
