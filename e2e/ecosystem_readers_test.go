//go:build ecosystem

package e2e_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/e2e/apart"
)

// readers are the tests with programs that read a node.
var readers = []ecosystemTest{
	{"node-exporter", []string{"node_exporter"}, everywhere, nodeExporter},
	{"rsyslog", []string{"rsyslogd"}, everywhere, rsyslog},
	{"fluent-bit", []string{"fluent-bit"}, everywhere, fluentBit},
	{"metrics-server", []string{"metrics-server"}, inCluster, metricsServer},
	{"node-problem-detector", []string{"node-problem-detector"}, everywhere, nodeProblemDetector},
	{"k9s", []string{"k9s", "tmux"}, everywhere, k9s},
	{"kubectl-debug-node", nil, everywhere, debugNode},
}

// node-exporter sees the machine from a pod, a mount that comes later too.
func nodeExporter(s *ecosystemRun) {
	s.everyNode("node-exporter", fmt.Sprintf(`
      hostNetwork: true
      hostPID: true
      securityContext: {runAsNonRoot: true, runAsUser: 65534}
      containers:
      - name: node-exporter
        image: %s
        args:
        - --web.listen-address=127.0.0.1:9100
        - --path.procfs=/host/proc
        - --path.sysfs=/host/sys
        - --path.rootfs=/host/root
        - --no-collector.wifi
        resources: {limits: {memory: 180Mi}, requests: {cpu: 102m, memory: 180Mi}}
        securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {add: [SYS_TIME], drop: [ALL]}}
        livenessProbe: {httpGet: {host: 127.0.0.1, port: 9100, path: /}}
        volumeMounts:
        - {name: sys, mountPath: /host/sys, mountPropagation: HostToContainer, readOnly: true}
        - {name: proc, mountPath: /host/proc, mountPropagation: HostToContainer, readOnly: true}
        - {name: root, mountPath: /host/root, mountPropagation: HostToContainer, readOnly: true}
      volumes:
      - {name: sys, hostPath: {path: /sys}}
      - {name: proc, hostPath: {path: /proc}}
      - {name: root, hostPath: {path: /}}
`, s.image("node_exporter")))
	metrics := func() (string, error) { return s.fetch("http://127.0.0.1:9100/metrics") }
	s.says("it measures the machine", metrics, "node_cpu_seconds_total{", "node_memory_MemAvailable_bytes ", "node_uname_info{", `mountpoint="/"`, "node_load1 ", `device="uplink"`)
	disk := filepath.Join(s.dir, "disk")
	s.ok(os.Mkdir(disk, 0o755))
	s.ok(unix.Mount("ecosystem", disk, "tmpfs", 0, "size=1m"))
	s.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	s.says("it sees a mount that is made later", func() (string, error) {
		return s.do("exec", s.podOf("node-exporter"), "--", "cat", "/proc/self/mountinfo"), nil
	}, "/host/root"+disk)
}

// writer writes so many lines that its log is rotated several times, then ends.
const (
	writerLines = 4000
	writerPod   = `apiVersion: v1
kind: Pod
metadata: {name: writer, labels: {app: writer}}
spec:
  restartPolicy: Never
  containers:
  - name: main
    image: localhost/busybox:1
    imagePullPolicy: Never
    command: [sh, -c, "i=0; while [ $i -lt %d ]; do i=$((i+1)); echo line $i of a log that is long enough to be rotated a few times; [ $((i %% 200)) != 0 ] || sleep 1; done"]
`
)

// collected follows a collector of logs until it has read all lines of the writer, which ends
// and is deleted, and checks that it has each line once. lines reads what it has collected.
func (s *ecosystemRun) collected(lines func() ([]string, error)) {
	s.Helper()
	s.apply(fmt.Sprintf(writerPod, writerLines))
	s.says("the writer has ended", func() (string, error) {
		return s.try("get", "pod", "writer", "-o", "jsonpath={.status.phase}")
	}, "Succeeded")
	rotated, err := filepath.Glob("/var/log/pods/" + s.namespace + "_writer_*/main/0.log.*")
	if s.ok(err); len(rotated) == 0 {
		s.Error("the log was not rotated")
	}
	number := regexp.MustCompile(`line (\d+) of a log`)
	var seen map[string]int
	s.awaits("all lines are collected", func() error {
		all, err := lines()
		seen = map[string]int{}
		for _, l := range all {
			if m := number.FindStringSubmatch(l); m != nil {
				seen[m[1]]++
			}
		}
		if err == nil && len(seen) < writerLines {
			err = fmt.Errorf("%d of %d lines, %d files", len(seen), writerLines, len(rotated)+1)
		}
		return err
	})
	twice := 0
	for _, n := range seen {
		twice += n - 1
	}
	if twice > 0 {
		s.Errorf("%d lines were collected twice", twice)
	}
	s.do("delete", "pod", "writer")
	for _, pattern := range []string{"/var/log/containers/writer_" + s.namespace + "_*", "/var/log/pods/" + s.namespace + "_writer_*"} {
		s.awaits(pattern+" is gone", func() error {
			left, err := filepath.Glob(pattern)
			if err == nil && len(left) > 0 {
				err = fmt.Errorf("%v are left", left)
			}
			return err
		})
	}
}

