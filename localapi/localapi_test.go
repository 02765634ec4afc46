package localapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"

	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/localapi"
	"github.com/nodewright/nodewright/localapi/store"
)

// api is a server under test.
type api struct {
	*localapi.Server

	t    testing.TB
	url  string
	stop func()
}

// start runs a server over a store, and serves it to root.
func start(t testing.TB, s store.Store, change ...func(*localapi.Config)) *api {
	t.Helper()
	cfg := localapi.Config{Node: "node-1", Store: s, Version: version.Info{Major: "1", Minor: "36", GitVersion: "v1.36.2"}}
	for _, f := range change {
		f(&cfg)
	}
	srv, err := localapi.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	stop := testrun.Start(t, srv.Run)
	http := httptest.NewServer(srv.Handler(localapi.Root))
	a := &api{Server: srv, t: t, url: http.URL}
	a.stop = sync.OnceFunc(func() {
		stop()
		http.Close()
	})
	t.Cleanup(a.stop)
	deadline := time.Now().Add(2 * time.Minute)
	for code := 0; code != 200; {
		if time.Now().After(deadline) {
			t.Fatal("the server is not ready")
		}
		code, _ = a.do("GET", "/readyz", "", "")
	}
	return a
}

// do sends a request, and returns the code and the body of its answer.
func (a *api) do(method, path, media, body string, headers ...string) (int, string) {
	a.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, a.url+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	if media != "" {
		req.Header.Set("Content-Type", media)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// must is do of what succeeds, decoded.
func must[T any](a *api, method, path, media string, body any) (out T) {
	a.t.Helper()
	text, ok := body.(string)
	if !ok && body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			a.t.Fatal(err)
		}
		text = string(b)
	}
	code, answer := a.do(method, path, media, text)
	if code >= 300 {
		a.t.Fatalf("%s %s: %d %s", method, path, code, answer)
	}
	if err := json.Unmarshal([]byte(answer), &out); err != nil {
		a.t.Fatalf("%s %s: %v: %s", method, path, err, answer)
	}
	return out
}

// refused is do of what fails with a Status of that code and reason.
func (a *api) refused(method, path, media, body string, code int, reason metav1.StatusReason, says string) metav1.Status {
	a.t.Helper()
	got, answer := a.do(method, path, media, body)
	var s metav1.Status
	if err := json.Unmarshal([]byte(answer), &s); err != nil || s.Kind != "Status" || s.Status != "Failure" {
		a.t.Errorf("%s %s: %d %.300s, want a Status", method, path, got, answer)
		return s
	}
	if got != code || int(s.Code) != code || s.Reason != reason || !strings.Contains(s.Message, says) {
		a.t.Errorf("%s %s: %d %s %q, want %d %s with %q", method, path, got, s.Reason, s.Message, code, reason, says)
	}
	return s
}

const (
	configMaps = "/api/v1/namespaces/default/configmaps"
	pods       = "/api/v1/namespaces/default/pods"
	asJSON     = "application/json"
)

func configMap(name, value string) *v1.ConfigMap {
	return &v1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"k": value}}
}

func pod(name string) *v1.Pod {
	return &v1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "localhost/app:1"}}},
	}
}

