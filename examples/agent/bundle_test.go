package main

import (
	"io"
	"log"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/bundle"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/internal/criserver"
	nodebundle "github.com/nodewright/nodewright/nodeagent/bundle"
)

// bundleOf builds a bundle of one manifest by the command, and returns its file.
func (l *lab) bundleOf(name, manifest string, flags ...string) string {
	l.t.Helper()
	dir := l.t.TempDir()
	l.must(os.WriteFile(filepath.Join(dir, "pods.yaml"), []byte(manifest), 0o600))
	file := filepath.Join(l.t.TempDir(), name+".tar")
	cmd := l.command(l.t.Context(), append([]string{"bundle", "build", dir, "-o", file}, flags...)...)
	cmd.Args = cmd.Args[:len(cmd.Args)-2] // --root-dir, which it does not have
	if out, err := cmd.CombinedOutput(); err != nil {
		l.t.Fatalf("build %s: %v: %s", name, err, out)
	}
	return file
}

// untilBundle waits for a status of the agent's bundles.
func (l *lab) untilBundle(what string, done func(s bundle.Status) bool) bundle.Status {
	l.t.Helper()
	for end := time.Now().Add(testTimeout); ; time.Sleep(5 * time.Millisecond) {
		s, err := nodebundle.Status(l.t.Context(), l.api)
		if err == nil && done(s) {
			return s
		}
		if time.Now().After(end) {
			l.t.Fatalf("%s: %+v, %v", what, s, err)
		}
	}
}

// serveRuntime gives the lab a runtime in memory, which outlives its agents.
func (l *lab) serveRuntime() {
	l.t.Helper()
	rt := critest.New()
	rt.OfferAll()
	l.socket = filepath.Join(filepath.Dir(l.manifests), "cri.sock")
	lis, err := (&net.ListenConfig{}).Listen(l.t.Context(), "unix", l.socket)
	l.must(err)
	srv := grpc.NewServer()
	criserver.Register(srv, rt, rt, nil)
	go func() { _ = srv.Serve(lis) }()
	l.t.Cleanup(srv.Stop)
}

// A node takes a bundle of a registry. One that does not become ready is rolled back, although the
// agent is killed in its trial and when it is over, and the pod that did not change keeps running.
func TestBundleRollsBack(t *testing.T) {
	t.Parallel()
	l := bareLab(t)
	l.serveRuntime()
	srv := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer srv.Close()
	ref := strings.TrimPrefix(srv.URL, "http://") + "/fleet/shop:prod"
	push := func(file string) string {
		t.Helper()
		b, err := bundle.Open(file)
		l.must(err)
		l.must(bundle.Registry{}.Push(t.Context(), ref, b))
		return b.Digest
	}
	good := push(l.bundleOf("good", box("base", `"sleep", "forever"`)+"---\n"+box("web", `"sleep", "forever"`), "--ready-for", "1s"))
	l.args = []string{"--bundle", ref, "--bundle-interval", "5s"}
	l.start()
	l.untilBundle("the first bundle is good", func(s bundle.Status) bool { return s.Good == good && s.Next == nil })
	base := containerID(l.untilReady("base", "web")["base"], "c")

	bad := push(l.bundleOf("bad", box("base", `"sleep", "forever"`)+"---\n"+box("web", `"exit", "3"`)+"---\n"+box("new", `"sleep", "forever"`), "--healthy-within", "8s", "--ready-for", "1s"))
	l.untilBundle("the second bundle is on trial", func(s bundle.Status) bool { return s.Running() == bad })
	l.untilReady("base", "new")
	l.kill()
	l.start()
	l.untilBundle("the trial goes on", func(s bundle.Status) bool { return s.Running() == bad && s.Next.Trials == 2 })
	s := l.untilBundle("the bundle is rejected", func(s bundle.Status) bool { return s.Rejected != nil })
	if s.Running() != good || s.Rejected.Digest != bad || !strings.Contains(s.Rejected.Reason, "not healthy within 8s: web-lab: container c") {
		t.Errorf("%+v", s)
	}
	l.kill()
	l.start()
	l.untilGone("new")
	pods := l.until("the pods of the first bundle are back", func(pods map[string]*v1.Pod) bool {
		return len(pods) == 2 && pods["base"] != nil && ready(pods["base"]) && pods["web"] != nil && ready(pods["web"])
	})
	if id := containerID(pods["base"], "c"); id != base {
		t.Errorf("container of a pod that did not change: %s, before %s", id, base)
	}
	if got := l.ask("bundle", "status"); !strings.Contains(got, "Rejected") || !strings.Contains(got, bad) {
		t.Errorf("status: %s", got)
	}

	// From a file, with a wait for the result.
	file := l.bundleOf("next", box("base", `"sleep", "forever"`)+"---\n"+box("other", `"sleep", "forever"`), "--ready-for", "1s")
	if got := l.ask("bundle", "apply", file, "--wait"); !strings.Contains(got, "good sha256:") {
		t.Errorf("apply: %s", got)
	}
	if got := l.ask("bundle", "rollback"); !strings.Contains(got, "rolled back to "+good) {
		t.Errorf("rollback: %s", got)
	}
	l.untilReady("web")
	if got := l.ask("bundle", "apply", ref); !strings.Contains(got, "applied "+bad) {
		t.Errorf("apply of a rejected bundle: %s", got)
	}
}
