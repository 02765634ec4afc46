package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"github.com/nodewright/nodewright/internal/containerdtest"
)

// provide builds what is to run: the tools once, the agent each time.
func provide(ctx context.Context, p paths) error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("missing: Linux (this is %s)", runtime.GOOS)
	}
	if os.Geteuid() != 0 {
		return errors.New("missing: root, containers need it; try sudo make run")
	}
	if containerdtest.Missing(p.bin) != nil {
		if _, err := exec.LookPath("gcc"); err != nil {
			return errors.New("missing: gcc, runc is built with it; try apt-get install gcc libc6-dev")
		}
		say("building containerd, runc and CNI plugins into %s; this takes minutes, once", p.rel(p.bin))
		if err := goDo(ctx, p, "-C", "tools", "install", "tool"); err != nil {
			return fmt.Errorf("build tools: %w", err)
		}
		if err := containerdtest.Missing(p.bin); err != nil {
			return err
		}
	}
	say("building the agent")
	if err := goDo(ctx, p, "build", "-trimpath", "-ldflags=-s -w", "-o", p.bin+"/agent", "./examples/agent"); err != nil {
		return fmt.Errorf("build agent: %w", err)
	}
	return nil
}

func goDo(ctx context.Context, p paths, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = p.repository
	cmd.Env = append(os.Environ(), "GOBIN="+p.bin)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}
