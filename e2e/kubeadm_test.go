//go:build kubelet

package e2e_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/mount-utils"

	nodeblock "github.com/nodewright/nodewright/node"
)

// Where kubeadm and its drop-in for systemd have the kubelet's files.
const (
	kubernetesDir = "/etc/kubernetes"
	nodeCert      = kubeletRoot + "/pki/kubelet-client-current.pem"
	extraArgs     = "/etc/default/kubelet"
)

// bootstrapToken has the form that Kubernetes wants, and is no secret.
const bootstrapToken = "nodewr.0123456789abcdef" //nolint:gosec // a token of this test's cluster

// certificateLife is how long a node's certificates are good: the node has to ask for
// another after 70 to 90 hundredths of it, while the test runs.
const certificateLife = 100 * time.Second

// cannotPass are checks of kubeadm before it joins that a machine may not pass,
// whoever runs its node.
func cannotPass() (checks []string) {
	if !nodeblock.CgroupV2() {
		checks = append(checks, "SystemVerification") // has had no cgroup v1 since Kubernetes 1.35
	}
	return checks
}

// clusterConfig is a cluster as kubeadm knows it. It wants: bootstrap token, the
// runtime's socket, the node's address, Kubernetes' version, the API server's address,
// the root of pods' cgroups, more lines of the KubeletConfiguration.
const clusterConfig = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
bootstrapTokens: [{token: %[1]s, usages: [signing, authentication], groups: ["system:bootstrappers:kubeadm:default-node-token"]}]
nodeRegistration: {criSocket: "unix://%[2]s"}
localAPIEndpoint: {advertiseAddress: %[3]s}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: %[4]s
controlPlaneEndpoint: %[5]s
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
cgroupRoot: %[6]s
failCgroupV1: false
evictionHard: {memory.available: "1Mi", nodefs.available: "1Mi", imagefs.available: "1Mi", nodefs.inodesFree: "1"}
imageGCHighThresholdPercent: 100
nodeStatusUpdateFrequency: 2s
%[7]s`

// joinConfig wants: node, the runtime's socket, the node's address, bootstrap token,
// the API server's address, the hash of its authority, checks to ignore.
const joinConfig = `apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
nodeRegistration:
  name: %[1]s
  criSocket: "unix://%[2]s"
  taints: [{key: example.com/new, value: "yes", effect: NoSchedule}]
  kubeletExtraArgs: [{name: node-labels, value: "example.com/by=kubeadm"}, {name: node-ip, value: %[3]s}]
  ignorePreflightErrors: [%[7]s]
discovery:
  bootstrapToken: {token: %[4]s, apiServerEndpoint: "%[5]s", caCertHashes: ["%[6]s"]}
