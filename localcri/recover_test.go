//go:build linux

package localcri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/checkpoint"
	"github.com/nodewright/nodewright/localcri/internal/executor"
	"github.com/nodewright/nodewright/localcri/internal/life"
	"github.com/nodewright/nodewright/localcri/internal/monitor"
)

func TestRestartKeepsWhatRuns(t *testing.T) {
	b := newBench(t)
	sb := b.sandbox("p")
	c, d := b.running(sb, "c"), b.container(sb, "d")
	before := b.status(c)
	b.restart()
	if s := b.podState(sb); s != runtimeapi.PodSandboxState_SANDBOX_READY {
		t.Errorf("sandbox is %v", s)
	}
	if st := b.status(c); st.String() != before.String() {
		t.Errorf("status %v, was %v", st, before)
	}
	_, err := b.rt.RunPodSandbox(t.Context(), sandboxConfig("p"), "")
	wantCode(t, "the same sandbox again", err, codes.AlreadyExists)
	_, err = b.rt.CreateContainer(t.Context(), sb, containerConfig("c"), nil)
	wantCode(t, "the same container again", err, codes.AlreadyExists)
	if err := b.rt.StartContainer(t.Context(), d); err != nil {
		t.Error(err)
	}
	b.end(c, 4)
	if st := b.untilExited(c); st.GetExitCode() != 4 {
		t.Errorf("status %v", st)
	}
	if b.launches != 1 {
		t.Errorf("%d monitors were started, want 1", b.launches)
	}
	if err := b.rt.RemovePodSandbox(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
	b.clean()
}

// What ended while nobody listened is told with its own code and time, once.
func TestEndOfTheTimeAwayIsTold(t *testing.T) {
	b := newBench(t)
	c := b.running(b.sandbox("p"), "c")
	b.kill()
	b.end(c, 3)
	ended := time.Now().UnixNano()
	b.start()
	st := b.untilExited(c)
	if st.GetExitCode() != 3 || st.GetFinishedAt() > ended || st.GetFinishedAt() == 0 {
		t.Errorf("status %v, want code 3 before %d", st, ended)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ch := make(chan *runtimeapi.ContainerEventResponse, 100)
	go func() { _ = b.rt.GetContainerEvents(ctx, ch, nil) }()
	ev := <-ch
	if ev.GetContainerId() != c || ev.GetContainerEventType() != runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT || ev.GetCreatedAt() != st.GetFinishedAt() ||
		len(ev.GetContainersStatuses()) != 1 {
		t.Errorf("event %v", ev)
	}
	select {
	case ev := <-ch:
		t.Errorf("one more event: %v", ev)
	case <-time.After(10 * time.Millisecond):
	}
}

// monitorDied is the message that tells of a successor.
const monitorDied = "monitor of sandbox died; starting another one"

func TestMonitorThatDiesHasASuccessor(t *testing.T) {
	b := newBench(t)
	sb := b.sandbox("p")
	c := b.running(sb, "c")
	b.killMonitor(sb)
	b.until("there is a successor that has the container", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.monitors[sb] != nil && b.monitors[sb].kept[c] != nil
	})
	if !b.endedCommands(c) {
		t.Error("commands of the monitor still run")
	}
	if s := b.podState(sb); s != runtimeapi.PodSandboxState_SANDBOX_READY {
		t.Errorf("sandbox is %v", s)
	}
	b.end(c, 5)
	if st := b.untilExited(c); st.GetExitCode() != 5 {
		t.Errorf("status %v", st)
	}
	if n := b.logs.FilterMessage(monitorDied).Len(); n != 1 {
		t.Errorf("%d successors logged", n)
	}
	if err := b.rt.RemovePodSandbox(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
	b.clean()
}

// endedCommands reports whether the commands of a lost monitor for a container were ended, and
// forgets it.
func (b *bench) endedCommands(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.commandsEnded[id]
	delete(b.commandsEnded, id)
	return was
}

// A container that ends before its monitor has a successor has its code nevertheless,
// whatever it is by which the end of the monitor is noticed first.
func TestContainerThatEndsBeforeTheSuccessor(t *testing.T) {
	for _, by := range []string{"connection", "start"} {
		t.Run(by, func(t *testing.T) {
			b := newBench(t)
			sb := b.sandbox("p")
			c, next := b.running(sb, "c"), b.container(sb, "next")
			released := func() {}
			started := make(chan error, 1)
			if by == "start" {
				released = b.hold("start")
				go func() { started <- b.rt.StartContainer(t.Context(), next) }()
				b.until("the start hangs", func() bool { return b.isHeld("start") })
			}
			b.mu.Lock()
			delete(b.processes, b.executed[c])
			b.codes[c], b.created[c] = 5, executor.Stopped
			b.mu.Unlock()
			b.killMonitor(sb)
			if by == "start" {
				<-started
			}
			released()
			if st := b.untilExited(c); st.GetExitCode() != 5 || st.GetReason() != "Error" {
				t.Errorf("status %v", st)
			}
			if err := b.rt.RemovePodSandbox(t.Context(), sb); err != nil {
				t.Fatal(err)
			}
			b.clean()
		})
	}
}

// The answer of a monitor is heard before its end is, however late its reader runs:
// the caller was told that the container runs.
func TestMonitorThatDiesOnceItHasAnswered(t *testing.T) {
	b := newBench(t)
	sb := b.sandbox("p")
	c := b.container(sb, "c")
	release := b.hold("answer to start")
	started := make(chan error, 1)
	go func() { started <- b.rt.StartContainer(t.Context(), c) }()
	b.until("the answer is on its way", func() bool { return b.isHeld("answer to start") })
	b.mu.Lock()
	delete(b.processes, b.executed[c])
	b.codes[c], b.created[c] = 5, executor.Stopped
	b.mu.Unlock()
	b.killMonitor(sb)
	b.until("the end of the monitor is noticed", func() bool { return b.logs.FilterMessage(monitorDied).Len() == 1 })
	time.Sleep(10 * time.Millisecond) // in which nothing may be concluded
	release()
	if err := <-started; err != nil {
		t.Errorf("start: %v", err)
	}
	if st := b.untilExited(c); st.GetExitCode() != 5 || st.GetReason() != "Error" {
		t.Errorf("status %v", st)
	}
	if err := b.rt.RemovePodSandbox(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
	b.clean()
}

// Until the network knows what it has, no sandbox is said to have lost it.
func TestSandboxesAreShownWithTheirNetworks(t *testing.T) {
	b := newBench(t)
	sb := b.sandbox("p")
	release := b.hold("load network")
	b.restart()
	b.until("the network is awaited", func() bool { return b.isHeld("load network") })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if st, err := b.rt.PodSandboxStatus(ctx, sb, false); err == nil {
		t.Errorf("status %v before the network is known", st)
	}
	release()
	if s := b.podState(sb); s != runtimeapi.PodSandboxState_SANDBOX_READY {
		t.Errorf("sandbox is %v", s)
	}
}

func TestAgentAndMonitorDie(t *testing.T) {
	for _, ends := range []bool{false, true} {
		t.Run(fmt.Sprint("ends ", ends), func(t *testing.T) {
			b := newBench(t)
			sb := b.sandbox("p")
			c := b.running(sb, "c")
			b.kill()
			b.killMonitor(sb)
			if ends {
				b.end(c, 5)
			}
			b.start()
			if !ends {
				b.until("there is a successor that has the container", func() bool {
					b.mu.Lock()
					defer b.mu.Unlock()
					return b.monitors[sb] != nil && b.monitors[sb].kept[c] != nil
				})
				if !b.endedCommands(c) {
					t.Error("commands of the monitor still run")
				}
				b.end(c, 6)
				if st := b.untilExited(c); st.GetExitCode() != 6 {
					t.Errorf("status %v", st)
				}
				return
			}
			if st := b.untilExited(c); st.GetExitCode() != 255 || st.GetReason() != reasonMonitorLost || st.GetFinishedAt() < st.GetStartedAt() {
				t.Errorf("status %v", st)
			}
		})
	}
}

func TestMonitorThatDiesWhileItStartsAContainer(t *testing.T) {
	for _, tc := range []struct {
		name  string
		left  executor.Status // of the executor
		want  runtimeapi.ContainerState
		fails bool
	}{
		{"before create", "", runtimeapi.ContainerState_CONTAINER_CREATED, true},
		{"before start", executor.Created, runtimeapi.ContainerState_CONTAINER_EXITED, true},
		{"after start", executor.Running, runtimeapi.ContainerState_CONTAINER_RUNNING, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t)
			sb := b.sandbox("p")
			c := b.container(sb, "c")
			release := b.hold("start")
			started := make(chan error, 1)
			go func() { started <- b.rt.StartContainer(t.Context(), c) }()
			b.until("the monitor was told", func() bool {
				b.mu.Lock()
				defer b.mu.Unlock()
				return b.monitors[sb].kept[c] != nil
			})
			b.mu.Lock()
			if tc.left != "" {
				b.run(c, b.monitors[sb].kept[c])
				b.created[c] = tc.left
			}
			b.mu.Unlock()
			b.killMonitor(sb)
			err := <-started
			release()
			if (err != nil) != tc.fails {
				t.Errorf("start: %v", err)
			}
			if st := b.status(c); st.GetState() != tc.want {
				t.Errorf("status %v, want %v", st, tc.want)
			}
			if tc.want == runtimeapi.ContainerState_CONTAINER_CREATED {
				if err := b.rt.StartContainer(t.Context(), c); err != nil {
					t.Errorf("the next start: %v", err)
				}
			}
			if err := b.rt.RemovePodSandbox(t.Context(), sb); err != nil {
				t.Fatal(err)
			}
			b.clean()
		})
	}
}

// The agent dies while the executor works: the container is found running, and
// is not started again.
func TestAgentDiesWhileAContainerStarts(t *testing.T) {
	b := newBench(t)
	sb := b.sandbox("p")
	c := b.container(sb, "c")
	release := b.hold("start")
	go func() { _ = b.rt.StartContainer(context.Background(), c) }()
	b.until("the monitor was told", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.monitors[sb].kept[c] != nil
	})
	b.kill()
	b.mu.Lock()
	b.run(c, b.monitors[sb].kept[c])
	at := b.monitors[sb].kept[c].Started.At.UnixNano()
	b.mu.Unlock()
	release()
	b.start()
	if st := b.status(c); st.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING || st.GetStartedAt() != at {
		t.Errorf("status %v, want it running since %d", st, at)
	}
	wantCode(t, "another start", b.rt.StartContainer(t.Context(), c), codes.FailedPrecondition)
}

