package network_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nodewright/nodewright/network"
)

var (
	realKills = flag.Int("realkills", 24, "how often TestKilledAgentsOfRealNetworks kills an agent, for each network")
	reboots   = flag.Int("reboots", 3, "how often its machine reboots meanwhile")
)

// realPods is how many IDs there are.
const realPods = 6

// realAgent is an agent that attaches and detaches pods until it dies.
type realAgent struct {
	site
	Boot  string
	Point int  // at which of the points it dies; 0 is never
	Last  bool // it takes everything back instead, and ends
}

var realAgentJob = newJob("agent", (realAgent).live)

func (a realAgent) live() error {
	var passed atomic.Int64
	if a.Point > 0 {
		network.SetPoint(func(string) {
			if passed.Add(1) == int64(a.Point) {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
		})
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	n, err := a.network(a.Boot)
	if err != nil {
		return err
	}
	go func() { _ = n.Run(ctx) }()
	for n.Status() != nil {
		if ctx.Err() != nil {
			return n.Status()
		}
		time.Sleep(time.Millisecond)
	}
	fmt.Println("ready")
	if a.Last {
		var errs []error
		for i := range realPods {
			errs = append(errs, n.Detach(ctx, fmt.Sprint("p", i)))
		}
		if l := n.List(); len(l) > 0 {
			errs = append(errs, fmt.Errorf("attachments are left: %+v", l))
		}
		return errors.Join(errs...)
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for ctx.Err() == nil {
				var err error
				i := rand.IntN(realPods)
				id := fmt.Sprint("p", i)
				if rand.IntN(2) == 0 {
					_, err = n.Attach(ctx, network.Attachment{ID: id, Name: id, Ports: []network.Port{
						{Protocol: "tcp", HostPort: uint16(8000 + i), ContainerPort: 80}, {Protocol: "udp", HostPort: uint16(8000 + i), ContainerPort: 80},
					}})
					if a.Kind == "cni" {
						err = nil // portmap fails some that come first at once, which are taken back
					}
				} else {
					err = n.Detach(ctx, id)
				}
				if err != nil {
					fmt.Println("failed", id, err)
				}
			}
		})
	}
	wg.Wait()
	return errors.New("it was not killed")
}

// realBoot is one boot of a machine on which agents are killed.
type realBoot struct {
	site
	Boot  string
	Kills int
	Last  bool // in the end everything is taken back
}

var realBootJob = newJob("boot", (realBoot).run)

func (b realBoot) run() error {
	if err := bootUp(b.Dir); err != nil {
		return err
	}
	before, err := b.traces(false)
	if err != nil {
		return err
	}
	if len(before) > 0 {
		return fmt.Errorf("a machine that was booted has %q", before)
	}
	for i := range b.Kills {
		if err := b.kill(i); err != nil {
			return fmt.Errorf("agent %d: %w", i, err)
		}
	}
	if !b.Last {
		return nil // all that runs ends with this process, as by a power failure
	}
	cmd, said, err := process(realAgentJob, realAgent{site: b.site, Boot: b.Boot, Last: true})
	if err != nil {
		return err
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the last agent: %w: %s", err, said)
	}
	left, err := b.traces(true)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("left: %q", left)
	}
	return err
}

// kill starts an agent and has it die, at a point or at any moment at all.
func (b realBoot) kill(i int) error {
	a := realAgent{site: b.site, Boot: b.Boot}
	if i%3 > 0 {
		a.Point = 1 + rand.IntN(40)
	}
	cmd, said, err := process(realAgentJob, a)
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(io.LimitReader(out, 1<<20))
	var failed []string
	for lines.Scan() {
		if lines.Text() == "ready" && a.Point == 0 {
			time.AfterFunc(time.Duration(rand.IntN(400))*time.Millisecond, func() { _ = cmd.Process.Kill() })
		} else if lines.Text() != "ready" {
			failed = append(failed, lines.Text())
		}
	}
	err = cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		return fmt.Errorf("point %d: %w: %s", a.Point, err, said)
	}
	if len(failed) > 0 {
		return fmt.Errorf("point %d: %q", a.Point, failed)
	}
	return nil
}

