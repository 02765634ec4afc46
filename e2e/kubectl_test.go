package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/internal/containerdtest"
	"github.com/nodewright/nodewright/internal/testprogram"
)

// runtimeName is what the runtime calls itself.
func runtimeName() string {
	if containerdtest.Local() {
		return "nodewright"
	}
	return "containerd"
}

// What a person does with a node through kubectl.
func TestKubectl(t *testing.T) {
	t.Parallel()
	l := newCluster(t)
	l.start()
	l.apply(pod("box", "echo first; i=0; while sleep 0.2; do i=$((i+1)); echo line $i; done"))
	l.ready(1, "")

	t.Run("the node describes itself", func(t *testing.T) {
		out := l.kubectl("get", "node", l.node, "-o", "wide")
		for _, want := range []string{"Ready", runtimeName() + "://", l.address} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
		l.until("the lease is the node's", func() error {
			out, err := l.try("get", "lease", "-n", "kube-node-lease", l.node, "-o", "jsonpath={.spec.holderIdentity} {.metadata.ownerReferences[0].kind}")
			if err == nil && out != l.node+" Node" {
				err = fmt.Errorf("it says %q", out)
			}
			return err
		})
	})
	t.Run("describe", func(t *testing.T) {
		l.until("events show", func() error {
			out, err := l.try("describe", "pod", "box")
			if err == nil && (!strings.Contains(out, "Started container main") && !strings.Contains(out, "Container started")) {
				err = fmt.Errorf("no event in\n%s", out)
			}
			return err
		})
	})
	t.Run("logs", func(t *testing.T) {
		if out := l.kubectl("logs", "box", "--limit-bytes=6"); out != "first\n" {
			t.Errorf("got %q", out)
		}
		if out := l.kubectl("logs", "box", "--tail=2"); strings.Count(out, "\n") != 2 {
			t.Errorf("got %q", out)
		}
		var got testprogram.Output
		cmd := l.cp.Kubectl(t.Context(), "logs", "-f", "box")
		cmd.Stdout, cmd.Stderr = &got, &got
		l.must(cmd.Start())
		defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
		l.until("lines follow", func() error {
			if s := got.String(); !strings.HasPrefix(s, "first\nline 1\n") || strings.Count(s, "\n") < 20 {
				return fmt.Errorf("got %q", s)
			}
			return nil
		})
	})
	t.Run("exec", func(t *testing.T) {
		if out := l.kubectl("exec", "box", "--", "sh", "-c", "echo out; echo err >&2"); !strings.Contains(out, "out\n") || !strings.Contains(out, "err\n") {
			t.Errorf("got %q", out)
		}
		_, err := l.try("exec", "box", "--", "sh", "-c", "exit 7")
		if err == nil || !strings.Contains(err.Error(), "exit code 7") {
			t.Errorf("got %v", err)
		}
		cmd := l.cp.Kubectl(t.Context(), "exec", "-i", "box", "--", "cat")
		cmd.Stdin = strings.NewReader("through and back")
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != "through and back" {
			t.Errorf("got %q, %v", out, err)
		}
		cmd = l.cp.Kubectl(t.Context(), "exec", "-it", "box", "--", "sh")
		cmd.Stdin = strings.NewReader("echo $((6*7))\nexit\n")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "42") {
			t.Errorf("got %q, %v", out, err)
		}
	})
	t.Run("attach", func(t *testing.T) {
		var got testprogram.Output
		cmd := l.cp.Kubectl(t.Context(), "attach", "box")
		cmd.Stdout, cmd.Stderr = &got, &got
		l.must(cmd.Start())
		defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
		l.until("lines come", func() error {
			if s := got.String(); strings.Count(s, "line") < 3 {
				return fmt.Errorf("got %q", s)
			}
			return nil
		})
	})
	t.Run("cp", func(t *testing.T) {
		dir := t.TempDir()
		l.must(os.WriteFile(filepath.Join(dir, "a"), []byte("copied"), 0o600))
		l.kubectl("cp", filepath.Join(dir, "a"), "box:/tmp/a")
		l.kubectl("cp", "box:/tmp/a", filepath.Join(dir, "b"))
		if b, err := os.ReadFile(filepath.Join(dir, "b")); err != nil || string(b) != "copied" {
			t.Errorf("got %q, %v", b, err)
		}
	})
	t.Run("port-forward", func(t *testing.T) {
		l.kubectl("exec", "box", "--", "sh", "-c", "echo served >/tmp/index.html; httpd -p 8080 -h /tmp")
		var got testprogram.Output
		cmd := l.cp.Kubectl(t.Context(), "port-forward", "box", ":8080")
		cmd.Stdout, cmd.Stderr = &got, &got
		l.must(cmd.Start())
		defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
		l.until("the port is there", func() error {
			_, rest, ok := strings.Cut(got.String(), "127.0.0.1:")
			if !ok {
				return fmt.Errorf("got %q", got.String())
			}
			port, _, _ := strings.Cut(rest, " ")
			res, err := http.Get("http://127.0.0.1:" + port + "/index.html")
			if err != nil {
				return err
			}
			defer func() { _ = res.Body.Close() }()
			if b, err := io.ReadAll(res.Body); err != nil || string(b) != "served\n" {
				return fmt.Errorf("got %q, %w", b, err)
			}
			return nil
		})
	})
	t.Run("figures", func(t *testing.T) {
		for path, want := range map[string]string{
			"stats/summary": `"box"`, "metrics/resource": `pod_memory_working_set_bytes{namespace="default",pod="box"}`,
			"metrics/cadvisor": `container_memory_working_set_bytes{`, "metrics": "kubelet_node_name", "pods": `"box"`,
			"configz": `"kubeletconfig"`, "healthz": "ok",
		} {
			if out := l.kubectl("get", "--raw", "/api/v1/nodes/"+l.node+"/proxy/"+path); !strings.Contains(out, want) {
				t.Errorf("%s: no %s in %.500s", path, want, out)
			}
		}
	})
	t.Run("delete", func(t *testing.T) {
		l.kubectl("delete", "pod", "box", "--timeout=180s")
		if pods, err := l.pods(""); err != nil || len(pods) > 0 {
			t.Errorf("left: %v, %v", pods, err)
		}
	})
}
