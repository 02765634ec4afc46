package localapi_test

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/localapi/store"
)

// Kinds that are elsewhere in a cluster are in discovery, and there are none of them: clients
// that go through a list of kinds get to its end.
func TestKindsElsewhere(t *testing.T) {
	a := start(t, &store.Memory{})
	for _, c := range []struct{ group, name, short string }{
		// What kubectl prunes, and describes a cluster by.
		{"/api/v1", "endpoints", "ep"}, {"/api/v1", "replicationcontrollers", "rc"}, {"/api/v1", "services", "svc"},
		{"/apis/batch/v1", "jobs", ""}, {"/apis/batch/v1", "cronjobs", "cj"}, {"/apis/networking.k8s.io/v1", "ingresses", "ing"},
		{"/apis/apps/v1", "daemonsets", "ds"}, {"/apis/apps/v1", "deployments", "deploy"}, {"/apis/apps/v1", "replicasets", "rs"}, {"/apis/apps/v1", "statefulsets", "sts"},
	} {
		list := must[metav1.APIResourceList](a, "GET", c.group, "", nil)
		i := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == c.name })
		if i < 0 {
			t.Errorf("%s has no %s", c.group, c.name)
			continue
		}
		if r := list.APIResources[i]; !slices.Contains(r.Verbs, "list") || !r.Namespaced || c.short != "" && !slices.Contains(r.ShortNames, c.short) {
			t.Errorf("%+v", r)
		}
		for _, path := range []string{c.group + "/" + c.name, c.group + "/namespaces/default/" + c.name + "?labelSelector=a%3Db"} {
			none := must[struct {
				Kind     string
				Items    []any
				Metadata metav1.ListMeta
			}](a, "GET", path, "", nil)
			if none.Kind != list.APIResources[i].Kind+"List" || none.Items == nil || len(none.Items) != 0 || none.Metadata.ResourceVersion == "" {
				t.Errorf("%s: %+v", path, none)
			}
			for as, kind := range map[string]string{"Table": "Table", "PartialObjectMetadataList": "PartialObjectMetadataList"} {
				if code, text := a.do("GET", path, "", "", "Accept", asJSON+";as="+as+";g=meta.k8s.io;v=v1"); code != 200 || !strings.Contains(text, `"kind":"`+kind+`"`) {
					t.Errorf("%s as %s: %d %s", path, as, code, text)
				}
			}
		}
		a.refused("GET", c.group+"/namespaces/default/"+c.name+"/x", "", "", 404, metav1.StatusReasonNotFound, "apply the pod itself")
		a.refused("POST", c.group+"/namespaces/default/"+c.name, asJSON, "{}", 405, metav1.StatusReasonMethodNotAllowed, "apply the pod itself")
		a.refused("GET", c.group+"/"+c.name+"?watch=1", "", "", 405, metav1.StatusReasonMethodNotAllowed, "apply the pod itself")
	}
	pods := must[metav1.APIResourceList](a, "GET", "/api/v1", "", nil).APIResources
	if i := slices.IndexFunc(pods, func(r metav1.APIResource) bool { return r.Name == "pods" }); pods[i].StorageVersionHash != "xPOwRZ+Yhw8=" {
		t.Errorf("%+v", pods[i])
	}
}

// kubectl asks for OpenAPI v2 about kinds that v3 does not have.
func TestOldOpenAPI(t *testing.T) {
	a := start(t, &store.Memory{})
	doc := must[map[string]any](a, "GET", "/openapi/v2", "", nil)
	if doc["swagger"] != "2.0" || doc["definitions"] == nil || doc["paths"] == nil {
		t.Errorf("%v", doc)
	}
	code, text := a.do("GET", "/openapi/v2", "", "", "Accept", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
	if code != 200 || text != "\n\x032.0" {
		t.Errorf("%d %q", code, text)
	}
}
