package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/sampleimage"
	"github.com/nodewright/nodewright/internal/testprogram"
)

// rootlessUser is the user and group ID of the ordinary user. No machine has it: the files of users
// of the machine are covered by others in a mount namespace.
const rootlessUser = 4200

// rootlessMachine makes a machine with the user: $1 is a directory with passwd, group and subid, $2 the
// agent's directory, $3 its cgroup. The network namespace has an uplink to the neighbour of $4, a
// process in another one.
const rootlessMachine = `set -eu
for f in passwd group; do mount --bind "$1/$f" /etc/$f; done
for f in subuid subgid; do mount --bind "$1/subid" /etc/$f; done
mkdir "$1/dev"; mount -t tmpfs dev "$1/dev" # the test's directory may be on a file system without devices
mknod "$1/dev/tun" c 10 200; chmod 0666 "$1/dev/tun"; mount --bind "$1/dev/tun" /dev/net/tun
mkdir -p /sys/fs/cgroup/$3
for c in $(cat /sys/fs/cgroup/cgroup.controllers); do echo +$c > /sys/fs/cgroup/cgroup.subtree_control || true; done
for f in . cgroup.procs cgroup.threads cgroup.subtree_control; do chown 4200:4200 /sys/fs/cgroup/$3/$f; done
ip link set lo up
ip link add uplink type veth peer name lan netns "$4"
ip address add 192.0.2.2/24 dev uplink
ip link set uplink up
nsenter -t "$4" -n -- sh -c 'ip link set lo up; ip address add 192.0.2.1/24 dev lan; ip link set lan up'
ip route add default via 192.0.2.1
echo ready
exec sleep infinity >/dev/null 2>&1`

// rootlessLab is a machine with an ordinary user, who runs an agent.
type rootlessLab struct {
	t                       *testing.T
	dir, home, base, binary string
	machine, neighbour      int // processes
	controllers             string
	cmd                     *exec.Cmd
	log                     testprogram.Output
}

func newRootlessLab(t *testing.T) *rootlessLab {
	t.Helper()
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.procs"); err != nil {
		t.Skip("needs cgroup v2: make rootless")
	}
	missing := func(what string) {
		t.Helper()
		if os.Getenv("CI") == "true" {
			t.Fatalf("missing: %s, and CI=true", what)
		}
		t.Skip("missing:", what)
	}
	if os.Getuid() != 0 {
		missing("root, to make a machine with an ordinary user")
	}
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Join(repository, "build", "bin")+":"+os.Getenv("PATH"))
	for _, program := range []string{"unshare", "nsenter", "setpriv", "newuidmap", "pasta", "ip", "curl", "runc"} {
		if _, err := exec.LookPath(program); err != nil {
			missing(program)
		}
	}
	l := &rootlessLab{t: t, dir: t.TempDir(), base: fmt.Sprintf("nodewright-test-%d", os.Getpid())}
	if err := unix.Setxattr(l.dir, "user.test", nil, 0); err != nil { // the image store of an ordinary user has some
		t.Skipf("needs a file system with extended attributes of users, as tmpfs since Linux 6.6 (%s: %v): make rootless", l.dir, err)
	}
	l.home = filepath.Join(l.dir, "home")
	l.must(os.Chmod(filepath.Dir(l.dir), 0o755)) //nolint:gosec // users of pods pass
	for _, d := range []string{"home", "home/manifests", "images"} {
		l.must(os.MkdirAll(filepath.Join(l.dir, d), 0o755))
		l.must(os.Chown(filepath.Join(l.dir, d), rootlessUser, rootlessUser))
	}
	archives, err := sampleimage.Build(t.Context(), repository, filepath.Join(repository, "build", "images"))
	l.must(err)
	for _, a := range archives {
		l.copy(a, filepath.Join(l.dir, "images", filepath.Base(a)), 0o644)
	}
	// The test's own directory is closed to other users.
	l.binary = filepath.Join(l.dir, "agent")
	l.copy("/proc/self/exe", l.binary, 0o755)
	l.copy(filepath.Join(repository, "build", "images", "bin", "testbox"), filepath.Join(l.dir, "testbox"), 0o755)
	for name, text := range map[string]string{
		"passwd": fmt.Sprintf("root:x:0:0::/root:/bin/sh\nordinary:x:%d:%d::%s:/bin/sh\n", rootlessUser, rootlessUser, l.home),
		"group":  fmt.Sprintf("root:x:0:\nordinary:x:%d:\n", rootlessUser), "subid": "ordinary:4300000:65536\n",
	} {
		l.must(os.WriteFile(filepath.Join(l.dir, name), []byte(text), 0o644))
	}
	l.neighbour = l.hold("unshare", "--net", "--", "sh", "-c", "echo ready; exec sleep infinity >/dev/null 2>&1")
	l.machine = l.hold("unshare", "--net", "--mount", "--", "sh", "-c", rootlessMachine, "sh", l.dir, l.home, l.base, strconv.Itoa(l.neighbour))
	b, err := os.ReadFile(l.cgroup("cgroup.controllers"))
	l.must(err)
	l.controllers = string(b)
	t.Cleanup(func() {
		if l.cmd != nil {
			_ = l.cmd.Process.Kill()
			_ = l.cmd.Wait()
		}
		_ = os.WriteFile(l.cgroup("cgroup.kill"), []byte("1"), 0)
		for late := time.Now().Add(testTimeout); time.Now().Before(late); time.Sleep(10 * time.Millisecond) {
			if removeEmpty(l.cgroup("")) {
				return
			}
		}
	})
	return l
}

