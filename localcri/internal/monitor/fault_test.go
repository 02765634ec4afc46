//go:build linux

package monitor_test

import (
	"bytes"
	"context"
	"errors"
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

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/localcri/internal/monitor"
)

var faults = flag.Int("faults", 12, "how often the tests of faults kill a monitor, and a client")

// successor kills the monitor and has another go on.
func (p *pod) successor(containers ...monitor.Kept) {
	p.t.Helper()
	old := p.c
	mustNot(p.t, unix.Kill(old.PID(), unix.SIGKILL))
	<-old.Done()
	p.launch()
	for _, k := range containers {
		files := old.Files(k.Container.ID)
		mustNot(p.t, p.c.Adopt(background(p.t), k, files))
		files.Close()
	}
	old.Close()
}

// keepsStatus reports whether this kernel keeps the status of what another
// process reaped (Linux 6.15).
func keepsStatus(t testing.TB) bool {
	t.Helper()
	cmd := exec.Command("true")
	mustNot(t, cmd.Start())
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	mustNot(t, err)
	defer unix.Close(fd)
	_ = cmd.Wait()
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	return unix.IoctlPidfdInfo(fd, &info) == nil && info.Mask&unix.PIDFD_INFO_EXIT != 0
}

func TestSuccessorGoesOn(t *testing.T) {
	p := newPod(t)
	c := p.container("a", "while read x; do echo got $x; done; echo over; exit 3")
	c.Stdin, c.StdinOnce = true, true
	s := p.start(c)
	p.start(p.container("b", "exit 4"))
	ended := exit(t, p.c, "b")
	b := p.container("b", "exit 4")
	failed := p.container("c", "")
	failed.Create = []string{"/bin/false"}
	_, err := p.c.Start(background(t), failed)
	var why *monitor.StartError
	if !errors.As(err, &why) {
		t.Fatal(err)
	}
	mustBe(t, p.c.Adopt(background(t), monitor.Kept{Container: c, Started: &s}, monitor.Files{}), monitor.ErrExists)

	p.successor(monitor.Kept{Container: c, Started: &s}, monitor.Kept{Container: b, Started: &s, Exit: &ended}, monitor.Kept{Container: failed, StartError: why})
	first := p.c.PID()
	p.successor(monitor.Kept{Container: c, Started: &s}) // a successor's successor
	if p.c.PID() == first {
		t.Fatal("no other monitor")
	}
	a := attach(t, p.c, "a", true)
	_, _ = a.stdin.WriteString("1\n2\n")
	until(t, a.stdout, "got 2\n")
	if got := p.start(c); !got.At.Equal(s.At) || got.PID != s.PID || got.StartTime != s.StartTime {
		t.Errorf("started is %+v, was %+v", got, s)
	}
	_ = a.stdin.Close()
	until(t, a.stdout, "over\n")
	e := exit(t, p.c, "a")
	switch {
	case keepsStatus(t) && (e.Code != 3 || e.Reason != ""):
		t.Errorf("exit is %+v", e)
	case e.Code != 3 && (e.Code != 255 || e.Reason != monitor.ReasonMonitorLost):
		t.Errorf("exit is %+v", e)
	}
	if r, err := monitor.ReadExit(c.ExitFile); err != nil || r != e {
		t.Errorf("record is %+v, %v; told was %+v", r, err, e)
	}
	if got := text(lines(t, c.Log), "stdout"); got != "got 1\ngot 2\nover\n" {
		t.Errorf("log is %q", got)
	}
	mustNot(t, p.c.Quit(background(t)))
}

func TestSuccessorKnowsWhatEndedAndFailed(t *testing.T) {
	p := newPod(t)
	a, b, c := p.container("a", ""), p.container("b", ""), p.container("c", "")
	started := &monitor.Started{PID: 1 << 22, At: time.Unix(1767323045, 6), StartTime: 5}
	ended := &monitor.Exit{ID: "b", Code: 137, OOM: true, StartedAt: started.At, At: time.Unix(1767323046, 7), LostLogBytes: 8, Reason: "x"}
	mustNot(t, p.c.Adopt(background(t), monitor.Kept{Container: a, Started: started}, monitor.Files{})) // of no process at all
	mustNot(t, p.c.Adopt(background(t), monitor.Kept{Container: b, Started: started, Exit: ended}, monitor.Files{}))
	mustNot(t, p.c.Adopt(background(t), monitor.Kept{Container: c, StartError: &monitor.StartError{Step: "create", Message: "m"}}, monitor.Files{}))
	if e := exit(t, p.c, "a"); e.Code != 255 || e.Reason != monitor.ReasonMonitorLost {
		t.Errorf("exit is %+v", e)
	}
	_, state := p.connect()
	for _, k := range state.Containers {
		switch k.Container.ID {
		case "b":
			if k.Exit == nil || *k.Exit != *ended || *k.Started != *started {
				t.Errorf("b is %+v %+v", k.Started, k.Exit)
			}
		case "c":
			if k.StartError == nil || k.StartError.Message != "m" {
				t.Errorf("c is %+v", k)
			}
		}
	}
	mustNot(t, p.c.Quit(background(t)))
}

