//go:build ecosystem

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// drivers are the tests with programs that drive a node.
var drivers = []ecosystemTest{
	{"kustomize", []string{"kustomize"}, everywhere, kustomize},
	{"flux-ssa", []string{"flux"}, everywhere, fluxSSA},
	{"ansible", []string{"ansible-playbook"}, everywhere, ansible},
	{"podman-kube", []string{"podman"}, everywhere, podmanKube},
	{"kompose-pod", []string{"kompose"}, everywhere, komposePod},
	{"kompose", []string{"kompose"}, inCluster, kompose},
	{"virtual-kubelet", []string{"virtualkubelet", "virtualkubelet-e2e"}, inCluster, virtualKubelet},
}

// files writes files into the test's directory.
func (s *ecosystemRun) files(all map[string]string) {
	s.Helper()
	for name, text := range all {
		s.ok(os.MkdirAll(filepath.Dir(filepath.Join(s.dir, name)), 0o755))
		s.ok(os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600))
	}
}

// A base and an overlay with a generated ConfigMap are built by kustomize, and applied by the
// server; without the ConfigMap, the next apply prunes it.
func kustomize(s *ecosystemRun) {
	s.files(map[string]string{
		"base/kustomization.yaml": "resources: [pod.yaml]\nconfigMapGenerator: [{name: conf, literals: [color=blue]}]\n",
		"base/pod.yaml":           strings.Replace(pod("web", "echo color $COLOR; "+forever), "imagePullPolicy: Never,", "imagePullPolicy: Never, env: [{name: COLOR, valueFrom: {configMapKeyRef: {name: conf, key: color}}}],", 1),
		"over/kustomization.yaml": "resources: [../base]\nnamePrefix: over-\nlabels: [{pairs: {team: a}, includeSelectors: false}]\nconfigMapGenerator: [{name: conf, behavior: merge, literals: [color=red]}]\n",
	})
	for dir, want := range map[string]string{"base": "blue", "over": "red"} {
		built := s.runs("kustomize", "build", filepath.Join(s.dir, dir))
		s.apply(built, "--server-side", "--field-manager=kustomize")
		s.apply(built, "--server-side", "--field-manager=kustomize") // changes nothing
		name := map[string]string{"base": "web", "over": "over-web"}[dir]
		s.says("the pod has its ConfigMap", func() (string, error) { return s.try("logs", name) }, "color "+want)
	}
	if out := s.do("get", "pod", "over-web", "-o", "jsonpath={.metadata.labels.team} {.metadata.managedFields[*].manager}"); !strings.HasPrefix(out, "a kustomize") {
		s.Errorf("label and managers: %q", out)
	}
}

// Flux applies, waits, finds drift, corrects it, and deletes.
func fluxSSA(s *ecosystemRun) {
	manifests := filepath.Join(s.dir, "manifests.yaml")
	text := strings.Replace(pod("web", forever), "metadata: {", "metadata: {namespace: "+s.namespace+", ", 1) +
		"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf, namespace: " + s.namespace + "}\ndata: {color: blue}\n"
	s.files(map[string]string{"manifests.yaml": text})
	flux := func(verb string) string {
		s.Helper()
		return s.runs("flux", "-kubeconfig", s.kubeconfig, "-manifests", manifests, verb)
	}
	wants := func(what, got string, words ...string) {
		s.Helper()
		for _, w := range words {
			if !strings.Contains(got, w) {
				s.Errorf("%s: no %q in %q", what, w, got)
			}
		}
	}
	at := "/" + s.namespace + "/"
	wants("the first apply", flux("apply"), "created Pod"+at+"web", "created ConfigMap"+at+"conf")
	wants("the second apply", flux("apply"), "unchanged Pod"+at+"web", "unchanged ConfigMap"+at+"conf")
	s.do("patch", "configmap", "conf", "-p", `{"data": {"color": "red"}}`)
	wants("the drift", flux("diff"), "unchanged Pod"+at+"web", "configured ConfigMap"+at+"conf")
	wants("the correction", flux("apply"), "configured ConfigMap"+at+"conf")
	if color := s.do("get", "configmap", "conf", "-o", "jsonpath={.data.color}"); color != "blue" {
		s.Errorf("the color is %s", color)
	}
	wants("the deletion", flux("delete"), "deleted Pod"+at+"web", "deleted ConfigMap"+at+"conf")
}

