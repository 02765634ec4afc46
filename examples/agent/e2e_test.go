package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/internal/systemdtest"
)

// The pods of examples/manifests: init, sidecar, several containers, and what
// a person can ask about them.
func TestPodsRun(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.must(os.CopyFS(l.manifests, os.DirFS("../manifests")))
	notify := l.listenAsSystemd()
	l.start()
	if got := notify(); got != "READY=1" {
		t.Errorf("systemd is told %q, want READY=1", got)
	}
	pods := l.untilReady("clock", "web")
	web := pods["web"]
	if n := len(web.Status.InitContainerStatuses) + len(web.Status.ContainerStatuses); n != 4 {
		t.Errorf("web has %d container statuses, want 4", n)
	}
	if got := l.get(web.Status.PodIP + ":8080"); got != "Hello from web-lab on lab\n" {
		t.Errorf("the page is %q", got)
	}
	for _, s := range l.sandboxes() {
		if s.Labels["io.kubernetes.pod.uid"] == "" || s.Labels["io.kubernetes.pod.namespace"] != "default" ||
			!strings.HasSuffix(s.Labels["io.kubernetes.pod.name"], "-lab") {
			t.Errorf("sandbox labels %v", s.Labels)
		}
	}
	for _, tc := range []struct{ args, want string }{
		{"get pods", "web-lab"},
		{"get pods -o wide", web.Status.PodIP},
		{"get pods web -o json", `"podIP": "` + web.Status.PodIP},
		{"describe pod web", "Started"},
		{"logs clock", "tick"},
		{"logs web watch --tail 1", "127.0.0.1:8080"},
		{"exec clock -- /testbox out hello", "hello\n"},
		{"why web", "runs, and is as it should be"},
	} {
		if strings.HasPrefix(tc.args, "logs ") { // a container is ready before its program has written anything
			l.until(tc.args+" has "+tc.want, func(map[string]*v1.Pod) bool { return strings.Contains(l.ask(strings.Fields(tc.args)...), tc.want) })
			continue
		}
		if got := l.ask(strings.Fields(tc.args)...); !strings.Contains(got, tc.want) {
			t.Errorf("agent %s: want %q in\n%s", tc.args, tc.want, got)
		}
	}

	other := l.command(t.Context(), "run", "--config", l.config(), "--pod-manifest-path", l.manifests,
		"--container-runtime-endpoint", "unix://"+l.socket, "--hostname-override", "lab")
	if out, err := other.CombinedOutput(); err == nil || !strings.Contains(string(out), "in use by another agent") {
		t.Errorf("a second agent on the root directory: %v: %s", err, out)
	}

	before := l.containers()
	if err := l.interrupt(); err != nil {
		t.Errorf("after SIGINT the agent ends with %v", err)
	}
	if got := notify(); got != "STOPPING=1" {
		t.Errorf("systemd is told %q, want STOPPING=1", got)
	}
	l.get(web.Status.PodIP + ":8080")
	l.start()
	l.untilReady("clock", "web")
	// They were ready by their stored statuses. Without workers, the runtime has them longer than the agent lists them.
	l.until("workers of the pods", func(pods map[string]*v1.Pod) bool {
		for _, p := range pods {
			if why, err := l.api.Why(t.Context(), p.Namespace, p.Name); err != nil || why.Stage != "sync" {
				return false
			}
		}
		return true
	})
	if after := l.containers(); !slices.Equal(ids(before), ids(after)) {
		t.Errorf("containers before the agent's restart %v, after it %v", ids(before), ids(after))
	}
	l.remove("clock.yaml")
	l.remove("web.yaml")
	l.untilGone("clock", "web")
	l.nothingLeft(nil)
}

// get asks a web server in a pod. A container that runs may not listen yet.
func (l *lab) get(addr string) string {
	l.t.Helper()
	res, err := http.Get("http://" + addr + "/")
	for end := time.Now().Add(testTimeout); errors.Is(err, syscall.ECONNREFUSED) && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
		res, err = http.Get("http://" + addr + "/")
	}
	l.must(err)
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	l.must(err)
	return string(body)
}

