package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/server"
	"github.com/nodewright/nodewright/server/internal/runtimetest"
)

// apiServer is as much of an API server as kubectl needs to reach a node: it
// knows one pod, and turns the paths and parameters of pods' subresources into
// the node's. The node answers kubectl's upgrade itself.
func apiServer(t *testing.T, node http.Handler) string {
	t.Helper()
	pod := webPod()
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	pod.Status.Phase = v1.PodRunning
	reply := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	resources := metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "v1",
		APIResources: []metav1.APIResource{{Name: "pods", SingularName: "pod", Namespaced: true, Kind: "Pod", Verbs: metav1.Verbs{"get", "list"}}},
	}
	const base = "/api/v1/namespaces/default/pods/web"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q, to := url.Values{}, r.Clone(r.Context())
		switch r.URL.Path {
		case "/api":
			reply(w, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
			return
		case "/apis":
			reply(w, metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}})
			return
		case "/api/v1":
			reply(w, resources)
			return
		case base:
			reply(w, pod)
			return
		case base + "/log":
			to.URL.Path = "/containerLogs/default/web/c"
			q = r.URL.Query()
		case base + "/exec", base + "/attach":
			to.URL.Path = "/" + strings.TrimPrefix(r.URL.Path, base+"/") + "/default/web/c"
			for from, name := range map[string]string{"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"} {
				if r.URL.Query().Get(from) == "true" {
					q.Set(name, "1")
				}
			}
			q["command"] = r.URL.Query()["command"]
		case base + "/portforward":
			to.URL.Path = "/portForward/default/web"
		default:
			http.NotFound(w, r)
			return
		}
		to.URL.RawQuery = q.Encode()
		node.ServeHTTP(w, to)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// kubectl itself, with both of its protocols.
func TestKubectl(t *testing.T) {
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("no kubectl in PATH")
	}
	rt := runtimetest.New()
	t.Cleanup(rt.Close)
	c := withLog(t)
	fake := &runtime{url: rt.Stream("exec", "stdin=1&stderr=1")}
	c.Runtime, c.Instances = fake, fake
	s, err := server.New(c)
	if err != nil {
		t.Fatal(err)
	}
	api := apiServer(t, s.Handler())
	home := t.TempDir()
	command := func(ctx context.Context, sockets bool, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, kubectl, append([]string{"--server=" + api}, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+home, "KUBECONFIG="+filepath.Join(home, "none"), fmt.Sprintf("KUBECTL_REMOTE_COMMAND_WEBSOCKETS=%v", sockets), fmt.Sprintf("KUBECTL_PORT_FORWARD_WEBSOCKETS=%v", sockets))
		cmd.WaitDelay = time.Second
		return cmd
	}
	for _, sockets := range []bool{false, true} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := command(ctx, sockets, "exec", "-i", "web", "-c", "c", "--", "cat")
		cmd.Stdin = strings.NewReader("hello")
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil || out.String() != "hello" || errs.String() != "bye" {
			t.Errorf("exec over WebSocket %v: %q, %q, %v", sockets, &out, &errs, err)
		}
		portForward(t, command(ctx, sockets, "port-forward", "pod/web", ":80"), fake, rt, sockets)
		fake.leadTo(rt.Stream("exec", "stdin=1&stderr=1"))
	}
	if n := len(rt.Headers()); n < 4 {
		t.Errorf("the runtime was reached %d times, want twice each", n)
	}
	rt.End(runtimetest.Failure)
	for _, sockets := range []bool{false, true} {
		cmd := command(t.Context(), sockets, "exec", "-i", "web", "-c", "c", "--", "cat")
		cmd.Stdin = strings.NewReader("")
		err := cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != 3 {
			t.Errorf("exit code over WebSocket %v: %d, %v; want 3", sockets, code, err)
		}
	}
	b, err := command(t.Context(), true, "logs", "web", "-c", "c", "--tail=2", "--timestamps").CombinedOutput()
	if want := "2026-01-02T03:04:02Z two\n2026-01-02T03:04:03Z three\n"; err != nil || string(b) != want {
		t.Errorf("logs: %q, %v; want %q", b, err, want)
	}
}

// portForward sends something through a forwarded port and gets it back.
func portForward(t *testing.T, cmd *exec.Cmd, fake *runtime, rt *runtimetest.Server, sockets bool) {
	t.Helper()
	fake.leadTo(rt.Stream("portforward", ""))
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	var port int
	if _, err := fmt.Fscanf(pipe, "Forwarding from 127.0.0.1:%d -> 80", &port); err != nil {
		t.Errorf("port-forward over WebSocket %v: %v", sockets, err)
		return
	}
	go func() { _, _ = io.Copy(io.Discard, pipe) }()
	conn, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", port))
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "hello")
	_ = conn.(*net.TCPConn).CloseWrite()
	_ = conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
	if b, err := io.ReadAll(conn); err != nil || string(b) != "80:hello" {
		t.Errorf("port-forward over WebSocket %v: %q, %v", sockets, b, err)
	}
}