func TestLifeOfAnObject(t *testing.T) {
	a := start(t, &store.Memory{})
	made := must[v1.ConfigMap](a, "POST", configMaps, asJSON, configMap("a", "1"))
	if made.UID == "" || made.ResourceVersion == "" || made.Namespace != "default" || made.CreationTimestamp.IsZero() || len(made.ManagedFields) != 1 {
		t.Errorf("made %+v", made)
	}
	a.refused("POST", configMaps, asJSON, `{"metadata":{"name":"a"}}`, 409, metav1.StatusReasonAlreadyExists, `configmaps "a" already exists`)
	made.Data["k"] = "2"
	changed := must[v1.ConfigMap](a, "PUT", configMaps+"/a", asJSON, made)
	if changed.Data["k"] != "2" || changed.UID != made.UID || changed.ResourceVersion == made.ResourceVersion {
		t.Errorf("changed %+v", changed)
	}
	old, _ := json.Marshal(made)
	a.refused("PUT", configMaps+"/a", asJSON, string(old), 409, metav1.StatusReasonConflict, "please apply your changes to the latest version")
	for media, patch := range map[string]string{
		"application/merge-patch+json":           `{"data":{"m":"1"}}`,
		"application/strategic-merge-patch+json": `{"data":{"s":"1"}}`,
		"application/json-patch+json":            `[{"op":"add","path":"/data/j","value":"1"}]`,
		"application/apply-patch+yaml":           "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  a: \"1\"\n",
	} {
		must[v1.ConfigMap](a, "PATCH", configMaps+"/a?fieldManager=test", media, patch)
	}
	got := must[v1.ConfigMap](a, "GET", configMaps+"/a", "", nil)
	if fmt.Sprint(got.Data) != "map[a:1 j:1 k:2 m:1 s:1]" {
		t.Errorf("after the patches %v", got.Data)
	}
	if s := must[metav1.Status](a, "DELETE", configMaps+"/a", "", nil); s.Status != "Success" || s.Details.UID != made.UID {
		t.Errorf("%+v", s)
	}
	a.refused("GET", configMaps+"/a", "", "", 404, metav1.StatusReasonNotFound, `configmaps "a" not found`)
}

