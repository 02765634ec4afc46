package local_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/local"
)

// fakeAgent is an agent whose pods, logs and troubles are what its fields say.
type fakeAgent struct {
	mu       sync.Mutex
	pods     []*v1.Pod
	events   []v1.Event
	problems []local.Problem
	sick     error
	logs     map[string]string // paths by container, with "previous/" before it
	execErr  error
	execs    []local.ExecRequest
}

func (a *fakeAgent) do(fn func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	fn()
}

func (a *fakeAgent) Pods() []*v1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []*v1.Pod
	for _, p := range a.pods {
		out = append(out, p.DeepCopy())
	}
	return out
}

func (a *fakeAgent) Events(pod *v1.Pod) (out []v1.Event) {
	for i := range a.events {
		if a.events[i].InvolvedObject.UID == pod.UID {
			out = append(out, a.events[i])
		}
	}
	return out
}

func (a *fakeAgent) AllEvents() []v1.Event { return a.events }

func (a *fakeAgent) Why(pod *v1.Pod) local.Why {
	return local.Why{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Stage: "sync", State: "is not up yet", Cause: "it waits for an image", WaitingFor: "an image"}
}

func (a *fakeAgent) LogPath(_ *v1.Pod, container string, previous bool) (string, error) {
	if previous {
		container = "previous/" + container
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	path, ok := a.logs[container]
	if !ok {
		return "", fmt.Errorf("container %q: %w", container, local.ErrNotFound)
	}
	return path, nil
}

func (a *fakeAgent) Exec(_ context.Context, _ *v1.Pod, r local.ExecRequest) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.execs = append(a.execs, r)
	return "http://127.0.0.1:1/exec/" + r.Container, a.execErr
}

func (a *fakeAgent) Problems() []local.Problem { return a.problems }
func (a *fakeAgent) Healthy() error            { return a.sick }

// newPod is a pod of two containers, both running.
func newPod(namespace, name, uid string) *v1.Pod {
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "first"}, {Name: "second"}}}}
	p.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)}
	p.Status.Phase = v1.PodRunning
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "first", State: running}, {Name: "second", State: running}}
	return p
}

// serve has a answer on a socket of its own.
func serve(t *testing.T, a local.Agent, metrics http.Handler) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "agent.sock")
	l, err := local.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: local.Handler(a, metrics), ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve: %v", err)
		}
	})
	return socket
}

// raw makes a request that Client would not make.
func raw(t *testing.T, socket, method, path, body string) (code int, contentType, text string) {
	t.Helper()
	c := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://agent"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Content-Type"), string(all)
}

func TestObjects(t *testing.T) {
	a := &fakeAgent{
		pods: []*v1.Pod{newPod("default", "web", "old"), newPod("default", "web", "new"), newPod("kube-system", "dns", "dns")},
		events: []v1.Event{
			{InvolvedObject: v1.ObjectReference{UID: "new"}, Reason: "Pulling"},
			{InvolvedObject: v1.ObjectReference{UID: "old"}, Reason: "Killing"},
			{InvolvedObject: v1.ObjectReference{UID: "new"}, Reason: "Pulled"},
		},
		problems: []local.Problem{{Source: "directory", File: "web.yaml", Document: 2, Reason: "no name"}},
	}
	c := local.NewClient(serve(t, a, nil))

	pods, err := c.Pods(t.Context())
	if err != nil || pods.Kind != "PodList" || pods.APIVersion != "v1" || len(pods.Items) != 3 {
		t.Fatalf("Pods = %+v, %v", pods, err)
	}
	for i := range pods.Items {
		if pods.Items[i].Kind != "Pod" || pods.Items[i].Status.Phase != v1.PodRunning {
			t.Errorf("pod %d: kind %q, phase %q", i, pods.Items[i].Kind, pods.Items[i].Status.Phase)
		}
	}
	if p, err := c.Pod(t.Context(), "default", "web"); err != nil || p.UID != "new" || p.Kind != "Pod" {
		t.Errorf("Pod = %s %s, %v; want the newest of that name", p.Kind, p.UID, err)
	}
	events, err := c.Events(t.Context(), "default", "web")
	if err != nil || events.Kind != "EventList" || len(events.Items) != 2 || events.Items[0].Reason != "Pulling" {
		t.Errorf("Events = %+v, %v", events, err)
	}
	if w, err := c.Why(t.Context(), "kube-system", "dns"); err != nil || w.UID != "dns" || w.WaitingFor != "an image" {
		t.Errorf("Why = %+v, %v", w, err)
	}
	if p, err := c.Problems(t.Context()); err != nil || !slices.Equal(p, a.problems) {
		t.Errorf("Problems = %+v, %v", p, err)
	}
}

