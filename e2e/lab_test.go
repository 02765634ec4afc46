package e2e_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/e2e/controlplane"
	"github.com/nodewright/nodewright/internal/containerdtest"
	"github.com/nodewright/nodewright/internal/sampleimage"
	"github.com/nodewright/nodewright/internal/testprogram"
)

// testTimeout is how long a test waits for what must come, however slow the
// machine.
const testTimeout = 4 * time.Minute

// busybox is the image of the tests' pods.
const busybox = "localhost/busybox:1"

// program finds a program that make e2e has built, or one by its path.
func program(t testing.TB, name string) string {
	t.Helper()
	path, err := name, error(nil)
	if !filepath.IsAbs(name) {
		path, err = filepath.Abs(filepath.Join("..", "build", "bin", name))
	}
	if err == nil {
		_, err = os.Stat(path)
	}
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatalf("%s: %v; make e2e builds it", name, err)
	default:
		t.Skipf("%s: %v; make e2e builds it", name, err)
	}
	return path
}

// A cluster is a control plane and one node: a containerd and the agent.
type cluster struct {
	t   *testing.T
	cp  *controlplane.ControlPlane
	c   *containerdtest.Containerd
	dir string

	node         string
	address      string // of the node: the machine's
	port, health int
	readOnly     int
	config       string // more lines of the KubeletConfiguration
	group        string // below which pods have cgroups of their own; "": they have none
	cmd          *exec.Cmd
	log          testprogram.Output // of the last agent
	binary       string             // the agent's program; "" is that of build/bin
	endpoint     string             // of the runtime; "" is that of c
}

// newCluster starts everything but the agent; controllers are more flags of
// kube-controller-manager.
func newCluster(t *testing.T, controllers ...string) *cluster {
	t.Helper()
	return clusterOf(t, controlplane.Options{Controllers: controllers})
}

// clusterOf is newCluster with a control plane of one's own; its program and directory
// are filled in.
func clusterOf(t *testing.T, o controlplane.Options) *cluster {
	t.Helper()
	o.Program = program(t, "cluster")
	program(t, "agent")
	rt := containerdtest.New(t, containerdtest.Options{})
	importBusybox(t, rt)
	dir, err := os.MkdirTemp("", "nwe2e")
	if err != nil {
		t.Fatal(err)
	}
	address, err := controlplane.MachineAddress()
	if err != nil {
		t.Fatal(err)
	}
	l := &cluster{t: t, c: rt, dir: dir, node: "edge-1", address: address}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l.must(os.MkdirAll(filepath.Join(dir, "manifests"), 0o755))
	l.must(os.Mkdir(filepath.Join(dir, "cp"), 0o755))
	o.Dir = filepath.Join(dir, "cp")
	if l.cp, err = controlplane.Start(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.cp.Stop() })
	l.port, l.health, l.readOnly = testprogram.Port(t), testprogram.Port(t), testprogram.Port(t)
	t.Cleanup(func() {
		l.killAgent()
		if t.Failed() {
			t.Logf("the agent said last:\n%s", tail(l.log.String(), 60))
		}
		_ = containerdtest.UnmountBelow(l.root())
		_ = containerdtest.UnlinkLogs(l.dir)
	})
	return l
}

func (l *cluster) root() string { return filepath.Join(l.dir, "agent") }

func (l *cluster) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// bootstrap is a kubeconfig of one who may only ask for a node's certificate.
func (l *cluster) bootstrap() string {
	l.t.Helper()
	for _, b := range [][2]string{
		{"system:node-bootstrapper", "system:bootstrappers"},
		{"system:certificates.k8s.io:certificatesigningrequests:nodeclient", "system:bootstrappers"},
		{"system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes"},
	} {
		l.kubectl("create", "clusterrolebinding", "e2e-"+b[0][strings.LastIndex(b[0], ":")+1:], "--clusterrole="+b[0], "--group="+b[1])
	}
	path, err := l.cp.Kubeconfig("bootstrap", "bootstrap", "system:bootstrappers")
	l.must(err)
	return path
}

// start starts the agent with a node's certificate, or what flags say, and
// returns when the node is ready.
func (l *cluster) start(flags ...string) {
	l.t.Helper()
	l.launch(flags...)
	l.until("the node is ready", func() error { return l.conditionIs(v1.NodeReady, v1.ConditionTrue) })
}

func (l *cluster) launch(flags ...string) {
	l.t.Helper()
	config := filepath.Join(l.dir, "config.yaml")
	l.must(os.WriteFile(config, fmt.Appendf(nil, `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
failSwapOn: false
%s
enforceNodeAllocatable: []
staticPodPath: %s
podLogsDir: %s
maxPods: 250
address: %s
port: %d
readOnlyPort: %d
healthzPort: %d
evictionHard: {memory.available: "1Mi", nodefs.available: "1Mi", imagefs.available: "1Mi", nodefs.inodesFree: "1"}
imageGCHighThresholdPercent: 100
nodeStatusUpdateFrequency: 2s
authentication: {x509: {clientCAFile: %q}}
%s`, l.cgroups(), filepath.Join(l.dir, "manifests"), filepath.Join(l.dir, "logs"), l.address, l.port, l.readOnly, l.health, l.cp.CAFile(), l.config), 0o600))
	if len(flags) == 0 {
		path, err := l.cp.Kubeconfig(l.node, "system:node:"+l.node, "system:nodes")
		l.must(err)
		flags = []string{"--kubeconfig", path}
	}
	l.log.Reset()
	binary := l.binary
	if binary == "" {
		binary = program(l.t, "agent")
	}
	cmd := exec.Command(binary, append([]string{
		"run", "--leave-host", "--config", config, "--root-dir", l.root(), "--cert-dir", filepath.Join(l.dir, "pki"), "--hostname-override", l.node,
		"--node-ip", l.address, "--container-runtime-endpoint", cmp.Or(l.endpoint, "unix://"+l.c.Socket),
	}, flags...)...)
	cmd.Stdout, cmd.Stderr = &l.log, &l.log
	l.must(cmd.Start())
	l.cmd = cmd
}

