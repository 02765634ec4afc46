package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// A node that knows nothing but how to ask for a certificate.
func TestBootstrap(t *testing.T) {
	t.Parallel()
	l := newCluster(t)
	kubeconfig := filepath.Join(l.dir, "node.kubeconfig")
	l.config = "rotateCertificates: true\nserverTLSBootstrap: true\n"
	flags := []string{"--kubeconfig", kubeconfig, "--bootstrap-kubeconfig", l.bootstrap()}
	l.start(flags...)
	if _, err := os.Stat(kubeconfig); err != nil {
		t.Error(err)
	}
	l.until("the serving certificate is asked for", func() error {
		names, err := l.try("get", "csr", "-o", `jsonpath={range .items[?(@.spec.signerName=="kubernetes.io/kubelet-serving")]}{.metadata.name}{" "}{end}`)
		if err == nil && names == "" {
			err = errors.New("none")
		}
		if err == nil {
			_, err = l.try(append([]string{"certificate", "approve"}, strings.Fields(names)...)...)
		}
		return err
	})
	l.until("it is served with", func() error {
		_, err := l.try("get", "--raw", "/api/v1/nodes/"+l.node+"/proxy/healthz")
		return err
	})
	l.stopAgent()
	l.start("--kubeconfig", kubeconfig)
}

func TestWorkloads(t *testing.T) {
	t.Parallel()
	l := newCluster(t)
	l.must(os.WriteFile(filepath.Join(l.dir, "manifests", "static.yaml"), []byte(pod("static", forever)), 0o600))
	l.start()

	t.Run("a deployment", func(t *testing.T) {
		l.apply(fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 2
      containers: [{name: main, image: %q, imagePullPolicy: Never, command: [sh, -c, %q]}]
`, busybox, forever))
		l.ready(3, "app=web")
		l.kubectl("scale", "deployment", "web", "--replicas=1")
		l.ready(1, "app=web")
		l.kubectl("delete", "deployment", "web", "--cascade=foreground", "--timeout=180s")
	})
	t.Run("a static pod's mirror", func(t *testing.T) {
		name := "static-" + l.node
		p := l.ready(1, "app=static")[name]
		if p == nil || p.Annotations["kubernetes.io/config.mirror"] == "" {
			t.Fatalf("got %+v", p)
		}
		l.kubectl("delete", "pod", name, "--force", "--grace-period=0")
		again := l.ready(1, "app=static")[name]
		if again.UID == p.UID || again.Status.ContainerStatuses[0].ContainerID != p.Status.ContainerStatuses[0].ContainerID {
			t.Errorf("the pod was touched: %+v", again.Status)
		}
		l.must(os.Remove(filepath.Join(l.dir, "manifests", "static.yaml")))
		l.until("the mirror goes", func() error {
			pods, err := l.pods("app=static")
			if err == nil && len(pods) > 0 {
				err = errors.New("it is there")
			}
			return err
		})
	})
	t.Run("configMap, secret, token, environment", func(t *testing.T) {
		l.kubectl("create", "configmap", "conf", "--from-literal=key=one")
		l.kubectl("create", "secret", "generic", "sec", "--from-literal=key=hidden")
		l.apply(fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: vol}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: conf, configMap: {name: conf}}]
  containers:
  - name: main
    image: %q
    imagePullPolicy: Never
    command: [sh, -c, %q]
    env: [{name: SECRET, valueFrom: {secretKeyRef: {name: sec, key: key}}}]
    volumeMounts: [{name: conf, mountPath: /conf}]
`, busybox, forever))
		l.ready(1, "")
		out := l.kubectl("exec", "vol", "--", "sh", "-c",
			"cat /conf/key; echo; env; cat /var/run/secrets/kubernetes.io/serviceaccount/namespace; head -c 3 /var/run/secrets/kubernetes.io/serviceaccount/token")
		for _, want := range []string{"one\n", "SECRET=hidden", "KUBERNETES_SERVICE_HOST=10.0.0.1", "defaulteyJ"} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in %q", want, out)
			}
		}
		l.kubectl("patch", "configmap", "conf", "-p", `{"data":{"key":"two"}}`)
		l.until("the change shows inside", func() error {
			out, err := l.try("exec", "vol", "--", "cat", "/conf/key")
			if err == nil && out != "two" {
				err = fmt.Errorf("got %q", out)
			}
			return err
		})
		l.kubectl("delete", "pod", "vol", "--timeout=180s")
	})
	t.Run("drain and taints", func(t *testing.T) {
		l.apply(pod("drained", forever))
		l.ready(1, "")
		l.kubectl("drain", l.node, "--force", "--timeout=180s")
		if pods, err := l.pods(""); err != nil || len(pods) > 0 {
			t.Errorf("left: %v, %v", pods, err)
		}
		l.kubectl("uncordon", l.node)
		l.apply(pod("tainted", forever))
		l.ready(1, "")
		l.kubectl("taint", "node", l.node, "e2e=x:NoExecute")
		l.until("the taint evicts", func() error {
			pods, err := l.pods("")
			if err == nil && len(pods) > 0 {
				err = errors.New("it is there")
			}
			return err
		})
		l.kubectl("taint", "node", l.node, "e2e-")
	})
	t.Run("a job comes to its end", func(t *testing.T) {
		l.apply(strings.Replace(pod("job", "echo done"), "spec:\n", "spec:\n  restartPolicy: Never\n", 1))
		l.until("it has succeeded", func() error {
			pods, err := l.pods("")
			if err == nil && (pods["job"] == nil || pods["job"].Status.Phase != v1.PodSucceeded) {
				err = fmt.Errorf("got %+v", pods["job"])
			}
			return err
		})
		l.kubectl("delete", "pod", "job", "--timeout=180s")
	})
}
