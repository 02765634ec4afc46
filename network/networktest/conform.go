package networktest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nodewright/nodewright/network"
)

// Subject is a plugin that Conform tests. New is required.
type Subject struct {
	// New returns the plugin of a newly started agent, always with the same configuration. State
	// of an earlier plugin of the same test still exists.
	New func(t *testing.T) network.Plugin
	// Netns creates a network namespace at path; remove removes the namespace. If Netns is nil,
	// SetUp gets a path that does not exist.
	Netns func(t *testing.T) (path string, remove func())
	// State returns a text that describes the state of the plugin outside of its memory
	// and of the namespaces. The test compares the texts before and after. Without
	// State, the test does not check what the plugin leaves behind. The test waits a
	// moment for the kernel to clean up after a namespace.
	State func(t *testing.T) string
	// Timeout is the time limit of a call on a slow machine. The default is 2 minutes. Half of
	// it is the limit of calls that must not wait, and of calls whose context has ended.
	Timeout time.Duration
}

const defaultTimeout = 2 * time.Minute

// soon returns the time limit for a call that must not wait.
func (s Subject) soon() time.Duration { return s.Timeout / 2 }

// Conform tests the contract of [network.Plugin].
func Conform(t *testing.T, s Subject) {
	s.Timeout = cmp.Or(s.Timeout, defaultTimeout)
	for _, c := range []struct {
		name string
		test func(c *conformance)
	}{
		{"Names", (*conformance).names},
		{"StatusDoesNotWait", (*conformance).statusDoesNotWait},
		{"RunEnds", (*conformance).runEnds},
		{"PlanChangesNothing", (*conformance).planChangesNothing},
		{"TearDownWithoutSetUp", (*conformance).tearDownWithoutSetUp},
		{"SetUpAndTearDown", (*conformance).setUpAndTearDown},
		{"TearDownIsIdempotent", (*conformance).tearDownIsIdempotent},
		{"TearDownWithoutNamespace", (*conformance).tearDownWithoutNamespace},
		{"SetUpAgain", (*conformance).setUpAgain},
		{"SetUpThatIsCutOff", (*conformance).setUpThatIsCutOff},
		{"ManyAtOnce", (*conformance).manyAtOnce},
		{"AnotherAgent", (*conformance).anotherAgent},
		{"AnotherAgentTearsDown", (*conformance).anotherAgentTearsDown},
		{"ArgumentsStay", (*conformance).argumentsStay},
		{"Check", (*conformance).check},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.test(&conformance{t: t, s: s, before: s.state(t)})
		})
	}
}

func (s Subject) state(t *testing.T) string {
	if s.State == nil {
		return ""
	}
	return s.State(t)
}

type conformance struct {
	t      *testing.T
	s      Subject
	before string
}

func (c *conformance) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), c.s.Timeout)
	c.t.Cleanup(cancel)
	return ctx
}

// start returns the plugin of a new agent that has found these attachments.
func (c *conformance) start(kept ...network.Kept) network.Plugin {
	c.t.Helper()
	p := c.s.New(c.t)
	if err := p.Recovered(c.context(), kept); err != nil {
		c.t.Fatalf("Recovered: %v", err)
	}
	return p
}

// unchanged fails the test if State has another result than at the beginning.
func (c *conformance) unchanged() {
	c.t.Helper()
	now := c.s.state(c.t)
	for begin := time.Now(); now != c.before && time.Since(begin) < c.s.soon(); now = c.s.state(c.t) {
		time.Sleep(20 * time.Millisecond) // for the kernel
	}
	if now != c.before {
		c.t.Errorf("state is\n%s\nwant, as before,\n%s", now, c.before)
	}
}

// pod is an attachment that is made step by step.
type pod struct {
	c     *conformance
	a     network.Attachment
	netns string
	gone  func() // removes the namespace
	saved []byte
}

func (c *conformance) pod(i int) *pod {
	p := &pod{c: c, a: network.Attachment{
		ID: fmt.Sprintf("conform%056x", i), Namespace: "default", Name: fmt.Sprint("pod-", i), UID: fmt.Sprint("uid-", i), Hostname: fmt.Sprint("pod-", i),
		Annotations: map[string]string{"example.com/note": "a; b=c"}, Labels: map[string]string{"app": "web"},
	}}
	if c.s.Netns != nil {
		path, remove := c.s.Netns(c.t)
		p.netns, p.gone = path, sync.OnceFunc(remove)
	} else {
		p.netns, p.gone = filepath.Join(c.t.TempDir(), "netns"), func() {}
	}
	c.t.Cleanup(p.gone)
	return p
}

