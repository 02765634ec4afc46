package status

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/wake"
)

// Machine reads the facts of the machine. It is called every few minutes, to detect added memory or
// processors. Calls do not overlap. ctx ends after 5 s; Facts should return then.
type Machine interface {
	Facts(ctx context.Context) (Facts, error)
}

// Runtime is the container runtime; *cristatus.Source implements it. A call has a
// deadline of 10 s; calls do not overlap.
type Runtime interface {
	// State reads the runtime's state. An error means that it did not answer.
	State(ctx context.Context) (RuntimeState, error)
}

// Images lists the node's images; *cristatus.Source implements it. Names are digests
// followed by tags. After an error the status has no images, and Images is called again
// after 10 s.
type Images interface {
	Images(ctx context.Context) ([]v1.ContainerImage, error)
}

// Pressures reports the pressure conditions; *eviction.Manager implements it. It is
// called often and must not block.
type Pressures interface {
	UnderPressure(v1.NodeConditionType) bool
}

// Network looks up names and addresses; Host implements it for this machine. Interfaces and
// Default must not block; Lookup must end when ctx does.
type Network interface {
	// Interfaces lists the addresses of the machine.
	Interfaces() ([]netip.Addr, error)
	// Default returns the source address of a family's default route, or the zero Addr if there
	// is none.
	Default(six bool) netip.Addr
	// Lookup returns the addresses of a name in DNS.
	Lookup(ctx context.Context, name string) ([]netip.Addr, error)
}

// Check is a health check of the node.
type Check struct {
	Name string // as in "PLEG"
	// Err is called every few seconds. It returns nil if the checked component is healthy.
	Err func() error
}

// Config configures a [Manager]. Hostname, Machine and Runtime are required,
// MaxPods positive; the zero value of every other field means the default named
// beside it. The functions are called often and from any goroutine: they must not
// block.
type Config struct {
	Hostname string       // see Hostname
	NodeIPs  []netip.Addr // see ParseNodeIPs; if empty, the addresses are detected
	External bool         // if false, no cloud provider sets the addresses
	Network  Network      // if nil, Host{} is used

	MaxPods      int64
	PodsPerCore  int64           // if 0, there is no limit
	Reserved     v1.ResourceList // if nil, nothing is reserved
	LocalStorage bool            // if false, ephemeral storage is not reported
	Version      string          // of the agent, as "v1.37.2"
	Port         int32           // of the agent's server; 0 if it has none
	MaxImages    int             // maximum number of images in the status; -1 means all of them
	Declared     []string        // features of KEP-5328; if nil, those in the Node are not changed

	Machine   Machine
	Runtime   Runtime
	Images    Images    // if nil, no images are reported
	Pressures Pressures // if nil, there is no pressure

	Devices  func() Devices                       // if nil, there are no devices
	Volumes  func() ([]v1.UniqueVolumeName, bool) // in use, sorted, and whether they are known yet; if nil, they are never known
	Storage  func() error                         // the reason why CSI volumes cannot be used, or nil; the field may be nil, too
	Shutdown func() error                         // the reason of a shutdown, or nil; the field may be nil, too
	Warnings func() []string                      // if nil, there are no warnings
	Checks   []Check                              // their errors are problems of the runtime, which make the node not ready

	Log *zap.Logger // if nil, nothing is logged
}

// Intervals of polling. The kubelet collects everything every 10 s; expensive or
// rarely changing inputs are polled less often here.
const (
	refreshEvery = 10 * time.Second
	machineEvery = time.Minute
	imagesEvery  = 5 * time.Minute
	namesEvery   = 5 * time.Minute // a name that was found
	namesRetry   = 30 * time.Second
	lookTimeout  = 5 * time.Second // for the machine and for names
	imagesSettle = time.Second     // pulls come in groups
)

// Manager computes the status of a node. Its methods may be called from any
// goroutine. Run owns its goroutines.
type Manager struct {
	cfg     Config
	changes wake.Signal // the status may have changed
	images  wake.Signal // images were pulled or removed
	poll    wake.Signal // the connection to the runtime was lost or opened

	// mu guards all fields below. It is never held during a call of Config's
	// functions.
	mu       sync.Mutex
	facts    Facts
	factsErr error
	machined time.Time // time when facts were read; zero if they never were
	addr     Addressing
	named    time.Time // time to look up the host name again
	listed   []v1.ContainerImage
	listErr  error
	runtime  RuntimeState
	// lastGood is the time of the runtime's last answer with its condition met.
	lastGood time.Time
	network  error
	unwell   []string // failures of health checks
	// seen is Apply's state after the last published status. Reported sets it to pending.
	seen    Seen
	pending Seen // Apply's state after the last Fill
	open    bool // all inputs were read once
	began   time.Time
	last    *Inputs // the inputs of the last Fill
}

