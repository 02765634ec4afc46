package containerdtest_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/containerdtest"
	"github.com/nodewright/nodewright/internal/sampleimage"
)

func connect(t *testing.T, socket string) runtimeapi.RuntimeServiceClient {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return runtimeapi.NewRuntimeServiceClient(conn)
}

// TestPod runs a pod by hand: it gets an address, answers, logs, is heard of
// in the event stream, survives a kill of containerd, and leaves nothing.
func TestPod(t *testing.T) {
	c := containerdtest.New(t, containerdtest.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	rt := connect(t, c.Socket)
	stream, err := rt.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	logs := t.TempDir()
	sandbox := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "default", Uid: "u1"},
		LogDirectory: logs,
		Linux:        &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{}},
	}
	pod, err := rt.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: sandbox})
	if err != nil {
		t.Fatal(err)
	}
	status, err := rt.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: pod.PodSandboxId})
	if err != nil {
		t.Fatal(err)
	}
	ip := status.GetStatus().GetNetwork().GetIp()
	if !strings.HasPrefix(ip, "10.90.") {
		t.Fatalf("pod IP = %q", ip)
	}
	ctr, err := rt.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: pod.PodSandboxId, SandboxConfig: sandbox,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "c"},
			Image:    &runtimeapi.ImageSpec{Image: sampleimage.Testbox},
			Args:     []string{"out", "to stdout", "err", "to stderr", "trap", "7", "0s", "serve", ":80"},
			LogPath:  "c/0.log",
			Linux:    &runtimeapi.LinuxContainerConfig{},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(logs, "c"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := rt.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: ctr.ContainerId}); err != nil {
		t.Fatal(err)
	}
	answers(t, ctx, ip)

	seen := map[runtimeapi.ContainerEventType]bool{}
	for !seen[runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT] {
		e, err := stream.Recv()
		if err != nil {
			t.Fatalf("events: %v, after %v", err, seen)
		}
		if e.GetContainerId() == ctr.ContainerId {
			seen[e.GetContainerEventType()] = true
		}
	}

	// What containerd has read of a container's output and not yet written
	// dies with it.
	path := filepath.Join(logs, "c", "0.log")
	logged(t, ctx, path, " stdout F to stdout\n", " stderr F to stderr\n")
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	answers(t, ctx, ip)
	if err := c.Resume(); err != nil {
		t.Fatal(err)
	}
	if _, err := rt.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: ctr.ContainerId, Timeout: 10}, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	end, err := rt.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: ctr.ContainerId})
	if err != nil {
		t.Fatal(err)
	}
	if got := end.GetStatus().GetExitCode(); got != 7 {
		t.Errorf("exit code = %d, want 7", got)
	}
	log, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{" stdout F to stdout\n", " stderr F to stderr\n", " stdout F got TERM\n"} {
		if !strings.Contains(string(log), want) {
			t.Errorf("log lacks %q:\n%s", want, log)
		}
	}
	// Pod and container are left for Stop to clear away.
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	leavesNothing(t, c)
}

// logged waits until all of these are in a container's log.
func logged(t *testing.T, ctx context.Context, path string, wants ...string) {
	t.Helper()
	for ; ; time.Sleep(10 * time.Millisecond) {
		log, err := os.ReadFile(path)
		if err == nil && !slices.ContainsFunc(wants, func(w string) bool { return !strings.Contains(string(log), w) }) {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("log lacks one of %q: %v\n%s", wants, err, log)
		}
	}
}

// TestStopAfterKill clears up with containerd dead and with it frozen.
func TestStopAfterKill(t *testing.T) {
	for name, hurt := range map[string]func(*containerdtest.Containerd) error{
		"killed": (*containerdtest.Containerd).Kill,
		"frozen": (*containerdtest.Containerd).Freeze,
	} {
		t.Run(name, func(t *testing.T) {
			c := containerdtest.New(t, containerdtest.Options{})
			rt := connect(t, c.Socket)
			if _, err := rt.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
				Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "default", Uid: "u1"},
			}}); err != nil {
				t.Fatal(err)
			}
			if err := hurt(c); err != nil {
				t.Fatal(err)
			}
			if err := c.Stop(); err != nil {
				t.Fatal(err)
			}
			leavesNothing(t, c)
		})
	}
}

func answers(t *testing.T, ctx context.Context, ip string) {
	t.Helper()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+ip+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
		}
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("pod does not answer: %v", err)
		}
		time.Sleep(5 * time.Millisecond) // the program listens when it listens
	}
}

func leavesNothing(t *testing.T, c *containerdtest.Containerd) {
	t.Helper()
	if _, err := os.Stat(c.Dir); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", c.Dir, err)
	}
	if _, err := os.Stat("/sys/class/net/" + c.Bridge); !os.IsNotExist(err) {
		t.Errorf("bridge %s is left: %v", c.Bridge, err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), c.Dir) {
		t.Errorf("mounts are left:\n%s", mounts)
	}
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		if b, err := os.ReadFile(p); err == nil && strings.Contains(string(b), c.Dir) {
			t.Errorf("process is left: %s", strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
}
