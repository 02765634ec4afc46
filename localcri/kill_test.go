//go:build linux

package localcri_test

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/sampleimage"
)

// kills is how often each kind of process is killed.
var kills = flag.Int("kills", 8, "how often TestKill kills each of agent, monitor, and both")

// childEnv has a copy of this program be an agent on the directories it names,
// the disk's and the tmpfs: a:b.
const childEnv = "LOCALCRI_TEST_CHILD"

// lines is how many lines a container of the child writes.
const lines = 20

// childMain is an agent that makes pods until it is killed, and says what it was
// told on standard output.
func childMain(where string) {
	f := strings.Split(where, ":")
	log, err := zap.NewDevelopment()
	if err != nil {
		panic(err)
	}
	n := &node{dir: f[0], state: f[1], log: log}
	if err := n.assemble(); err != nil {
		panic(err)
	}
	ctx := context.Background()
	for _, run := range []func(context.Context) error{n.images.Run, n.network.Run, n.rt.Run} {
		go func() {
			if err := run(ctx); err != nil {
				panic(err)
			}
		}()
	}
	if _, err := n.rt.ListPodSandbox(ctx, nil); err != nil {
		panic(err)
	}
	fmt.Println("ready")
	for i := 0; ; i++ {
		if err := n.childPod(ctx, fmt.Sprintf("p%d-%d", os.Getpid(), i)); err != nil {
			fmt.Println("error", err)
		}
	}
}

func (n *node) childPod(ctx context.Context, name string) error {
	sb, err := n.rt.RunPodSandbox(ctx, n.podConfig(name), "")
	if err != nil {
		return err
	}
	fmt.Println("sandbox", sb)
	c, err := n.rt.CreateContainer(ctx, sb, boxConfig("a", "lines", strconv.Itoa(lines), "exit", "3"), nil)
	if err != nil {
		return err
	}
	if err := n.rt.StartContainer(ctx, c); err != nil {
		return err
	}
	fmt.Println("started", c)
	d, err := n.rt.CreateContainer(ctx, sb, boxConfig("b", "sleep", "forever"), nil)
	if err != nil {
		return err
	}
	if err := n.rt.StartContainer(ctx, d); err != nil {
		return err
	}
	fmt.Println("runs", d)
	if _, _, err := n.rt.ExecSync(ctx, d, []string{"/testbox", "out", "x"}, time.Minute); err != nil {
		return err
	}
	if rand.IntN(2) == 0 {
		return nil // it stays
	}
	fmt.Println("ends", d)
	if err := n.rt.StopPodSandbox(ctx, sb); err != nil {
		return err
	}
	fmt.Println("removes", sb, c, d)
	return n.rt.RemovePodSandbox(ctx, sb)
}

func (n *node) podConfig(name string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "kill", Uid: "uid-" + name}, Hostname: name, LogDirectory: filepath.Join(n.dir, "logs"),
		Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: "/nwkill/" + filepath.Base(n.state), SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
		}},
	}
}

func boxConfig(name string, args ...string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name}, Image: &runtimeapi.ImageSpec{Image: sampleimage.Testbox}, Args: args,
		LogPath: name + strconv.FormatUint(rand.Uint64(), 36) + ".log",
		Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
		}},
	}
}

// child is an agent in a process of its own.
type child struct {
	cmd     *exec.Cmd
	out     *bufio.Scanner
	log     bytes.Buffer
	started map[string]bool // they write their lines and end with 3
	runs    map[string]bool // until somebody ends them
	removes map[string]bool // perhaps
}

func (n *node) child() *child {
	n.t.Helper()
	c := &child{started: map[string]bool{}, runs: map[string]bool{}, removes: map[string]bool{}}
	c.cmd = exec.Command("/proc/self/exe")
	c.cmd.Env = append(os.Environ(), childEnv+"="+strings.Join([]string{n.dir, n.state}, ":"))
	c.cmd.Stderr = &c.log
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	c.out = bufio.NewScanner(out)
	if !c.out.Scan() || c.out.Text() != "ready" {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
		n.t.Fatalf("child: %q\n%s", c.out.Text(), c.log.String())
	}
	return c
}

// killAndRead kills the agent and reads what it was told before.
func (c *child) killAndRead(t *testing.T) {
	_ = c.cmd.Process.Kill()
	for c.out.Scan() {
		f := strings.Fields(c.out.Text())
		switch f[0] {
		case "started":
			c.started[f[1]] = true
		case "runs":
			c.runs[f[1]] = true
		case "ends":
			delete(c.runs, f[1])
		case "removes":
			for _, id := range f[1:] {
				c.removes[id] = true
			}
		case "error":
			t.Logf("child: %s", c.out.Text())
		}
	}
	_ = c.cmd.Wait()
}

// lostStart reports whether the agent lost its monitor while that started a
// container.
func (c *child) lostStart(id string) bool {
	for line := range strings.Lines(c.log.String()) {
		if strings.Contains(line, "monitor did not report the result") && strings.Contains(line, id) {
			return true
		}
	}
	return false
}

// recovered reports whether the agent lived until a sandbox that had lost its monitor
// had a successor of it.
func (c *child) recovered(sandbox string) bool {
	for line := range strings.Lines(c.log.String()) {
		if strings.Contains(line, "started another monitor for sandbox") && strings.Contains(line, sandbox) {
			return true
		}
	}
	return false
}