func (l *cluster) cgroups() string {
	if l.group == "" {
		return "cgroupsPerQOS: false"
	}
	return "cgroupsPerQOS: true\ncgroupDriver: cgroupfs\ncgroupRoot: " + l.group
}

func (l *cluster) killAgent() {
	if l.cmd != nil {
		_ = l.cmd.Process.Kill()
		_ = l.cmd.Wait()
		l.cmd = nil
	}
}

func (l *cluster) stopAgent() {
	l.t.Helper()
	l.must(l.cmd.Process.Signal(syscall.SIGTERM))
	l.must(l.cmd.Wait())
	l.cmd = nil
}

// kubectl must succeed.
func (l *cluster) kubectl(args ...string) string {
	l.t.Helper()
	out, err := l.try(args...)
	if err != nil {
		l.t.Fatal(err)
	}
	return out
}

func (l *cluster) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(l.t.Context(), testTimeout)
	defer cancel()
	out, err := l.cp.Kubectl(ctx, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// apply makes what the text says.
func (l *cluster) apply(text string) {
	l.t.Helper()
	cmd := l.cp.Kubectl(l.t.Context(), "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		l.t.Fatalf("apply: %v: %s", err, out)
	}
}

// until waits until ask has no error.
func (l *cluster) until(what string, ask func() error) {
	l.t.Helper()
	end := time.Now().Add(testTimeout)
	for {
		err := ask()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			l.t.Fatalf("%s: not within %v: %v", what, testTimeout, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (l *cluster) conditionIs(kind v1.NodeConditionType, want v1.ConditionStatus) error {
	var n v1.Node
	if err := l.get("/api/v1/nodes/"+l.node, &n); err != nil {
		return err
	}
	for _, c := range n.Status.Conditions {
		if c.Type == kind && c.Status == want {
			return nil
		}
	}
	return fmt.Errorf("conditions: %+v", n.Status.Conditions)
}

// get reads from the API.
func (l *cluster) get(path string, out any) error {
	return l.cp.Do(l.t.Context(), http.MethodGet, path, nil, out)
}

// pods are those of the namespace default, by name, with the labels that the
// selector wants.
func (l *cluster) pods(selector string) (map[string]*v1.Pod, error) {
	var list v1.PodList
	if err := l.get("/api/v1/namespaces/default/pods?labelSelector="+url.QueryEscape(selector), &list); err != nil {
		return nil, err
	}
	pods := map[string]*v1.Pod{}
	for i := range list.Items {
		pods[list.Items[i].Name] = &list.Items[i]
	}
	return pods, nil
}

// ready waits for n pods that are ready.
func (l *cluster) ready(n int, selector string) map[string]*v1.Pod {
	l.t.Helper()
	var pods map[string]*v1.Pod
	l.until(fmt.Sprintf("%d pods %q are ready", n, selector), func() (err error) {
		if pods, err = l.pods(selector); err != nil {
			return err
		}
		count := 0
		for _, p := range pods {
			if isReady(p) {
				count++
			}
		}
		if count != n || len(pods) != n {
			return fmt.Errorf("%d of %d", count, len(pods))
		}
		return nil
	})
	return pods
}

func isReady(p *v1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady {
			return c.Status == v1.ConditionTrue && p.DeletionTimestamp == nil
		}
	}
	return false
}

// pod is the manifest of a busybox pod that runs a command.
func pod(name, command string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %q, labels: {app: %q}}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - {name: main, image: %q, imagePullPolicy: Never, command: [sh, -c, %q]}
`, name, name, busybox, command)
}

// forever ends at once when it is told to.
const forever = "trap 'exit 0' TERM; while :; do sleep 1000 & wait $!; done"

func tail(s string, lines int) string {
	all := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// importBusybox makes an image of the machine's busybox.
func importBusybox(t *testing.T, c *containerdtest.Containerd) {
	t.Helper()
	importImage(t, c, busyboxImage(t))
}

// busyboxImage is the image of the tests' pods.
func busyboxImage(t *testing.T) sampleimage.Image {
	t.Helper()
	img := sampleimage.Image{
		Name: busybox, Architecture: runtime.GOARCH, Files: []sampleimage.File{{Path: "/bin/busybox", Mode: 0o755, Data: testprogram.Busybox(t)}, {Path: "/tmp/", Mode: 0o1777}},
		Env: []string{"PATH=/bin"}, Cmd: []string{"sleep", "1000000"},
	}
	for _, name := range []string{"sh", "sleep", "cat", "echo", "tar", "id", "ls", "nc", "true", "false", "env", "seq", "head", "hostname", "dd", "kill", "mount", "umount", "grep", "httpd", "wget", "touch", "date", "stty"} {
		img.Files = append(img.Files, sampleimage.File{Path: "/bin/" + name, Mode: 0o755, Data: fmt.Appendf(nil, "#!/bin/busybox sh\nexec /bin/busybox %s \"$@\"\n", name)})
	}
	return img
}

// importImage makes an image known to the runtime.
func importImage(t *testing.T, c *containerdtest.Containerd, img sampleimage.Image) {
	t.Helper()
	archive := filepath.Join(t.TempDir(), "image.tar")
	f, err := os.Create(archive)
	if err != nil {
		t.Fatal(err)
	}
	if err := sampleimage.Write(f, img); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.Import(t.Context(), archive); err != nil {
		t.Fatal(err)
	}
}
