package cgroups

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// helperEnv makes the test binary play a process in a pod.
const helperEnv = "NODEWRIGHT_CGROUPS_TEST_PROCESS"

func TestMain(m *testing.M) {
	if what := os.Getenv(helperEnv); what != "" {
		fmt.Println("ready")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		act(what)
		return
	}
	os.Exit(m.Run())
}

// act never ends by itself.
func act(what string) {
	var kept [][]byte
	for {
		switch what {
		case "eat": // memory, until somebody minds
			b := make([]byte, 1<<20)
			for i := 0; i < len(b); i += 512 {
				b[i] = 1
			}
			kept = append(kept, b)
			runtime.KeepAlive(kept)
		case "spin":
		default:
			time.Sleep(time.Hour)
		}
	}
}

// realManager works in a cgroup of its own on this machine, which is removed
// with all in it when the test ends. The test is skipped where that cannot be.
func realManager(t testing.TB, cfg Config) (*Manager, *driver) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("makes cgroups: needs root")
	}
	cfg.Root = fmt.Sprintf("/nwcg-%d", os.Getpid())
	f := files{Calls: newCalls(10*time.Second, must(newMetrics(nil))), fs: osFS{}}
	on, err := detect(t.Context(), f, 0)
	if err != nil {
		t.Skipf("no cgroups to work with: %v", err)
	}
	d := &driver{files: f, on: on, page: int64(os.Getpagesize())}
	for _, dir := range on.dirs(cfg.Root) {
		if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
			t.Skipf("cgroups cannot be made here: %v", err)
		}
	}
	t.Cleanup(func() {
		if left, err := d.destroy(context.Background(), cfg.Root, kill); err != nil {
			t.Errorf("%s stays, with processes %v: %v", cfg.Root, left, err)
		}
	})
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m, d
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// start runs a process in a cgroup; it acts once go on is called.
func start(t testing.TB, d *driver, cgroup, what string) (goOn func(), pid int) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helperEnv+"="+what)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _, _ = cmd.Process.Wait(); close(done) }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-done })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the process said %q, %v", line, err)
	}
	for _, dir := range d.on.dirs(cgroup) {
		if err := os.WriteFile(path.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
	return func() { _, _ = in.Write([]byte("\n")) }, cmd.Process.Pid
}

func TestRealPod(t *testing.T) {
	m, d := realManager(t, Config{PodOptions: PodOptions{Pids: 64, ReserveMemory: true}})
	ctx := t.Context()
	p := podWith("1-2-3", "cpu=250m memory=16Mi/cpu=500m memory=64Mi")
	for range 2 {
		if err := m.Ensure(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	cgroup := m.CgroupParent(p)
	have, err := d.level(ctx, cgroup)
	want := d.on.version.levelOf(OfPod(p, m.cfg.PodOptions))
	want.memorySwap = have.memorySwap
	if d.on.version == V1 {
		want.low = 0
	}
	if err != nil || have != want {
		t.Errorf("the kernel has %+v, %v, want %+v", have, err, want)
	}
	big := podWith("1-2-3", "cpu=500m memory=32Mi/cpu=1 memory=128Mi")
	for _, name := range []v1.ResourceName{v1.ResourceMemory, v1.ResourceCPU} {
		if err := errors.Join(m.Raise(ctx, big, name), m.Lower(ctx, p, name), m.Raise(ctx, big, name)); err != nil {
			t.Error(err)
		}
	}
	if have, err := d.level(ctx, cgroup); have.memory != 128<<20 || have.quota != 100000 || err != nil {
		t.Errorf("after the resize the kernel has %+v, %v", have, err)
	}
	if err := m.updateTiers(ctx, d); err != nil {
		t.Errorf("tiers: %v", err)
	}

	container := path.Join(cgroup, "container")
	for _, dir := range d.on.dirs(container) {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if d.on.version == V1 {
		if err := d.inheritCPUSet(ctx, container); err != nil {
			t.Fatal(err)
		}
	}
	_, pid := start(t, d, container, "sleep")
	if pids, err := d.pids(ctx, cgroup); len(pids) != 1 || pids[0] != pid || err != nil {
		t.Errorf("pids = %v, %v, want %d", pids, err, pid)
	}
	s, err := m.Stats(ctx, p.UID)
	if err != nil || s.Pids < 1 || s.Memory.Limit != 128<<20 || s.Memory.WorkingSet > s.Memory.Usage {
		t.Errorf("Stats = %+v, %v", s, err)
	}
	if err := m.Exists(ctx, p.UID); err != nil {
		t.Error(err)
	}
	if removed, err := m.Sweep(ctx, func(types.UID) bool { return false }); len(removed) != 1 || err != nil {
		t.Errorf("Sweep = %v, %v, want the pod", removed, err)
	}
	if err := m.Exists(ctx, p.UID); !errors.Is(err, ErrNotExist) {
		t.Errorf("Exists = %v, want ErrNotExist", err)
	}
	for _, dir := range d.on.dirs(cgroup) {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is there", dir)
		}
	}
}

// What a runtime makes below the second pod of a tier can run processes at once.
func TestRealCPUSetsOfATierAreInherited(t *testing.T) {
	m, d := realManager(t, Config{})
	if d.on.version != V1 {
		t.Skip("on v2 a cgroup without CPUs of its own has those of its parent")
	}
	for _, uid := range []string{"first", "second"} {
		if err := m.Ensure(t.Context(), podWith(uid, "cpu=250m/")); err != nil {
			t.Fatal(err)
		}
	}
	container := path.Join(m.CgroupParent(podWith("second", "cpu=250m/")), "container")
	if err := os.Mkdir(d.file("cpuset", container, ""), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		if has, err := d.cpuset(t.Context(), container, file); has == "" || err != nil {
			t.Errorf("%s: %q, %v, want that of the tier", file, has, err)
		}
	}
	if err := os.Remove(d.file("cpuset", container, "")); err != nil {
		t.Fatal(err)
	}
}

func TestRealOOMIsTold(t *testing.T) {
	m, d := realManager(t, Config{})
	p := podWith("oom", "cpu=100m memory=32Mi/cpu=2 memory=32Mi")
	if err := m.Ensure(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	events, err := m.Watch(t.Context(), p.UID)
	if err != nil {
		t.Fatal(err)
	}
	goOn, _ := start(t, d, m.CgroupParent(p), "eat")
	goOn()
	waitFor(t, events, OOMKill)
	if err := m.Destroy(t.Context(), p.UID); err != nil {
		t.Error(err)
	}
	waitFor(t, events, Gone)
}

// Two processes that get a tenth of a CPU wait most of the time.
func TestRealPressureIsTold(t *testing.T) {
	m, d := realManager(t, Config{})
	p := podWith("psi", "cpu=100m/cpu=100m")
	if err := m.Ensure(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	tr := Trigger{Resource: "cpu", Stall: 100 * time.Millisecond, Window: time.Second}
	events, err := m.Watch(t.Context(), p.UID, tr)
	if errors.Is(err, ErrUnsupported) {
		t.Skipf("pressure of cgroups takes cgroup v2 with PSI; this machine has v%d: %v", d.on.version, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		goOn, _ := start(t, d, m.CgroupParent(p), "spin")
		goOn()
	}
	if ev := waitFor(t, events, Stalled); ev.Trigger != tr {
		t.Errorf("the trigger is %+v, want %+v", ev.Trigger, tr)
	}
	if s, err := m.Stats(t.Context(), p.UID); err != nil || s.Pressure == nil || s.Pressure.CPU.Some.Total == 0 {
		t.Errorf("Stats = %+v, %v, want pressure", s, err)
	}
}

func waitFor(t *testing.T, events <-chan Event, want EventType) Event {
	t.Helper()
	limit := time.After(time.Minute)
	for {
		select {
		case ev, open := <-events:
			if !open {
				t.Fatalf("the events end without %s", want)
			}
			if ev.Type == want {
				return ev
			}
		case <-limit:
			t.Fatalf("no %s in time", want)
		}
	}
}

func TestRealRootIsValidated(t *testing.T) {
	m, _ := realManager(t, Config{})
	if err := m.Ensure(t.Context(), podWith("x", "cpu=1/")); err != nil {
		t.Fatal(err)
	}
	missing, err := New(Config{Root: "/nwcg-not-there"})
	if err != nil {
		t.Fatal(err)
	}
	if err := missing.Ensure(t.Context(), podWith("x", "cpu=1/")); !errors.Is(err, ErrNotExist) || !strings.Contains(err.Error(), "/nwcg-not-there") {
		t.Errorf("Ensure = %v, want that the root does not exist", err)
	}
}
