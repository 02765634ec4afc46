//go:build linux

package localcri

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/localcri/internal/life"
	"github.com/nodewright/nodewright/localcri/internal/monitor"
)

func TestLifeLeavesNothing(t *testing.T) {
	b := newBench(t)
	sb := b.sandbox("p")
	if s := b.podState(sb); s != runtimeapi.PodSandboxState_SANDBOX_READY {
		t.Errorf("sandbox is %v", s)
	}
	c := b.running(sb, "c")
	st := b.status(c)
	if st.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING || st.GetStartedAt() < st.GetCreatedAt() || st.GetImageRef() != "sha256:img" || st.GetImageId() != "sha256:img" {
		t.Errorf("status %v", st)
	}
	b.end(c, 3)
	if st := b.untilExited(c); st.GetExitCode() != 3 || st.GetReason() != reasonError || st.GetFinishedAt() < st.GetStartedAt() {
		t.Errorf("status %v", st)
	}
	wantCode(t, "second start", b.rt.StartContainer(t.Context(), c), codes.FailedPrecondition)
	d := b.running(sb, "d")
	if err := b.rt.StopPodSandbox(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
	if st := b.status(d); st.GetExitCode() != 137 {
		t.Errorf("after the stop of the sandbox: %v", st)
	}
	if s := b.podState(sb); s != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("sandbox is %v", s)
	}
	_, err := b.rt.CreateContainer(t.Context(), sb, containerConfig("e"), nil)
	wantCode(t, "create in a stopped sandbox", err, codes.FailedPrecondition)
	for range 2 {
		if err := b.rt.RemovePodSandbox(t.Context(), sb); err != nil {
			t.Fatal(err)
		}
	}
	_, err = b.rt.ContainerStatus(t.Context(), c, false)
	wantCode(t, "status of what is removed", err, codes.NotFound)
	b.clean()
}

func TestTwoCallersGetOneSandbox(t *testing.T) {
	b := newBench(t)
	release := b.hold("attach")
	var wg sync.WaitGroup
	ids, errs := make([]string, 2), make([]error, 2)
	for i := range ids {
		wg.Go(func() { ids[i], errs[i] = b.rt.RunPodSandbox(t.Context(), sandboxConfig("p"), "") })
	}
	b.until("both wait", func() bool {
		b.rt.mu.Lock()
		defer b.rt.mu.Unlock()
		for _, p := range b.rt.pods {
			p.claim.mu.Lock()
			defer p.claim.mu.Unlock()
			return p.claim.waiting == 2
		}
		return false
	})
	other := sandboxConfig("p")
	other.Hostname = "other"
	_, err := b.rt.RunPodSandbox(t.Context(), other, "")
	wantCode(t, "another configuration meanwhile", err, codes.AlreadyExists)
	release()
	wg.Wait()
	if errors.Join(errs...) != nil || ids[0] != ids[1] {
		t.Errorf("%v, %v", ids, errs)
	}
	_, err = b.rt.RunPodSandbox(t.Context(), sandboxConfig("p"), "")
	wantCode(t, "a third call", err, codes.AlreadyExists)
	if err == nil || !strings.Contains(err.Error(), "is reserved for") {
		t.Errorf("%v does not say who has the name", err)
	}
}

func TestSandboxOfACallerThatWent(t *testing.T) {
	b := newBench(t)
	release := b.hold("attach")
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := b.rt.RunPodSandbox(ctx, sandboxConfig("p"), "")
		gone <- err
	}()
	b.until("it is being made", func() bool { b.rt.mu.Lock(); defer b.rt.mu.Unlock(); return len(b.rt.pods) == 1 })
	cancel()
	wantCode(t, "the first call", <-gone, codes.Canceled)
	release()
	b.until("it is made", func() bool { return b.rt.allPods()[0].claim.finished() })
	if l, err := b.rt.ListPodSandbox(t.Context(), nil); err != nil || len(l) != 0 {
		t.Errorf("listed though nobody has it: %v, %v", l, err)
	}
	made := b.rt.allPods()[0].id
	if id := b.sandbox("p"); id != made {
		t.Errorf("the retry got another sandbox")
	}
}

func TestSandboxThatFailsIsUndone(t *testing.T) {
	for _, step := range []string{"spaces", "attach", "sysctls", "launch"} {
		t.Run(step, func(t *testing.T) {
			b := newBench(t)
			b.setFail(step, errors.New("no "+step))
			_, err := b.rt.RunPodSandbox(t.Context(), sandboxConfig("p"), "")
			if err == nil || !strings.Contains(err.Error(), "no "+step) {
				t.Fatalf("error %v", err)
			}
			b.clean()
			b.setFail(step, nil)
			b.sandbox("p") // the name is free
		})
	}
}

