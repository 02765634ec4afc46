package localapi_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/localapi"
	"github.com/nodewright/nodewright/localapi/store"
)

// edit changes a file as an editor does.
func edit(t *testing.T, path, was, is string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), was) {
		t.Fatalf("%v: no %q in %s", err, was, text)
	}
	tmp := filepath.Join(filepath.Dir(path), ".edited")
	if err := os.WriteFile(tmp, []byte(strings.ReplaceAll(string(text), was, is)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp, path); err != nil {
		t.Fatal(err)
	}
}

// What a person does in the directory is seen by watchers.
func TestEdited(t *testing.T) {
	dir := t.TempDir()
	a := start(t, store.NewDir(dir))
	made := must[v1.ConfigMap](a, "POST", configMaps, asJSON, configMap("a", "one"))
	w := a.watch(configMaps + "?watch=1&resourceVersion=" + made.ResourceVersion)
	path := filepath.Join(dir, "configmap.default.a.yaml")
	edit(t, path, "one", "two")
	w.next("MODIFIED a")
	got := must[v1.ConfigMap](a, "GET", configMaps+"/a", "", nil)
	if got.Data["k"] != "two" || got.UID != made.UID {
		t.Errorf("%+v", got)
	}
	if f := got.ManagedFields; len(f) != 2 || f[1].Manager != "file" && f[0].Manager != "file" {
		t.Errorf("managed fields %+v", f)
	}
	// Broken, it stays as it was.
	edit(t, path, "kind: ConfigMap", "kind: [")
	edit(t, path, "kind: [", "kind: ConfigMap")
	edit(t, path, "two", "three")
	w.next("MODIFIED a")
	// A new file is a new object, and has the same UID for ever.
	hand := filepath.Join(dir, "mine.yaml")
	if err := os.WriteFile(hand, []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\ndata: {k: v}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := w.next("ADDED b")
	if text, err := os.ReadFile(hand); err != nil || !strings.Contains(string(text), string(b.UID)) {
		t.Errorf("%v: no UID %s in %s", err, b.UID, text)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	w.next("DELETED a")
	a.stop()
	again := start(t, store.NewDir(dir))
	if c := must[v1.ConfigMap](again, "GET", configMaps+"/b", "", nil); c.UID != b.UID {
		t.Errorf("UID %s after a restart, want %s", c.UID, b.UID)
	}
}

// A pod whose file says what no pod can become is another pod.
func TestEditedPod(t *testing.T) {
	dir := t.TempDir()
	a := start(t, store.NewDir(dir))
	p := must[v1.Pod](a, "POST", pods, asJSON, pod("web"))
	w := a.watch(pods + "?watch=1&resourceVersion=" + p.ResourceVersion)
	path := filepath.Join(dir, "pod.default.web.yaml")
	edit(t, path, "app:1", "app:2")
	if m := w.next("MODIFIED web"); m.UID != p.UID || m.Generation != 2 {
		t.Errorf("%+v", m)
	}
	edit(t, path, "restartPolicy: Always", "restartPolicy: Never")
	w.next("DELETED web")
	if m := w.next("ADDED web"); m.UID == p.UID || m.UID == "" {
		t.Errorf("UID %s", m.UID)
	}
}

// Everything but what is in memory alone outlasts a restart.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	a := start(t, store.NewDir(dir))
	p := must[v1.Pod](a, "PATCH", pods+"/web?fieldManager=me", "application/apply-patch+yaml", pod("web"))
	must[v1.Namespace](a, "POST", "/api/v1/namespaces", asJSON, `{"metadata":{"name":"team"}}`)
	must[v1.Node](a, "PATCH", "/api/v1/nodes/node-1", "application/merge-patch+json", `{"metadata":{"labels":{"x":"y"}},"spec":{"unschedulable":true}}`)
	done := p.DeepCopy()
	if err := a.Update(t.Context(), done, v1.PodStatus{Phase: v1.PodSucceeded, StartTime: &metav1.Time{Time: p.CreationTimestamp.Time}}); err != nil {
		t.Fatal(err)
	}
	long := configMap(strings.Repeat("n", 250), "1")
	must[v1.ConfigMap](a, "POST", configMaps, asJSON, long)
	a.stop()
	b := start(t, store.NewDir(dir))
	again := must[v1.Pod](b, "GET", pods+"/web", "", nil)
	if again.UID != p.UID || again.Status.Phase != v1.PodSucceeded || len(again.ManagedFields) != 1 || again.ManagedFields[0].Manager != "me" || again.Generation != p.Generation {
		t.Errorf("%+v", again)
	}
	if again.ResourceVersion <= p.ResourceVersion {
		t.Errorf("resource version %s after %s", again.ResourceVersion, p.ResourceVersion)
	}
	must[v1.Namespace](b, "GET", "/api/v1/namespaces/team", "", nil)
	must[v1.ConfigMap](b, "GET", configMaps+"/"+long.Name, "", nil)
	if n := must[v1.Node](b, "GET", "/api/v1/nodes/node-1", "", nil); !n.Spec.Unschedulable || n.Labels["x"] != "y" {
		t.Errorf("%+v", n)
	}
}

// A client adds a condition to the node, which stays beside the agent's own, also over a restart.
func TestConditionsOfTheNode(t *testing.T) {
	const node, status, strategic = "/api/v1/nodes/node-1", "/api/v1/nodes/node-1/status", "application/strategic-merge-patch+json"
	describe := func(c *localapi.Config) {
		c.Describe = func(_ context.Context, n *v1.Node) error {
			n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
			return nil
		}
	}
	conditions := func(n v1.Node) (out []string) {
		for _, c := range n.Status.Conditions {
			out = append(out, fmt.Sprintf("%s=%s", c.Type, c.Status))
		}
		return out
	}
	dir := t.TempDir()
	a := start(t, store.NewDir(dir), describe)
	must[v1.Node](a, "GET", node, "", nil)
	n := must[v1.Node](a, "PATCH", status, strategic, `{"status":{"conditions":[{"type":"Ready","status":"False"},{"type":"DiskFails","status":"True"}]}}`)
	want := []string{"Ready=True", "DiskFails=True"}
	if got := conditions(n); !slices.Equal(got, want) {
		t.Errorf("patched: %q, want %q", got, want)
	}
	a.refused("PATCH", status, strategic, `{"status":{"capacity":{"example.com/dongle":"4"}}}`, 422, metav1.StatusReasonInvalid, "only conditions")
	must[v1.Node](a, "PATCH", node, strategic, `{"metadata":{"labels":{"x":"y"}},"status":{"conditions":[{"type":"Other","status":"True"}]}}`)
	a.stop()
	b := start(t, store.NewDir(dir), describe)
	if got := conditions(must[v1.Node](b, "GET", node, "", nil)); !slices.Equal(got, want) {
		t.Errorf("after a restart: %q, want %q", got, want)
	}
	n = must[v1.Node](b, "PATCH", status, strategic, `{"status":{"conditions":[{"type":"DiskFails","$patch":"delete"}]}}`)
	if got := conditions(n); !slices.Equal(got, want[:1]) {
		t.Errorf("deleted: %q, want %q", got, want[:1])
	}
}

// A namespace that was ending when the agent ended goes on ending, and what is in it is
// not lost before its time.
func TestRestartWhileANamespaceEnds(t *testing.T) {
	dir := t.TempDir()
	a := start(t, store.NewDir(dir))
	must[v1.Pod](a, "POST", "/api/v1/namespaces/team/pods", asJSON, pod("web"))
	must[v1.Namespace](a, "DELETE", "/api/v1/namespaces/team", "", nil)
	a.stop()
	b := start(t, store.NewDir(dir))
	p := must[v1.Pod](b, "GET", "/api/v1/namespaces/team/pods/web", "", nil)
	if p.DeletionTimestamp == nil {
		t.Errorf("%+v", p.ObjectMeta)
	}
	if err := b.Delete(t.Context(), &p); err != nil {
		t.Fatal(err)
	}
	b.refused("GET", "/api/v1/namespaces/team", "", "", 404, metav1.StatusReasonNotFound, "")
}
