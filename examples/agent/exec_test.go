package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/nodewright/nodewright/agent/local"
)

func TestExecArguments(t *testing.T) {
	a := &fakeAgent{pods: []*v1.Pod{testPod("default", "web")}, execURL: "none:"}
	root := serveAgent(t, a)
	for _, tc := range []struct {
		line string
		want local.ExecRequest
	}{
		{"web -- ls -l", local.ExecRequest{Command: []string{"ls", "-l"}}},
		{"web ls", local.ExecRequest{Command: []string{"ls"}}},
		{"web ls /tmp", local.ExecRequest{Command: []string{"ls", "/tmp"}}},
		{"-c side web -- ls", local.ExecRequest{Container: "side", Command: []string{"ls"}}},
		{"web --container=side -- ls", local.ExecRequest{Container: "side", Command: []string{"ls"}}},
		{"web -- ls -c side", local.ExecRequest{Command: []string{"ls", "-c", "side"}}},
		{"-i web -- cat", local.ExecRequest{Command: []string{"cat"}, Stdin: true}},
		{"--stdin --tty web -- sh", local.ExecRequest{Command: []string{"sh"}, Stdin: true, TTY: true}},
		{"-it web -- sh", local.ExecRequest{Command: []string{"sh"}, Stdin: true, TTY: true}},
		{"web -ti -- sh", local.ExecRequest{Command: []string{"sh"}, Stdin: true, TTY: true}},
		{"-t web -- sh", local.ExecRequest{Command: []string{"sh"}, TTY: true}},
		{"-i=false web -- sh", local.ExecRequest{Command: []string{"sh"}}},
		// Only the first -- is ours.
		{"web -- env -- a", local.ExecRequest{Command: []string{"env", "--", "a"}}},
		{"web -- --", local.ExecRequest{Command: []string{"--"}}},
		{"web -- -h", local.ExecRequest{Command: []string{"-h"}}},
	} {
		a.execs = nil
		_, stderr, _ := ask(t, root, "exec "+tc.line)
		if want := tc.want; len(a.execs) != 1 {
			t.Errorf("agent exec %s: %q", tc.line, stderr)
		} else if got := a.execs[0]; got.Container != cmp.Or(want.Container, "c") || got.Stdin != want.Stdin || got.TTY != want.TTY || !slices.Equal(got.Command, want.Command) {
			t.Errorf("agent exec %s: %+v, want %+v", tc.line, got, want)
		}
	}
}

func TestExecArgumentsWrong(t *testing.T) {
	for _, tc := range []struct{ line, want string }{
		{"", "which pod? Give one name"},
		{"-- ls", "which pod? Give one name"},
		{"web", "which command? Give it after --"},
		{"web --", "which command? Give it after --"},
		{"web ls -- -l", `"ls" is before --; want one pod before --, and the command after it`},
		{"web ls -l", "unknown flag -l; agent exec --help lists the flags; flags of the command go after --"},
		{"web -x -- ls", "unknown flag -x; agent exec --help lists the flags; flags of the command go after --"},
		{"web -c", "--container: want a value after it; flags of the command go after --"},
		{"-i=x web -- ls", `--stdin="x": want true or false; flags of the command go after --`},
	} {
		if _, stderr, code := invoke(t, append([]string{"exec"}, strings.Fields(tc.line)...)...); code != 1 || stderr != "agent: "+tc.want+"\n" {
			t.Errorf("agent exec %s: exit %d, %q, want %q", tc.line, code, stderr, tc.want)
		}
	}
}

// A door is a runtime's end of a command's streams.
type door map[string]httpstream.Stream

func (d door) say(stream, text string) { _, _ = io.WriteString(d[stream], text) }

// runtimeDoor is a runtime's address, at which a command has the streams that want names.
func runtimeDoor(t *testing.T, want []string, far func(d door)) (url string) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := httpstream.Handshake(r, w, []string{protocolV4}); err != nil {
			t.Error(err)
			return
		}
		opened := make(chan httpstream.Stream, 5)
		conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
			opened <- s
			return nil
		})
		if conn == nil {
			return // it has answered
		}
		defer func() { _ = conn.Close() }()
		d := door{}
		for range want {
			s := <-opened
			d[s.Headers().Get("streamType")] = s
		}
		if got := slices.Sorted(maps.Keys(d)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			t.Errorf("streams %q, want %q", got, want)
		}
		far(d)
		for _, s := range d {
			_ = s.Close()
		}
		<-conn.CloseChan()
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// outputs are the streams of a command without standard input.
var outputs = []string{"error", "stdout", "stderr"}