func TestContainerThatFailsIsUndone(t *testing.T) {
	for _, step := range []string{"use", "mount", "features"} {
		t.Run(step, func(t *testing.T) {
			b := newBench(t)
			sb := b.sandbox("p")
			b.setFail(step, errors.New("no "+step))
			_, err := b.rt.CreateContainer(t.Context(), sb, containerConfig("c"), nil)
			if err == nil || !strings.Contains(err.Error(), "no "+step) {
				t.Fatalf("error %v", err)
			}
			b.setFail(step, nil)
			b.container(sb, "c")
			if err := b.rt.RemovePodSandbox(t.Context(), sb); err != nil {
				t.Fatal(err)
			}
			b.clean()
		})
	}
}

func TestStartJoinsAndOutlivesItsCaller(t *testing.T) {
	b := newBench(t)
	c := b.container(b.sandbox("p"), "c")
	release := b.hold("start")
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	wantCode(t, "a short start", b.rt.StartContainer(ctx, c), codes.DeadlineExceeded)
	second := make(chan error, 1)
	go func() { second <- b.rt.StartContainer(t.Context(), c) }()
	release()
	if err := <-second; err != nil && !strings.Contains(err.Error(), "want it created") { // it may have come late
		t.Errorf("the second call: %v", err)
	}
	b.until("it runs", func() bool { return b.status(c).GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING })
}

func TestStartThatFailsIsAnEnd(t *testing.T) {
	b := newBench(t)
	c := b.container(b.sandbox("p"), "c")
	b.setFail("start", &monitor.StartError{Step: "create", Message: `exec: "/none": no such file`})
	err := b.rt.StartContainer(t.Context(), c)
	if err == nil || !strings.Contains(err.Error(), "/none") {
		t.Errorf("error %v", err)
	}
	st := b.status(c)
	if st.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || st.GetExitCode() != 128 || st.GetReason() != life.ReasonStartError ||
		st.GetStartedAt() != 0 || st.GetFinishedAt() == 0 || !strings.Contains(st.GetMessage(), "/none") {
		t.Errorf("status %v", st)
	}
	b.setFail("start", nil)
	wantCode(t, "second start", b.rt.StartContainer(t.Context(), c), codes.FailedPrecondition)
}

func TestStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		sb := b.sandbox("p")
		c := b.running(sb, "c")
		begin := time.Now()
		// The shorter of two time-outs counts, and both calls end.
		long := make(chan error, 1)
		go func() { long <- b.rt.StopContainer(t.Context(), c, 600) }()
		time.Sleep(5 * time.Second)
		if err := b.rt.StopContainer(t.Context(), c, 20); err != nil {
			t.Error(err)
		}
		if err := <-long; err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took < 25*time.Second || took > 27*time.Second {
			t.Errorf("took %v, want 25s", took)
		}
		if st := b.status(c); st.GetExitCode() != 137 {
			t.Errorf("status %v", st)
		}
		if b.signals[0] != unix.SIGTERM {
			t.Errorf("signals %v", b.signals)
		}
		b.kill()
	})
}

func TestStopOfAProcessThatWaitsForADisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		c := b.running(b.sandbox("p"), "c")
		b.mu.Lock()
		b.processes[b.executed[c]].state = "D"
		b.mu.Unlock()
		begin := time.Now()
		err := b.rt.StopContainer(t.Context(), c, 3)
		wantCode(t, "stop", err, codes.DeadlineExceeded)
		if took := time.Since(begin); took < 13*time.Second || took > 14*time.Second || !strings.Contains(err.Error(), "state D") {
			t.Errorf("after %v: %v", took, err)
		}
		b.mu.Lock()
		b.processes[b.executed[c]].state = "S"
		b.mu.Unlock()
		if err := b.rt.StopContainer(t.Context(), c, 3); err != nil {
			t.Error(err)
		}
		b.kill()
	})
}

func TestDetachThatFailsKeepsTheSandbox(t *testing.T) {
	b := newBench(t)
	sb := b.sandbox("p")
	c := b.running(sb, "c")
	b.setFail("detach", errors.New("no plugin"))
	if err := b.rt.StopPodSandbox(t.Context(), sb); err == nil || !strings.Contains(err.Error(), "no plugin") {
		t.Errorf("error %v", err)
	}
	if st := b.status(c); st.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
		t.Errorf("container %v", st)
	}
	if s := b.podState(sb); s != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("sandbox is %v", s)
	}
	b.setFail("detach", nil)
	if err := b.rt.RemovePodSandbox(t.Context(), sb); err != nil {
		t.Error(err)
	}
	b.clean()
}