func TestPodThatIsNotThere(t *testing.T) {
	c := local.NewClient(serve(t, &fakeAgent{pods: []*v1.Pod{newPod("default", "web", "u")}}, nil))
	for what, ask := range map[string]func(namespace, name string) error{
		"pod":    func(ns, n string) error { _, err := c.Pod(t.Context(), ns, n); return err },
		"events": func(ns, n string) error { _, err := c.Events(t.Context(), ns, n); return err },
		"why":    func(ns, n string) error { _, err := c.Why(t.Context(), ns, n); return err },
		"log":    func(ns, n string) error { _, err := c.Log(t.Context(), ns, n, local.LogOptions{Tail: -1}); return err },
		"exec":   func(ns, n string) error { _, err := c.Exec(t.Context(), ns, n, local.ExecRequest{}); return err },
	} {
		for _, at := range [][2]string{{"default", "wob"}, {"other", "web"}, {"a b", "c/d?e"}} {
			err := ask(at[0], at[1])
			if want := fmt.Sprintf("pod %s/%s not found", at[0], at[1]); !errors.Is(err, local.ErrNotFound) || err.Error() != want {
				t.Errorf("%s of %v: %v, want %q", what, at, err, want)
			}
		}
	}
}

// What a script reads: lists are lists, and an error is one line of text.
func TestAnswers(t *testing.T) {
	a := &fakeAgent{sick: errors.Join(errors.New("runtime is gone"), errors.New("disk is full"))}
	socket := serve(t, a, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "up 1\n") }))
	for _, tc := range []struct {
		method, path string
		code         int
		contentType  string
		text         string
	}{
		{"GET", "/v1/pods", 200, "application/json", `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}`},
		{"GET", "/v1/problems", 200, "application/json", `[]`},
		{"GET", "/metrics", 200, "text/plain; charset=utf-8", "up 1"},
		{"GET", "/healthz", 503, "text/plain; charset=utf-8", "runtime is gone; disk is full"},
		{"GET", "/v1/pods/default", 404, "text/plain; charset=utf-8", "404 page not found"},
		{"GET", "/v2", 404, "text/plain; charset=utf-8", "404 page not found"},
		{"DELETE", "/v1/pods", 405, "text/plain; charset=utf-8", "Method Not Allowed"},
		{"GET", "/v1/pods/default/web/exec", 405, "text/plain; charset=utf-8", "Method Not Allowed"},
	} {
		code, contentType, text := raw(t, socket, tc.method, tc.path, "")
		if code != tc.code || contentType != tc.contentType || strings.TrimSpace(text) != tc.text {
			t.Errorf("%s %s = %d %s %q, want %d %s %q", tc.method, tc.path, code, contentType, text, tc.code, tc.contentType, tc.text)
		}
	}
	a.do(func() { a.pods = []*v1.Pod{newPod("default", "web", "u")} })
	if _, _, text := raw(t, socket, "GET", "/v1/pods/default/web/events", ""); !strings.Contains(text, `"items":[]`) {
		t.Errorf("events of a pod without any: %s", text)
	}
	a.sick = nil
	if code, _, text := raw(t, socket, "GET", "/healthz", ""); code != 200 || text != "ok" {
		t.Errorf("healthz = %d %q", code, text)
	}
	if code, _, _ := raw(t, serve(t, a, nil), "GET", "/metrics", ""); code != 404 {
		t.Errorf("metrics of an agent without any = %d", code)
	}
}

