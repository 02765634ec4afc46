package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A Prometheus scrapes the node with a token, as its operator has it do, and every
// expression that dashboards and rules have for nodes finds series. The expressions
// are in testdata/mixin.
func TestPrometheus(t *testing.T) {
	promcheck := program(t, "promcheck")
	group := cgroupRoot(t) // goes when the cluster's pods have
	l := newCluster(t)
	l.group = group
	l.start("--bootstrap-kubeconfig", l.bootstrap(), "--kubeconfig", filepath.Join(l.dir, "kubeconfig"))
	l.kubectl("create", "serviceaccount", "scraper")
	l.kubectl("create", "clusterrole", "scraper", "--verb=get", "--resource=nodes/metrics")
	l.kubectl("create", "clusterrolebinding", "scraper", "--clusterrole=scraper", "--serviceaccount=default:scraper")
	disk := filepath.Join(l.dir, "disk")
	l.must(os.Mkdir(disk, 0o755))
	l.apply(fmt.Sprintf(measured, disk))
	l.ready(1, "app=measured")

	token := filepath.Join(l.dir, "token")
	l.must(os.WriteFile(token, []byte(strings.TrimSpace(l.kubectl("create", "token", "scraper"))), 0o600))
	config := filepath.Join(l.dir, "prometheus.yaml")
	l.must(os.WriteFile(config, []byte(l.scrapes(token)), 0o600))

	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, promcheck, "-config", config, "-queries", filepath.Join("testdata", "mixin"), "-for", "30s")
	out, err := cmd.Output()
	uncounted := noDisks()
	empty, failed, all := 0, false, strings.Split(strings.TrimSpace(string(out)), "\n")
	for _, line := range all {
		count, name, _ := strings.Cut(line, "\t")
		if count == "0" && uncounted && slices.Contains(ofDisks, name) {
			t.Logf("%s: not asked for: this machine's kernel counts no I/O of any cgroup", name)
			empty++
			continue
		}
		if strings.Trim(count, "0123456789") != "" || count == "0" {
			t.Errorf("%s: %s", name, count)
			empty, failed = empty+1, true
		}
	}
	t.Logf("%d of %d expressions have data", len(all)-empty, len(all))
	if err != nil && (failed || empty == 0) {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, tail(string(exit.Stderr), 20))
		}
		t.Errorf("promcheck: %v", err)
	}
}

// ofDisks are the expressions with series of a disk that a container used.
var ofDisks = []string{"dashboards/resources/pod.libsonnet: IOPS reads and writes", "dashboards/resources/pod.libsonnet: ThroughPut"}

// noDisks reports whether cgroup v1 counts no I/O here, not even the whole machine's.
func noDisks() bool {
	b, err := os.ReadFile("/sys/fs/cgroup/blkio/blkio.throttle.io_serviced")
	return err == nil && strings.TrimSpace(string(b)) == "Total 0"
}

// scrapes is a configuration with the jobs and labels of the Prometheus operator's
// kubelet service: one target for each path.
func (l *cluster) scrapes(token string) string {
	var b strings.Builder
	b.WriteString("global: {scrape_interval: 2s, scrape_timeout: 2s}\nscrape_configs:\n")
	for i, path := range []string{"/metrics", "/metrics/cadvisor", "/metrics/resource", "/metrics/probes"} {
		fmt.Fprintf(&b, `- job_name: kubelet-%d
  honor_labels: true
  scheme: https
  metrics_path: %s
  authorization: {credentials_file: %s}
  tls_config: {insecure_skip_verify: true}
  static_configs:
  - targets: ["%s:%d"]
    labels: {job: kubelet, metrics_path: %s, node: %s, cluster: e2e}
`, i, path, token, l.address, l.port, path, l.node)
	}
	return b.String()
}

// measured is a pod of which everything can be told that the expressions ask for:
// limits, probes, and a claim's volume.
const measured = `apiVersion: v1
kind: PersistentVolume
metadata: {name: data}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  claimRef: {namespace: default, name: data}
  local: {path: %q}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [edge-1]}]}]}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], storageClassName: "", volumeName: data, resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: measured, labels: {app: measured}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: localhost/busybox:1
    imagePullPolicy: Never
    command: [sh, -c, "trap 'exit 0' TERM; while :; do dd if=/dev/zero of=/data/x bs=64k count=4 oflag=direct; sleep 1; done"]
    resources: {limits: {cpu: 500m, memory: 64Mi}}
    livenessProbe: {exec: {command: ["true"]}, periodSeconds: 1}
    volumeMounts: [{name: data, mountPath: /data}]
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: data}}
`
