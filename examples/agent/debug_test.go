package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/podmeta"
)

// debuggable is an agent whose pods get ephemeral containers in the state of the test.
type debuggable struct {
	*joinable
	state v1.ContainerState

	mu    sync.Mutex
	added []v1.EphemeralContainer
}

func (d *debuggable) Debug(_ context.Context, _ *v1.Pod, r local.DebugRequest) error {
	d.add(r.Container())
	return nil
}

func (d *debuggable) add(c v1.EphemeralContainer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.added = append(d.added, c)
}

func (d *debuggable) Pods() []*v1.Pod {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.joinable.Pods()
	for _, p := range all {
		for _, c := range d.added {
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, c)
			p.Status.EphemeralContainerStatuses = append(p.Status.EphemeralContainerStatuses, v1.ContainerStatus{Name: c.Name, State: d.state})
		}
	}
	return all
}

func TestDebug(t *testing.T) {
	runs, ended := v1.ContainerState{Running: &v1.ContainerStateRunning{}}, v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 3}}
	for _, tc := range []struct {
		name, args string
		source     string // of the pod
		state      v1.ContainerState
		code       int
		out, err   string
		command    string
	}{
		{"no input", "web --image tools:1 -c dbg -- sleep 9", "file", runs, 0, "dbg\n", "", "sleep 9"},
		{"joined", "web --image tools:1 -c dbg -i --target c", "file", runs, 0, "text", "container dbg is added to pod default/web\n", ""},
		{"no terminal", "web --image tools:1 -c dbg -itq", "file", runs, 0, "text", "standard input is not a terminal: continuing without -t\n", ""},
		{"ended before it was joined", "web --image tools:1 -c dbg -iq", "file", ended, 3, "last words\n", "", ""},
		{"pod of the API", "web --image tools:1 -c dbg -- sh", "api", runs, 0, "dbg\n", "", "sh"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := testPod("default", "web")
			pod.Annotations = map[string]string{podmeta.AnnotationSource: tc.source}
			log := files(t, map[string]string{"log": "2030-01-02T03:04:05.000000000Z stdout F last words\n"})
			a := &debuggable{joinable: &joinable{fakeAgent: &fakeAgent{pods: []*v1.Pod{pod}, logs: map[string]string{"dbg": filepath.Join(log, "log")}}, reply: local.AttachReply{Stdin: true}}, state: tc.state}
			a.reply.URL = runtimeDoor(t, append([]string{"stdin"}, outputs...), func(d door) {
				d.say("stdout", "text")
				d.say("error", outcomeOf("0"))
			})
			var out, errs bytes.Buffer
			code := execute(t.Context(), stdio{in: strings.NewReader("in"), out: &out, err: &errs}, append([]string{"debug", "--root-dir", serveDebug(t, a)}, strings.Fields(tc.args)...))
			if code != tc.code || out.String() != tc.out || errs.String() != tc.err {
				t.Errorf("exit %d, %q, %q", code, out.String(), errs.String())
			}
			if len(a.added) != 1 || a.added[0].Image != "tools:1" || strings.Join(a.added[0].Command, " ") != tc.command || a.added[0].TTY {
				t.Errorf("added %+v", a.added)
			}
			if want := map[bool]string{true: "c"}[strings.Contains(tc.args, "--target")]; len(a.added) == 1 && a.added[0].TargetContainerName != want {
				t.Errorf("target %q, want %q", a.added[0].TargetContainerName, want)
			}
		})
	}
	ofCluster, gone := testPod("default", "far"), testPod("default", "gone")
	ofCluster.Annotations = map[string]string{podmeta.AnnotationSource: "api"}
	gone.Status.Phase = v1.PodFailed
	web := testPod("default", "web")
	web.Annotations = map[string]string{podmeta.AnnotationSource: "file"}
	root := serveAgent(t, &fakeAgent{pods: []*v1.Pod{ofCluster, gone, web}})
	for line, want := range map[string]string{
		"debug far --image i": "pod default/far belongs to a cluster; add the container with kubectl debug", "debug gone --image i": "pod default/gone has ended",
		"debug web": "which image? Give one with the tools with --image", "debug --image i": "which pod? Give one name", "debug none --image i": `no pod "none"`,
		"debug web --image i": "this agent adds no containers to pods",
	} {
		if _, stderr, code := ask(t, root, line); code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("agent %s: exit %d, %q; want %q", line, code, stderr, want)
		}
	}
}

// serveDebug serves an agent with a Kubernetes API that adds ephemeral containers.
func serveDebug(t *testing.T, a *debuggable) (root string) {
	t.Helper()
	root = t.TempDir()
	l, err := local.Listen(filepath.Join(root, "agent.sock"))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", local.Handler(a, nil))
	mux.HandleFunc("PATCH /api/v1/namespaces/default/pods/web/ephemeralcontainers", func(w http.ResponseWriter, r *http.Request) {
		var patch v1.Pod
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &patch)
		}
		if err != nil || r.Header.Get("Content-Type") != "application/strategic-merge-patch+json" || len(patch.Spec.EphemeralContainers) != 1 {
			t.Errorf("patch %s of type %s: %v", body, r.Header.Get("Content-Type"), err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		a.add(patch.Spec.EphemeralContainers[0])
	})
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return root
}
