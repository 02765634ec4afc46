package networktest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"sync"

	"github.com/nodewright/nodewright/network"
)

// Plugin allocates addresses and counts them. SetHook, Result and StatusIs make it
// fail, hang or return wrong results. The zero value works. Its addresses outlive a
// Network, like those of a real plugin, so that one Plugin may be used by several
// Networks, one after the other.
type Plugin struct {
	NameIs  string // result of Name; the default is "test"
	Lasting bool   // result of Durable

	// Result changes the result of SetUp. If Result is nil, the result is not changed.
	Result func(r network.Result) network.Result
	// StatusIs returns the result of Status. If StatusIs is nil, Status returns nil.
	StatusIs func() error

	mu    sync.Mutex
	hook  func(ctx context.Context, call, id string) error
	next  uint32
	given map[string]netip.Addr // by ID
	calls []string
	busy  map[string]string
	wrong []error
	kept  []network.Kept
}

var (
	_ network.Plugin    = (*Plugin)(nil)
	_ network.Checker   = (*Plugin)(nil)
	_ network.Collector = (*Plugin)(nil)
)

// Name returns NameIs, or "test".
func (p *Plugin) Name() string {
	if p.NameIs == "" {
		return "test"
	}
	return p.NameIs
}

// Durable returns Lasting.
func (p *Plugin) Durable() bool { return p.Lasting }

// SetHook sets a function that is called at the beginning of each call, with the call's name,
// such as "SetUp", and the ID. The ID is "" for Recovered and Collect. If the function returns an
// error, the call returns it. The function may block.
func (p *Plugin) SetHook(f func(ctx context.Context, call, id string) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hook = f
}

// begin records a call. If another call for the ID is running, it records an error for
// Err.
func (p *Plugin) begin(ctx context.Context, call, id string) (end func(), err error) {
	p.mu.Lock()
	if other, ok := p.busy[id]; ok && id != "" {
		p.wrong = append(p.wrong, fmt.Errorf("%s of %s was called during %s", call, id, other))
	}
	if p.busy == nil {
		p.busy = map[string]string{}
	}
	p.busy[id] = call
	p.calls = append(p.calls, call+" "+id)
	if _, ok := ctx.Deadline(); !ok {
		p.wrong = append(p.wrong, fmt.Errorf("%s of %s has no deadline", call, id))
	}
	hook := p.hook
	p.mu.Unlock()
	end = func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.busy, id)
	}
	if hook == nil {
		return end, nil
	}
	defer func() {
		if r := recover(); r != nil {
			end()
			panic(r)
		}
	}()
	return end, hook(ctx, call, id)
}

// Plan returns the ID.
func (p *Plugin) Plan(ctx context.Context, a network.Attachment) ([]byte, error) {
	end, err := p.begin(ctx, "Plan", a.ID)
	defer end()
	if err != nil {
		return nil, err
	}
	return []byte("plan of " + a.ID), nil
}

func (p *Plugin) checkSaved(a network.Attachment, saved []byte) {
	if string(saved) == "plan of "+a.ID {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wrong = append(p.wrong, fmt.Errorf("a call for %s got the saved plan %.80q; want the plan that Plan returned for it", a.ID, saved))
}

// SetUp allocates an address. It does so even if the hook fails, since a failed call may have
// changed anything.
func (p *Plugin) SetUp(ctx context.Context, a network.Attachment, netns string, saved []byte, guard *os.File) (network.Result, error) {
	end, err := p.begin(ctx, "SetUp", a.ID)
	defer end()
	p.checkSaved(a, saved)
	p.mu.Lock()
	defer p.mu.Unlock()
	if netns == "" || (guard != nil) != p.Lasting {
		p.wrong = append(p.wrong, fmt.Errorf("SetUp of %s got the namespace %q, and a guard: %t", a.ID, netns, guard != nil))
	}
	if p.given == nil {
		p.given = map[string]netip.Addr{}
	}
	p.next++
	ip := netip.AddrFrom4([4]byte{10, byte(p.next >> 16), byte(p.next >> 8), byte(p.next)})
	p.given[a.ID] = ip
	if err != nil {
		return network.Result{}, err
	}
	r := network.Result{IPs: []netip.Addr{ip}, Extra: []byte(`{"by":"networktest"}`)}
	if p.Result != nil {
		r = p.Result(r)
	}
	return r, nil
}

// TearDown frees an address.
func (p *Plugin) TearDown(ctx context.Context, a network.Attachment, _ string, saved []byte, guard *os.File) error {
	end, err := p.begin(ctx, "TearDown", a.ID)
	defer end()
	p.checkSaved(a, saved)
	p.mu.Lock()
	defer p.mu.Unlock()
	if (guard != nil) != p.Lasting {
		p.wrong = append(p.wrong, fmt.Errorf("TearDown of %s got a guard: %t", a.ID, guard != nil))
	}
	if err != nil {
		return err
	}
	delete(p.given, a.ID)
	return nil
}

// Check only calls the hook.
func (p *Plugin) Check(ctx context.Context, k network.Kept, _ *os.File) error {
	end, err := p.begin(ctx, "Check", k.Attachment.ID)
	defer end()
	return err
}

// Collect frees the addresses of attachments that are not in keep.
func (p *Plugin) Collect(ctx context.Context, keep []network.Kept) error {
	end, err := p.begin(ctx, "Collect", "")
	defer end()
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.given, func(id string, _ netip.Addr) bool {
		return !slices.ContainsFunc(keep, func(k network.Kept) bool { return k.Attachment.ID == id })
	})
	return nil
}

// Status returns the result of StatusIs.
func (p *Plugin) Status() error {
	if p.StatusIs == nil {
		return nil
	}
	return p.StatusIs()
}

// Recovered stores the list kept.
func (p *Plugin) Recovered(ctx context.Context, kept []network.Kept) error {
	end, err := p.begin(ctx, "Recovered", "")
	defer end()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = kept
	return err
}

// Run calls changed once, and waits.
func (p *Plugin) Run(ctx context.Context, changed func()) error {
	changed()
	<-ctx.Done()
	return nil
}

// Given returns the allocated addresses, by ID.
func (p *Plugin) Given() map[string]netip.Addr {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.given)
}

// Take allocates an address, as if its record was lost.
func (p *Plugin) Take(id string, ip netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.given == nil {
		p.given = map[string]netip.Addr{}
	}
	p.given[id] = ip
}

// Calls returns and clears the recorded calls, as "SetUp a" for the ID a.
func (p *Plugin) Calls() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	calls := p.calls
	p.calls = nil
	return calls
}

// Kept returns the argument of the last Recovered.
func (p *Plugin) Kept() []network.Kept {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kept
}

// Err returns errors about wrong calls of a Network, such as two calls at a time
// for one ID.
func (p *Plugin) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(p.wrong...)
}
