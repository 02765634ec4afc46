//go:build linux

package monitor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/localcri/internal/monitor"
)

// hang is how long a test waits for what must come.
const hang = 2 * time.Minute

var program struct {
	sync.Once
	dir string
	err error
}

func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == quickExecutor {
		beQuick(os.Args[2], os.Args[3])
	}
	code := m.Run()
	_ = os.RemoveAll(program.dir)
	os.Exit(code)
}

// quickExecutor has the tests' program be an executor whose process ends, with a
// code, before the executor does. A shell is none: it may take the code itself.
const quickExecutor = "quick-executor"

func beQuick(pidFile, code string) {
	p, err := os.StartProcess("/bin/sh", []string{"sh", "-c", "exit " + code}, &os.ProcAttr{})
	if err == nil {
		err = os.WriteFile(pidFile, []byte(strconv.Itoa(p.Pid)), 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for { // until it has ended; whoever is the parent then takes the code
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid))
		if err != nil || bytes.Contains(b, []byte(") Z ")) {
			os.Exit(0)
		}
		time.Sleep(time.Millisecond)
	}
}

// build makes the program as it is shipped.
func build(t testing.TB) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	program.Do(func() {
		if program.dir, program.err = os.MkdirTemp("", "monitor"); program.err != nil {
			return
		}
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program.dir, "../../nodewright-monitor")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			program.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	if program.err != nil {
		t.Fatal(program.err)
	}
	return filepath.Join(program.dir, "nodewright-monitor")
}

// pod is a sandbox with its monitor, and an executor that is a shell script.
type pod struct {
	t      testing.TB
	dir    string
	cfg    monitor.Config
	id     string
	c      *monitor.Client
	script string
}

// executor behaves as runc does: create leaves a process that waits for start,
// and has the streams; exec leaves one that runs.
const executor = `
step=$1 pidfile=$2 gate=$3 command=$4
exec 3<&0
case $step in
create)
	rm -f "$gate"; mkfifo "$gate"
	( read x <"$gate"; exec 3<&-; exec sh -c "$command" ) <&3 &
	echo $! >"$pidfile" ;;
start) echo >"$gate" ;;
exec)
	( exec 3<&-; exec sh -c "$command" ) <&3 &
	echo $! >"$pidfile" ;;
esac
`

func newPod(t testing.TB) *pod {
	t.Helper()
	p := &pod{t: t, dir: t.TempDir(), id: "pod"}
	p.cfg = monitor.Config{Program: build(t), StateDir: filepath.Join(p.dir, "state")}
	p.script = filepath.Join(p.dir, "executor")
	if err := os.WriteFile(p.script, []byte(executor), 0o700); err != nil {
		t.Fatal(err)
	}
	p.launch()
	t.Cleanup(p.clear)
	return p
}

func (p *pod) launch() *monitor.Client {
	p.t.Helper()
	c, err := monitor.Launch(background(p.t), p.cfg, p.id)
	if err != nil {
		p.t.Fatal(err)
	}
	p.c = c
	return c
}

// connect makes another connection.
func (p *pod) connect() (*monitor.Client, monitor.State) {
	p.t.Helper()
	c, state, err := monitor.Connect(background(p.t), p.cfg, p.id)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(c.Close)
	return c, state
}

// clear ends what is left: processes by their PID files, the monitor by its PID.
func (p *pod) clear() {
	files, _ := filepath.Glob(filepath.Join(p.dir, "*.pid"))
	for _, f := range files {
		b, _ := os.ReadFile(f)
		if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && p.owns(pid) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	p.c.Close()
	if c, _, err := monitor.Connect(context.Background(), p.cfg, p.id); err == nil {
		_ = unix.Kill(c.PID(), unix.SIGKILL)
		<-c.Done()
		c.Close()
	}
}

// owns reports whether a process is one of this test's.
func (p *pod) owns(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && bytes.Contains(b, []byte("PATH="))
}

func background(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	t.Cleanup(cancel)
	return ctx
}

// container runs a shell command.
func (p *pod) container(id, command string) monitor.Container {
	at := func(suffix string) string { return filepath.Join(p.dir, id+suffix) }
	args := func(step string) []string {
		return []string{"/bin/sh", p.script, step, at(".pid"), at(".gate"), command}
	}
	return monitor.Container{
		ID: id, Create: args("create"), Start: args("start"), PIDFile: at(".pid"),
		FIFODir: at(".fifos"), ExitFile: at(".exit"), Log: at(".log"), Record: []byte("record of " + id),
	}
}

func (p *pod) exec(id, name, command string) monitor.Exec {
	pidfile := filepath.Join(p.dir, name+".pid")
	return monitor.Exec{
		ID: id, PIDFile: pidfile,
		Argv: []string{"/bin/sh", p.script, "exec", pidfile, "", command},
	}
}

func (p *pod) start(c monitor.Container) monitor.Started {
	p.t.Helper()
	s, err := p.c.Start(background(p.t), c)
	if err != nil {
		p.t.Fatalf("start %s: %v", c.ID, err)
	}
	return s
}

// exit waits for a container's end.
func exit(t testing.TB, c *monitor.Client, id string) monitor.Exit {
	t.Helper()
	deadline := time.After(hang)
	for {
		select {
		case e := <-c.Events():
			if e.Exit != nil && e.Exit.ID == id {
				return *e.Exit
			}
		case <-c.Done():
			t.Fatalf("connection ended before %s", id)
		case <-deadline:
			t.Fatalf("%s does not end", id)
		}
	}
}

// eventually waits until f gives no error.
func eventually(t testing.TB, f func() error) {
	t.Helper()
	for end := time.Now().Add(hang); ; time.Sleep(time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// line is one of a CRI log.
type line struct {
	at      time.Time
	stream  string
	partial bool
	content string
}

// lines reads a log, and fails if it is none.
func lines(t testing.TB, path string) []line {
	t.Helper()
	all, err := parse(path)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func parse(path string) ([]line, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []line
	for i, l := range strings.SplitAfter(string(b), "\n") {
		if l == "" {
			continue
		}
		f := strings.SplitN(strings.TrimSuffix(l, "\n"), " ", 4)
		if len(f) != 4 || f[1] != "stdout" && f[1] != "stderr" || f[2] != "P" && f[2] != "F" || !strings.HasSuffix(l, "\n") {
			return nil, fmt.Errorf("line %d is %.80q", i, l)
		}
		at, err := time.Parse(time.RFC3339Nano, f[0])
		if err != nil {
			return nil, err
		}
		if len(all) > 0 && at.Before(all[len(all)-1].at) {
			return nil, fmt.Errorf("line %d at %v is before the line before", i, at)
		}
		all = append(all, line{at, f[1], f[2] == "P", f[3]})
	}
	return all, nil
}

// text joins what a stream of a log says.
func text(all []line, stream string) string {
	var b strings.Builder
	for _, l := range all {
		if l.stream == stream {
			b.WriteString(l.content)
			if !l.partial {
				b.WriteByte('\n')
			}
		}
	}
	return b.String()
}

func mustNot(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustBe(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}