func TestResourcesMerge(t *testing.T) {
	b := newBench(t)
	conf := containerConfig("c")
	conf.Linux.Resources = &runtimeapi.LinuxContainerResources{CpuPeriod: 100000, CpuQuota: 20000, MemoryLimitInBytes: 64 << 20}
	c, err := b.rt.CreateContainer(t.Context(), b.sandbox("p"), conf, nil)
	if err != nil {
		t.Fatal(err)
	}
	update := func(r *runtimeapi.LinuxContainerResources) error {
		return b.rt.UpdateContainerResources(t.Context(), c, &runtimeapi.ContainerResources{Linux: r})
	}
	want := func(quota, memory int64) {
		t.Helper()
		l := b.status(c).GetResources().GetLinux()
		if l.GetCpuPeriod() != 100000 || l.GetCpuQuota() != quota || l.GetMemoryLimitInBytes() != memory {
			t.Errorf("resources %v, want quota %d and memory %d", l, quota, memory)
		}
	}
	if err := update(&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 96 << 20}); err != nil {
		t.Fatal(err)
	}
	want(20000, 96<<20)
	if err := b.rt.StartContainer(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	b.setFail("update", errors.New("memory is in use"))
	if err := update(&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1 << 20}); err == nil {
		t.Error("an update that fails succeeded")
	}
	want(20000, 96<<20)
	b.setFail("update", nil)
	if err := update(&runtimeapi.LinuxContainerResources{CpuQuota: 30000}); err != nil {
		t.Fatal(err)
	}
	want(30000, 96<<20)
	b.restart()
	want(30000, 96<<20)
}

func TestEventsOverflowEndsTheStream(t *testing.T) {
	b := newBench(t)
	sb := b.sandbox("p")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ch := make(chan *runtimeapi.ContainerEventResponse)
	opened, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- b.rt.GetContainerEvents(ctx, ch, func(runtimeapi.RuntimeService_GetContainerEventsClient) { close(opened) })
	}()
	<-opened
	p := b.rt.allPods()[0]
	for range 3 * eventQueue {
		p.tell(runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, sb, 0)
	}
	go func() {
		for range ch {
		}
	}()
	wantCode(t, "a reader that is behind", <-done, codes.ResourceExhausted)
	close(ch)
}

func TestNetworkOfTheNodeNeedsNoNetwork(t *testing.T) {
	b := newBench(t)
	b.setFail("attach", errors.New("not ready"))
	conf := sandboxConfig("p")
	conf.Linux.SecurityContext.NamespaceOptions.Network = runtimeapi.NamespaceMode_NODE
	sb, err := b.rt.RunPodSandbox(t.Context(), conf, "")
	if err != nil {
		t.Fatal(err)
	}
	if s := b.podState(sb); s != runtimeapi.PodSandboxState_SANDBOX_READY {
		t.Errorf("sandbox is %v", s)
	}
}

func TestSandboxRefusals(t *testing.T) {
	b := newBench(t)
	for name, change := range map[string]func(*runtimeapi.PodSandboxConfig){
		"no metadata":      func(c *runtimeapi.PodSandboxConfig) { c.Metadata = nil },
		"a long host name": func(c *runtimeapi.PodSandboxConfig) { c.Hostname = strings.Repeat("h", 65) },
		"a name of a line": func(c *runtimeapi.PodSandboxConfig) {
			c.DnsConfig = &runtimeapi.DNSConfig{Servers: []string{"1.1.1.1\nevil"}}
		},
		"a sysctl of all":   func(c *runtimeapi.PodSandboxConfig) { c.Linux.Sysctls = map[string]string{"vm.swappiness": "1"} },
		"windows":           func(c *runtimeapi.PodSandboxConfig) { c.Windows = &runtimeapi.WindowsPodSandboxConfig{} },
		"a port beyond all": func(c *runtimeapi.PodSandboxConfig) { c.PortMappings = []*runtimeapi.PortMapping{{HostPort: 70000}} },
		"user namespace TARGET": func(c *runtimeapi.PodSandboxConfig) {
			c.Linux.SecurityContext.NamespaceOptions.UsernsOptions = &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_TARGET}
		},
	} {
		conf := sandboxConfig("p")
		change(conf)
		_, err := b.rt.RunPodSandbox(t.Context(), conf, "")
		wantCode(t, name, err, codes.InvalidArgument)
	}
	_, err := b.rt.RunPodSandbox(t.Context(), sandboxConfig("p"), "kata")
	wantCode(t, "an unknown handler", err, codes.FailedPrecondition)
	if err == nil || !strings.Contains(err.Error(), `no runtime for "kata" is configured`) {
		t.Errorf("%v", err)
	}
	conf := containerConfig("c")
	conf.LogPath = "../x"
	_, err = b.rt.CreateContainer(t.Context(), b.sandbox("q"), conf, nil)
	wantCode(t, "a log outside its directory", err, codes.InvalidArgument)
}

// TestSandboxWithoutAddress: an empty network status makes a kubelet replace the
// sandbox, again and again.
func TestSandboxWithoutAddress(t *testing.T) {
	b := newBench(t)
	b.machine.noAddress = true
	s, err := b.rt.PodSandboxStatus(t.Context(), b.sandbox("p"), false)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.GetStatus(); got.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY || got.Network != nil {
		t.Errorf("state %v, network %v; want ready and no network status", got.GetState(), got.Network)
	}
	b.machine.noAddress = false
	if s, err = b.rt.PodSandboxStatus(t.Context(), b.sandbox("q"), false); err != nil || s.GetStatus().GetNetwork().GetIp() != "10.0.0.7" || len(s.GetStatus().GetNetwork().GetAdditionalIps()) != 1 {
		t.Errorf("%v, %v", s.GetStatus().GetNetwork(), err)
	}
}
