package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/internal/containerdtest"
	"github.com/nodewright/nodewright/internal/sampleimage"
	"github.com/nodewright/nodewright/internal/testprogram"
)

// beTheAgent makes this test binary the agent: what the tests start, kill and
// start again is a process like the real one.
const beTheAgent = "NODEWRIGHT_TEST_IS_AGENT"

func TestMain(m *testing.M) {
	if os.Getenv(beTheAgent) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// testTimeout is how long a lab waits for what must come, however slow the machine: an emulated one
// (make test-vm) needs more than five minutes for the pods of TestSeenFromInside.
const testTimeout = 10 * time.Minute

// A lab is a private containerd and an agent on it.
type lab struct {
	t         testing.TB
	c         *containerdtest.Containerd
	cri       *cri.Client
	socket    string // that the agent uses
	manifests string
	root      string // of the agent
	logs      string // of the pods
	env       []string
	args      []string // of the agent, beside the lab's own
	cmd       *exec.Cmd
	agentLog  testprogram.Output // of the last agent
	api       *local.Client
}

// newLab starts containerd, or what RUNTIME says, and no agent yet.
func newLab(t testing.TB) *lab { return newLabOn(t, containerdtest.Options{}) }

func newLabOn(t testing.TB, o containerdtest.Options) *lab {
	c := containerdtest.New(t, o)
	client, err := cri.New(cri.Config{Endpoint: c.Socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(context.Background()) })
	l := bareLab(t)
	l.c, l.cri, l.socket = c, client, c.Socket
	return l
}

// bareLab is a lab without a runtime of its own.
func bareLab(t testing.TB) *lab {
	dir, err := os.MkdirTemp("", "nwlab") // t.TempDir is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l := &lab{t: t, manifests: filepath.Join(dir, "manifests"), root: filepath.Join(dir, "agent"), logs: filepath.Join(dir, "logs")}
	l.api = local.NewClient(filepath.Join(l.root, "agent.sock"))
	l.must(os.Mkdir(l.manifests, 0o755))
	l.must(os.WriteFile(l.config(), fmt.Appendf(nil,
		"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailCgroupV1: false\nfailSwapOn: false\ncgroupsPerQOS: false\npodLogsDir: %s\nmaxPods: 500\nhealthzPort: 0\nevictionHard: {}\nimageGCHighThresholdPercent: 100\n", // however full the disk is
		l.logs), 0o600))
	t.Cleanup(func() { // before containerd's end, which t.Cleanup runs later
		if l.cmd != nil {
			l.kill()
		}
		if t.Failed() {
			t.Logf("the agent said last:\n%s", tail(l.agentLog.String(), 60))
		}
		_ = containerdtest.UnmountBelow(l.root)
		_ = containerdtest.UnlinkLogs(l.logs)
	})
	return l
}

func (l *lab) config() string { return filepath.Join(filepath.Dir(l.manifests), "config.yaml") }

// configure adds lines to the agent's configuration.
func (l *lab) configure(lines string) {
	l.t.Helper()
	f, err := os.OpenFile(l.config(), os.O_APPEND|os.O_WRONLY, 0)
	l.must(err)
	_, err = f.WriteString(lines)
	l.must(err)
	l.must(f.Close())
}

// reconfigure has the lab's agent run with another line in its configuration in
// place of one.
func (l *lab) reconfigure(line, with string) {
	l.t.Helper()
	b, err := os.ReadFile(l.config())
	l.must(err)
	if !strings.Contains(string(b), line) {
		l.t.Fatalf("the configuration has no %q:\n%s", line, b)
	}
	l.must(os.WriteFile(l.config(), []byte(strings.Replace(string(b), line, with, 1)), 0o600))
}

func (l *lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// command is the agent's binary with arguments.
func (l *lab) command(ctx context.Context, args ...string) *exec.Cmd {
	self, err := os.Executable()
	l.must(err)
	cmd := exec.CommandContext(ctx, self, slices.Concat(args, []string{"--root-dir", l.root})...)
	cmd.Env = slices.Concat(os.Environ(), []string{beTheAgent + "=1"}, l.env)
	return cmd
}

// start starts the agent and returns once its socket answers.
func (l *lab) start() {
	l.t.Helper()
	l.launch()
	for end := time.Now().Add(testTimeout); ; {
		if _, err := l.api.Pods(l.t.Context()); err == nil {
			return
		} else if time.Now().After(end) {
			l.t.Fatalf("the agent does not answer: %v", err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (l *lab) launch() {
	l.t.Helper()
	l.agentLog.Reset()
	cmd := l.command(context.Background(), slices.Concat([]string{"run", "--leave-host", "--config", l.config(), "--pod-manifest-path", l.manifests,
		"--container-runtime-endpoint", "unix://" + l.socket, "--hostname-override", "lab"}, l.args)...)
	cmd.Stdout, cmd.Stderr = &l.agentLog, &l.agentLog
	l.must(cmd.Start())
	l.cmd = cmd
}

// kill is SIGKILL.
func (l *lab) kill() {
	_ = l.cmd.Process.Kill()
	_ = l.cmd.Wait()
	l.cmd = nil
}

// interrupt is Ctrl-C; it returns how the agent ended.
func (l *lab) interrupt() error {
	l.must(l.cmd.Process.Signal(syscall.SIGINT))
	err := l.cmd.Wait()
	l.cmd = nil
	return err
}

// ask runs a subcommand, as a person at the machine would.
func (l *lab) ask(args ...string) string {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), testTimeout)
	defer cancel()
	// Flags go before what follows "--".
	at := max(slices.Index(args, "--"), 0)
	if at == 0 {
		at = len(args)
	}
	cmd := l.command(ctx, args[:at]...)
	cmd.Args = append(cmd.Args, args[at:]...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		l.t.Errorf("agent %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// write puts a manifest in place in one step.
func (l *lab) write(file, content string) {
	l.t.Helper()
	tmp := filepath.Join(l.manifests, "."+file)
	l.must(os.WriteFile(tmp, []byte(content), 0o600))
	l.must(os.Rename(tmp, filepath.Join(l.manifests, file)))
}

func (l *lab) remove(file string) {
	l.t.Helper()
	l.must(os.Remove(filepath.Join(l.manifests, file)))
}

func (l *lab) pods() map[string]*v1.Pod {
	list, err := l.api.Pods(l.t.Context())
	if err != nil {
		return nil
	}
	pods := map[string]*v1.Pod{}
	for i := range list.Items {
		pods[strings.TrimSuffix(list.Items[i].Name, "-lab")] = &list.Items[i]
	}
	return pods
}

// until asks for the pods until they are as wanted, and gives up after a
// while with what they are.
func (l *lab) until(what string, done func(pods map[string]*v1.Pod) bool) map[string]*v1.Pod {
	l.t.Helper()
	for end := time.Now().Add(testTimeout); ; time.Sleep(20 * time.Millisecond) {
		pods := l.pods()
		if pods != nil && done(pods) {
			return pods
		}
		if time.Now().After(end) {
			state, _ := json.Marshal(brief(pods))
			l.t.Fatalf("not %s after %v: %s", what, testTimeout, state)
		}
	}
}

func brief(pods map[string]*v1.Pod) map[string]string {
	out := map[string]string{}
	for name, p := range pods {
		out[name] = string(p.Status.Phase) + " " + p.Status.Reason
		for _, c := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
			out[name] += fmt.Sprintf(" %s:%d:%v", c.Name, c.RestartCount, state(c.State))
		}
	}
	return out
}

func state(s v1.ContainerState) string {
	switch {
	case s.Waiting != nil:
		return "waiting " + s.Waiting.Reason
	case s.Running != nil:
		return "running"
	case s.Terminated != nil:
		return fmt.Sprint("exited ", s.Terminated.ExitCode)
	}
	return "-"
}

func ready(p *v1.Pod) bool {
	return p != nil && slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
	})
}

func (l *lab) untilReady(names ...string) map[string]*v1.Pod {
	l.t.Helper()
	return l.until("ready: "+strings.Join(names, ", "), func(pods map[string]*v1.Pod) bool {
		return !slices.ContainsFunc(names, func(n string) bool { return !ready(pods[n]) })
	})
}

func (l *lab) untilGone(names ...string) {
	l.t.Helper()
	l.until("gone: "+strings.Join(names, ", "), func(pods map[string]*v1.Pod) bool {
		return !slices.ContainsFunc(names, func(n string) bool { return pods[n] != nil })
	})
}

// problems are the manifests that the agent complains of, one a line.
func (l *lab) problems() string {
	var b strings.Builder
	all, err := l.api.Problems(l.t.Context())
	l.must(err)
	for _, p := range all {
		fmt.Fprintf(&b, "%s %d %s %s: %s (kept: %v)\n", filepath.Base(p.File), p.Document, p.Pod, p.Field, p.Reason, p.Kept)
	}
	return b.String()
}

func (l *lab) sandboxes() []*runtimeapi.PodSandbox {
	l.t.Helper()
	all, err := l.cri.ListPodSandbox(l.t.Context(), nil)
	l.must(err)
	return all
}

// lostNothing reports whether no start of a container of the sandbox lost its
// caller.
func (l *lab) lostNothing(s *runtimeapi.PodSandbox) bool {
	return !slices.ContainsFunc(l.containers(), func(c *runtimeapi.Container) bool {
		if c.GetPodSandboxId() != s.GetId() || c.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
			return false
		}
		st, err := l.cri.ContainerStatus(l.t.Context(), c.GetId(), false)
		return err == nil && st.GetStatus().GetReason() == "StartError"
	})
}

func (l *lab) containers() []*runtimeapi.Container {
	l.t.Helper()
	all, err := l.cri.ListContainers(l.t.Context(), nil)
	l.must(err)
	return all
}

// pid is the process number of a container.
func (l *lab) pid(id string) int {
	l.t.Helper()
	st, err := l.cri.ContainerStatus(l.t.Context(), id, true)
	l.must(err)
	var info struct {
		PID int `json:"pid"`
	}
	l.must(json.Unmarshal([]byte(st.GetInfo()["info"]), &info))
	return info.PID
}

// started is when the runtime started a container.
func (l *lab) started(id string) time.Time {
	l.t.Helper()
	st, err := l.cri.ContainerStatus(l.t.Context(), id, false)
	l.must(err)
	return time.Unix(0, st.GetStatus().GetStartedAt())
}

// containerID is the runtime's own name of a container.
func containerID(p *v1.Pod, name string) string {
	for _, c := range p.Status.ContainerStatuses {
		if c.Name == name {
			_, id, _ := strings.Cut(c.ContainerID, "://")
			return id
		}
	}
	return ""
}

// box is the manifest of a pod with one container of the test image.
func box(name, args string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: '%s', args: [%s]}
`, name, sampleimage.Testbox, args)
}

func tail(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// withoutEvents stands between the agent and containerd, and makes it a
// runtime that has no event stream.
func (l *lab) withoutEvents() {
	l.t.Helper()
	conn, err := grpc.NewClient("unix://"+l.c.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	l.must(err)
	l.t.Cleanup(func() { _ = conn.Close() })
	srv := grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.UnknownServiceHandler(func(_ any, in grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(in)
		if method == runtimeapi.RuntimeService_GetContainerEvents_FullMethodName {
			return status.Error(codes.Unimplemented, "no events here")
		}
		var req, res []byte
		if err := in.RecvMsg(&req); err != nil {
			return err
		}
		if err := conn.Invoke(in.Context(), method, &req, &res, grpc.ForceCodec(raw{})); err != nil {
			return err
		}
		return in.SendMsg(&res)
	}))
	l.socket = filepath.Join(filepath.Dir(l.manifests), "cri.sock")
	lis, err := net.Listen("unix", l.socket)
	l.must(err)
	go func() { _ = srv.Serve(lis) }()
	l.t.Cleanup(srv.Stop)
}

// raw passes messages on as they are.
type raw struct{}

func (raw) Name() string { return "raw" }

func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (raw) Unmarshal(data []byte, v any) error { *v.(*[]byte) = bytes.Clone(data); return nil }
