package plugintest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// insideVar is set in a test binary that has a private mount namespace.
const insideVar = "NODEWRIGHT_PRIVATE_MOUNTS"

// MainWithMounts is for TestMain. As root, it starts the test binary a second time in a private
// mount namespace, so that mounts of the tests are not visible outside. It returns the exit code.
func MainWithMounts(m *testing.M) int {
	if os.Getuid() != 0 || os.Getenv(insideVar) != "" {
		return m.Run()
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), insideVar+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() >= 0 {
		return exit.ExitCode()
	}
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EINVAL) {
		return m.Run() // root may not mount, or is in a chroot: RequireMounts skips the tests
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "run with private mounts:", err)
		return 1
	}
	return 0
}

// RequireMounts skips a test that mounts something if it does not run in a private mount
// namespace. If CI=true is set, it fails the test instead.
func RequireMounts(t testing.TB) {
	t.Helper()
	if os.Getenv(insideVar) != "" {
		return
	}
	const reason = "needs root with the right to mount, and a root directory that is a mount, which a chroot's is not"
	if os.Getenv("CI") == "true" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}
