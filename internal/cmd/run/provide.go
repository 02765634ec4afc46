package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"

	"github.com/nodewright/nodewright/internal/agentbuild"
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
		if err := seccompHeaders(ctx); err != nil {
			return err
		}
		say("building containerd, runc and CNI plugins into %s; this takes minutes, once", p.rel(p.bin))
		if err := goDo(ctx, p, "-C", "tools", "install", "-tags", "seccomp", "tool"); err != nil {
			return fmt.Errorf("build tools: %w", err)
		}
		if err := containerdtest.Missing(p.bin); err != nil {
			return err
		}
	}
	portPrograms(ctx)
	say("building the agent")
	if err := goDo(ctx, p, slices.Concat([]string{"build"}, agentbuild.Flags(), []string{"-o", p.bin + "/agent", "./examples/agent"})...); err != nil {
		return fmt.Errorf("build agent: %w", err)
	}
	return nil
}

// seccompHeaders gets what runc needs for seccomp: every sandbox is made with
// the runtime's default profile, and a runc without it refuses them.
func seccompHeaders(ctx context.Context) error {
	_, perr := exec.LookPath("pkg-config")
	if perr == nil && exec.CommandContext(ctx, "pkg-config", "--exists", "libseccomp").Run() == nil {
		return nil
	}
	say("installing libseccomp-dev and pkg-config, which runc is built with")
	if install(ctx, "libseccomp-dev pkg-config") != nil {
		return errors.New("missing: libseccomp-dev and pkg-config, runc is built with them; try apt-get install libseccomp-dev pkg-config")
	}
	return nil
}

// portPrograms gets what the CNI plugin for host ports drives. Pods without
// host ports run without it, so that failing is no error.
func portPrograms(ctx context.Context) {
	for _, p := range []string{"iptables", "nft"} {
		if _, err := exec.LookPath(p); err == nil {
			return
		}
	}
	say("installing iptables, which host ports are made with")
	if err := install(ctx, "iptables"); err != nil {
		say("iptables cannot be installed: host ports will have no effect")
	}
}

// install has Debian's package manager install packages.
func install(ctx context.Context, packages string) error {
	cmd := exec.CommandContext(ctx, "sh", "-c", "apt-get install -qq -y --no-install-recommends "+packages+" >/dev/null 2>&1 || "+
		"{ apt-get update -qq >/dev/null 2>&1 && apt-get install -qq -y --no-install-recommends "+packages+" >/dev/null; }")
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	return cmd.Run()
}

func goDo(ctx context.Context, p paths, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = p.repository
	cmd.Env = append(os.Environ(), "GOBIN="+p.bin)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}