func TestExec(t *testing.T) {
	a := &fakeAgent{pods: []*v1.Pod{newPod("default", "web", "u")}}
	socket := serve(t, a, nil)
	c := local.NewClient(socket)
	for _, tc := range []struct{ container, want string }{{"", "first"}, {"second", "second"}} {
		u, err := c.Exec(t.Context(), "default", "web", local.ExecRequest{Container: tc.container, Command: []string{"sh", "-c", "true"}, Stdin: true})
		if err != nil || u != "http://127.0.0.1:1/exec/"+tc.want {
			t.Errorf("Exec in %q = %q, %v", tc.container, u, err)
		}
		if r := a.execs[len(a.execs)-1]; !r.Stdin || r.TTY || len(r.Command) != 3 {
			t.Errorf("the agent was asked for %+v", r)
		}
	}
	a.do(func() { a.execErr = errors.New("container \"first\" is exited,\nnot running") })
	if _, err := c.Exec(t.Context(), "default", "web", local.ExecRequest{Command: []string{"ls"}}); err == nil || err.Error() != `container "first" is exited,; not running` {
		t.Errorf("Exec that fails: %v", err)
	}
	for body, want := range map[string]string{
		``:                                     "exec request: EOF",
		`{`:                                    "exec request: unexpected EOF",
		`{}`:                                   "exec request: command is empty; want a program and its arguments",
		`{"command":"ls"}`:                     "exec request: json: cannot unmarshal string into Go struct field ExecRequest.command of type []string",
		`{"command":["ls"],"comand":["ls"]}`:   `exec request: json: unknown field "comand"`,
		`{"command":["` + mega("x") + `"]}`:    "exec request: http: request body too large",
		`{"command":["ls"],"container":["a"]}`: "exec request: json: cannot unmarshal array into Go struct field ExecRequest.container of type string",
	} {
		code, _, text := raw(t, socket, "POST", "/v1/pods/default/web/exec", body)
		if code != 400 || strings.TrimSpace(text) != want {
			t.Errorf("exec of %.40q = %d %q, want %q", body, code, text, want)
		}
	}
}

// mega repeats s for more than a request may have.
func mega(s string) string { return strings.Repeat(s, 1<<20) }

// logFile writes CRI log lines.
func logFile(t *testing.T, lines ...string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "0.log")
	appendLog(t, path, lines...)
	return path
}