func TestApply(t *testing.T) {
	a := start(t, &store.Memory{})
	apply := func(manager, data string) (int, string) {
		return a.do("PATCH", configMaps+"/a?fieldManager="+manager, "application/apply-patch+yaml", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":`+data+`}`)
	}
	if code, text := apply("one", `{"x":"1","y":"1"}`); code != 201 {
		t.Fatal(code, text)
	}
	code, text := apply("two", `{"x":"2"}`)
	if code != 409 || !strings.Contains(text, `Apply failed with 1 conflict: conflict with \"one\": .data.x`) || !strings.Contains(text, "FieldManagerConflict") {
		t.Errorf("%d %s", code, text)
	}
	if code, text := apply("two&force=true", `{"x":"2"}`); code != 200 {
		t.Errorf("%d %s", code, text)
	}
	if code, text := apply("one", `{}`); code != 200 || strings.Contains(text, `"y"`) || !strings.Contains(text, `"x":"2"`) {
		t.Errorf("what nobody applies any more is gone: %d %s", code, text)
	}
	a.refused("PATCH", configMaps+"/a", "application/apply-patch+yaml", `{"apiVersion":"v1","kind":"ConfigMap"}`, 400, metav1.StatusReasonBadRequest, "fieldManager")
	// The same again makes no new revision.
	before := must[v1.ConfigMap](a, "GET", configMaps+"/a", "", nil)
	apply("two", `{"x":"2"}`)
	if now := must[v1.ConfigMap](a, "GET", configMaps+"/a", "", nil); now.ResourceVersion != before.ResourceVersion {
		t.Errorf("resource version %s after %s, though nothing changed", now.ResourceVersion, before.ResourceVersion)
	}
}

func TestPods(t *testing.T) {
	a := start(t, &store.Memory{})
	p := must[v1.Pod](a, "POST", pods, asJSON, pod("web"))
	if p.Spec.NodeName != "node-1" || p.Status.Phase != v1.PodPending || p.Generation != 1 || p.Spec.RestartPolicy != v1.RestartPolicyAlways || p.Status.QOSClass != v1.PodQOSBestEffort {
		t.Errorf("%+v", p)
	}
	bad := pod("bad")
	bad.Spec.Containers[0].Image = ""
	text, _ := json.Marshal(bad)
	s := a.refused("POST", pods, asJSON, string(text), 422, metav1.StatusReasonInvalid, "spec.containers[0].image")
	if s.Details == nil || len(s.Details.Causes) != 1 || s.Details.Causes[0].Field != "spec.containers[0].image" {
		t.Errorf("causes %+v", s.Details)
	}
	const strategic = "application/strategic-merge-patch+json"
	a.refused("PATCH", pods+"/web", strategic, `{"spec":{"hostNetwork":true}}`, 422, metav1.StatusReasonInvalid, "pod updates may not change fields other than")
	if p := must[v1.Pod](a, "PATCH", pods+"/web", strategic, `{"spec":{"containers":[{"name":"c","image":"localhost/app:2"}]}}`); p.Generation != 2 || p.Spec.Containers[0].Image != "localhost/app:2" {
		t.Errorf("%+v", p)
	}
	if p := must[v1.Pod](a, "PATCH", pods+"/web/ephemeralcontainers", strategic, `{"spec":{"ephemeralContainers":[{"name":"dbg","image":"x:1","targetContainerName":"c"}]}}`); len(p.Spec.EphemeralContainers) != 1 {
		t.Errorf("%+v", p.Spec)
	}
	for media, bad := range map[string]string{
		strategic:                      `{"metadata":{"labels":"bad"}}`,
		"application/merge-patch+json": `{"metadata":{"labels":"bad"}}`,
		"application/json-patch+json":  `[{"op":"add","path":"/metadata/labels","value":"bad"}]`,
	} {
		said := "patch: Invalid value"
		if media == strategic {
			said = "cannot restore map from string"
		}
		a.refused("PATCH", pods+"/web", media, bad, 422, metav1.StatusReasonInvalid, said)
	}
	a.refused("PATCH", pods+"/web", strategic, `{"spec":{"nodeName":"other"}}`, 422, metav1.StatusReasonInvalid, "node-1")
	a.refused("POST", pods+"/web/binding", asJSON, `{}`, 405, metav1.StatusReasonMethodNotAllowed, "pods are bound to this node")
	p = must[v1.Pod](a, "DELETE", pods+"/web", asJSON, `{"gracePeriodSeconds":7}`)
	if p.DeletionTimestamp == nil || *p.DeletionGracePeriodSeconds != 7 {
		t.Errorf("%+v", p.ObjectMeta)
	}
	must[v1.Pod](a, "GET", pods+"/web", "", nil) // until the agent says that nothing is left
	if err := a.Delete(t.Context(), &p); err != nil {
		t.Fatal(err)
	}
	a.refused("GET", pods+"/web", "", "", 404, metav1.StatusReasonNotFound, "")
}

func TestRefused(t *testing.T) {
	a := start(t, &store.Memory{})
	a.refused("POST", "/apis/apps/v1/namespaces/default/deployments", asJSON, `{}`, 405, metav1.StatusReasonMethodNotAllowed, "apply the pod itself")
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		a.refused(method, "/apis/apps/v1/namespaces/default/deployments/x", asJSON, "{}", 404, metav1.StatusReasonNotFound, "apply the pod itself")
	}
	a.refused("GET", "/api/v1/namespaces/default/widgets", "", "", 404, metav1.StatusReasonNotFound, "the API of one node")
	a.refused("DELETE", "/api/v1/nodes/node-1", "", "", 405, metav1.StatusReasonMethodNotAllowed, "the API of one node")
	a.refused("POST", configMaps, asJSON, `{"metadata":{"name":"../../etc"}}`, 422, metav1.StatusReasonInvalid, "metadata.name")
	a.refused("POST", configMaps, asJSON, `{"metadata":{"name":"a","namespace":"b"}}`, 400, metav1.StatusReasonBadRequest, "namespace")
	a.refused("POST", configMaps+"?fieldValidation=Strict", asJSON, `{"metadata":{"name":"a"},"dada":{}}`, 400, metav1.StatusReasonBadRequest, `unknown field "dada"`)
	a.refused("POST", configMaps, asJSON, `{"metadata":{"name":"a"},"data":{"k":"`+strings.Repeat("x", 4<<20)+`"}}`, 413, metav1.StatusReasonRequestEntityTooLarge, "bytes")
	a.refused("POST", configMaps, asJSON, `{"metadata":{"name":"a"},"data":{"k":"`+strings.Repeat("x", 2<<20)+`"}}`, 422, metav1.StatusReasonInvalid, "data")
	a.refused("POST", configMaps, asJSON, strings.Repeat(`{"a":`, 200), 413, metav1.StatusReasonRequestEntityTooLarge, "levels")
	a.refused("POST", pods, asJSON, `{"metadata":{"name":"a"},"spec":{"containers":[`+strings.Repeat("{},", 900_000)+`{}]}}`, 413, metav1.StatusReasonRequestEntityTooLarge, "memory")
	a.refused("POST", configMaps, "text/plain", "a", 415, metav1.StatusReasonUnsupportedMediaType, "text/plain")
	a.refused("GET", configMaps+"?fieldSelector=data.x=1", "", "", 400, metav1.StatusReasonBadRequest, "fieldSelector")
	a.refused("GET", configMaps+"?labelSelector=!!", "", "", 400, metav1.StatusReasonBadRequest, "labelSelector")
	a.refused("GET", configMaps+"?continue=x", "", "", 400, metav1.StatusReasonBadRequest, "continue")
	a.refused("GET", configMaps+"?watch=1&resourceVersion=99999999999", "", "", 504, metav1.StatusReasonTimeout, "Too large")
	a.refused("DELETE", "/api/v1/namespaces/default", "", "", 403, metav1.StatusReasonForbidden, "may not be deleted")
	if code, text := a.do("POST", configMaps, asJSON, `{"metadata":{"name":"warned"},"dada":{}}`); code != 201 {
		t.Errorf("%d %s", code, text)
	}
}

