package bridge

import (
	"net/netip"
	"os"
	"sync"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/internal/durable"
	"github.com/nodewright/nodewright/internal/hostports"
	"github.com/nodewright/nodewright/network"
)

var (
	_ network.Plugin  = (*Plugin)(nil)
	_ network.Checker = (*Plugin)(nil)
)

// Name is the plugin's name in records.
const Name = "bridge"

// Plugin is a [network.Plugin]. Its fields are in three groups: those that are
// constant after New, those guarded by the gate, and those guarded by mu. mu may be
// locked with the gate held, and is never held during a call of the kernel.
type Plugin struct {
	cfg  Config
	log  *zap.Logger
	ns   *os.File // the node's network namespace
	feat features
	dir  durable.Dir
	// boot is the ID of this boot of the machine. Settings of sysctl last until the next boot.
	boot   string
	events *inbox // what Run looks into

	// ops runs the calls that may outlive their callers.
	ops detached.Group[network.Result]
	// gate is held during changes of the node, except for changes of a single veth. It guards the
	// fields below.
	gate  chan struct{}
	links *links
	table *table
	state state
	fresh bool // New chose the subnet, and no pod uses it yet
	ready bool // the table and the bridge exist
	drop4 bool // forwarding between other interfaces is dropped; written under mu as well
	drop6 bool
	index int // index of the bridge
	mtu   int
	held  hostports.Held

	mu        sync.Mutex
	recovered bool
	name      string // name of the bridge
	subnet    netip.Prefix
	subnet6   netip.Prefix
	addrs     *addresses
	number    uint64
	// pods has every attachment by ID, from its Plan to the end of its TearDown.
	pods   map[string]*pod
	claims map[claim]string // to IDs
	// busy has a channel for each ID with a running call. The channel is closed at the end of the
	// call.
	busy map[string]chan struct{}
	own  []uint32 // netlink ports of this plugin's sockets, the latest last
	// bridgeIndex equals index. It is for readers that are not in the gate.
	bridgeIndex uint32
	broken      error // why no pod can be attached
	working     int   // calls that may outlive their callers
	closed      bool
	looked      bool // Run has checked the table
	notes       notes
}

// pod is an attachment in memory. Plugin.mu guards serving and guarded; the rest does not
// change once it is in the map.
type pod struct {
	plan
	label    string // name of the pod for messages
	forwards []forward
	warnings []string
	serving  bool // the table has the pod's host ports
	guarded  bool // the table has the pod's addresses
}

// Close closes the sockets. The network of pods is not changed. It must not be called
// while another method runs. If an abandoned call still runs, the sockets are closed
// when it ends. It does not block.
func (p *Plugin) Close() {
	p.mu.Lock()
	p.closed = true
	idle := p.working == 0
	p.mu.Unlock()
	if idle {
		p.closeSockets()
	}
}

// begin counts a call that may outlast its caller. The caller must call end afterwards.
// After Close, begin returns Unavailable.
func (p *Plugin) begin() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return network.Errorf(network.Unavailable, "bridge network: it is closed")
	}
	p.working++
	return nil
}

// end is the counterpart of begin. The last call after a Close closes the sockets.
func (p *Plugin) end() {
	p.mu.Lock()
	p.working--
	last := p.closed && p.working == 0
	p.mu.Unlock()
	if last {
		p.closeSockets()
	}
}

// closeSockets is called once, by Close or by the last end. It also works for a Plugin that New did
// not complete.
func (p *Plugin) closeSockets() {
	if p.links != nil {
		p.links.close()
		p.links = nil
	}
	if p.table != nil {
		p.table.close()
	}
	p.held.Close()
	_ = p.ns.Close()
}

// Name returns "bridge".
func (p *Plugin) Name() string { return Name }

// Durable returns false: all state is in the kernel and lost at a boot, so that
// records need no sync before SetUp.
func (p *Plugin) Durable() bool { return false }

// Status returns nil if a pod can be attached. It returns the stored result of the
// last attempt, and does not block.
func (p *Plugin) Status() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.broken
}

// setBroken sets the result of Status, and reports whether the result has changed.
// Errors are compared by their texts.
func (p *Plugin) setBroken(err error) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed = (err == nil) != (p.broken == nil) || err != nil && err.Error() != p.broken.Error()
	p.broken = err
	return changed
}
