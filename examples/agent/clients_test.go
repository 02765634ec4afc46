//go:build clients

package main

import (
	"bufio"
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

// client returns a command of a program that `make clients` builds.
func (k *kubectl) client(ctx context.Context, name string, args ...string) *exec.Cmd {
	path, err := filepath.Abs(filepath.Join("..", "..", "build", "bin", name))
	k.l.must(err)
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "HOME="+filepath.Dir(k.config), "KUBECONFIG="+k.config)
	return cmd
}

// Helm installs, tests, upgrades, rolls back and removes a chart of what a node alone runs;
// what it renders can be applied.
func TestHelm(t *testing.T) {
	t.Parallel()
	l, k := withKubectl(t)
	helm := func(args string, wants ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		out, err := k.client(ctx, "helm", words(args)...).CombinedOutput()
		if err != nil {
			t.Fatalf("helm %s: %v: %s", args, err, out)
		}
		k.hasWords("helm "+args, string(out), wants)
		return string(out)
	}
	chart := " testdata/chart --set image=" + sampleimage.Testbox

	helm("install demo --wait"+chart, "STATUS: deployed")
	k.must("", words("get pod demo -o jsonpath={.status.phase}"), "Running")
	helm("test demo", "Phase:          Succeeded")
	helm("upgrade demo --wait --set color=red"+chart, "REVISION: 2")
	k.must("", words("get pod demo -o jsonpath={.metadata.labels.color}"), "red")
	k.must("", words("get configmap demo-conf -o jsonpath={.data.color}"), "red")
	helm("list", "demo", "deployed")
	helm("rollback demo 1 --wait", "Rollback was a success")
	k.must("", words("get configmap demo-conf -o jsonpath={.data.color}"), "blue")
	helm("history demo", "superseded", "Rollback to 1")
	helm("uninstall demo --wait", "uninstalled")
	l.until("the pod is gone", func(map[string]*v1.Pod) bool {
		out, err := k.try("", words("get pods,configmaps -l app=demo")...)
		return err == nil && strings.Contains(out, "No resources found")
	})

	rendered := helm("template shown --no-hooks" + chart)
	k.must(rendered, words("apply -f -"), "pod/shown created", "configmap/shown-conf created")
	k.must("", words("wait --for=condition=Ready pod/shown --timeout=300s"), "condition met")
	k.must(rendered, words("delete -f -"), `pod "shown" deleted`)
}

// A controller of controller-runtime is elected, has its cache filled, and follows pods; a
// restart of the agent is one of its API server.
func TestControllerRuntime(t *testing.T) {
	t.Parallel()
	l, k := withKubectl(t)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	cmd := k.client(ctx, "controller")
	out, err := cmd.StdoutPipe()
	l.must(err)
	log := &strings.Builder{}
	cmd.Stderr = log
	l.must(cmd.Start())
	said := bufio.NewScanner(out)
	wants := func(lines ...string) {
		t.Helper()
		missing := map[string]bool{}
		for _, line := range lines {
			missing[line] = true
		}
		for len(missing) > 0 {
			if !said.Scan() {
				t.Fatalf("the controller ended without saying %v: %v: %s", missing, cmd.Wait(), log)
			}
			t.Log("controller:", said.Text())
			line := words(said.Text())
			delete(missing, line[0]+" "+line[len(line)-1]) // whether it was made or changed is a matter of time
		}
	}
	pod := func(name string) string {
		return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, labels: {app: controlled}}, spec: {terminationGracePeriodSeconds: 1, containers: [{name: c, image: %q, args: [sleep, 1h]}]}}`,
			name, sampleimage.Testbox)
	}

	wants("synced synced")
	k.must(pod("one"), words("apply -f -"), "created")
	wants("one Running")
	k.must("", words("get configmap one -o jsonpath={.data.phase}{.metadata.ownerReferences[0].kind}"), "RunningPod")
	k.must("", words("delete configmap one"), "deleted")
	wants("one Running") // it is made again
	k.must("", words("get lease controller -o jsonpath={.spec.holderIdentity}"), "_")

	address, err := os.ReadFile(filepath.Join(l.root, "localapi", "server"))
	l.must(err)
	l.kill()
	l.args[len(l.args)-1] = "--local-api=" + strings.TrimPrefix(strings.TrimSpace(string(address)), "https://")
	l.start()
	l.await("the API is back", func() bool {
		_, err := k.try(pod("two"), words("apply -f -")...)
		return err == nil
	})
	wants("two Running")
	k.must("", words("delete pod one two"), "deleted")
	wants("one gone", "two gone")

	l.must(cmd.Process.Signal(os.Interrupt))
	for said.Scan() { // to its end
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, log)
	}
	k.must("", words("get lease controller -o jsonpath=[{.spec.holderIdentity}]"), "[]") // given back
}

// Python's client makes, watches, reads, enters and removes pods.
func TestPython(t *testing.T) {
	t.Parallel()
	_, k := withKubectl(t)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "/usr/bin/python3", "testdata/client.py", k.config, sampleimage.Testbox, "default").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "all done") {
		t.Errorf("%v: %s", err, out)
	}
}
