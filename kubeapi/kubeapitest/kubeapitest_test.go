package kubeapitest_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
)

func client(t *testing.T, cfg *rest.Config) *kubeapi.Client {
	t.Helper()
	c, err := kubeapi.New(kubeapi.Config{REST: cfg})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func pod(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: v1.PodSpec{
		NodeName: "edge-1", Containers: []v1.Container{{Name: "c", Image: "i"}}}}
}

var podKey = kubeapi.Key{Namespace: "ns", Name: "a"}

// With a socket and without, in protobuf and in JSON.
func TestCalls(t *testing.T) {
	for _, json := range []bool{false, true} {
		srv := kubeapitest.New()
		if json {
			srv.UseJSON()
		}
		behind := httptest.NewServer(srv)
		defer behind.Close()
		for _, cfg := range []*rest.Config{srv.Config(), {Host: behind.URL, QPS: -1}} {
			c, ctx := client(t, cfg), t.Context()
			p := pod("a")
			if err := c.Create(ctx, kubeapi.Pods, podKey, p, p); err != nil {
				t.Fatal(err)
			}
			if p.UID == "" || p.Generation != 1 || p.Status.Phase != v1.PodPending {
				t.Errorf("created %v", p.ObjectMeta)
			}
			if err := c.Create(ctx, kubeapi.Pods, podKey, pod("a"), nil); !apierrors.IsAlreadyExists(err) {
				t.Errorf("created again: %v", err)
			}
			w, err := c.Watch(ctx, kubeapi.Pods, "", metav1.ListOptions{ResourceVersion: p.ResourceVersion, FieldSelector: "spec.nodeName=edge-1"})
			if err != nil {
				t.Fatal(err)
			}
			var got v1.Pod
			patch := []byte(`{"metadata":{"uid":"` + string(p.UID) + `"},"spec":{"hostname":"no"},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
			if err := c.Patch(ctx, kubeapi.Pods, podKey, types.StrategicMergePatchType, patch, &got, "status"); err != nil {
				t.Fatal(err)
			}
			if got.Status.Phase != v1.PodRunning || got.Spec.Hostname != "" {
				t.Errorf("patched to %v", got)
			}
			if ev := <-w.ResultChan(); ev.Type != "MODIFIED" || ev.Object.(*v1.Pod).Status.Phase != v1.PodRunning {
				t.Errorf("saw %v", ev)
			}
			patch = []byte(`{"metadata":{"uid":"other"},"status":{"phase":"Failed"}}`)
			if err := c.Patch(ctx, kubeapi.Pods, podKey, types.StrategicMergePatchType, patch, nil, "status"); !apierrors.IsConflict(err) {
				t.Errorf("patched another pod: %v", err)
			}
			var list v1.PodList
			if err := c.List(ctx, kubeapi.Pods, "", metav1.ListOptions{FieldSelector: "spec.nodeName=edge-2"}, &list); err != nil || len(list.Items) != 0 {
				t.Errorf("another node has %d (%v)", len(list.Items), err)
			}
			if err := c.Delete(ctx, kubeapi.Pods, podKey, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if ev := <-w.ResultChan(); ev.Type != "MODIFIED" || ev.Object.(*v1.Pod).DeletionTimestamp == nil {
				t.Errorf("saw %v", ev)
			}
			var none int64
			uid := types.UID("other")
			opts := metav1.DeleteOptions{GracePeriodSeconds: &none, Preconditions: &metav1.Preconditions{UID: &uid}}
			if err := c.Delete(ctx, kubeapi.Pods, podKey, opts); !apierrors.IsConflict(err) {
				t.Errorf("deleted another pod: %v", err)
			}
			opts.Preconditions = nil
			if err := c.Delete(ctx, kubeapi.Pods, podKey, opts); err != nil {
				t.Fatal(err)
			}
			if ev := <-w.ResultChan(); ev.Type != "DELETED" {
				t.Errorf("saw %v", ev)
			}
			w.Stop()
			if err := c.Get(ctx, kubeapi.Pods, podKey, &got); !apierrors.IsNotFound(err) {
				t.Errorf("got %v", err)
			}
		}
	}
}

func TestAWatchBeginsWithAList(t *testing.T) {
	srv := kubeapitest.New()
	srv.Create(pod("a"))
	yes := true
	w, err := client(t, srv.Config()).Watch(t.Context(), kubeapi.Pods, "", metav1.ListOptions{
		SendInitialEvents: &yes, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if ev := <-w.ResultChan(); ev.Type != "ADDED" || ev.Object.(*v1.Pod).Name != "a" {
		t.Errorf("saw %v", ev)
	}
	if ev := <-w.ResultChan(); ev.Type != "BOOKMARK" || ev.Object.(*v1.Pod).Annotations[metav1.InitialEventsAnnotationKey] != "true" {
		t.Errorf("saw %v", ev)
	}
}

// All that may become of a call, without a socket and in virtual time.
func TestFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := kubeapitest.New()
		srv.Create(pod("a"))
		c := client(t, srv.Config())
		get := func() error { return c.Get(t.Context(), kubeapi.Pods, podKey, &v1.Pod{}) }

		srv.Fail(kubeapitest.Slow(2*time.Second, kubeapitest.Any))
		if begun := time.Now(); get() != nil || time.Since(begun) != 2*time.Second {
			t.Errorf("a slow call took %v", time.Since(begun))
		}
		srv.Heal()
		srv.Fail(kubeapitest.Refuse(1, kubeapitest.Status(http.StatusForbidden), kubeapitest.Of("get", kubeapi.Pods)))
		if err := get(); !apierrors.IsForbidden(err) {
			t.Errorf("got %v", err)
		}
		if err := get(); err != nil {
			t.Errorf("got %v", err)
		}
		srv.Heal()
		srv.Hang()
		if begun := time.Now(); get() == nil || time.Since(begun) != 30*time.Second {
			t.Errorf("a hanging call took %v", time.Since(begun))
		}
		srv.Heal()
		watch := func(from string) (int, error) {
			w, err := c.Watch(t.Context(), kubeapi.Pods, "", metav1.ListOptions{ResourceVersion: from, AllowWatchBookmarks: true})
			if err != nil {
				return 0, err
			}
			n := 0
			for range w.ResultChan() {
				n++
			}
			return n, nil
		}
		go func() { time.Sleep(3*time.Minute + time.Second); srv.Stop() }()
		if n, err := watch("101"); n != 3 || err != nil {
			t.Errorf("%d bookmarks in three minutes (%v)", n, err)
		}
		if get() == nil {
			t.Error("a stopped server answers")
		}
		srv.Start()
		go func() { time.Sleep(time.Second); srv.Silence(); time.Sleep(time.Hour); srv.EndWatches() }()
		if n, err := watch("101"); n != 0 || err != nil {
			t.Errorf("%d bookmarks of a silent watch (%v)", n, err)
		}
		srv.Heal()
		srv.Compact()
		if _, err := watch("101"); !apierrors.IsResourceExpired(err) {
			t.Errorf("got %v", err)
		}
		srv.Wipe()
		if err := get(); !apierrors.IsNotFound(err) {
			t.Errorf("got %v", err)
		}
		if _, err := watch("200"); !apierrors.IsTimeout(err) {
			t.Errorf("got %v", err)
		}
		if n := srv.Count("get", kubeapi.Pods); n != 6 {
			t.Errorf("%d calls", n)
		}
	})
}

func TestTokens(t *testing.T) {
	srv := kubeapitest.New()
	c := client(t, srv.Config())
	key := kubeapi.Key{Namespace: "ns", Name: "default"}
	ask := func() (*authenticationv1.TokenRequest, error) {
		r := &authenticationv1.TokenRequest{}
		return r, c.Create(t.Context(), kubeapi.ServiceAccounts, key, r, r, "token")
	}
	if _, err := ask(); !apierrors.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
	srv.Create(&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "default"}})
	if r, err := ask(); err != nil || r.Status.Token == "" || time.Until(r.Status.ExpirationTimestamp.Time) < 59*time.Minute {
		t.Errorf("got %v (%v)", r, err)
	}
}

// How strategic merge patches merge is tested in internal/patch.
func TestPatches(t *testing.T) {
	const status = `{"reason":"r","conditions":[{"type":"a","status":"True"},{"type":"b","status":"True"}],"containerStatuses":[{"name":"x"}]}`
	for _, tc := range []struct {
		as          types.PatchType
		patch, want string
	}{
		{types.StrategicMergePatchType, `{"status":{"reason":null,"conditions":[{"type":"a","status":"False"},{"type":"b","$patch":"delete"},{"type":"c","status":"True"}],"containerStatuses":[{"name":"y"}]}}`, " a=False c=True y"},
		{types.MergePatchType, `{"status":{"reason":null,"conditions":[{"type":"c","status":"True"}],"containerStatuses":null}}`, " c=True"},
		{types.JSONPatchType, `[{"op":"replace","path":"/status/conditions/0/status","value":"False"},{"op":"remove","path":"/status/reason"}]`, " a=False b=True x"},
		{types.JSONPatchType, `[{"op":"remove","path":"/status/none"}]`, "BadRequest"},
		{types.ApplyYAMLPatchType, `{}`, "BadRequest"},
	} {
		srv := kubeapitest.New()
		p := pod("a")
		if err := json.Unmarshal([]byte(status), &p.Status); err != nil {
			t.Fatal(err)
		}
		srv.Create(p)
		var got v1.Pod
		err := client(t, srv.Config()).Patch(t.Context(), kubeapi.Pods, podKey, tc.as, []byte(tc.patch), &got, "status")
		says := string(apierrors.ReasonForError(err)) + got.Status.Reason
		for _, c := range got.Status.Conditions {
			says += " " + string(c.Type) + "=" + string(c.Status)
		}
		for _, c := range got.Status.ContainerStatuses {
			says += " " + c.Name
		}
		if says != tc.want {
			t.Errorf("%s: got %q, want %q", tc.patch, says, tc.want)
		}
	}
}
