package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/internal/containerdtest"
	"github.com/nodewright/nodewright/internal/sampleimage"
)

// beTheAgent makes this test binary the agent: what the test starts, kills and
// starts again is a process like the real one.
const beTheAgent = "NODEWRIGHT_TEST_IS_EDGE"

func TestMain(m *testing.M) {
	if os.Getenv(beTheAgent) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// patience is how long a lab waits for what must come, however slow the
// machine.
const patience = 3 * time.Minute

// lab is a private containerd, a plant behind HTTP, and an agent.
type lab struct {
	*plant
	t    *testing.T
	url  string // of the plant
	root string
	// runtime are arguments of the agent.
	runtime []string
	c       *containerdtest.Containerd
	cri     *cri.Client
	api     *local.Client
	cmd     *exec.Cmd
	said    *os.File // by the agents
}

func newLab(t *testing.T) *lab {
	l := &lab{t: t, plant: newPlant(), c: containerdtest.New(t, containerdtest.Options{})}
	client, err := cri.New(cri.Config{Endpoint: l.c.Socket})
	l.must(err)
	t.Cleanup(func() { _ = client.Close(context.Background()) })
	dir, err := os.MkdirTemp("", "nwedge") // t.TempDir is too long for a socket's path
	l.must(err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l.said, err = os.Create(filepath.Join(dir, "said"))
	l.must(err)
	srv := httptest.NewServer(l.plant)
	t.Cleanup(srv.Close)
	l.url, l.cri, l.root = srv.URL, client, filepath.Join(dir, "edge")
	l.api = local.NewClient(filepath.Join(l.root, "agent.sock"))
	l.runtime = []string{"--runtime", "unix://" + l.c.Socket}
	t.Cleanup(l.end) // before containerd's end
	return l
}

// end ends the agent, if it runs, and takes back what it has mounted.
func (l *lab) end() {
	if l.cmd != nil {
		l.kill()
	}
	if said, err := os.ReadFile(l.said.Name()); l.t.Failed() {
		l.t.Logf("the agent said: %v\n%s", err, said)
	}
	_ = l.said.Close()
	_ = containerdtest.UnmountBelow(l.root)
}

func (l *lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) start() {
	l.t.Helper()
	self, err := os.Executable()
	l.must(err)
	cmd := exec.Command(self, append([]string{"--root", l.root, "--orders", l.url + "/orders", "--licences", l.url}, l.runtime...)...)
	cmd.Env = append(os.Environ(), beTheAgent+"=1")
	cmd.Stdout, cmd.Stderr = l.said, l.said
	l.must(cmd.Start())
	l.cmd = cmd
}

// kill is SIGKILL.
func (l *lab) kill() {
	_ = l.cmd.Process.Kill()
	_ = l.cmd.Wait()
	l.cmd = nil
}

// until asks for the pods until they are as wanted.
func (l *lab) until(what string, done func(pods map[string]*v1.Pod) bool) map[string]*v1.Pod {
	l.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		pods := map[string]*v1.Pod{}
		list, err := l.api.Pods(l.t.Context())
		if err == nil {
			for i := range list.Items {
				pods[list.Items[i].Name] = &list.Items[i]
			}
			if done(pods) {
				return pods
			}
		}
		if time.Now().After(end) {
			l.t.Fatalf("not %s after %v: %v, %v", what, patience, pods, err)
		}
	}
}

func ready(p *v1.Pod) bool {
	return p != nil && slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
	})
}

func (l *lab) untilReady(names ...string) {
	l.t.Helper()
	l.until("ready: "+strings.Join(names, " "), func(pods map[string]*v1.Pod) bool {
		return !slices.ContainsFunc(names, func(n string) bool { return !ready(pods[n]) })
	})
}

// containers are those of the runtime: pod, attempt, ID and state.
func (l *lab) containers() []string {
	l.t.Helper()
	all, err := l.cri.ListContainers(l.t.Context(), nil)
	l.must(err)
	var out []string
	for _, c := range all {
		out = append(out, fmt.Sprint(c.Labels["io.kubernetes.pod.name"], " ", c.Metadata.Attempt, " ", c.Id, " ", c.State == runtimeapi.ContainerState_CONTAINER_RUNNING))
	}
	slices.Sort(out)
	return out
}

// left is what there is of pods on the node, and of licences.
func (l *lab) left() (left []string) {
	l.t.Helper()
	boxes, err := l.cri.ListPodSandbox(l.t.Context(), nil)
	l.must(err)
	for _, s := range boxes {
		left = append(left, "sandbox "+s.Id)
	}
	left = append(left, l.containers()...)
	for _, dir := range []string{"pods", "logs", "licences"} {
		entries, err := os.ReadDir(filepath.Join(l.root, dir))
		if err != nil && !os.IsNotExist(err) {
			l.t.Fatal(err)
		}
		for _, e := range entries {
			left = append(left, filepath.Join(dir, e.Name()))
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	l.must(err)
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, " "+l.root) {
			left = append(left, "mount "+line)
		}
	}
	if n := l.outstanding(); n > 0 {
		left = append(left, fmt.Sprint(n, " licences"))
	}
	return left
}

func box(name, licence string) order {
	return order{Name: name, Image: sampleimage.Testbox, Args: []string{"sleep", "forever"}, Licence: licence}
}

// Pods on containerd: a licence server that is down and comes, an agent that is
// killed, orders that are withdrawn with and without an agent.
func TestPodsOnContainerd(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.licences(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "closed", http.StatusServiceUnavailable) })
	l.order(box("press", "vision"), box("gauge", ""))
	l.start()
	l.untilReady("gauge")
	l.until("waiting for a licence", func(map[string]*v1.Pod) bool {
		why, err := l.api.Why(t.Context(), "default", "press")
		return err == nil && why.LastError == `licence "vision": the server answered 503: closed`
	})
	if got := l.containers(); len(got) != 1 {
		t.Errorf("without the licence there are %v", got)
	}
	l.licences(nil)
	l.untilReady("press", "gauge")
	if got := l.asked(); got != "PUT default/press vision" {
		t.Errorf("the licence server was asked %q", got)
	}

	before := l.containers()
	l.kill()
	if got := l.containers(); !slices.Equal(got, before) {
		t.Errorf("with the agent killed %v, before %v", got, before)
	}
	l.order(box("gauge", "")) // nobody is there to see it
	l.start()
	pods := l.until("one pod", func(pods map[string]*v1.Pod) bool { return len(pods) == 1 && ready(pods["gauge"]) })
	if n := pods["gauge"].Status.ContainerStatuses[0].RestartCount; n != 0 {
		t.Errorf("%d restarts", n)
	}
	l.untilLeft("the licence returned", func(left []string) bool { return l.outstanding() == 0 })
	if got := l.asked(); got != "DELETE" {
		t.Errorf("the licence server was asked %q", got)
	}
	if got := l.containers(); len(got) != 1 || !slices.Contains(before, got[0]) {
		t.Errorf("containers %v, before %v", got, before)
	}

	l.order(box("gauge", ""), box("press", "vision"))
	l.untilReady("press", "gauge")
	l.order()
	l.untilLeft("nothing left", func(left []string) bool { return len(left) == 0 })
	l.must(l.cmd.Process.Signal(syscall.SIGTERM))
	if err := l.cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM the agent ends with %v", err)
	}
	l.cmd = nil
}

func (l *lab) untilLeft(what string, done func(left []string) bool) {
	l.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		left := l.left()
		if done(left) {
			return
		}
		if time.Now().After(end) {
			l.t.Fatalf("not %s after %v:\n%s", what, patience, strings.Join(left, "\n"))
		}
	}
}
