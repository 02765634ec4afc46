package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/node/status"
)

// NodeStatus knows what the node says of itself; *status.Manager does.
type NodeStatus interface {
	// Changes gets a value when Fill may have another result.
	Changes() <-chan struct{}
	// Fill writes the status into a node that is the Status' for the call.
	Fill(*v1.Node) ([]status.Event, error)
	// Reported says that the last Fill is known to the API server.
	Reported()
}

// NodeStore keeps a value under a key; *checkpoint.Store does. Read's error is
// fs.ErrNotExist if there is none.
type NodeStore interface {
	Write(key string, value []byte) error
	Read(key string) ([]byte, error)
}

// NodeConfig holds what a [NodeManager] needs. Name, API and Status are required; the
// zero value of every other field means the default named beside it.
type NodeConfig struct {
	Name     string // of the Node object
	Hostname string // for its label; Name
	// API is for the node's heartbeat alone; see Heartbeat. Its connections
	// are closed when calls fail again and again.
	API    *Client
	Status NodeStatus

	Register         bool              // somebody else makes the Node
	Reregister       bool              // a Node that was deleted stays so
	GetOnExistsOnly  bool              // one that may not be made but is there is used
	Labels           map[string]string // of a new Node, over the default ones
	Taints           []v1.Taint        // of a new Node
	ProviderID       string            // none
	ExternalProvider bool              // no cloud provider has to see the node first
	ControllerAttach bool              // no controller attaches volumes
	FreshDevices     func() bool       // whether nothing is known of earlier devices; false

	Update time.Duration // between two looks at what has to be reported; 10s
	Report time.Duration // between two reports that say nothing new; 5m

	// PodCIDR gets the node's ranges, joined by commas, when they are others;
	// it is called again until it accepts them. Nobody.
	PodCIDR func(ctx context.Context, cidrs string) error
	// Changed gets the Node whenever it is another, and nil when it was
	// deleted. It is shared: do not change it. Calls come one after the other
	// and have to return soon. Nobody.
	Changed func(*v1.Node)
	// Reported gets the status that the API server has now; nobody.
	Reported func(*v1.NodeStatus)
	// Event is told of the node's events; nobody.
	Event func(status.Event)
	// NodeStore keeps the Node for starts without an API server; nothing does.
	Store NodeStore

	// Booted and Started are when the machine and the agent started, for the
	// metrics of the first start; New's time.
	Booted, Started time.Time

	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported
}

// Intervals of the kubelet.
const (
	defaultUpdate = 10 * time.Second
	defaultReport = 5 * time.Minute
	jitter        = 0.04
)

// NodeManager makes a machine a node of a cluster: it registers the Node
// object, reports the node's status, watches the object and holds the Lease.
//
//	heartbeat, err := kubeapi.HeartbeatClient(restConfig, 0, nil)
//	m, err := kubeapi.NewNodeManager(kubeapi.NodeConfig{
//		Name: "edge-1", API: heartbeat, Status: status, // a *status.Manager
//		Register: true, Changed: func(n *v1.Node) { ... }, Event: events,
//	})
//	lease, err := kubeapi.NewLease(kubeapi.LeaseConfig{Name: "edge-1", API: heartbeat, Owner: m.UID})
//	err = m.Restore()
//	go m.Run(ctx)
//	go lease.Run(leaseCtx) // ends last
//
// Its methods may be called from any goroutine.
//
// # Reports
//
// A change is reported at once; if there is none, a report is made every
// NodeConfig.Report, and nothing is computed or called in between. nodePatch is what
// is sent: the differences of labels, annotations and status. Conditions of
// others stay. Events are told when the server has the state they speak of.
//
// A node that is there already is taken over by reconcileNode: default labels,
// sizes of huge pages and the like are brought up to date, taints and other
// labels stay.
//
// # Faults
//
// Registration never gives up. A report that fails is tried again after 200 ms,
// then less and less often down to once per NodeConfig.Update, on a Node that was
// read anew; from the second failure on all connections are closed first, as
// they may be dead. The watch goes on by itself. The Node that was seen last is
// kept in NodeConfig.Store, for a start without an API server. A Node that is
// deleted while the agent runs stays deleted, as that is how nodes are taken
// out of service, unless NodeConfig.Reregister is set: then it is made again. One
// that a wiped or restored store does not have is always made again.
//
// The lease does not wait for the Node: it is held at once, and gets its owner
// when that is known.
type NodeManager struct {
	cfg     NodeConfig
	met     *metrics
	follow  *Follower[*v1.Node]
	changed chan struct{} // the Node is another
	keep    chan struct{} // the Node is to be stored

	mu      sync.Mutex
	node    *v1.Node // newest; nil if none is known
	live    bool     // node is the API server's, and not what was stored
	lost    bool     // the server lost it, and nobody deleted it
	telling sync.Mutex
}

