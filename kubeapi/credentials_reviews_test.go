package kubeapi_test

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

	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
)

func rig(t testing.TB) (*kubeapitest.Server, *kubeapi.Reviewer) {
	t.Helper()
	srv := kubeapitest.New()
	c, err := kubeapi.New(kubeapi.Config{REST: srv.Config()})
	if err != nil {
		t.Fatal(err)
	}
	r, err := kubeapi.NewReviewer(c.Once())
	if err != nil {
		t.Fatal(err)
	}
	return srv, r
}

func tokenOf(token string, audiences ...string) *authenticationv1.TokenReview {
	return &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences}}
}

func TestReviewToken(t *testing.T) {
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
		{name: "known, and a complaint", answer: authenticationv1.TokenReviewStatus{Authenticated: true, User: alice, Error: "odd"}, ok: true},
		{name: "for us", audiences: []string{"a", "b"}, answer: authenticationv1.TokenReviewStatus{Authenticated: true, User: alice, Audiences: []string{"b"}}, ok: true},
		{name: "for others", audiences: []string{"a"}, answer: authenticationv1.TokenReviewStatus{Authenticated: true, User: alice, Audiences: []string{"b"}}, err: "another audience"},
		{name: "for nobody", audiences: []string{"a"}, answer: authenticationv1.TokenReviewStatus{Authenticated: true, User: alice}, err: "another audience"},
		{name: "unknown, for others", audiences: []string{"a"}, answer: authenticationv1.TokenReviewStatus{Audiences: []string{"b"}}},
		{name: "for whomever", answer: authenticationv1.TokenReviewStatus{Authenticated: true, User: alice, Audiences: []string{"b"}}, ok: true},
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
			q := tokenOf("secret", tc.audiences...)
			got, err := r.ReviewToken(t.Context(), q)
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) || (got == nil) != (err != nil) {
				t.Fatalf("got %+v, error %v, want %q", got, err, tc.err)
			}
			if got != nil && (got.Status.Authenticated != tc.ok || tc.ok && got.Status.User.Username != "alice") {
				t.Errorf("got %+v, want %t", got.Status, tc.ok)
			}
			if q.Status.Authenticated || q.Status.Error != "" {
				t.Errorf("the question became %+v", q)
			}
		})
	}
}

func TestReviewAccess(t *testing.T) {
	for _, tc := range []struct {
		answer authorizationv1.SubjectAccessReviewStatus
		err    bool
	}{
		{answer: authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "r"}},
		{answer: authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "r"}},
		{answer: authorizationv1.SubjectAccessReviewStatus{Reason: "r"}},
		{answer: authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true, Reason: "r"}, err: true},
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
		got, err := r.ReviewAccess(t.Context(), &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "alice"}})
		if (err != nil) != tc.err || (got == nil) != tc.err || got != nil && got.Status != tc.answer {
			t.Errorf("%+v: got %+v, %v", tc.answer, got, err)
		}
	}
}

// What may pass is tried again after pauses that grow, what does not is not.
func TestRetries(t *testing.T) {
	for _, tc := range []struct {
		code, fails, tries int
		ok                 bool
		least, most        time.Duration
	}{
		{http.StatusInternalServerError, -1, 5, false, 4062 * time.Millisecond, 4876 * time.Millisecond},
		{http.StatusServiceUnavailable, -1, 5, false, 4062 * time.Millisecond, 4876 * time.Millisecond},
		{http.StatusServiceUnavailable, 2, 3, true, 1250 * time.Millisecond, 1500 * time.Millisecond},
		{http.StatusTooManyRequests, 1, 2, true, 500 * time.Millisecond, 600 * time.Millisecond},
		{http.StatusForbidden, -1, 1, false, 0, 0},
		{http.StatusUnauthorized, -1, 1, false, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			srv, r := rig(t)
			srv.Handle("tokenreviews", func(_ kubeapitest.Request, body runtime.Object) (runtime.Object, error) { return body, nil })
			srv.Fail(kubeapitest.Refuse(tc.fails, kubeapitest.Status(tc.code), kubeapitest.Any))
			began := time.Now()
			if _, err := r.ReviewToken(t.Context(), tokenOf("x")); (err == nil) != tc.ok {
				t.Errorf("%d: %v", tc.code, err)
			}
			if got := srv.Count("create", kubeapi.TokenReviews); got != tc.tries {
				t.Errorf("%d: %d tries, want %d", tc.code, got, tc.tries)
			}
			if d := time.Since(began); d < tc.least || d > tc.most {
				t.Errorf("%d: %d tries took %v, want %v to %v", tc.code, tc.tries, d, tc.least, tc.most)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		srv, r := rig(t)
		srv.Stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if got, err := r.ReviewAccess(ctx, &authorizationv1.SubjectAccessReview{}); got != nil || err == nil || time.Since(start) > time.Second {
			t.Errorf("got %+v, %v after %v", got, err, time.Since(start))
		}
	})
}

func TestNew(t *testing.T) {
	if _, err := kubeapi.NewReviewer(nil); err == nil {
		t.Error("no error")
	}
}

func ExampleReviewer_ReviewToken() {
	srv, r := rig(&testing.B{})
	srv.Handle("tokenreviews", func(_ kubeapitest.Request, body runtime.Object) (runtime.Object, error) {
		got := body.(*authenticationv1.TokenReview)
		got.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "alice"}}
		return got, nil
	})
	got, err := r.ReviewToken(context.Background(), tokenOf("secret"))
	fmt.Println(got.Status.User.Username, got.Status.Authenticated, err)
	// Output: alice true <nil>
}
