package parity

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
)

// step is one change of a ConfigMap.
type step struct {
	manager     string
	apply       bool // on the server's side
	force       bool
	annotate    bool // as kubectl apply does on the client's side
	data, label map[string]any
}

func (s step) String() string {
	return fmt.Sprintf("%s apply=%v force=%v annotate=%v %v %v", s.manager, s.apply, s.force, s.annotate, s.data, s.label)
}

func randomStep(r *rand.Rand) step {
	some := func() map[string]any {
		out := map[string]any{}
		for _, k := range []string{"a", "b", "c"} {
			if r.IntN(2) == 0 {
				out[k] = fmt.Sprint(r.IntN(3))
			}
		}
		return out
	}
	s := step{data: some(), label: some(), force: r.IntN(4) == 0}
	switch r.IntN(6) {
	case 0, 1:
		s.manager, s.apply = "kubectl", true
	case 2:
		s.manager, s.annotate, s.force = "kubectl-client-side-apply", true, false
	case 3:
		s.manager, s.apply = "one", true
	case 4:
		s.manager, s.force = "two", false
	default:
		s.manager, s.apply = "two", true
	}
	return s
}

// object is what a step sends; annotation is that of the live object.
func (s step) object(name, annotation string) map[string]any {
	meta := map[string]any{"name": name, "namespace": "default"}
	o := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}
	if len(s.label) > 0 {
		meta["labels"] = s.label
	}
	if len(s.data) > 0 {
		o["data"] = s.data
	}
	if s.annotate {
		text, _ := json.Marshal(o)
		annotation = string(text)
	}
	if annotation != "" && !s.apply {
		meta["annotations"] = map[string]any{v1.LastAppliedConfigAnnotation: annotation}
	}
	return o
}

// outcome is what a step led to: a conflict, or the object.
type outcome struct {
	Refused     string
	Data        map[string]any
	Labels      map[string]any
	Annotations map[string]any
	Managers    []string
}

func outcomeOf(o map[string]any, err error) outcome {
	if err != nil {
		return outcome{Refused: err.Error()}
	}
	meta := o["metadata"].(map[string]any)
	out := outcome{}
	if m, _ := o["data"].(map[string]any); len(m) > 0 {
		out.Data = m
	}
	if m, _ := meta["labels"].(map[string]any); len(m) > 0 {
		out.Labels = m
	}
	if m, _ := meta["annotations"].(map[string]any); len(m) > 0 {
		out.Annotations = m
	}
	notes, _ := meta["managedFields"].([]any)
	for _, n := range notes {
		n := n.(map[string]any)
		fields, _ := json.Marshal(n["fieldsV1"])
		out.Managers = append(out.Managers, fmt.Sprint(n["manager"], " ", n["operation"], " ", string(fields)))
	}
	slices.Sort(out.Managers) // times decide their order
	return out
}

// Who has which fields, and who has a conflict with whom, is as with apimachinery's own field
// manager, which API servers have: on the server's side, and between kubectl's two ways to
// apply.
func TestFieldManagers(t *testing.T) {
	l := newLab(t)
	converter := applyconfigurations.NewTypeConverter(clientscheme.Scheme)
	steps, refused := 0, 0
	kind := v1.SchemeGroupVersion.WithKind("ConfigMap")
	known := clientscheme.Scheme
	oracle, err := managedfields.NewDefaultFieldManager(converter, known, known, known, kind, kind.GroupVersion(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		name := fmt.Sprintf("object-%d", seed)
		live := &v1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}}
		path := "/api/v1/namespaces/default/configmaps"
		made := false
		var told []string
		for range 12 {
			s := randomStep(r)
			annotation := live.Annotations[v1.LastAppliedConfigAnnotation]
			sent := s.object(name, annotation)
			raw, err := json.Marshal(sent)
			if err != nil {
				t.Fatal(err)
			}
			told = append(told, s.String())
			method, at, media := http.MethodPost, path, "application/json"
			var next runtime.Object
			if s.apply {
				method, at, media = http.MethodPatch, path+"/"+name, "application/apply-patch+yaml"
				next, err = oracle.Apply(live, &unstructured.Unstructured{Object: decoded(t, raw, json.Unmarshal)}, s.manager, s.force)
			} else {
				if made {
					method, at = http.MethodPut, path+"/"+name
				}
				o := &v1.ConfigMap{}
				if err := json.Unmarshal(raw, o); err != nil {
					t.Fatal(err)
				}
				o.ManagedFields, o.UID = live.ManagedFields, live.UID
				next, err = oracle.Update(live, o, s.manager)
			}
			if err == nil {
				live = next.(*v1.ConfigMap)
				live.TypeMeta, live.UID, made = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, "u", true
			}
			text, failed := json.Marshal(live)
			if failed != nil {
				t.Fatal(failed)
			}
			theirs := outcomeOf(decoded(t, text, json.Unmarshal), err)
			code, answer := l.send(method, fmt.Sprintf("%s?fieldManager=%s&force=%v", at, s.manager, s.apply && s.force), media, raw)
			var ours outcome
			if code >= 300 {
				status := &metav1.Status{}
				if err := json.Unmarshal(answer, status); err != nil {
					t.Fatal(err)
				}
				ours = outcomeOf(nil, &apierrors.StatusError{ErrStatus: *status})
				refused++
			} else {
				ours = outcomeOf(decoded(t, answer, json.Unmarshal), nil)
			}
			steps++
			if !reflect.DeepEqual(ours, theirs) {
				t.Errorf("seed %d, after\n%s\nan API server has %+v\n        the agent %+v", seed, strings.Join(told, "\n"), theirs, ours)
				break
			}
		}
	}
	t.Logf("%d steps, of which %d were refused", steps, refused)
}