// An agent that dies anywhere in the making of a sandbox leaves nothing, and its
// name is free.
func TestAgentDiesWhileItMakesASandbox(t *testing.T) {
	for _, step := range []string{"spaces", "attach", "sysctls", "launch"} {
		t.Run(step, func(t *testing.T) {
			b := newBench(t)
			release := b.hold(step)
			go func() { _, _ = b.rt.RunPodSandbox(context.Background(), sandboxConfig("p"), "") }()
			b.until("it is being made", func() bool { return b.isHeld(step) })
			b.kill()
			release()
			b.mu.Lock()
			for _, n := range []string{"spaces", "attach"} { // what came about unseen
				names, _ := filepath.Glob(filepath.Join(b.root, recordsDir, sandboxesDir, "*"))
				if n == "attach" && len(names) == 1 {
					b.networks[filepath.Base(names[0])] = true
				}
			}
			b.mu.Unlock()
			b.start()
			if l, err := b.rt.ListPodSandbox(t.Context(), nil); err != nil || len(l) != 0 {
				t.Errorf("%v, %v", l, err)
			}
			b.clean()
			b.sandbox("p")
		})
	}
}

func TestRebootEndsEverything(t *testing.T) {
	b := newBench(t)
	sb := b.sandbox("p")
	c, created := b.running(sb, "c"), b.container(sb, "d")
	before := b.status(c)
	b.reboot()
	if s := b.podState(sb); s != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("sandbox is %v", s)
	}
	for _, id := range []string{c, created} {
		st := b.status(id)
		if st.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || st.GetExitCode() != 255 || st.GetReason() != reasonUnknown ||
			st.GetMessage() != messageRestarted || st.GetFinishedAt() < st.GetStartedAt() || st.GetFinishedAt() == 0 {
			t.Errorf("status %v", st)
		}
	}
	if st := b.status(c); st.GetStartedAt() != before.GetStartedAt() {
		t.Errorf("started at %d, was %d", st.GetStartedAt(), before.GetStartedAt())
	}
	b.until("the network is given back", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.networks) == 0 })
	if err := b.rt.RemovePodSandbox(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
	b.clean()
}