// listenAsSystemd gives the agent a NOTIFY_SOCKET; the result waits for what
// it says there (sd_notify(3)).
func (l *lab) listenAsSystemd() func() string {
	systemd := systemdtest.New(l.t)
	l.env = append(l.env, "NOTIFY_SOCKET="+systemd.Path)
	return systemd.Next
}

func ids(containers []*runtimeapi.Container) []string {
	var out []string
	for _, c := range containers {
		out = append(out, c.Id)
	}
	slices.Sort(out)
	return out
}

// nothingLeft checks that the runtime, the cgroups, the mounts and the disk
// show nothing of any pod. known are containers and sandboxes that once were.
func (l *lab) nothingLeft(known map[string]bool) {
	l.t.Helper()
	l.nothingLeftBut(known, func(string) bool { return false })
}

// empty reports that no process is in a cgroup. Where a call loses its caller,
// the runtime (runc 1.5) may forget the cgroup that it had made by then.
func empty(cgroup string) bool {
	procs, err := os.ReadFile(filepath.Join(cgroup, "cgroup.procs"))
	return err == nil && len(procs) == 0
}

func (l *lab) nothingLeftBut(known map[string]bool, excused func(cgroup string) bool) {
	l.t.Helper()
	if s, c := l.sandboxes(), l.containers(); len(s)+len(c) > 0 {
		l.t.Errorf("%d sandboxes and %d containers are left", len(s), len(c))
	}
	var left []string
	for end := time.Now().Add(testTimeout); ; time.Sleep(20 * time.Millisecond) {
		left = l.leftovers(known, excused) // they go a moment after their pod
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			l.t.Fatalf("left are:\n%s", strings.Join(left, "\n"))
		}
	}
}

func (l *lab) leftovers(known map[string]bool, excused func(cgroup string) bool) (left []string) {
	l.t.Helper()
	for _, dir := range []string{filepath.Join(l.root, "pods"), l.logs} {
		for _, e := range l.entries(dir) {
			left = append(left, "file "+filepath.Join(dir, e.Name()))
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	l.must(err)
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, " "+l.root) || mentions(line, known) {
			left = append(left, "mount "+line)
		}
	}
	err = filepath.WalkDir("/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && known[d.Name()] && !excused(path) {
			left = append(left, "cgroup "+path)
		}
		return nil // cgroups of others come and go
	})
	l.must(err)
	return left
}

func mentions(line string, ids map[string]bool) bool {
	for id := range ids {
		if strings.Contains(line, id) {
			return true
		}
	}
	return false
}

func (l *lab) entries(dir string) []os.DirEntry {
	l.t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		l.t.Fatal(err)
	}
	return entries
}

// What kills a container is followed by a replacement, with and without the
// runtime's events.
func TestContainerKilled(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		events bool
	}{{"events", true}, {"relist only", false}} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLab(t)
			if !tc.events {
				l.withoutEvents()
			}
			l.write("a.yaml", box("a", "sleep, forever"))
			l.start()
			id := containerID(l.untilReady("a")["a"], "c")
			killed := time.Now()
			l.must(syscall.Kill(l.pid(id), syscall.SIGKILL))
			pods := l.until("restarted", func(pods map[string]*v1.Pod) bool {
				c := pods["a"].Status.ContainerStatuses[0]
				return c.RestartCount == 1 && c.State.Running != nil
			})
			again := l.started(containerID(pods["a"], "c"))
			t.Logf("from death to running: %v", again.Sub(killed).Round(time.Millisecond))
			last := pods["a"].Status.ContainerStatuses[0].LastTerminationState.Terminated
			if last == nil || last.ExitCode != 137 || !strings.HasSuffix(last.ContainerID, id) {
				t.Errorf("last state %+v, want exit code 137 of %s", last, id)
			}
		})
	}
}

