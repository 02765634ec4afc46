package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/sampleimage"
)

// kubectl is a client of a lab's own API.
type kubectl struct {
	l      *lab
	config string
}

// program is kubectl: $KUBECTL, such as one of an older release, or as the end-to-end
// tests build it, or as the machine has it.
func program(t *testing.T) []string {
	t.Helper()
	if path := os.Getenv("KUBECTL"); path != "" {
		return []string{path}
	}
	built, err := filepath.Abs("../../build/bin/cluster")
	if err == nil {
		if _, err := os.Stat(built); err == nil {
			return []string{built, "kubectl"}
		}
	}
	path, err := exec.LookPath("kubectl")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("there is no kubectl: make e2e builds one, as build/bin/cluster")
		}
		t.Skip("there is no kubectl: make e2e builds one, as build/bin/cluster")
	}
	return []string{path}
}

// kubectl returns a client of the lab's agent, which has been started.
func (l *lab) kubectl() *kubectl {
	l.t.Helper()
	k := &kubectl{l: l, config: filepath.Join(filepath.Dir(l.root), "kubeconfig")}
	l.await("the address of the API", func() bool {
		_, err := os.Stat(filepath.Join(l.root, "localapi", "server"))
		return err == nil
	})
	l.must(os.WriteFile(k.config, []byte(l.ask("kubeconfig")), 0o600))
	return k
}

// withKubectl is a lab whose agent serves its own API by TLS, and a client of it.
func withKubectl(t *testing.T) (*lab, *kubectl) {
	t.Helper()
	l := newLab(t)
	l.args = append(l.args, "--local-api=127.0.0.1:0")
	l.start()
	return l, l.kubectl()
}

func (k *kubectl) command(ctx context.Context, args ...string) *exec.Cmd {
	p := program(k.l.t.(*testing.T))
	cmd := exec.CommandContext(ctx, p[0], append(append(p[1:], "--kubeconfig", k.config), args...)...)
	cmd.Env = append(os.Environ(), "HOME="+filepath.Dir(k.config), "KUBE_EDITOR=sed -i s/tier:.web/tier:\\ edited/")
	return cmd
}

func (k *kubectl) try(stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(k.l.t.Context(), testTimeout)
	defer cancel()
	cmd := k.command(ctx, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// must returns what kubectl says, which has to have some words.
func (k *kubectl) must(stdin string, args []string, wants ...string) string {
	k.l.t.Helper()
	out, err := k.try(stdin, args...)
	if err != nil {
		k.l.t.Fatal(err)
	}
	k.hasWords("kubectl "+strings.Join(args, " "), out, wants)
	return out
}

// hasWords reports the words that are missing in what a command says.
func (k *kubectl) hasWords(command, out string, wants []string) {
	k.l.t.Helper()
	for _, w := range wants {
		if !strings.Contains(out, w) {
			k.l.t.Errorf("%s: no %q in\n%s", command, w, out)
		}
	}
}

func words(s string) []string { return strings.Fields(s) }

// A person uses a machine with an agent like a cluster of one.
func TestLocalAPI(t *testing.T) {
	t.Parallel()
	l, k := withKubectl(t)
	manifest := fmt.Sprintf(`apiVersion: v1
kind: ConfigMap
metadata: {name: conf}
data: {color: blue}
---
apiVersion: v1
kind: Pod
metadata: {name: box, labels: {app: box}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: %q
    args: ["env", ".", "sleep", "1h"]
    env: [{name: COLOR, valueFrom: {configMapKeyRef: {name: conf, key: color}}}]
`, sampleimage.Testbox)
	k.must(manifest, words("apply -f -"), "configmap/conf created", "pod/box created")
	k.must("", words("wait --for=condition=Ready pod/box --timeout=300s"), "condition met")
	k.must("", words("get pods -o wide"), "box", "1/1", "Running", "lab")
	k.must("", words("describe pod box"), "Started", "COLOR", "Node:", "lab")
	l.until("the log has the color", func(map[string]*v1.Pod) bool { // a container is ready before its program has written anything
		return strings.Contains(k.must("", words("logs box")), "COLOR=blue")
	})
	k.must("", words("get events"), "pod/box", "Started")
	k.must("", words("get nodes"), "lab", "Ready")
	k.must("", words("describe node lab"), "Capacity", "box")
	k.must("", words("get ns"), "default")
	k.must("", words("explain pod.spec.containers"), "FIELDS")
	k.must(manifest, words("apply -f -"), "configmap/conf unchanged", "pod/box unchanged")
	if out, err := k.try(strings.Replace(manifest, "blue", "red", 1), words("diff -f -")...); err == nil || !strings.Contains(out, "+  color: red") {
		t.Errorf("diff: %v: %s", err, out)
	}
	k.must(strings.Replace(manifest, "blue", "red", 1), words("apply --server-side --force-conflicts -f -"), "serverside-applied")
	k.must("", words("label pod box tier=web"), "labeled")
	k.must("", words("annotate node lab note=here"), "annotated")
	if out, err := k.try("", "create", "deployment", "web", "--image=x"); err == nil || !strings.Contains(out, "apply the pod itself") {
		t.Errorf("a deployment: %v: %s", err, out)
	}
	file, err := os.ReadFile(filepath.Join(l.manifests, "api", "pod.default.box.yaml"))
	if err != nil || !strings.HasPrefix(string(file), "# Written by kubectl") {
		t.Errorf("%v: %s", err, file)
	}

	t.Run("streams", func(t *testing.T) {
		k.must("", words("exec box -- /testbox env ."), "COLOR=blue")
		if out := k.must("", words("logs box --tail=1 --timestamps")); !strings.Contains(out, "T") {
			t.Errorf("%s", out)
		}
	})
	t.Run("a restart", func(t *testing.T) {
		id := k.must("", words("get pod box -o jsonpath={.metadata.uid}{.status.containerStatuses[0].containerID}{.status.startTime}"))
		l.kill()
		l.start()
		l.must(os.WriteFile(k.config, []byte(l.ask("kubeconfig")), 0o600))
		l.until("the pod is ready again", func(map[string]*v1.Pod) bool {
			out, err := k.try("", words("get pod box -o jsonpath={.metadata.uid}{.status.containerStatuses[0].containerID}{.status.startTime}")...)
			return err == nil && out == id
		})
	})
	t.Run("the end", func(t *testing.T) {
		k.must("", words("cordon lab"), "cordoned")
		k.must("", words("drain lab --force --timeout=300s"), "drained")
		k.must("", words("get pods"), "No resources found")
		k.must("", words("uncordon lab"), "uncordoned")
		if s := l.sandboxes(); len(s) != 0 {
			t.Errorf("%d sandboxes are left", len(s))
		}
	})
}