`

// joined is a machine on which kubeadm is used, and the agent is the kubelet.
type joined struct {
	*cluster
	bin     string // the PATH that kubeadm sees begins with it
	version string // of Kubernetes
	group   string // the root of pods' cgroups
	starts  int    // of the service
}

// kubeadm makes the agent a node, changes its configuration and takes it back, as it
// does with a kubelet: by systemctl, its drop-in and its files.
func TestKubeadm(t *testing.T) {
	dir, child := runApart(t)
	if !child {
		return
	}
	group := cgroupRoot(t)
	m := &joined{cluster: newCluster(t, "--controllers=*,bootstrapsigner,tokencleaner", "--cluster-signing-duration="+certificateLife.String()), group: group}
	m.bin = filepath.Join(m.dir, "bin")
	m.must(os.Mkdir(m.bin, 0o755))
	m.must(os.Symlink(program(t, agent), filepath.Join(m.bin, "kubelet")))
	m.must(os.MkdirAll(kubernetesDir, 0o755))
	m.must(os.MkdirAll(filepath.Dir(extraArgs), 0o755))
	m.must(os.WriteFile(extraArgs, []byte("KUBELET_EXTRA_ARGS=--leave-host\n"), 0o600))
	m.systemctl()
	m.version = strings.TrimSpace(m.kubeadm("version", "-o", "short"))

	m.upload("")
	m.elsewhere("init", "phase", "bootstrap-token", "--config", m.configFile(), "--kubeconfig", m.admin(), "--skip-token-print")
	m.join()
	m.registered()
	first := m.certificate()

	m.kubectl("taint", "node", m.node, "example.com/new-")
	m.apply(pod("scheduled", forever))
	manifests := filepath.Join(kubernetesDir, "manifests") // joining does not make it
	m.must(os.MkdirAll(manifests, 0o700))
	m.must(os.WriteFile(filepath.Join(manifests, "static.yaml"), []byte(pod("static", forever)), 0o600))
	before := m.containers("scheduled", "static-"+m.node)

	m.upload("maxPods: 77\n")
	m.kubeadm("upgrade", "node", "--ignore-preflight-errors="+strings.Join(cannotPass(), ","))
	m.restart()
	m.until("the new configuration is in effect", func() error {
		var obj v1.Node
		if err := m.get("/api/v1/nodes/"+m.node, &obj); err != nil || obj.Status.Capacity.Pods().Value() == 77 {
			return err
		}
		return fmt.Errorf("capacity: %v", obj.Status.Capacity)
	})
	if after := m.containers("scheduled", "static-"+m.node); after != before {
		t.Errorf("pods were not continued by the restarted agent:\n%s\n%s", before, after)
	}
	m.until("the certificate is another one", func() error {
		if c := m.certificate(); c.SerialNumber.Cmp(first.SerialNumber) == 0 {
			return fmt.Errorf("it is that until %v", c.NotAfter)
		}
		return nil
	})

	m.reset(dir)
	m.kubectl("delete", "node", m.node)
	m.join() // nothing of the first time is in its way
	m.registered()
	m.reset(dir)
	t.Logf("kubeadm %s: joined twice, upgraded once, reset twice; the service was started %d times", m.version, m.starts)
}

func (m *joined) admin() string {
	m.t.Helper()
	path, err := m.cp.Kubeconfig("admin", "admin", "system:masters")
	m.must(err)
	return path
}

func (m *joined) configFile() string { return filepath.Join(m.dir, "cluster.yaml") }

// apiServer is host:port.
func (m *joined) apiServer() string { return strings.TrimPrefix(m.cp.URL, "https://") }

// upload puts the cluster's configuration where nodes that join find it; more are lines
// of the KubeletConfiguration.
func (m *joined) upload(more string) {
	m.t.Helper()
	m.must(os.WriteFile(m.configFile(), fmt.Appendf(nil, clusterConfig,
		bootstrapToken, m.c.Socket, m.address, m.version, m.apiServer(), m.group, more), 0o600))
	m.elsewhere("init", "phase", "upload-config", "all", "--config", m.configFile(), "--kubeconfig", m.admin())
}

func (m *joined) join() {
	m.t.Helper()
	pemCA, err := os.ReadFile(m.cp.CAFile())
	m.must(err)
	block, _ := pem.Decode(pemCA)
	ca, err := x509.ParseCertificate(block.Bytes)
	m.must(err)
	path := filepath.Join(m.dir, "join.yaml")
	m.must(os.WriteFile(path, fmt.Appendf(nil, joinConfig, m.node, m.c.Socket, m.address, bootstrapToken, m.apiServer(),
		fmt.Sprintf("sha256:%x", sha256.Sum256(ca.RawSubjectPublicKeyInfo)), strings.Join(cannotPass(), ",")), 0o600))
	out := m.kubeadm("join", "--config", path)
	if !strings.Contains(out, "This node has joined the cluster") {
		m.t.Errorf("kubeadm join said:\n%s", out)
	}
	m.until("the node is ready", func() error { return m.conditionIs(v1.NodeReady, v1.ConditionTrue) })
}

// registered looks at what joining has left: the Node, and the node's credentials.
func (m *joined) registered() {
	m.t.Helper()
	var n v1.Node
	m.must(m.get("/api/v1/nodes/"+m.node, &n))
	if n.Labels["example.com/by"] != "kubeadm" {
		m.t.Errorf("labels: %v", n.Labels)
	}
	tainted := false
	for _, taint := range n.Spec.Taints {
		tainted = tainted || taint.Key == "example.com/new" && taint.Value == "yes" && taint.Effect == v1.TaintEffectNoSchedule
	}
	if !tainted {
		m.t.Errorf("taints: %v", n.Spec.Taints)
	}
	c := m.certificate()
	if c.Subject.CommonName != "system:node:"+m.node || strings.Join(c.Subject.Organization, ",") != "system:nodes" {
		m.t.Errorf("the certificate is that of %v", c.Subject)
	}
	conf, err := os.ReadFile(filepath.Join(kubernetesDir, "kubelet.conf"))
	m.must(err)
	if !strings.Contains(string(conf), nodeCert) {
		m.t.Errorf("kubelet.conf does not name %s", nodeCert)
	}
	if _, err := os.Stat(filepath.Join(kubernetesDir, "bootstrap-kubelet.conf")); err == nil {
		m.t.Error("bootstrap-kubelet.conf is still there")
	}
}

// certificate is the node's, as kubeadm finds it.
func (m *joined) certificate() *x509.Certificate {
	m.t.Helper()
	rest, err := os.ReadFile(nodeCert)
	m.must(err)
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			m.t.Fatalf("%s has no certificate", nodeCert)
		}
		if block.Type == "CERTIFICATE" {
			c, err := x509.ParseCertificate(block.Bytes)
			m.must(err)
			return c
		}
	}
}

// containers waits until pods are ready, and returns their containers' IDs and restarts.
func (m *joined) containers(names ...string) (all string) {
	m.t.Helper()
	m.until(fmt.Sprintf("%v are ready", names), func() error {
		pods, err := m.pods("")
		all = ""
		for _, name := range names {
			p := pods[name]
			if p == nil || !isReady(p) {
				return fmt.Errorf("%s: %v, %w", name, p, err)
			}
			for _, c := range p.Status.ContainerStatuses {
				all += fmt.Sprintf("%s/%s %s restarts=%d\n", name, c.Name, c.ContainerID, c.RestartCount)
			}
		}
		return err
	})
	return all
}

// reset takes the node back, and looks for what is left. Pods still run before it.
func (m *joined) reset(dir string) {
	m.t.Helper()
	m.kubeadm("reset", "--force", "--cleanup-tmp-dir", "--cri-socket", "unix://"+m.c.Socket)
	if m.cmd != nil {
		m.t.Error("the agent still runs")
	}
	for _, args := range [][]string{{"pods", "-q"}, {"ps", "-aq"}} {
		out, err := exec.Command(program(m.t, "crictl"), append([]string{"--runtime-endpoint", "unix://" + m.c.Socket}, args...)...).Output()
		if m.must(err); len(out) > 0 {
			m.t.Errorf("crictl %v after kubeadm reset:\n%s", args, out)
		}
	}
	mounts, err := mount.ParseMountInfo("/proc/self/mountinfo")
	m.must(err)
	for _, at := range mounts {
		if strings.HasPrefix(at.MountPoint, kubeletRoot) || strings.HasPrefix(at.MountPoint, kubernetesDir) {
			m.t.Errorf("%s is still mounted", at.MountPoint)
		}
	}
	for _, d := range []string{kubernetesDir, filepath.Join(dir, "lib")} {
		m.must(filepath.WalkDir(d, func(path string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				m.t.Errorf("%s is left", path)
			}
			return err
		}))
	}
}

// kubeadm must succeed. It returns what it wrote.
func (m *joined) kubeadm(args ...string) string {
	m.t.Helper()
	return m.do(append([]string{program(m.t, "kubeadm")}, args...)...)
}

// elsewhere is kubeadm on a machine of the control plane, which has other files.
func (m *joined) elsewhere(args ...string) {
	m.t.Helper()
	m.do(append([]string{"unshare", "--mount", "sh", "-c", "mount -t tmpfs none " + kubernetesDir + ` && exec "$0" "$@"`, program(m.t, "kubeadm")}, args...)...)
}

func (m *joined) do(command ...string) string {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), testTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "PATH="+m.bin+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		m.t.Fatalf("%s: %v: %s", strings.Join(command, " "), err, out)
	}
	return string(out)
}

// systemctl puts a program of that name into kubeadm's PATH: it hands on what it is
// asked, by one pipe, and says and exits with what comes back by another.
func (m *joined) systemctl() {
	m.t.Helper()
	ask, answer := filepath.Join(m.dir, "systemctl.ask"), filepath.Join(m.dir, "systemctl.answer")
	m.must(syscall.Mkfifo(ask, 0o600))
	m.must(syscall.Mkfifo(answer, 0o600))
	m.must(os.WriteFile(filepath.Join(m.bin, "systemctl"), fmt.Appendf(nil,
		"#!/bin/sh\necho \"$*\" >%s\nread -r code text <%s\necho \"$text\"\nexit \"$code\"\n", ask, answer), 0o755)) //nolint:gosec // a program
	asked, err := os.OpenFile(ask, os.O_RDWR, 0) // so that it never is at its end
	m.must(err)
	done := make(chan struct{})
	m.t.Cleanup(func() {
		_ = asked.Close()
		<-done
	})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(asked); lines.Scan(); {
			text := m.service(lines.Text())
			if err := os.WriteFile(answer, []byte(text+"\n"), 0); err != nil {
				m.t.Errorf("answer systemctl: %v", err)
				return
			}
		}
	}()
}

// service does what systemd would do with kubelet.service.
func (m *joined) service(command string) string {
	switch command {
	case "daemon-reload", "is-enabled kubelet":
		return "0 enabled"
	case "status kubelet", "is-active kubelet":
		if m.cmd == nil {
			return "3 inactive"
		}
		return "0 active"
	case "stop kubelet", "restart kubelet", "start kubelet":
		if err := m.stopService(); err != nil {
			return "1 " + err.Error()
		}
		if command == "stop kubelet" {
			return "0 stopped"
		}
		if err := m.startService(); err != nil {
			return "1 " + err.Error()
		}
		return "0 started"
	}
	return fmt.Sprintf("1 %q is not what kubeadm asks of systemctl", command)
}

func (m *joined) stopService() error {
	if m.cmd == nil {
		return nil
	}
	cmd := m.cmd
	m.cmd = nil
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("it had ended by itself: %w", err)
	}
	return cmd.Wait()
}

// startService starts the agent as kubeadm's drop-in (10-kubeadm.conf) does with the kubelet.
func (m *joined) startService() error {
	cmd := exec.Command("sh", "-c", `set -a
[ ! -e `+kubeletRoot+`/kubeadm-flags.env ] || . `+kubeletRoot+`/kubeadm-flags.env
. `+extraArgs+`
exec kubelet --bootstrap-kubeconfig=`+kubernetesDir+`/bootstrap-kubelet.conf --kubeconfig=`+kubernetesDir+`/kubelet.conf \
	--config=`+kubeletRoot+`/config.yaml $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS`)
	cmd.Env = append(os.Environ(), "PATH="+m.bin+":"+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = &m.log, &m.log
	if err := cmd.Start(); err != nil {
		return err
	}
	m.cmd = cmd
	m.starts++
	return nil
}

// restart is what an administrator does after kubeadm upgrade node.
func (m *joined) restart() {
	m.t.Helper()
	cmd := exec.Command(filepath.Join(m.bin, "systemctl"), "restart", "kubelet")
	if out, err := cmd.CombinedOutput(); err != nil {
		m.t.Fatalf("systemctl restart kubelet: %v: %s", err, out)
	}
}
