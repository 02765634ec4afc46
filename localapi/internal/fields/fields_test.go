package fields_test

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/nodewright/nodewright/internal/schema"
	"github.com/nodewright/nodewright/localapi/internal/fields"
)

func manager(ignored ...fieldpath.Path) *fields.Manager {
	return fields.New(fields.Config{Type: schema.Merge(v1.Pod{}).Type("io.k8s.api.core.v1.Pod"), APIVersion: "v1", Ignored: ignored})
}

// pod is one as JSON makes it.
func pod(labels map[string]any, containers ...any) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "p", "labels": labels}, "spec": map[string]any{"containers": containers},
	}
}

func container(name, image string) map[string]any {
	return map[string]any{"name": name, "image": image}
}

func who(notes []metav1.ManagedFieldsEntry) string {
	var out []string
	for _, e := range notes {
		out = append(out, fmt.Sprintf("%s/%s", e.Manager, e.Operation))
	}
	return strings.Join(out, " ")
}

// Several programs have containers of their own in one list.
func TestApply(t *testing.T) {
	m := manager()
	empty := map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "p"}}
	live, notes, err := m.Apply(empty, pod(nil, container("a", "1")), nil, "one", false)
	if err != nil {
		t.Fatal(err)
	}
	live, notes, err = m.Apply(live, pod(nil, container("b", "1")), notes, "two", false)
	if err != nil || who(notes) != "one/Apply two/Apply" || len(live["spec"].(map[string]any)["containers"].([]any)) != 2 {
		t.Fatalf("%v, %s, %v", live, who(notes), err)
	}
	_, _, err = m.Apply(live, pod(nil, container("a", "2")), notes, "two", false)
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `conflict with "one": .spec.containers[name="a"].image`) {
		t.Errorf("%v", err)
	}
	live, notes, err = m.Apply(live, pod(nil), notes, "one", false)
	if err != nil || len(live["spec"].(map[string]any)["containers"].([]any)) != 1 {
		t.Errorf("%v, %s, %v", live, who(notes), err)
	}
	if _, _, err := m.Apply(live, map[string]any{"spec": "text"}, notes, "one", false); !apierrors.IsBadRequest(err) {
		t.Errorf("a spec that is a text: %v", err)
	}
}

// What was there before anybody took notes is not taken away by the first apply.
func TestBefore(t *testing.T) {
	live, notes, err := manager().Apply(pod(map[string]any{"old": "1"}), pod(map[string]any{"new": "1"}), nil, "me", false)
	if err != nil || len(live["metadata"].(map[string]any)["labels"].(map[string]any)) != 2 || who(notes) != "me/Apply before-first-apply/Update" {
		t.Errorf("%v, %s, %v", live, who(notes), err)
	}
}

// Updates of many programs are noted in a bounded number of entries, and what a writer
// does not write not at all.
func TestUpdate(t *testing.T) {
	m := manager(fieldpath.MakePathOrDie("status"))
	live := pod(map[string]any{}, container("a", "1"))
	notes, err := m.Update(nil, live, nil, "first")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		labels := map[string]any{}
		for j := range i + 1 {
			labels[fmt.Sprint("l", j)] = "1"
		}
		now := pod(labels, container("a", "1"))
		now["status"] = map[string]any{"phase": "Running"}
		if notes, err = m.Update(live, now, notes, fmt.Sprint("m", i)); err != nil {
			t.Fatal(err)
		}
		live = now
	}
	if len(notes) > 10 || !strings.Contains(who(notes), "ancient-changes/Update") {
		t.Errorf("%s", who(notes))
	}
	all := ""
	for _, e := range notes {
		all += e.FieldsV1.GetRawString()
	}
	for i := range 30 {
		if !strings.Contains(all, fmt.Sprintf(`"f:l%d"`, i)) {
			t.Errorf("nobody has label l%d: %s", i, all)
		}
	}
	if strings.Contains(all, "f:status") || strings.Contains(all, "f:name\"") && strings.Contains(all, `"f:kind"`) {
		t.Errorf("%s", all)
	}
	// Notes that nobody can read are none, and none are taken until somebody applies.
	bad := []metav1.ManagedFieldsEntry{{Manager: "x", Operation: "Update", APIVersion: "v1", FieldsV1: metav1.NewFieldsV1("{{{")}}
	if notes, err := m.Update(live, pod(nil, container("a", "2")), bad, "y"); err != nil || who(notes) != "" {
		t.Errorf("%s, %v", who(notes), err)
	}
}

// annotated is a pod with what kubectl apply writes down of it.
func annotated(last string, labels map[string]any, containers ...any) map[string]any {
	p := pod(labels, containers...)
	p["metadata"].(map[string]any)["annotations"] = map[string]any{v1.LastAppliedConfigAnnotation: last}
	return p
}

func lastApplied(o map[string]any) string {
	annotations, _ := o["metadata"].(map[string]any)["annotations"].(map[string]any)
	text, _ := annotations[v1.LastAppliedConfigAnnotation].(string)
	return text
}

// kubectl takes over what it has applied on the client's side, and nothing else, and may go back.
func TestApplyAfterKubectlApply(t *testing.T) {
	const last = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{"app":"a"}},"spec":{"containers":[{"name":"c","image":"1"}]}}`
	for _, tc := range []struct {
		name, last, manager string
		live, applied       map[string]any
		conflict            string
	}{
		{"taken over", last, "kubectl", pod(map[string]any{"app": "a"}, container("c", "1")), pod(map[string]any{"app": "a"}, container("c", "2")), ""},
		{"another manager", last, "two", pod(map[string]any{"app": "a"}, container("c", "1")), pod(map[string]any{"app": "a"}, container("c", "2")), "image"},
		{"changed by others", last, "kubectl", pod(map[string]any{"app": "b"}, container("c", "1")), pod(map[string]any{"app": "c"}, container("c", "2")), "labels.app"},
		{"another version", strings.Replace(last, `"v1"`, `"v2"`, 1), "kubectl", pod(nil, container("c", "1")), pod(nil, container("c", "2")), "image"},
		{"no JSON", "{", "kubectl", pod(nil, container("c", "1")), pod(nil, container("c", "2")), "image"},
		{"a field that is not there", strings.Replace(last, `"image"`, `"picture"`, 1), "kubectl", pod(nil, container("c", "1")), pod(nil, container("c", "2")), "image"},
	} {
		m := manager()
		live := annotated(tc.last, tc.live["metadata"].(map[string]any)["labels"].(map[string]any), tc.live["spec"].(map[string]any)["containers"].([]any)...)
		notes, err := m.Update(nil, live, nil, "kubectl-client-side-apply")
		if err != nil {
			t.Fatal(err)
		}
		out, notes, err := m.Apply(live, tc.applied, notes, tc.manager, false)
		if tc.conflict != "" {
			if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), tc.conflict) {
				t.Errorf("%s: %v, want a conflict over %s", tc.name, err, tc.conflict)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if text := lastApplied(out); !strings.Contains(text, `"image":"2"`) || strings.Contains(text, "last-applied") {
			t.Errorf("%s: %s is noted as applied last", tc.name, text)
		}
		// Another time, and then nothing too large is kept.
		large := pod(map[string]any{"app": strings.Repeat("a", 300<<10)}, container("c", "2"))
		if out, _, err = m.Apply(out, large, notes, tc.manager, false); err != nil || lastApplied(out) != "" {
			t.Errorf("%s: %d bytes are noted, %v", tc.name, len(lastApplied(out)), err)
		}
	}
}
