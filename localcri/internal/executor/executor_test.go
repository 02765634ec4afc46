package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// fake makes a runtime of a shell script.
func fake(t *testing.T, timeout time.Duration, script string) *Executor {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "fake")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	e, err := New(Config{Path: path, StateDir: dir, Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestNewNamesEveryBadField(t *testing.T) {
	_, err := New(Config{Path: "runc", StateDir: "x", Timeout: -1})
	for _, want := range []string{`Config.Path is "runc"`, `Config.StateDir is "x"`, "Config.Timeout is -1ns"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New: %v; want %s in it", err, want)
		}
	}
}

func TestArgv(t *testing.T) {
	e, err := New(Config{Path: "/x/runc", Args: []string{"--systemd-cgroup"}, StateDir: "/run/x"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		got  []string
		want string
	}{
		{e.Create(Creation{ID: "a", Bundle: "/b", PIDFile: "/p", ConsoleSocket: "/c", Log: "/l"}),
			"/x/runc --systemd-cgroup --root /run/x --log-format json --log /l create --bundle /b --pid-file /p --console-socket /c a"},
		{e.Create(Creation{ID: "a", Bundle: "/b", PIDFile: "/p"}),
			"/x/runc --systemd-cgroup --root /run/x --log-format json create --bundle /b --pid-file /p a"},
		{e.Start("a", "/l"), "/x/runc --systemd-cgroup --root /run/x --log-format json --log /l start a"},
		{e.Exec(Execution{ID: "a", Process: "/j", PIDFile: "/p", ConsoleSocket: "/c"}),
			"/x/runc --systemd-cgroup --root /run/x --log-format json exec --detach --process /j --pid-file /p --console-socket /c a"},
		{e.kill("a", 9, true), "/x/runc --systemd-cgroup --root /run/x --log-format json kill --all a 9"},
	} {
		if got := strings.Join(tt.got, " "); got != tt.want {
			t.Errorf("argv\n got %s\nwant %s", got, tt.want)
		}
	}
}

func TestIDsThatAreOptionsOrPathsReachNoRuntime(t *testing.T) {
	e := fake(t, 0, "echo ran >&2; exit 1")
	for _, id := range []string{"", "-a", "--force", "a/b", "..", "a b", strings.Repeat("a", 129)} {
		_, err := e.State(t.Context(), id)
		for _, err := range []error{err, e.Kill(t.Context(), id, 9, false), e.Delete(t.Context(), id, true), e.Update(t.Context(), id, nil)} {
			if err == nil || !strings.Contains(err.Error(), "must be 1 to 128 letters") {
				t.Errorf("ID %q: %v", id, err)
			}
		}
	}
}

func TestHangingRuntimeIsKilledWithItsChildren(t *testing.T) {
	dir := t.TempDir()
	e := fake(t, 300*time.Millisecond, fmt.Sprintf("sleep 1000 & echo $! >%s/child; wait", dir))
	if err := os.Mkdir(filepath.Join(e.cfg.StateDir, "a"), 0o700); err != nil {
		t.Fatal(err)
	}
	err := e.Kill(t.Context(), "a", 15, false)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Kill: %v; want DeadlineExceeded", err)
	}
	pid, readErr := os.ReadFile(dir + "/child")
	if readErr != nil {
		t.Skip("the script was killed before it began")
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the runtime's child outlived it by a minute")
		}
	}
}

func TestCallerThatLeavesDoesNotStopTheCommand(t *testing.T) {
	dir := t.TempDir()
	e := fake(t, time.Minute, fmt.Sprintf("while [ ! -e %[1]s/go ]; do sleep 0.01; done; echo x >>%[1]s/done", dir))
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- e.Delete(ctx, "a", false) }()
	for e.InFlight() == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Fatalf("Delete: %v; want Canceled", err)
	}
	if err := os.WriteFile(dir+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// The next one comes after it, and runs by itself.
	if err := e.Delete(t.Context(), "a", false); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(dir + "/done"); string(got) != "x\nx\n" {
		t.Errorf("commands that ended: %q; want two", got)
	}
}

