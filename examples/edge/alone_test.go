package main

import (
	"context"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/internal/containerdtest"
	"github.com/nodewright/nodewright/internal/sampleimage"
	"github.com/nodewright/nodewright/internal/testprogram"
	"github.com/nodewright/nodewright/localcri"
)

// isEdge makes this test binary the agent: the test starts and kills it as a process.
const isEdge = "NODEWRIGHT_TEST_IS_EDGE"

func TestMain(m *testing.M) {
	if os.Getenv(isEdge) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// machine is a machine without containerd: the agent, runc and images in files.
type machine struct {
	server
	t    *testing.T
	url  string // of the server
	root string
	// images is the directory of image archives.
	images string
	api    *local.Client
	cmd    *exec.Cmd // nil if no agent runs
	output testprogram.Output
}

func newMachine(t *testing.T) *machine {
	containerdtest.Required(t)
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t}
	archives, err := sampleimage.Build(t.Context(), repository, filepath.Join(repository, "build", "images"))
	m.must(err)
	t.Setenv("PATH", filepath.Join(repository, "build", "bin")+":"+os.Getenv("PATH"))
	dir, err := os.MkdirTemp("", "nwedge") // t.TempDir is too long for a socket's path
	m.must(err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	m.must(os.Chmod(dir, 0o711)) //nolint:gosec // containers of any user pass through
	srv := httptest.NewServer(m)
	t.Cleanup(srv.Close)
	m.url, m.root, m.images = srv.URL, filepath.Join(dir, "edge"), filepath.Dir(archives[0])
	m.api = local.NewClient(filepath.Join(m.root, "agent.sock"))
	t.Cleanup(m.reset)
	return m
}

// reset ends the agent, if it runs, and removes everything that it has created.
func (m *machine) reset() {
	if m.cmd != nil {
		m.kill()
	}
	if err := localcri.Reset(context.Background(), localcri.InProcessConfig{RootDir: filepath.Join(m.root, "localcri"), Log: zaptest.NewLogger(m.t)}, localcri.ResetOptions{Images: true}); err != nil {
		m.t.Errorf("reset: %v", err)
	}
	if m.t.Failed() {
		m.t.Logf("output of the agents:\n%s", m.output.String())
	}
	_ = containerdtest.UnmountBelow(m.root)
}

func (m *machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) start() {
	m.t.Helper()
	self, err := os.Executable()
	m.must(err)
	cmd := exec.Command(self, "--root", m.root, "--orders", m.url, "--images", m.images)
	cmd.Env = append(os.Environ(), isEdge+"=1")
	cmd.Stdout, cmd.Stderr = &m.output, &m.output
	m.must(cmd.Start())
	m.cmd = cmd
}

// kill is SIGKILL.
func (m *machine) kill() {
	_ = m.cmd.Process.Kill()
	_ = m.cmd.Wait()
	m.cmd = nil
}

// until waits for what must come, however slow the machine. missing returns "" when it has come.
func (m *machine) until(missing func(pods []v1.Pod) string) {
	m.t.Helper()
	const timeout = 3 * time.Minute
	for end := time.Now().Add(timeout); ; time.Sleep(20 * time.Millisecond) {
		list, err := m.api.Pods(m.t.Context())
		what := "an answer of the agent"
		if err == nil {
			what = missing(list.Items)
		}
		switch {
		case what == "":
			return
		case time.Now().After(end):
			m.t.Fatalf("missing after %v: %s, %v", timeout, what, err)
		}
	}
}

// running waits until exactly the named pods are ready, and returns their containers and addresses.
func (m *machine) running(names ...string) (ids []string) {
	m.t.Helper()
	m.until(func(pods []v1.Pod) string {
		ids = nil
		var missing []string
		for i := range pods {
			if p := &pods[i]; agenttest.Ready(p) != nil || !slices.Contains(names, p.Name) {
				missing = append(missing, p.Name+" is not ready or not gone")
			} else {
				ids = append(ids, strings.Join([]string{p.Name, p.Status.ContainerStatuses[0].ContainerID, p.Status.PodIP}, " "))
			}
		}
		if len(ids) != len(names) {
			missing = append(missing, "pods "+strings.Join(names, " "))
		}
		return strings.Join(missing, ", ")
	})
	slices.Sort(ids)
	return ids
}

// left returns what pods have left on the machine.
func (m *machine) left() (left []string) {
	for _, dir := range []string{"pods", "logs", "localcri/pods/records/sandboxes", "localcri/pods/records/containers"} {
		entries, err := os.ReadDir(filepath.Join(m.root, dir))
		m.must(err)
		for _, e := range entries {
			left = append(left, filepath.Join(dir, e.Name()))
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	m.must(err)
	for line := range strings.Lines(string(mounts)) {
		point := strings.Fields(line)[4]
		if strings.HasPrefix(point, m.root+"/") && point != filepath.Join(m.root, "localcri/pods/containers") { // that of the runtime
			left = append(left, "mount "+line)
		}
	}
	return left
}

// One program and runc are a node: its pods outlive it, and leave nothing.
func TestNodeAlone(t *testing.T) {
	m := newMachine(t)
	m.say(listOf(sampleimage.Testbox, "gauge", "press"))
	m.start()
	before := m.running("gauge", "press")
	m.kill()
	m.start()
	if after := m.running("gauge", "press"); !slices.Equal(after, before) {
		t.Errorf("containers and addresses %v after the agent was killed, want %v", after, before)
	}
	m.kill()
	m.say(listOf(sampleimage.Testbox, "gauge")) // no agent is there to see it
	m.start()
	if after := m.running("gauge"); !slices.Equal(after, before[:1]) {
		t.Errorf("containers and addresses %v after one pod was withdrawn, want %v", after, before[:1])
	}
	m.say("[]")
	// A pod that is withdrawn before the agent has come to it again is shown no more, and goes nevertheless.
	m.until(func(pods []v1.Pod) string {
		if len(pods) > 0 {
			return "end of the pods"
		}
		return strings.Join(m.left(), "\n")
	})
	m.must(m.cmd.Process.Signal(syscall.SIGTERM))
	if err := m.cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM the agent ends with %v", err)
	}
	m.cmd = nil
	if left := m.left(); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
}
