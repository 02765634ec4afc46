package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Specs that stop the kubelet, or change its configuration, do so with systemctl, through
// sudo. Two programs of these names come first in the suite's PATH: sudo runs its
// command, and systemctl, which is this program, asks the one that runs the suite.

// unitSocket is the environment variable with the path of the socket to which systemctl connects.
const unitSocket = "NWCONFORMANCE_UNIT"

// unitName is the name of the agent's unit. The suite looks for units called kubelet-*.
const unitName = "kubelet-agent"

// unitTimeout is how long the agent may take to end.
const unitTimeout = time.Minute

// unit presents the agent to the suite as a systemd service.
type unit struct {
	m      *machine
	listen net.Listener
	dir    string // directory of the two programs
	turn   sync.Mutex
}

// unitAnswer is the output and the exit code of systemctl.
type unitAnswer struct {
	Output string
	Failed bool
}

// newUnit answers requests of systemctl until it is closed.
func newUnit(ctx context.Context, m *machine) (*unit, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	u := &unit{m: m, dir: filepath.Join(m.o.out, "path")}
	if err := errors.Join(os.RemoveAll(u.dir), os.MkdirAll(u.dir, 0o755)); err != nil {
		return nil, err
	}
	if err := errors.Join(os.WriteFile(filepath.Join(u.dir, "sudo"), []byte("#!/bin/sh\nexec \"$@\"\n"), 0o755), os.Symlink(self, filepath.Join(u.dir, "systemctl"))); err != nil {
		return nil, err
	}
	// Abstract: the directory's path may be longer than an address can be.
	if u.listen, err = (&net.ListenConfig{}).Listen(ctx, "unix", fmt.Sprintf("@nwconformance-%d", os.Getpid())); err != nil {
		return nil, err
	}
	go u.serve(ctx)
	return u, nil
}

// env returns the environment variables for the suite.
func (u *unit) env() []string {
	return append(os.Environ(), unitSocket+"="+u.listen.Addr().String(), "PATH="+u.dir+":"+os.Getenv("PATH"))
}

func (u *unit) close() error { return u.listen.Close() }

func (u *unit) serve(ctx context.Context) {
	for {
		conn, err := u.listen.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = conn.Close() }()
			var args []string
			if json.NewDecoder(conn).Decode(&args) != nil {
				return
			}
			var a unitAnswer
			if a.Output, err = u.do(ctx, args); err != nil {
				a.Output, a.Failed = err.Error()+"\n", true
			}
			_ = json.NewEncoder(conn).Encode(a)
		}()
	}
}

// do executes a command of systemctl.
func (u *unit) do(ctx context.Context, args []string) (output string, err error) {
	u.turn.Lock()
	defer u.turn.Unlock()
	if len(args) == 0 {
		return "", errors.New("no command; want list-units, reset-failed, kill, stop, start or restart")
	}
	switch args[0] {
	case "list-units":
		if slices.Contains(args, "--state=running") && u.m.agent() == nil {
			return "", nil
		}
		return unitName + ".service loaded active running the agent\n", nil
	case "reset-failed":
		return "", nil
	case "kill", "stop":
		return "", u.stop()
	case "start", "restart":
		if err := u.stop(); err != nil {
			return "", err
		}
		return "", u.m.startAgent(ctx)
	}
	return "", fmt.Errorf("command %q; want list-units, reset-failed, kill, stop, start or restart", args[0])
}

// stop ends the agent if it is running.
func (u *unit) stop() error {
	p := u.m.agent()
	if p == nil {
		return nil
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		return nil
	case <-time.After(unitTimeout):
		return fmt.Errorf("the agent has not ended in %v", unitTimeout)
	}
}

// systemctl replaces the program systemctl: it sends its arguments to the unit, and prints the
// answer.
func systemctl() int {
	conn, err := net.Dial("unix", os.Getenv(unitSocket))
	if err != nil {
		fmt.Fprintln(os.Stderr, "systemctl:", err)
		return 1
	}
	defer func() { _ = conn.Close() }()
	var a unitAnswer
	if err := errors.Join(json.NewEncoder(conn).Encode(os.Args[1:]), json.NewDecoder(conn).Decode(&a)); err != nil {
		fmt.Fprintln(os.Stderr, "systemctl:", err)
		return 1
	}
	fmt.Print(a.Output)
	if a.Failed {
		return 1
	}
	return 0
}