// killMonitors kills all monitors of the node.
func (n *node) killMonitors() {
	for _, pid := range n.monitors() {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

func (n *node) monitors() (pids []int) {
	program := []byte(filepath.Join(n.dir, "rt", "bin") + "/")
	for pid, args := range processes() {
		if bytes.HasPrefix(args, program) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// processes are the machine's, with their arguments, each of which ends with a zero byte.
func processes() map[int][]byte {
	all := map[int][]byte{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			all[pid], _ = os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		}
	}
	return all
}

// Whoever is killed at whatever moment: what callers were told holds, what runs
// goes on, no line and no code is lost but where both processes died, and nothing
// is left in the end.
func TestKill(t *testing.T) {
	for _, who := range []string{"agent", "monitor", "both"} {
		t.Run(who, func(t *testing.T) {
			n := nodeDirs(t)
			n.start()
			n.load()
			n.stop()
			if err := os.MkdirAll(filepath.Join(n.dir, "logs"), 0o755); err != nil {
				t.Fatal(err)
			}
			for range *kills {
				n.killRound(t, who)
			}
		})
	}
}

func (n *node) killRound(t *testing.T, who string) {
	c := n.child()
	time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond)
	var killed time.Time
	if who == "monitor" {
		n.killMonitors()
		killed = time.Now()
		time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
	}
	c.killAndRead(t)
	if who == "both" {
		n.killMonitors()
	}
	n.awaitImages(t)
	n.start()
	defer n.stop()
	ctx := t.Context()
	list, err := n.rt.ListContainers(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]string{}
	for _, l := range list {
		there[l.GetId()] = l.GetPodSandboxId()
	}
	for id := range c.started {
		sandbox, is := there[id]
		if c.removes[id] && !is {
			continue
		}
		st := n.untilExited(t, id)
		// Nobody else can know the code where both died, the agent before it had
		// another monitor, or the monitor before the agent heard of the start.
		died := who == "monitor" && st.GetStartedAt() < killed.UnixNano()
		unseen := who == "both" || died && (c.lostStart(id) || !c.recovered(sandbox))
		lost := unseen && st.GetExitCode() == 255 && st.GetReason() == "MonitorLost"
		if !lost && (st.GetExitCode() != 3 || st.GetReason() != "Error") || st.GetFinishedAt() < st.GetStartedAt() || st.GetStartedAt() == 0 {
			t.Errorf("%s: %v\n%s", id, st, c.log.String())
		}
		n.checkLog(t, st.GetLogPath(), who == "agent")
	}
	for id := range c.runs {
		st, err := n.rt.ContainerStatus(ctx, id, false)
		if err != nil || st.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("%s: %v, %v\n%s", id, st, err, c.log.String())
			continue
		}
		if _, _, err := n.rt.ExecSync(ctx, id, []string{"/testbox", "out", "x"}, time.Minute); err != nil {
			t.Errorf("exec in %s: %v\n%s", id, err, c.log.String())
		}
	}
	pods, err := n.rt.ListPodSandbox(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		if err := n.rt.RemovePodSandbox(ctx, p.GetId()); err != nil {
			t.Errorf("remove: %v\n%s", err, c.log.String())
		}
	}
	n.empty(t, c)
}

func (n *node) untilExited(t testing.TB, id string) *runtimeapi.ContainerStatus {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		st, err := n.rt.ContainerStatus(context.Background(), id, false)
		if err != nil {
			t.Fatal(err)
		}
		if st.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			return st.GetStatus()
		}
		if time.Now().After(deadline) {
			t.Fatalf("container never ends: %v", st)
		}
	}
}

// checkLog looks for all lines, once each and in order. A monitor that is killed
// may lose one batch.
func (n *node) checkLog(t *testing.T, path string, all bool) {
	t.Helper()
	var got []string
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
			return
		}
		got = strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
		if len(got) >= lines || !all || time.Now().After(deadline) {
			break
		}
	}
	if !all {
		return
	}
	if len(got) != lines {
		t.Errorf("%s has %d lines, want %d", path, len(got), lines)
	}
}

// empty fails if anything is left of what was removed.
func (n *node) empty(t *testing.T, c *child) {
	t.Helper()
	left := func() (out []string) {
		for _, d := range []string{
			filepath.Join(n.dir, "rt/containers"), filepath.Join(n.dir, "rt/sandboxes"), filepath.Join(n.dir, "rt/records/containers"),
			filepath.Join(n.dir, "rt/records/sandboxes"), filepath.Join(n.state, "c"), filepath.Join(n.state, "mon"), filepath.Join(n.state, "ns"),
			filepath.Join(n.state, "shm"), filepath.Join(n.state, "netns"), filepath.Join(n.state, "run/runc"), n.cgroup(),
		} {
			entries, _ := os.ReadDir(d)
			for _, e := range entries {
				if d != n.cgroup() || e.IsDir() {
					out = append(out, filepath.Join(d, e.Name()))
				}
			}
		}
		owners, _ := n.images.Owners(context.Background())
		return append(out, owners...)
	}
	deadline := time.Now().Add(time.Minute)
	for len(left()) > 0 && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	if l := left(); len(l) > 0 {
		t.Errorf("left: %s\n%s", strings.Join(l, "\n"), c.log.String())
	}
}

// cgroup is where the pods' are, on v1 and v2.
func (n *node) cgroup() string {
	name := filepath.Join("nwkill", filepath.Base(n.state))
	if v1 := filepath.Join("/sys/fs/cgroup/memory", name); isDir(v1) {
		return v1
	}
	return filepath.Join("/sys/fs/cgroup", name)
}

func isDir(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}

// awaitImages waits until nobody has the lock of the images: a child of the agent
// that was just being made may have it for a moment.
func (n *node) awaitImages(t *testing.T) {
	t.Helper()
	f, err := os.Open(filepath.Join(n.dir, "images", "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for deadline := time.Now().Add(time.Minute); unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the lock of the images is never free")
		}
	}
}
