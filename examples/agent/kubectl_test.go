package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/sampleimage"
	"github.com/nodewright/nodewright/internal/testprogram"
)

// shell is an image with a shell and what kubectl cp and port-forward want.
const shell = "localhost/shell:1"

// withShell makes the machine's busybox an image of the lab.
func (l *lab) withShell() {
	l.t.Helper()
	binary := testprogram.Busybox(l.t)
	files := []sampleimage.File{{Path: "/bin/busybox", Mode: 0o755, Data: binary}, {Path: "/tmp/", Mode: 0o1777}, {Path: "/www/index.html", Mode: 0o644, Data: []byte("hello\n")}}
	for _, name := range []string{"sh", "tar", "cat", "sleep", "httpd", "ps"} {
		files = append(files, sampleimage.File{Path: "/bin/" + name, Link: "busybox"})
	}
	l.addImage(shell, files...)
}

// What people do with kubectl beside applying files works with the agent alone.
func TestKubectlSession(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.withShell()
	l.args = append(l.args, "--local-api=127.0.0.1:0")
	l.start()
	k := l.kubectl()
	k.must(fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: box, labels: {app: box, tier: web}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: %s
    imagePullPolicy: Never
    command: [/bin/httpd, -f, -p, "8080", -h, /www]
    env: [{name: PATH, value: /bin}]
    resources: {requests: {cpu: 100m}}
`, shell), words("apply -f -"), "pod/box created")
	k.must("", words("wait --for=condition=Ready pod/box --timeout=300s"), "condition met")

	t.Run("who may what", func(t *testing.T) {
		k.must("", words("auth whoami"), "nodewright:admin")
		k.must("", words("auth can-i create pods"), "yes")
		k.must("", words("auth can-i --list"), "pods")
		l.must(os.WriteFile(k.config+".view", []byte(l.ask("kubeconfig", "--group", "view", "--user", "ann")), 0o600))
		viewer := &kubectl{l: l, config: k.config + ".view"}
		if out, err := viewer.try("", words("auth can-i create pods")...); err == nil || !strings.Contains(out, "no") {
			t.Errorf("a viewer: %v: %s", err, out)
		}
		viewer.must("", words("get pods"), "box")
		if out, err := viewer.try("", words("delete pod box")...); err == nil || !strings.Contains(out, "forbidden") {
			t.Errorf("a viewer: %v: %s", err, out)
		}
	})
	t.Run("cp", func(t *testing.T) {
		dir := t.TempDir()
		content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
		l.must(os.WriteFile(filepath.Join(dir, "there"), content, 0o600))
		k.must("", []string{"cp", filepath.Join(dir, "there"), "box:/tmp/there"})
		k.must("", []string{"cp", "box:/tmp/there", filepath.Join(dir, "back")})
		if back, err := os.ReadFile(filepath.Join(dir, "back")); err != nil || !bytes.Equal(back, content) {
			t.Errorf("%d bytes came back of %d: %v", len(back), len(content), err)
		}
	})
	t.Run("exec", func(t *testing.T) {
		k.must("typed\n", words("exec -i box -- cat"), "typed")
		if _, err := k.try("", words("exec box -- sh -c")...); err == nil {
			t.Error("a command that fails is said to succeed")
		}
	})
	t.Run("port-forward", func(t *testing.T) { k.forwards("box", 8080, "hello\n") })
	t.Run("edit", func(t *testing.T) {
		k.must("", words("edit pod box"), "edited")
		k.must("", words("get pod box -o jsonpath={.metadata.labels.tier}"), "edited")
	})
	t.Run("debug", func(t *testing.T) {
		k.must("", words("debug box --image="+shell+" --image-pull-policy=Never --container=dbg --target=c -- /bin/sleep 1000"))
		l.until("the debugger runs", func(map[string]*v1.Pod) bool {
			out, err := k.try("", words("get pod box -o jsonpath={.status.ephemeralContainerStatuses[0].state.running.startedAt}")...)
			return err == nil && out != ""
		})
		k.must("", words("exec box -c dbg -- ps"), "httpd") // the namespace of its target
	})
	t.Run("resize", func(t *testing.T) {
		k.must("", []string{"patch", "pod", "box", "--subresource", "resize", "-p", `{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"150m"}}}]}}`}, "patched")
		l.until("the pod has its resources", func(map[string]*v1.Pod) bool {
			out, err := k.try("", words("get pod box -o jsonpath={.status.containerStatuses[0].resources.requests.cpu}")...)
			return err == nil && out == "150m"
		})
		k.must("", words("get pod box -o jsonpath={.status.containerStatuses[0].restartCount}"), "0")
	})
	t.Run("top", func(t *testing.T) {
		l.until("there are figures", func(map[string]*v1.Pod) bool {
			out, err := k.try("", words("top pod box --containers")...)
			return err == nil && strings.Contains(out, "Mi")
		})
		k.must("", words("top node"), "lab", "%")
	})
	t.Run("get -w", func(t *testing.T) { k.watches() })
	t.Run("the rest", func(t *testing.T) {
		k.must("", words("run once --image="+shell+" --image-pull-policy=Never --restart=Never --command -- /bin/busybox true"), "created")
		k.must("", words("wait --for=jsonpath={.status.phase}=Succeeded pod/once --timeout=300s"), "condition met")
		k.must("", words("create configmap c --from-literal=a=b"), "created")
		k.must("", words("create secret generic s --from-literal=a=b"), "created")
		k.must("", words("get pods,cm,secrets -l app!=none --show-labels"), "configmap/c", "secret/s")
		k.must("", words("api-resources"), "resourceclaims", "PodMetrics")
		k.must("", words("delete pod,cm,secret --all"), "deleted")
	})
}

// forwards reaches a port of a pod through kubectl.
func (k *kubectl) forwards(pod string, port int, want string) {
	k.l.t.Helper()
	ctx, cancel := context.WithTimeout(k.l.t.Context(), testTimeout)
	defer cancel()
	cmd := k.command(ctx, "port-forward", "pod/"+pod, fmt.Sprintf(":%d", port))
	out, err := cmd.StdoutPipe()
	k.l.must(err)
	k.l.must(cmd.Start())
	defer func() { _ = cmd.Wait() }()
	defer cancel()
	line, err := bufio.NewReader(out).ReadString('\n')
	k.l.must(err)
	m := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(line)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m+"/", nil)
	k.l.must(err)
	resp, err := http.DefaultClient.Do(req)
	k.l.must(err)
	defer func() { _ = resp.Body.Close() }()
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != want {
		k.l.t.Errorf("%v: %q, want %q", err, body, want)
	}
}

// watches has kubectl show a change when it comes.
func (k *kubectl) watches() {
	k.l.t.Helper()
	ctx, cancel := context.WithTimeout(k.l.t.Context(), testTimeout)
	defer cancel()
	cmd := k.command(ctx, "get", "pods", "-w", "-o", "jsonpath={.metadata.labels.seen}{\"\\n\"}", "--field-selector=metadata.name=box")
	out, err := cmd.StdoutPipe()
	k.l.must(err)
	k.l.must(cmd.Start())
	defer func() { _ = cmd.Wait() }()
	defer cancel()
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		k.l.t.Fatal("kubectl get -w ends")
	}
	k.must("", words("label pod box seen=now"), "labeled")
	for lines.Scan() {
		if lines.Text() == "now" {
			return
		}
	}
	k.l.t.Error("kubectl get -w does not show the label")
}
