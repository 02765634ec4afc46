package localapi_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/localapi/store"
)

// Neither the agent nor a client has a pod run again that has come to its end.
func TestTerminalPhase(t *testing.T) {
	a := start(t, &store.Memory{})
	p := must[v1.Pod](a, "POST", pods, asJSON, pod("web"))
	if err := a.Update(t.Context(), &p, v1.PodStatus{Phase: v1.PodSucceeded}); err != nil {
		t.Fatal(err)
	}
	if err := a.Update(t.Context(), &p, v1.PodStatus{Phase: v1.PodRunning}); err == nil {
		t.Error("the agent may report that a pod runs that has ended")
	}
	a.refused("PATCH", pods+"/web/status", "application/merge-patch+json", `{"status":{"phase":"Running"}}`, 422, metav1.StatusReasonInvalid, "status.phase")
	if p := must[v1.Pod](a, "GET", pods+"/web", "", nil); p.Status.Phase != v1.PodSucceeded {
		t.Errorf("phase %s", p.Status.Phase)
	}
}

// A file that a person edits wrongly changes nothing for anyone.
func TestEditedWrongly(t *testing.T) {
	dir := t.TempDir()
	a := start(t, store.NewDir(dir))
	p := must[v1.Pod](a, "POST", pods, asJSON, pod("web"))
	w := a.watch(pods + "?watch=1&resourceVersion=" + p.ResourceVersion)
	path := filepath.Join(dir, "pod.default.web.yaml")
	edit(t, path, "image: localhost/app:1", "image: \"\"\n    command: [other]")
	marks := a.watch(configMaps + "?watch=1")
	mark := func(name string) { // it is read with the edit or after it
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "+name+"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		marks.next("ADDED " + name)
	}
	mark("x-marker")
	// Nor does one that becomes an object that cannot be.
	edit(t, path, "kind: Pod", "kind: Secret\ntype: kubernetes.io/ssh-auth")
	mark("x-marker2")
	if now := must[v1.Pod](a, "GET", pods+"/web", "", nil); now.UID != p.UID || now.ResourceVersion != p.ResourceVersion {
		t.Errorf("%+v", now.ObjectMeta)
	}
	must[v1.Pod](a, "POST", pods, asJSON, pod("next"))
	w.next("ADDED next")
}

// A namespace ends with the last object in it, whatever is said of that.
func TestNamespaceEnds(t *testing.T) {
	a := start(t, &store.Memory{})
	p := must[v1.Pod](a, "POST", "/api/v1/namespaces/team/pods", asJSON, pod("web"))
	a.Event(&p, v1.EventTypeNormal, "Started", "started")
	must[v1.Namespace](a, "DELETE", "/api/v1/namespaces/team", "", nil)
	a.Event(&p, v1.EventTypeNormal, "Killing", "is ending")
	a.refused("POST", "/api/v1/namespaces/team/events", asJSON, `{"metadata":{"name":"e"},"involvedObject":{"namespace":"team"}}`, 403, metav1.StatusReasonForbidden, "being terminated")
	s := a.refused("POST", "/api/v1/namespaces/team/configmaps", asJSON, `{"metadata":{"name":"c"}}`, 403, metav1.StatusReasonForbidden, "being terminated")
	if s.Details == nil || len(s.Details.Causes) != 1 || s.Details.Causes[0].Type != v1.NamespaceTerminatingCause {
		t.Errorf("causes of %+v", s.Details)
	}
	if err := a.Delete(t.Context(), &p); err != nil {
		t.Fatal(err)
	}
	a.refused("GET", "/api/v1/namespaces/team", "", "", 404, metav1.StatusReasonNotFound, "")
	a.Event(&p, v1.EventTypeNormal, "Killing", "has ended")
	a.refused("POST", "/api/v1/namespaces/team/events", asJSON, `{"metadata":{"name":"e"},"involvedObject":{"namespace":"team"}}`, 404, metav1.StatusReasonNotFound, "team")
	if l := must[v1.EventList](a, "GET", "/api/v1/namespaces/team/events", "", nil); len(l.Items) > 0 {
		t.Errorf("events %+v in a namespace that is not there", l.Items)
	}
	// One that holds nothing but events.
	q := must[v1.Pod](a, "POST", "/api/v1/namespaces/team/pods", asJSON, pod("web"))
	a.Event(&q, v1.EventTypeNormal, "Started", "started")
	must[v1.Pod](a, "DELETE", "/api/v1/namespaces/team/pods/web?gracePeriodSeconds=0", "", nil)
	must[metav1.Status](a, "DELETE", "/api/v1/namespaces/team", "", nil)
	a.refused("GET", "/api/v1/namespaces/team", "", "", 404, metav1.StatusReasonNotFound, "")
}

