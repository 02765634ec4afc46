package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/nodewright/nodewright/agent/local"
)

// fakeAgent knows what its fields say.
type fakeAgent struct {
	pods     []*v1.Pod
	events   []v1.Event
	why      local.Why
	problems []local.Problem
	logs     map[string]string // a file's path by container, "previous/" before it
	execURL  string

	mu    sync.Mutex
	execs []local.ExecRequest
}

func (a *fakeAgent) Pods() (out []*v1.Pod) {
	for _, p := range a.pods {
		out = append(out, p.DeepCopy())
	}
	return out
}

func (a *fakeAgent) LogPath(_ *v1.Pod, container string, previous bool) (string, error) {
	if previous {
		container = "previous/" + container
	}
	if path, ok := a.logs[container]; ok {
		return path, nil
	}
	return "", fmt.Errorf("container %q: %w", container, local.ErrNotFound)
}

func (a *fakeAgent) Exec(_ context.Context, _ *v1.Pod, r local.ExecRequest) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.execs = append(a.execs, r)
	return a.execURL, nil
}

func (a *fakeAgent) Events(*v1.Pod) []v1.Event { return a.events }
func (a *fakeAgent) Why(*v1.Pod) local.Why     { return a.why }
func (a *fakeAgent) Problems() []local.Problem { return a.problems }
func (a *fakeAgent) Healthy() error            { return nil }

// serveAgent has a answer below the root directory that is returned.
func serveAgent(t *testing.T, a *fakeAgent) (root string) {
	t.Helper()
	root = t.TempDir()
	l, err := local.Listen(filepath.Join(root, "agent.sock"))
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: local.Handler(a, nil), ReadHeaderTimeout: time.Minute}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return root
}

// ask runs a command against the agent below root.
func ask(t *testing.T, root, line string) (stdout, stderr string, code int) {
	t.Helper()
	return invoke(t, append([]string{"--root-dir", root}, strings.Fields(line)...)...)
}

// testPod is a running pod of the node edge with one container, c.
func testPod(namespace, name string) *v1.Pod {
	p := &v1.Pod{Spec: v1.PodSpec{NodeName: "edge", Containers: []v1.Container{{Name: "c", Image: "img:1"}}}}
	p.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "uid-1"}
	p.Status = v1.PodStatus{Phase: v1.PodRunning, PodIP: "10.0.0.3", ContainerStatuses: []v1.ContainerStatus{{
		Name: "c", Ready: true, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
	}}}
	return p
}

func waiting(reason string) v1.ContainerState {
	return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}
}

func ended(code int32, reason string) v1.ContainerState {
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code, Reason: reason}}
}

var runs = v1.ContainerState{Running: &v1.ContainerStateRunning{}}

func TestGetTable(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(ago time.Duration) metav1.Time { return metav1.NewTime(now.Add(-ago)) }
	web, db, odd := testPod("default", "web-edge"), testPod("kube-system", "db"), testPod("x", "odd")
	web.CreationTimestamp = at(90 * time.Second)
	start := at(49 * time.Hour)
	db.Status.StartTime = &start
	db.Status.PodIP = ""
	db.Status.ContainerStatuses[0] = v1.ContainerStatus{Name: "c", State: waiting("CrashLoopBackOff"), RestartCount: 12}
	odd.Status, odd.Spec.NodeName = v1.PodStatus{}, ""
	list := &v1.PodList{Items: []v1.Pod{*web, *db, *odd}}
	for _, tc := range []struct {
		wide bool
		want string
	}{
		{false, `
NAMESPACE     NAME       READY   STATUS             RESTARTS   AGE
default       web-edge   1/1     Running            0          90s
kube-system   db         0/1     CrashLoopBackOff   12         2d1h
x             odd        0/1     Pending            0          <unknown>
`},
		{true, `
NAMESPACE     NAME       READY   STATUS             RESTARTS   AGE         IP         NODE
default       web-edge   1/1     Running            0          90s         10.0.0.3   edge
kube-system   db         0/1     CrashLoopBackOff   12         2d1h        <none>     edge
x             odd        0/1     Pending            0          <unknown>   <none>     <none>
`},
	} {
		var b bytes.Buffer
		printTable(&b, list, tc.wide, now)
		if got, want := b.String(), strings.TrimPrefix(tc.want, "\n"); got != want {
			t.Errorf("wide %v:\n%s\nwant\n%s", tc.wide, got, want)
		}
	}
}