func TestDryRun(t *testing.T) {
	a := start(t, &store.Memory{})
	must[v1.ConfigMap](a, "POST", configMaps+"?dryRun=All", asJSON, configMap("a", "1"))
	a.refused("GET", configMaps+"/a", "", "", 404, metav1.StatusReasonNotFound, "")
	must[v1.ConfigMap](a, "POST", configMaps, asJSON, configMap("a", "1"))
	must[v1.ConfigMap](a, "PATCH", configMaps+"/a?dryRun=All", "application/merge-patch+json", `{"data":{"k":"2"}}`)
	must[metav1.Status](a, "DELETE", configMaps+"/a?dryRun=All", "", nil)
	if c := must[v1.ConfigMap](a, "GET", configMaps+"/a", "", nil); c.Data["k"] != "1" {
		t.Errorf("%v", c.Data)
	}
}

func TestLists(t *testing.T) {
	a := start(t, &store.Memory{})
	for i := range 25 {
		c := configMap(fmt.Sprintf("c%02d", i), "1")
		c.Labels = map[string]string{"odd": fmt.Sprint(i % 2)}
		must[v1.ConfigMap](a, "POST", configMaps, asJSON, c)
	}
	page := must[v1.ConfigMapList](a, "GET", configMaps+"?limit=10", "", nil)
	if len(page.Items) != 10 || page.Continue == "" || *page.RemainingItemCount != 15 {
		t.Fatalf("%d items, %+v", len(page.Items), page.ListMeta)
	}
	// What comes and goes meanwhile is not in the rest of the list.
	must[metav1.Status](a, "DELETE", configMaps+"/c20", "", nil)
	must[v1.ConfigMap](a, "POST", configMaps, asJSON, configMap("c99", "1"))
	names := []string{}
	for token := page.Continue; token != ""; {
		next := must[v1.ConfigMapList](a, "GET", configMaps+"?limit=10&continue="+token, "", nil)
		if next.ResourceVersion != page.ResourceVersion {
			t.Errorf("revision %s, want %s", next.ResourceVersion, page.ResourceVersion)
		}
		for _, c := range next.Items {
			names = append(names, c.Name)
		}
		token = next.Continue
	}
	if len(names) != 15 || names[0] != "c10" || names[14] != "c24" {
		t.Errorf("%v", names)
	}
	if l := must[v1.ConfigMapList](a, "GET", configMaps+"?labelSelector=odd%3D1", "", nil); len(l.Items) != 12 {
		t.Errorf("%d are odd", len(l.Items))
	}
	if l := must[v1.ConfigMapList](a, "GET", "/api/v1/configmaps?fieldSelector=metadata.name%3Dc03", "", nil); len(l.Items) != 1 {
		t.Errorf("%d are named c03", len(l.Items))
	}
	if l := must[v1.ConfigMapList](a, "DELETE", configMaps+"?labelSelector=odd%3D1", "", nil); len(l.Items) != 12 {
		t.Errorf("%d deleted", len(l.Items))
	}
	if l := must[v1.ConfigMapList](a, "GET", configMaps, "", nil); len(l.Items) != 13 {
		t.Errorf("%d are left", len(l.Items))
	}
}