func TestOutputIsBounded(t *testing.T) {
	e := fake(t, time.Minute, "exec cat /dev/zero")
	if _, err := e.State(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "an output of more than 1048576 bytes") {
		t.Errorf("State: %v", err)
	}
	e = fake(t, time.Minute, `head -c 10000000 /dev/zero | tr '\0' x >&2; echo >&2; echo '{"level":"error","msg":"too bad"}' >&2; exit 1`)
	if _, err := e.State(t.Context(), "a"); err == nil || !strings.HasSuffix(err.Error(), ": too bad") || len(err.Error()) > 300 {
		t.Errorf("State: %.400v", err)
	}
}

func TestRuntimeThatLeavesItsPipesOpenIsNotWaitedFor(t *testing.T) {
	e := fake(t, time.Minute, `sleep 3 & echo '{"id":"a","status":"running","pid":7}'`)
	got, err := e.State(t.Context(), "a")
	if err != nil || got.Status != Running || got.PID != 7 {
		t.Errorf("State = %+v, %v", got, err)
	}
}

func TestUnknownContainer(t *testing.T) {
	e := fake(t, time.Minute, "echo whatever >&2; exit 1")
	if _, err := e.State(t.Context(), "a"); !errors.Is(err, ErrNotExist) {
		t.Errorf("State: %v; want ErrNotExist", err)
	}
	if err := e.Kill(t.Context(), "a", 9, false); !errors.Is(err, ErrNotExist) {
		t.Errorf("Kill: %v; want ErrNotExist", err)
	}
	if err := e.Delete(t.Context(), "a", false); err != nil {
		t.Errorf("Delete: %v; want nil", err)
	}
}

func TestStateOfAnotherContainerIsRefused(t *testing.T) {
	for _, out := range []string{`{"id":"b"}`, `{"id":"a","pid":-1}`, `[]`, ``, `{"id":"a","pid":1e30}`} {
		if s, err := parseState("a", []byte(out)); err == nil {
			t.Errorf("state of %s: %+v", out, s)
		}
	}
}

func TestRuntimeHasNothingOfOurEnvironment(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "/run/agent")
	t.Setenv("PATH", "")
	e := fake(t, time.Minute, `[ -z "$NOTIFY_SOCKET" ] && [ "$PATH" = `+usualPath+` ] && echo '{"id":"a"}'`)
	if _, err := e.State(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

func TestFeaturesAreAskedOnceForEachExecutable(t *testing.T) {
	const script = `echo $1 >>$0.calls; case "$*" in --version) echo "x version %d"; echo "libseccomp: 2.5";; *) %s;; esac`
	e := fake(t, time.Minute, fmt.Sprintf(script, 1, `echo '{"mountOptions":["rro"],"linux":{"namespaces":["user"],"capabilities":["CAP_CHOWN"],"mountExtensions":{"idmap":{"enabled":true}},"netDevices":{"enabled":true},"intelRdt":{"enabled":true}}}'`))
	for range 3 {
		f, err := e.Features(t.Context())
		if err != nil || f.Version != "x version 1" || !f.RecursiveReadOnly || !f.IDMap || !f.UserNamespaces || !f.NetDevices || !f.IntelRdt || f.Plain || f.Capabilities[0] != "CAP_CHOWN" {
			t.Fatalf("Features = %+v, %v", f, err)
		}
		f.Capabilities[0] = "" // the caller's
	}
	if calls, _ := os.ReadFile(e.Path() + ".calls"); strings.Count(string(calls), "\n") != 2 {
		t.Errorf("calls: %q; want --version and features once", calls)
	}
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte("#!/bin/sh\n"+fmt.Sprintf(script, 2, "exit 3")), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(other, e.Path()); err != nil {
		t.Fatal(err)
	}
	f, err := e.Features(t.Context())
	if err != nil || f.Version != "x version 2" || !f.Plain || f.RecursiveReadOnly || !f.Seccomp {
		t.Errorf("Features of the new one = %+v, %v", f, err)
	}
}

func TestFeaturesOfNoRuntime(t *testing.T) {
	e := fake(t, time.Minute, "exit 1")
	if f, err := e.Features(t.Context()); err == nil {
		t.Errorf("Features of one that only fails = %+v", f)
	}
	if err := os.Chmod(e.Path(), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Features(t.Context()); err == nil || !strings.Contains(err.Error(), "want an executable file") {
		t.Errorf("Features: %v", err)
	}
}

func TestUpdateSendsWhatIsSet(t *testing.T) {
	e := fake(t, time.Minute, "cat >$0.in")
	limit := int64(1 << 20)
	if err := e.Update(t.Context(), "a", &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}}); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(e.Path() + ".in"); string(got) != `{"memory":{"limit":1048576}}` {
		t.Errorf("stdin: %s", got)
	}
}

