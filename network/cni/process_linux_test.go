package cni

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/network"
)

// alive reports whether a process runs, and is no zombie.
func alive(pid int) bool {
	for range 12_000 { // two minutes: it ends when the kernel comes to it
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return false
		}
		if state := b[bytes.LastIndexByte(b, ')')+2]; state == 'Z' || state == 'X' {
			return false
		}
		time.Sleep(10 * time.Millisecond)
	}
	return true
}

func realRig(t *testing.T, acts map[string]act, change ...func(*Config)) *rig {
	r := newRig(t, true, change...)
	r.install("main")
	r.write("10-net.conflist", oneConf("net", "1.0.0", `{"type":"main"}`))
	r.acts("main", acts)
	return r
}

func guardFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "guard"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	return f
}

func locked(t *testing.T, path string) bool {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
}

func TestAPluginInheritsNothingButTheGuard(t *testing.T) {
	t.Setenv("SECRET", "s")
	t.Setenv("CNI_NETNS_OVERRIDE", "1")
	t.Setenv("CNI_ARGS", "K8S_POD_NAME=other")
	open, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	left, err := unix.Dup(int(open.Fd())) // a descriptor that children inherit
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(left)
	r := realRig(t, nil)
	guard := guardFile(t)
	saved := r.plan(pod("a"))
	r.heard()
	if _, err := r.p.SetUp(t.Context(), pod("a"), someNetns, saved, guard); err != nil {
		t.Fatal(err)
	}
	h := r.heard("ADD")[0]
	if !slices.Equal(h.FDs, []string{"0", "1", "2", "3"}) {
		t.Errorf("descriptors %v", h.FDs)
	}
	var names []string
	for name := range h.Env {
		names = append(names, name)
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); got != "CNI_ARGS CNI_COMMAND CNI_CONTAINERID CNI_IFNAME CNI_NETNS CNI_PATH PATH" {
		t.Errorf("environment %s", got)
	}
	if strings.Contains(h.Env["CNI_ARGS"], "other") || h.Env["PATH"] != os.Getenv("PATH") {
		t.Errorf("environment %v", h.Env)
	}
	if h.Group != h.Pid {
		t.Errorf("process %d is of group %d", h.Pid, h.Group)
	}
	b, _ := os.ReadFile(guard.Name())
	if line, _, _ := strings.Cut(string(b), "\n"); !strings.HasPrefix(line, strconv.Itoa(h.Pid)+" ") {
		t.Errorf("guard has %q; want process %d", b, h.Pid)
	}
	if err := guard.Close(); err != nil {
		t.Fatal(err)
	}
	for i := 0; locked(t, guard.Name()); i++ { // the call lets go of it after its answer
		if i > 12_000 {
			t.Fatal("the guard stays locked")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// The owner of a guard closes it, and a process that cannot be ended holds it.
func TestTheGuardStaysLockedWhileAProcessRuns(t *testing.T) {
	r := realRig(t, nil, func(c *Config) { c.AddTimeout = 50 * time.Millisecond })
	saved := r.plan(pod("a"))
	free := make(chan struct{})
	r.p.processes = stuck{free}
	guard := guardFile(t)
	_, err := r.p.SetUp(t.Context(), pod("a"), someNetns, saved, guard)
	wantCode(t, err, network.DeadlineExceeded, "plugin main: ADD: killed at the deadline: the process has not ended")
	if err := guard.Close(); err != nil {
		t.Fatal(err)
	}
	if !locked(t, guard.Name()) {
		t.Error("the guard is free")
	}
	// No DEL runs beside it.
	r.p.processes = inMemory{state: r.state}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	wantCode(t, r.p.TearDown(ctx, pod("a"), someNetns, saved, nil), network.DeadlineExceeded, "wait for an earlier call")
	if all := r.heard("DEL"); len(all) > 0 {
		t.Errorf("DEL of %s", kinds(all))
	}
	if _, err := r.p.SetUp(t.Context(), pod("b"), someNetns, saved, nil); err != nil {
		t.Errorf("another attachment: %v", err)
	}
	close(free)
	if err := r.p.TearDown(t.Context(), pod("a"), someNetns, saved, nil); err != nil {
		t.Error(err)
	}
}

// stuck has processes that do not end.
type stuck struct{ free chan struct{} }

func (s stuck) run(ctx context.Context, _ command, left *sync.WaitGroup) (output, error) {
	left.Go(func() { <-s.free })
	<-ctx.Done()
	return output{}, fmt.Errorf("%w: %w", errKilled, errStuck)
}

func TestAChildThatHoldsStdout(t *testing.T) {
	r := realRig(t, map[string]act{"ADD": {Child: true}})
	saved := r.plan(pod("a"))
	begun := time.Now()
	res, err := r.p.SetUp(t.Context(), pod("a"), someNetns, saved, nil)
	if err != nil || len(res.IPs) != 2 {
		t.Fatalf("%+v, %v", res, err)
	}
	if d := time.Since(begun); d < pipeTimeout || d > 15*pipeTimeout {
		t.Errorf("it took %v", d)
	}
	if h := r.heard("ADD")[0]; alive(h.Child) {
		t.Errorf("process %d lives", h.Child)
	}
}

func TestAFloodIsEnded(t *testing.T) {
	r := realRig(t, map[string]act{"ADD": {Flood: true}})
	_, err := r.up(pod("a"))
	wantCode(t, err, network.Unknown, "plugin main: ADD: killed for an output of more than 1048576 bytes")
}

func TestAPluginThatDoesNotRead(t *testing.T) {
	r := realRig(t, map[string]act{"ADD": {Deaf: true, Stdout: `{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.1/8"}]}`}})
	r.write("10-net.conflist", oneConf("net", "1.0.0", `{"type":"main","pad":"`+strings.Repeat("x", 100<<10)+`"}`))
	if _, err := r.up(pod("a")); err != nil {
		t.Error(err)
	}
}

func TestStderrIsCutToItsEnd(t *testing.T) {
	r := realRig(t, map[string]act{"ADD": {Stderr: strings.Repeat("start ", 100<<10) + "the end", Exit: 3}})
	_, err := r.up(pod("a"))
	wantCode(t, err, network.Unknown, "the end", "exit status 3")
	if len(err.Error()) > 3*maxStderr {
		t.Errorf("%d bytes", len(err.Error()))
	}
}

func TestACallerThatGoesEndsThePlugin(t *testing.T) {
	r := realRig(t, map[string]act{"ADD": {Hang: true}})
	saved := r.plan(pod("a"))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		r.await("ADD")
	}()
	_, err := r.p.SetUp(ctx, pod("a"), someNetns, saved, nil)
	wantCode(t, err, network.Canceled, "killed: the call was canceled")
}

// A real executable that is open for writing, and then is not.
func TestTextFileBusy(t *testing.T) {
	r := newRig(t, true)
	r.p.pause = time.Millisecond
	r.write("10-net.conflist", oneConf("net", "1.0.0", `{"type":"script"}`))
	path := filepath.Join(r.bin, "script")
	const script = "#!/bin/sh\ncat >/dev/null\necho '{\"cniVersion\":\"1.0.0\",\"supportedVersions\":[\"1.0.0\"],\"ips\":[{\"address\":\"10.0.0.1/8\"}]}'\n"
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	saved := r.plan(pod("a"))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := groupsBusy(path); !errors.Is(err, syscall.ETXTBSY) {
		f.Close()
		t.Skip("this kernel runs executables that are open for writing:", err)
	}
	tries := 0
	r.p.processes = told(func(err error) {
		if tries++; tries == 2 {
			_ = f.Close()
		}
		if busy := errors.Is(err, syscall.ETXTBSY); busy != (tries <= 2) {
			t.Errorf("run %d: %v", tries, err)
		}
	})
	if _, err := r.p.SetUp(t.Context(), pod("a"), someNetns, saved, nil); err != nil {
		t.Error(err)
	}
}

// told runs real processes, and is told how each run ended.
type told func(error)

func (o told) run(ctx context.Context, c command, left *sync.WaitGroup) (output, error) {
	out, err := groups{}.run(ctx, c, left)
	o(err)
	return out, err
}

func groupsBusy(path string) error {
	var left sync.WaitGroup
	_, err := groups{}.run(context.Background(), command{path: path}, &left)
	return err
}

func TestTextFileBusyIsTriedFiveTimesMore(t *testing.T) {
	for fails, want := range map[int]network.Code{5: network.OK, 6: network.Unknown} {
		r := newRig(t, false)
		r.install("main")
		r.write("10-net.conflist", oneConf("net", "1.0.0", `{"type":"main"}`))
		saved := r.plan(pod("a"))
		r.p.pause = time.Microsecond
		n := 0
		r.p.processes = inMemory{state: r.state, first: func(context.Context, command) (*output, error) {
			if n++; n <= fails {
				return nil, &os.PathError{Op: "fork/exec", Path: "main", Err: syscall.ETXTBSY}
			}
			return nil, nil
		}}
		_, err := r.p.SetUp(t.Context(), pod("a"), someNetns, saved, nil)
		wantCode(t, err, want)
	}
}