// removeEmpty removes cgroups, and reports whether none is left.
func removeEmpty(dir string) bool {
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return true
	}
	for _, e := range entries {
		if e.IsDir() {
			removeEmpty(filepath.Join(dir, e.Name()))
		}
	}
	return unix.Rmdir(dir) == nil
}

func (l *rootlessLab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *rootlessLab) copy(from, to string, mode os.FileMode) {
	l.t.Helper()
	b, err := os.ReadFile(from)
	l.must(err)
	l.must(os.WriteFile(to, b, mode))
	l.must(os.Chmod(to, mode))
}

// hold starts a process that prints a line when its namespaces are ready, and returns its ID.
func (l *rootlessLab) hold(args ...string) int {
	l.t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(l.t.Context()), args[0], args[1:]...) //nolint:gosec // of this test
	var stderr testprogram.Output
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	l.must(err)
	l.must(cmd.Start())
	l.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	b := make([]byte, 16)
	if n, _ := out.Read(b); strings.TrimSpace(string(b[:n])) != "ready" {
		l.t.Fatalf("%.60q: %s", args, stderr.String())
	}
	return cmd.Process.Pid
}

// cgroup returns the path of a file of the delegated cgroup.
func (l *rootlessLab) cgroup(file string) string {
	root := "/sys/fs/cgroup"
	if _, err := os.Stat(root + "/cgroup.procs"); err != nil {
		root += "/unified"
	}
	return filepath.Join(root, l.base, file)
}

// user returns a command of the user on the machine. With delegated, the command is in the
// user's cgroup.
func (l *rootlessLab) user(delegated bool, args ...string) *exec.Cmd {
	join := ""
	if delegated {
		join = "cd /sys/fs/cgroup/" + l.base + "; echo $$ > cgroup.procs 2>/dev/null || echo $$ > agent/cgroup.procs; cd /; "
	}
	id := strconv.Itoa(rootlessUser)
	all := append([]string{
		"-t", strconv.Itoa(l.machine), "-n", "-m", "--", "sh", "-c", join + `exec "$@"`, "sh",
		"setpriv", "--reuid", id, "--regid", id, "--clear-groups", "env", "-i", "HOME=" + l.home, "PATH=" + os.Getenv("PATH"), beTheAgent + "=1", l.binary,
	}, args...)
	return exec.CommandContext(context.WithoutCancel(l.t.Context()), "nsenter", all...) //nolint:gosec // of this test
}

// start starts the agent.
func (l *rootlessLab) start() {
	l.t.Helper()
	l.cmd = l.user(true, "run", "--pod-manifest-path", filepath.Join(l.home, "manifests"), "--preload-images", filepath.Join(l.dir, "images"),
		"--hostname-override", "lab", "--forward-ports", "18080-18081", "--config", filepath.Join(l.home, "agent.yaml"))
	l.cmd.Stdout, l.cmd.Stderr = &l.log, &l.log
	l.must(l.cmd.Start())
}

