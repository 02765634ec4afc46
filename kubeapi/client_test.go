package kubeapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/nodewright/nodewright/kubeapi"
)

// server answers in JSON and remembers what it was asked.
type server struct {
	*httptest.Server
	asked []string
	body  string
	reply func(w http.ResponseWriter)
}

func newServer(t *testing.T) (*server, *kubeapi.Client) {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		s.body = string(b)
		s.asked = append(s.asked, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+r.Header.Get("Content-Type")))
		s.reply(w)
	}))
	t.Cleanup(s.Close)
	c, err := kubeapi.New(kubeapi.Config{REST: &rest.Config{Host: s.URL, QPS: -1}, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

func object(obj any) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(obj)
	}
}

func TestCalls(t *testing.T) {
	const protobuf = " application/vnd.kubernetes.protobuf"
	ctx := t.Context()
	node := &v1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "edge-1", UID: "u"}}
	for _, tc := range []struct {
		name, want string
		reply      any
		call       func(*kubeapi.Client) error
	}{
		{"get", "GET /api/v1/nodes/edge-1", node, func(c *kubeapi.Client) error {
			var got v1.Node
			err := c.Get(ctx, kubeapi.Nodes, kubeapi.Key{Name: "edge-1"}, &got)
			if got.UID != "u" {
				t.Errorf("got %v", got)
			}
			return err
		}},
		{"get from the cache", "GET /api/v1/nodes/edge-1?resourceVersion=0", node, func(c *kubeapi.Client) error {
			return c.Get(ctx, kubeapi.Nodes, kubeapi.Key{Name: "edge-1"}, &v1.Node{}, metav1.GetOptions{ResourceVersion: "0"})
		}},
		{"list", "GET /api/v1/pods?fieldSelector=spec.nodeName%3Dedge-1", v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}, func(c *kubeapi.Client) error {
			return c.List(ctx, kubeapi.Pods, "", metav1.ListOptions{FieldSelector: "spec.nodeName=edge-1"}, &v1.PodList{})
		}},
		{"create in another group", "POST /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases" + protobuf,
			coordinationv1.Lease{TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}}, func(c *kubeapi.Client) error {
				l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}}
				return c.Create(ctx, kubeapi.Leases, kubeapi.Key{Namespace: "kube-node-lease", Name: "edge-1"}, l, l)
			}},
		{"a token", "POST /api/v1/namespaces/ns/serviceaccounts/default/token" + protobuf,
			authenticationv1.TokenRequest{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"}}, func(c *kubeapi.Client) error {
				r := &authenticationv1.TokenRequest{}
				return c.Create(ctx, kubeapi.ServiceAccounts, kubeapi.Key{Namespace: "ns", Name: "default"}, r, r, "token")
			}},
		{"patch a status", "PATCH /api/v1/namespaces/ns/pods/a/status application/strategic-merge-patch+json", v1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}, func(c *kubeapi.Client) error {
			return c.Patch(ctx, kubeapi.Pods, kubeapi.Key{Namespace: "ns", Name: "a"}, types.StrategicMergePatchType, []byte(`{}`), nil, "status")
		}},
		{"update", "PUT /api/v1/nodes/edge-1" + protobuf, node, func(c *kubeapi.Client) error {
			return c.Update(ctx, kubeapi.Nodes, kubeapi.Key{Name: "edge-1"}, node.DeepCopy(), &v1.Node{})
		}},
		{"delete", "DELETE /api/v1/namespaces/ns/pods/a" + protobuf, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Success"}, func(c *kubeapi.Client) error {
			uid := types.UID("u")
			return c.Delete(ctx, kubeapi.Pods, kubeapi.Key{Namespace: "ns", Name: "a"}, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, c := newServer(t)
			s.reply = object(tc.reply)
			if err := tc.call(c); err != nil {
				t.Fatal(err)
			}
			if len(s.asked) != 1 || s.asked[0] != tc.want {
				t.Errorf("asked %q, want %q", s.asked, tc.want)
			}
		})
	}
}

// Who has a bound of its own neither waits for the client's budget nor uses it up.
func TestUnlimitedTakesNothingOfTheBudget(t *testing.T) {
	s, _ := newServer(t)
	s.reply = object(&v1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}})
	c, err := kubeapi.New(kubeapi.Config{REST: &rest.Config{Host: s.URL, QPS: 0.001, Burst: 1}})
	if err != nil {
		t.Fatal(err)
	}
	free := c.Once().Unlimited()
	get := func(c *kubeapi.Client) error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		return c.Get(ctx, kubeapi.Pods, kubeapi.Key{Namespace: "ns", Name: "p"}, &v1.Pod{})
	}
	for i, c := range []*kubeapi.Client{free, free, c, free} {
		if err := get(c); err != nil {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if err := get(c); err == nil {
		t.Error("a second call of the bounded client did not wait")
	}
	if len(s.asked) != 4 {
		t.Errorf("the server was asked %d times, want 4: %q", len(s.asked), s.asked)
	}
}

func TestErrorsAreTheServers(t *testing.T) {
	s, c := newServer(t)
	s.reply = func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(apierrors.NewNotFound(v1.Resource("pods"), "a").ErrStatus)
	}
	err := c.Get(t.Context(), kubeapi.Pods, kubeapi.Key{Namespace: "ns", Name: "a"}, &v1.Pod{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
}

// A node's credentials must not go where an answer points to.
func TestRedirectsAreNotFollowed(t *testing.T) {
	followed := false
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed = true }))
	defer elsewhere.Close()
	s, c := newServer(t)
	s.reply = func(w http.ResponseWriter) {
		w.Header().Set("Location", elsewhere.URL)
		w.WriteHeader(http.StatusTemporaryRedirect)
	}
	err := c.Get(t.Context(), kubeapi.Nodes, kubeapi.Key{Name: "edge-1"}, &v1.Node{})
	if err == nil || !strings.Contains(err.Error(), "redirect") || followed {
		t.Errorf("got %v, followed %t", err, followed)
	}
}

func TestACallEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 10 * time.Second
		c, err := kubeapi.New(kubeapi.Config{REST: &rest.Config{Host: "http://server", Transport: hangs{}}, Timeout: limit})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		err = c.Get(t.Context(), kubeapi.Nodes, kubeapi.Key{Name: "edge-1"}, &v1.Node{})
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != limit {
			t.Errorf("got %v after %v", err, took)
		}
	})
}

// hangs is a server that does not answer.
type hangs struct{}

func (hangs) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestCloseConnectionsEndsAWatch(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer srv.Close()
	c, err := kubeapi.New(kubeapi.Config{REST: &rest.Config{Host: srv.URL}})
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.Watch(t.Context(), kubeapi.Pods, "", metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	c.CloseConnections()
	if ev, ok := <-w.ResultChan(); ok && ev.Type != "ERROR" {
		t.Errorf("got %v", ev)
	}
}

func TestConfig(t *testing.T) {
	for want, cfg := range map[string]kubeapi.Config{
		"REST: required": {},
		"Timeout: -1s":   {REST: &rest.Config{}, Timeout: -time.Second},
		"invalid URL":    {REST: &rest.Config{Host: "http://%"}},
	} {
		if _, err := kubeapi.New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v", want, err)
		}
	}
}