func garbage(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestDamagedRecords(t *testing.T) {
	for _, tc := range []struct {
		name    string
		monitor bool // lives
		config  bool // config.json is whole
		sandbox bool // its record is damaged as well
		lives   bool
	}{
		{"its monitor has a copy", true, false, false, true},
		{"config.json has a copy", false, true, false, true},
		{"that of the sandbox as well", true, true, true, true},
		{"nothing has a copy", false, false, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t)
			sb, other := b.sandbox("p"), b.sandbox("q")
			c, d := b.running(sb, "c"), b.running(other, "d")
			before := b.status(c)
			b.kill()
			garbage(t, filepath.Join(b.root, recordsDir, containersDir, c))
			if !tc.config {
				garbage(t, filepath.Join(b.root, containersDir, c, configFile))
			}
			if tc.sandbox {
				garbage(t, filepath.Join(b.root, recordsDir, sandboxesDir, sb))
			}
			if !tc.monitor {
				b.killMonitor(sb)
			}
			b.start()
			if st := b.status(d); st.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
				t.Errorf("the other one: %v", st)
			}
			if !tc.lives {
				b.until("it is killed", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.processes[b.executed[c]] == nil })
				_, err := b.rt.ContainerStatus(t.Context(), c, false)
				wantCode(t, "its status", err, codes.NotFound)
			} else if st := b.status(c); st.GetState() != before.GetState() || st.GetId() != c || st.GetImageRef() != before.GetImageRef() ||
				st.GetLabels()["l"] != "c" {
				t.Errorf("status %v\nwas %v", st, before)
			}
			for _, p := range []string{sb, other} {
				if err := b.rt.RemovePodSandbox(t.Context(), p); err != nil {
					t.Error(err)
				}
			}
			b.clean()
		})
	}
}