// NewNodeManager checks cfg and returns a Manager at rest.
func NewNodeManager(cfg NodeConfig) (*NodeManager, error) {
	var errs []error
	if cfg.Name == "" {
		errs = append(errs, errors.New("field NodeConfig.Name is required"))
	}
	if cfg.API == nil {
		errs = append(errs, errors.New("field NodeConfig.API is required"))
	}
	if cfg.Status == nil {
		errs = append(errs, errors.New("field NodeConfig.Status is required"))
	}
	if cfg.Update < 0 {
		errs = append(errs, fmt.Errorf("field NodeConfig.Update: %v: must not be negative", cfg.Update))
	}
	if cfg.Report < 0 {
		errs = append(errs, fmt.Errorf("field NodeConfig.Report: %v: must not be negative", cfg.Report))
	}
	if cfg.Update == 0 {
		cfg.Update = defaultUpdate
	}
	if cfg.Report == 0 {
		cfg.Report = defaultReport
	}
	if cfg.Hostname == "" {
		cfg.Hostname = cfg.Name
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	if cfg.Started.IsZero() {
		cfg.Started = time.Now()
	}
	if cfg.Booted.IsZero() {
		cfg.Booted = cfg.Started
	}
	met, err := newMetrics(cfg.Metrics, cfg.Name)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	m := &NodeManager{cfg: cfg, met: met, changed: make(chan struct{}, 1), keep: make(chan struct{}, 1)}
	m.follow, err = NewFollower(FollowConfig[*v1.Node]{
		Client: cfg.API, Resource: Nodes, Fields: "metadata.name=" + cfg.Name,
		NewList: func() runtime.Object { return &v1.NodeList{} },
		Replace: func(all []*v1.Node, version string) {
			for _, n := range all {
				m.see(n)
				return
			}
			m.gone(version)
		},
		Put:    m.see,
		Delete: func(*v1.Node) { m.gone("") },
		Failed: func(err error, again time.Duration) {
			cfg.Log.Debug("the node cannot be watched", zap.Error(err), zap.Duration("again", again))
		},
	})
	if err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	return m, nil
}

// Node returns the newest that is known, nil if there is none. It is shared: do
// not change it. live reports that it came from the API server, in this life of
// the agent.
func (m *NodeManager) Node() (n *v1.Node, live bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.node, m.live
}

// UID is that of the Node as the API server has it; "" if that is not known.
func (m *NodeManager) UID() types.UID {
	if n, live := m.Node(); live && n != nil {
		return n.UID
	}
	return ""
}

// see takes in a Node, unless a newer one is known: answers and the watch come
// in any order.
func (m *NodeManager) see(n *v1.Node) {
	m.telling.Lock()
	defer m.telling.Unlock()
	m.mu.Lock()
	was := m.node
	if m.live && was != nil && was.UID == n.UID && Older(n.ResourceVersion, was.ResourceVersion) {
		m.mu.Unlock()
		return
	}
	same := m.live && was != nil && was.UID == n.UID && was.ResourceVersion == n.ResourceVersion
	m.node, m.live, m.lost = n, true, false
	m.mu.Unlock()
	if same {
		return
	}
	nudge(m.changed)
	nudge(m.keep)
	if m.cfg.Changed != nil {
		m.cfg.Changed(n)
	}
}

// gone takes in that there is no Node, in a list of that version. What was
// stored still holds if nothing else was ever seen. A list that is older than
// the Node is one of a store that was wiped or restored: nobody has taken the
// node out of the cluster.
func (m *NodeManager) gone(version string) {
	m.telling.Lock()
	defer m.telling.Unlock()
	m.mu.Lock()
	had := m.live && m.node != nil
	if had {
		m.lost = Older(version, m.node.ResourceVersion)
		m.node = nil
	}
	m.mu.Unlock()
	if !had {
		return
	}
	m.cfg.Log.Warn("the API server has no such node any more", zap.Bool("its store was wiped or restored", m.isLost()), zap.Bool("registering again", m.reregisters()))
	nudge(m.changed)
	if m.cfg.Changed != nil {
		m.cfg.Changed(nil)
	}
}

func (m *NodeManager) isLost() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lost
}

// reregisters reports whether a Node that is gone is made again.
func (m *NodeManager) reregisters() bool { return m.cfg.Register && (m.cfg.Reregister || m.isLost()) }

func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run registers the node, watches it and reports its status until ctx ends, and
// returns nil when every goroutine has ended. It may be called once.
func (m *NodeManager) Run(ctx context.Context) error {
	m.event(status.Event{Type: v1.EventTypeNormal, Reason: "Starting", Message: "Starting kubelet."})
	var wg sync.WaitGroup
	// A list that is read while the Node is made may lack it, and looks then like
	// one of a store that was wiped. So the list is read afterwards.
	asked, release := context.WithCancel(ctx)
	wg.Go(func() { <-asked.Done(); _ = m.follow.Run(ctx) })
	wg.Go(func() { m.report(ctx, release) })
	if m.cfg.Store != nil {
		wg.Go(func() { m.keepNode(ctx) })
	}
	wg.Wait()
	return nil
}

func (m *NodeManager) event(e status.Event) {
	if m.cfg.Event != nil {
		m.cfg.Event(e)
	}
}
