package parity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	"k8s.io/kubernetes/pkg/capabilities"
	"k8s.io/kubernetes/pkg/registry/coordination/lease"
	"k8s.io/kubernetes/pkg/registry/core/configmap"
	"k8s.io/kubernetes/pkg/registry/core/event"
	"k8s.io/kubernetes/pkg/registry/core/namespace"
	"k8s.io/kubernetes/pkg/registry/core/node"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolume"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim"
	"k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/registry/core/secret"
	"k8s.io/kubernetes/pkg/registry/resource/resourceclaim"
	"sigs.k8s.io/yaml"

	"github.com/nodewright/nodewright/localapi"
	"github.com/nodewright/nodewright/localapi/store"
)

// served is a kind that the local API serves, with what an API server does before it keeps
// an object of the kind.
type served struct {
	gvk        schema.GroupVersionKind
	resource   string
	namespaced bool
	typ        reflect.Type
	strategy   interface {
		rest.RESTCreateStrategy
		rest.RESTUpdateStrategy
	}
}

var allServed = []served{
	{v1.SchemeGroupVersion.WithKind("Pod"), "pods", true, reflect.TypeFor[v1.Pod](), pod.Strategy},
	{v1.SchemeGroupVersion.WithKind("ConfigMap"), "configmaps", true, reflect.TypeFor[v1.ConfigMap](), configmap.Strategy},
	{v1.SchemeGroupVersion.WithKind("Secret"), "secrets", true, reflect.TypeFor[v1.Secret](), secret.Strategy},
	{v1.SchemeGroupVersion.WithKind("Event"), "events", true, reflect.TypeFor[v1.Event](), event.Strategy},
	{v1.SchemeGroupVersion.WithKind("Namespace"), "namespaces", false, reflect.TypeFor[v1.Namespace](), namespace.Strategy},
	{v1.SchemeGroupVersion.WithKind("PersistentVolume"), "persistentvolumes", false, reflect.TypeFor[v1.PersistentVolume](), persistentvolume.Strategy},
	{v1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), "persistentvolumeclaims", true, reflect.TypeFor[v1.PersistentVolumeClaim](), persistentvolumeclaim.Strategy},
	{coordinationv1.SchemeGroupVersion.WithKind("Lease"), "leases", true, reflect.TypeFor[coordinationv1.Lease](), lease.Strategy},
	{eventsv1.SchemeGroupVersion.WithKind("Event"), "events", true, reflect.TypeFor[eventsv1.Event](), event.Strategy},
	{resourcev1.SchemeGroupVersion.WithKind("ResourceClaim"), "resourceclaims", true, reflect.TypeFor[resourcev1.ResourceClaim](), claims},
}

// claims is the strategy of ResourceClaims for a client who may do all with them.
var claims = resourceclaim.NewStrategy(nil, authorizerfactory.NewAlwaysAllowAuthorizer())

// parts are the subresources that are written, with the fields that each one is for. What is written of others counts for
// nothing.
var parts = []struct {
	kind, name string
	fields     []string
	strategy   rest.RESTUpdateStrategy
}{
	{"Pod", "status", []string{".status"}, pod.StatusStrategy},
	{"Pod", "resize", []string{".spec.containers", ".spec.initContainers", ".spec.resources"}, pod.ResizeStrategy},
	{"Pod", "ephemeralcontainers", []string{".spec.ephemeralContainers"}, pod.EphemeralContainersStrategy},
	{"Namespace", "status", []string{".status"}, namespace.StatusStrategy},
	{"Namespace", "finalize", []string{".spec"}, namespace.FinalizeStrategy},
	{"PersistentVolume", "status", []string{".status"}, persistentvolume.StatusStrategy},
	{"PersistentVolumeClaim", "status", []string{".status"}, persistentvolumeclaim.StatusStrategy},
	{"ResourceClaim", "status", []string{".status"}, resourceclaim.NewStatusStrategy(claims)},
}

// others skips the fields that a subresource is not for.
func others(fields []string) func(string) bool {
	return func(path string) bool {
		return !slices.ContainsFunc(fields, func(f string) bool { return strings.HasPrefix(path, f) || strings.HasPrefix(f, path+".") })
	}
}

func (s *served) path() string {
	prefix := "/api/v1"
	if s.gvk.Group != "" {
		prefix = "/apis/" + s.gvk.GroupVersion().String()
	}
	if s.namespaced {
		prefix += "/namespaces/default"
	}
	return prefix + "/" + s.resource
}