func TestRuncTerminalSurvivesItsMonitor(t *testing.T) {
	p := newRuncPod(t)
	c := p.container("a", "while read x; do echo got $x; done", func(process, _ map[string]any) { process["terminal"] = true })
	p.withTerminal(&c)
	s := p.start(c)
	p.successor(monitor.Kept{Container: c, Started: &s})
	a := attach(t, p.c, "a", true)
	_, _ = a.stdin.WriteString("hello\n")
	until(t, a.stdout, "got hello\r\n")
	mustNot(t, unix.Kill(s.PID, unix.SIGKILL))
	if e := exit(t, p.c, "a"); e.Code != 137 && e.Reason != monitor.ReasonMonitorLost {
		t.Errorf("exit is %+v", e)
	}
}

// counted is what a container writes for the tests of faults: lines of numbers.
const counted = "seq -f %%012.0f %d; exit 3"

// TestMonitorKilledAtAnyMoment kills monitors while their container writes. The
// container goes on and never sees a closed pipe; of its output a batch is lost
// and a line cut at most for each kill, and nothing comes twice.
func TestMonitorKilledAtAnyMoment(t *testing.T) {
	const total = 2_000_000
	p := newPod(t)
	c := p.container("a", fmt.Sprintf(counted, total))
	s := p.start(c)
	kills := 0
	for ; kills < *faults; kills++ {
		time.Sleep(rand.N(20 * time.Millisecond))
		if unix.Kill(s.PID, 0) != nil {
			break
		}
		p.successor(monitor.Kept{Container: c, Started: &s})
	}
	e := exit(t, p.c, "a")
	if e.Code != 3 && (keepsStatus(t) || e.Reason != monitor.ReasonMonitorLost) {
		t.Errorf("after %d kills: exit is %+v", kills, e)
	}
	b, err := os.ReadFile(c.Log)
	mustNot(t, err)
	missing, cut := holes(t, b, total)
	t.Logf("%d kills: %d bytes missing, %d lines cut", kills, missing, cut)
	if missing > kills*(16<<10) || cut > 2*kills {
		t.Errorf("%d kills: %d bytes missing, %d lines cut", kills, missing, cut)
	}
}

// holes reads a log of counted lines that may have holes: it gives the bytes that
// are missing and the lines that are no lines. Numbers never go back.
func holes(t *testing.T, log []byte, total int) (missing, cut int) {
	t.Helper()
	last, found, partial := 0, 0, ""
	for _, l := range strings.Split(strings.TrimSuffix(string(log), "\n"), "\n") {
		if len(l) < 40 || l[4] != '-' || l[29] != 'Z' {
			cut++
			partial = ""
			continue
		}
		content := partial + l[40:]
		if l[38] == 'P' {
			partial = content
			continue
		}
		partial = ""
		n, err := strconv.Atoi(content)
		if err != nil || len(content) != 12 {
			cut++
			continue
		}
		if n <= last {
			t.Errorf("%d comes after %d", n, last)
		}
		last = n
		found++
	}
	return (total - found) * 13, cut
}

// TestClientKilledAtAnyMoment kills processes that use this package while they
// start containers and processes, and while these write and end: no byte and no
// code is lost, and nothing is started twice.
func TestClientKilledAtAnyMoment(t *testing.T) {
	p := newPod(t)
	for i := range *faults {
		id := fmt.Sprintf("c%d", i)
		cmd := exec.Command(os.Args[0], "-test.run=^TestHelperClient$")
		cmd.Env = append(os.Environ(), "MONITOR_CLIENT="+strings.Join([]string{p.cfg.Program, p.cfg.StateDir, p.id, p.dir, p.script, id}, "|"))
		var out bytes.Buffer
		cmd.Stdout = &out
		cmd.Stderr = &out
		mustNot(t, cmd.Start())
		begun := filepath.Join(p.dir, id+".begun")
		eventually(t, func() error { _, err := os.Stat(begun); return err })
		time.Sleep(rand.N(60 * time.Millisecond))
		_ = cmd.Process.Kill()
		_ = cmd.Wait()

		n, _ := p.connect()
		p.c.Close()
		p.c = n
		c := clientContainer(p, id)
		p.start(c) // joins, or gives what it came to, or starts it if the client never came to it
		eventually(t, func() error {
			_, err := monitor.ReadExit(c.ExitFile)
			return err
		})
		e, err := monitor.ReadExit(c.ExitFile)
		if err != nil || e.Code != 3 {
			t.Errorf("record is %+v, %v", e, err)
		}
		if missing, cut := holes(t, read(t, c.Log), clientLines); missing != 0 || cut != 0 {
			t.Errorf("%d bytes missing, %d lines cut", missing, cut)
		}
		eventually(t, func() error { return p.c.Forget(background(t), id) })
	}
	noZombies(t, p.c.PID())
	eventually(t, func() error { // processes that should end with their clients have ended
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p.c.PID(), p.c.PID()))
		if err != nil || len(b) > 0 {
			return fmt.Errorf("children are %q, %w", b, err)
		}
		return nil
	})
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	mustNot(t, err)
	return b
}

