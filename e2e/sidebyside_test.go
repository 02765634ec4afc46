//go:build kubelet

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/e2e/controlplane"
	"github.com/nodewright/nodewright/internal/containerdtest"
	"github.com/nodewright/nodewright/internal/testprogram"
)

// kubeletRoot is where the kubelet has its device plugins, whatever its flags say.
const kubeletRoot = "/var/lib/kubelet"

// logLinks is where the kubelet links to logs, whatever its flags say.
const logLinks = "/var/log/containers"

// Programs that run a node, as make takeover builds them.
const (
	kubelet = "kubelet"
	agent   = "agent"
)

// A node is run by the kubelet and by the agent in turn: with one configuration,
// one root directory, one containerd and one API server.
type node struct {
	*cluster
	config, kubeconfig string
	last               string // the program that ran it last
	profiles           sync.WaitGroup
}

// newNode starts everything but the program that runs the node. more are lines of
// its KubeletConfiguration.
func newNode(t *testing.T, more string) *node {
	t.Helper()
	return nodeOf(t, controlplane.Options{}, more)
}

// nodeOf is newNode with a control plane of one's own.
func nodeOf(t *testing.T, o controlplane.Options, more string) *node {
	t.Helper()
	for _, dir := range []string{kubeletRoot, logLinks} {
		if _, err := os.Stat(dir); err == nil {
			t.Fatalf("%s is there: this machine is a node already, or an earlier run was killed", dir)
		}
	}
	for _, name := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops"} { // the kubelet sets them at its start
		path := filepath.Join("/proc/sys", name)
		if old, err := os.ReadFile(path); err == nil {
			t.Cleanup(func() { _ = os.WriteFile(path, old, 0o600) })
		}
	}
	group := cgroupRoot(t)
	t.Cleanup(func() { // after the pods have ended
		_ = containerdtest.UnmountBelow(kubeletRoot)
		_ = unix.Unmount(kubeletRoot, unix.MNT_DETACH) // the kubelet mounts it upon itself to share what is below
		_ = os.RemoveAll(kubeletRoot)
		_ = os.RemoveAll(logLinks)
	})
	l := clusterOf(t, o)
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := l.cp.Kubectl(context.Background(), "describe", "node", l.node).CombinedOutput()
			t.Logf("the node:\n%s", out)
		}
	})
	n := &node{cluster: l, config: filepath.Join(l.dir, "kubelet.yaml")}
	l.must(os.WriteFile(n.config, fmt.Appendf(nil, `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://%s
failCgroupV1: false
failSwapOn: false
cgroupRoot: %s
makeIPTablesUtilChains: false
staticPodPath: %s
podLogsDir: %s
address: %s
port: %d
readOnlyPort: %d
healthzPort: %d
evictionHard: {memory.available: "1Mi", nodefs.available: "1Mi", imagefs.available: "1Mi", nodefs.inodesFree: "1"}
imageGCHighThresholdPercent: 100
authentication: {x509: {clientCAFile: %q}}
%s`, l.c.Socket, group, filepath.Join(l.dir, "manifests"), filepath.Join(l.dir, "logs"), l.address, l.port, l.readOnly, l.health, l.cp.CAFile(), more), 0o600))
	var err error
	n.kubeconfig, err = l.cp.Kubeconfig(l.node, "system:node:"+l.node, "system:nodes")
	l.must(err)
	return n
}

// run has a program run the node, from a fresh start, and returns when the node is
// ready by its word.
func (n *node) run(name string) {
	n.t.Helper()
	args := []string{"--config", n.config, "--root-dir", kubeletRoot, "--cert-dir", filepath.Join(n.dir, "pki"), "--hostname-override", n.cluster.node,
		"--node-ip", n.address, "--kubeconfig", n.kubeconfig, "-v", "3"}
	if name != kubelet {
		args = append([]string{"run", "--leave-host"}, args...)
	}
	n.log.Reset()
	began := time.Now().Truncate(time.Second)
	cmd := exec.Command(program(n.t, name), args...)
	cmd.Stdout, cmd.Stderr = &n.log, &n.log
	n.must(cmd.Start())
	n.cmd, n.last = cmd, name
	n.until("the node is ready by the word of the "+name, func() error {
		var obj v1.Node
		if err := n.get("/api/v1/nodes/"+n.cluster.node, &obj); err != nil {
			return err
		}
		for _, c := range obj.Status.Conditions {
			if c.Type == v1.NodeReady && c.Status == v1.ConditionTrue && !c.LastHeartbeatTime.Time.Before(began) {
				return nil
			}
		}
		return fmt.Errorf("conditions: %+v", obj.Status.Conditions)
	})
}

// end has the program end as a supervisor would.
func (n *node) end() {
	n.t.Helper()
	n.must(n.cmd.Process.Signal(syscall.SIGTERM))
	_ = n.cmd.Wait() // the kubelet ends with an error then
	n.cmd = nil
	if dir := os.Getenv("NODEWRIGHT_E2E_LOGS"); dir != "" {
		n.must(os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d.log", filepath.Base(n.last), time.Now().Unix())), []byte(n.log.String()), 0o600))
	}
}

// until waits a minute until ask has no error.
func (n *node) until(what string, ask func() error) {
	n.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		err := ask()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			n.t.Fatalf("%s: not within a minute: %v", what, err)
		}
	}
}

// build makes a program of this repository.
func (n *node) build(name, pkg string) string {
	n.t.Helper()
	path := filepath.Join(n.dir, name)
	n.must(testprogram.Compile(n.t.Context(), "..", path, pkg))
	return path
}

// inside is what a command prints in a container of a pod.
func (n *node) inside(pod string, command ...string) string {
	n.t.Helper()
	var out string
	n.until("exec in "+pod, func() (err error) {
		out, err = n.try(append([]string{"exec", "-c", "main", pod, "--"}, command...)...)
		return err
	})
	return strings.TrimSpace(out)
}