// New checks cfg and returns a Manager, which Run starts. It does not call the
// interfaces in cfg. The error names every invalid field.
func New(cfg Config) (*Manager, error) {
	var errs []error
	if cfg.Hostname == "" {
		errs = append(errs, errors.New("field StatusConfig.Hostname is required"))
	}
	if cfg.Machine == nil {
		errs = append(errs, errors.New("field StatusConfig.Machine is required"))
	}
	if cfg.Runtime == nil {
		errs = append(errs, errors.New("field StatusConfig.Runtime is required"))
	}
	if cfg.MaxPods <= 0 {
		errs = append(errs, fmt.Errorf("field StatusConfig.MaxPods: %d: must be positive", cfg.MaxPods))
	}
	if cfg.PodsPerCore < 0 {
		errs = append(errs, fmt.Errorf("field StatusConfig.PodsPerCore: %d: must not be negative", cfg.PodsPerCore))
	}
	if cfg.MaxImages < -1 {
		errs = append(errs, fmt.Errorf("field StatusConfig.MaxImages: %d: must be -1 (all) or more", cfg.MaxImages))
	}
	errs = append(errs, checkNodeIPs(cfg.NodeIPs, joinAddrs(cfg.NodeIPs)))
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("node status: %w", err)
	}
	if cfg.Network == nil {
		cfg.Network = Host{}
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	// The node is not ready until the first results: machine, runtime and network start as
	// errors.
	return &Manager{
		cfg: cfg, factsErr: errors.New("the machine has not been read yet"), network: errNetworkUnknown,
		addr:    Addressing{Hostname: cfg.Hostname, NodeIPs: cfg.NodeIPs, External: cfg.External},
		changes: wake.New(), images: wake.New(), poll: wake.New(),
	}, nil
}

// Changes returns a channel that gets a value when the result of Fill may have changed. The first
// value comes when the machine and the runtime have been read. Every call returns the same channel,
// so that only one goroutine may read it. One value may stand for several changes.
func (m *Manager) Changes() <-chan struct{} { return m.changes }

// Changed reports that the results of Config's functions may have changed:
// pressures, devices, volumes in use, a shutdown. Before the first round it does
// nothing. It returns at once.
func (m *Manager) Changed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open {
		m.changes.Set()
	}
}

// ImagesChanged reports that images were pulled or removed. They are listed a
// second later, together with other changes. It returns at once.
func (m *Manager) ImagesChanged() { m.images.Set() }

// RuntimeChanged reports that the connection to the runtime was lost or opened: the
// runtime is called now, and each second until it answers. It returns at once.
func (m *Manager) RuntimeChanged() { m.poll.Set() }

// Fill writes the status into node, which the caller owns. The caller publishes node,
// then sends the returned events, then calls Reported. A part of the status whose input
// has an error keeps its value in node. It does not block: it uses the values that
// Run's goroutines have read.
func (m *Manager) Fill(node *v1.Node) ([]Event, error) {
	in := m.inputs()
	m.mu.Lock()
	defer m.mu.Unlock()
	// A copy of seen: if the report fails, the next Fill has the same events again.
	m.last, m.pending = &in, m.seen
	return Apply(node, &in, &m.pending, time.Now())
}

// Reported records that the result of the last Fill is published and its events are
// sent. Calls of Fill and Reported must alternate.
func (m *Manager) Reported() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen = m.pending
}

// runtimeErr returns the runtime's current error, which depends on the time since its last
// answer. The caller holds m.mu.
func (m *Manager) runtimeErr() error {
	return runtimeErr(m.lastGood, time.Now(), m.unwell, m.runtime.NotReady)
}