func TestLeftoversWithoutRecordsAreUndone(t *testing.T) {
	b := newBench(t)
	b.kill()
	id, other := newID(), newID()
	b.mu.Lock()
	b.networks[id], b.pins[id], b.leases[other], b.leases["somebody"] = true, true, true, true
	b.mu.Unlock()
	if err := os.MkdirAll(filepath.Join(b.root, containersDir, other, upperDir), 0o700); err != nil {
		t.Fatal(err)
	}
	b.start()
	b.until("they are undone", func() bool { return b.logs.FilterMessage("removing leftover without record").Len() == 2 })
	b.mu.Lock()
	if !b.leases["somebody"] {
		t.Error("the lease of somebody else went")
	}
	delete(b.leases, "somebody")
	b.mu.Unlock()
	b.clean()
}

func TestRemovalThatWasInterruptedIsFinished(t *testing.T) {
	b := newBench(t)
	sb := b.sandbox("p")
	c := b.container(sb, "c")
	b.setFail("unmount", fmt.Errorf("busy"))
	if err := b.rt.RemoveContainer(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	b.kill()
	b.setFail("unmount", nil)
	b.start()
	if l, err := b.rt.ListContainers(t.Context(), nil); err != nil || len(l) != 0 {
		t.Errorf("%v, %v", l, err)
	}
	if err := b.rt.RemovePodSandbox(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
	b.clean()
}

// An agent that dies after it has removed a sandbox, and before what its containers had,
// leaves neither these nor a damaged record.
func TestSandboxGoesBeforeItsContainers(t *testing.T) {
	b := newBench(t)
	sb := b.sandbox("p")
	c := b.running(sb, "c")
	if err := b.rt.StopPodSandbox(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
	b.kill()
	records := func(kind string) *checkpoint.Store {
		s, err := checkpoint.Open(checkpoint.Config{Dir: filepath.Join(b.root, recordsDir, kind)})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	containers := records(containersDir)
	value, err := containers.Read(c)
	if err != nil {
		t.Fatal(err)
	}
	rec, _, err := decodeContainer(c, value)
	if err != nil {
		t.Fatal(err)
	}
	rec.State = life.Removing
	if err := errors.Join(containers.Write(c, encode(*rec)), records(sandboxesDir).Delete(sb), os.RemoveAll(filepath.Join(b.root, containersDir, c))); err != nil {
		t.Fatal(err)
	}
	b.start()
	if l, err := b.rt.ListContainers(t.Context(), nil); err != nil || len(l) > 0 {
		t.Errorf("%v, %v", l, err)
	}
	if left, err := os.ReadDir(filepath.Join(b.root, recordsDir, containersDir)); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

func TestSecondRuntimeIsRefused(t *testing.T) {
	b := newBench(t)
	b.sandbox("p") // it runs
	other, err := New(b.rt.cfg)
	if err != nil {
		t.Fatal(err)
	}
	err = other.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), fmt.Sprint("in use by process ", os.Getpid())) {
		t.Errorf("error %v, want it to name process %d", err, os.Getpid())
	}
	_, err = other.ListContainers(t.Context(), nil)
	wantCode(t, "list of what does not run", err, codes.Unavailable)
	b.sandbox("q") // the first one is not disturbed
}

func TestParkedSandboxIsUndoneAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		release := b.hold("attach")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := b.rt.RunPodSandbox(ctx, sandboxConfig("p"), "")
		wantCode(t, "the call", err, codes.DeadlineExceeded)
		release()
		time.Sleep(unclaimedTime + 2*time.Second)
		b.clean()
		b.sandbox("p")
		b.kill()
	})
}

func TestInfraThatDiesMakesTheSandboxNotReady(t *testing.T) {
	b := newBench(t)
	conf := sandboxConfig("p")
	conf.Linux.SecurityContext.NamespaceOptions.Pid = runtimeapi.NamespaceMode_POD
	sb, err := b.rt.RunPodSandbox(t.Context(), conf, "")
	if err != nil {
		t.Fatal(err)
	}
	b.restart()
	if s := b.podState(sb); s != runtimeapi.PodSandboxState_SANDBOX_READY {
		t.Errorf("sandbox is %v", s)
	}
	if l, err := b.rt.ListContainers(t.Context(), nil); err != nil || len(l) != 0 {
		t.Errorf("the infra process is listed: %v, %v", l, err)
	}
	b.end(sb, 137)
	b.until("it is not ready", func() bool { return b.podState(sb) == runtimeapi.PodSandboxState_SANDBOX_NOTREADY })
	if err := b.rt.RemovePodSandbox(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
	b.clean()
}

var _ = monitor.ErrGone
