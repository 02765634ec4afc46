package fields_test

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/nodewright/nodewright/localapi/internal/fields"
	"github.com/nodewright/nodewright/localapi/internal/schema"
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
	var notes []metav1.ManagedFieldsEntry
	live := pod(map[string]any{}, container("a", "1"))
	for i := range 30 {
		labels := map[string]any{}
		for j := range i + 1 {
			labels[fmt.Sprint("l", j)] = "1"
		}
		now := pod(labels, container("a", "1"))
		now["status"] = map[string]any{"phase": "Running"}
		var err error
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
	// Notes that nobody can read are none.
	bad := []metav1.ManagedFieldsEntry{{Manager: "x", Operation: "Update", APIVersion: "v1", FieldsV1: metav1.NewFieldsV1("{{{")}}
	if notes, err := m.Update(live, pod(nil, container("a", "2")), bad, "y"); err != nil || !strings.Contains(who(notes), "y/Update") {
		t.Errorf("%s, %v", who(notes), err)
	}
}
