//go:build linux

package localcri

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/localcri/internal/life"
)

// command runs a program that waits for the end of its input, under a name and with
// arguments of an executor.
func command(t *testing.T, program, verb string) (cmd *exec.Cmd, end func()) {
	t.Helper()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd = &exec.Cmd{Path: sh, Args: []string{program, "-c", "read x; exit 0", verb, "id"}}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	return cmd, func() { _ = in.Close() }
}

func killed(t *testing.T, cmd *exec.Cmd) bool {
	t.Helper()
	_ = cmd.Wait()
	s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && s.Signaled() && s.Signal() == unix.SIGKILL
}

// What a monitor that died had under way is killed, but a start is let end.
func TestEndOfCommands(t *testing.T) {
	program := filepath.Join(t.TempDir(), "executor")
	end := func(timeout time.Duration) <-chan error {
		done := make(chan error, 1)
		go func() {
			done <- realProcesses{}.endCommands(context.WithoutCancel(t.Context()), program, "id", timeout)
		}()
		return done
	}
	start, finish := command(t, program, "start")
	create, _ := command(t, program, "create")
	done := end(time.Hour)
	if !killed(t, create) {
		t.Error("a create is not killed")
	}
	finish()
	if killed(t, start) {
		t.Error("a start is killed that has time left")
	}
	if err := <-done; err != nil {
		t.Error(err)
	}

	start, _ = command(t, program, "start")
	done = end(0)
	if !killed(t, start) {
		t.Error("a start that takes too long is not killed")
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A signal reaches the process that is meant, and says why it does not.
func TestSignalOfAProcess(t *testing.T) {
	cmd, _ := command(t, "executor", "create")
	start, _, err := realProcesses{}.Start(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	p := realProcesses{}
	if err := p.Signal(life.Process{PID: cmd.Process.Pid, StartTime: start + 1}, unix.SIGKILL); !errors.Is(err, unix.ESRCH) {
		t.Errorf("of another process with its number: %v, want ESRCH", err)
	}
	if err := p.Signal(life.Process{PID: cmd.Process.Pid, StartTime: start}, 0); err != nil {
		t.Errorf("of the process: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if err := p.Signal(life.Process{PID: cmd.Process.Pid, StartTime: start}, unix.SIGTERM); !errors.Is(err, unix.ESRCH) {
		t.Errorf("of a process that is gone: %v, want ESRCH", err)
	}
}

// The first process of a PID namespace gets what it handles, and the kernel drops the rest.
func TestSignalsThatAreDropped(t *testing.T) {
	const first, inHost, inPod = "NSpid:\t4045\t1\n", "NSpid:\t4045\n", "NSpid:\t4045\t7\n"
	masks := func(blocked, ignored, caught string) string {
		return "SigPnd:\t0000000000000000\nSigBlk:\t" + blocked + "\nSigIgn:\t" + ignored + "\nSigCgt:\t" + caught + "\n"
	}
	const none, term, rt = "0000000000000000", "0000000000004000", "8000000000000000"
	for name, tt := range map[string]struct {
		status string
		signal unix.Signal
		want   bool
	}{
		"no handler":          {first + masks(none, none, none), unix.SIGTERM, true},
		"handler":             {first + masks(none, none, term), unix.SIGTERM, false},
		"handler of another":  {first + masks(none, none, term), unix.SIGINT, true},
		"blocked":             {first + masks(term, none, none), unix.SIGTERM, false},
		"ignored":             {first + masks(none, term, none), unix.SIGTERM, false},
		"real-time":           {first + masks(none, none, rt), 64, false},
		"real-time, none":     {first + masks(none, none, term), 64, true},
		"before the program":  {"Name:\trunc:[2:INIT]\n" + first + masks(none, none, term), unix.SIGTERM, true},
		"before it, in a pod": {"Name:\trunc:[2:INIT]\n" + inPod + masks(none, none, none), unix.SIGTERM, true},
		"kill":                {first + masks(none, none, none), unix.SIGKILL, false},
		"process of the host": {inHost + masks(none, none, none), unix.SIGTERM, false},
		"process of a pod":    {inPod + masks(none, none, none), unix.SIGTERM, false},
		"nonsense":            {first + masks("x", none, none), unix.SIGTERM, false},
		"nothing":             {"", unix.SIGTERM, false},
	} {
		if got := drops([]byte(tt.status), tt.signal); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}
