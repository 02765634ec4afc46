package localapi

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nodewright/nodewright/internal/manifestwords"
	"github.com/nodewright/nodewright/internal/podtext"
)

// elsewhere returns a kind that needs controllers of a cluster. A node has no such controllers,
// so lists of the kind are empty, and new objects are rejected; the error says what to use
// instead. The kind is in discovery nevertheless: kubectl has its own list of kinds, and fails
// to prune, or to describe a cluster, if one of them is missing.
func elsewhere(gvk schema.GroupVersionKind, resource, short string) computed {
	c := computed{
		GroupVersionKind: gvk, resource: resource, singular: strings.ToLower(gvk.Kind), namespaced: true, verbs: metav1.Verbs{"create", "list"},
		instead: manifestwords.Instead(gvk.Kind),
	}
	if short != "" {
		c.short = []string{short}
	}
	c.serve = func(s *Server, _ context.Context, w http.ResponseWriter, r *http.Request, q *query) error {
		return s.none(w, r, q, &c)
	}
	return c
}

// newElsewhere returns all kinds that need controllers of a cluster, including those in
// kubectl's own lists.
func newElsewhere() []computed {
	apps, batch := schema.GroupVersion{Group: "apps", Version: "v1"}, schema.GroupVersion{Group: "batch", Version: "v1"}
	return []computed{
		elsewhere(apps.WithKind("DaemonSet"), "daemonsets", "ds"),
		elsewhere(apps.WithKind("Deployment"), "deployments", "deploy"),
		elsewhere(apps.WithKind("ReplicaSet"), "replicasets", "rs"),
		elsewhere(apps.WithKind("StatefulSet"), "statefulsets", "sts"),
		elsewhere(batch.WithKind("CronJob"), "cronjobs", "cj"),
		elsewhere(batch.WithKind("Job"), "jobs", ""),
		elsewhere(coreV1.WithKind("Endpoints"), "endpoints", "ep"),
		elsewhere(coreV1.WithKind("ReplicationController"), "replicationcontrollers", "rc"),
		elsewhere(coreV1.WithKind("Service"), "services", "svc"),
		elsewhere(schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"}, "ingresses", "ing"),
	}
}

// none answers a request for a kind that needs a cluster.
func (s *Server) none(w http.ResponseWriter, r *http.Request, q *query, c *computed) error {
	var err error
	switch q.verb {
	case "get", "update", "delete":
		return generic(http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("%s %q not found: %s", c.resource, q.name, c.instead))
	case "list":
	default:
		return notAllowed(q.verb, c.instead)
	}
	if q.accept, err = s.codecs.accept(r); err != nil {
		return err
	}
	_, revision := s.set.Bounds()
	meta := metav1.ListMeta{ResourceVersion: strconv.FormatUint(revision, 10)}
	switch q.accept.as {
	case "Table":
		t, err := tableOf(&kind{columns: []podtext.Column{podtext.NameColumn, podtext.AgeColumn}}, nil, meta, metav1.IncludeNone, true, time.Now())
		if err != nil {
			return err
		}
		s.codecs.respond(w, q.accept, http.StatusOK, t)
	case "":
		respondJSON(w, map[string]any{
			"apiVersion": c.GroupVersion().String(), "kind": c.Kind + "List", "metadata": meta, "items": []any{},
		})
	default:
		list := &metav1.PartialObjectMetadataList{ListMeta: meta, Items: []metav1.PartialObjectMetadata{}}
		list.TypeMeta = metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: "PartialObjectMetadataList"}
		s.codecs.respond(w, q.accept, http.StatusOK, list)
	}
	return nil
}