func (p *pod) plan(plugin network.Plugin) *pod {
	p.c.t.Helper()
	saved, err := plugin.Plan(p.c.context(), p.a)
	if err != nil {
		p.c.t.Fatalf("Plan of %s: %v", p.a.ID, err)
	}
	if len(saved) > 256<<10 {
		p.c.t.Errorf("Plan returned %d bytes; want at most 256 KiB", len(saved))
	}
	p.saved = saved
	return p
}

// guard returns the guard that a Network passes to a Durable plugin.
func (p *pod) guard(of network.Plugin) *os.File {
	if !of.Durable() {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(p.c.t.TempDir(), "guard"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		p.c.t.Error(err)
		return nil
	}
	p.c.t.Cleanup(func() { _ = f.Close() })
	return f
}

func (p *pod) trySetUp(ctx context.Context, of network.Plugin) (network.Result, error) {
	return of.SetUp(ctx, p.a, p.netns, p.saved, p.guard(of))
}

func (p *pod) setUp(of network.Plugin) network.Result {
	p.c.t.Helper()
	r, err := p.trySetUp(p.c.context(), of)
	if err != nil {
		p.c.t.Errorf("SetUp of %s: %v", p.a.ID, err)
		return r
	}
	if len(r.IPs) == 0 {
		p.c.t.Errorf("SetUp of %s returned no address", p.a.ID)
	}
	for _, ip := range r.IPs {
		if !ip.IsValid() || ip.IsUnspecified() || ip.IsLoopback() {
			p.c.t.Errorf("SetUp of %s returned the address %s", p.a.ID, ip)
		}
	}
	return r
}

// tearDown calls TearDown while the namespace exists.
func (p *pod) tearDown(of network.Plugin) {
	p.c.t.Helper()
	p.tearDownWith(of, p.netns)
}

// tearDownWithout calls TearDown after the namespace was removed.
func (p *pod) tearDownWithout(of network.Plugin) {
	p.c.t.Helper()
	p.gone()
	p.tearDownWith(of, "")
}

func (p *pod) tearDownWith(of network.Plugin, netns string) {
	p.c.t.Helper()
	if err := of.TearDown(p.c.context(), p.a, netns, p.saved, p.guard(of)); err != nil {
		p.c.t.Errorf("TearDown of %s: %v", p.a.ID, err)
	}
}

func (p *pod) kept(r *network.Result) network.Kept {
	return network.Kept{Attachment: p.a, Netns: p.netns, Saved: p.saved, Result: r}
}

func (c *conformance) names() {
	a, b := c.s.New(c.t), c.s.New(c.t)
	if a.Name() == "" || len(a.Name()) > 64 || a.Name() != b.Name() {
		c.t.Errorf("names %q and %q; want the same, of 1 to 64 bytes", a.Name(), b.Name())
	}
	if a.Durable() != b.Durable() {
		c.t.Error("Durable differs between two plugins of the same kind; want the same value")
	}
}

func (c *conformance) statusDoesNotWait() {
	p := c.s.New(c.t)
	begin := time.Now()
	_ = p.Status() // before Recovered
	if err := p.Recovered(c.context(), nil); err != nil {
		c.t.Fatalf("Recovered: %v", err)
	}
	for range 1000 {
		_ = p.Status()
	}
	if took := time.Since(begin); took > c.s.soon() {
		c.t.Errorf("1,001 times Status took %v", took)
	}
}

func (c *conformance) runEnds() {
	p := c.start()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx, func() {}) }()
	cancel()
	select {
	case err := <-done:
		if err != nil && !errors.Is(err, context.Canceled) {
			c.t.Errorf("Run: %v", err)
		}
	case <-time.After(c.s.soon()):
		c.t.Errorf("Run has not returned %v after its context ended", c.s.soon())
	}
}

func (c *conformance) planChangesNothing() {
	p := c.start()
	after := c.s.state(c.t)
	c.pod(1).plan(p)
	if now := c.s.state(c.t); now != after {
		c.t.Errorf("state is\n%s\nwant, as before Plan,\n%s", now, after)
	}
}

func (c *conformance) tearDownWithoutSetUp() {
	p := c.start()
	one, two := c.pod(1).plan(p), c.pod(2).plan(p)
	one.tearDown(p)
	two.tearDownWithout(p)
	one.tearDownWithout(p)
	c.unchanged()
}

func (c *conformance) setUpAndTearDown() {
	p := c.start()
	one, two := c.pod(1).plan(p), c.pod(2).plan(p)
	a, b := one.setUp(p), two.setUp(p)
	for _, ip := range a.IPs {
		if slices.Contains(b.IPs, ip) {
			c.t.Errorf("both have %s", ip)
		}
	}
	one.tearDown(p)
	two.tearDown(p)
	c.unchanged()
}