// context is that of a request to an API server.
func (s *served) context(ctx context.Context) context.Context {
	ns := ""
	if s.namespaced {
		ns = "default"
	}
	ctx = request.WithUser(request.WithNamespace(ctx, ns), &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}})
	return request.WithRequestInfo(ctx, &request.RequestInfo{IsResourceRequest: true, APIGroup: s.gvk.Group, APIVersion: s.gvk.Version, Resource: s.resource, Namespace: ns})
}

// internal is an object as an API server reads it.
func (s *served) internal(raw []byte) (runtime.Object, error) {
	o := reflect.New(s.typ).Interface().(runtime.Object)
	if err := json.Unmarshal(raw, o); err != nil {
		return nil, err
	}
	legacyscheme.Scheme.Default(o)
	return legacyscheme.Scheme.ConvertToVersion(o, schema.GroupVersion{Group: s.gvk.Group, Version: runtime.APIVersionInternal})
}

// create is what an API server says of a new object: nil if it takes it.
func (s *served) create(ctx context.Context, raw []byte) (err error) {
	defer recovered(&err)
	o, err := s.internal(raw)
	if err != nil {
		return err
	}
	meta := o.(metav1.Object)
	if s.namespaced && meta.GetNamespace() == "" {
		meta.SetNamespace("default")
	}
	if !s.namespaced {
		meta.SetNamespace("")
	}
	meta.SetCreationTimestamp(metav1.Now())
	meta.SetUID("u")
	return rest.BeforeCreate(s.strategy, s.context(ctx), o)
}

// update is what an API server says of an object that is to take the place of old, by a
// strategy of the kind.
func (s *served) update(ctx context.Context, strategy rest.RESTUpdateStrategy, raw, old []byte) (err error) {
	defer recovered(&err)
	before, err := s.internal(old)
	if err != nil {
		return err
	}
	o, err := s.internal(raw)
	if err != nil {
		return err
	}
	return rest.BeforeUpdate(strategy, s.context(ctx), o, before)
}

func recovered(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("it panics: %v", r)
	}
}

// evict is what an API server says of an eviction of a pod, as its registry has it before it deletes the pod.
func (s *served) evict(ctx context.Context, raw, stored []byte) error {
	e := &policyv1.Eviction{}
	if err := json.Unmarshal(raw, e); err != nil {
		return err
	}
	o, err := s.internal(stored)
	if err != nil {
		return err
	}
	opts := e.DeleteOptions
	switch name := o.(metav1.Object).GetName(); {
	case e.Name != name || e.Namespace != "" && e.Namespace != "default":
		return fmt.Errorf("an eviction of %s/%s", e.Namespace, e.Name)
	case opts == nil:
		return nil
	case opts.IgnoreStoreReadErrorWithClusterBreakingPotential != nil && *opts.IgnoreStoreReadErrorWithClusterBreakingPotential:
		return errors.New("ignoreStoreReadErrorWithClusterBreakingPotential")
	case len(opts.DryRun) > 0 && !slices.Equal(opts.DryRun, []string{metav1.DryRunAll}): // the request's
		return errors.New("dryRun")
	}
	_, _, err = rest.BeforeDelete(pod.Strategy, s.context(ctx), o, opts)
	return err
}

// difference is one that is on purpose.
type difference struct {
	kind    string
	pattern *regexp.Regexp
	refuses string // who does
	met     bool
}

// differences reads the table of differences of validation in the documentation.
func differences(t *testing.T) (out []*difference) {
	t.Helper()
	text, err := os.ReadFile("../../docs/reference/local-api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "| kind | field | refused by | why |\n|---|---|---|---|\n")
	if !ok {
		t.Fatal("docs/reference/local-api.md has no table of differences in validation")
	}
	for line := range strings.Lines(rest) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) != 4 {
			break
		}
		pattern := strings.Trim(strings.TrimSpace(cells[1]), "`")
		out = append(out, &difference{kind: strings.TrimSpace(cells[0]), pattern: regexp.MustCompile(pattern), refuses: strings.TrimSpace(cells[2])})
	}
	return out
}

// lab is a server of the local API in this process.
type lab struct {
	t *testing.T
	h http.Handler
}

