// Package testprogram builds the programs that tests start. All are built in the same way,
// with go build and without cgo, so that their common packages are compiled once. If the
// machine has no go command, tests that need a program are skipped, unless the environment
// variable PREBUILT names a directory that has the programs (make test-vm ARCH=arm64).
package testprogram

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// ErrNoGo means that the machine has no go command.
var ErrNoGo = errors.New("needs the go command")

// Compile builds main packages of repository, such as "./examples/agent". It writes the
// program to the file out or, if out ends in a slash, the programs into the directory out.
// It does not rebuild files that are up to date. If several processes build into the same
// directory, they do so one after the other.
func Compile(ctx context.Context, repository, out string, packages ...string) error {
	return compile(ctx, repository, out, "", packages)
}

func compile(ctx context.Context, repository, out, tags string, packages []string) (err error) {
	slash := strings.HasSuffix(out, "/")
	if out, err = filepath.Abs(out); err != nil {
		return err
	}
	dir := filepath.Dir(out)
	if slash {
		dir, out = out, out+"/"
	}
	program, err := exec.LookPath("go")
	prebuilt := os.Getenv("PREBUILT")
	if err != nil && prebuilt == "" {
		return ErrNoGo
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // users of containers need access
		return err
	}
	lock, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }() // releases the lock
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if program == "" {
		return place(prebuilt, out, tags, packages)
	}
	// These options do not change how packages are compiled: no commit in the program, no
	// debugging information.
	cmd := exec.CommandContext(ctx, program, append([]string{"build", "-buildvcs=false", "-ldflags=-w", "-tags=" + tags, "-o", out}, packages...)...)
	cmd.Dir, cmd.Env = repository, append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w: %s", strings.Join(packages, " "), err, bytes.TrimSpace(said))
	}
	return nil
}

// place copies programs from the directory prebuilt, where each has the path of its package,
// followed by a hyphen and its tags. out is as in [Compile]. Programs that exist stay.
func place(prebuilt, out, tags string, packages []string) error {
	for _, pkg := range packages {
		from, to := filepath.Join(prebuilt, pkg), out
		if tags != "" {
			from += "-" + tags
		}
		if strings.HasSuffix(out, "/") {
			to += filepath.Base(pkg)
		}
		if _, err := os.Stat(to); err == nil {
			continue
		}
		program, err := os.ReadFile(from)
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%w: no program in %s", ErrNoGo, from)
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(to, program, 0o755); err != nil { //nolint:gosec // users of containers run it
			return err
		}
	}
	return nil
}

// programs maps the path of each program to a func() error that builds it once.
var programs sync.Map

// Build builds the program of a main package and returns its path, which is below
// build/test. It builds each program once per test process. pkg is a directory of the
// test's module, such as "./examples/agent". tag are build tags.
func Build(t testing.TB, pkg string, tag ...string) string {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	name := append(strings.Split(strings.TrimPrefix(pkg, "./"), "/"), tag...)
	out := filepath.Join(root, "build", "test", strings.Join(name, "-"))
	build, _ := programs.LoadOrStore(out, sync.OnceValue(func() error {
		return compile(context.Background(), root, out, strings.Join(tag, ","), []string{pkg})
	}))
	if err := build.(func() error)(); err != nil {
		Fail(t, err)
	}
	return out
}

// Go runs the go command in dir and returns its standard output. It fails the test if the
// command fails.
func Go(t testing.TB, dir string, args ...string) string {
	t.Helper()
	program, err := exec.LookPath("go")
	if err != nil {
		Fail(t, ErrNoGo)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("go %s: %v\n%s%s", strings.Join(args, " "), err, &errs, &out)
	}
	return out.String()
}

// Fail ends a test whose program could not be built because of err. If err is ErrNoGo, Fail skips the
// test, unless CI=true is set. In all other cases it fails the test.
func Fail(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, ErrNoGo) {
		Missing(t, err)
	}
	t.Fatal(err)
}

// Missing skips a test because this machine lacks something that "make ci" requires. With
// CI=true it fails the test instead.
func Missing(t testing.TB, reason ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(reason...)
	}
	t.Skip(reason...)
}

// Busybox returns the content of the machine's busybox program, for images of tests. If
// busybox is missing or not static, it calls [Missing], since the images have no dynamic
// loader.
func Busybox(t testing.TB) []byte {
	t.Helper()
	const missing = "needs a static busybox: apt-get install busybox-static"
	path, err := exec.LookPath("busybox")
	if err != nil {
		Missing(t, missing)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		Missing(t, missing+" (", path, " needs a loader)")
	}
	return program
}

// Root returns the root directory of the module that contains the working directory.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod in the test's directory or above")
		}
		dir = up
	}
}
