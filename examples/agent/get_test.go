package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
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
	gone     []v1.Event // of pods that are gone
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
func (a *fakeAgent) AllEvents() []v1.Event     { return append(slices.Clone(a.events), a.gone...) }
func (a *fakeAgent) Why(*v1.Pod) local.Why     { return a.why }
func (a *fakeAgent) Problems() []local.Problem { return a.problems }
func (a *fakeAgent) Healthy() error            { return nil }

// serveAgent has a answer below the root directory that is returned.
func serveAgent(t *testing.T, a *fakeAgent) (root string) {
	t.Helper()
	return serveAgentOf(t, a)
}

func serveAgentOf(t *testing.T, a local.Agent) (root string) {
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
		if got := strings.Fields(stdout); code != 0 || stderr != "" && tc.want != nil || !slices.Equal(got, tc.want) {
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
		{"get pods", "List", 2},
		{"get pods db", "Pod", 1}, // the object itself, as kubectl does
		{"get pods db web", "List", 2},
		{"get pods -n default", "List", 2},
		{"get pods -n empty", "List", 0},
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
			var l struct {
				metav1.TypeMeta `json:",inline"`
				Metadata        map[string]string `json:"metadata"`
				Items           []v1.Pod          `json:"items"`
			}
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
	for _, tc := range []struct{ root, line, want string }{
		{none, "get pods web", `no pod "web"`},
		{none, "get pods a/web", `no pod "web" in namespace "a"`},
		{none, "get", "get what? There are pods, events, nodes,"},
		{none, "get deployments", `get "deployments": want one of pods, events, nodes,`},
		{none, "get configmaps", "get configmaps: this agent serves no Kubernetes API: start it with --local-api=socket"},
		{none, "get pods -o xml", `--output="xml": want wide, name, json, yaml, jsonpath=`},
		{none, "get pods -o custom-columns=NAME", `--output="custom-columns=NAME": want "NAME": want HEADER:PATH`},
		{none, "get pods -l a=b=c", `--selector="a=b=c": `},
		{none, "get pods --field-selector a", `--field-selector="a": `},
		{none, "get pods/web nodes/x", `"nodes/x": want pods/NAME`},
		{none, "get pods/web db", `"db": want pods/NAME`},
		{none, "get images", "this agent does not list images"},
		{twice, "get pods web", `"web" could be a/web, b/web; say which with -n`},
		{twice, "get pods -n b a/web", `-n b with "a/web": which namespace?`},
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
	absent := t.TempDir()
	want := "agent: no agent answers at " + absent + "/agent.sock: connect: no such file or directory\n" +
		"agent:   start one with \"agent run\", or name the root directory of the one that runs with --root-dir\n"
	if stdout, stderr, code := ask(t, absent, "get pods"); code != 1 || stdout != "" || stderr != want {
		t.Errorf("without an agent: exit %d, stdout %q, stderr %q; want %q", code, stdout, stderr, want)
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

// Whoever asks about a pod that is not there is told of the mistakes that may be its own.
func TestProblemsOfANamedPod(t *testing.T) {
	root := serveAgent(t, &fakeAgent{problems: []local.Problem{
		{Source: "file", File: "/m/a.yaml", Pod: "shop/web", Reason: "one"}, {Source: "file", File: "/m/web.yaml", Pod: "shop/db", Reason: "two"},
		{Source: "file", File: "/m/b.yaml", Reason: "three"}, {Source: "file", File: "/m/c.yaml", Pod: "shop/other", Reason: "four"},
	}})
	for line, want := range map[string]string{
		"why web": "one two three", "logs shop/web": "one two three", "describe pod other": "three four", "get pods web-edge": "one three", "get pods": "one two three four",
	} {
		_, stderr, _ := ask(t, root, line)
		var got []string
		for l := range strings.Lines(stderr) {
			if strings.HasPrefix(l, "problem: ") {
				got = append(got, strings.TrimSpace(l[strings.LastIndexByte(l, ' '):]))
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("agent %s: %q, want %q", line, got, want)
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

func TestGetEvents(t *testing.T) {
	at := metav1.NewTime(time.Now().Add(-time.Minute))
	events := []v1.Event{{Type: "Warning", Reason: "BackOff", Count: 3, Message: "a\nb", LastTimestamp: at,
		InvolvedObject: v1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web"}}}
	root := serveAgent(t, &fakeAgent{pods: []*v1.Pod{testPod("default", "web")}, events: events, gone: []v1.Event{{
		Type: "Warning", Reason: "Evicted", Count: 1, LastTimestamp: at, InvolvedObject: v1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "gone-edge"},
		Source: v1.EventSource{Host: "edge"},
	}}})
	stdout, stderr, code := ask(t, root, "get events -n default")
	if lines := strings.Split(stdout, "\n"); code != 0 || stderr != "" || len(lines) != 4 || !strings.HasPrefix(lines[0], "NAMESPACE") ||
		!slices.Equal(strings.Fields(lines[1]), strings.Fields("default 60s Warning BackOff pod/web a b")) {
		t.Errorf("exit %d, stderr %q\n%s", code, stderr, stdout)
	}
	if stdout, stderr, code := ask(t, root, "get events"); code != 0 || stderr != "" || !strings.Contains(stdout, "BackOff") || !strings.Contains(stdout, "Evicted") {
		t.Errorf("exit %d, stderr %q\n%s", code, stderr, stdout)
	}
	for _, name := range []string{"gone", "gone-edge", "default/gone"} {
		if stdout, stderr, code := ask(t, root, "get events "+name); code != 0 || stderr != "" || strings.Contains(stdout, "BackOff") || !strings.Contains(stdout, "Evicted") {
			t.Errorf("events of %s, which is gone: exit %d, stderr %q\n%s", name, code, stderr, stdout)
		}
	}
	stdout, _, _ = ask(t, root, "get events web -o json")
	var l v1.EventList
	if err := json.Unmarshal([]byte(stdout), &l); err != nil || len(l.Items) != 1 || l.Kind != "List" {
		t.Errorf("%v\n%s", err, stdout)
	}
	for line, want := range map[string]string{
		"get pods -w -o json": `--watch with --output "json": want wide or name`,
	} {
		if _, stderr, code := ask(t, root, line); code != 1 || !strings.HasPrefix(stderr, "agent: "+want) {
			t.Errorf("agent %s: exit %d, %q", line, code, stderr)
		}
	}
}

// An empty list is no failure.
func TestGetEmpty(t *testing.T) {
	root := serveAgent(t, &fakeAgent{})
	for line, want := range map[string]string{
		"get pods": "no pods\n", "get pods -o name -n a": "no pods in namespace \"a\"\n", "get pods -A -n a": "no pods\n", "get pods -l a=b": "no pods\n",
	} {
		if stdout, stderr, code := ask(t, root, line); code != 0 || stdout != "" || stderr != want {
			t.Errorf("agent %s: exit %d, stdout %q, stderr %q, want %q", line, code, stdout, stderr, want)
		}
	}
}

// What is listed, in which order and form, as kubectl has it.
func TestGetAsKubectl(t *testing.T) {
	web, db, job := testPod("default", "web-edge"), testPod("kube-system", "db"), testPod("default", "job")
	web.Labels, db.Labels = map[string]string{"app": "web", "tier": "a"}, map[string]string{"app": "db"}
	web.UID, db.UID, job.UID = "1", "2", "3"
	web.Status.ContainerStatuses[0].RestartCount, db.Status.ContainerStatuses[0].RestartCount = 10, 9
	job.Status.Phase = v1.PodSucceeded
	root := serveAgent(t, &fakeAgent{pods: []*v1.Pod{web, job, db}})
	for _, tc := range []struct{ line, want string }{
		{"get pods -A -o name", "pod/web-edge pod/job pod/db"},
		{"get pods -l app -o name", "pod/web-edge pod/db"},
		{"get pods -l app=web,tier!=b -o name", "pod/web-edge"},
		{"get pods -l app=db -n default -o name", ""},
		{"get pods --field-selector status.phase=Succeeded -o name", "pod/job"},
		{"get pods --field-selector metadata.namespace!=default -o name", "pod/db"},
		{"get pods --sort-by .metadata.name -o name", "pod/db pod/job pod/web-edge"},
		{"get pods --sort-by {.status.containerStatuses[0].restartCount} -o name", "pod/job pod/db pod/web-edge"},
		{"get pod/web -o name", "pod/web-edge"},
		{"get pods/db po/job -o name", "pod/db pod/job"},
		{"get pods db --no-headers", "kube-system db 1/1 Running 9 <unknown>"},
		{"get pod/db -o jsonpath={.status.podIP}", "10.0.0.3"},
		{"get pods -o jsonpath={.items[*].metadata.name}", "web-edge job db"},
		{"get pods db -o jsonpath=.metadata.namespace", "kube-system"},
		{"get pods -o custom-columns=NAME:.metadata.name,IMAGES:.spec.containers[*].image,APP:{.metadata.labels.app}", "NAME IMAGES APP web-edge img:1 web job img:1 <none> db img:1 db"},
		{"get pods db -o custom-columns=N:metadata.name --no-headers", "db"},
		{"get pods -o go-template={{.kind}}", "List"},
		{"describe pod/db -n kube-system", "Name: db"},
	} {
		stdout, stderr, code := ask(t, root, tc.line)
		if got := strings.Join(strings.Fields(stdout), " "); code != 0 || stderr != "" && tc.want != "" || !strings.HasPrefix(got, tc.want) || !strings.HasPrefix(tc.line, "describe") && got != tc.want {
			t.Errorf("agent %s: exit %d, stderr %q, %q, want %q", tc.line, code, stderr, got, tc.want)
		}
	}
}

// A watch that is interrupted is no failure, and has shown the pods by then.
func TestGetWatch(t *testing.T) {
	root := serveAgent(t, &fakeAgent{pods: []*v1.Pod{testPod("default", "web"), testPod("default", "db")}})
	ctx, cancel := context.WithCancel(t.Context())
	in, out := io.Pipe()
	done := make(chan int)
	go func() {
		done <- execute(ctx, stdio{in: strings.NewReader(""), out: out, err: io.Discard}, []string{"--root-dir", root, "get", "pods", "web", "-w"})
	}()
	lines := bufio.NewScanner(in)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), "NAMESPACE") || !lines.Scan() || !strings.HasPrefix(lines.Text(), "default     web ") {
		t.Errorf("%q", lines.Text())
	}
	cancel()
	go func() { _, _ = io.Copy(io.Discard, in) }()
	if code := <-done; code != 0 {
		t.Errorf("exit %d", code)
	}
}

// A watch tells what changes in order of time: the end of a pod before the beginning of the next one.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		web, next, db := testPod("default", "web"), testPod("default", "web"), testPod("default", "db")
		next.UID, db.UID = "uid-2", "uid-3"
		start := metav1.Now()
		web.Status.StartTime, next.CreationTimestamp, db.CreationTimestamp = &start, start, start
		crashed := web.DeepCopy()
		crashed.Status.ContainerStatuses[0] = v1.ContainerStatus{Name: "c", RestartCount: 1, State: waiting("CrashLoopBackOff")}
		lists := [][]object{{web}, {web}, {web, db}, {crashed, db}, {next, db}}
		var b strings.Builder
		var g getFlags
		err := g.follow(ctx, &b, &resources[0], func(context.Context) ([]object, error) {
			now := lists[0]
			if lists = lists[1:]; len(lists) == 0 {
				time.AfterFunc(time.Millisecond, cancel)
				lists = [][]object{now}
			}
			return now, nil
		})
		const want = `
NAMESPACE   NAME   READY   STATUS   RESTARTS   AGE
default     web    1/1     Running   0          0s
default     db     1/1     Running   0          2s
default     web    0/1     CrashLoopBackOff   1          3s
default     web    0/1     Deleted            0          4s
default     web    1/1     Running            0          4s
`
		if got := "\n" + b.String(); err != nil || got != want {
			t.Errorf("%v, got%s\nwant%s", err, got, want)
		}
	})
}

func TestFollowFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("no agent answers")
		var g getFlags
		if err := g.follow(t.Context(), io.Discard, &resources[0], func(context.Context) ([]object, error) { return nil, gone }); !errors.Is(err, gone) {
			t.Errorf("got %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := g.follow(ctx, io.Discard, &resources[0], func(ctx context.Context) ([]object, error) { return nil, ctx.Err() }); err != nil {
			t.Errorf("after Ctrl-C: %v", err)
		}
	})
}

// What only the agent knows stands in the table, and not in the objects.
func TestGetPodsTellsEvictionsAndPulls(t *testing.T) {
	web := testPod("default", "web")
	a := &fakeAgent{pods: []*v1.Pod{web}, why: local.Why{UID: "uid-1", Pull: "12 of 40 MiB"}}
	a.events = []v1.Event{{Reason: "Evicted", Count: 5, InvolvedObject: v1.ObjectReference{Kind: "Pod", UID: web.UID}, LastTimestamp: metav1.NewTime(time.Now().Add(-3 * time.Hour))}}
	root := serveAgent(t, a)
	for phase, want := range map[v1.PodPhase]string{v1.PodRunning: "Running 5 (evicted 3h ago)", v1.PodPending: "Pulling (12 of 40 MiB) 5 (evicted 3h ago)"} {
		web.Status.Phase = phase
		stdout, stderr, code := ask(t, root, "get pods web --no-headers")
		if got := strings.Join(strings.Fields(stdout), " "); code != 0 || stderr != "" || !strings.Contains(got, "1/1 "+want+" ") {
			t.Errorf("exit %d, stderr %q, %q; want %q", code, stderr, got, want)
		}
	}
	if stdout, _, _ := ask(t, root, "get pods web -o yaml"); strings.Contains(stdout, "12 of 40") || strings.Contains(stdout, "evicted") {
		t.Errorf("the object has it:\n%s", stdout)
	}
}