func TestGetState(t *testing.T) {
	always, never, yes := v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyNever, true
	spec := v1.PodSpec{
		InitContainers: []v1.Container{{Name: "i"}, {Name: "side", RestartPolicy: &always}},
		Containers:     []v1.Container{{Name: "a"}, {Name: "b"}},
	}
	type all = []v1.ContainerStatus
	st := func(name string, s v1.ContainerState) v1.ContainerStatus {
		return v1.ContainerStatus{Name: name, State: s}
	}
	sideUp := v1.ContainerStatus{Name: "side", State: runs, Started: &yes, Ready: true}
	for _, tc := range []struct {
		name       string
		phase      v1.PodPhase
		reason     string
		init, main all
		want       string
	}{
		{"nothing yet", "", "", nil, nil, "Pending"},
		{"rejected", v1.PodFailed, "OutOfcpu", nil, nil, "OutOfcpu"},
		{"first init runs", v1.PodPending, "", all{st("i", runs), st("side", waiting("PodInitializing"))}, nil, "Init:0/2"},
		{"sidecar starts", v1.PodPending, "", all{st("i", ended(0, "Completed")), st("side", runs)}, nil, "Init:1/2"},
		{"init failed", v1.PodPending, "", all{st("i", ended(1, "Error"))}, nil, "Init:Error"},
		{"init failed without a reason", v1.PodPending, "", all{st("i", ended(3, ""))}, nil, "Init:ExitCode:3"},
		{"init held up", v1.PodPending, "", all{st("i", waiting("ImagePullBackOff"))}, nil, "Init:ImagePullBackOff"},
		{"statuses in another order", v1.PodRunning, "", all{sideUp, st("i", ended(0, ""))}, all{st("a", runs)}, "Running"},
		{"creating", v1.PodPending, "", all{st("i", ended(0, "")), sideUp}, all{st("a", waiting("ContainerCreating"))}, "ContainerCreating"},
		{"second held up", v1.PodRunning, "", nil, all{st("a", runs), st("b", waiting("CrashLoopBackOff"))}, "CrashLoopBackOff"},
		{"one done, one runs", v1.PodRunning, "", nil, all{st("a", ended(0, "Completed")), st("b", runs)}, "Running"},
		{"one failed, one runs", v1.PodRunning, "", nil, all{st("a", ended(1, "Error")), st("b", runs)}, "Error"},
		{"one failed, one done", v1.PodFailed, "", nil, all{st("a", ended(137, "OOMKilled")), st("b", ended(0, "Completed"))}, "OOMKilled"},
		{"all done", v1.PodSucceeded, "", nil, all{st("a", ended(0, "Completed")), st("b", ended(0, "Completed"))}, "Completed"},
		{"evicted", v1.PodFailed, "Evicted", nil, all{st("a", ended(137, "Error"))}, "Evicted"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &v1.Pod{Spec: spec}
			p.Status = v1.PodStatus{Phase: tc.phase, Reason: tc.reason, InitContainerStatuses: tc.init, ContainerStatuses: tc.main}
			if got := podState(p); got != tc.want {
				t.Errorf("state %q, want %q", got, tc.want)
			}
			p.DeletionTimestamp = &metav1.Time{}
			if got := podState(p); got != "Terminating" {
				t.Errorf("with a deletion timestamp: %q", got)
			}
		})
	}
	// An init container with a restart policy of its own is no sidecar.
	p := &v1.Pod{Spec: v1.PodSpec{InitContainers: []v1.Container{{Name: "i", RestartPolicy: &never}}, Containers: []v1.Container{{Name: "c"}}}}
	p.Status.InitContainerStatuses = all{{Name: "i", State: runs, Started: &yes, Ready: true, RestartCount: 2}}
	if got := podState(p); got != "Init:0/1" {
		t.Errorf("state %q, want Init:0/1", got)
	}
	if ready, total, restarts := counts(p); ready != 0 || total != 1 || restarts != 2 {
		t.Errorf("counts %d/%d, %d restarts; want 0/1, 2", ready, total, restarts)
	}
	p.Spec.InitContainers[0].RestartPolicy = &always
	if ready, total, _ := counts(p); ready != 1 || total != 2 {
		t.Errorf("with a sidecar %d/%d ready, want 1/2", ready, total)
	}
}