// What a person does to manifests, and sees.
func TestManifests(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.write("a.yaml", box("a", "sleep, forever"))
	l.write("b.yaml", box("b", "sleep, forever"))
	l.start()
	first := l.untilReady("a", "b")

	l.write("a.yaml", box("a", "out, edited, sleep, forever"))
	edited := l.until("the edited pod", func(pods map[string]*v1.Pod) bool {
		return ready(pods["a"]) && pods["a"].UID != first["a"].UID
	})
	// A container is ready before its program has written anything.
	l.until("the edited pod has logged", func(map[string]*v1.Pod) bool { return l.ask("logs", "a") == "edited\n" })

	same := func(when string) {
		t.Helper()
		pods := l.untilReady("a", "b")
		for _, n := range []string{"a", "b"} {
			if pods[n].UID != edited[n].UID || containerID(pods[n], "c") != containerID(edited[n], "c") {
				t.Errorf("%s: pod %s was replaced", when, n)
			}
		}
	}
	complains := func(when string, want ...string) {
		t.Helper()
		l.until("complaint: "+when, func(map[string]*v1.Pod) bool {
			got := l.problems()
			return !slices.ContainsFunc(want, func(w string) bool { return !strings.Contains(got, w) })
		})
		same(when)
	}
	l.write("a.yaml", strings.Replace(box("a", "sleep, forever"), "image:", "imag:", 1))
	complains("a misspelt field", "a.yaml 1 default/a", "imag", "kept: true")
	l.write("a.yaml", "{ bad")
	complains("no YAML", "a.yaml 1", "kept: true")

	// Half written: the writer is not done before it closes the file.
	l.write("a.yaml", box("a", "out, edited, sleep, forever"))
	l.until("no complaint", func(map[string]*v1.Pod) bool { return l.problems() == "" })
	half := box("a", "out, whole, sleep, forever")
	f, err := os.OpenFile(filepath.Join(l.manifests, "a.yaml"), os.O_WRONLY|os.O_TRUNC, 0)
	l.must(err)
	_, err = f.WriteString(half[:len(half)/2])
	l.must(err)
	same("half written")
	_, err = f.WriteString(half[len(half)/2:])
	l.must(err)
	l.must(f.Close())
	edited = l.until("the whole pod", func(pods map[string]*v1.Pod) bool {
		return ready(pods["a"]) && pods["a"].UID != edited["a"].UID
	})

	l.write("a-copy.yaml", box("a", "out, copy, sleep, forever"))
	complains("the same pod in another file", "a-copy.yaml 1 default/a")
	l.remove("a-copy.yaml")
	l.until("no complaint", func(map[string]*v1.Pod) bool { return l.problems() == "" })

	l.remove("b.yaml")
	l.untilGone("b")
	l.remove("a.yaml")
	l.untilGone("a")
	l.nothingLeft(nil)
}

// The runtime is away for seconds: its containers run on, and so do the pods. What a minute
// does is tested in package agent.
func TestRuntimeAway(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.write("a.yaml", box("a", "serve, ':80'"))
	l.start()
	before := l.untilReady("a")["a"]
	l.must(l.c.Halt())
	l.write("b.yaml", box("b", "sleep, forever"))
	for range 5 {
		time.Sleep(time.Second) // the runtime is a process
		l.get(before.Status.PodIP + ":80")
		if !ready(l.pods()["a"]) {
			t.Fatal("the pod is not ready while the runtime is away")
		}
	}
	l.must(l.c.Resume())
	back := time.Now()
	after := l.untilReady("a", "b")["a"]
	t.Logf("a pod that was wanted meanwhile ran %v after the runtime's return", time.Since(back).Round(time.Millisecond))
	if containerID(after, "c") != containerID(before, "c") || after.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the pod was restarted: %v", brief(map[string]*v1.Pod{"a": after}))
	}
}

// journal counts, from the runtime's own events, how often each container of
// each pod was started, and remembers every name the runtime gave.
type journal struct {
	mu      sync.Mutex
	starts  map[string]int // by pod UID and container name
	handles map[string]bool
}

func (l *lab) journal() *journal {
	j := &journal{starts: map[string]int{}, handles: map[string]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	ch := make(chan *runtimeapi.ContainerEventResponse, 1000)
	opened, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_ = l.cri.GetContainerEvents(ctx, ch, func(runtimeapi.RuntimeService_GetContainerEventsClient) { close(opened) })
	}()
	go func() {
		for {
			select {
			case e := <-ch:
				j.add(e)
			case <-ended:
				return
			}
		}
	}()
	<-opened
	l.t.Cleanup(func() { cancel(); <-ended })
	return j
}