const clientLines = 20000

func clientContainer(p *pod, id string) monitor.Container {
	return p.container(id, fmt.Sprintf(counted, clientLines))
}

// TestHelperClient is the process that TestClientKilledAtAnyMoment kills.
func TestHelperClient(t *testing.T) {
	args := strings.Split(os.Getenv("MONITOR_CLIENT"), "|")
	if len(args) != 6 {
		t.Skip("run by another test")
	}
	p := &pod{t: t, cfg: monitor.Config{Program: args[0], StateDir: args[1]}, id: args[2], dir: args[3], script: args[4]}
	id := args[5]
	c, _, err := monitor.Connect(context.Background(), p.cfg, p.id)
	mustNot(t, err)
	mustNot(t, os.WriteFile(filepath.Join(p.dir, id+".begun"), nil, 0o600))
	_, err = c.Start(context.Background(), clientContainer(p, id))
	mustNot(t, err)
	for i := 0; ; i++ {
		e := p.exec(id, fmt.Sprintf("%s.%d", id, i), "exec sleep 1000")
		e.KillWithClient = true
		if _, err := c.Exec(context.Background(), e); err != nil && !errors.Is(err, monitor.ErrNotRunning) {
			t.Fatal(err)
		}
		_ = c.Keep(context.Background(), id, []byte("record"))
	}
}

// A container that ends while it has no monitor has said its last.
func TestOutputOfAContainerThatEndsWithoutMonitorIsKept(t *testing.T) {
	p := newPod(t)
	gate := filepath.Join(p.dir, "go")
	mustNot(t, unix.Mkfifo(gate, 0o600))
	c := p.container("a", "read x <"+gate+"; echo last words; exit 3")
	s := p.start(c)
	old := p.c
	mustNot(t, unix.Kill(old.PID(), unix.SIGKILL))
	<-old.Done()
	mustNot(t, os.WriteFile(gate, []byte("go\n"), 0))
	eventually(t, func() error { // ended, whoever reaps it
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.PID))
		if err == nil && !bytes.Contains(b, []byte(") Z ")) {
			return fmt.Errorf("stat is %s", b)
		}
		return nil
	})
	p.launch()
	files := old.Files("a")
	mustNot(t, p.c.Adopt(background(t), monitor.Kept{Container: c, Started: &s}, files))
	files.Close()
	if e := exit(t, p.c, "a"); e.Code != 3 && (keepsStatus(t) || e.Reason != monitor.ReasonMonitorLost) {
		t.Errorf("exit is %+v", e)
	}
	old.Close()
	if got := text(lines(t, c.Log), "stdout"); got != "last words\n" {
		t.Errorf("log is %q", got)
	}
}

// TestBothKilledAtOnce is the worst case: the container runs on, and what it
// wrote meanwhile is in the log.
func TestBothKilledAtOnce(t *testing.T) {
	p := newPod(t)
	first, second := filepath.Join(p.dir, "first"), filepath.Join(p.dir, "second")
	mustNot(t, unix.Mkfifo(first, 0o600))
	mustNot(t, unix.Mkfifo(second, 0o600))
	c := p.container("a", "echo before; read x <"+first+"; echo meanwhile; read x <"+second+"; echo after; exit 3")
	s := p.start(c)
	eventually(t, func() error {
		if l, err := parse(c.Log); err != nil || len(l) == 0 {
			return os.ErrNotExist
		}
		return nil
	})
	mustNot(t, unix.Kill(p.c.PID(), unix.SIGKILL))
	<-p.c.Done()
	p.c.Close() // and the files that it kept
	mustNot(t, os.WriteFile(first, []byte("go\n"), 0))
	p.launch()
	mustNot(t, p.c.Adopt(background(t), monitor.Kept{Container: c, Started: &s}, monitor.Files{}))
	mustNot(t, os.WriteFile(second, []byte("go\n"), 0))
	if e := exit(t, p.c, "a"); e.Code != 3 && e.Reason != monitor.ReasonMonitorLost {
		t.Errorf("exit is %+v", e)
	}
	if got := text(lines(t, c.Log), "stdout"); got != "before\nmeanwhile\nafter\n" {
		t.Errorf("log is %q", got)
	}
}