// traces are what pods' networks leave on a machine: namespaces, interfaces,
// rules, elements and, on its disk, addresses and records. What all pods share
// does not count.
func (s site) traces(disk bool) ([]string, error) {
	var left []string
	var errs []error
	dirs := []string{"/run/netns"}
	if disk {
		dirs = append(dirs, s.path("state/records"), s.path("state/guards"), s.path("leases/net"), s.path("cache/results"))
	}
	for _, dir := range dirs {
		names, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, e := range names {
			if e.Name() != "lock" && !strings.HasPrefix(e.Name(), "last_reserved_ip") {
				left = append(left, filepath.Join(dir, e.Name()))
			}
		}
	}
	links, err := prints("ip", "-o", "link")
	errs = append(errs, err)
	for line := range strings.Lines(links) {
		if strings.Contains(line, "veth") || strings.Contains(line, ": nw") && !strings.Contains(line, ": nw0:") {
			left = append(left, strings.TrimSpace(line))
		}
	}
	rules, err := prints("nft", "list", "ruleset")
	errs = append(errs, err)
	for line := range strings.Lines(rules) { // of a pod there is its address or its host port
		if mentionsPod(line) {
			left = append(left, strings.TrimSpace(line))
		}
	}
	mounts, err := netnsMounts()
	for _, line := range mounts {
		if !slices.Contains(hiddenMounts, line) {
			left = append(left, line)
		}
	}
	return left, errors.Join(append(errs, err)...)
}

// mentionsPod reports whether a line of a ruleset is about one pod: by its host
// port, or by an address of the networks that is not the network itself.
func mentionsPod(line string) bool {
	if strings.Contains(line, "elements =") || strings.Contains(line, "CNI-DN-") || strings.Contains(line, "CNI-SN-") {
		return true
	}
	return slices.ContainsFunc(strings.Fields(line), func(word string) bool {
		word = strings.Trim(word, ",")
		return len(word) == 4 && strings.HasPrefix(word, "800") || strings.HasPrefix(word, "10.77.0.") && !strings.Contains(word, "/") ||
			strings.HasPrefix(word, "10.214.0.") && !strings.Contains(word, "/")
	})
}

// Agents over the bridge and over the public plugins are killed at points within
// their operations and at any moment, on machines that lose their power now and
// then. In the end nothing is left of any pod.
func TestKilledAgentsOfRealNetworks(t *testing.T) {
	plugins := needMachine(t, true)
	kills, reboots := *realKills, *reboots
	if testing.Short() {
		kills, reboots = min(kills, 4), min(reboots, 1)
	}
	for _, kind := range []string{"bridge", "cni"} {
		t.Run(kind, func(t *testing.T) {
			s := site{kind, t.TempDir(), plugins}
			boots := reboots + 1
			begin := time.Now()
			for i := range boots {
				some := kills/boots + min(1, max(0, kills%boots-i))
				onMachine(t, realBootJob, realBoot{s, fmt.Sprint("boot", i), some, i == boots-1})
			}
			t.Logf("%d kills and %d reboots in %v: nothing is left", kills, reboots, time.Since(begin))
		})
	}
}

// What the test above looks for is there while a pod is.
func TestTracesAreSeen(t *testing.T) {
	plugins := needMachine(t, true)
	for _, kind := range []string{"bridge", "cni"} {
		onMachine(t, tracesJob, site{kind, t.TempDir(), plugins})
	}
}

var tracesJob = newJob("traces", func(s site) error {
	if err := bootUp(s.Dir); err != nil {
		return err
	}
	n, err := s.network("boot")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	go func() { _ = n.Run(ctx) }()
	for n.Status() != nil && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if _, err := n.Attach(ctx, network.Attachment{ID: "p0", Ports: []network.Port{{Protocol: "tcp", HostPort: 8000, ContainerPort: 80}}}); err != nil {
		return err
	}
	left, err := s.traces(true)
	if err != nil {
		return err
	}
	want := []string{"/run/netns/nodewright-", "state/records/", "8000"}
	if s.Kind == "cni" {
		want = append(want, "veth", "leases/net/10.77.0.", "CNI-DN-", "cache/results/net-p0")
	} else {
		want = append(want, ": nw", "elements =")
	}
	all := strings.Join(left, "\n")
	for _, w := range want {
		if !strings.Contains(all, w) {
			return fmt.Errorf("no %q in\n%s", w, all)
		}
	}
	if err := n.Detach(ctx, "p0"); err != nil {
		return err
	}
	if left, err = s.traces(true); err == nil && len(left) > 0 {
		err = fmt.Errorf("left: %q", left)
	}
	return err
})
