//go:build linux

package monitor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/localcri/internal/monitor"
)

func TestSecondStartJoinsTheFirst(t *testing.T) {
	p := newPod(t)
	c := p.container("a", "exec sleep 1000")
	gate := filepath.Join(p.dir, "hold")
	mustNot(t, unix.Mkfifo(gate, 0o600))
	c.Create = []string{"/bin/sh", "-c", "read x <" + gate + "; exec \"$0\" \"$@\"", c.Create[0], c.Create[1], c.Create[2], c.Create[3], c.Create[4], c.Create[5]}

	ctx, cancel := context.WithCancel(background(t))
	gone := make(chan error)
	go func() {
		_, err := p.c.Start(ctx, c)
		gone <- err
	}()
	cancel()
	mustBe(t, <-gone, context.Canceled)
	var got [2]monitor.Started
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() { got[i], _ = p.c.Start(background(t), c) })
	}
	f, err := os.OpenFile(gate, os.O_WRONLY, 0)
	mustNot(t, err)
	_, _ = f.WriteString("go\n")
	_ = f.Close()
	wg.Wait()
	if got[0].PID == 0 || got[0] != got[1] || got[0] != p.start(c) {
		t.Errorf("starts gave %+v", got)
	}
	mustBe(t, p.c.Forget(background(t), "a"), monitor.ErrRunning)
	mustBe(t, p.c.Quit(background(t)), monitor.ErrRunning)
}

func TestStartThatFailsNamesItsStep(t *testing.T) {
	p := newPod(t)
	for _, tc := range []struct {
		name   string
		change func(c *monitor.Container)
		step   string
		text   string
	}{
		{"create fails", func(c *monitor.Container) {
			c.Create = []string{"/bin/sh", "-c", "echo first >&2; echo no such thing >&2; exit 1"}
		}, "create", "no such thing"},
		{"create is missing", func(c *monitor.Container) { c.Create = []string{"/no/such/executor"} }, "create", "/no/such/executor"},
		{"create says nothing", func(c *monitor.Container) { c.Create = []string{"/bin/sh", "-c", "exit 7"} }, "create", "executor ended with 7"},
		{"create leaves no PID", func(c *monitor.Container) { c.Create = []string{"/bin/true"} }, "create", "left no PID"},
		{"create hangs", func(c *monitor.Container) {
			c.Create = []string{"/bin/sh", "-c", "trap '' TERM; sleep 1000 & wait"}
			c.Timeout = 50 * time.Millisecond
		}, "create", "not done after 50ms"},
		{"start fails", func(c *monitor.Container) { c.Start = []string{"/bin/sh", "-c", "echo not now >&2; exit 1"} }, "start", "not now"},
		{"start hangs", func(c *monitor.Container) {
			c.Start = []string{"/bin/sleep", "1000"}
			c.Timeout = 5 * time.Second // create must do in this
		}, "start", "not done after 5s"},
		{"log directory is missing", func(c *monitor.Container) { c.Log = "/no/such/dir/log" }, "prepare", "/no/such/dir/log"},
		{"log of the executor", func(c *monitor.Container) {
			c.ExecutorLog = c.Log + ".json"
			c.Create = []string{"/bin/sh", "-c", `echo '{"level":"error","msg":"exec \"x\": not found"}' >` + c.ExecutorLog + "; exit 1"}
		}, "create", `exec "x": not found`},
	} {
		id := strings.ReplaceAll(tc.name, " ", "-")
		c := p.container(id, "exec sleep 1000")
		tc.change(&c)
		_, err := p.c.Start(background(t), c)
		var e *monitor.StartError
		if !errors.As(err, &e) || e.Step != tc.step || !strings.Contains(e.Message, tc.text) {
			t.Errorf("%s: %v", tc.name, err)
		}
		if _, again := p.c.Start(background(t), c); again == nil || again.Error() != err.Error() {
			t.Errorf("%s: again %v", tc.name, again)
		}
	}
	_, state := p.connect()
	for _, k := range state.Containers {
		if k.StartError == nil || k.Started != nil || k.Exit != nil {
			t.Errorf("%s is kept as %+v", k.Container.ID, k)
		}
	}
	noZombies(t, p.c.PID())
	mustNot(t, p.c.Quit(background(t)))
}

