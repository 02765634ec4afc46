package localapi

import (
	"context"
	"net/http"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

var (
	authenticationV1 = authenticationv1.SchemeGroupVersion
	authorizationV1  = authorizationv1.SchemeGroupVersion
)

// addReviews adds the types of reviews to a scheme.
func addReviews(s *runtime.Scheme) {
	s.AddKnownTypes(authenticationV1, &authenticationv1.SelfSubjectReview{})
	s.AddKnownTypes(authorizationV1, &authorizationv1.SelfSubjectAccessReview{}, &authorizationv1.SelfSubjectRulesReview{})
}

// review decodes a review request.
func (s *Server) review(r *http.Request, q *query, into runtime.Object) (err error) {
	if q.accept, err = s.codecs.accept(r); err != nil {
		return err
	}
	q.accept.as = ""
	data, media, err := body(r)
	if err != nil {
		return err
	}
	_, err = s.codecs.decode(data, media, into)
	return err
}

// whoAmI answers kubectl auth whoami.
func (s *Server) whoAmI(_ context.Context, w http.ResponseWriter, r *http.Request, q *query) error {
	review := &authenticationv1.SelfSubjectReview{}
	if err := s.review(r, q, review); err != nil {
		return err
	}
	review.SetGroupVersionKind(authenticationV1.WithKind("SelfSubjectReview"))
	review.Status.UserInfo = authenticationv1.UserInfo{Username: q.user.Name, UID: q.user.UID, Groups: q.user.Groups}
	for name, values := range q.user.Extra {
		if review.Status.UserInfo.Extra == nil {
			review.Status.UserInfo.Extra = map[string]authenticationv1.ExtraValue{}
		}
		review.Status.UserInfo.Extra[name] = values
	}
	s.codecs.respond(w, q.accept, http.StatusCreated, review)
	return nil
}

// canI answers kubectl auth can-i, by the rules for a real request.
func (s *Server) canI(_ context.Context, w http.ResponseWriter, r *http.Request, q *query) error {
	review := &authorizationv1.SelfSubjectAccessReview{}
	if err := s.review(r, q, review); err != nil {
		return err
	}
	review.SetGroupVersionKind(authorizationV1.WithKind("SelfSubjectAccessReview"))
	asked := query{user: q.user}
	switch {
	case review.Spec.ResourceAttributes != nil:
		a := review.Spec.ResourceAttributes
		asked.verb, asked.group, asked.version, asked.resource, asked.subresource = a.Verb, a.Group, a.Version, a.Resource, a.Subresource
		asked.namespace, asked.name = a.Namespace, a.Name
	case review.Spec.NonResourceAttributes != nil:
		asked.verb = strings.ToLower(review.Spec.NonResourceAttributes.Verb)
	}
	// A denial has no reason, as with RBAC: kubectl then prints a plain "no", which scripts
	// compare.
	review.Status.Allowed = q.user.level() >= asked.needs()
	s.codecs.respond(w, q.accept, http.StatusCreated, review)
	return nil
}

// whatCanI answers kubectl auth can-i --list.
func (s *Server) whatCanI(_ context.Context, w http.ResponseWriter, r *http.Request, q *query) error {
	review := &authorizationv1.SelfSubjectRulesReview{}
	if err := s.review(r, q, review); err != nil {
		return err
	}
	review.SetGroupVersionKind(authorizationV1.WithKind("SelfSubjectRulesReview"))
	review.Status.ResourceRules = s.rules(q.user, review.Spec.Namespace)
	review.Status.NonResourceRules = []authorizationv1.NonResourceRule{}
	if q.user.level() >= viewer {
		review.Status.NonResourceRules = append(review.Status.NonResourceRules, authorizationv1.NonResourceRule{
			Verbs: []string{"get"}, NonResourceURLs: []string{"/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi/*", "/readyz", "/version"},
		})
	}
	s.codecs.respond(w, q.accept, http.StatusCreated, review)
	return nil
}

// rules returns what a user may do in a namespace, with one rule for each set of verbs.
func (s *Server) rules(u *User, namespace string) []authorizationv1.ResourceRule {
	rules := []authorizationv1.ResourceRule{}
	for _, gv := range s.versions() {
		for _, res := range s.resources(gv) {
			asked := query{user: u, group: gv.Group, version: gv.Version}
			asked.resource, asked.subresource, _ = strings.Cut(res.Name, "/")
			if res.Namespaced {
				asked.namespace = namespace
			}
			verbs := slices.DeleteFunc(slices.Clone(res.Verbs), func(verb string) bool {
				asked.verb = verb
				return u.level() < asked.needs()
			})
			if len(verbs) == 0 {
				continue
			}
			i := slices.IndexFunc(rules, func(r authorizationv1.ResourceRule) bool {
				return r.APIGroups[0] == gv.Group && slices.Equal(r.Verbs, verbs)
			})
			if i < 0 {
				rules = append(rules, authorizationv1.ResourceRule{Verbs: verbs, APIGroups: []string{gv.Group}})
				i = len(rules) - 1
			}
			rules[i].Resources = append(rules[i].Resources, res.Name)
		}
	}
	return rules
}
