package podsync_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
	"github.com/nodewright/nodewright/kubeapi/podsync"
	"github.com/nodewright/nodewright/volumemgr/plugins"
)

func requester(t *testing.T, cfg *rest.Config) *podsync.TokenRequester {
	t.Helper()
	c, err := kubeapi.New(kubeapi.Config{REST: cfg})
	if err != nil {
		t.Fatal(err)
	}
	r, err := podsync.NewTokenRequester(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func spec() authenticationv1.TokenRequestSpec {
	hour := int64(3600)
	return authenticationv1.TokenRequestSpec{ExpirationSeconds: &hour, Audiences: []string{"vault"},
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "a", UID: "u"}}
}

func TestRequest(t *testing.T) {
	srv := kubeapitest.New()
	srv.Create(&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "default"}})
	var asked authenticationv1.TokenRequestSpec
	answer := "secret"
	srv.Handle("serviceaccounts/token", func(_ kubeapitest.Request, body runtime.Object) (runtime.Object, error) {
		req := body.(*authenticationv1.TokenRequest)
		asked = req.Spec
		req.Status = authenticationv1.TokenRequestStatus{Token: answer, ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Hour))}
		return req, nil
	})
	r := requester(t, srv.Config())
	got, err := r.Request(t.Context(), "ns", "default", spec())
	if err != nil || got.Value != "secret" || *got.Seconds != 3600 || time.Until(got.Expires) < 59*time.Minute {
		t.Errorf("got %+v (%v)", got, err)
	}
	if asked.BoundObjectRef == nil || asked.BoundObjectRef.UID != "u" || len(asked.Audiences) != 1 {
		t.Errorf("asked for %+v", asked)
	}
	answer = ""
	if _, err := r.Request(t.Context(), "ns", "default", spec()); err == nil {
		t.Error("no token is no error")
	}
}

func TestNoAccount(t *testing.T) {
	_, err := requester(t, kubeapitest.New().Config()).Request(t.Context(), "ns", "default", spec())
	if !apierrors.IsNotFound(err) || errors.Is(err, plugins.ErrNoTokenRequest) {
		t.Errorf("got %v", err)
	}
}

func TestUnsupported(t *testing.T) {
	old := httptest.NewServer(http.NotFoundHandler())
	defer old.Close()
	_, err := requester(t, &rest.Config{Host: old.URL}).Request(t.Context(), "ns", "default", spec())
	if !errors.Is(err, plugins.ErrNoTokenRequest) {
		t.Errorf("got %v", err)
	}
}
