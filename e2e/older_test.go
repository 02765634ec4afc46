//go:build older

package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/e2e/controlplane"
)

// A node may be of the API server's minor or up to three older ones; this one is
// newer, too: a machine that is updated before its cluster keeps its pods.
func TestControlPlanes(t *testing.T) {
	for _, minor := range []string{"1.34", "1.35", "1.36", "1.37"} {
		t.Run(minor, func(t *testing.T) {
			o := controlplane.Options{}
			if minor != "1.37" {
				o.Older = program(t, "controlplane-"+minor)
			}
			l := clusterOf(t, o)
			var version struct{ GitVersion, Major, Minor string }
			l.must(l.get("/version", &version))
			t.Logf("API server %s %s.%s", version.GitVersion, version.Major, version.Minor)
			l.start()
			l.life()
		})
	}
}

// life is that of a pod, from its making to its end.
func (l *cluster) life() {
	t := l.t
	t.Helper()
	begun := time.Now()
	l.until("the lease is renewed", func() error {
		out, err := l.try("get", "lease", "-n", "kube-node-lease", l.node, "-o", "jsonpath={.spec.holderIdentity} {.spec.renewTime}")
		if err == nil && (!strings.HasPrefix(out, l.node+" ") || len(out) < len(l.node)+10) {
			err = fmt.Errorf("it says %q", out)
		}
		return err
	})
	var n v1.Node
	l.must(l.get("/api/v1/nodes/"+l.node, &n))
	if !strings.HasPrefix(n.Status.NodeInfo.KubeletVersion, "v1.37.") || n.Status.Capacity.Cpu().IsZero() || n.Status.Allocatable.Memory().IsZero() {
		t.Errorf("node status: %+v", n.Status)
	}
	l.apply(fmt.Sprintf(`apiVersion: v1
kind: ConfigMap
metadata: {name: words}
data: {greeting: hello}
---
apiVersion: v1
kind: Pod
metadata: {name: life, labels: {app: life}}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - name: main
    image: %q
    imagePullPolicy: Never
    command: [sh, -c, %q]
    env: [{name: GREETING, valueFrom: {configMapKeyRef: {name: words, key: greeting}}}]
    resources: {requests: {cpu: 50m, memory: 32Mi}, limits: {cpu: 100m, memory: 64Mi}}
    readinessProbe: {exec: {command: [cat, /tmp/ready]}, periodSeconds: 1}
`, busybox, "echo $GREETING from $HOSTNAME; ls /var/run/secrets/kubernetes.io/serviceaccount; "+forever))
	l.until("the pod runs and is not ready", func() error {
		p, err := l.pods("app=life")
		if err != nil {
			return err
		}
		if p["life"] == nil || p["life"].Status.Phase != v1.PodRunning {
			return fmt.Errorf("it is %v", p["life"])
		}
		if isReady(p["life"]) {
			t.Fatal("ready before its probe could succeed")
		}
		return nil
	})
	l.until("logs", func() error {
		out, err := l.try("logs", "life")
		if err == nil && (!strings.Contains(out, "hello from") || !strings.Contains(out, "token")) {
			err = fmt.Errorf("got %q", out)
		}
		return err
	})
	l.kubectl("exec", "life", "--", "touch", "/tmp/ready")
	before := l.ready(1, "app=life")["life"]

	l.kubectl("patch", "pod", "life", "--subresource=resize", "--patch",
		`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"70m"},"limits":{"cpu":"140m"}}}]}}`)
	l.until("the pod is resized", func() error {
		p, err := l.pods("app=life")
		if err != nil {
			return err
		}
		s := p["life"].Status.ContainerStatuses[0]
		if s.Resources == nil || s.Resources.Limits.Cpu().String() != "140m" || s.AllocatedResources.Cpu().String() != "70m" {
			return fmt.Errorf("%+v", s)
		}
		if s.RestartCount != 0 || s.ContainerID != before.Status.ContainerStatuses[0].ContainerID {
			t.Fatalf("restarted by a resize: %+v", s)
		}
		return nil
	})
	l.killAgent()
	l.start()
	if s := l.ready(1, "app=life")["life"].Status.ContainerStatuses[0]; s.RestartCount != 0 || s.ContainerID != before.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("restarted with the agent: %+v", s)
	}
	out, err := l.try("get", "events", "--field-selector", "involvedObject.name=life", "-o", "jsonpath={.items[*].reason}")
	if err != nil || !strings.Contains(out, "Started") {
		t.Errorf("events %q: %v", out, err)
	}
	l.kubectl("delete", "pod", "life", "--timeout=60s")
	t.Logf("a pod's life took %v", time.Since(begun).Round(100*time.Millisecond))
}
