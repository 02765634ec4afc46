package localapi

import (
	"context"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// computed is a resource whose objects are not stored but computed for each answer.
type computed struct {
	schema.GroupVersionKind

	resource, singular string
	namespaced         bool
	verbs              metav1.Verbs
	short              []string
	// instead says what to use instead, for a kind that this API does not have.
	instead string
	serve   func(s *Server, ctx context.Context, w http.ResponseWriter, r *http.Request, q *query) error
}

// newComputed returns the computed resources, in the order of discovery.
func newComputed() []computed {
	read, create := metav1.Verbs{"get", "list"}, metav1.Verbs{"create"}
	return append([]computed{
		{GroupVersionKind: metricsV1.WithKind("NodeMetrics"), resource: "nodes", verbs: read, serve: (*Server).nodeMetrics},
		{GroupVersionKind: metricsV1.WithKind("PodMetrics"), resource: "pods", namespaced: true, verbs: read, serve: (*Server).podMetrics},
		review("SelfSubjectReview", authenticationV1, create, (*Server).whoAmI),
		review("SelfSubjectAccessReview", authorizationV1, create, (*Server).canI),
		review("SelfSubjectRulesReview", authorizationV1, create, (*Server).whatCanI),
	}, newElsewhere()...)
}

func review(kind string, gv schema.GroupVersion, verbs metav1.Verbs, serve func(*Server, context.Context, http.ResponseWriter, *http.Request, *query) error) computed {
	singular := strings.ToLower(kind)
	return computed{GroupVersionKind: gv.WithKind(kind), resource: singular + "s", singular: singular, verbs: verbs, serve: serve}
}

func (s *Server) computedOf(q *query) *computed {
	for i := range s.computed {
		if c := &s.computed[i]; c.Group == q.group && c.Version == q.version && c.resource == q.resource {
			return c
		}
	}
	return nil
}

// compute answers a request for a computed resource.
func (s *Server) compute(w http.ResponseWriter, r *http.Request, c *computed, q *query) error {
	if c.instead == "" && !contains(c.verbs, q.verb) || q.subresource != "" || q.verb == "create" && q.name != "" {
		return notAllowed(q.verb, c.resource+" of "+c.Group+" are computed for each answer; want one of the verbs "+strings.Join(c.verbs, ", "))
	}
	if c.namespaced && q.namespace == "" && (q.name != "" || q.verb == "create") {
		return apierrors.NewBadRequest(c.resource + " are namespaced; the path has no namespace")
	}
	return s.work(w, r, q, func(ctx context.Context) error { return c.serve(s, ctx, w, r, q) })
}
