package reviews_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nodewright/nodewright/kubeapi/apiclient"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
	"github.com/nodewright/nodewright/kubeapi/reviews"
)

func rig(t testing.TB) (*kubeapitest.Server, *reviews.Reviewer) {
	t.Helper()
	srv := kubeapitest.New()
	c, err := apiclient.New(apiclient.Config{REST: srv.Config()})
	if err != nil {
		t.Fatal(err)
	}
	r, err := reviews.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return srv, r
}

func TestReview(t *testing.T) {
	alice := authenticationv1.UserInfo{Username: "alice", Groups: []string{"g"}}
	for _, tc := range []struct {
		name      string
		audiences []string
		answer    authenticationv1.TokenReviewStatus
		ok        bool
		err       string
	}{
		{name: "known", answer: authenticationv1.TokenReviewStatus{Authenticated: true, User: alice}, ok: true},
		{name: "unknown", answer: authenticationv1.TokenReviewStatus{}},
		{name: "with a reason", answer: authenticationv1.TokenReviewStatus{Error: "expired"}, err: "expired"},
		{name: "for us", audiences: []string{"a", "b"}, answer: authenticationv1.TokenReviewStatus{Authenticated: true, User: alice, Audiences: []string{"b"}}, ok: true},
		{name: "for others", audiences: []string{"a"}, answer: authenticationv1.TokenReviewStatus{Authenticated: true, User: alice, Audiences: []string{"b"}}, err: "another audience"},
		{name: "for nobody", audiences: []string{"a"}, answer: authenticationv1.TokenReviewStatus{Authenticated: true, User: alice}, err: "another audience"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			srv, r := rig(t)
			srv.Handle("tokenreviews", func(_ kubeapitest.Request, body runtime.Object) (runtime.Object, error) {
				got := body.(*authenticationv1.TokenReview)
				if got.Spec.Token != "secret" || !slices.Equal(got.Spec.Audiences, tc.audiences) {
					t.Errorf("asked %+v", got.Spec)
				}
				got.Status = tc.answer
				return got, nil
			})
			user, ok, err := r.Review(t.Context(), "secret", tc.audiences)
			if ok != tc.ok || ok && user.Username != "alice" || !ok && user.Username != "" {
				t.Errorf("got %+v, %t", user, ok)
			}
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("error %v, want %q", err, tc.err)
			}
		})
	}
}

func TestAccess(t *testing.T) {
	for _, tc := range []struct {
		answer          authorizationv1.SubjectAccessReviewStatus
		allowed, denied bool
		err             bool
	}{
		{answer: authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "r"}, allowed: true},
		{answer: authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "r"}, denied: true},
		{answer: authorizationv1.SubjectAccessReviewStatus{Reason: "r"}},
		{answer: authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true, Reason: "r"}, denied: true, err: true},
	} {
		srv, r := rig(t)
		srv.Handle("subjectaccessreviews", func(_ kubeapitest.Request, body runtime.Object) (runtime.Object, error) {
			got := body.(*authorizationv1.SubjectAccessReview)
			if got.Spec.User != "alice" {
				t.Errorf("asked %+v", got.Spec)
			}
			got.Status = tc.answer
			return got, nil
		})
		allowed, denied, reason, err := r.Access(t.Context(), authorizationv1.SubjectAccessReviewSpec{User: "alice"})
		if allowed != tc.allowed || denied != tc.denied || reason != "r" || (err != nil) != tc.err {
			t.Errorf("%+v: got %t, %t, %q, %v", tc.answer, allowed, denied, reason, err)
		}
	}
}

func TestRetries(t *testing.T) {
	for code, want := range map[int]int{http.StatusInternalServerError: 5, http.StatusServiceUnavailable: 5, http.StatusForbidden: 1, http.StatusUnauthorized: 1} {
		synctest.Test(t, func(t *testing.T) {
			srv, r := rig(t)
			srv.Fail(kubeapitest.Refuse(-1, kubeapitest.Status(code), kubeapitest.Any))
			if _, ok, err := r.Review(t.Context(), "x", nil); ok || err == nil {
				t.Errorf("%d: %t, %v", code, ok, err)
			}
			if got := srv.Count("create", apiclient.TokenReviews); got != want {
				t.Errorf("%d: %d tries, want %d", code, got, want)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		srv, r := rig(t)
		srv.Stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if allowed, _, _, err := r.Access(ctx, authorizationv1.SubjectAccessReviewSpec{}); allowed || err == nil || time.Since(start) > time.Second {
			t.Errorf("got %t, %v after %v", allowed, err, time.Since(start))
		}
	})
}

func TestNew(t *testing.T) {
	if _, err := reviews.New(nil); err == nil {
		t.Error("no error")
	}
}

func ExampleReviewer_Review() {
	srv, r := rig(&testing.B{})
	srv.Handle("tokenreviews", func(_ kubeapitest.Request, body runtime.Object) (runtime.Object, error) {
		got := body.(*authenticationv1.TokenReview)
		got.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "alice"}}
		return got, nil
	})
	user, ok, err := r.Review(context.Background(), "token", nil)
	fmt.Println(user.Username, ok, err)
	// Output: alice true <nil>
}