// playbook wants: the namespace, the node.
const playbook = `- hosts: localhost
  gather_facts: false
  vars: {ansible_python_interpreter: /usr/bin/python3}
  tasks:
  - kubernetes.core.k8s:
      apply: true
      wait: true
      wait_timeout: 120
      definition: &pod
        apiVersion: v1
        kind: Pod
        metadata: {name: play, namespace: %[1]s, labels: {app: play}}
        spec:
          terminationGracePeriodSeconds: 1
          containers: [{name: main, image: "localhost/busybox:1", imagePullPolicy: Never, command: [sh, -c, "echo said; sleep 1000000"]}]
    register: first
  - kubernetes.core.k8s: {apply: true, definition: *pod}
    register: second
  - kubernetes.core.k8s:
      apply: true
      server_side_apply: {field_manager: ansible}
      definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: conf, namespace: %[1]s}, data: {color: blue}}
  - kubernetes.core.k8s_info: {kind: Pod, namespace: %[1]s, label_selectors: [app=play]}
    register: info
  - kubernetes.core.k8s_log: {namespace: %[1]s, name: play}
    register: log
  - kubernetes.core.k8s_exec: {namespace: %[1]s, pod: play, command: echo entered}
    register: entered
  - kubernetes.core.k8s: {state: patched, kind: ConfigMap, namespace: %[1]s, name: conf, definition: {data: {color: red}}}
  - kubernetes.core.k8s_drain: {name: %[2]s, state: cordon}
  - kubernetes.core.k8s_drain: {name: %[2]s, state: uncordon}
  - kubernetes.core.k8s: {state: absent, wait: true, kind: Pod, namespace: %[1]s, name: play}
  - assert:
      that:
      - first is changed
      - second is not changed
      - info.resources[0].status.phase == "Running"
      - '"said" in log.log'
      - '"entered" in entered.stdout'
`

// Ansible applies, reads, enters, patches, cordons and deletes.
func ansible(s *ecosystemRun) {
	s.files(map[string]string{"play.yaml": fmt.Sprintf(playbook, s.namespace, s.name)})
	s.runs("ansible-playbook", "-i", "localhost,", "-c", "local", filepath.Join(s.dir, "play.yaml"))
	if color := s.do("get", "configmap", "conf", "-o", "jsonpath={.data.color}"); color != "red" {
		s.Errorf("the color is %s", color)
	}
}

