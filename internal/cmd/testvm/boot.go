package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// boot runs the machine until it powers off, and returns its results.
func boot(ctx context.Context, s settings, vm, resultFile, program string, args ...string) (results, error) {
	log, err := os.Create(filepath.Join(vm, "console.log"))
	if err != nil {
		return results{}, err
	}
	defer func() { _ = log.Close() }()
	limited, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	cmd := exec.CommandContext(limited, program, args...)
	cmd.Stdout = noCR{io.MultiWriter(os.Stdout, log)}
	cmd.Stderr = os.Stderr
	if s.uml {
		if err := pin(); err != nil {
			return results{}, err
		}
		// A user-mode Linux has several processes, all in one process group.
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL} // Ctrl-C reaches only this command
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return results{}, context.Cause(ctx)
	case limited.Err() != nil:
		say("stopped the machine at its time limit of %s", s.limit)
	case err != nil:
		return results{}, fmt.Errorf("%s: %w", filepath.Base(program), err)
	}
	told, err := os.ReadFile(resultFile)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return results{}, err
	}
	return parseResults(told), nil
}
