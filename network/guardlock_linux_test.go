package network

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// holder starts a shell that inherits a guard, and leads a group if lead is set.
func holder(t *testing.T, guard *os.File, lead bool, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.ExtraFiles = []*os.File{guard}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: lead}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// abandoned is a guard of an agent that died while a process held it.
func abandoned(t *testing.T, dir string, lead bool, script string) *exec.Cmd {
	t.Helper()
	f, killed, err := takeGuard(t.Context(), dir, "a", 0)
	if err != nil || killed {
		t.Fatal(killed, err)
	}
	cmd := holder(t, f, lead, script)
	if err := WriteGuard(f, cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	f.Close()
	return cmd
}

func TestAGuardIsWaitedFor(t *testing.T) {
	dir := t.TempDir()
	cmd := abandoned(t, dir, true, "sleep 0.3")
	f, killed, err := takeGuard(t.Context(), dir, "a", time.Minute)
	if err != nil || killed {
		t.Fatal(killed, err)
	}
	defer f.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("its holder: %v", err)
	}
	if b, err := os.ReadFile(f.Name()); err != nil || len(b) != 0 {
		t.Errorf("it names %q, %v", b, err)
	}
	if _, held, err := tryGuard(f.Name()); err != nil || !held {
		t.Errorf("held %v, %v; want it to be locked", held, err)
	}
}

// Who does not end in time is killed, with all of its group.
func TestTheGroupOfAGuardIsKilled(t *testing.T) {
	for name, c := range map[string]struct {
		lead   bool
		script string
		forget bool // the agent died before it named the group
	}{
		"a group":                {true, "sleep 100 & sleep 100", false},
		"no group":               {false, "exec sleep 100", false},
		"its leader died":        {true, "sleep 100 & exit 0", false},
		"not named":              {true, "sleep 100 & sleep 100", true},
		"not named, and forking": {true, "while :; do sleep 100 & sleep 0.001; done", true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cmd := abandoned(t, dir, c.lead, c.script)
			if c.forget {
				if err := os.Truncate(filepath.Join(dir, "a"), 0); err != nil {
					t.Fatal(err)
				}
			}
			if strings.HasSuffix(c.script, "exit 0") {
				_ = cmd.Wait() // which frees its number in /proc
			}
			old, err := os.Open(filepath.Join(dir, "a"))
			if err != nil {
				t.Fatal(err)
			}
			defer old.Close()
			f, killed, err := takeGuard(t.Context(), dir, "a", 50*time.Millisecond)
			if err != nil || !killed {
				t.Fatalf("killed %v, %v", killed, err)
			}
			f.Close()
			if held, err := lockGuard(old); err != nil || held {
				t.Errorf("somebody holds it yet, %v", err)
			}
			if cmd.ProcessState == nil {
				_ = cmd.Wait()
			}
			if !strings.HasSuffix(c.script, "exit 0") && cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Errorf("it ended with %v", cmd.ProcessState)
			}
		})
	}
}

// A number in a guard that is another process's by now is nobody to kill.
func TestAnotherProcessIsNotKilled(t *testing.T) {
	other := exec.Command("/bin/sleep", "100")
	other.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "guard"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := WriteGuard(f, other.Process.Pid); err != nil {
		t.Fatal(err)
	}
	b, _ := os.ReadFile(f.Name())
	line := strings.Fields(strings.TrimRight(string(b), "\x00\n"))
	for _, content := range []string{
		line[0] + " 1\n",           // started at another time
		"",                         // none
		"1 1\n", "0 1\n", "-1 1\n", // everybody
	} {
		if err := errors.Join(f.Truncate(0), os.WriteFile(f.Name(), []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
		if killGroup(f) {
			t.Errorf("%q: killed", content)
		}
	}
	if err := WriteGuard(f, os.Getpid()); err != nil || killGroup(f) {
		t.Errorf("killed itself, %v", err)
	}
	if err := other.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the other one: %v", err)
	}
}
