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

// within returns the path of the package within the module, "." for the root.
func (p pkg) within() string {
	if p.ImportPath == modulePath {
		return "."
	}
	return strings.TrimPrefix(p.ImportPath, modulePath+"/")
}

// The default packages: those in wanted, those below a top-level directory in wanted,
// those whose tests import containerdtest, and those that import one of cgroupLibraries.
var (
	wanted          = []string{"cri", "csi", "examples", "network", "volumemgr/plugins", "internal/diskusage"}
	containerdtest  = modulePath + "/internal/containerdtest"
	cgroupLibraries = []string{"github.com/opencontainers/cgroups", "github.com/containerd/cgroups"}
)

// pick returns the packages whose tests the machine runs by default.
func pick(packages []pkg) []pkg {
	return slices.DeleteFunc(slices.Clone(packages), func(p pkg) bool {
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

// compile builds the test binaries of packages into the directory out, and returns a plan that
// runs them. Without patterns it takes the packages of pick, or foreignTests for a foreign
// machine. It fails if no package has tests.
func compile(ctx context.Context, repo, out string, s settings, patterns []string) (plan, error) {
	all, err := s.packages(ctx, repo, patterns)
	if err != nil {
		return plan{}, err
	}
	all = slices.DeleteFunc(all, func(p pkg) bool { return len(p.TestGoFiles)+len(p.XTestGoFiles) == 0 })
	if len(all) == 0 {
		return plan{}, fmt.Errorf("no tests in %s", strings.Join(patterns, " "))
	}
	if err := errors.Join(os.RemoveAll(out), os.MkdirAll(out, 0o755)); err != nil {
		return plan{}, err
	}
	say("compiling the tests of %d packages", len(all))
	race := !s.uml && !s.arch.foreign()
	var p plan
	for _, one := range all {
		file := filepath.Join(out, binaryName(one.within()))
		if _, err := goSays(ctx, repo, s.arch.build(), "test", "-c", fmt.Sprintf("-race=%t", race), "-o", file, one.ImportPath); err != nil {
			return plan{}, err
		}
		p.Tests = append(p.Tests, testBinary{Package: one.within(), Dir: one.Dir, File: file})
	}
	if len(patterns) == 0 && s.arch.foreign() {
		p.narrow()
	}
	return p, nil
}

// packages returns the packages that match patterns, which are relative to the user's working
// directory, or those that are tested by default.
func (s settings) packages(ctx context.Context, repo string, patterns []string) ([]pkg, error) {
	switch {
	case len(patterns) > 0:
		return list(ctx, "", s.arch, patterns)
	case s.arch.foreign():
		return list(ctx, repo, s.arch, foreignPatterns())
	}
	all, err := list(ctx, repo, s.arch, []string{"./..."})
	return pick(all), err
}

func list(ctx context.Context, dir string, a architecture, patterns []string) ([]pkg, error) {
	const fields = "-json=ImportPath,Dir,TestGoFiles,XTestGoFiles,Imports,TestImports,XTestImports"
	out, err := goSays(ctx, dir, a.build(), slices.Concat([]string{"list", fields}, patterns)...)
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

// environment returns the environment of the tests. PATH begins with build/bin. The go
// command finds its caches, but does not download modules.
func environment(ctx context.Context, repo string) ([]string, error) {
	env := []string{
		"CI=true", "GOPROXY=off", "HOME=" + os.Getenv("HOME"), "TMPDIR=" + tempDir, "TERM=dumb", "USER=root",
		"PATH=" + filepath.Join(repo, "build", "bin") + ":" + os.Getenv("PATH"),
	}
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH"} {
		value, err := goSays(ctx, repo, nil, "env", name)
		if err != nil {
			return nil, err
		}
		env = append(env, name+"="+value)
	}
	return env, nil
}

// goSays runs the go command with additional variables and returns its output. Without
// variables cgo is enabled: CGO_ENABLED=0 in the environment is meant only for the build of
// this program.
func goSays(ctx context.Context, dir string, variables []string, args ...string) (string, error) {
	out, err := output(ctx, dir, slices.Concat([]string{"env", "CGO_ENABLED=1"}, variables, []string{"go"}, args)...)
	return strings.TrimSpace(out), err
}
