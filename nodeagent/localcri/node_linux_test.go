package localcri_test

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/containerdtest"
	"github.com/nodewright/nodewright/internal/sampleimage"
	"github.com/nodewright/nodewright/kubeletconfig"
	runtime "github.com/nodewright/nodewright/localcri"
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
    args: [sleep, forever]
    volumeMounts: [{name: s, mountPath: /s}, {name: m, mountPath: /m, subPath: x}, {name: h, mountPath: /h, subPath: mine}]
`

// lab is a machine with a node of its own runtime.
type lab struct {
	t    *testing.T
	root string // leads to disk by a symbolic link
	disk string
	mine string // a file of the host that the pod has by a subPath
	conf *kubeletconfig.Config
	cfg  runtime.InProcessConfig
}

func newLab(t *testing.T) *lab {
	containerdtest.Required(t)
	dir := t.TempDir()
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, root: filepath.Join(dir, "root"), disk: filepath.Join(dir, "disk"), mine: filepath.Join(dir, "host", "mine", "file")}
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
	if err := os.Symlink("disk", l.root); err != nil {
		t.Fatal(err)
	}
	write("host/mine/file", "")
	write("manifests/box.yaml", fmt.Sprintf(manifest, filepath.Join(dir, "host")))
	write("config.yaml", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailCgroupV1: false\nfailSwapOn: false\ncgroupsPerQOS: false\n"+
		"healthzPort: 0\nevictionHard: {}\ncontainerRuntimeEndpoint: localcri\nresolvConf: ''\nstaticPodPath: "+dir+"/manifests\npodLogsDir: "+dir+"/logs\n")
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
	flags := kubeletconfig.NewFlags()
	set := flag.NewFlagSet("", flag.ContinueOnError)
	flags.Bind(set)
	if err := set.Parse([]string{"--config", filepath.Join(dir, "config.yaml"), "--root-dir", l.root, "--hostname-override", "n"}); err != nil {
		t.Fatal(err)
	}
	if l.conf, _, err = kubeletconfig.Load(kubeletconfig.Options{Flags: flags}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.reset() })
	return l
}

func (l *lab) reset() {
	l.t.Helper()
	if err := localcri.Reset(context.WithoutCancel(l.t.Context()), localcri.ResetOptions{RootDir: l.root, Images: true, Log: zaptest.NewLogger(l.t)}, l.cfg); err != nil {
		l.t.Error(err)
	}
}

// run runs the node until its pod is ready, and returns the pod.
func (l *lab) run() *v1.Pod {
	l.t.Helper()
	n, err := nodeagent.New(l.t.Context(), nodeagent.Options{
		Config: l.conf, Parts: nodeagent.StandardWithout("eviction"), LocalRuntime: localcri.Runtime(l.cfg),
		Settings: nodeagent.Settings{LeaveHost: true}, Log: zaptest.NewLogger(l.t),
	})
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, end := context.WithCancel(l.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	var pod *v1.Pod
	for late := time.Now().Add(hang); pod == nil; time.Sleep(10 * time.Millisecond) {
		for _, p := range n.Pods() {
			if s := p.Status; s.Phase == v1.PodRunning && len(s.ContainerStatuses) == 1 && s.ContainerStatuses[0].Ready {
				pod = p
			}
		}
		if time.Now().After(late) {
			l.t.Fatalf("the pod is not ready: %+v", n.Pods())
		}
	}
	end()
	if err := <-ended; err != nil {
		l.t.Error(err)
	}
	return pod
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
