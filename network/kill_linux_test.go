package network

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/nspin"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

var kills = flag.Int("kills", 20, "how often an agent is killed")

// victimVar says to a test binary that it is an agent in this directory.
const victimVar = "NODEWRIGHT_NETWORK_VICTIM"

// victimPoint says at which of the points it is to die; 0 is never, and -1 is
// to take everything back instead.
const victimPoint = "NODEWRIGHT_NETWORK_POINT"

// filePlugin keeps addresses as files, which processes write that outlive their
// agent: a CNI plugin in small.
type filePlugin struct{ dir string }

func (filePlugin) Name() string                                         { return "file" }
func (filePlugin) Durable() bool                                        { return true }
func (filePlugin) Status() error                                        { return nil }
func (filePlugin) Recovered(context.Context, []Kept) error              { return nil }
func (filePlugin) Run(context.Context, func()) error                    { return nil }
func (filePlugin) Plan(_ context.Context, a Attachment) ([]byte, error) { return []byte(a.ID), nil }

// run runs a script that holds the guard. No two of them may run at a time for
// an ID.
func (p filePlugin) run(guard *os.File, id, script string) error {
	cmd := exec.Command("/bin/sh", "-c", `mkdir "busy-$1" 2>/dev/null || echo "$1" >> overlaps; sleep 0.00$2; `+script+`; rmdir "busy-$1"`,
		"sh", id, strconv.Itoa(rand.IntN(9)))
	cmd.Dir = p.dir
	cmd.ExtraFiles = []*os.File{guard}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	atPoint("plugin")
	return errors.Join(WriteGuard(guard, cmd.Process.Pid), cmd.Wait())
}

func (p filePlugin) SetUp(_ context.Context, a Attachment, netns string, saved []byte, guard *os.File) (Result, error) {
	if _, err := os.Stat(netns); err != nil || string(saved) != a.ID {
		return Result{}, fmt.Errorf("saved %q, %w", saved, err)
	}
	if err := p.run(guard, a.ID, `: > "ip-$1"`); err != nil {
		return Result{}, err
	}
	return Result{IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}, nil
}

func (p filePlugin) TearDown(_ context.Context, a Attachment, _ string, saved []byte, guard *os.File) error {
	if string(saved) != a.ID {
		return fmt.Errorf("saved %q", saved)
	}
	return p.run(guard, a.ID, `rm -f "ip-$1"`)
}

// victim is an agent that attaches and detaches until it dies.
func victim() int {
	dir := os.Getenv(victimVar)
	point, _ := strconv.Atoi(os.Getenv(victimPoint))
	var passed atomic.Int64
	atPoint = func(string) {
		if passed.Add(1) == int64(point) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	n, err := New(Config{
		Plugins: []Plugin{filePlugin{filepath.Join(dir, "plugin")}}, StateDir: filepath.Join(dir, "state"), NetnsDir: filepath.Join(dir, "netns"),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	go func() { _ = n.Run(ctx) }()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for ctx.Err() == nil && point >= 0 {
				id := fmt.Sprint("p", rand.IntN(5))
				if rand.IntN(2) == 0 {
					_, _ = n.Attach(ctx, Attachment{ID: id})
				} else {
					_ = n.Detach(ctx, id)
				}
			}
		})
	}
	wg.Wait()
	if point >= 0 {
		return 1 // it did not die
	}
	for i := range 5 {
		if err := n.Detach(ctx, fmt.Sprint("p", i)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	if l := n.List(); len(l) > 0 {
		fmt.Fprintf(os.Stderr, "left: %+v\n", l)
		return 1
	}
	return 0
}

// An agent that is killed at any moment leaves nothing that the next one does
// not take back, and no two plugin calls run beside each other.
func TestKilledAgents(t *testing.T) {
	plugintest.RequireMounts(t)
	dir := t.TempDir()
	for _, d := range []string{"plugin", "netns"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := nspin.ShareDir(filepath.Join(dir, "netns")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(filepath.Join(dir, "netns"), unix.MNT_DETACH) })
	agent := func(point int) (*exec.Cmd, *bytes.Buffer) {
		var out bytes.Buffer
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), victimVar+"="+dir, victimPoint+"="+strconv.Itoa(point))
		cmd.Stderr = &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, &out
	}
	for i := range *kills {
		point := 0
		if i%3 > 0 {
			point = 1 + rand.IntN(60)
		}
		cmd, out := agent(point)
		if point == 0 { // at any moment at all
			time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
			_ = cmd.Process.Kill()
		}
		if err := cmd.Wait(); cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("agent %d, point %d: %v\n%s", i, point, err, out)
		}
	}
	cmd, out := agent(-1)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, d := range []string{"plugin", "netns", "state/records", "state/guards"} {
		left, err := os.ReadDir(filepath.Join(dir, d))
		if err != nil || len(left) > 0 {
			t.Errorf("%s has %v, %v", d, left, err)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, dir+"/") && !strings.Contains(line, " "+filepath.Join(dir, "netns")+" ") {
			t.Errorf("mount is left: %s", line)
		}
	}
}