func (j *journal) add(e *runtimeapi.ContainerEventResponse) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.handles[e.ContainerId] = true
	if e.ContainerEventType != runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT {
		return
	}
	for _, c := range e.ContainersStatuses {
		if c.Id == e.ContainerId {
			j.starts[c.Labels[cri.LabelPodUID]+" "+c.Metadata.Name]++
		}
	}
}

// check wants n containers, each of them started once.
func (j *journal) check(t *testing.T, n int) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.starts) != n {
		t.Errorf("%d containers were started, want %d", len(j.starts), n)
	}
	for name, n := range j.starts {
		if n > 1 {
			t.Errorf("container %s was started %d times", name, n)
		}
	}
}

func (j *journal) known() map[string]bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.handles)
}

const hundred = 100

var deaths = flag.Int("deaths", 20, "how often the agent is killed at random moments, in each test of that; make nightly has 200")

// long skips what takes minutes, for emulated machines.
func long(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short")
	}
}

func hundredNames() []string {
	names := make([]string, hundred)
	for i := range names {
		names[i] = fmt.Sprintf("p%03d", i)
	}
	return names
}

// The agent is killed at random moments while pods start, run and go.
func TestAgentKilled(t *testing.T) {
	long(t)
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	l := newLab(t)
	j := l.journal()
	const mortals = 40
	kills := 0
	killFor := func(n int) {
		for range n {
			l.launch()
			time.Sleep(time.Duration(rnd.IntN(700)) * time.Millisecond) // the random moment
			l.kill()
			kills++
		}
	}
	names := hundredNames()[:mortals]
	for _, n := range names {
		l.write(n+".yaml", box(n, "sleep, forever"))
	}
	killFor(*deaths / 2)
	l.start()
	l.untilReady(names...)
	running := ids(l.containers())
	l.kill()
	killFor(*deaths / 10)
	l.start()
	pods := l.untilReady(names...)
	if now := ids(l.containers()); !slices.Equal(now, running) {
		t.Errorf("containers of pods at rest changed: %d before, %d after", len(running), len(now))
	}
	for n, p := range pods {
		if c := p.Status.ContainerStatuses[0]; c.RestartCount != 0 {
			t.Errorf("pod %s: restart count %d, last state %s", n, c.RestartCount, state(c.LastTerminationState))
		}
	}
	for i, n := range names {
		if i%3 == 0 { // some go while no agent runs
			l.remove(n + ".yaml")
		}
	}
	l.kill()
	for i, n := range names {
		if i%3 != 0 {
			l.remove(n + ".yaml")
		}
	}
	killFor(*deaths * 4 / 10)
	l.start()
	l.untilGone(names...)
	t.Logf("%d kills", kills+2)
	j.check(t, mortals)
	// containerd 2.4 may lose a container that it was interrupted at starting,
	// and then refuses to remove it, or a sandbox that it was interrupted at
	// making, with its process, which no call shows: until it starts anew.
	l.until("without orphans", func(map[string]*v1.Pod) bool { return !slices.ContainsFunc(l.sandboxes(), l.lostNothing) })
	l.must(l.c.Restart())
	l.until("without what the runtime had lost", func(map[string]*v1.Pod) bool { return len(l.sandboxes()) == 0 })
	l.nothingLeftBut(j.known(), empty)
}

// A manifest that is removed and put back as it was, before anybody can look,
// has its pod begin anew: the same pod, restarted.
func TestManifestRemovedAndBack(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.write("a.yaml", box("a", "sleep, forever"))
	l.start()
	was := l.untilReady("a")["a"]
	l.must(l.cmd.Process.Signal(syscall.SIGSTOP)) // so that it cannot look
	l.remove("a.yaml")
	l.write("a.yaml", box("a", "sleep, forever"))
	l.must(l.cmd.Process.Signal(syscall.SIGCONT))
	pods := l.until("the pod is restarted", func(pods map[string]*v1.Pod) bool {
		p := pods["a"]
		return p != nil && ready(p) && p.Status.ContainerStatuses[0].RestartCount > 0
	})
	is := pods["a"]
	if n := is.Status.ContainerStatuses[0].RestartCount; is.UID != was.UID || n != 1 || containerID(is, "c") == containerID(was, "c") {
		t.Errorf("the pod is %s with %d restarts; want %s with 1", is.UID, n, was.UID)
	}
}
