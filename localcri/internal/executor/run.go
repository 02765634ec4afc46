package executor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// Limits of a runtime's output.
const (
	maxStdout = 1 << 20  // the features of runc 1.5 take 30 KiB
	maxStderr = 64 << 10 // the last bytes are kept
)

// drainTimeout is how long a runtime's pipes are still read after its exit, if processes that it
// left behind keep them open.
const drainTimeout = time.Second

// usualPath is the PATH of the runtime if this program has none. The runtime's hooks may need it.
const usualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

var errFlood = fmt.Errorf("killed for an output of more than %d bytes", maxStdout)

// run runs a command until it exits. It may return much later than its deadline if the process
// cannot be killed (uninterruptible sleep).
func (e *Executor) run(verb, id string, argv []string, stdin []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), e.cfg.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	stdout, stderr := &limited{limit: maxStdout}, &tail{limit: maxStderr}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if stdin != nil {
		cmd.Stdin = bytes.NewReader(stdin)
	}
	cmd.Env = environment(os.Getenv)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = drainTimeout
	stdout.full = cancel

	begun := time.Now()
	err := cmd.Run()
	switch {
	case stdout.overflowed():
		err = errFlood
	case ctx.Err() != nil && err != nil:
		err = fmt.Errorf("killed after %v: %w", e.cfg.Timeout, context.DeadlineExceeded)
		e.cfg.Log.Warn("killed OCI runtime", zap.String("command", verb), zap.String("container", id), zap.Duration("took", time.Since(begun)))
	case errors.Is(err, exec.ErrWaitDelay):
		err = nil // it succeeded; processes that keep its pipes open are not waited for
	}
	if err != nil {
		return nil, &Error{Runtime: argv[0], Command: verb, ID: id, Message: LastError(stderr.bytes()), Err: err}
	}
	return stdout.bytes(), nil
}

// environment returns the environment of the runtime. It must not have NOTIFY_SOCKET: runc would
// mount the agent's socket into containers.
func environment(get func(string) string) []string {
	path := get("PATH")
	if path == "" {
		path = usualPath
	}
	env := []string{"PATH=" + path}
	if bus := get("DBUS_SYSTEM_BUS_ADDRESS"); bus != "" { // systemd creates scopes by request over D-Bus
		env = append(env, "DBUS_SYSTEM_BUS_ADDRESS="+bus)
	}
	return env
}
