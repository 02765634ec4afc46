//go:build !race

package hostile

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/internal/testprogram"
)

const (
	image = "localhost/app:1"
	// fuse is how much memory, in bytes of addresses, the agent may map before
	// it ends instead of the machine. A Go program maps much that it never uses.
	fuse = 8 << 30
)

// machine is a fake runtime and an agent on it.
type machine struct {
	t   *testing.T
	rt  *critest.Runtime
	dir string
	api *local.Client
	cmd *exec.Cmd
	log testprogram.Output

	args []string // more of the agent's

	mu sync.Mutex
	// lie sees each call with its answer, and may change both.
	lie   func(method string, req, answer any) error
	execs map[string][]time.Time // by container
}

func newMachine(t *testing.T) *machine {
	dir, err := os.MkdirTemp("", "hostile") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, rt: critest.New(), dir: dir, execs: map[string][]time.Time{}}
	t.Cleanup(func() {
		m.unmount()
		m.must(exec.Command("rm", "-rf", dir).Run())
	})
	m.rt.AddImage(image)
	l, err := net.Listen("unix", m.path("cri.sock"))
	m.must(err)
	t.Cleanup(m.rt.Serve(l, grpc.UnaryInterceptor(m.answer)))
	m.must(os.Mkdir(m.path("manifests"), 0o700))
	m.write("config.yaml", `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: `+m.path("manifests")+`
podLogsDir: `+m.path("logs")+`
resolvConf: ""
cgroupsPerQOS: false
failCgroupV1: false
failSwapOn: false
healthzPort: 0
evictionHard: {}
`)
	return m
}

// unmount takes down the volumes of pods that were there to the end.
func (m *machine) unmount() {
	mounts, err := os.ReadFile("/proc/self/mounts")
	m.must(err)
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); strings.HasPrefix(fields[1], m.dir+"/") {
			m.must(syscall.Unmount(fields[1], syscall.MNT_DETACH))
		}
	}
}

// configure adds to the agent's configuration.
func (m *machine) configure(more string) {
	m.t.Helper()
	old, err := os.ReadFile(m.path("config.yaml"))
	m.must(err)
	m.write("config.yaml", string(old)+more)
}

func (m *machine) path(elements ...string) string {
	return filepath.Join(append([]string{m.dir}, elements...)...)
}

func (m *machine) write(name, text string) {
	m.t.Helper()
	// The agent must never see half of a manifest.
	m.must(os.WriteFile(m.path("new"), []byte(text), 0o600))
	m.must(os.Rename(m.path("new"), m.path(name)))
}

func (m *machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// answer is what the runtime says, and what is made of it.
func (m *machine) answer(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	method := info.FullMethod[strings.LastIndexByte(info.FullMethod, '/')+1:]
	m.mu.Lock()
	lie := m.lie
	if q, ok := req.(*runtimeapi.ExecSyncRequest); ok {
		m.execs[q.GetContainerId()] = append(m.execs[q.GetContainerId()], time.Now())
	}
	m.mu.Unlock()
	answer, err := handle(ctx, req)
	if err == nil && lie != nil {
		err = lie(method, req, answer)
	}
	return answer, err
}

func (m *machine) lies(f func(method string, req, answer any) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lie = f
}

// start starts the agent.
func (m *machine) start() {
	m.t.Helper()
	m.cmd = exec.Command(testprogram.Build(m.t, "./examples/agent", "liveheap"), "run", "--leave-host", "--root-dir", m.path("root"), "--config", m.path("config.yaml"),
		"--container-runtime-endpoint", "unix://"+m.path("cri.sock"), "--hostname-override", "node")
	m.cmd.Args = append(m.cmd.Args, m.args...)
	m.cmd.Env = append(os.Environ(), "GOMEMLIMIT=200MiB", "NODEWRIGHT_LIVE_HEAP="+m.path("heap.sock"))
	m.cmd.Stdout, m.cmd.Stderr = &m.log, &m.log
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() { // Pdeathsig is the thread's that forks
		runtime.LockOSThread()
		started <- m.cmd.Start()
		select {}
	}()
	m.must(<-started)
	m.must(prlimit(m.cmd.Process.Pid, fuse))
	m.t.Cleanup(func() {
		_ = m.cmd.Process.Kill()
		_ = m.cmd.Wait()
	})
	m.api = local.NewClient(m.path("root", "agent.sock"))
}

// stop ends the agent, which has to be alive, and has a minute.
func (m *machine) stop() {
	m.t.Helper()
	if err := m.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		m.t.Errorf("the agent has ended: %v\n%s", err, m.log.String())
		return
	}
	timer := time.AfterFunc(time.Minute, func() { _ = m.cmd.Process.Signal(syscall.SIGQUIT) })
	defer timer.Stop()
	if err := m.cmd.Wait(); err != nil {
		text := m.log.String()
		m.t.Errorf("the agent: %v\n%s", err, text[max(0, len(text)-4000):])
	}
}

// peak is the most memory that the agent ever had, in bytes.
func (m *machine) peak() int64 {
	m.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.cmd.Process.Pid))
	m.must(err)
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			m.must(err)
			return kb << 10
		}
	}
	m.t.Errorf("the agent has ended:\n%s", m.log.String())
	return 0
}

// descriptors and threads are how many the agent has.
func (m *machine) descriptors() int { return m.entries("fd") }
func (m *machine) threads() int     { return m.entries("task") }

func (m *machine) entries(of string) int {
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/%s", m.cmd.Process.Pid, of))
	if err != nil {
		return 0
	}
	return len(list)
}

// container is the id of the container of a pod that runs, "" if none does.
func (m *machine) container(pod string) string {
	list, err := m.rt.ListContainers(context.Background(), nil)
	m.must(err)
	for _, c := range list {
		if c.GetLabels()["io.kubernetes.pod.name"] == pod+"-node" && c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
			return c.GetId()
		}
	}
	return ""
}

// podOf is the name of the pod of a container, without the node's.
func (m *machine) podOf(id string) string {
	list, _ := m.rt.ListContainers(context.Background(), &runtimeapi.ContainerFilter{Id: id})
	for _, c := range list {
		return strings.TrimSuffix(c.GetLabels()["io.kubernetes.pod.name"], "-node")
	}
	return ""
}

// podDir is the directory of a pod that runs.
func (m *machine) podDir(pod string) string {
	m.t.Helper()
	list, err := m.rt.ListContainers(context.Background(), nil)
	m.must(err)
	for _, c := range list {
		if c.GetLabels()["io.kubernetes.pod.name"] == pod+"-node" {
			return m.path("root", "pods", c.GetLabels()["io.kubernetes.pod.uid"])
		}
	}
	m.t.Fatalf("pod %s has no container", pod)
	return ""
}

// until waits for something that has to happen; so long only if it never does.
func (m *machine) until(what string, ok func() bool) {
	m.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if err := m.cmd.Process.Signal(syscall.Signal(0)); errors.Is(err, os.ErrProcessDone) || time.Now().After(end) {
			m.t.Fatalf("not seen: %s\n%s", what, m.log.String())
		}
	}
}

func (m *machine) untilRuns(pod string) string {
	m.t.Helper()
	id := ""
	m.until("pod "+pod+" runs", func() bool { id = m.container(pod); return id != "" })
	return id
}