func newLab(t *testing.T) *lab {
	t.Helper()
	srv, err := localapi.New(localapi.Config{Node: "node-1", Store: &store.Memory{}, Describe: func(_ context.Context, n *v1.Node) error {
		n.Labels, n.Annotations = map[string]string{v1.LabelHostname: "node-1"}, map[string]string{"example.com/a": "b"}
		n.Spec = v1.NodeSpec{
			PodCIDR: "192.0.2.0/24", PodCIDRs: []string{"192.0.2.0/24"}, ProviderID: "example://node-1",
			Taints: []v1.Taint{{Key: "example.com/t", Value: "v", Effect: v1.TaintEffectNoSchedule}},
		}
		n.Status.Capacity = v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}
		n.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.1"}}
		n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	l := &lab{t, srv.Handler(localapi.Root)}
	for code := 0; code != http.StatusOK; time.Sleep(time.Millisecond) {
		code, _ = l.ask("GET", "/readyz", nil)
	}
	return l
}

func (l *lab) ask(method, path string, raw []byte) (int, []byte) {
	return l.send(method, path, "application/json", raw)
}

func (l *lab) send(method, path, media string, raw []byte) (int, []byte) {
	r := httptest.NewRequestWithContext(l.t.Context(), method, path, strings.NewReader(string(raw)))
	r.Header.Set("Content-Type", media)
	w := httptest.NewRecorder()
	l.h.ServeHTTP(w, r)
	return w.Code, w.Body.Bytes()
}

// own are fields that the server writes, or that a path decides.
func own(update bool) func(string) bool {
	fields := []string{".apiVersion", ".kind", ".status", ".metadata.managedFields", ".metadata.creationTimestamp", ".metadata.deletionTimestamp",
		".metadata.deletionGracePeriodSeconds", ".metadata.generation", ".metadata.resourceVersion", ".metadata.selfLink", ".metadata.uid", ".metadata.namespace"}
	if update {
		fields = append(fields, ".metadata.name", ".metadata.generateName")
	}
	return func(path string) bool { return slices.Contains(fields, path) }
}

// tally counts how the objects of a kind were judged.
type tally struct{ all, alike, taken, refused int }

// An object that is accepted by the agent's own API is accepted by an API server, and the
// other way round, but for what the documentation has in a table.
func TestValidation(t *testing.T) {
	capabilities.Setup(true, 0) // privileged containers are allowed, as kubeadm has it
	l := newLab(t)
	known := differences(t)
	text, err := os.ReadFile("testdata/validation.yaml")
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]*tally{}
	judge := func(kind, verb, what string, theirs error, ours bool, answer []byte) {
		c := counts[kind+", "+verb]
		if c == nil {
			c = &tally{}
			counts[kind+", "+verb] = c
		}
		c.all++
		by, said := "", ""
		switch {
		case theirs != nil && ours:
			by, said = "a cluster", theirs.Error()
			c.taken++
		case theirs == nil && !ours:
			by, said = "here", string(answer)
			c.refused++
		default:
			c.alike++
			return
		}
		for _, d := range known {
			if d.kind == kind && d.refuses == by && d.pattern.MatchString(verb+" "+what) {
				d.met = true
				return
			}
		}
		t.Errorf("%s: %s %s: refused only by %s: %.300s", kind, verb, what, by, said)
	}
	// updates judges mutants of base in the place of what is stored, by the path of a kind or of its subresource.
	updates := func(s *served, path, verb string, strategy rest.RESTUpdateStrategy, stored, base map[string]any, skip func(string) bool) {
		t.Helper()
		was := encoded(t, stored)
		if err := s.update(t.Context(), strategy, encoded(t, base), was); err != nil {
			t.Errorf("the API server refuses the %s of %s, which mutants are made of: %v", verb, path, err)
		}
		for _, m := range mutants(t, base, s.typ, skip) {
			if m.what == ".metadata is left out" { // the path has all that matters of it
				continue
			}
			code, answer := l.ask("PUT", path+"?dryRun=All", m.raw)
			judge(s.gvk.Kind, verb, m.what, s.update(t.Context(), strategy, m.raw, was), code == http.StatusOK, answer)
		}
	}
	// get returns an object as it is stored.
	get := func(path string) map[string]any {
		t.Helper()
		_, stored := l.ask("GET", path, nil)
		return decoded(t, stored, json.Unmarshal)
	}
	seen := map[string]bool{}
	for _, doc := range strings.Split(string(text), "\n---\n") {
		base := decoded(t, []byte(doc), yaml.Unmarshal)
		kind, _ := base["kind"].(string)
		i := slices.IndexFunc(allServed, func(s served) bool { return s.gvk.Kind == kind && s.gvk.GroupVersion().String() == base["apiVersion"] })
		if i < 0 {
			t.Fatalf("%q is no kind of the table", kind)
		}
		s := &allServed[i]
		seen[s.gvk.String()] = true
		status, debug := base["status"], any(nil)
		delete(base, "status")
		if spec, ok := base["spec"].(map[string]any); ok {
			debug = spec["ephemeralContainers"]
			delete(spec, "ephemeralContainers")
		}
		raw := encoded(t, base)
		name := base["metadata"].(map[string]any)["name"].(string)
		if err := s.create(t.Context(), raw); err != nil {
			t.Fatalf("the API server refuses %s %s, which mutants are made of: %v", kind, name, err)
		}
		code, answer := l.ask("POST", s.path(), raw)
		if code != http.StatusCreated {
			t.Fatalf("the agent refuses %s %s, which mutants are made of: %s", kind, name, answer)
		}
		for _, m := range mutants(t, decoded(t, raw, json.Unmarshal), s.typ, own(false)) {
			raw := []byte(strings.Replace(string(m.raw), `"name":"`+name+`"`, `"name":"`+name+`-2"`, 1))
			code, answer := l.ask("POST", s.path()+"?dryRun=All", raw)
			judge(kind, "create", m.what, s.create(t.Context(), raw), code == http.StatusCreated, answer)
		}
		path := s.path() + "/" + name
		updates(s, path, "update", s.strategy, get(path), get(path), own(true))
		for _, part := range parts {
			if part.kind != kind {
				continue
			}
			was, is := get(path), get(path)
			switch part.name {
			case "status":
				if status == nil {
					continue
				}
				is["status"] = status
			case "ephemeralcontainers":
				if debug == nil {
					continue
				}
				is["spec"].(map[string]any)["ephemeralContainers"] = debug
			}
			at := path + "/" + part.name
			updates(s, at, part.name, part.strategy, was, is, others(part.fields))
			if part.name != "status" && part.name != "ephemeralcontainers" {
				continue
			}
			if code, answer := l.ask("PUT", at, encoded(t, is)); code != http.StatusOK {
				t.Fatalf("the agent refuses the %s of %s: %s", part.name, path, answer)
			}
			updates(s, at, part.name, part.strategy, get(path), get(path), others(part.fields))
		}
	}
	pods := &allServed[0]
	full := pods.path() + "/full"
	eviction := map[string]any{
		"apiVersion": "policy/v1", "kind": "Eviction", "metadata": map[string]any{"name": "full", "namespace": "default"},
		"deleteOptions": map[string]any{
			"apiVersion": "policy/v1", "kind": "DeleteOptions", "gracePeriodSeconds": 5.0, "propagationPolicy": "Background", "dryRun": []any{"All"},
			"preconditions": map[string]any{"uid": get(full)["metadata"].(map[string]any)["uid"]},
		},
	}
	stored := encoded(t, get(full))
	for _, m := range mutants(t, eviction, reflect.TypeFor[policyv1.Eviction](), others([]string{".metadata.name", ".metadata.namespace", ".deleteOptions"})) {
		code, answer := l.ask("POST", full+"/eviction?dryRun=All", m.raw)
		judge("Pod", "eviction", m.what, pods.evict(t.Context(), m.raw, stored), code == http.StatusCreated, answer)
	}
	nodes := &served{gvk: v1.SchemeGroupVersion.WithKind("Node"), resource: "nodes", typ: reflect.TypeFor[v1.Node](), strategy: node.Strategy}
	updates(nodes, nodes.path()+"/node-1", "update", node.Strategy, get(nodes.path()+"/node-1"), get(nodes.path()+"/node-1"), own(true))
	for _, s := range allServed {
		if !seen[s.gvk.String()] {
			t.Errorf("testdata/validation.yaml has no %s", s.gvk)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		c := counts[what]
		t.Logf("%s: %d objects, %d judged alike, %d refused only by a cluster, %d only here", what, c.all, c.alike, c.taken, c.refused)
	}
	for _, d := range known {
		if !d.met {
			t.Errorf("%s %s is judged alike: take its row out of docs/reference/local-api.md", d.kind, d.pattern)
		}
	}
}

func encoded(t *testing.T, o map[string]any) []byte {
	t.Helper()
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func decoded(t *testing.T, raw []byte, unmarshal any) (out map[string]any) {
	t.Helper()
	var err error
	switch f := unmarshal.(type) {
	case func([]byte, any) error:
		err = f(raw, &out)
	case func([]byte, any, ...yaml.JSONOpt) error:
		err = f(raw, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}
