//go:build linux

package monitor_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/testprogram"
	"github.com/nodewright/nodewright/localcri/internal/monitor"
)

// runcPod is a pod whose executor is runc.
type runcPod struct {
	*pod
	runc   string
	root   string
	rootfs string
	group  string // of the cgroups
}

func newRuncPod(t testing.TB) *runcPod {
	t.Helper()
	runc, err := filepath.Abs("../../../build/bin/runc")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(runc); err != nil {
		testprogram.Missing(t, "needs build/bin/runc: make tools")
	}
	p := &runcPod{pod: newPod(t), runc: runc, group: "/nodewright-monitor-" + strconv.Itoa(os.Getpid())}
	p.root, p.rootfs = filepath.Join(p.dir, "runc"), filepath.Join(p.dir, "rootfs")
	for _, dir := range []string{"bin", "lib", "lib64", "usr", "proc", "dev", "tmp"} {
		mustNot(t, os.MkdirAll(filepath.Join(p.rootfs, dir), 0o755))
	}
	return p
}

// container is one with the machine's programs, read-only.
func (p *runcPod) container(id, command string, change func(process, config map[string]any)) monitor.Container {
	p.t.Helper()
	return p.command(id, []string{"/bin/sh", "-c", command}, change)
}

func (p *runcPod) command(id string, argv []string, change func(process, config map[string]any)) monitor.Container {
	p.t.Helper()
	bundle := filepath.Join(p.dir, id)
	mustNot(p.t, os.Mkdir(bundle, 0o700))
	mounts := []any{
		map[string]any{"destination": "/proc", "type": "proc", "source": "proc"},
		map[string]any{"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
		map[string]any{"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": []string{"newinstance", "ptmxmode=0666"}},
	}
	for _, dir := range []string{"/bin", "/lib", "/lib64", "/usr"} {
		mounts = append(mounts, map[string]any{"destination": dir, "type": "bind", "source": dir, "options": []string{"rbind", "ro"}})
	}
	process := map[string]any{
		"args": argv, "cwd": "/", "env": []string{"PATH=/usr/bin:/bin"}, "user": map[string]any{"uid": 0, "gid": 0},
		"capabilities": map[string]any{}, "oomScoreAdj": 500,
	}
	config := map[string]any{
		"ociVersion": "1.0.2", "process": process, "root": map[string]any{"path": p.rootfs, "readonly": true}, "mounts": mounts,
		"linux": map[string]any{
			"cgroupsPath": p.group + "/" + id,
			"namespaces":  []any{map[string]any{"type": "pid"}, map[string]any{"type": "mount"}, map[string]any{"type": "ipc"}, map[string]any{"type": "uts"}},
			"resources":   map[string]any{},
		},
	}
	if change != nil {
		change(process, config)
	}
	b, err := json.Marshal(config)
	mustNot(p.t, err)
	mustNot(p.t, os.WriteFile(filepath.Join(bundle, "config.json"), b, 0o600))
	name := "t" + strconv.Itoa(os.Getpid()) + id
	p.t.Cleanup(func() {
		_ = exec.Command(p.runc, "--root", p.root, "delete", "--force", name).Run()
		groups, _ := filepath.Glob("/sys/fs/cgroup/*" + p.group)
		for _, g := range groups {
			_ = unix.Rmdir(g + "/" + id)
			_ = unix.Rmdir(g)
		}
	})
	at := func(suffix string) string { return filepath.Join(p.dir, id+suffix) }
	runc := []string{p.runc, "--root", p.root, "--log", at(".runclog"), "--log-format", "json"}
	c := monitor.Container{
		ID: id, Dir: bundle, PIDFile: at(".pid"), ExecutorLog: at(".runclog"),
		Create:  append(append([]string(nil), runc...), "create", "--bundle", bundle, "--pid-file", at(".pid"), name),
		Start:   append(append([]string(nil), runc...), "start", name),
		FIFODir: at(".fifos"), ExitFile: at(".exit"), Log: at(".log"), Record: []byte("record"),
		OOMFile: "/sys/fs/cgroup/memory" + p.group + "/" + id + "/memory.oom_control",
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		c.OOMFile = "/sys/fs/cgroup" + p.group + "/" + id + "/memory.events"
	}
	return c
}

// withTerminal gives a container a terminal.
func (p *runcPod) withTerminal(c *monitor.Container) {
	c.Terminal = true
	c.ConsoleSocket = filepath.Join(p.dir, c.ID+".tty")
	c.Create = append(append([]string(nil), c.Create[:len(c.Create)-1]...), "--console-socket", c.ConsoleSocket, c.Create[len(c.Create)-1])
}

func (p *runcPod) exec(id, name string, argv ...string) monitor.Exec {
	pidfile := filepath.Join(p.dir, name+".pid")
	log := filepath.Join(p.dir, name+".runclog")
	return monitor.Exec{
		ID: id, PIDFile: pidfile, ExecutorLog: log,
		Argv: append([]string{
			p.runc, "--root", p.root, "--log", log, "--log-format", "json", "exec", "--detach", "--pid-file", pidfile,
			"t" + strconv.Itoa(os.Getpid()) + id,
		}, argv...),
	}
}

func TestRuncContainerRunsLogsAndEnds(t *testing.T) {
	p := newRuncPod(t)
	c := p.container("a", "echo out; echo err >&2; printf 'no end'; cat /proc/self/oom_score_adj; exit 3", nil)
	p.start(c)
	if e := exit(t, p.c, "a"); e.Code != 3 || e.OOM {
		t.Errorf("exit is %+v", e)
	}
	if got := text(lines(t, c.Log), "stdout"); got != "out\nno end500\n" {
		t.Errorf("stdout is %q", got)
	}
}

func TestRuncSaysWhyAContainerDoesNotStart(t *testing.T) {
	p := newRuncPod(t)
	script := filepath.Join(p.rootfs, "tmp", "plain")
	mustNot(t, os.WriteFile(script, []byte("no program"), 0o644))
	for id, argv := range map[string][]string{
		"missing":       {"/no/such/program"},
		"directory":     {"/usr"},
		"no-executable": {"/tmp/plain"},
	} {
		_, err := p.c.Start(background(t), p.command(id, argv, nil))
		var e *monitor.StartError
		if !errors.As(err, &e) || !strings.Contains(e.Message, argv[0]) {
			t.Errorf("%s: %v", id, err)
		}
		if _, again := p.c.Start(background(t), monitor.Container{ID: id}); again == nil || again.Error() != err.Error() {
			t.Errorf("%s: a second start gives %v, want %v", id, again, err)
		}
		l, err := parse(filepath.Join(p.dir, id+".log"))
		if err != nil || len(l) > 0 {
			t.Errorf("%s: log of a container that never ran is %v, %v", id, l, err)
		}
	}
	noZombies(t, p.c.PID())
}

// The kernel refuses a program of another architecture, or without its interpreter,
// when runc's start has succeeded; the container has run nothing then, whatever runc's status is.
func TestRuncProgramThatTheKernelRefuses(t *testing.T) {
	p := newRuncPod(t)
	const elf = "\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xff\x7f\x01\x00\x00\x00" // of a machine that there is not
	mustNot(t, os.WriteFile(filepath.Join(p.rootfs, "tmp", "other"), []byte(elf+strings.Repeat("\x00", 64)), 0o755))
	mustNot(t, os.WriteFile(filepath.Join(p.rootfs, "tmp", "script"), []byte("#!/no/such/interpreter\n"), 0o755))
	for id, reason := range map[string]string{"other": "exec format error", "script": "no such file"} {
		c := p.command(id, []string{"/tmp/" + id}, nil)
		if _, err := p.c.Start(background(t), c); err != nil {
			t.Fatal(err)
		}
		if e := exit(t, p.c, id); e.Code != 128 || e.Reason != monitor.ReasonNotExecuted || e.OOM {
			t.Errorf("exit is %+v", e)
		}
		if got := text(lines(t, c.Log), "stderr"); !strings.Contains(got, reason) {
			t.Errorf("stderr is %q", got)
		}
		if e, err := monitor.ReadExit(c.ExitFile); err != nil || e.Code != 128 || e.Reason != monitor.ReasonNotExecuted {
			t.Errorf("record of the exit is %+v, %v", e, err)
		}
	}
	// A program that exits as runc does has its own status.
	p.start(p.container("own", "exit 255", nil))
	if e := exit(t, p.c, "own"); e.Code != 255 || e.Reason != "" {
		t.Errorf("exit is %+v", e)
	}
}

func noZombies(t *testing.T, parent int) {
	t.Helper()
	eventually(t, func() error {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(parent) + "/task/" + strconv.Itoa(parent) + "/children")
		if err != nil {
			return err
		}
		for _, pid := range strings.Fields(string(b)) {
			s, _ := os.ReadFile("/proc/" + pid + "/stat")
			if strings.Contains(string(s), ") Z ") {
				return &os.PathError{Op: "reap", Path: pid, Err: os.ErrExist}
			}
		}
		return nil
	})
}

func TestRuncOutOfMemory(t *testing.T) {
	p := newRuncPod(t)
	limit := func(_, config map[string]any) {
		config["linux"].(map[string]any)["resources"] = map[string]any{"memory": map[string]any{"limit": 24 << 20, "swap": 24 << 20}}
	}
	eat := "exec perl -e '$x = \"a\" x 200000000; sleep 1'"
	p.start(p.container("init", eat, limit))
	if e := exit(t, p.c, "init"); e.Code != 137 || !e.OOM {
		t.Errorf("out of memory: exit is %+v", e)
	}
	// A container that fails after a child of it was killed is out of memory, too; one that
	// succeeds is not.
	for id, want := range map[string]monitor.Exit{"fails": {Code: 3, OOM: true}, "succeeds": {}} {
		p.start(p.container(id, "perl -e '$x = \"a\" x 200000000'; exit "+strconv.Itoa(int(want.Code)), limit))
		if e := exit(t, p.c, id); e.Code != want.Code || e.OOM != want.OOM {
			t.Errorf("%s: exit is %+v, want %+v", id, e, want)
		}
	}
}