func TestLastError(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"", ""},
		{"\n\n", ""},
		{`{"level":"warning","msg":"odd","time":"x"}` + "\n" + `{"level":"error","msg":"exec: \"x\": not found","time":"x"}` + "\n", `exec: "x": not found`},
		{`{"level":"error","msg":"first"}` + "\n" + `{"level":"warning","msg":"then"}`, "first"},
		{`time="2026-01-01T00:00:00Z" level=warning msg="unable"` + "\n" + `time="2026-01-01T00:00:00Z" level=error msg="runc create: \"x\" failed"`, `runc create: "x" failed`},
		{"2026-01-01T00:00:00.0Z: executable file `x` not found in $PATH: No such file or directory\n", "2026-01-01T00:00:00.0Z: executable file `x` not found in $PATH: No such file or directory"},
		{`{"msg":"executable file x not found","level":"error","time":"x"}` + "\n", "executable file x not found"},
		{`{"level":"error","msg":"a\u001b[31m\nb"}`, "a [31m b"},
		{"\x00\xff", "\uFFFD"},
		{`{"level":`, `{"level":`},
		{`level=error msg="half`, `"half`},
	} {
		if got := LastError([]byte(tt.in)); got != tt.want {
			t.Errorf("LastError(%q) = %q; want %q", tt.in, got, tt.want)
		}
	}
}

func FuzzLastError(f *testing.F) {
	for _, s := range []string{`{"level":"error","msg":"x"}`, `time="x" level=error msg="y"`, "level=error msg=", "{", "\xff", strings.Repeat("é", 3000)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got := LastError(b)
		if len(got) > maxMessage+3 || strings.ContainsAny(got, "\n\r\x00\x1b") || strings.ToValidUTF8(got, "") != got {
			t.Errorf("LastError(%q) = %q", b, got)
		}
	})
}

func FuzzFeatures(f *testing.F) {
	f.Add([]byte(`{"linux":{"capabilities":["CAP_CHOWN"],"cgroup":{"v1":true}}}`))
	f.Add([]byte(`{"linux":null}`))
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = parseFeatures(b)
		_, _ = parseState("a", b)
	})
}

func TestTailKeepsTheEnd(t *testing.T) {
	for _, sizes := range [][]int{{3}, {10}, {4, 4, 4}, {1, 1, 1, 9, 1}, {25}, {8, 8, 8, 8}} {
		k, all := &tail{limit: 10}, []byte(nil)
		for i, n := range sizes {
			p := []byte(strings.Repeat(string(rune('a'+i)), n))
			all = append(all, p...)
			_, _ = k.Write(p)
		}
		want := string(all[max(0, len(all)-10):])
		if got := string(k.bytes()); got != want {
			t.Errorf("tail after %v = %q; want %q", sizes, got, want)
		}
	}
}

// A node that ends more containers at once than there are places deletes them all.
func TestManyContainersAreDeletedAtOnce(t *testing.T) {
	e := fake(t, time.Minute, "sleep 0.02")
	var wg sync.WaitGroup
	for i := range 150 {
		wg.Go(func() {
			if err := e.Delete(t.Context(), fmt.Sprintf("c%d", i), true); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}
