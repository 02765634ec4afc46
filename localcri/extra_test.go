//go:build linux

package localcri

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

func TestNewGivesAllReasons(t *testing.T) {
	_, err := New(Config{StateDir: "/" + strings.Repeat("s", 60), Monitor: "m", CgroupDriver: "v3", Reserve: -1, BootID: "b", Handlers: map[string]Handler{"a": {Path: "runc"}}})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"Config.RootDir", "Config.StateDir", `Config.Monitor is "m"`, `Config.Handlers["a"].Path`, "Config.Network", "Config.Images", "Config.CgroupDriver", "Config.Reserve"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
	m := newMachine()
	dir := t.TempDir()
	_, err = New(Config{
		RootDir: filepath.Join(dir, "r"), StateDir: "/run/nowhere", Monitor: dir, Handlers: map[string]Handler{"runc": {Path: "/no/runc"}},
		Network: fakeNetwork{m}, Images: fakeImages{m}, BootID: "b",
	})
	for _, want := range []string{"Config.Monitor is " + dir, "/no/runc, which does not exist"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) > 0 {
		t.Errorf("New made %v", entries)
	}
}

func TestSignals(t *testing.T) {
	for name, want := range map[string]unix.Signal{
		"SIGTERM": unix.SIGTERM, "term": unix.SIGTERM, "9": unix.SIGKILL, "SIGRTMIN+3": 37, "RTMAX-1": 63, "SIGCLD": unix.SIGCHLD, "SIGPOLL": unix.SIGIO,
		"": 0, "0": 0, "65": 0, "SIGNONE": 0, "RTMIN+99": 0, "RTMIN3": 0,
	} {
		got, ok := signalNumber(name)
		if ok != (want != 0) || ok && got != want {
			t.Errorf("%q is %d, %v; want %d", name, got, ok, want)
		}
	}
	for value, name := range runtimeapi.Signal_name {
		if value == 0 {
			continue
		}
		if _, ok := signalNumber(signalName(runtimeapi.Signal(value))); !ok {
			t.Errorf("%s of the CRI is no signal", name)
		}
	}
	if got := stopSignal(runtimeapi.Signal_SIGNAL_SIGUSR1, "SIGINT"); got != unix.SIGUSR1 {
		t.Errorf("the CRI's word: %v", got)
	}
	if got := stopSignal(runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT, "SIGINT"); got != unix.SIGINT {
		t.Errorf("the image's word: %v", got)
	}
	if got := stopSignal(runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT, "nonsense"); got != unix.SIGTERM {
		t.Errorf("an image's nonsense: %v", got)
	}
}

func TestCgroupPaths(t *testing.T) {
	for spec, want := range map[string]string{
		"/kubepods/pod1/c": "/kubepods/pod1/c", "kubepods-burstable.slice:nodewright:c": "/kubepods.slice/kubepods-burstable.slice/nodewright-c.scope",
		"system.slice:nodewright:c": "/system.slice/nodewright-c.scope",
	} {
		if got := cgroupOf(spec); got != want {
			t.Errorf("%s is %s, want %s", spec, got, want)
		}
	}
	for parent, want := range map[string]string{"": "", "/kubepods/pod1": "/kubepods/pod1", "a-b-c.slice": "/a.slice/a-b.slice/a-b-c.slice", "-.slice": "/"} {
		if got := podCgroup(parent); got != want {
			t.Errorf("%s is %s, want %s", parent, got, want)
		}
	}
}

func TestStatOfAProcess(t *testing.T) {
	start, state, err := realProcesses{}.Start(os.Getpid())
	if err != nil || start == 0 || state == "" {
		t.Errorf("%d, %q, %v", start, state, err)
	}
}

// What a record's file says is only used if it is whole.
func FuzzRecords(f *testing.F) {
	id := strings.Repeat("a", idLength)
	f.Add([]byte(`{"version":1,"id":"` + id + `","state":"made","boot":"b"}`))
	f.Add([]byte(`{"version":1,"id":"` + id + `","sandbox":"` + id + `","state":"running","boot":"b"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, config, err := decodeSandbox(id, b); err == nil {
			if r.ID != id || config.GetMetadata() == nil || r.Check() != nil {
				t.Errorf("%+v", r)
			}
		}
		if r, config, err := decodeContainer(id, b); err == nil {
			if r.ID != id || !isID(r.Sandbox) || config.GetMetadata() == nil {
				t.Errorf("%+v", r)
			}
		}
	})
}

// Whatever ends at once is told once each, and no goroutine stays.
func TestHundredContainersEndAtOnce(t *testing.T) {
	b := newBench(t)
	sb := b.sandbox("p")
	var ids []string
	for i := range 100 {
		ids = append(ids, b.running(sb, fmt.Sprint("c", i)))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ch := make(chan *runtimeapi.ContainerEventResponse, 2*eventQueue)
	go func() { _ = b.rt.GetContainerEvents(ctx, ch, nil) }()
	before := runtime.NumGoroutine()
	var wg sync.WaitGroup
	for i, id := range ids {
		wg.Go(func() { b.end(id, int32(i%3)) })
	}
	wg.Wait()
	ended := map[string]int{}
	for len(ended) < len(ids) {
		if e := <-ch; e.GetContainerEventType() == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT {
			ended[e.GetContainerId()]++
		}
	}
	for i, id := range ids {
		if st := b.status(id); st.GetExitCode() != int32(i%3) || ended[id] != 1 {
			t.Errorf("container %d: %v, told %d times", i, st, ended[id])
		}
	}
	b.until("goroutines end", func() bool { return runtime.NumGoroutine() <= before+2 })
	if err := b.rt.RemovePodSandbox(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
	b.clean()
}

// A disk without room keeps nothing from ending and going.
func TestFullDisk(t *testing.T) {
	b := newBench(t)
	sb := b.sandbox("p")
	c := b.running(sb, "c")
	b.rt.cfg.Reserve = 1 << 62
	_, err := b.rt.CreateContainer(t.Context(), sb, containerConfig("d"), nil)
	wantCode(t, "create", err, codes.ResourceExhausted)
	if err := b.rt.StopContainer(t.Context(), c, 0); err != nil {
		t.Error(err)
	}
	if err := b.rt.RemovePodSandbox(t.Context(), sb); err != nil {
		t.Error(err)
	}
	b.clean()
}

// A sandbox whose network or monitor hangs holds up no other one.
func TestHungSandboxHoldsUpNoOther(t *testing.T) {
	for _, step := range []string{"attach", "launch", "start"} {
		t.Run(step, func(t *testing.T) {
			b := newBench(t)
			good := b.sandbox("good")
			c := b.container(good, "c")
			_ = c
			release := b.hold(step)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if step == "start" {
				_ = b.rt.StartContainer(ctx, c)
			} else {
				_, _ = b.rt.RunPodSandbox(ctx, sandboxConfig("bad"), "")
			}
			if _, err := b.rt.ListContainers(t.Context(), nil); err != nil {
				t.Error(err)
			}
			if s := b.podState(good); s != runtimeapi.PodSandboxState_SANDBOX_READY {
				t.Errorf("the other one is %v", s)
			}
			b.container(good, "d")
			release()
		})
	}
}