// What podman generates of its pod runs here.
func podmanKube(s *ecosystemRun) {
	archive := filepath.Join(s.ecosystemNode.dir, "busybox.tar")
	short, err := os.MkdirTemp("", "nwpm") // podman wants short paths, and makes names of volumes of them
	s.ok(err)
	s.Cleanup(func() { _ = os.RemoveAll(short) })
	podman := func(args ...string) string {
		s.Helper()
		return s.runs("podman", append([]string{"--root", filepath.Join(short, "root"), "--runroot", filepath.Join(short, "run"), "--tmpdir", filepath.Join(short, "tmp"),
			"--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "none"}, args...)...)
	}
	s.archive(archive, busyboxImage(s.T))
	podman("load", "-i", archive)
	data := filepath.Join(short, "data")
	s.ok(os.Mkdir(data, 0o755))
	podman("pod", "create", "--name", "web", "--infra=false")
	podman("create", "--pod", "web", "--name", "one", "-e", "COLOR=blue", "-v", data+":/data:Z", "--cap-drop", "NET_RAW", "--memory", "64m", busybox,
		"sh", "-c", "echo color $COLOR >/data/file; trap 'exit 0' TERM; while :; do sleep 1; done")
	text := podman("generate", "kube", "web")
	s.Logf("podman generates:\n%s", text)
	s.apply(strings.ReplaceAll(text, "image: "+busybox, "imagePullPolicy: Never\n    image: "+busybox))
	s.ready("web")
	if b, err := os.ReadFile(filepath.Join(data, "file")); err != nil || string(b) != "color blue\n" {
		s.Errorf("the pod has written %q, %v", b, err)
	}
}

// convert has kompose convert a Compose file.
func (s *ecosystemRun) convert(text string) string {
	s.Helper()
	s.files(map[string]string{"compose.yaml": text})
	return s.runs("kompose", "convert", "--stdout", "--volumes", "emptyDir", "-f", filepath.Join(s.dir, "compose.yaml"))
}

// A Compose service that is not restarted becomes a pod.
func komposePod(s *ecosystemRun) {
	s.apply(s.convert(`services:
  job:
    image: localhost/busybox:1
    restart: "no"
    command: [sh, -c, "echo color $$COLOR; touch /data/x && echo written"]
    environment: {COLOR: blue}
    volumes: ["data:/data"]
    labels: {kompose.image-pull-policy: Never}
volumes: {data: {}}
`))
	s.says("the pod has run", func() (string, error) { return s.try("logs", "job") }, "color blue", "written")
	s.says("the pod has ended", func() (string, error) { return s.try("get", "pod", "job", "-o", "jsonpath={.status.phase}") }, "Succeeded")
}

// A Compose application becomes Deployments and Services.
func kompose(s *ecosystemRun) {
	s.apply(s.convert(`services:
  web:
    image: localhost/busybox:1
    command: [sh, -c, "echo served >/tmp/index.html; exec httpd -f -p 8080 -h /tmp"]
    ports: ["8080:8080"]
    stop_grace_period: 1s
    healthcheck: {test: [CMD, wget, -q, -O, "-", "http://127.0.0.1:8080/"], interval: 2s, timeout: 5s}
    deploy: {replicas: 2, resources: {limits: {memory: 32M}}}
    labels: {kompose.image-pull-policy: Never}
`))
	s.do("rollout", "status", "deployment/web", "--timeout=200s")
	s.says("the service has both pods", func() (string, error) {
		return s.try("get", "endpointslices", "-l", "kubernetes.io/service-name=web", "-o", "jsonpath={.items[*].endpoints[*].conditions.ready}")
	}, "true true")
}

// Virtual Kubelet's end-to-end suite runs against a provider made of podspec and podstatus, which
// is a pod of this node. The suite finds its node's API at the pod of the node's name.
func virtualKubelet(s *ecosystemRun) {
	s.apply(strings.NewReplacer("NAMESPACE", s.namespace, "IMAGE", s.image("virtualkubelet")).Replace(`apiVersion: v1
kind: ServiceAccount
metadata: {name: virtual}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: virtual}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: virtual, namespace: NAMESPACE}]
---
apiVersion: v1
kind: Pod
metadata: {name: virtual, labels: {app: virtual}}
spec:
  serviceAccountName: virtual
  terminationGracePeriodSeconds: 2
  containers:
  - {name: main, image: IMAGE, imagePullPolicy: Never, args: [-node, virtual, -address, $(ADDRESS)], env: [{name: ADDRESS, valueFrom: {fieldRef: {fieldPath: status.podIP}}}], ports: [{containerPort: 10250}], readinessProbe: {tcpSocket: {port: 10250}, periodSeconds: 1}}
`))
	s.ready("virtual")
	defer s.do("delete", "node", "virtual")
	out, err := s.command(s.Context(), "virtualkubelet-e2e", "-test.v", "-test.timeout=4m", "-kubeconfig", s.kubeconfig, "-namespace", s.namespace, "-node-name", "virtual").CombinedOutput()
	if passed := strings.Count(string(out), "--- PASS: TestEndToEnd/"); err != nil || passed < 9 {
		s.Errorf("%v, %d tests passed:\n%s", err, passed, out)
	}
}