// inputs returns the current inputs. The functions of Config are called first,
// without m.mu: they may take locks that their owners hold while they call Changed.
func (m *Manager) inputs() Inputs {
	in := Inputs{
		MaxPods: m.cfg.MaxPods, PodsPerCore: m.cfg.PodsPerCore, Reserved: m.cfg.Reserved, LocalStorage: m.cfg.LocalStorage,
		Version: m.cfg.Version, Port: m.cfg.Port, MaxImages: m.cfg.MaxImages, Declared: m.cfg.Declared,
	}
	if m.cfg.Devices != nil {
		in.Devices = m.cfg.Devices()
	}
	if m.cfg.Volumes != nil {
		in.VolumesInUse, in.VolumesSynced = m.cfg.Volumes()
	}
	if p := m.cfg.Pressures; p != nil {
		in.MemoryPressure = p.UnderPressure(v1.NodeMemoryPressure)
		in.DiskPressure = p.UnderPressure(v1.NodeDiskPressure)
		in.PIDPressure = p.UnderPressure(v1.NodePIDPressure)
	}
	if m.cfg.Storage != nil {
		in.Problems.Storage = m.cfg.Storage()
	}
	if m.cfg.Shutdown != nil {
		in.Problems.Shutdown = m.cfg.Shutdown()
	}
	if m.cfg.Warnings != nil {
		in.Warnings = m.cfg.Warnings()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	// Slices are shared. They are replaced by new slices, and their elements are not
	// changed.
	in.Addressing, in.Facts, in.FactsErr = m.addr, m.facts, m.factsErr
	in.Images, in.ImagesErr = m.listed, m.listErr
	in.RuntimeName, in.RuntimeVersion = m.runtime.Name, m.runtime.Version
	in.Handlers, in.Features = m.runtime.Handlers, m.runtime.Features
	in.Problems.Runtime, in.Problems.Network = m.runtimeErr(), m.network
	in.Problems.Beginning = len(m.unwell) > 0 && time.Since(m.began) < beginning &&
		runtimeErr(m.lastGood, time.Now(), nil, m.runtime.NotReady) == nil
	return in
}

// notice sends a value on changes if the inputs differ from those of the last Fill. It is called
// each time after inputs were read.
func (m *Manager) notice() {
	in := m.inputs()
	m.mu.Lock()
	last, open := m.last, m.open
	m.mu.Unlock()
	// Before the first round is complete, the node would only look not ready
	// because nothing has answered yet.
	if open && (last == nil || !sameInputs(&in, last)) {
		m.Changed()
	}
}

// Run polls the machine, the runtime and the images until ctx ends, and returns nil
// when every goroutine has ended. It may be called once. Before Run is called, Fill
// writes a node that is not ready.
func (m *Manager) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	first := make(chan struct{})
	m.mu.Lock()
	m.began = time.Now()
	m.mu.Unlock()
	// Each source has a goroutine: a hanging one does not delay the others.
	wg.Go(func() { m.watchRuntime(ctx, first) })
	wg.Go(func() { m.watchMachine(ctx, first) })
	if m.cfg.Images != nil {
		wg.Go(func() { m.watchImages(ctx) })
	}
	wg.Wait()
	return nil
}

// watchMachine reads the machine and its addresses. It sends the first value of Changes when the
// runtime has been called too. If the runtime does not answer within refreshEvery, the node is
// reported without it.
func (m *Manager) watchMachine(ctx context.Context, runtimeSeen <-chan struct{}) {
	tick := time.NewTicker(refreshEvery)
	defer tick.Stop()
	m.look(ctx)
	// An immediate report would show the node as not ready, and a second later as ready.
	select {
	case <-ctx.Done():
		return
	case <-runtimeSeen:
	case <-tick.C:
	}
	m.mu.Lock()
	m.open = true
	m.mu.Unlock()
	for m.Changed(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			m.look(ctx)
			m.notice()
		}
	}
}

// look reads the facts of the machine if they are due, its interfaces and, if needed,
// the addresses of the node's name. It blocks for lookTimeout at most for the machine,
// and as long again for the name. Only watchMachine calls it.
func (m *Manager) look(ctx context.Context) {
	m.mu.Lock()
	due, addr, nameDue := m.machined.IsZero() || m.factsErr != nil || time.Since(m.machined) >= machineEvery, m.addr, time.Now().After(m.named)
	m.mu.Unlock()
	// After a failure it is read again at the next tick.
	if due {
		m.readMachine(ctx)
	}
	host, err := m.cfg.Network.Interfaces()
	// After an error the previous addresses stay: an empty list would refuse every node IP.
	if err == nil {
		addr.Host = host
	}
	addr.Default4, addr.Default6 = m.cfg.Network.Default(false), m.cfg.Network.Default(true)
	again := time.Time{}
	// Names are looked up seldom: the kubelet does it for each status, which makes
	// its name server a part of every heartbeat.
	if nameDue && addr.needsName() {
		resolved, lookErr := m.lookup(ctx, addr.Hostname)
		var none *net.DNSError
		switch again = time.Now().Add(namesEvery); {
		case lookErr == nil:
			addr.Resolved = resolved
		// The name has no addresses any more, which is an answer too.
		case errors.As(lookErr, &none) && none.IsNotFound:
			addr.Resolved = nil
		default: // no answer: the last addresses are used
			again = time.Now().Add(namesRetry)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	// addr was copied under the lock and is written by this goroutine alone.
	m.addr = addr
	if !again.IsZero() {
		m.named = again
	}
}

// lookup resolves a name, for lookTimeout at most.
func (m *Manager) lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	return m.cfg.Network.Lookup(ctx, name)
}

// readMachine keeps the last facts after a failure. Only a machine that could never
// be read is an error of the status; later failures are logged.
func (m *Manager) readMachine(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	facts, err := m.cfg.Machine.Facts(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.cfg.Log.Warn("failed to read capacity and IDs of the machine", zap.Error(err))
		if m.machined.IsZero() {
			m.factsErr = err
		}
		return
	}
	m.facts, m.factsErr, m.machined = facts, nil, time.Now()
}