func TestGetPods(t *testing.T) {
	web, db := testPod("default", "web-edge"), testPod("kube-system", "db")
	web.CreationTimestamp = metav1.NewTime(time.Now().Add(-3 * time.Hour))
	root := serveAgent(t, &fakeAgent{pods: []*v1.Pod{web, db}})
	for _, tc := range []struct {
		line string
		want []string // the names that are listed
	}{
		{"get pods", []string{"pod/web-edge", "pod/db"}},
		{"get po", []string{"pod/web-edge", "pod/db"}},
		{"get pods -n kube-system", []string{"pod/db"}},
		{"get pods --namespace=kube-system", []string{"pod/db"}},
		{"get pod web-edge", []string{"pod/web-edge"}},
		{"get pod web", []string{"pod/web-edge"}}, // as the manifest has it
		{"get pods db web", []string{"pod/db", "pod/web-edge"}},
		{"get pods kube-system/db", []string{"pod/db"}},
		{"get pods -n kube-system kube-system/db", []string{"pod/db"}},
		{"get pods -- db", []string{"pod/db"}},
		{"get pods -n empty", nil},
	} {
		stdout, stderr, code := ask(t, root, "-o name "+tc.line)
		if got := strings.Fields(stdout); code != 0 || stderr != "" || !slices.Equal(got, tc.want) {
			t.Errorf("agent %s: exit %d, stderr %q, %q; want %q", tc.line, code, stderr, got, tc.want)
		}
	}
	stdout, _, _ := ask(t, root, "get pods web")
	if lines := strings.Split(stdout, "\n"); len(lines) != 3 || !strings.HasSuffix(lines[1], " 3h") {
		t.Errorf("table\n%s", stdout)
	}
}

func TestGetObjects(t *testing.T) {
	root := serveAgent(t, &fakeAgent{pods: []*v1.Pod{testPod("default", "web"), testPod("default", "db")}})
	for _, tc := range []struct {
		args, kind string
		pods       int
	}{
		{"get pods", "PodList", 2},
		{"get pods db", "Pod", 1}, // the object itself, as kubectl does
		{"get pods db web", "PodList", 2},
		{"get pods -n default", "PodList", 2},
		{"get pods -n empty", "PodList", 0},
	} {
		for format, decode := range map[string]func([]byte, any) error{
			"json": json.Unmarshal,
			"yaml": func(b []byte, v any) error { return yaml.UnmarshalStrict(b, v) },
		} {
			stdout, stderr, code := ask(t, root, tc.args+" -o "+format)
			var meta metav1.TypeMeta
			if err := json.Unmarshal(toJSON(t, stdout), &meta); err != nil || code != 0 || stderr != "" {
				t.Errorf("agent %s -o %s: %v, exit %d, stderr %q", tc.args, format, err, code, stderr)
				continue
			}
			if meta.Kind != tc.kind || meta.APIVersion != "v1" {
				t.Errorf("agent %s -o %s: %+v, want a %s", tc.args, format, meta, tc.kind)
				continue
			}
			if tc.kind == "Pod" {
				var p v1.Pod
				if err := decode([]byte(stdout), &p); err != nil || p.Name != "db" || p.Status.PodIP != "10.0.0.3" {
					t.Errorf("agent %s -o %s: %v, %+v", tc.args, format, err, p)
				}
				continue
			}
			var l v1.PodList
			if err := decode([]byte(stdout), &l); err != nil || len(l.Items) != tc.pods || l.Items == nil {
				t.Errorf("agent %s -o %s: %v, %d pods, want %d", tc.args, format, err, len(l.Items), tc.pods)
			}
			for _, p := range l.Items {
				if p.Kind != "Pod" || p.APIVersion != "v1" {
					t.Errorf("agent %s -o %s: an item of kind %q", tc.args, format, p.Kind)
				}
			}
		}
	}
}

