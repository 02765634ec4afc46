package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A machine of another architecture than this system's has a root of packages of Debian, over
// which the repository is mounted. What was built for the machine is in the root's directory
// builtDir, which takes the place of the repository's directory build.
const (
	builtDir    = "/build"
	testsDir    = builtDir + "/tests"
	programsDir = builtDir + "/programs" // for internal/testprogram
)

// foreignPackages are the packages of the root, besides those that they depend on. runc is Debian's
// because a build of it needs a C compiler and libseccomp for the architecture.
var foreignPackages = []string{"base-files", "bash-static", "busybox-static", "coreutils", "dash", "runc"}

// foreignPrograms are the programs that tests start.
var foreignPrograms = []string{"./examples/images/...", "./internal/cmd/localcri"}

// foreignTests are the tests of a foreign machine by default: what the agent asks the kernel, and a
// pod's life on the agent's own runtime. All tests would take hours.
var foreignTests = []struct{ pkg, run string }{
	{"./internal/kernel", "^Test(DeviceOf|Process|Machine|Files|Group|AGroup|Swap|CgroupsOf)"},
	{"./internal/diskusage", "Held"},
	{"./cgroups", "Real"},
	{"./localcri", "^(TestOOM|TestExecSyncOnRealContainers|TestMonitorIsKilled|TestUserNamespace)$"},
	{"./nodeagent/localcri", "^TestNodeWithItsOwnRuntime$"},
	{"./examples/edge", "^TestNodeAlone$"},
	{"./examples/agent", "^(TestPodsRun|TestProbed|TestOOMKillIsTold|TestPodCgroups)$"},
}

// foreignPatterns returns the packages of foreignTests.
func foreignPatterns() (patterns []string) {
	for _, t := range foreignTests {
		patterns = append(patterns, t.pkg)
	}
	return patterns
}

// narrow has the plan run only foreignTests. The plan is for their packages.
func (p *plan) narrow() {
	for i, t := range p.Tests {
		for _, f := range foreignTests {
			if f.pkg == "./"+t.Package {
				p.Tests[i].Run = f.run
			}
		}
	}
}

// prepareForeign returns the content of a foreign machine, which runs the tests that match patterns.
// It keeps the packages of an earlier root.
func prepareForeign(ctx context.Context, repo, vm string, s settings, patterns []string) (c content, err error) {
	root := filepath.Join(vm, "root")
	if _, err := os.Stat(root); err != nil {
		from, err := newArchive(s.arch, vm)
		if err != nil {
			return c, err
		}
		if err := from.unpackAll(ctx, foreignPackages, root); err != nil {
			return c, err
		}
	}
	if err := errors.Join(os.RemoveAll(root+builtDir), os.MkdirAll(root+builtDir+"/bin", 0o755)); err != nil {
		return c, err
	}
	if err := os.Symlink("/usr/sbin/runc", root+builtDir+"/bin/runc"); err != nil { // where tests look for it
		return c, err
	}
	if c.plan, err = compile(ctx, repo, root+testsDir, s, patterns); err != nil {
		return c, err
	}
	for i, t := range c.plan.Tests {
		c.plan.Tests[i].File = filepath.Join(testsDir, filepath.Base(t.File))
	}
	c.plan.Env, c.plan.Repository = foreignEnvironment(), repo
	say("compiling the programs that tests start")
	programs, err := list(ctx, repo, s.arch, foreignPrograms)
	if err != nil {
		return c, err
	}
	for _, p := range programs {
		if err := s.arch.program(ctx, repo, p.ImportPath, filepath.Join(root+programsDir, p.within())); err != nil {
			return c, err
		}
	}
	c.init = filepath.Join(vm, "init")
	c.shares = map[string]string{hostTag: root, repositoryTag: repo}
	return c, s.arch.program(ctx, repo, modulePath+"/internal/cmd/testvm", c.init)
}

// program builds a main package for the machine.
func (a *architecture) program(ctx context.Context, repo, pkg, out string) error {
	_, err := goSays(ctx, repo, a.build(), "build", "-ldflags=-w", "-o", out, pkg)
	return err
}

// foreignEnvironment returns the environment of the tests on a foreign machine.
func foreignEnvironment() []string {
	return []string{
		"CI=true", "HOME=/root", "TMPDIR=" + tempDir, "TERM=dumb", "USER=root", "RUNTIME=localcri", "PREBUILT=" + programsDir,
		"PATH=" + builtDir + "/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	}
}

// mountRepository mounts the repository read-only below root, at its path on the host, and builtDir
// over its directory build.
func mountRepository(root, repo string) error {
	return mountAll([]mounting{
		share(repositoryTag, root+repo),
		{root + builtDir, filepath.Join(root+repo, "build"), "", unix.MS_BIND, ""},
	})
}
