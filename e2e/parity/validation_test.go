package parity

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	core "k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"sigs.k8s.io/yaml"

	"github.com/nodewright/nodewright/localapi"
	"github.com/nodewright/nodewright/localapi/store"
)

// mutant is a pod that differs in one place from one that is valid.
type mutant struct {
	what string // path and change
	raw  []byte
}

// strange are values that take the place of one of the same type.
var strange = map[string][]any{
	"string": {"", "Not Valid!", strings.Repeat("a", 300), "../x", "a/b"},
	"number": {-1, 0, 70000},
}

// mutants changes each place of an object in some ways.
func mutants(t *testing.T, base map[string]any) (out []mutant) {
	t.Helper()
	add := func(what string) {
		raw, err := json.Marshal(base)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, mutant{what, raw})
	}
	var walk func(path string, node any, set func(any))
	walk = func(path string, node any, set func(any)) {
		switch node := node.(type) {
		case map[string]any:
			for name, child := range node {
				delete(node, name)
				add(path + "." + name + " is left out")
				node[name] = child
				walk(path+"."+name, child, func(v any) { node[name] = v })
			}
		case []any:
			set([]any{})
			add(path + " is empty")
			if len(node) > 0 {
				set(append(slices.Clone(node), node[0]))
				add(path + " has its first twice")
			}
			set(node)
			for i, child := range node {
				walk(path+"["+strconv.Itoa(i)+"]", child, func(v any) { node[i] = v })
			}
		case string:
			for i, v := range strange["string"] {
				set(v)
				add(fmt.Sprintf("%s is %s", path, []string{`""`, "Not Valid!", "too long", "../x", "a/b"}[i]))
			}
			set(node)
		case float64:
			for _, v := range strange["number"] {
				set(v)
				add(fmt.Sprintf("%s is %v", path, v))
			}
			set(node)
		case bool:
			set(!node)
			add(fmt.Sprintf("%s is %v", path, !node))
			set(node)
		}
	}
	walk("", base, nil)
	slices.SortFunc(out, func(a, b mutant) int { return strings.Compare(a.what, b.what) })
	return out
}

// apiServer is what Kubernetes' API server would say of a pod: nil if it takes it.
func apiServer(raw []byte) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("it panics: %v", r)
		}
	}()
	pod := &v1.Pod{}
	if err := json.Unmarshal(raw, pod); err != nil {
		return err
	}
	legacyscheme.Scheme.Default(pod)
	internal := &core.Pod{}
	if err := legacyscheme.Scheme.Convert(pod, internal, nil); err != nil {
		return err
	}
	internal.Namespace = "default"
	return validation.ValidatePodCreate(internal, podutil.GetValidationOptionsFromPodSpecAndMeta(&internal.Spec, nil, &internal.ObjectMeta, nil)).ToAggregate()
}

// reasons reads lines of a pattern and a reason.
func reasons(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if pattern, why, ok := strings.Cut(strings.TrimSpace(line), " | "); ok && !strings.HasPrefix(line, "#") {
			out[pattern] = why
		}
	}
	return out
}

// A pod that is accepted by the agent's own API is accepted by an API server, and the
// other way round, but for what testdata/validation.txt names.
func TestValidation(t *testing.T) {
	srv, err := localapi.New(localapi.Config{Node: "node-1", Store: &store.Memory{}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	h := srv.Handler(localapi.Root)
	ask := func(method, path string, raw []byte) (int, string) {
		r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(string(raw)))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	for code := 0; code != http.StatusOK; time.Sleep(time.Millisecond) {
		code, _ = ask("GET", "/readyz", nil)
	}
	text, err := os.ReadFile("testdata/validation.yaml")
	if err != nil {
		t.Fatal(err)
	}
	absent := map[string]string{}
	count := 0
	for _, doc := range strings.Split(string(text), "\n---\n") {
		var base map[string]any
		if err := yaml.Unmarshal([]byte(doc), &base); err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(base)
		if err != nil {
			t.Fatal(err)
		}
		if err := apiServer(raw); err != nil {
			t.Fatalf("the API server refuses the pod that mutants are made of: %v", err)
		}
		if code, answer := ask("POST", "/api/v1/namespaces/default/pods?dryRun=All", raw); code != http.StatusCreated {
			t.Fatalf("the agent refuses the pod that mutants are made of: %s", answer)
		}
		for _, m := range mutants(t, base) {
			if strings.HasPrefix(m.what, ".apiVersion") || strings.HasPrefix(m.what, ".kind") {
				continue
			}
			count++
			theirs := apiServer(m.raw)
			code, answer := ask("POST", "/api/v1/namespaces/default/pods?dryRun=All", m.raw)
			ours := code != http.StatusCreated
			switch {
			case theirs != nil && !ours:
				absent[m.what] = "only the API server refuses: " + theirs.Error()
			case theirs == nil && ours:
				absent[m.what] = "only the agent refuses: " + answer
			}
		}
	}
	known := reasons(t, "testdata/validation.txt")
	met := map[string]bool{}
	for _, what := range slices.Sorted(maps.Keys(absent)) {
		reason, ok := "", false
		for pattern, why := range known {
			if regexp.MustCompile(pattern).MatchString(what) {
				reason, ok, met[pattern] = why, true, true
			}
		}
		if !ok {
			t.Errorf("%s: %.300s", what, absent[what])
		} else {
			t.Logf("%s: %s", what, reason)
		}
	}
	for pattern := range known {
		if !met[pattern] {
			t.Errorf("%s is judged alike: take its line out of testdata/validation.txt", pattern)
		}
	}
	t.Logf("%d of %d pods are judged alike", count-len(absent), count)
}