func toJSON(t *testing.T, s string) []byte {
	t.Helper()
	b, err := yaml.YAMLToJSON([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What cannot be answered ends with code 1 and one line that says why.
func TestGetNothing(t *testing.T) {
	none := serveAgent(t, &fakeAgent{})
	twice := serveAgent(t, &fakeAgent{pods: []*v1.Pod{testPod("a", "web"), testPod("b", "web")}})
	absent := t.TempDir()
	for _, tc := range []struct{ root, line, want string }{
		{none, "get pods", "no pods"},
		{none, "get pods -o wide", "no pods"},
		{none, "get pods -n a", `no pods in namespace "a"`},
		{none, "get pods web", `no pod "web"`},
		{none, "get pods a/web", `no pod "web" in namespace "a"`},
		{none, "get", "get what? There is: get pods [NAME]"},
		{none, "get nodes", `get "nodes"? There is: get pods [NAME]`},
		{none, "get pods -o xml", `-o "xml": want wide, json, yaml or name`},
		{twice, "get pods web", `"web" could be a/web, b/web; say which with -n`},
		{twice, "get pods -n b a/web", `-n b with "a/web": which namespace?`},
		{absent, "get pods", "no agent answers at " + absent + "/agent.sock"},
		{none, "describe pod web", `no pod "web"`},
		{none, "describe pod", "which pod? Give one name"},
		{none, "describe pod a b", "which pod? Give one name"},
		{none, "logs web", `no pod "web"`},
		{none, "logs", "which pod? Give one name"},
		{none, "exec web -- ls", `no pod "web"`},
		{none, "why web", `no pod "web"`},
		{none, "why", "which pod? Give one name"},
	} {
		stdout, stderr, code := ask(t, tc.root, tc.line)
		if code != 1 || stdout != "" || !strings.HasPrefix(stderr, "agent: "+tc.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("agent %s: exit %d, stdout %q, stderr %q; want %q", tc.line, code, stdout, stderr, tc.want)
		}
	}
}

// Refused manifests are told of, and never in what a program reads.
func TestGetProblems(t *testing.T) {
	root := serveAgent(t, &fakeAgent{pods: []*v1.Pod{testPod("default", "db")}, problems: []local.Problem{
		{Source: "file", File: "/m/web.yaml", Document: 2, Pod: "default/web", Field: "spec.containers", Reason: "is empty", Kept: true},
		{Source: "http", Reason: "refused"},
	}})
	if _, stderr, _ := ask(t, root, "get pods -o json"); stderr != "" { // 2>&1 is soon written
		t.Errorf("beside JSON: %q", stderr)
	}
	const want = "problem: /m/web.yaml document 2 (default/web): spec.containers: is empty; its last good version stays in effect\nproblem: http: refused\n"
	for _, line := range []string{"get pods", "get pods -o name", "get pods -n x", "get pods web",
		"describe pod web", "logs web", "exec web -- ls", "why web"} {
		stdout, stderr, _ := ask(t, root, line)
		if !strings.HasPrefix(stderr, want) || strings.Count(stderr, "problem:") != 2 || strings.Contains(stdout, "problem") {
			t.Errorf("agent %s: stdout %q, stderr %q", line, stdout, stderr)
		}
	}
}

// A pod that is being replaced by its next version does not make its name
// ambiguous.
func TestGetReplaced(t *testing.T) {
	old, next := testPod("default", "web"), testPod("default", "web")
	old.DeletionTimestamp, next.UID = &metav1.Time{Time: time.Now()}, "uid-2"
	root := serveAgent(t, &fakeAgent{pods: []*v1.Pod{old, next}})
	if stdout, stderr, code := ask(t, root, "get pods web -o yaml"); code != 0 || !strings.Contains(stdout, "uid: uid-2") {
		t.Errorf("exit %d, stderr %q\n%s", code, stderr, stdout)
	}
}