// Somebody who makes an object again that is still ending is told so.
func TestMadeWhileItEnds(t *testing.T) {
	a := start(t, &store.Memory{})
	must[v1.ConfigMap](a, "POST", configMaps, asJSON, `{"metadata":{"name":"a","finalizers":["example.com/wait"]}}`)
	must[v1.ConfigMap](a, "DELETE", configMaps+"/a", "", nil)
	a.refused("POST", configMaps, asJSON, `{"metadata":{"name":"a"}}`, 409, metav1.StatusReasonAlreadyExists, "object is being deleted")
	const merge = "application/merge-patch+json"
	a.refused("PATCH", configMaps+"/a", merge, `{"data":{"k":"v"}}`, 422, metav1.StatusReasonInvalid, "being deleted")
	a.refused("PATCH", configMaps+"/a", merge, `{"metadata":{"finalizers":["example.com/wait","example.com/more"]}}`, 422, metav1.StatusReasonInvalid, "no new finalizers")
	must[v1.ConfigMap](a, "PATCH", configMaps+"/a", merge, `{"metadata":{"labels":{"a":"b"},"finalizers":null}}`)
	a.refused("GET", configMaps+"/a", "", "", 404, metav1.StatusReasonNotFound, "")
}

// A namespace that nobody has made is the same one after a restart.
func TestNamespacesOutlastARestart(t *testing.T) {
	dir := t.TempDir()
	a := start(t, store.NewDir(dir))
	must[v1.ConfigMap](a, "POST", "/api/v1/namespaces/team/configmaps", asJSON, configMap("a", "1"))
	uids := map[string]string{}
	for _, name := range []string{"default", "team"} {
		uids[name] = string(must[v1.Namespace](a, "GET", "/api/v1/namespaces/"+name, "", nil).UID)
	}
	until(t, "both have a file", func() bool {
		_, err := os.Stat(filepath.Join(dir, "namespace.default.yaml"))
		_, also := os.Stat(filepath.Join(dir, "namespace.team.yaml"))
		return err == nil && also == nil
	})
	a.stop()
	b := start(t, store.NewDir(dir))
	for name, uid := range uids {
		if n := must[v1.Namespace](b, "GET", "/api/v1/namespaces/"+name, "", nil); string(n.UID) != uid || n.Status.Phase != v1.NamespaceActive {
			t.Errorf("namespace %s has UID %s after a restart; want %s", name, n.UID, uid)
		}
	}
}

// A patch that changes nothing makes no revision, also of a pod that waits for its node; what others have said of it stays.
func TestNoOpPatch(t *testing.T) {
	a := start(t, &store.Memory{})
	const merge = "application/merge-patch+json"
	must[v1.Node](a, "PATCH", "/api/v1/nodes/node-1", merge, `{"spec":{"unschedulable":true}}`)
	must[v1.Pod](a, "POST", pods, asJSON, pod("web"))
	must[v1.Pod](a, "PATCH", pods+"/web/status", "application/strategic-merge-patch+json", `{"status":{"conditions":[{"type":"example.com/mine","status":"True"}]}}`)
	before := must[v1.Pod](a, "GET", pods+"/web", "", nil)
	if len(before.Status.Conditions) != 2 {
		t.Fatalf("conditions %+v", before.Status.Conditions)
	}
	time.Sleep(time.Until(before.CreationTimestamp.Add(1100 * time.Millisecond))) // times have no parts of seconds
	if now := must[v1.Pod](a, "PATCH", pods+"/web", merge, `{}`); now.ResourceVersion != before.ResourceVersion {
		t.Errorf("resource version %s after %s", now.ResourceVersion, before.ResourceVersion)
	}
	if now := must[v1.Pod](a, "PATCH", pods+"/web", merge, `{"metadata":{"labels":{"a":"b"}}}`); !equality.Semantic.DeepEqual(now.Status, before.Status) {
		t.Errorf("status %+v; want %+v", now.Status, before.Status)
	}
	must[v1.Node](a, "PATCH", "/api/v1/nodes/node-1", merge, `{"spec":{"unschedulable":false}}`)
	now := must[v1.Pod](a, "GET", pods+"/web", "", nil)
	if c := now.Status.Conditions; now.Spec.NodeName != "node-1" || len(c) != 1 || c[0].Type != "example.com/mine" {
		t.Errorf("on the node: %+v, %+v", now.Spec.NodeName, c)
	}
}