func TestBadContainersAreRefusedByName(t *testing.T) {
	p := newPod(t)
	for field, change := range map[string]func(*monitor.Container){
		"ID":            func(c *monitor.Container) { c.ID = "a/b" },
		"Create":        func(c *monitor.Container) { c.Create = []string{"runc"} },
		"Start":         func(c *monitor.Container) { c.Start = nil },
		"PIDFile":       func(c *monitor.Container) { c.PIDFile = "" },
		"FIFODir":       func(c *monitor.Container) { c.FIFODir = "x" },
		"ExitFile":      func(c *monitor.Container) { c.ExitFile = "" },
		"Log":           func(c *monitor.Container) { c.Log = "x" },
		"ConsoleSocket": func(c *monitor.Container) { c.Terminal = true },
		"Record":        func(c *monitor.Container) { c.Record = make([]byte, 33<<10) },
		"60 KiB":        func(c *monitor.Container) { c.Create = append(c.Create, strings.Repeat("x", 61<<10)) },
		"64 KiB":        func(c *monitor.Container) { c.Create = append(c.Create, strings.Repeat("x", 65<<10)) },
	} {
		c := p.container("a", "true")
		change(&c)
		if _, err := p.c.Start(background(t), c); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	for name, err := range map[string]error{
		"Resize": p.c.Resize(background(t), "x", 1, 1), "ReopenLog": p.c.ReopenLog(background(t), "x", "/x"), "Keep": p.c.Keep(background(t), "x", nil),
		"Forget": p.c.Forget(background(t), "x"), "Attach": p.c.Attach(background(t), "x", nil, nil, nil),
	} {
		if !errors.Is(err, monitor.ErrUnknown) {
			t.Errorf("%s of an unknown container: %v", name, err)
		}
	}
}

func TestReconnectedClientSeesAll(t *testing.T) {
	p := newPod(t)
	c := p.container("a", "echo x; exec sleep 1000")
	s := p.start(c)
	p.start(p.container("b", "exit 4"))
	end := exit(t, p.c, "b")
	mustNot(t, p.c.Keep(background(t), "a", []byte("newer")))
	big := p.container("big", "exec sleep 1000")
	big.Record = bytes.Repeat([]byte("r"), 32<<10)
	for i := range 12 { // more than a socket takes at once
		big := big
		big.ID = "big" + strconv.Itoa(i)
		big.PIDFile += strconv.Itoa(i) + ".pid"
		big.Create = append([]string(nil), big.Create...)
		big.Start = append([]string(nil), big.Start...)
		big.Create[3], big.Create[4], big.Start[4] = big.PIDFile, big.PIDFile+".gate", big.PIDFile+".gate"
		big.FIFODir += strconv.Itoa(i)
		p.start(big)
	}
	p.c.Close()
	n, state := p.connect()
	if len(state.Containers) != 14 {
		t.Fatalf("%d containers are kept", len(state.Containers))
	}
	for _, k := range state.Containers {
		switch k.Container.ID {
		case "a":
			c.Record = []byte("newer")
			if fmt.Sprint(k.Container) != fmt.Sprint(c) || *k.Started != s || k.Exit != nil {
				t.Errorf("a is kept as %+v", k)
			}
		case "b":
			if k.Exit == nil || *k.Exit != end {
				t.Errorf("b is kept as %+v", k)
			}
		default:
			if !bytes.Equal(k.Container.Record, big.Record) {
				t.Errorf("%s is kept as %+v", k.Container.ID, k)
			}
		}
	}
	mustNot(t, unix.Kill(s.PID, unix.SIGKILL))
	if e := exit(t, n, "a"); e.Code != 137 || e.OOM {
		t.Errorf("a ended with %+v", e)
	}
}

// A command may end before the executor says which process it was.
func TestProcessThatEndsBeforeItsPIDIsKnownKeepsItsCode(t *testing.T) {
	self, err := os.Executable()
	mustNot(t, err)
	p := newPod(t)
	c := p.container("a", "")
	c.Create = []string{self, quickExecutor, c.PIDFile, "5"}
	c.Start = []string{"/bin/true"}
	p.start(c)
	if e := exit(t, p.c, "a"); e.Code != 5 {
		t.Errorf("exit is %+v", e)
	}
	p.start(p.container("b", "exec sleep 1000"))
	e := p.exec("b", "quick", "")
	e.Argv = []string{self, quickExecutor, e.PIDFile, "6"}
	proc, err := p.c.Exec(background(t), e)
	mustNot(t, err)
	if code, err := proc.Wait(background(t)); code != 6 || err != nil {
		t.Errorf("exec ended with %d, %v", code, err)
	}
}

func TestExitIsToldThoughADescendantHoldsTheOutput(t *testing.T) {
	p := newPod(t)
	gate := filepath.Join(p.dir, "late")
	mustNot(t, unix.Mkfifo(gate, 0o600))
	c := p.container("a", "(read x <"+gate+"; echo late) & echo early; exit 2")
	p.start(c)
	if e := exit(t, p.c, "a"); e.Code != 2 {
		t.Errorf("exit is %+v", e)
	}
	if got := text(lines(t, c.Log), "stdout"); got != "early\n" {
		t.Errorf("log at the exit is %q", got)
	}
	mustNot(t, os.WriteFile(gate, []byte("go\n"), 0))
	eventually(t, func() error {
		if l, err := parse(c.Log); err != nil || text(l, "stdout") != "early\nlate\n" {
			return fmt.Errorf("log is %v, %w", l, err)
		}
		return nil
	})
	noZombies(t, p.c.PID()) // the descendant became the monitor's child
}

func TestReopenedLogLosesNothing(t *testing.T) {
	p := newPod(t)
	c := p.container("a", "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done; head -c 1000000 /dev/zero | tr '\\0' x; echo")
	p.start(c)
	paths := []string{c.Log}
	done := make(chan monitor.Exit, 1)
	go func() { done <- exit(t, p.c, "a") }()
	for i := 0; ; i++ {
		path := fmt.Sprintf("%s.%d", c.Log, i)
		err := p.c.ReopenLog(background(t), "a", path)
		if errors.Is(err, monitor.ErrNotRunning) {
			break
		}
		mustNot(t, err)
		paths = append(paths, path)
		if err := p.c.ReopenLog(background(t), "a", "/no/such/dir/log"); err == nil || !strings.Contains(err.Error(), "/no/such/dir/log") {
			if !errors.Is(err, monitor.ErrNotRunning) {
				t.Fatal(err)
			}
		}
	}
	<-done
	var all []line
	for _, path := range paths {
		l, err := parse(path)
		mustNot(t, err)
		all = append(all, l...)
	}
	var want strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	want.WriteString(strings.Repeat("x", 1000000) + "\n")
	if got := text(all, "stdout"); got != want.String() {
		t.Errorf("%d bytes in %d files, want %d", len(got), len(paths), want.Len())
	}
}

func TestMonitorIsApartFromItsStarter(t *testing.T) {
	placed := 0
	p := newPod(t)
	p.cfg.Place = func(pid int) error { placed = pid; return nil }
	p.c, _ = p.connect()
	pid := p.c.PID()
	if placed != pid {
		t.Errorf("placed %d, monitor is %d", placed, pid)
	}
	if sid, err := unix.Getsid(pid); err != nil || sid != pid {
		t.Errorf("session is %d, %v", sid, err)
	}
	if dir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err != nil || dir != "/" {
		t.Errorf("directory is %s, %v", dir, err)
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	mustNot(t, err)
	for _, fd := range fds {
		to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, fd.Name()))
		ours := []string{"/dev/null", "/crash", "/lock", "socket:", "anon_inode:", "oom_score_adj"}
		ok := false
		for _, s := range ours {
			ok = ok || strings.Contains(to, s)
		}
		if !ok {
			t.Errorf("descriptor %s is %s", fd.Name(), to)
		}
	}
	score := func(pid int) string {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
		return strings.TrimSpace(string(b))
	}
	if s := score(pid); s != "-999" && os.WriteFile("/proc/self/oom_score_adj", []byte("-1"), 0) == nil {
		t.Errorf("OOM score is %s", s)
	}
	for _, s := range []unix.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGPIPE, unix.SIGUSR1, unix.SIGUSR2} {
		mustNot(t, unix.Kill(pid, s))
	}

	c := p.container("a", "cat /proc/self/oom_score_adj; grep -E 'SigBlk|SigIgn' /proc/self/status; ulimit -n; umask; env | grep -E '^GO|NOTIFY'; ls -l /proc/self/fd | wc -l")
	c.Create[0], c.Start[0] = "/bin/sh", "/bin/sh"
	p.start(c)
	if e := exit(t, p.c, "a"); e.Code != 0 {
		t.Errorf("exit is %+v", e)
	}
	var limit unix.Rlimit
	mustNot(t, unix.Prlimit(os.Getppid(), unix.RLIMIT_NOFILE, nil, &limit)) // of who started this test, whose runtime raised it
	got := strings.Fields(text(lines(t, c.Log), "stdout"))
	if len(got) < 7 {
		t.Fatalf("the container sees %q", got)
	}
	// What a shell runs in the background ignores INT and QUIT. Signals from 32 on
	// are the C library's own, and as they were for who started this test.
	ignored, err := strconv.ParseUint(got[4], 16, 64)
	if got[0] != "0" || got[2] != "0000000000000000" || ignored&(1<<31-1) != 6 || err != nil || got[6] != "0022" {
		t.Errorf("the container sees %q", got)
	}
	if n, _ := strconv.ParseUint(got[5], 10, 64); n != limit.Cur && got[5] != "unlimited" {
		t.Logf("open files: %s, the starter of this test has %d", got[5], limit.Cur)
	}
	if got[len(got)-1] != "5" { // total, three streams and the directory itself
		t.Errorf("descriptors of the container: %q", got)
	}
}

