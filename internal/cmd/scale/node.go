package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nodewright/nodewright/internal/containerdtest"
	"github.com/nodewright/nodewright/internal/sampleimage"
	"github.com/nodewright/nodewright/kubeletconfig"
)

// The nodes.
const (
	own          = "own"        // the agent on its own runtime
	onContainerd = "containerd" // the agent on containerd
	kubelet      = "kubelet"    // the kubelet on containerd
)

type settings struct{ cpus, network, repository, bin string }

const (
	limit = 20 * time.Minute // for the start of all pods, and for their removal
	calm  = 5 * time.Second  // wait after the last pod's start or removal, until the node is idle
	rest  = 10 * time.Second // duration of the measurement of an idle node
)

// config is the configuration of a node that runs beside a kubelet of the machine: it opens no
// well-known port and evicts nothing.
const config = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: %[1]s/manifests
podLogsDir: %[1]s/logs
maxPods: 10000
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
serializeImagePulls: false
evictionHard: {}
imageGCHighThresholdPercent: 100
healthzPort: 0
`

// kubeletOnly is added to config for the kubelet, which cannot run without a port.
const kubeletOnly = `containerRuntimeEndpoint: unix://%s
address: 127.0.0.1
port: 17256
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
makeIPTablesUtilChains: false
registerNode: false
`

// node is a running node. All its files are in the directory dir.
type node struct {
	settings
	dir, kind, endpoint string
	cmd                 *exec.Cmd
	done                chan struct{}
}

func (n *node) path(elem ...string) string { return filepath.Join(append([]string{n.dir}, elem...)...) }

// start starts the program of the node, and waits until it answers.
func (n *node) start(ctx context.Context) error {
	args := []string{filepath.Join(n.bin, "agent"), "run", "--leave-host", "--container-runtime-endpoint", n.endpoint}
	if n.kind == kubelet {
		args = []string{filepath.Join(n.bin, kubelet), "--cert-dir", n.path("pki"), "--node-ip", "127.0.0.1"}
	}
	if n.kind == own && n.network != "host" {
		args = append(args, "--network", n.network)
	}
	args = append(args, "--root-dir", n.path("root"), "--config", n.path("config.yaml"), "--hostname-override", "scale")
	if n.cpus != "" {
		args = append([]string{"taskset", "-c", n.cpus}, args...)
	}
	log, err := os.OpenFile(n.path("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	n.cmd = exec.Command(args[0], args[1:]...) //nolint:gosec // programs of the repository
	n.cmd.Stdout, n.cmd.Stderr = log, log
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := n.cmd.Start(); err != nil {
		return err
	}
	cmd, done := n.cmd, make(chan struct{})
	n.done = done
	go func() { defer close(done); _ = cmd.Wait() }()
	return n.until(ctx, "the node answers", 2*time.Minute, func() bool { return n.answers(ctx) })
}

// answers reports whether the node answers a request. For the kubelet it only waits for 3 s and
// returns true, because requests to the kubelet need a client certificate.
func (n *node) answers(ctx context.Context) bool {
	if n.kind == kubelet {
		time.Sleep(3 * time.Second)
		return true
	}
	return exec.CommandContext(ctx, filepath.Join(n.bin, "agent"), "get", "pods", "--root-dir", n.path("root")).Run() == nil
}

func (n *node) until(ctx context.Context, what string, limit time.Duration, is func() bool) error {
	for begin := time.Now(); !is(); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-n.done:
			return fmt.Errorf("the node exited; its log is %s", n.path("log"))
		case <-time.After(20 * time.Millisecond):
		}
		if time.Since(begin) > limit {
			return fmt.Errorf("timeout after %v, waiting until %s; the log is %s", limit, what, n.path("log"))
		}
	}
	return nil
}

// kill kills the program, if it was started, and waits until it has ended.
func (n *node) kill() {
	if n.cmd == nil || n.cmd.Process == nil {
		return
	}
	_ = n.cmd.Process.Kill() // error: it has ended
	<-n.done
}

// manifest returns pod i as JSON. Its container writes a file when it runs.
func (n *node) manifest(i int) []byte {
	text, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "p" + strconv.Itoa(i), "namespace": "default"},
		"spec": map[string]any{
			"terminationGracePeriodSeconds": 1, "hostNetwork": n.network == "host",
			"volumes": []any{map[string]any{"name": "out", "hostPath": map[string]any{"path": n.path("out"), "type": "Directory"}}},
			"containers": []any{map[string]any{
				"name": "m", "image": sampleimage.Testbox, "imagePullPolicy": "Never",
				"args":         []string{"write", "/out/" + strconv.Itoa(i), "runs", "sleep", "forever"},
				"volumeMounts": []any{map[string]any{"name": "out", "mountPath": "/out"}},
			}},
		},
	})
	if err != nil {
		panic(err) // strings, numbers and booleans can always be encoded
	}
	return text
}

// measure starts one node, measures it with a number of pods, and removes the node and
// the pods.
func measure(ctx context.Context, s settings, kind string, pods int) (r row, err error) {
	dir, err := os.MkdirTemp("", "nwscale") // a short path: it is a part of socket paths
	if err != nil {
		return row{}, err
	}
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // containers pass through
		return row{}, err
	}
	n := &node{settings: s, dir: dir, kind: kind, endpoint: kubeletconfig.InProcess}
	for _, d := range []string{"manifests", "made", "out", "root"} {
		if err := os.Mkdir(n.path(d), 0o755); err != nil { //nolint:gosec // containers write to out
			return row{}, err
		}
	}
	defer func() { err = errors.Join(err, n.remove(err == nil || ctx.Err() != nil)) }()
	conf := fmt.Sprintf(config, dir)
	var archives []string
	if kind == own {
		if archives, err = sampleimage.Build(ctx, s.repository, filepath.Join(s.repository, "build", "images")); err != nil {
			return row{}, err
		}
	} else {
		c, err := containerdtest.Start(ctx, containerdtest.Options{Runtime: containerdtest.ContainerdName, Dir: n.path("c"), Repository: s.repository})
		if err != nil {
			return row{}, err
		}
		defer func() { _ = c.Stop() }()
		n.endpoint = "unix://" + c.Socket
		if kind == kubelet {
			conf += fmt.Sprintf(kubeletOnly, c.Socket)
		}
		if s.cpus != "" {
			if out, err := exec.CommandContext(ctx, "taskset", "-acp", s.cpus, strconv.Itoa(c.PID())).CombinedOutput(); err != nil {
				return row{}, fmt.Errorf("taskset: %w: %s", err, out)
			}
		}
	}
	if err := os.WriteFile(n.path("config.yaml"), []byte(conf), 0o600); err != nil {
		return row{}, err
	}
	defer n.kill()
	if err := n.start(ctx); err != nil {
		return row{}, err
	}
	for _, a := range archives {
		if filepath.Base(a) != "testbox.tar" {
			continue
		}
		if out, err := exec.CommandContext(ctx, filepath.Join(s.bin, "agent"), "images", "load", a, "--root-dir", n.path("root")).CombinedOutput(); err != nil {
			return row{}, fmt.Errorf("load %s: %w: %s", a, err, out)
		}
	}
	return n.burst(ctx, pods)
}

// remove removes the pods on the agent's own runtime and all mounts. files tells it to remove the
// files too: after a failure the log is kept.
func (n *node) remove(files bool) error {
	if n.kind == own {
		out, err := exec.Command(filepath.Join(n.bin, "agent"), "reset", "--yes", "--root-dir", n.path("root")).CombinedOutput() //nolint:gosec // a program of the repository
		if err != nil {
			return fmt.Errorf("reset: %w: %s", err, out)
		}
	}
	if n.kind == kubelet {
		removeOutside(n.dir)
	}
	if err := containerdtest.UnmountBelow(n.dir); err != nil || !files {
		return err
	}
	return os.RemoveAll(n.dir)
}

// removeOutside removes what the kubelet leaves in directories whose names cannot be configured:
// links to logs below dir, and its socket for device plugins unless another kubelet uses the
// directory. Directories that are empty then go, too.
func removeOutside(dir string) {
	const links, root = "/var/log/containers", "/var/lib/kubelet"
	entries, _ := os.ReadDir(links) // a missing directory has no links
	for _, e := range entries {
		link := filepath.Join(links, e.Name())
		if to, err := os.Readlink(link); err == nil && strings.HasPrefix(to, dir+"/") {
			_ = os.Remove(link)
		}
	}
	gone := []string{links}
	if in, err := os.ReadDir(root); err == nil && len(in) == 1 {
		plugins := filepath.Join(root, "device-plugins")
		gone = append(gone, filepath.Join(plugins, "kubelet.sock"), filepath.Join(plugins, "kubelet_internal_checkpoint"), plugins, root)
	}
	for _, path := range gone {
		_ = os.Remove(path) // error: it has other files
	}
}

// burst measures the steps of one round: it starts the pods, leaves the node idle for a
// while, kills and restarts the node's program, and removes the pods.
func (n *node) burst(ctx context.Context, pods int) (row, error) {
	r := row{node: n.kind, pods: pods}
	name := func(i int) string { return "p" + strconv.Itoa(i) + ".json" }
	for i := range pods {
		if err := os.WriteFile(n.path("made", name(i)), n.manifest(i), 0o600); err != nil {
			return r, err
		}
	}
	cpu, begin := n.cpu(), time.Now()
	for i := range pods {
		if err := os.Rename(n.path("made", name(i)), n.path("manifests", name(i))); err != nil {
			return r, err
		}
	}
	var times []time.Duration
	if err := n.until(ctx, "all pods run", limit, func() bool {
		entries, err := os.ReadDir(n.path("out"))
		if err != nil || len(entries) < pods {
			time.Sleep(100 * time.Millisecond)
			return false
		}
		for _, e := range entries {
			if fi, err := e.Info(); err == nil {
				times = append(times, fi.ModTime().Sub(begin))
			}
		}
		return true
	}); err != nil {
		return r, err
	}
	r.half, r.all = quantile(times, 0.5), quantile(times, 1)
	time.Sleep(calm)
	now := n.cpu()
	r.perPod = (now - cpu) / time.Duration(pods)
	time.Sleep(rest)
	r.atRest = n.cpu() - now
	r.memory, r.monitors = n.memory()

	n.kill()
	begin = time.Now()
	if err := n.start(ctx); err != nil {
		return r, err
	}
	r.restart = time.Since(begin)
	time.Sleep(calm)
	if left := n.containers(); left != pods {
		return r, fmt.Errorf("%d of %d containers run after the program was killed", left, pods)
	}
	begin = time.Now()
	var errs []error
	for i := range pods {
		errs = append(errs, os.Remove(n.path("manifests", name(i))))
	}
	if err := errors.Join(errs...); err != nil {
		return r, err
	}
	err := n.until(ctx, "all pods are gone", limit, func() bool { return n.containers() == 0 })
	r.removed = time.Since(begin)
	time.Sleep(calm)
	return r, err
}

// processes calls f with the ID of each process of the node. The node's own processes have its
// directory in their command lines. A container's process is found by the command "write /out/"
// and by the mount of the node's directory out.
func (n *node) processes(f func(pid string, container bool)) {
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range entries {
		line, err := os.ReadFile(filepath.Join(p, "cmdline"))
		if err != nil {
			continue
		}
		text := string(line)
		switch {
		case strings.Contains(text, "\x00write\x00/out/"):
			if cwd, err := os.ReadFile(filepath.Join(p, "mountinfo")); err == nil && strings.Contains(string(cwd), filepath.Base(n.dir)+"/out ") {
				f(filepath.Base(p), true)
			}
		case strings.Contains(text, n.dir+"/"):
			f(filepath.Base(p), false)
		}
	}
}