// fileLines reads the lines of a file that may not be there yet.
func fileLines(path string) (all []string, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		all = append(all, lines.Text())
	}
	return all, lines.Err()
}

// rsyslog follows the links in /var/log/containers, and asks the API for the pod of each line.
func rsyslog(s *ecosystemRun) {
	for name, path := range map[string]string{"ca": "clusters[0].cluster.certificate-authority-data", "cert": "users[0].user.client-certificate-data", "key": "users[0].user.client-key-data"} {
		data, err := base64.StdEncoding.DecodeString(s.do("config", "view", "--raw", "-o", "jsonpath={."+path+"}"))
		s.ok(err)
		s.ok(os.WriteFile(filepath.Join(s.dir, name), data, 0o600))
	}
	out, config := filepath.Join(s.dir, "out"), filepath.Join(s.dir, "rsyslog.conf")
	s.ok(os.WriteFile(config, fmt.Appendf(nil, `global(workDirectory="%[1]s" maxMessageSize="64k")
module(load="imfile")
module(load="mmkubernetes" kubernetesurl="%[3]s" tls.cacert="%[1]s/ca" tls.mycert="%[1]s/cert" tls.myprivkey="%[1]s/key")
input(type="imfile" file="/var/log/containers/*.log" tag="kubernetes" addmetadata="on" reopenOnTruncate="on" ruleset="out")
template(name="plain" type="string" string="%%msg%% [%%$!kubernetes!pod_name%% %%$!kubernetes!labels!app%%]\n")
ruleset(name="out") {
  action(type="mmkubernetes")
  action(type="omfile" file="%[2]s" template="plain")
}
`, s.dir, out, s.server()), 0o600))
	s.background("rsyslogd", "-n", "-f", config, "-i", filepath.Join(s.dir, "pid"))
	unknown := 0
	s.collected(func() ([]string, error) {
		lines, err := fileLines(out)
		unknown = 0
		for _, l := range lines {
			if strings.Contains(l, " of a log ") && !strings.HasSuffix(l, " [writer writer]") {
				unknown++
			}
		}
		return lines, err
	})
	if unknown > 0 {
		s.Errorf("%d lines have no name and label of their pod", unknown)
	}
}

// fluent-bit follows the same links, and keeps in a database how far it has read each file. It
// takes no client certificate, but insists on a token; kubectl proxy has the certificate. It finds
// a file that was rotated before only if it looks for files more often than the node rotates.
func fluentBit(s *ecosystemRun) {
	proxy := s.kubectl(context.WithoutCancel(s.Context()), "proxy", "--address="+apart.Address, "--accept-hosts=.*", "--port=8001")
	s.ok(proxy.Start())
	s.Cleanup(func() { _, _ = proxy.Process.Kill(), proxy.Wait() })
	s.files(map[string]string{"token": "unused", "fluent-bit.conf": fmt.Sprintf(`[SERVICE]
    Flush 1
[INPUT]
    Name tail
    Tag kube.*
    Path /var/log/containers/*.log
    multiline.parser cri
    DB %[1]s/tail.db
    Refresh_Interval 1
[FILTER]
    Name kubernetes
    Match kube.*
    Kube_URL http://%[2]s:8001
    Kube_Token_File %[1]s/token
[OUTPUT]
    Name file
    Match *
    Path %[1]s
    File out
    Format plain
`, s.dir, apart.Address)})
	s.background("fluent-bit", "-c", filepath.Join(s.dir, "fluent-bit.conf"))
	unknown := 0
	s.collected(func() ([]string, error) {
		lines, err := fileLines(filepath.Join(s.dir, "out"))
		unknown = 0
		for _, l := range lines {
			if strings.Contains(l, " of a log ") && !(strings.Contains(l, `"pod_name":"writer"`) && strings.Contains(l, `"labels":{"app":"writer"}`)) {
				unknown++
			}
		}
		return lines, err
	})
	if unknown > 0 {
		s.Errorf("%d lines have no name and label of their pod", unknown)
	}
}