// Each part of a pod is changed where it belongs: what resize and ephemeralcontainers check, nobody goes around.
func TestWaysToChangeAPod(t *testing.T) {
	a := start(t, &store.Memory{})
	const strategic, merge = "application/strategic-merge-patch+json", "application/merge-patch+json"
	must[v1.Pod](a, "POST", pods, asJSON, pod("web"))
	burst := pod("burst")
	burst.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("10m")}
	must[v1.Pod](a, "POST", pods, asJSON, burst)
	const (
		requests = `{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"20m"}}}]}}`
		image    = `{"spec":{"containers":[{"name":"c","image":"localhost/app:2"}]}}`
		debug    = `{"spec":{"ephemeralContainers":[{"name":"e","image":"localhost/app:1"}]}}`
		none     = `{"spec":{"ephemeralContainers":null}}`
	)
	says := "pod updates may not change fields other than"
	a.refused("PATCH", pods+"/burst", strategic, requests, 422, metav1.StatusReasonInvalid, says)
	a.refused("PATCH", pods+"/web", merge, debug, 422, metav1.StatusReasonInvalid, says)
	must[v1.Pod](a, "PATCH", pods+"/burst/resize", strategic, requests)
	a.refused("PATCH", pods+"/web/resize", strategic, requests, 422, metav1.StatusReasonInvalid, "QOS Class may not change")
	must[v1.Pod](a, "PATCH", pods+"/web/ephemeralcontainers", strategic, debug)
	a.refused("PATCH", pods+"/web", merge, none, 422, metav1.StatusReasonInvalid, says)
	must[v1.Pod](a, "PATCH", pods+"/web", strategic, image)
	if p := must[v1.Pod](a, "PATCH", pods+"/web/resize", strategic, image); p.Spec.Containers[0].Image != "localhost/app:2" || p.Generation != 3 {
		t.Errorf("%+v", p)
	}
}

// What a name is made of is checked, and leaves room for a name that is a label.
func TestGenerateName(t *testing.T) {
	a := start(t, &store.Memory{})
	p := must[v1.Pod](a, "POST", pods, asJSON, `{"metadata":{"generateName":"`+strings.Repeat("n", 100)+`"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	if len(p.Name) != 63 {
		t.Errorf("name %s has %d bytes", p.Name, len(p.Name))
	}
	a.refused("POST", configMaps, asJSON, `{"metadata":{"generateName":"No_Name-"}}`, 422, metav1.StatusReasonInvalid, "metadata.generateName")
	must[v1.ConfigMap](a, "POST", configMaps, asJSON, `{"metadata":{"generateName":"name-"}}`)
	must[v1.ConfigMap](a, "POST", configMaps, asJSON, `{"metadata":{"name":"own","generateName":"name"}}`)
}

// An eviction is of the pod that its path names.
func TestEvictionOfAnother(t *testing.T) {
	a := start(t, &store.Memory{})
	must[v1.Pod](a, "POST", pods, asJSON, pod("web"))
	for _, m := range []string{`{"name":"other"}`, `{}`, `{"name":"web","namespace":"other"}`} {
		a.refused("POST", pods+"/web/eviction", asJSON, `{"apiVersion":"policy/v1","kind":"Eviction","metadata":`+m+`}`, 400, metav1.StatusReasonBadRequest, "of the path")
	}
	const eviction = `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"web"},"deleteOptions":`
	a.refused("POST", pods+"/web/eviction", asJSON, eviction+`{"preconditions":{"uid":""}}}`, 409, metav1.StatusReasonConflict, "Precondition failed")
	a.refused("POST", pods+"/web/eviction?dryRun=All", asJSON, eviction+`{"dryRun":["All","All"]}}`, 400, metav1.StatusReasonBadRequest, "dryRun")
	if p := must[v1.Pod](a, "GET", pods+"/web", "", nil); p.DeletionTimestamp != nil {
		t.Errorf("%+v", p.ObjectMeta)
	}
	must[metav1.Status](a, "POST", pods+"/web/eviction", asJSON, `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"web","namespace":"default"}}`)
}
