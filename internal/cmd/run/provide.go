package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/nodewright/nodewright/internal/agentbuild"
	"github.com/nodewright/nodewright/internal/containerdtest"
)

// provide builds the agent, and the missing tools. Pods on containerd need some of the
// tools, tests need all of them, pods on the agent's own runtime need only an OCI runtime.
func provide(ctx context.Context, p paths, s settings) error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("missing: Linux (this is %s)", runtime.GOOS)
	}
	if os.Geteuid() != 0 {
		return errors.New("missing: root, needed for containers; try sudo make run")
	}
	// The agent's own runtime finds a runc that was built for containerd.
	err := os.Setenv("PATH", os.Getenv("PATH")+string(os.PathListSeparator)+p.bin)
	if err != nil {
		return err
	}
	switch {
	case s.toolsOnly:
		if err = provideTools(ctx, p, true); err == nil {
			err = netPrograms(ctx)
		}
	case s.runtime == containerd:
		err = provideTools(ctx, p, false)
	default:
		err = ociRuntime(ctx)
	}
	if err != nil {
		return err
	}
	say("building the agent")
	if err := agentbuild.Build(ctx, p.repository, filepath.Join(p.bin, "agent")); err != nil {
		return fmt.Errorf("build agent: %w", err)
	}
	return nil
}

// ociRuntime installs runc if the machine has no OCI runtime.
func ociRuntime(ctx context.Context) error {
	programs := []string{"runc", "crun"}
	if _, err := os.Stat("/sys/fs/cgroup/unified"); err == nil {
		programs = programs[:1] // crun refuses machines with both versions of cgroups
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err == nil {
			return nil
		}
	}
	say("installing runc, which starts containers")
	if err := install(ctx, "runc"); err != nil {
		return errors.New("missing: runc, needed for containers; try apt-get install runc")
	}
	return nil
}

// provideTools builds containerd and its dependencies. If tests is true, it builds all tools.
func provideTools(ctx context.Context, p paths, tests bool) error {
	lacking := containerdtest.Missing(p.bin) != nil
	if tests && !lacking {
		var err error
		if lacking, err = lacksTools(ctx, p); err != nil {
			return err
		}
	}
	portPrograms(ctx)
	if !lacking {
		return nil
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		return errors.New("missing: gcc, needed to build runc; try apt-get install gcc libc6-dev")
	}
	if err := seccompHeaders(ctx); err != nil {
		return err
	}
	say("building containerd, runc and CNI plugins into %s; this takes minutes, but only once", p.rel(p.bin))
	if err := goDo(ctx, p, "-C", "tools", "install", "-tags", "seccomp", "tool"); err != nil {
		return fmt.Errorf("build tools: %w", err)
	}
	return containerdtest.Missing(p.bin)
}

// lacksTools reports whether a tool of tools/go.mod is not built.
func lacksTools(ctx context.Context, p paths) (bool, error) {
	cmd := exec.CommandContext(ctx, "go", "-C", "tools", "list", "tool")
	cmd.Dir, cmd.Stderr = p.repository, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return false, fmt.Errorf("list tools: %w", err)
	}
	for _, tool := range strings.Fields(string(out)) {
		if _, err := os.Stat(filepath.Join(p.bin, path.Base(tool))); err != nil {
			return true, nil
		}
	}
	return false, nil
}

// seccompHeaders installs the headers that runc's build needs for seccomp. Every sandbox
// has the default seccomp profile of the runtime, and would not start with a runc
// without seccomp.
func seccompHeaders(ctx context.Context) error {
	_, perr := exec.LookPath("pkg-config")
	if perr == nil && exec.CommandContext(ctx, "pkg-config", "--exists", "libseccomp").Run() == nil {
		return nil
	}
	say("installing libseccomp-dev and pkg-config, needed to build runc")
	if install(ctx, "libseccomp-dev pkg-config") != nil {
		return errors.New("missing: libseccomp-dev and pkg-config, needed to build runc; try apt-get install libseccomp-dev pkg-config")
	}
	return nil
}

// portPrograms installs iptables for the CNI plugin portmap, unless iptables or nft is
// there. It only prints a failure, because pods without host ports do not need it.
func portPrograms(ctx context.Context) {
	for _, p := range []string{"iptables", "nft"} {
		if _, err := exec.LookPath(p); err == nil {
			return
		}
	}
	say("installing iptables, needed for host ports")
	if err := install(ctx, "iptables"); err != nil {
		say("cannot install iptables: host ports will have no effect")
	}
}

// netPrograms installs the programs that network tests and CNI plugins use.
func netPrograms(ctx context.Context) error {
	for program, pkg := range map[string]string{"iptables": "iptables", "ip": "iproute2", "nft": "nftables"} {
		if _, err := exec.LookPath(program); err == nil {
			continue
		}
		say("installing %s, needed by network tests", pkg)
		if err := install(ctx, pkg); err != nil {
			return fmt.Errorf("missing: %s; try apt-get install %s", program, pkg)
		}
	}
	return nil
}

// install installs Debian packages with apt-get. packages are names separated by blanks. If another
// program installs packages, such as unattended-upgrades of a new machine, it waits up to 5 minutes.
func install(ctx context.Context, packages string) error {
	get := "apt-get -o DPkg::Lock::Timeout=300 install -qq -y --no-install-recommends " + packages
	cmd := exec.CommandContext(ctx, "sh", "-c", get+" >/dev/null 2>&1 || { apt-get update -qq >/dev/null 2>&1 && "+get+" >/dev/null; }")
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	return cmd.Run()
}

func goDo(ctx context.Context, p paths, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = p.repository
	cmd.Env = append(os.Environ(), "GOBIN="+p.bin, "CGO_ENABLED=1") // a part of runc is C
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}