func (c *conformance) tearDownIsIdempotent() {
	p := c.start()
	one := c.pod(1).plan(p)
	one.setUp(p)
	for range 3 {
		one.tearDown(p)
	}
	one.tearDownWithout(p)
	c.unchanged()
}

func (c *conformance) tearDownWithoutNamespace() {
	p := c.start()
	one := c.pod(1).plan(p)
	one.setUp(p)
	one.tearDownWithout(p)
	one.tearDownWithout(p)
	c.unchanged()
}

func (c *conformance) setUpAgain() {
	p := c.start()
	for range 3 {
		one := c.pod(1).plan(p)
		one.setUp(p)
		one.tearDown(p)
	}
	c.unchanged()
}

// setUpThatIsCutOff cancels SetUp. TearDown has to undo it, whether SetUp fails or not, and
// another SetUp has to work afterwards.
func (c *conformance) setUpThatIsCutOff() {
	p := c.start()
	ended, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	one := c.pod(1).plan(p)
	begin := time.Now()
	_, _ = one.trySetUp(ended, p)
	if took := time.Since(begin); took > c.s.soon() {
		c.t.Errorf("SetUp with a context that had ended took %v", took)
	}
	one.tearDown(p)
	two := c.pod(2).plan(p)
	nowhere := *two
	nowhere.netns = filepath.Join(c.t.TempDir(), "nowhere")
	_, _ = nowhere.trySetUp(c.context(), p)
	nowhere.tearDownWith(p, "")
	c.unchanged()
	again := c.pod(1).plan(p)
	again.setUp(p)
	again.tearDown(p)
	c.unchanged()
}

func (c *conformance) manyAtOnce() {
	const many = 8
	p := c.start()
	var pods []*pod
	for i := range many {
		pods = append(pods, c.pod(i).plan(p))
	}
	var mu sync.Mutex
	taken := map[netip.Addr]string{}
	var wg sync.WaitGroup
	for _, one := range pods {
		wg.Go(func() {
			r := one.setUp(p)
			mu.Lock()
			defer mu.Unlock()
			for _, ip := range r.IPs {
				if other, ok := taken[ip]; ok {
					c.t.Errorf("%s and %s have %s", other, one.a.ID, ip)
				}
				taken[ip] = one.a.ID
			}
		})
	}
	wg.Wait()
	for _, one := range pods {
		wg.Go(func() { one.tearDown(p) })
	}
	wg.Wait()
	c.unchanged()
}

// anotherAgent restarts the agent: attachments keep their addresses.
func (c *conformance) anotherAgent() {
	p := c.start()
	one := c.pod(1).plan(p)
	r := one.setUp(p)
	p = c.start(one.kept(&r))
	for i := 2; i < 6; i++ {
		other := c.pod(i).plan(p)
		for _, ip := range other.setUp(p).IPs {
			if slices.Contains(r.IPs, ip) {
				c.t.Errorf("%s was given %s, which %s has", other.a.ID, ip, one.a.ID)
			}
		}
		defer other.tearDown(p)
	}
	one.tearDown(p)
}

// anotherAgentTearsDown calls TearDown of a new plugin, which knows only the saved
// plan.
func (c *conformance) anotherAgentTearsDown() {
	p := c.start()
	done, planned := c.pod(1).plan(p), c.pod(2).plan(p)
	done.setUp(p)
	p = c.start(done.kept(nil), planned.kept(nil))
	done.tearDownWithout(p)
	planned.tearDownWithout(p)
	c.unchanged()
}

func (c *conformance) argumentsStay() {
	p := c.start()
	one, same := c.pod(1), c.pod(1)
	one.plan(p)
	saved := bytes.Clone(one.saved)
	one.setUp(p)
	one.tearDown(p)
	if !reflect.DeepEqual(one.a, same.a) {
		c.t.Errorf("the attachment was changed to %+v", one.a)
	}
	if !bytes.Equal(saved, one.saved) {
		c.t.Error("the plugin changed the saved plan that it was given")
	}
}

func (c *conformance) check() {
	p := c.start()
	checker, ok := p.(network.Checker)
	if !ok {
		c.t.Skip("it is no Checker")
	}
	one := c.pod(1).plan(p)
	r := one.setUp(p)
	if err := checker.Check(c.context(), one.kept(&r), one.guard(p)); err != nil {
		c.t.Errorf("Check: %v", err)
	}
	one.tearDown(p)
	c.unchanged()
}