func TestSIGTERMEndsAMonitorWithItsLastContainer(t *testing.T) {
	p := newPod(t)
	s := p.start(p.container("a", "exec sleep 1000"))
	mustNot(t, unix.Kill(p.c.PID(), unix.SIGTERM))
	mustNot(t, p.c.Keep(background(t), "a", []byte("still there")))
	mustNot(t, unix.Kill(s.PID, unix.SIGKILL))
	select {
	case <-p.c.Done():
	case <-time.After(hang):
		t.Fatal("monitor does not end")
	}
	if e, err := monitor.ReadExit(filepath.Join(p.dir, "a.exit")); err != nil || e.Code != 137 {
		t.Errorf("record is %+v, %v", e, err)
	}
	_, _, err := monitor.Connect(background(t), p.cfg, p.id)
	mustBe(t, err, monitor.ErrGone)
}

func TestLaunchesAtOnceMakeOneMonitor(t *testing.T) {
	p := newPod(t)
	pids := make([]int, 8)
	var wg sync.WaitGroup
	for i := range pids {
		wg.Go(func() {
			c, err := monitor.Launch(background(t), p.cfg, "other")
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(c.Close)
			pids[i] = c.PID()
		})
	}
	wg.Wait()
	for _, pid := range pids {
		if pid != pids[0] {
			t.Errorf("monitors are %v", pids)
		}
	}
	p.t.Cleanup(func() { _ = unix.Kill(pids[0], unix.SIGKILL) })
}