// run runs a command of the agent as the user, and returns its output.
func (l *rootlessLab) run(args ...string) (string, error) {
	out, err := l.user(false, args...).CombinedOutput()
	return string(out), err
}

// until waits until done returns true.
func (l *rootlessLab) until(what string, done func() bool) {
	l.t.Helper()
	for late := time.Now().Add(testTimeout); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(late) {
			out, _ := l.run("get", "pods")
			l.t.Fatalf("not within %v: %s\n%s\nlog of the agent:\n%s", testTimeout, what, out, l.log.String())
		}
	}
}

func (l *rootlessLab) pods() map[string]*v1.Pod {
	out, err := l.user(false, "get", "pods", "-o", "json").Output()
	var list v1.PodList
	if err != nil || json.Unmarshal(out, &list) != nil {
		return nil
	}
	all := map[string]*v1.Pod{}
	for i := range list.Items {
		all[strings.TrimSuffix(list.Items[i].Name, "-lab")] = &list.Items[i]
	}
	return all
}

func (l *rootlessLab) ready(name string) *v1.Pod {
	l.t.Helper()
	var pod *v1.Pod
	l.until("pod "+name+" is ready", func() bool {
		pod = l.pods()[name]
		return pod != nil && len(pod.Status.ContainerStatuses) == 1 && pod.Status.ContainerStatuses[0].Ready
	})
	return pod
}

// rootlessPods are the pods of the test. IMAGE is testbox.
const rootlessPods = `apiVersion: v1
kind: ConfigMap
metadata: {name: words}
data: {word: hello}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  securityContext: {runAsUser: 1000, runAsGroup: 1000, fsGroup: 2000}
  volumes: [{name: m, emptyDir: {medium: Memory}}, {name: d, emptyDir: {}}, {name: c, configMap: {name: words}}]
  initContainers:
  - {name: init, image: IMAGE, args: [write, /m/file, from init, write, /d/file, x], volumeMounts: [{name: m, mountPath: /m}, {name: d, mountPath: /d}]}
  containers:
  - name: c
    image: IMAGE
    args: [cat, /m/file, cat, /c/word, id, stat, /d/file, cat, /proc/self/status, serve, ':8080']
    ports: [{containerPort: 8080, hostPort: 18080}]
    volumeMounts: [{name: m, mountPath: /m}, {name: d, mountPath: /d}, {name: c, mountPath: /c}]
    resources: {limits: {memory: 64Mi, cpu: 500m}}
    readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}
    livenessProbe: {exec: {command: [/testbox, cat, /m/file]}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 10}
---
apiVersion: v1
kind: Pod
metadata: {name: node}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: IMAGE, args: [serve, ':18081']}]
---
apiVersion: v1
kind: Pod
metadata: {name: out}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: 'localhost/nodewright/sidecar:1', args: ['-url', 'http://192.0.2.1:8080/', '-every', 1s]}]
---
apiVersion: v1
kind: Pod
metadata: {name: privileged}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: IMAGE, args: [ls, /dev, sleep, forever], securityContext: {privileged: true}}]
---
apiVersion: v1
kind: Pod
metadata: {name: userns}
spec:
  hostUsers: false
  containers: [{name: c, image: IMAGE, args: [sleep, forever]}]
---
apiVersion: v1
kind: Pod
metadata: {name: oom}
spec:
  restartPolicy: Never
  containers: [{name: c, image: IMAGE, args: [alloc, '200', sleep, 2s], resources: {limits: {memory: 40Mi}}}]
`

