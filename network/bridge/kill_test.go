package bridge

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/network"
)

var kills = flag.Int("kills", 30, "how often TestKilledAgentsLeaveNothing kills one")

const (
	childDir   = "NODEWRIGHT_BRIDGE_TEST_DIR"   // makes of the test the agent that is to be killed, which works there
	childPoint = "NODEWRIGHT_BRIDGE_TEST_POINT" // at which of the points it kills itself; 0 is none
	childPods  = 6
)

// records are what the core keeps of attachments: here a file for each.
type records string

func (r records) file(id string) string { return filepath.Join(string(r), "records", id) }

func (r records) put(k network.Kept) error {
	b, err := json.Marshal(k)
	if err != nil {
		return err
	}
	temp := r.file("." + k.Attachment.ID)
	return errors.Join(os.WriteFile(temp, b, 0o600), os.Rename(temp, r.file(k.Attachment.ID)))
}

func (r records) all() ([]network.Kept, error) {
	entries, err := os.ReadDir(filepath.Join(string(r), "records"))
	var all []network.Kept
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		b, readErr := os.ReadFile(r.file(e.Name()))
		var k network.Kept
		err = errors.Join(err, readErr, json.Unmarshal(b, &k))
		all = append(all, k)
	}
	return all, err
}

// startAgent makes a plugin and has it take over what the records say.
func (r records) startAgent(node *os.File) (p *Plugin, kept []network.Kept, err error) {
	if err := withinNetns(node, func() error {
		var err error
		p, err = New(Config{StateDir: filepath.Join(string(r), "state"), ResolvConf: []string{}, Log: zap.NewNop()})
		return err
	}); err != nil {
		return nil, nil, err
	}
	if kept, err = r.all(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	return p, kept, errors.Join(p.Recovered(ctx, kept), p.Status())
}

func (r records) attach(p *Plugin, a network.Attachment, netns string) error {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	saved, err := p.Plan(ctx, a)
	if err != nil {
		return err
	}
	k := network.Kept{Attachment: a, Netns: netns, Saved: saved}
	if err := r.put(k); err != nil {
		return err
	}
	result, err := p.SetUp(ctx, a, netns, saved, nil)
	if err != nil {
		return err
	}
	k.Result = &result
	return r.put(k)
}

func (r records) detach(p *Plugin, k network.Kept) error {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	k.Result = nil
	if err := r.put(k); err != nil {
		return err
	}
	if err := p.TearDown(ctx, k.Attachment, k.Netns, k.Saved, nil); err != nil {
		return err
	}
	return os.Remove(r.file(k.Attachment.ID))
}

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if n, err := strconv.Atoi(os.Getenv(childPoint)); err == nil && n > 0 {
			var passed atomic.Int64
			atPoint = func(string) {
				if passed.Add(1) == int64(n) {
					_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				}
			}
		}
		if err := agentThatIsKilled(records(dir)); err != nil {
			fmt.Println("failed:", err)
		}
		return
	}
	os.Exit(m.Run())
}

// agentThatIsKilled attaches and detaches pods for ever.
func agentThatIsKilled(r records) error {
	dir := string(r)
	node, err := openNetns(filepath.Join(dir, "netns-node"), true)
	if err != nil {
		return err
	}
	p, kept, err := r.startAgent(node)
	if err != nil {
		return err
	}
	has := map[string]network.Kept{}
	for _, k := range kept {
		has[k.Attachment.ID] = k
	}
	fmt.Println("ready")
	var all sync.WaitGroup
	for i := range childPods {
		all.Go(func() {
			id := fmt.Sprint("pod", i)
			k, there := has[id]
			for n := 0; ; n++ {
				if there {
					if err := r.detach(p, k); err != nil {
						fmt.Println("failed", id, err)
					}
				}
				k = network.Kept{Attachment: network.Attachment{ID: id, Ports: []network.Port{
					port("tcp", uint16(9000+i), 80), port("udp", uint16(9000+i), 80)}}, Netns: filepath.Join(dir, "netns-"+id)}
				if err := r.attach(p, k.Attachment, k.Netns); err != nil {
					fmt.Println("failed", id, err)
				}
				b, err := os.ReadFile(r.file(id))
				if err == nil {
					err = json.Unmarshal(b, &k)
				}
				if err != nil {
					fmt.Println("failed", id, err)
				}
				there = true
			}
		})
	}
	all.Wait()
	return nil
}

func TestKilledAgentsLeaveNothing(t *testing.T) {
	l := newLab(t)
	r := records(l.dir)
	if err := os.Mkdir(filepath.Join(l.dir, "records"), 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range childPods {
		l.namespace(fmt.Sprint("pod", i))
	}
	n := *kills
	if testing.Short() {
		n = min(n, 8)
	}
	for i := range n {
		cmd := exec.Command("/proc/self/exe")
		point := 0
		if i%2 > 0 {
			point = 1 + rand.IntN(60)
		}
		cmd.Env = append(os.Environ(), childDir+"="+l.dir, childPoint+"="+strconv.Itoa(point))
		out, err := cmd.StdoutPipe()
		if err == nil {
			cmd.Stderr = os.Stderr
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		ready := false
		for !ready && lines.Scan() {
			ready = lines.Text() == "ready"
			if strings.HasPrefix(lines.Text(), "failed") {
				t.Errorf("agent %d: %s", i, lines.Text())
			}
		}
		if point == 0 && ready { // at any moment at all
			time.AfterFunc(time.Duration(rand.IntN(150))*time.Millisecond, func() { _ = cmd.Process.Kill() })
		}
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "failed") {
				t.Errorf("agent %d: %s", i, lines.Text())
			}
		}
		if point == 0 && !ready {
			_ = cmd.Process.Kill()
		}
		_ = cmd.Wait()
		if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL || point == 0 && !ready {
			t.Fatalf("agent %d, point %d: ready %v, %v", i, point, ready, cmd.ProcessState)
		}
	}
	p, kept, err := r.startAgent(l.node)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	living := 0
	for _, k := range kept {
		if k.Result != nil {
			living++
		}
	}
	if !p.ready { // on a slow machine none came to its first pod
		if left := l.left(p); len(left) != 0 || len(kept) != 0 {
			t.Errorf("left: %v, and %d records", left, len(kept))
		}
		return
	}
	l.holds(p, 2*living)
	for _, k := range kept {
		if err := r.detach(p, k); err != nil {
			t.Error(err)
		}
	}
	l.holds(p, 0)
	if left := l.left(p); !slices.Equal(left, []string{"bridge nw0", "table"}) {
		t.Errorf("left: %v", left)
	}
	if n := p.addrs.inUse(); n != 0 || len(p.claims) != 0 || len(p.busy) != 0 {
		t.Errorf("%d addresses and %d ports in use, %d calls", n, len(p.claims), len(p.busy))
	}
	if err := p.Reset(l.ctx()); err != nil {
		t.Fatal(err)
	}
	if left := l.left(p); len(left) != 0 {
		t.Errorf("left after Reset: %v", left)
	}
}
