package localcri_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/containerdtest"
	"github.com/nodewright/nodewright/internal/sampleimage"
	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/kubeletconfig"
	runtime "github.com/nodewright/nodewright/localcri"
	"github.com/nodewright/nodewright/node"
	"github.com/nodewright/nodewright/nodeagent"
	"github.com/nodewright/nodewright/nodeagent/localcri"
)

// hang is how long what has to come may take on any machine.
const hang = 2 * time.Minute

// manifest has the volumes that are mounts below the root directory; %s is a directory of the host.
const manifest = `apiVersion: v1
kind: Secret
metadata: {name: s, namespace: default}
stringData: {key: word}
---
apiVersion: v1
kind: Pod
metadata: {name: box, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: s, secret: {secretName: s}}, {name: m, emptyDir: {medium: Memory}}, {name: h, hostPath: {path: %s}}]
  containers:
  - name: c
    image: "localhost/nodewright/testbox:1"
    imagePullPolicy: Never
    args: [serve, ':8080']
    volumeMounts: [{name: s, mountPath: /s}, {name: m, mountPath: /m, subPath: x}, {name: h, mountPath: /h, subPath: mine}]
`

// lab is a machine with a node of its own runtime.
type lab struct {
	t         *testing.T
	dir, root string // of the first agent, root leads to disk by a symbolic link
	disk      string
	mine      string // a file of the host that the pods have by a subPath
	claims    string // directory
	conf      *kubeletconfig.Config
	cfg       runtime.InProcessConfig
}

func newLab(t *testing.T) *lab {
	containerdtest.Required(t)
	dir := t.TempDir()
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, dir: dir, disk: filepath.Join(dir, "disk"), mine: filepath.Join(dir, "host", "mine", "file"), claims: filepath.Join(dir, "claims")}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"manifests", "images", "host/mine", "disk"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("disk", filepath.Join(dir, "root")); err != nil {
		t.Fatal(err)
	}
	write("host/mine/file", "")
	write("manifests/box.yaml", fmt.Sprintf(manifest, filepath.Join(dir, "host")))
	archives, err := sampleimage.Build(t.Context(), repository, filepath.Join(repository, "build", "images"))
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range archives {
		if b, err := os.ReadFile(a); err != nil {
			t.Fatal(err)
		} else {
			write("images/"+filepath.Base(a), string(b))
		}
	}
	l.cfg = runtime.InProcessConfig{
		PreloadDir: filepath.Join(dir, "images"), Network: runtime.NetworkBridge,
		Handlers: map[string]runtime.Handler{"runc": {Path: filepath.Join(repository, "build", "bin", "runc")}},
	}
	return l.agent("root", "healthzPort: 0\npodLogsDir: "+dir+"/logs\n")
}

// agent is the lab with another agent on the machine, that with a root directory and
// settings of its own.
func (l *lab) agent(root, settings string) *lab {
	t := l.t
	o := *l
	o.root = filepath.Join(l.dir, root)
	file := filepath.Join(l.dir, root+".yaml")
	if err := os.WriteFile(file, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailCgroupV1: false\nfailSwapOn: false\ncgroupsPerQOS: false\n"+
		"evictionHard: {}\ncontainerRuntimeEndpoint: localcri\nresolvConf: ''\nstaticPodPath: "+l.dir+"/manifests\n"+settings), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := kubeletconfig.NewFlags()
	set := flag.NewFlagSet("", flag.ContinueOnError)
	flags.Bind(set)
	if err := set.Parse([]string{"--config", file, "--root-dir", o.root, "--hostname-override", "n"}); err != nil {
		t.Fatal(err)
	}
	var err error
	if o.conf, _, err = kubeletconfig.Load(kubeletconfig.Options{Flags: flags}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.reset)
	return &o
}

func (l *lab) reset() {
	l.t.Helper()
	if err := localcri.Reset(context.WithoutCancel(l.t.Context()), localcri.ResetOptions{RootDir: l.root, Images: true, ClaimsDir: l.claims, Log: zaptest.NewLogger(l.t)}, l.cfg); err != nil {
		l.t.Error(err)
	}
}

