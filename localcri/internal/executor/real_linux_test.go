package executor

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// runtimes finds the real ones of this machine.
func runtimes(t *testing.T) map[string]string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	found := map[string]string{}
	for _, name := range []string{"runc", "crun"} {
		path, err := filepath.Abs("../../../build/bin/" + name)
		if _, statErr := os.Stat(path); err != nil || statErr != nil {
			if path, err = exec.LookPath(name); err != nil {
				continue
			}
		}
		found[name] = path
	}
	if len(found) == 0 {
		t.Skip("needs runc or crun")
	}
	return found
}

// bundle makes the bundle of a container that shares the machine's programs.
func bundle(t *testing.T, id string, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	rootfs := filepath.Join(dir, "rootfs")
	spec := specs.Spec{
		Version: "1.0.2",
		Root:    &specs.Root{Path: rootfs, Readonly: true},
		Process: &specs.Process{Args: args, Cwd: "/", Env: []string{"PATH=/bin:/usr/bin"}},
		Mounts:  []specs.Mount{{Destination: "/proc", Type: "proc", Source: "proc"}},
		Linux: &specs.Linux{
			CgroupsPath: "/nodewright-executor-test/" + id,
			Namespaces:  []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}},
			Resources:   &specs.LinuxResources{},
		},
	}
	for _, d := range []string{"/bin", "/usr", "/lib", "/lib64"} {
		if _, err := os.Stat(d); err == nil {
			spec.Mounts = append(spec.Mounts, specs.Mount{Destination: d, Type: "bind", Source: d, Options: []string{"rbind", "ro"}})
		}
	}
	for _, d := range []string{"bin", "usr", "lib", "lib64", "proc", "dev"} {
		if err := os.MkdirAll(filepath.Join(rootfs, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func do(t *testing.T, argv []string) error {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	return cmd.Run() // without pipes, which the container would keep open
}

func TestContainerOfARealRuntime(t *testing.T) {
	for name, path := range runtimes(t) {
		t.Run(name, func(t *testing.T) {
			e, err := New(Config{Path: path, StateDir: t.TempDir(), Timeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			f, err := e.Features(t.Context())
			if err != nil || !strings.HasPrefix(f.Version, name+" version ") || !f.Seccomp {
				t.Errorf("Features = %+v, %v", f, err)
			}
			id := "nwexec" + name
			dir := bundle(t, id, "sleep", "1000")
			log, pid := filepath.Join(dir, "log"), filepath.Join(dir, "pid")
			t.Cleanup(func() {
				_ = e.Delete(t.Context(), id, true)
				removeCgroups(t)
			})
			if err := do(t, e.Create(Creation{ID: id, Bundle: dir, PIDFile: pid, Log: log})); err != nil {
				b, _ := os.ReadFile(log)
				t.Fatalf("create: %v: %s", err, LastError(b))
			}
			if s, err := e.State(t.Context(), id); err != nil || s.Status != Created || s.PID == 0 || s.Bundle != dir || s.Since.IsZero() {
				t.Errorf("State = %+v, %v", s, err)
			}
			if err := do(t, e.Start(id, log)); err != nil {
				t.Fatal(err)
			}
			process := filepath.Join(dir, "process.json")
			b, _ := json.Marshal(specs.Process{Args: []string{"true"}, Cwd: "/", Env: []string{"PATH=/bin:/usr/bin"}})
			if err := os.WriteFile(process, b, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := do(t, e.Exec(Execution{ID: id, Process: process, PIDFile: pid + ".exec", Log: log})); err != nil {
				b, _ := os.ReadFile(log)
				t.Errorf("exec: %v: %s", err, LastError(b))
			}
			limit := int64(64 << 20)
			if err := e.Update(t.Context(), id, &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}}); err != nil {
				t.Error(err)
			}
			if err := e.Kill(t.Context(), id, 9, false); err != nil {
				t.Error(err)
			}
			for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
				if s, err := e.State(t.Context(), id); err != nil || s.Status == Stopped {
					break
				}
				if time.Now().After(end) {
					t.Fatal("not stopped a minute after SIGKILL")
				}
			}
			if err := e.Kill(t.Context(), id, 9, false); !errors.Is(err, ErrNotRunning) {
				t.Errorf("Kill of one that has ended: %v; want ErrNotRunning", err)
			}
			for range 2 {
				if err := e.Delete(t.Context(), id, false); err != nil {
					t.Error(err)
				}
			}
			if _, err := e.State(t.Context(), id); !errors.Is(err, ErrNotExist) {
				t.Errorf("State after Delete: %v; want ErrNotExist", err)
			}
		})
	}
}

func TestMissingCommandIsNamedInTheLog(t *testing.T) {
	for name, path := range runtimes(t) {
		t.Run(name, func(t *testing.T) {
			e, err := New(Config{Path: path, StateDir: t.TempDir(), Timeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			id := "nwexecbad" + name
			dir := bundle(t, id, "no-such-command")
			log := filepath.Join(dir, "log")
			t.Cleanup(func() {
				_ = e.Delete(t.Context(), id, true)
				removeCgroups(t)
			})
			err = do(t, e.Create(Creation{ID: id, Bundle: dir, PIDFile: dir + "/pid", Log: log}))
			if err == nil {
				err = do(t, e.Start(id, log))
			}
			b, _ := os.ReadFile(log)
			if got := LastError(b); err == nil || !strings.Contains(got, "no-such-command") {
				t.Errorf("create and start: %v, %q", err, got)
			}
		})
	}
}

// removeCgroups removes the empty parents of this test's cgroups.
func removeCgroups(t *testing.T) {
	t.Helper()
	for _, pattern := range []string{"/sys/fs/cgroup/nodewright-executor-test", "/sys/fs/cgroup/*/nodewright-executor-test"} {
		dirs, _ := filepath.Glob(pattern)
		for _, d := range dirs {
			_ = os.Remove(d)
		}
	}
}
