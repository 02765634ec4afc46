package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/sampleimage"
	"github.com/nodewright/nodewright/internal/testprogram"
)

// draDriver is the sample driver, a process of its own.
type draDriver struct {
	l    *lab
	bin  string
	args []string
	cmd  *exec.Cmd

	mu   sync.Mutex
	said strings.Builder
}

// newDRADriver builds it, and does not start it.
func (l *lab) newDRADriver() *draDriver {
	l.t.Helper()
	bin := testprogram.Build(l.t, "./examples/dradriver")
	dir := filepath.Dir(l.manifests) // short enough for sockets
	d := &draDriver{l: l, bin: bin, args: []string{
		"--registry", filepath.Join(l.root, "plugins_registry"), "--dir", filepath.Join(dir, "dra"), "--cdi", filepath.Join(l.c.Dir, "cdi"),
		"--sick", filepath.Join(dir, "sick"),
	}}
	l.t.Cleanup(func() {
		if d.cmd != nil {
			d.end(syscall.SIGKILL)
		}
	})
	return d
}

func (d *draDriver) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.said.Write(p)
}

func (d *draDriver) start() {
	d.cmd = exec.Command(d.bin, d.args...)
	d.cmd.Stdout, d.cmd.Stderr = d, d
	d.l.must(d.cmd.Start())
}

func (d *draDriver) end(sig syscall.Signal) {
	_ = d.cmd.Process.Signal(sig)
	_ = d.cmd.Wait()
	d.cmd = nil
}

// wantHeard waits for what the driver does to be that: its words come through a pipe.
func (d *draDriver) wantHeard(want string) {
	d.l.t.Helper()
	for limit := time.Now().Add(testTimeout); ; time.Sleep(20 * time.Millisecond) {
		var lines []string
		d.mu.Lock()
		for line := range strings.Lines(d.said.String()) {
			if line = strings.TrimSpace(line); line != "registered" {
				lines = append(lines, line)
			}
		}
		d.mu.Unlock()
		got := strings.Join(lines, "; ")
		if got == want {
			return
		}
		if !strings.HasPrefix(want, got) || time.Now().After(limit) {
			d.l.t.Errorf("the driver did %q, want %q", got, want)
			return
		}
	}
}

func gpuClaim(name string) string {
	return fmt.Sprintf(`apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: %s}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu.example.com}}]}}
status: {allocation: {devices: {results: [{request: r, driver: gpu.example.com, pool: node, device: null0}]}}}
`, name)
}

// gpuPod says what it sees of its claim, and stays.
func gpuPod(name, claim string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  resourceClaims: [{name: gpu, resourceClaimName: %s}]
  containers:
  - {name: c, image: '%s', args: [cat, /dev/dra/%[2]s, env, ., out, looked, sleep, forever], resources: {claims: [{name: gpu}]}}
`, name, claim, sampleimage.Testbox)
}

// id is a pod's container.
func containerOf(p *v1.Pod) string { return p.Status.ContainerStatuses[0].ContainerID }

// A pod has what its claim gives it: it waits for a driver that is late, sees its device
// inside, keeps it when driver and agent are killed, and gives it back. In which order they
// come back, what the device's health is and who shares a claim is tested in packages dra, agent/resources
// and internal/sim.
func TestResourceClaims(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	d := l.newDRADriver()
	l.write("claim.yaml", gpuClaim("gpu"))
	l.write("one.yaml", gpuPod("one", "gpu"))
	l.start()

	// The driver is late, and the pod says what it waits for.
	l.until("waiting for the driver", func(map[string]*v1.Pod) bool {
		return strings.Contains(l.ask("describe", "pod", "one-lab"), "waits for driver gpu.example.com")
	})
	d.start()
	began := time.Now()
	one := l.untilReady("one")["one"]
	t.Logf("ready %v after the driver was started", time.Since(began).Round(time.Millisecond))
	for limit := time.Now().Add(testTimeout); !strings.Contains(l.ask("logs", "one-lab"), "looked"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("the pod has not looked")
		}
	}
	if said := l.ask("logs", "one-lab"); !strings.Contains(said, "DRA_CLAIM=default/gpu\n") {
		t.Errorf("it sees:\n%s", said)
	}
	if st := one.Status; st.Reason != "" || st.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("status %+v", st)
	}
	d.wantHeard("prepared default/gpu")

	// Both are killed, the driver comes first, and no claim is prepared twice.
	l.kill()
	d.end(syscall.SIGKILL)
	d.start()
	l.start()
	now := l.untilReady("one")
	if p := now["one"]; p.Status.ContainerStatuses[0].RestartCount != 0 || containerOf(p) != containerOf(one) {
		t.Errorf("the container was restarted: %s, it was %s", containerOf(p), containerOf(one))
	}

	l.remove("one.yaml")
	l.untilGone("one")
	// A pod that goes before the agent has taken it up ends as an orphan, which
	// is no pod for "get".
	l.until("undone", func(map[string]*v1.Pod) bool {
		records, err := os.ReadDir(filepath.Join(l.root, "dra"))
		return err == nil && len(records) == 0
	})
	d.wantHeard("prepared default/gpu; unprepared default/gpu")
	if left, _ := filepath.Glob(filepath.Join(l.c.Dir, "cdi", "gpu.example.com-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