// events reads a watch.
type events struct {
	t    testing.TB
	body io.ReadCloser
	dec  *json.Decoder
}

func (a *api) watch(path string) *events {
	a.t.Helper()
	req, _ := http.NewRequestWithContext(a.t.Context(), http.MethodGet, a.url+path, nil)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		a.t.Fatalf("%s: %d %s", path, resp.StatusCode, text)
	}
	a.t.Cleanup(func() { _ = resp.Body.Close() })
	return &events{a.t, resp.Body, json.NewDecoder(resp.Body)}
}

func (e *events) next(want string) metav1.PartialObjectMetadata {
	e.t.Helper()
	var ev struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := e.dec.Decode(&ev); err != nil {
		e.t.Fatalf("want %s: %v", want, err)
	}
	var m metav1.PartialObjectMetadata
	_ = json.Unmarshal(ev.Object, &m)
	if got := strings.TrimSpace(ev.Type + " " + m.Name); got != want {
		e.t.Fatalf("event %s, want %s: %.300s", got, want, ev.Object)
	}
	return m
}

func TestWatch(t *testing.T) {
	a := start(t, &store.Memory{})
	one := must[v1.ConfigMap](a, "POST", configMaps, asJSON, configMap("a", "1"))
	w := a.watch(configMaps + "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
	w.next("ADDED a")
	if m := w.next("BOOKMARK"); m.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
		t.Errorf("%+v", m)
	}
	labelled := a.watch(configMaps + "?watch=1&labelSelector=x%3D1&resourceVersion=" + one.ResourceVersion)
	resumed := a.watch(configMaps + "?watch=1&resourceVersion=" + one.ResourceVersion)
	must[v1.ConfigMap](a, "PATCH", configMaps+"/a", "application/merge-patch+json", `{"metadata":{"labels":{"x":"1"}}}`)
	must[v1.ConfigMap](a, "PATCH", configMaps+"/a", "application/merge-patch+json", `{"metadata":{"labels":{"x":"2"}}}`)
	must[metav1.Status](a, "DELETE", configMaps+"/a", "", nil)
	must[v1.ConfigMap](a, "POST", "/api/v1/namespaces/other/configmaps", asJSON, configMap("b", "1"))
	must[v1.ConfigMap](a, "POST", configMaps, asJSON, configMap("c", "1"))
	for _, e := range []*events{w, resumed} {
		e.next("MODIFIED a")
		e.next("MODIFIED a")
		e.next("DELETED a")
		e.next("ADDED c")
	}
	labelled.next("ADDED a")
	labelled.next("DELETED a")
	a.stop()
	var rest bytes.Buffer
	if _, err := io.Copy(&rest, w.body); err != nil && rest.Len() > 0 {
		t.Errorf("%s, %v after the server's end", &rest, err)
	}
}

// A watch that wants more than is remembered is told to begin anew.
func TestWatchExpired(t *testing.T) {
	a := start(t, &store.Memory{}, func(c *localapi.Config) { c.MaxEvents = 100_000 })
	first := must[v1.ConfigMap](a, "POST", configMaps, asJSON, configMap("a", "1"))
	for i := range 5100 {
		a.Event(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: types.UID(fmt.Sprint(i))}}, "Normal", "R", "m")
	}
	a.refused("GET", configMaps+"?watch=1&resourceVersion="+first.ResourceVersion, "", "", 410, metav1.StatusReasonExpired, "too old resource version")
}

