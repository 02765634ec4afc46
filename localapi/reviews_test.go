package localapi_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/localapi"
	"github.com/nodewright/nodewright/localapi/store"
)

// Clients learn who they are and what they may do, and nobody learns it of others.
func TestReviews(t *testing.T) {
	a := start(t, &store.Memory{})
	root := a.url
	for group, can := range map[string]map[authorizationv1.ResourceAttributes]bool{
		localapi.GroupView: {
			{Verb: "list", Resource: "pods", Namespace: "default"}: true, {Verb: "get", Resource: "secrets", Namespace: "default"}: false,
			{Verb: "create", Resource: "pods", Namespace: "default"}: false, {Verb: "get", Group: "metrics.k8s.io", Version: "v1beta1", Resource: "nodes"}: true,
			{Verb: "get", Resource: "*"}: false, {Verb: "list", Resource: "*", Namespace: "default"}: false,
		},
		localapi.GroupEdit: {
			{Verb: "create", Resource: "pods", Namespace: "default"}: true, {Verb: "create", Resource: "pods", Subresource: "exec", Namespace: "default"}: true,
			{Verb: "patch", Resource: "nodes"}: false, {Verb: "get", Resource: "*", Namespace: "default"}: true, {Verb: "get", Resource: "*"}: false,
		},
		localapi.GroupAdmin: {{Verb: "patch", Resource: "nodes"}: true, {Verb: "*", Resource: "*"}: true, {Verb: "get", Resource: "nodes", Subresource: "proxy"}: true},
	} {
		srv := httptest.NewServer(a.Handler(func(*http.Request) (*localapi.User, error) {
			return &localapi.User{Name: "ann", Groups: []string{group}}, nil
		}))
		a.url = srv.URL
		who := must[authenticationv1.SelfSubjectReview](a, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", asJSON, "{}")
		if u := who.Status.UserInfo; u.Username != "ann" || !slices.Equal(u.Groups, []string{group}) {
			t.Errorf("%s is %+v", group, u)
		}
		for what, want := range can {
			review := must[authorizationv1.SelfSubjectAccessReview](a, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", asJSON,
				&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &what}})
			if review.Status.Allowed != want || review.Status.Reason != "" || review.Status.Denied {
				t.Errorf("%s, %+v: %+v", group, what, review.Status)
			}
		}
		rules := must[authorizationv1.SelfSubjectRulesReview](a, "POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", asJSON, `{"spec":{"namespace":"default"}}`)
		makes := slices.ContainsFunc(rules.Status.ResourceRules, func(r authorizationv1.ResourceRule) bool {
			return slices.Contains(r.Verbs, "create") && slices.Contains(r.Resources, "pods")
		})
		if makes != (group != localapi.GroupView) || rules.Status.Incomplete {
			t.Errorf("%s: %+v", group, rules.Status)
		}
		a.refused("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", asJSON, "{}", 404, metav1.StatusReasonNotFound, "")
		srv.Close()
	}
	a.url = root
	a.refused("GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "", "", 405, metav1.StatusReasonMethodNotAllowed, "create")
	a.refused("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", asJSON, "{", 400, metav1.StatusReasonBadRequest, "")
}