func outcomeOf(code string) string {
	st := metav1.Status{Status: metav1.StatusSuccess}
	if code != "0" {
		st = metav1.Status{Status: metav1.StatusFailure, Reason: "NonZeroExitCode", Message: "it failed", Details: &metav1.StatusDetails{
			Causes: []metav1.StatusCause{{Type: "Other", Message: "x"}, {Type: "ExitCode", Message: code}},
		}}
	}
	b, _ := json.Marshal(st)
	return string(b)
}

// The command's code is the agent's own, and its output goes where it went.
func TestExecOutcome(t *testing.T) {
	for _, tc := range []struct {
		name   string
		far    func(d door)
		code   int
		stderr string
	}{
		{"success", func(d door) { d.say("error", outcomeOf("0")) }, 0, ""},
		{"code 42", func(d door) { d.say("error", outcomeOf("42")) }, 42, ""},
		{"output", func(d door) {
			d.say("stdout", "out\n")
			d.say("stderr", "bad\n")
			d.say("error", outcomeOf("7"))
		}, 7, "bad\n"},
		{"failure without a code", func(d door) { d.say("error", `{"status":"Failure","message":"no such program"}`) }, 1, "agent: exec: no such program\n"},
		{"a code that is no number", func(d door) { d.say("error", outcomeOf("much")) }, 1, "agent: exec: it failed\n"},
		{"no program", func(d door) {
			d.say("error", `{"status":"Failure","message":"rpc error: exec failed: unable to start container process: exec: \"nosuch\": executable file not found in $PATH"}`)
		}, 127, "agent: exec: \"nosuch\": executable file not found in $PATH\n"},
		{"a directory", func(d door) {
			d.say("error", `{"status":"Failure","message":"exec failed: unable to start container process: exec: \"/etc\": is a directory"}`)
		}, 126, "agent: exec: \"/etc\": is a directory\n"},
		{"no JSON", func(d door) { d.say("error", "container is gone") }, 1, "agent: exec: container is gone\n"},
		{"closed without an outcome", func(door) {}, 1, "agent: exec: the runtime did not report how the command ended\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := &fakeAgent{pods: []*v1.Pod{testPod("default", "web-edge")}, execURL: runtimeDoor(t, outputs, tc.far)}
			stdout, stderr, code := ask(t, serveAgent(t, a), "exec web -- ls -l")
			if code != tc.code || stderr != tc.stderr || (stdout == "out\n") != (tc.name == "output") {
				t.Errorf("exit %d, stdout %q, stderr %q; want %d, %q", code, stdout, stderr, tc.code, tc.stderr)
			}
			if len(a.execs) != 1 || a.execs[0].Container != "c" || !slices.Equal(a.execs[0].Command, []string{"ls", "-l"}) || a.execs[0].Stdin {
				t.Errorf("the agent was asked %+v", a.execs)
			}
		})
	}
}

func TestExecRefused(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for _, tc := range []struct{ url, want string }{
		{srv.URL, "exec: the runtime answered 404 Not Found"},
		{gone.URL, "connection refused"},
		{"http://[", "exec: parse"},
	} {
		err := stream(t.Context(), tc.url, discard(), streams{what: "exec"})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.url, err, tc.want)
		}
	}
}

// What is typed arrives, and so does its end.
func TestExecStdin(t *testing.T) {
	text := strings.Repeat("hello\n", 50_000)
	u := runtimeDoor(t, append([]string{"stdin"}, outputs...), func(d door) {
		got, err := io.ReadAll(d["stdin"])
		if err != nil || string(got) != text {
			t.Errorf("the command read %d bytes, %v; want %d", len(got), err, len(text))
		}
		d.say("error", outcomeOf("0"))
	})
	std := discard()
	std.in = strings.NewReader(text)
	if err := stream(t.Context(), u, std, streams{what: "exec", stdin: true}); err != nil {
		t.Error(err)
	}
}

// The agent's own runtime serves its streams on a socket.
func TestExecOverASocket(t *testing.T) {
	at, err := url.Parse(runtimeDoor(t, outputs, func(d door) { d.say("error", outcomeOf("3")) }))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "exec") // the test's own may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "streams")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: httputil.NewSingleHostReverseProxy(at)}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	var code exitError
	if err := stream(t.Context(), "unix://"+socket+"/exec/token", discard(), streams{what: "exec"}); !errors.As(err, &code) || code != 3 {
		t.Errorf("%v, want exit code 3", err)
	}
}

func TestExecInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	u := runtimeDoor(t, outputs, func(d door) {
		cancel()
		_, _ = io.ReadAll(d["stdout"]) // until the client has gone
	})
	err := stream(ctx, u, discard(), streams{what: "exec"})
	if err == nil || !strings.Contains(err.Error(), "interrupted; the command may still be running") {
		t.Errorf("error %v", err)
	}
}