// A node at rest forgets what watches could resume from, as etcd does after five minutes;
// who has seen the last of it goes on.
func TestWatchAfterRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := localapi.New(localapi.Config{Node: "node-1", Store: &store.Memory{}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = srv.Run(ctx) }()
		synctest.Wait()
		do := func(method, path, body string) (int, string) {
			r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
			r.Header.Set("Content-Type", asJSON)
			w := httptest.NewRecorder()
			srv.Handler(localapi.Root).ServeHTTP(w, r)
			return w.Code, w.Body.String()
		}
		var revisions []string
		for _, name := range []string{"a", "b"} {
			var c v1.ConfigMap
			code, text := do("POST", configMaps, fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
			if err := json.Unmarshal([]byte(text), &c); err != nil || code != 201 {
				t.Fatal(code, text, err)
			}
			revisions = append(revisions, c.ResourceVersion)
			time.Sleep(3 * time.Minute)
		}
		watch := func(from string) string {
			_, text := do("GET", configMaps+"?watch=1&timeoutSeconds=1&resourceVersion="+from, "")
			return text
		}
		before, _ := strconv.Atoi(revisions[0])
		if text := watch(strconv.Itoa(before - 1)); !strings.Contains(text, `"code":410`) {
			t.Errorf("from before what is 6 min old: %s", text)
		}
		if text := watch(revisions[0]); !strings.Contains(text, `"name":"b"`) {
			t.Errorf("from before what is 3 min old: %s", text)
		}
		time.Sleep(3 * time.Minute)
		if text := watch(revisions[0]); !strings.Contains(text, `"code":410`) {
			t.Errorf("from before what is 6 min old: %s", text)
		}
		if text := watch(revisions[1]); strings.Contains(text, "410") {
			t.Errorf("from the last change: %s", text)
		}
		cancel()
		synctest.Wait()
	})
}

// More watches, requests and objects than there may be are refused, and may come again.
func TestBounds(t *testing.T) {
	a := start(t, &store.Memory{}, func(c *localapi.Config) { c.MaxWatches, c.MaxObjects = 3, 6 })
	for range 3 {
		a.watch(configMaps + "?watch=1")
	}
	a.refused("GET", configMaps+"?watch=1", "", "", 429, metav1.StatusReasonTooManyRequests, "watches")
	for i := 0; ; i++ {
		if i > 10 {
			t.Fatal("there is no bound")
		}
		if code, _ := a.do("POST", configMaps, asJSON, fmt.Sprintf(`{"metadata":{"name":"a%d"}}`, i)); code == 429 {
			break
		}
	}
	must[metav1.Status](a, "DELETE", configMaps+"/a0", "", nil)
	must[v1.ConfigMap](a, "POST", configMaps, asJSON, configMap("again", "1"))
}

