package mount

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// maxOutput limits the bytes of a program's output in an error.
const maxOutput = 1024

// helper mounts with the mount program. On a machine with systemd, the program runs in its own
// scope, so that a daemon that it starts outlives this process.
func (k *Kernel) helper(ctx context.Context, f FileSystem) error {
	name := k.Program
	if name == "" {
		name = "mount"
	}
	args := []string{"-t", f.Type}
	if len(f.Options) > 0 {
		args = append(args, "-o", strings.Join(f.Options, ","))
	}
	args = append(args, "--", f.Source, f.Target)
	if scope, err := exec.LookPath("systemd-run"); err == nil && bootedBySystemd() {
		args = append([]string{"--quiet", "--scope", "--description=mount " + f.Target, "--", name}, args...)
		name = scope
	}
	out, err := run(ctx, name, args...)
	if err != nil {
		return fmt.Errorf("mount %s %s at %s: %w: %s", f.Type, f.Source, f.Target, err, out)
	}
	return nil
}

// bootedBySystemd reports whether systemd is the init system, like sd_booted(3).
func bootedBySystemd() bool {
	info, err := os.Lstat("/run/systemd/system")
	return err == nil && info.IsDir()
}

// outputDelay is how long run waits for output after the program's end: a daemon that the program
// started may keep the pipe open.
const outputDelay = time.Second

// maxKept limits the bytes of a program's output that are kept in memory.
const maxKept = 64 << 10

// head keeps the beginning of the data written to it.
type head struct{ kept bytes.Buffer } // not embedded, since its ReadFrom would keep everything

// Write implements io.Writer. It never fails.
func (h *head) Write(b []byte) (int, error) {
	_, _ = h.kept.Write(b[:min(len(b), maxKept-h.kept.Len())])
	return len(b), nil
}

// run runs a program until it ends. If ctx ends, the program and its children are killed; run
// still waits for a program that blocks in the kernel.
func run(ctx context.Context, name string, args ...string) (output string, err error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	var out head
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = outputDelay
	if err := cmd.Start(); err != nil {
		return "", err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err = <-done:
	case <-ctx.Done():
		killed := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		return "", errors.Join(ctx.Err(), killed, <-done)
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // the program itself has succeeded
	}
	text := strings.TrimSpace(out.kept.String())
	if len(text) > maxOutput {
		text = text[:maxOutput] + "..."
	}
	return text, err
}
