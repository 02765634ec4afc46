//go:build linux

package agentbuild_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nodewright/nodewright/internal/containerdtest"
	"github.com/nodewright/nodewright/internal/sampleimage"
)

const (
	module      = "github.com/nodewright/nodewright"
	testTimeout = 5 * time.Minute // however slow the machine
)

const manifest = `apiVersion: v1
kind: Pod
metadata: {name: box, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "localhost/nodewright/testbox:1", imagePullPolicy: Never, args: [out, hello, sleep, forever]}]
`

const config = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: localcri
cgroupsPerQOS: false
failCgroupV1: false
failSwapOn: false
healthzPort: 0
evictionHard: {}
imageGCHighThresholdPercent: 100
resolvConf: ''
`

// The files that git has, and nothing that was built, are a whole agent with its container runtime:
// for who installs the example, and for who imports its packages.
func TestCleanCheckoutIsWhole(t *testing.T) {
	if testing.Short() { // also in the emulated machine
		t.Skip("compiles the module anew; left out by -short")
	}
	containerdtest.Required(t)
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	checkout := checkOut(t, repository)
	t.Setenv("PATH", filepath.Join(repository, "build", "bin")+":"+os.Getenv("PATH")) // of runc
	archives, err := sampleimage.Build(t.Context(), repository, filepath.Join(repository, "build", "images"))
	if err != nil {
		t.Fatal(err)
	}
	images := filepath.Dir(archives[0])

	t.Run("go install", func(t *testing.T) {
		bin := t.TempDir()
		goDo(t, checkout, "GOBIN="+bin, "install", "./examples/agent")
		agent, args := filepath.Join(bin, "agent"), nodeFlags(t)
		cmd := exec.Command(agent, append([]string{"run", "--leave-host", "--network", "bridge", "--preload-images", images}, args...)...)
		log := startLogged(t, cmd)
		root := args[1]
		for end := time.Now().Add(testTimeout); ; time.Sleep(20 * time.Millisecond) {
			out, err := exec.Command(agent, "logs", "box", "--root-dir", root).CombinedOutput()
			if err == nil && strings.TrimSpace(string(out)) == "hello" {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("the pod's log: %v: %s\nthe agent said:\n%s", err, out, log())
			}
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v\n%s", err, log())
		}
		if out, err := exec.Command(agent, "reset", "--images", "--root-dir", root).CombinedOutput(); err != nil {
			t.Errorf("reset: %v: %s", err, out)
		}
	})

	t.Run("import", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "embedder")
		if err := os.CopyFS(dir, os.DirFS("testdata/embedder")); err != nil {
			t.Fatal(err)
		}
		mod, err := os.ReadFile(filepath.Join(checkout, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		mod = regexp.MustCompile(`(?m)^module .*$`).ReplaceAll(mod, []byte("module example.com/embedder"))
		mod = append(mod, "\nrequire "+module+" v0.0.0\n\nreplace "+module+" => "+checkout+"\n"...)
		sum, err := os.ReadFile(filepath.Join(checkout, "go.sum"))
		if err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string][]byte{"go.mod": mod, "go.sum": sum} {
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		goDo(t, dir, "GOFLAGS=-mod=mod", "build", "-o", "node", ".")
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		cmd := exec.CommandContext(ctx, filepath.Join(dir, "node"), append(nodeFlags(t), "--images", images)...)
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("1 pods are ready\n")) {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// checkOut copies the files that git has or would take in, as they are now, to a directory.
func checkOut(t *testing.T, repository string) string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(repository, ".git")); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs a checkout of git: ", err)
		}
		t.Skip("needs a checkout of git: ", err)
	}
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = repository
	names, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		from, to := filepath.Join(repository, name), filepath.Join(dir, name)
		if fi, err := os.Lstat(from); err != nil || !fi.Mode().IsRegular() {
			continue // removed, and not said to git yet
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := copyFile(from, to); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func copyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	dst, err := os.Create(to)
	if err != nil {
		return err
	}
	if _, err := io.Copy(dst, src); err != nil {
		_ = dst.Close()
		return err
	}
	return dst.Close()
}

// goDo runs the go command in an environment with one more NAME=value. What is built without C and
// without paths is shared with other builds.
func goDo(t *testing.T, dir, env string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", env)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// nodeFlags are the flags of a node with one pod, the first being --root-dir and its value.
func nodeFlags(t *testing.T) []string {
	t.Helper()
	dir, err := os.MkdirTemp("", "nw") // t.TempDir is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // containers of any user pass through
		t.Fatal(err)
	}
	for name, text := range map[string]string{"pods/box.yaml": manifest, "config.yaml": config + "podLogsDir: " + dir + "/logs\n"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"--root-dir", filepath.Join(dir, "node"), "--config", filepath.Join(dir, "config.yaml"), "--pod-manifest-path", filepath.Join(dir, "pods"), "--hostname-override", "clean"}
}

// startLogged starts a program that ends with the test, and returns what reads what it said.
func startLogged(t *testing.T, cmd *exec.Cmd) (said func() string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return func() string {
		b, _ := os.ReadFile(path)
		return string(b)
	}
}