func TestLaunchThatFailsSaysWhy(t *testing.T) {
	p := newPod(t)
	cfg := p.cfg
	cfg.Program = "/no/such/program"
	if _, err := monitor.Launch(background(t), cfg, "x"); err == nil || !strings.Contains(err.Error(), cfg.Program) {
		t.Error(err)
	}
	cfg.Program = "/bin/true"
	_, err := monitor.Launch(background(t), cfg, "x")
	mustBe(t, err, monitor.ErrGone)
	cfg = p.cfg
	cfg.Place = func(int) error { return io.ErrUnexpectedEOF }
	_, err = monitor.Launch(background(t), cfg, "x")
	mustBe(t, err, io.ErrUnexpectedEOF)
	cfg.Place = nil
	_, _, err = monitor.Connect(background(t), cfg, "x")
	mustBe(t, err, monitor.ErrGone)
}

func TestPauseReapsAndEnds(t *testing.T) {
	p := newRuncPod(t)
	mustNot(t, os.WriteFile(filepath.Join(p.rootfs, "pause"), nil, 0o755))
	b, err := os.ReadFile(p.cfg.Program)
	mustNot(t, err)
	mustNot(t, os.WriteFile(filepath.Join(p.rootfs, "pause"), b, 0o755))
	s := p.start(p.command("infra", []string{"/pause", monitor.PauseArgument}, func(process, config map[string]any) {
		process["user"] = map[string]any{"uid": 65535, "gid": 65535}
		config["mounts"] = config["mounts"].([]any)[:1]
	}))
	stop := make(chan struct{})
	defer close(stop)
	go func() { // PID 1 does not hear what it has no handler for yet
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				_ = unix.Kill(s.PID, unix.SIGTERM)
			}
		}
	}()
	if e := exit(t, p.c, "infra"); e.Code != 0 && e.Code != 2 { // 2 before the program looks for signals
		t.Errorf("exit is %+v", e)
	}
}