// An ordinary user runs an agent, whose pods go on when it is killed, and removes everything.
//
// The test takes a minute: it starts an agent twice in a machine of its own.
func TestAgentWithoutRoot(t *testing.T) {
	l := newRootlessLab(t)
	l.must(os.WriteFile(filepath.Join(l.home, "agent.yaml"), []byte(configHead+"failSwapOn: false\nfeatureGates: {}\n"), 0o644))
	l.must(os.WriteFile(filepath.Join(l.home, "manifests", "pods.yaml"), []byte(strings.ReplaceAll(rootlessPods, "IMAGE", sampleimage.Testbox)), 0o644))
	serve := exec.CommandContext(t.Context(), "nsenter", "-t", strconv.Itoa(l.neighbour), "-n", "--", filepath.Join(l.dir, "testbox"), "serve", "192.0.2.1:8080") //nolint:gosec // of this test
	l.must(serve.Start())
	t.Cleanup(func() { _ = serve.Process.Kill(); _ = serve.Wait() })
	l.start()
	web, node := l.ready("web"), l.ready("node")

	logs, err := l.run("logs", "web")
	for _, want := range []string{"from init", "hello", "1000 1000", "644 1000 2000"} {
		if err != nil || !strings.Contains(logs, want) {
			t.Errorf("logs of web: %v, %q; want %q", err, logs, want)
		}
	}
	if out, err := l.run("exec", "web", "--", "/testbox", "id"); err != nil || !strings.Contains(out, "1000 1000") {
		t.Errorf("exec: %v, %q", err, out)
	}
	l.until("pod out reaches another machine", func() bool {
		out, _ := l.run("logs", "out")
		return strings.Contains(out, "200 OK")
	})
	// From the machine and from another one.
	for url, from := range map[string]int{
		"http://127.0.0.1:18080/": l.machine, "http://localhost:18080/": l.machine, "http://192.0.2.2:18080/": l.neighbour,
		"http://127.0.0.1:18081/": l.machine, "http://192.0.2.2:18081": l.neighbour,
	} {
		l.until(url+" answers", func() bool {
			return exec.CommandContext(t.Context(), "nsenter", "-t", strconv.Itoa(from), "-n", "--", "curl", "-sS", "-m", "5", url).Run() == nil //nolint:gosec // of this test
		})
	}
	l.ready("privileged")
	if why, _ := l.run("why", "userns"); !strings.Contains(why, "user namespace") {
		t.Errorf("why userns: %s", why)
	}
	if strings.Contains(l.controllers, "memory") {
		l.until("pod oom is killed", func() bool {
			p := l.pods()["oom"]
			if p == nil || len(p.Status.ContainerStatuses) != 1 {
				return false
			}
			end := p.Status.ContainerStatuses[0].State.Terminated
			return end != nil && end.Reason == "OOMKilled"
		})
	}
	if !strings.Contains(l.log.String(), "agent runs without root") {
		t.Errorf("the agent does not say that it runs without root:\n%s", l.log.String())
	}

	// The agent is killed, and adopts its pods.
	l.must(l.cmd.Process.Kill())
	_ = l.cmd.Wait()
	if err := exec.CommandContext(t.Context(), "nsenter", "-t", strconv.Itoa(l.neighbour), "-n", "--", "curl", "-sS", "-m", "20", "http://192.0.2.2:18081/").Run(); err != nil { //nolint:gosec // of this test
		t.Errorf("pod node without an agent: %v", err)
	}
	l.start()
	for name, before := range map[string]*v1.Pod{"web": web, "node": node} {
		now := l.ready(name)
		a, b := before.Status.ContainerStatuses[0], now.Status.ContainerStatuses[0]
		if a.ContainerID != b.ContainerID || a.RestartCount != b.RestartCount || before.Status.PodIP != now.Status.PodIP {
			t.Errorf("pod %s: before %+v at %s, now %+v at %s", name, a, before.Status.PodIP, b, now.Status.PodIP)
		}
	}
	if out, err := l.run("exec", "web", "--", "/testbox", "id"); err != nil {
		t.Errorf("exec after the restart: %v, %q", err, out)
	}

	// A reset leaves nothing.
	l.must(l.cmd.Process.Signal(unix.SIGTERM))
	_ = l.cmd.Wait()
	if out, err := l.run("reset", "--all", "--yes"); err != nil {
		t.Errorf("reset: %v, %s", err, out)
	}
	if b, err := os.ReadFile(l.cgroup("cgroup.procs")); err != nil || len(b) > 0 {
		t.Errorf("processes %q, %v", b, err)
	}
	entries, err := os.ReadDir(l.cgroup(""))
	l.must(err)
	for _, e := range entries {
		if e.IsDir() && e.Name() != "agent" {
			t.Errorf("cgroup %s is left", e.Name())
		}
	}
	if b, err := os.ReadFile(l.cgroup("agent/cgroup.procs")); err != nil || len(b) > 0 {
		t.Errorf("processes %q, %v; want neither the holder nor pasta", b, err)
	}
	if left, err := os.ReadDir(filepath.Join(l.home, ".local", "share", "nodewright")); err != nil || len(left) > 0 {
		t.Errorf("files %v, %v", left, err)
	}
}