func appendLog(t *testing.T, path string, lines ...string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for i, l := range lines {
		if _, err := fmt.Fprintf(f, "2026-01-02T03:04:%02dZ stdout F %s\n", i, l); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLog(t *testing.T) {
	a := &fakeAgent{
		pods: []*v1.Pod{newPod("default", "web", "u")},
		logs: map[string]string{
			"first": logFile(t, "one", "two", "three"), "second": logFile(t, "other"),
			"previous/first": logFile(t, "before"), "rotated away": filepath.Join(t.TempDir(), "none.log"),
		},
	}
	c := local.NewClient(serve(t, a, nil))
	for name, tc := range map[string]struct {
		opts    local.LogOptions
		want    string
		wantErr string
	}{
		"all":               {local.LogOptions{Tail: -1}, "one\ntwo\nthree\n", ""},
		"none":              {local.LogOptions{Tail: 0}, "", ""},
		"tail":              {local.LogOptions{Tail: 2}, "two\nthree\n", ""},
		"since":             {local.LogOptions{Tail: -1, Since: time.Date(2026, 1, 2, 3, 4, 2, 0, time.UTC)}, "three\n", ""},
		"timestamps":        {local.LogOptions{Tail: 1, Timestamps: true}, "2026-01-02T03:04:02Z three\n", ""},
		"other container":   {local.LogOptions{Container: "second", Tail: -1}, "other\n", ""},
		"previous":          {local.LogOptions{Previous: true, Tail: -1}, "before\n", ""},
		"no such container": {local.LogOptions{Container: "third", Tail: -1}, "", `container "third": not found`},
		"no previous":       {local.LogOptions{Container: "second", Previous: true, Tail: -1}, "", `container "previous/second": not found`},
		"no such file":      {local.LogOptions{Container: "rotated away", Tail: -1}, "", "open " + a.logs["rotated away"] + ": no such file or directory"},
	} {
		rc, err := c.Log(t.Context(), "default", "web", tc.opts)
		if tc.wantErr != "" {
			if !errors.Is(err, local.ErrNotFound) || err.Error() != tc.wantErr {
				t.Errorf("%s: %v, want %q", name, err, tc.wantErr)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := io.ReadAll(rc)
		if err != nil || string(got) != tc.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, tc.want)
		}
		_ = rc.Close()
	}
}

func TestWrongLogOptions(t *testing.T) {
	a := &fakeAgent{pods: []*v1.Pod{newPod("default", "web", "u")}, logs: map[string]string{"first": logFile(t, "one")}}
	socket := serve(t, a, nil)
	for query, want := range map[string]string{
		"follow=perhaps":         `follow="perhaps": want true or false`,
		"previous=2":             `previous="2": want true or false`,
		"timestamps=ja":          `timestamps="ja": want true or false`,
		"tail=many":              `tail="many": want a number of lines`,
		"tail=1.5":               `tail="1.5": want a number of lines`,
		"since=yesterday":        `since is "yesterday"; want a time such as 2026-01-02T15:04:05Z (RFC 3339)`,
		"tial=5":                 `tial="5": want one of container, previous, follow, timestamps, tail, since`,
		"tail=x&follow=y&what=z": `what="z": want one of container, previous, follow, timestamps, tail, since; follow="y": want true or false; tail="x": want a number of lines`,
	} {
		code, _, text := raw(t, socket, "GET", "/v1/pods/default/web/log?"+query, "")
		if code != 400 || strings.TrimSpace(text) != want {
			t.Errorf("%s = %d %q, want %q", query, code, text, want)
		}
	}
}

// lines takes a followed log line by line.
func lines(t *testing.T, r io.Reader) (next func() (string, error)) {
	t.Helper()
	buf := bufio.NewReader(r)
	return func() (string, error) {
		line, err := buf.ReadString('\n')
		return strings.TrimSuffix(line, "\n"), err
	}
}

// keeper is an agent that says where its logs are.
type keeper struct {
	*fakeAgent
	dir string
}

func (k keeper) LogsDir() string { return k.dir }

// A pod that may write to the directory of logs has its own lead elsewhere, and
// a runtime names what is no log.
func TestOnlyLogsAreShown(t *testing.T) {
	secret := logFile(t, "client-key-data")
	dir := t.TempDir()
	for _, err := range []error{os.Symlink(secret, filepath.Join(dir, "0.log")), os.Symlink(filepath.Dir(secret), filepath.Join(dir, "c"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	a := keeper{&fakeAgent{pods: []*v1.Pod{newPod("default", "web", "u")}}, dir}
	c := local.NewClient(serve(t, a, nil))
	for _, path := range []string{filepath.Join(dir, "0.log"), filepath.Join(dir, "c", filepath.Base(secret)), secret, dir + "/../" + filepath.Base(secret)} {
		a.do(func() { a.logs = map[string]string{"first": path} })
		rc, err := c.Log(t.Context(), "default", "web", local.LogOptions{Tail: -1})
		if err == nil {
			_ = rc.Close()
			t.Errorf("%s is shown", path)
		}
	}
}

func TestLogFollow(t *testing.T) {
	path := logFile(t, "one")
	a := &fakeAgent{pods: []*v1.Pod{newPod("default", "web", "u")}, logs: map[string]string{"first": path}}
	c := local.NewClient(serve(t, a, nil))
	rc, err := c.Log(t.Context(), "default", "web", local.LogOptions{Follow: true, Tail: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rc.Close() }()
	next := lines(t, rc)
	want := func(line string) {
		t.Helper()
		if got, err := next(); err != nil || got != line {
			t.Fatalf("next line = %q, %v; want %q", got, err, line)
		}
	}
	want("one")
	appendLog(t, path, "two", "three")
	want("two")
	want("three")
	if err := os.Rename(path, path+".20260102"); err != nil {
		t.Fatal(err)
	}
	appendLog(t, path, "after the rotation")
	want("after the rotation")
	appendLog(t, path, "the last")
	a.do(func() {
		a.pods[0].Status.ContainerStatuses[0].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}
	})
	want("the last")
	if _, err := next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the container's end: %v, want EOF", err)
	}
}

// The first answer comes before the first line, and a caller who leaves does
// not hold up the agent's end.
func TestLogFollowIsCancelled(t *testing.T) {
	a := &fakeAgent{pods: []*v1.Pod{newPod("default", "web", "u")}, logs: map[string]string{"first": logFile(t)}}
	returned := make(chan struct{})
	inner := local.Handler(a, nil)
	socket := filepath.Join(t.TempDir(), "agent.sock")
	l, err := local.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(returned)
		inner.ServeHTTP(w, r)
	})}
	go func() { _ = s.Serve(l) }()
	defer func() { _ = s.Close() }()

	ctx, cancel := context.WithCancel(t.Context())
	rc, err := local.NewClient(socket).Log(ctx, "default", "web", local.LogOptions{Follow: true, Tail: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rc.Close() }()
	cancel()
	if _, err := io.ReadAll(rc); !errors.Is(err, context.Canceled) {
		t.Errorf("reading on: %v", err)
	}
	<-returned // or the test's deadline reports
}

// A log that cannot be read on ends with an error, not with the error's text.
func TestLogThatBreaks(t *testing.T) {
	path := logFile(t, "one")
	a := &fakeAgent{pods: []*v1.Pod{newPod("default", "web", "u")}, logs: map[string]string{"first": path}}
	rc, err := local.NewClient(serve(t, a, nil)).Log(t.Context(), "default", "web", local.LogOptions{Follow: true, Tail: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rc.Close() }()
	if got, err := lines(t, rc)(); err != nil || got != "one" {
		t.Fatalf("first line %q, %v", got, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(rc); !errors.Is(err, io.ErrUnexpectedEOF) || len(rest) > 0 {
		t.Errorf("rest = %q, %v", rest, err)
	}
}

func TestListen(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "agent.sock")
	mode := func() os.FileMode {
		fi, err := os.Lstat(socket)
		if err != nil {
			t.Fatal(err)
		}
		return fi.Mode()
	}
	first, err := local.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := mode(), os.ModeSocket|0o600; got != want {
		t.Errorf("mode = %v, want %v", got, want)
	}
	first.(*net.UnixListener).SetUnlinkOnClose(false) // as after a crash
	_ = first.Close()
	second, err := local.Listen(socket)
	if err != nil {
		t.Fatalf("in place of a dead one: %v", err)
	}
	if got, want := mode(), os.ModeSocket|0o600; got != want {
		t.Errorf("mode = %v, want %v", got, want)
	}
	if third, err := local.Listen(socket); err == nil || !strings.Contains(err.Error(), "is served by another process already") {
		t.Errorf("in place of one that lives: %v, %v", third, err)
	}
	if conn, err := net.Dial("unix", socket); err != nil {
		t.Errorf("the one that lives was hurt: %v", err)
	} else {
		_ = conn.Close()
	}
	_ = second.Close()
	if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket stays after Close: %v", err)
	}
}

func TestListenRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "precious.txt")
	if err := os.WriteFile(file, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	long := filepath.Join(dir, strings.Repeat("x", 120))
	for path, want := range map[string]string{
		file:                          "precious.txt exists and is not a socket",
		dir:                           "exists and is not a socket",
		filepath.Join(dir, "no", "s"): "no such file or directory",
		filepath.Join(file, "s"):      "not a directory",
		long:                          fmt.Sprintf("a socket's path has at most 107 bytes, this one has %d", len(long)),
	} {
		if l, err := local.Listen(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Listen(%q) = %v, %v; want %q", path, l, err, want)
		}
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "data" {
		t.Errorf("the file that was no socket: %q, %v", b, err)
	}
}

func TestClientWithoutAgent(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "agent.sock")
	c := local.NewClient(socket)
	if _, err := c.Pods(t.Context()); err == nil || err.Error() != "no agent answers at "+socket+": connect: no such file or directory" {
		t.Errorf("without a socket: %v", err)
	}
	l, err := local.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close()
	if _, err := c.Pods(t.Context()); err == nil || err.Error() != "no agent answers at "+socket+": connect: connection refused" {
		t.Errorf("with a dead one: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Pods(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestLogOptionsReachTheAgentAsTheyAre(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 2*3600))
	var got []string
	socket := filepath.Join(t.TempDir(), "agent.sock")
	l, err := local.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		q, _ := json.Marshal(r.URL.Query())
		got = append(got, r.URL.Path+" "+string(q))
	})}
	go func() { _ = s.Serve(l) }()
	defer func() { _ = s.Close() }()
	for _, o := range []local.LogOptions{
		{Tail: -1},
		{Container: "a&b", Previous: true, Follow: true, Timestamps: true, Tail: 0, Since: at},
	} {
		rc, err := local.NewClient(socket).Log(t.Context(), "default", "web", o)
		if err != nil {
			t.Fatal(err)
		}
		_ = rc.Close()
	}
	want := []string{
		`/v1/pods/default/web/log {}`,
		`/v1/pods/default/web/log {"container":["a\u0026b"],"follow":["true"],"previous":["true"],"since":["2026-01-02T03:04:05.000000006+02:00"],"tail":["0"],"timestamps":["true"]}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("requests %q, want %q", got, want)
	}
}