// metrics-server serves kubectl top from what the node measures.
func metricsServer(s *ecosystemRun) {
	_, err := said(s.kubectl(s.Context(), "-n", "kube-system", "create", "rolebinding", "metrics-server-auth-reader",
		"--role=extension-apiserver-authentication-reader", "--serviceaccount="+s.namespace+":metrics-server"))
	s.ok(err)
	s.Cleanup(func() { // a namespace ends only if all APIs answer
		if _, err := said(s.kubectl(context.Background(), "delete", "apiservice", "v1beta1.metrics.k8s.io")); err != nil {
			s.Error(err)
		}
	})
	s.apply(strings.NewReplacer("NAMESPACE", s.namespace, "IMAGE", s.image("metrics-server")).Replace(`apiVersion: v1
kind: ServiceAccount
metadata: {name: metrics-server}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "metrics-server:system:auth-delegator"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:auth-delegator"}
subjects: [{kind: ServiceAccount, name: metrics-server, namespace: NAMESPACE}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "system:metrics-server"}
rules:
- {apiGroups: [""], resources: [nodes/metrics], verbs: [get]}
- {apiGroups: [""], resources: [pods, nodes], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "system:metrics-server"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:metrics-server"}
subjects: [{kind: ServiceAccount, name: metrics-server, namespace: NAMESPACE}]
---
apiVersion: v1
kind: Service
metadata: {name: metrics-server}
spec: {selector: {app: metrics-server}, ports: [{name: https, port: 443, targetPort: https}]}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.metrics.k8s.io}
spec: {service: {name: metrics-server, namespace: NAMESPACE}, group: metrics.k8s.io, version: v1beta1, insecureSkipTLSVerify: true, groupPriorityMinimum: 100, versionPriority: 100}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: metrics-server}
spec:
  selector: {matchLabels: {app: metrics-server}}
  template:
    metadata: {labels: {app: metrics-server}}
    spec:
      serviceAccountName: metrics-server
      priorityClassName: system-cluster-critical
      containers:
      - name: metrics-server
        image: IMAGE
        args: [--cert-dir=/tmp, --secure-port=10250, "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname", --kubelet-use-node-status-port, --metric-resolution=15s, --kubelet-insecure-tls]
        resources: {requests: {cpu: 100m, memory: 200Mi}}
        ports: [{name: https, containerPort: 10250}]
        readinessProbe: {httpGet: {path: /readyz, port: https, scheme: HTTPS}, periodSeconds: 10, initialDelaySeconds: 20}
        livenessProbe: {httpGet: {path: /livez, port: https, scheme: HTTPS}, periodSeconds: 10}
        securityContext: {readOnlyRootFilesystem: true, runAsNonRoot: true, runAsUser: 1000, allowPrivilegeEscalation: false, seccompProfile: {type: RuntimeDefault}, capabilities: {drop: [ALL]}}
        volumeMounts: [{name: tmp-dir, mountPath: /tmp}]
      volumes: [{name: tmp-dir, emptyDir: {}}]
`))
	s.ready("metrics-server")
	s.says("the node's use", func() (string, error) { return s.try("top", "node") }, s.name, "%")
	s.says("the pods' use", func() (string, error) { return s.try("top", "pod", "--containers") }, "metrics-server", "Mi")
}

// node-problem-detector adds a condition to the node that the agent's own statuses leave alone,
// and events.
func nodeProblemDetector(s *ecosystemRun) {
	s.ok(os.WriteFile(filepath.Join(s.dir, "monitor.json"), []byte(`{
"plugin": "custom", "pluginConfig": {"invoke_interval": "1s", "timeout": "5s", "max_output_length": 80, "concurrency": 1},
"source": "ecosystem-monitor",
"conditions": [{"type": "EcosystemProblem", "reason": "AllIsWell", "message": "no problem"}],
"rules": [{"type": "permanent", "condition": "EcosystemProblem", "reason": "FileFound", "path": "`+filepath.Join(s.dir, "check.sh")+`", "timeout": "3s"}]
}`), 0o600))
	s.ok(os.WriteFile(filepath.Join(s.dir, "check.sh"), []byte("#!/bin/sh\n[ ! -e '"+filepath.Join(s.dir, "problem")+"' ] || { echo found; exit 1; }\n"), 0o700))
	s.background("node-problem-detector", "--logtostderr", "--apiserver-override="+s.server()+"?inClusterConfig=false&auth="+s.kubeconfig,
		"--hostname-override="+s.name, "--config.custom-plugin-monitor="+filepath.Join(s.dir, "monitor.json"), "--prometheus-port=0", "--port=0")
	condition := func() (string, error) {
		return s.try("get", "node", s.name, "-o", `jsonpath={range .status.conditions[*]}{.type}={.status}/{.reason} {end}`)
	}
	s.says("the node has the condition", condition, "EcosystemProblem=False/AllIsWell", "Ready=True")
	s.ok(os.WriteFile(filepath.Join(s.dir, "problem"), nil, 0o600))
	s.says("the condition tells the problem", condition, "EcosystemProblem=True/FileFound", "Ready=True")
	s.says("an event tells it", func() (string, error) {
		out, err := said(s.kubectl(s.Context(), "get", "events", "-A", "-o", "wide"))
		return out, err
	}, "FileFound")
	time.Sleep(5 * time.Second) // the agent writes its status every 2 s
	s.says("the condition stays", condition, "EcosystemProblem=True/FileFound")
	s.stop()
	s.start()
	s.says("the condition is still there after a restart of the agent", condition, "EcosystemProblem=True/FileFound", "Ready=True")
}

