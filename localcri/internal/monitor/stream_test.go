//go:build linux

package monitor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/localcri/internal/monitor"
)

func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	mustNot(t, err)
	t.Cleanup(func() { _ = r.Close(); _ = w.Close() })
	return r, w
}

// attached is a client of a container's streams.
type attached struct {
	stdin          *os.File
	stdout, stderr *os.File
	done           chan error
	cancel         context.CancelFunc
}

func attach(t testing.TB, c *monitor.Client, id string, stdin bool) *attached {
	t.Helper()
	a := &attached{done: make(chan error, 1)}
	var in, out, errw *os.File
	if stdin {
		in, a.stdin = pipe(t)
	}
	a.stdout, out = pipe(t)
	a.stderr, errw = pipe(t)
	ctx, cancel := context.WithCancel(background(t))
	a.cancel = cancel
	t.Cleanup(cancel)
	go func() {
		err := c.Attach(ctx, id, in, out, errw)
		if err != nil && ctx.Err() == nil {
			t.Logf("attach to %s: %v", id, err)
		}
		_ = out.Close()
		_ = errw.Close()
		if in != nil {
			_ = in.Close()
		}
		a.done <- err
	}()
	return a
}

// until reads until what was read ends with want.
func until(t testing.TB, f *os.File, want string) string {
	t.Helper()
	_ = f.SetReadDeadline(time.Now().Add(hang))
	var got strings.Builder
	b := make([]byte, 4096)
	for !strings.HasSuffix(got.String(), want) {
		n, err := f.Read(b)
		got.Write(b[:n])
		if err != nil {
			t.Fatalf("read %q, then %v; want %q", got.String(), err, want)
		}
	}
	return got.String()
}

func all(t testing.TB, f *os.File) string {
	t.Helper()
	_ = f.SetReadDeadline(time.Now().Add(hang))
	b, err := io.ReadAll(f)
	mustNot(t, err)
	return string(b)
}

func TestAttachedClientsTalkToTheContainer(t *testing.T) {
	p := newPod(t)
	c := p.container("a", "while read x; do echo got $x; echo err $x >&2; done; echo over; exit 3")
	c.Stdin = true
	p.start(c)
	first, second := attach(t, p.c, "a", true), attach(t, p.c, "a", true)
	eventually(t, func() error { // both are attached once both hear the same
		_, _ = first.stdin.WriteString("x\n")
		_ = second.stdout.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		b := make([]byte, 100)
		_, err := second.stdout.Read(b)
		return err
	})
	_, _ = second.stdin.WriteString("1\n")
	until(t, first.stdout, "got 1\n")
	until(t, second.stdout, "got 1\n")
	until(t, second.stderr, "err 1\n")
	second.cancel()
	mustBe(t, <-second.done, context.Canceled)
	_, _ = first.stdin.WriteString("2\n")
	until(t, first.stdout, "got 2\n")
	_ = first.stdin.Close() // not the container's end: others may attach
	third := attach(t, p.c, "a", true)
	_, _ = third.stdin.WriteString("3\n")
	until(t, first.stdout, "got 3\n")
	mustNot(t, unix.Kill(p.pid("a"), unix.SIGKILL))
	mustNot(t, <-first.done)
	mustNot(t, <-third.done)
	if e := exit(t, p.c, "a"); e.Code != 137 {
		t.Errorf("exit is %+v", e)
	}
	mustBe(t, p.c.Attach(background(t), "a", nil, nil, nil), monitor.ErrNotRunning)
}

func (p *pod) pid(name string) int {
	p.t.Helper()
	b, err := os.ReadFile(filepath.Join(p.dir, name+".pid"))
	mustNot(p.t, err)
	pid := 0
	_, err = fmt.Sscan(string(b), &pid)
	mustNot(p.t, err)
	return pid
}

func TestStdinOnceEndsWithItsFirstClient(t *testing.T) {
	p := newPod(t)
	c := p.container("a", "cat; echo over; exit 4")
	c.Stdin, c.StdinOnce = true, true
	p.start(c)
	long := strings.Repeat("0123456789abcdef", 64<<10) // more than pipes hold
	a := attach(t, p.c, "a", true)
	go func() {
		_, _ = a.stdin.WriteString(long)
		_ = a.stdin.Close()
	}()
	got := all(t, a.stdout)
	if err := <-a.done; errors.Is(err, monitor.ErrCut) {
		t.Skip("this machine stood still for a second")
	} else {
		mustNot(t, err)
	}
	if got != long+"over\n" {
		t.Errorf("%d bytes came back", len(got))
	}
	if e := exit(t, p.c, "a"); e.Code != 4 {
		t.Errorf("exit is %+v", e)
	}
	if got := text(lines(t, c.Log), "stdout"); got != long+"over\n" {
		t.Errorf("%d bytes are in the log", len(got))
	}
}

