package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const modulePath = "github.com/nodewright/nodewright"

// pkg is a package in the output of go list.
type pkg struct {
	ImportPath   string
	Dir          string
	TestGoFiles  []string
	XTestGoFiles []string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// within returns the path of the package within the module.
func (p pkg) within() string {
	if p.ImportPath == modulePath {
		return "."
	}
	return strings.TrimPrefix(p.ImportPath, modulePath+"/")
}

// wanted has packages to test, and top-level directories that are tested with all
// packages below them. Packages whose tests use containerdtest, or that use one of
// cgroupLibraries, are tested too.
var (
	wanted          = []string{"agent", "cri", "csi", "examples", "network", "volumemgr/plugins", "internal/diskusage"}
	containerdtest  = modulePath + "/internal/containerdtest"
	cgroupLibraries = []string{"github.com/opencontainers/cgroups", "github.com/containerd/cgroups"}
)

// pick returns the packages whose tests are run in the machine by default.
func pick(all []pkg) []pkg {
	return slices.DeleteFunc(slices.Clone(all), func(p pkg) bool {
		room, _, _ := strings.Cut(p.within(), "/")
		if slices.Contains(wanted, room) || slices.Contains(wanted, p.within()) {
			return false
		}
		tests := slices.Concat(p.TestImports, p.XTestImports)
		if slices.Contains(tests, containerdtest) {
			return false
		}
		return !slices.ContainsFunc(slices.Concat(p.Imports, tests), func(path string) bool {
			return slices.ContainsFunc(cgroupLibraries, func(lib string) bool { return path == lib || strings.HasPrefix(path, lib+"/") })
		})
	})
}

// compile builds the tests of packages into out, with the race detector or without, and plans their run.
func compile(ctx context.Context, repo, out string, patterns []string, race bool) (plan, error) {
	all, err := list(ctx, repo, patterns)
	if err != nil {
		return plan{}, err
	}
	if len(patterns) == 0 {
		all = pick(all)
	}
	all = slices.DeleteFunc(all, func(p pkg) bool { return len(p.TestGoFiles)+len(p.XTestGoFiles) == 0 })
	if len(all) == 0 {
		return plan{}, fmt.Errorf("no tests in %s", strings.Join(patterns, " "))
	}
	if err := errors.Join(os.RemoveAll(out), os.MkdirAll(out, 0o755)); err != nil {
		return plan{}, err
	}
	say("compiling the tests of %d packages", len(all))
	var p plan
	for _, one := range all {
		file := filepath.Join(out, binaryName(one.within()))
		if _, err := goSays(ctx, repo, "test", "-c", fmt.Sprintf("-race=%t", race), "-o", file, one.ImportPath); err != nil {
			return plan{}, err
		}
		p.Tests = append(p.Tests, testBinary{Package: one.within(), Dir: one.Dir, File: file})
	}
	p.Env, err = environment(ctx, repo)
	return p, err
}

// commandPlan plans the run of a command in the repository.
func commandPlan(ctx context.Context, repo, command string) (plan, error) {
	env, err := environment(ctx, repo)
	return plan{Env: env, Command: command, Dir: repo}, err
}

func list(ctx context.Context, repo string, patterns []string) ([]pkg, error) {
	dir := "" // patterns are meant from where the user is
	if len(patterns) == 0 {
		dir, patterns = repo, []string{"./..."}
	}
	const fields = "-json=ImportPath,Dir,TestGoFiles,XTestGoFiles,Imports,TestImports,XTestImports"
	out, err := goSays(ctx, dir, slices.Concat([]string{"list", fields}, patterns)...)
	if err != nil {
		return nil, err
	}
	var pkgs []pkg
	for dec := json.NewDecoder(strings.NewReader(out)); dec.More(); {
		var p pkg
		if err := dec.Decode(&p); err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		pkgs = append(pkgs, p)
	}
	return pkgs, nil
}

// environment returns the environment of the tests: PATH begins with the tools, and
// go has its caches but no network.
func environment(ctx context.Context, repo string) ([]string, error) {
	env := []string{
		"CI=true", "GOPROXY=off", "HOME=" + os.Getenv("HOME"), "TMPDIR=" + tempDir, "TERM=dumb", "USER=root",
		"PATH=" + filepath.Join(repo, "build", "bin") + ":" + os.Getenv("PATH"),
	}
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH"} {
		value, err := goSays(ctx, repo, "env", name)
		if err != nil {
			return nil, err
		}
		env = append(env, name+"="+value)
	}
	return env, nil
}

// goSays runs the go command and returns its output. Cgo is enabled for it:
// CGO_ENABLED=0 in the environment is meant only for the build of this program.
func goSays(ctx context.Context, dir string, args ...string) (string, error) {
	out, err := output(ctx, dir, slices.Concat([]string{"env", "CGO_ENABLED=1", "go"}, args)...)
	return strings.TrimSpace(out), err
}