// server is the URL of the API server.
func (s *ecosystemRun) server() string {
	if s.cp != nil {
		return s.cp.URL
	}
	return "https://" + aloneAPI
}

// terminal runs a program of others in a terminal, and returns functions that read its screen and
// type.
func (s *ecosystemRun) terminal(name string, args ...string) (screen func() (string, error), keys func(...string)) {
	s.Helper()
	socket := filepath.Join(s.dir, "tmux")
	tmux := func(args ...string) *exec.Cmd {
		cmd := s.command(context.WithoutCancel(s.Context()), "tmux", append([]string{"-S", socket, "-f", "/dev/null"}, args...)...)
		cmd.Env = append(cmd.Env, "TERM=xterm-256color", "LC_ALL=C.UTF-8", "XDG_CONFIG_HOME="+s.dir)
		return cmd
	}
	_, err := said(tmux(append([]string{"new-session", "-d", "-x", "200", "-y", "50", have(s.T, name)}, args...)...))
	s.ok(err)
	s.Cleanup(func() { _ = tmux("kill-server").Run() })
	screen = func() (string, error) { return said(tmux("capture-pane", "-p")) }
	keys = func(all ...string) {
		s.Helper()
		_, err := said(tmux(append([]string{"send-keys"}, all...)...))
		s.ok(err)
	}
	return screen, keys
}

// A person looks at pods, logs, events and nodes, enters a container and deletes a pod.
func k9s(s *ecosystemRun) {
	s.apply(pod("shown", "echo said by the pod; "+forever))
	s.ready("shown")
	s.ok(os.Mkdir(filepath.Join(s.dir, "k9s"), 0o700))
	// Without a network, the look for a newer version holds up the screen.
	s.ok(os.WriteFile(filepath.Join(s.dir, "k9s", "config.yaml"), []byte("k9s: {skipLatestRevCheck: true}\n"), 0o600))
	screen, keys := s.terminal("k9s", "-n", s.namespace, "--refresh", "1", "--logoless", "--splashless")
	// press presses a key until the screen shows what it is for: k9s loses keys while it draws.
	press := func(key, what string, words ...string) {
		s.Helper()
		var last time.Time
		s.says(what, func() (string, error) {
			if time.Since(last) > 5*time.Second {
				keys(key)
				last = time.Now()
			}
			return screen()
		}, words...)
	}
	back := func() {
		s.Helper()
		keys(":pods", "Enter")
		s.says("the list is back", screen, "1/1")
	}
	s.says("the pod is in the list", screen, "shown", "Running", "1/1")
	press("d", "the pod is described", "Describe", "localhost/busybox:1")
	back()
	press("l", "the log is shown", "said by the pod")
	back()
	press("s", "there is a shell", "<<K9s-Shell>>") // "Shell" alone is in the list of keys
	keys("C-u", "echo $((6*7))$(hostname)", "Enter")
	s.says("the shell answers", screen, "42shown")
	keys("exit", "Enter")
	s.says("the list is back", screen, "1/1")
	keys(":nodes", "Enter")
	s.says("the node is shown", screen, s.name, "Ready")
	back()
	press("C-d", "it asks", "Propagation")
	keys("Tab", "Enter")
	s.awaits("the pod is deleted", func() error {
		out, err := s.try("get", "pods", "-o", "name")
		if err == nil && out != "" {
			err = errors.New(out)
			if shown, _ := screen(); shown != "" {
				err = fmt.Errorf("%w:\n%s", err, shown)
			}
		}
		return err
	})
}

// kubectl debug runs a pod on the node with the machine's root directory.
func debugNode(s *ecosystemRun) {
	s.do("debug", "node/"+s.name, "--image="+busybox, "--image-pull-policy=Never", "--profile=sysadmin", "--", "sh", "-c", "ls /host/var/lib/kubelet; chroot /host cat /etc/hostname; echo done")
	name := ""
	s.says("the pod has ended", func() (string, error) {
		out, err := s.try("get", "pods", "-o", "jsonpath={.items[0].metadata.name} {.items[0].status.phase}")
		name, _, _ = strings.Cut(out, " ")
		return out, err
	}, "Succeeded")
	if out := s.do("logs", name); !strings.Contains(out, "pods") || !strings.Contains(out, "done") {
		s.Error(out)
	}
}