func TestContainerWithoutStdinReadsItsEnd(t *testing.T) {
	p := newPod(t)
	p.start(p.container("a", "cat; exit 5"))
	if e := exit(t, p.c, "a"); e.Code != 5 {
		t.Errorf("exit is %+v", e)
	}
}

func TestClientThatDoesNotReadIsCutAndTheLogIsWhole(t *testing.T) {
	p := newPod(t)
	gate := filepath.Join(p.dir, "go")
	c := p.container("a", "while [ ! -e "+gate+" ]; do echo .; sleep 0.01; done; seq 200000; exit 6")
	p.start(c)
	mute, quick := attach(t, p.c, "a", false), attach(t, p.c, "a", false)
	until(t, mute.stdout, ".\n") // both are attached
	until(t, quick.stdout, ".\n")
	read := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(quick.stdout)
		read <- string(b)
	}()
	mustNot(t, os.WriteFile(gate, nil, 0o600))
	mustBe(t, <-mute.done, monitor.ErrCut)
	if e := exit(t, p.c, "a"); e.Code != 6 || e.LostLogBytes != 0 {
		t.Errorf("exit is %+v", e)
	}
	err := <-quick.done // cut as well only if this machine stood still for a second
	if !errors.Is(err, monitor.ErrCut) {
		mustNot(t, err)
	}
	var numbers strings.Builder
	for i := range 200000 {
		fmt.Fprintln(&numbers, i+1)
	}
	want := numbers.String()
	if got := strings.TrimLeft(text(lines(t, c.Log), "stdout"), ".\n"); got != want {
		t.Errorf("%d bytes are in the log, want %d", len(got), len(want))
	}
	if got := strings.TrimLeft(<-read, ".\n"); got != want && (err == nil || !strings.HasPrefix(want, got)) {
		t.Errorf("the other client got %d bytes", len(got))
	}
	got, err := io.ReadAll(mute.stdout)
	mustNot(t, err)
	if !strings.HasPrefix(want, strings.TrimLeft(string(got), ".\n")) || len(got) < 32<<10 {
		t.Errorf("what the mute client had been given is %d bytes, or no beginning", len(got))
	}
}

func TestExecHasItsOwnStreamsAndCode(t *testing.T) {
	p := newPod(t)
	p.start(p.container("a", "exec sleep 1000"))
	e := p.exec("a", "x", "cat; echo err >&2; exit 7")
	var in, out, errw *os.File
	e.Stdin, in = pipe(t)
	out, e.Stdout = pipe(t)
	errw, e.Stderr = pipe(t)
	proc, err := p.c.Exec(background(t), e)
	mustNot(t, err)
	for _, f := range []*os.File{e.Stdin, e.Stdout, e.Stderr} {
		_ = f.Close()
	}
	_, _ = in.WriteString("hello")
	_ = in.Close()
	if got := all(t, out); got != "hello" {
		t.Errorf("stdout is %q", got)
	}
	if got := all(t, errw); got != "err\n" {
		t.Errorf("stderr is %q", got)
	}
	code, err := proc.Wait(background(t))
	if code != 7 || err != nil || proc.PID() != p.pid("x") {
		t.Errorf("ended with %d, %v", code, err)
	}
	mustNot(t, proc.Kill())

	e = p.exec("a", "y", "")
	e.Argv = []string{"/bin/sh", "-c", "exit 1"}
	_, err = p.c.Exec(background(t), e)
	var failed *monitor.StartError
	if !errors.As(err, &failed) || failed.Step != "exec" {
		t.Error(err)
	}
	e.ID = "none"
	_, err = p.c.Exec(background(t), e)
	mustBe(t, err, monitor.ErrUnknown)
	noZombies(t, p.c.PID())
}

// gone waits until a process is none any more.
func gone(t testing.TB, pid int) {
	t.Helper()
	eventually(t, func() error {
		if err := unix.Kill(pid, 0); err == nil {
			return fmt.Errorf("process %d lives", pid)
		}
		return nil
	})
}

const stubborn = `trap "" TERM HUP; (trap "" TERM HUP; echo $$ >"%s.child.pid"; while :; do sleep 1000; done) & while :; do sleep 1000; done`