func TestTables(t *testing.T) {
	a := start(t, &store.Memory{})
	must[v1.Pod](a, "POST", pods, asJSON, pod("web"))
	_, text := a.do("GET", pods, "", "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
	var table metav1.Table
	if err := json.Unmarshal([]byte(text), &table); err != nil || table.Kind != "Table" || len(table.Rows) != 1 {
		t.Fatalf("%v: %s", err, text)
	}
	var names []string
	for _, c := range table.ColumnDefinitions {
		names = append(names, c.Name)
	}
	if got := strings.Join(names, ","); got != "Name,Ready,Status,Restarts,Age,IP,Node,Nominated Node,Readiness Gates" {
		t.Errorf("columns %s", got)
	}
	if got := fmt.Sprint(table.Rows[0].Cells[:4]); got != "[web 0/1 Pending 0]" {
		t.Errorf("row %s", got)
	}
	if _, text := a.do("GET", pods+"/web", "", "", "Accept", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"); !strings.Contains(text, `"kind":"PartialObjectMetadata"`) || strings.Contains(text, "localhost/app") {
		t.Errorf("%s", text)
	}
}

func TestNamespaces(t *testing.T) {
	a := start(t, &store.Memory{})
	must[v1.ConfigMap](a, "POST", "/api/v1/namespaces/team/configmaps", asJSON, configMap("a", "1"))
	must[v1.Pod](a, "POST", "/api/v1/namespaces/team/pods", asJSON, pod("web"))
	if l := must[v1.NamespaceList](a, "GET", "/api/v1/namespaces", "", nil); len(l.Items) != 2 || l.Items[1].Name != "team" || l.Items[1].Status.Phase != v1.NamespaceActive {
		t.Errorf("%+v", l.Items)
	}
	if n := must[v1.Namespace](a, "DELETE", "/api/v1/namespaces/team", "", nil); n.Status.Phase != v1.NamespaceTerminating {
		t.Errorf("%+v", n)
	}
	a.refused("POST", "/api/v1/namespaces/team/configmaps", asJSON, `{"metadata":{"name":"b"}}`, 403, metav1.StatusReasonForbidden, "being terminated")
	p := must[v1.Pod](a, "GET", "/api/v1/namespaces/team/pods/web", "", nil)
	if p.DeletionTimestamp == nil {
		t.Errorf("%+v", p.ObjectMeta)
	}
	if err := a.Delete(t.Context(), &p); err != nil {
		t.Fatal(err)
	}
	a.refused("GET", "/api/v1/namespaces/team", "", "", 404, metav1.StatusReasonNotFound, "")
}

func TestCordon(t *testing.T) {
	a := start(t, &store.Memory{})
	const node, strategic = "/api/v1/nodes/node-1", "application/strategic-merge-patch+json"
	must[v1.Node](a, "PATCH", node, strategic, `{"spec":{"unschedulable":true}}`)
	p := must[v1.Pod](a, "POST", pods, asJSON, pod("web"))
	if p.Spec.NodeName != "" || len(p.Status.Conditions) != 1 || p.Status.Conditions[0].Reason != v1.PodReasonUnschedulable {
		t.Errorf("%+v", p)
	}
	if u := a.Unplaced(); len(u) != 1 || u[0].UID != p.UID {
		t.Errorf("unplaced: %+v", u)
	}
	// The node does not know the pod: its log is empty, and there is nothing to reach into.
	kubelet := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { t.Errorf("the node is asked for %s", r.URL) })
	b := start(t, &store.Memory{}, func(c *localapi.Config) { c.Kubelet = kubelet })
	must[v1.Node](b, "PATCH", node, strategic, `{"spec":{"unschedulable":true}}`)
	must[v1.Pod](b, "POST", pods, asJSON, pod("web"))
	if code, text := b.do("GET", pods+"/web/log", "", ""); code != 200 || text != "" {
		t.Errorf("log: %d %q", code, text)
	}
	b.refused("POST", pods+"/web/exec?command=true&stdout=1", "", "", 400, metav1.StatusReasonBadRequest, "does not have a host assigned")
	must[v1.Node](a, "PATCH", node, strategic, `{"spec":{"unschedulable":false}}`)
	if p := must[v1.Pod](a, "GET", pods+"/web", "", nil); p.Spec.NodeName != "node-1" || len(p.Status.Conditions) != 0 {
		t.Errorf("%+v", p)
	}
	if u := a.Unplaced(); len(u) != 0 {
		t.Errorf("unplaced: %+v", u)
	}
	a.refused("PATCH", node, strategic, `{"spec":{"podCIDR":"10.0.0.0/8"}}`, 422, metav1.StatusReasonInvalid, "unschedulable")
}

// Finalizers and scheduling gates hold a pod up until they are taken away.
func TestHeldPods(t *testing.T) {
	a := start(t, &store.Memory{})
	p := pod("held")
	p.Finalizers, p.Spec.SchedulingGates = []string{"example.com/keep"}, []v1.PodSchedulingGate{{Name: "example.com/wait"}}
	if p := must[v1.Pod](a, "POST", pods, asJSON, p); p.Spec.NodeName != "" || p.Status.Conditions[0].Reason != v1.PodReasonSchedulingGated {
		t.Errorf("%+v", p)
	}
	const merge = "application/merge-patch+json"
	if p := must[v1.Pod](a, "PATCH", pods+"/held", merge, `{"spec":{"schedulingGates":null}}`); p.Spec.NodeName != "node-1" {
		t.Errorf("%+v", p.Spec)
	}
	last := must[v1.Pod](a, "DELETE", pods+"/held", "", nil)
	if err := a.Delete(t.Context(), &last); err != nil {
		t.Fatal(err)
	}
	must[v1.Pod](a, "GET", pods+"/held", "", nil)
	must[v1.Pod](a, "PATCH", pods+"/held", merge, `{"metadata":{"finalizers":null}}`)
	a.refused("GET", pods+"/held", "", "", 404, metav1.StatusReasonNotFound, "")
}