// make makes the node.
func (l *lab) make() *nodeagent.Node {
	l.t.Helper()
	n, err := nodeagent.New(l.t.Context(), nodeagent.Options{
		Config: l.conf, Parts: nodeagent.StandardWithout("eviction"), Services: []nodeagent.Service{nodeagent.Healthz}, LocalRuntime: localcri.Runtime(l.cfg),
		Settings: nodeagent.Settings{LeaveHost: true, ClaimsDir: l.claims}, Log: zaptest.NewLogger(l.t),
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return n
}

// start runs the node until stop, or the test's end.
func (l *lab) start() (n *nodeagent.Node, stop func()) {
	l.t.Helper()
	n = l.make()
	stop = testrun.Start(l.t, n.Run)
	return n, stop
}

// ready waits for the node's pod.
func (l *lab) ready(n *nodeagent.Node) *v1.Pod {
	l.t.Helper()
	for late := time.Now().Add(hang); ; time.Sleep(10 * time.Millisecond) {
		for _, p := range n.Pods() {
			if s := p.Status; s.Phase == v1.PodRunning && len(s.ContainerStatuses) == 1 && s.ContainerStatuses[0].Ready {
				return p
			}
		}
		if time.Now().After(late) {
			l.t.Fatalf("the pod is not ready: %+v", n.Pods())
		}
	}
}

// run runs the node until its pod is ready, and returns the pod.
func (l *lab) run() *v1.Pod {
	l.t.Helper()
	n, stop := l.start()
	defer stop()
	return l.ready(n)
}

// interfaceTo names the machine's interface in the network of an address.
func (l *lab) interfaceTo(ip string) string {
	l.t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		l.t.Fatal(err)
	}
	for _, i := range all {
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && n.Contains(net.ParseIP(ip)) {
				return i.Name
			}
		}
	}
	l.t.Fatalf("no interface leads to %q", ip)
	return ""
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// A node without any other runtime, whose root directory is a symbolic link, runs a pod with an
// address, which outlives the agent. Reset takes back everything, and nothing of the host.
func TestNodeWithItsOwnRuntime(t *testing.T) {
	l := newLab(t)
	first := l.run()
	bridge := l.interfaceTo(first.Status.PodIP)
	// Users of their own pass.
	if info, err := os.Stat(filepath.Join(l.root, "localcri")); err != nil || info.Mode().Perm() != 0o711 {
		t.Errorf("directory of the runtime: %+v, %v; want mode 0711", info, err)
	}
	second := l.run()
	a, b := first.Status.ContainerStatuses[0], second.Status.ContainerStatuses[0]
	if a.ContainerID != b.ContainerID || b.RestartCount != 0 || first.Status.PodIP == "" || first.Status.PodIP != second.Status.PodIP {
		t.Errorf("before the restart %+v at %q, after it %+v at %q", a, first.Status.PodIP, b, second.Status.PodIP)
	}
	l.reset()
	l.reset() // there is nothing
	for _, dir := range []string{"localcri", "runtime"} {
		if _, err := os.Lstat(filepath.Join(l.root, dir)); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", dir, err)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, l.disk) {
			t.Errorf("still mounted: %s", line)
		}
	}
	if err := os.RemoveAll(l.disk); err != nil {
		t.Error(err)
	}
	if !exists(l.mine) {
		t.Error("removing the root directory removed a file of the host")
	}
	if exists(filepath.Join("/sys/class/net", bridge)) {
		t.Errorf("interface %s is left", bridge)
	}
}

// answers asks the pod's server, by the network that its agent made.
func (l *lab) answers(pod *v1.Pod) {
	l.t.Helper()
	c := http.Client{Timeout: time.Second}
	for late := time.Now().Add(hang); ; time.Sleep(10 * time.Millisecond) { // the server has just begun
		res, err := c.Get("http://" + net.JoinHostPort(pod.Status.PodIP, "8080"))
		if err == nil {
			_ = res.Body.Close()
			return
		}
		if time.Now().After(late) {
			l.t.Fatalf("pod at %s: %v", pod.Status.PodIP, err)
		}
	}
}

// stays checks that nothing has happened to a pod, and that its logs are there.
func (l *lab) stays(n *nodeagent.Node, pod *v1.Pod) {
	l.t.Helper()
	now := l.ready(n)
	a, b := pod.Status.ContainerStatuses[0], now.Status.ContainerStatuses[0]
	if a.ContainerID != b.ContainerID || b.RestartCount != 0 || pod.Status.PodIP != now.Status.PodIP {
		l.t.Errorf("before %+v at %q, now %+v at %q", a, pod.Status.PodIP, b, now.Status.PodIP)
	}
	l.answers(now)
	if logs, err := filepath.Glob(filepath.Join(l.conf.PodLogsDir, "*", "c", "0.log")); len(logs) != 1 || err != nil {
		l.t.Errorf("logs %q, %v", logs, err)
	}
}

// Two agents with the same manifests, and so the same pods, run side by side: whatever
// becomes of one, the other's pods, logs and networks stay. One with settings of the
// other is refused, and says what to set.
func TestTwoAgentsOnAMachine(t *testing.T) {
	first := newLab(t)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(free.Addr().String())
	_ = free.Close()
	first = first.agent("first", "podLogsDir: "+first.dir+"/logs\nhealthzPort: "+port+"\n")
	a, stopFirst := first.start()
	one := first.ready(a)
	first.stays(a, one)

	clashes := func() {
		t.Helper()
		same := first.agent("same", "podLogsDir: "+first.dir+"/logs\nhealthzPort: "+port+"\n")
		err := same.make().Run(t.Context())
		if !errors.Is(err, node.ErrClaimed) {
			t.Fatalf("with settings of the first: %v", err)
		}
		for _, want := range []string{
			fmt.Sprintf("directory of pod logs %q is used by the agent with root directory %q", same.conf.PodLogsDir, first.root), "set podLogsDir to another one",
			fmt.Sprintf("port %q is used by", net.JoinHostPort("127.0.0.1", port)), "set healthzPort (--healthz-port) to another one",
		} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v; want %q", err, want)
			}
		}
	}
	clashes()
	second := first.agent("second", "podLogsDir: "+first.dir+"/logs-of-second\nhealthzPort: 0\n")
	b, stopSecond := second.start()
	two := second.ready(b)
	if one.UID != two.UID || one.Status.PodIP == two.Status.PodIP {
		t.Errorf("pods %s at %s and %s at %s; want one pod at two addresses", one.UID, one.Status.PodIP, two.UID, two.Status.PodIP)
	}
	first.stays(a, one)
	second.stays(b, two)

	stopFirst()
	clashes() // while it does not run, its containers do
	second.stays(b, two)
	first.answers(one)
	a, stopFirst = first.start()
	first.stays(a, one)
	second.stays(b, two)

	stopFirst()
	bridge := first.interfaceTo(one.Status.PodIP)
	first.reset()
	if exists(filepath.Join("/sys/class/net", bridge)) {
		t.Errorf("interface %s is left", bridge)
	}
	second.stays(b, two)
	stopSecond()
	b, _ = second.start()
	second.stays(b, two)
	if records, err := filepath.Glob(filepath.Join(first.claims, "*.json")); len(records) != 1 || err != nil {
		t.Errorf("records %q, %v; want that of the second agent", records, err)
	}
}