func TestExecThatTakesTooLongIsKilledWithItsChildren(t *testing.T) {
	p := newPod(t)
	s := p.start(p.container("a", "exec sleep 1000"))
	e := p.exec("a", "x", fmt.Sprintf(stubborn, filepath.Join(p.dir, "x")))
	e.Timeout = 300 * time.Millisecond
	proc, err := p.c.Exec(background(t), e)
	mustNot(t, err)
	_, err = proc.Wait(background(t))
	mustBe(t, err, monitor.ErrTimeout)
	gone(t, proc.PID())
	noChildrenBut(t, p.c.PID(), s.PID)
}

// noChildrenBut waits until a monitor has one descendant alone.
func noChildrenBut(t testing.TB, parent, child int) {
	t.Helper()
	eventually(t, func() error {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent))
		if got := strings.TrimSpace(string(b)); err != nil || got != fmt.Sprint(child) {
			return fmt.Errorf("children are %q, %w; want %d", got, err, child)
		}
		return nil
	})
}

func TestExecEndsWithItsClientIfItShall(t *testing.T) {
	p := newPod(t)
	s := p.start(p.container("a", "exec sleep 1000"))
	other, _ := p.connect()
	e := p.exec("a", "x", fmt.Sprintf(stubborn, filepath.Join(p.dir, "x")))
	e.KillWithClient = true
	doomed, err := other.Exec(background(t), e)
	mustNot(t, err)
	stays, err := other.Exec(background(t), p.exec("a", "y", "exec sleep 1000"))
	mustNot(t, err)
	other.Close()
	gone(t, doomed.PID())
	if _, err := doomed.Wait(background(t)); !errors.Is(err, monitor.ErrGone) {
		t.Error(err)
	}
	mustNot(t, unix.Kill(stays.PID(), 0))
	mustNot(t, unix.Kill(stays.PID(), unix.SIGKILL))
	noChildrenBut(t, p.c.PID(), s.PID)

	ctx, cancel := context.WithCancel(background(t))
	hangs := p.exec("a", "z", "")
	hangs.Argv = []string{"/bin/sh", "-c", "echo $$ >" + hangs.PIDFile + ".begun.pid; exec sleep 1000"}
	go func() {
		eventually(t, func() error { _, err := os.Stat(hangs.PIDFile + ".begun.pid"); return err })
		cancel()
	}()
	_, err = p.c.Exec(ctx, hangs)
	mustBe(t, err, context.Canceled)
}

func TestRuncTerminal(t *testing.T) {
	p := newRuncPod(t)
	c := p.container("a", "tty; read x; stty size; echo got $x; exec sleep 1000", func(process, _ map[string]any) { process["terminal"] = true })
	p.withTerminal(&c)
	s := p.start(c)
	a := attach(t, p.c, "a", true)
	mustNot(t, p.c.Resize(background(t), "a", 101, 37))
	eventually(t, func() error {
		if l, err := parse(c.Log); err != nil || text(l, "stdout") != "/dev/pts/0\r\n" {
			return fmt.Errorf("log is %v, %w", l, err)
		}
		return nil
	})
	_, _ = a.stdin.WriteString("hello\n")
	until(t, a.stdout, "37 101\r\ngot hello\r\n")

	e := p.exec("a", "x", "/bin/sh", "-c", "tty; read x; echo $x; stty size; exit 8")
	e.Terminal, e.ConsoleSocket = true, filepath.Join(p.dir, "x.tty")
	e.Argv = append(append(append([]string(nil), e.Argv[:len(e.Argv)-4]...), "--tty", "--console-socket", e.ConsoleSocket), e.Argv[len(e.Argv)-4:]...)
	proc, err := p.c.Exec(background(t), e)
	mustNot(t, err)
	mustNot(t, proc.Resize(50, 20))
	until(t, proc.Master(), "/dev/pts/1\r\n")
	_, _ = proc.Master().WriteString("hi\n")
	until(t, proc.Master(), "20 50\r\n")
	if code, err := proc.Wait(background(t)); code != 8 || err != nil {
		t.Errorf("exec ended with %d, %v", code, err)
	}
	_ = proc.Master().Close()

	// A terminal hangs up with its client.
	e.PIDFile += "2"
	for i, arg := range e.Argv {
		if arg == "--pid-file" {
			e.Argv[i+1] = e.PIDFile
		}
	}
	e.Argv[len(e.Argv)-1] = "sleep 1000"
	proc, err = p.c.Exec(background(t), e)
	mustNot(t, err)
	_ = proc.Master().Close()
	if code, err := proc.Wait(background(t)); code != 128+1 || err != nil {
		t.Errorf("exec of a client that went ended with %d, %v", code, err)
	}
	mustNot(t, unix.Kill(s.PID, unix.SIGKILL))
	if e := exit(t, p.c, "a"); e.Code != 137 {
		t.Errorf("exit is %+v", e)
	}
	mustNot(t, <-a.done)
}
