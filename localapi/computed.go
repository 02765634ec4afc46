package localapi

import (
	"context"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// computed is a resource whose objects are not kept but made for each answer.
type computed struct {
	schema.GroupVersionKind

	resource, singular string
	namespaced         bool
	verbs              metav1.Verbs
	serve              func(s *Server, ctx context.Context, w http.ResponseWriter, r *http.Request, q *query) error
}

// newComputed lists them, in the order of discovery.
func newComputed() []computed {
	return []computed{
		{metricsV1.WithKind("NodeMetrics"), "nodes", "", false, metav1.Verbs{"get", "list"}, (*Server).nodeMetrics},
		{metricsV1.WithKind("PodMetrics"), "pods", "", true, metav1.Verbs{"get", "list"}, (*Server).podMetrics},
		{authenticationV1.WithKind("SelfSubjectReview"), "selfsubjectreviews", "selfsubjectreview", false, metav1.Verbs{"create"}, (*Server).whoAmI},
		{authorizationV1.WithKind("SelfSubjectAccessReview"), "selfsubjectaccessreviews", "selfsubjectaccessreview", false, metav1.Verbs{"create"}, (*Server).canI},
		{authorizationV1.WithKind("SelfSubjectRulesReview"), "selfsubjectrulesreviews", "selfsubjectrulesreview", false, metav1.Verbs{"create"}, (*Server).whatCanI},
	}
}

func (s *Server) computedOf(q *query) *computed {
	for i := range s.computed {
		if c := &s.computed[i]; c.Group == q.group && c.Version == q.version && c.resource == q.resource {
			return c
		}
	}
	return nil
}

// compute answers what is asked of a computed resource.
func (s *Server) compute(w http.ResponseWriter, r *http.Request, c *computed, q *query) error {
	if !contains(c.verbs, q.verb) || q.subresource != "" || q.verb == "create" && q.name != "" {
		return notAllowed(q.verb, c.resource+" of "+c.Group+" are made for each answer; they have the verbs "+strings.Join(c.verbs, ", "))
	}
	if c.namespaced && q.name != "" && q.namespace == "" {
		return apierrors.NewBadRequest(c.resource + " are in namespaces; the path names none")
	}
	if !s.requests.enter() {
		return tooMany("there are too many requests at a time")
	}
	defer s.requests.leave()
	ctx, cancel := context.WithTimeout(r.Context(), s.cfg.Timeout)
	defer cancel()
	rc := http.NewResponseController(w)
	at := time.Now().Add(s.cfg.Timeout + s.cfg.ReaderPatience)
	_, _ = rc.SetReadDeadline(at), rc.SetWriteDeadline(at) // a recorder has none
	return c.serve(s, ctx, w, r, q)
}
