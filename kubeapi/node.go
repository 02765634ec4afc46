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

	"github.com/nodewright/nodewright/internal/wake"
	"github.com/nodewright/nodewright/node/status"
)

// NodeStatus provides the node's status; *status.Manager implements it.
type NodeStatus interface {
	// Changes gets a value when the result of Fill may have changed.
	Changes() <-chan struct{}
	// Fill writes the status into a node. It must not keep the node after it has
	// returned.
	Fill(*v1.Node) ([]status.Event, error)
	// Reported is called when the API server has the result of the last Fill.
	Reported()
}

// NodeStore stores a value under a key; *checkpoint.Store implements it. For a key without a
// value, Read returns fs.ErrNotExist.
type NodeStore interface {
	Write(key string, value []byte) error
	Read(key string) ([]byte, error)
}

// NodeConfig configures a [NodeManager]. Name, API and Status are required; the
// zero value of every other field means the default named beside it.
type NodeConfig struct {
	Name     string // name of the Node object
	Hostname string // for its label; Name
	// API is only for the node's heartbeat; see HeartbeatClient. Its connections
	// are closed when calls fail repeatedly.
	API    *Client
	Status NodeStatus

	Register         bool              // if false, another program creates the Node
	Reregister       bool              // if false, a deleted Node is not created again
	Labels           map[string]string // of a new Node, over the default ones
	Taints           []v1.Taint        // of a new Node
	ProviderID       string            // if "", the Node has no provider ID
	ExternalProvider bool              // if false, the node does not wait for a cloud provider
	ControllerAttach bool              // if false, no controller attaches volumes
	FreshDevices     func() bool       // reports whether nothing is known of earlier devices; may be nil

	Update time.Duration // between two checks for changes to report; the default is 10 s
	Report time.Duration // between two reports without a change; the default is 5 min

	// PodCIDR gets the node's pod ranges, joined by commas, when they change. If it returns an
	// error, it is called again. If it is nil, nothing is called.
	PodCIDR func(ctx context.Context, cidrs string) error
	// Changed gets the Node whenever it changes, and nil when it was deleted. The Node is shared:
	// do not change it. Calls are serialized and have to return soon. If Changed is nil, nothing
	// is called.
	Changed func(*v1.Node)
	// Reported gets the status that the API server now has. If it is nil, nothing is called.
	Reported func(*v1.NodeStatus)
	// Event gets the node's events. If it is nil, nothing is called.
	Event func(status.Event)
	// Store stores the Node for starts without an API server. If it is nil, the Node is not
	// stored.
	Store NodeStore

	// Booted and Started are the times at which the machine and the agent started, for the
	// metrics of the first start. The default is the time of NewNodeManager.
	Booted, Started time.Time

	Log     *zap.Logger           // if nil, nothing is logged
	Metrics prometheus.Registerer // if nil, metrics are not exported
}

// Intervals of the kubelet.
const (
	defaultUpdate = 10 * time.Second
	defaultReport = 5 * time.Minute
	jitter        = 0.04
)

// NodeManager registers a machine as a node of a cluster: it creates the Node
// object, reports the node's status, and watches the object.
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
// A change is reported at once. Without a change, a report is made every
// NodeConfig.Report, and nothing is computed or called in between. A report patches
// the differences of labels, annotations and status. Conditions of other writers are
// kept. Events are sent when the server has the state that they describe.
//
// An existing Node is adopted: its default labels, the sizes of huge pages and some
// other fields are updated; taints and other labels are kept.
//
// # Faults
//
// Registration never gives up. A failed report is repeated after 200 ms. The wait
// doubles up to NodeConfig.Update. Before each repetition the Node is read again; from
// the second failure on, all connections are closed first, as they may be dead. The
// watch continues by itself. The last Node is stored in NodeConfig.Store, for a start
// without an API server. A Node that is deleted while the agent runs is not created
// again, since that is how nodes are decommissioned, unless NodeConfig.Reregister is
// set. A Node that is missing in a wiped or restored store is always created again.
//
// The lease does not wait long for the Node: it is renewed from the start, and gets its
// owner when the Node is known.
type NodeManager struct {
	cfg     NodeConfig
	met     *metrics
	follow  *Follower[*v1.Node]
	changed wake.Signal   // the Node has changed
	keep    wake.Signal   // the Node has to be stored
	known   chan struct{} // closed by knows
	knows   func()

	mu      sync.Mutex
	node    *v1.Node // newest; nil if none is known
	live    bool     // node is from the API server, not from the store
	lost    bool     // the server lost it without a deletion
	telling sync.Mutex
}

// NewNodeManager checks cfg and returns a NodeManager; call Run to start it.
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
	m := &NodeManager{cfg: cfg, met: met, changed: wake.New(), keep: wake.New(), known: make(chan struct{})}
	m.knows = sync.OnceFunc(func() { close(m.known) })
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
			m.knows()
			cfg.Log.Debug("failed to watch node", zap.Error(err), zap.Duration("again", again))
		},
	})
	if err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	return m, nil
}

// Node returns the newest known Node, or nil if there is none. The Node is shared: do not change
// it. live reports that it came from the API server since the start of the agent.
func (m *NodeManager) Node() (n *v1.Node, live bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.node, m.live
}

// Known is closed once Node returns the Node, or it is certain that there is none: either the API
// server has no such Node, or the server did not answer and none is stored. Admit no pods before:
// without the labels of the Node, pods with a node selector would be rejected, which is final.
func (m *NodeManager) Known() <-chan struct{} { return m.known }

// UID returns the UID of the Node at the API server, or "" if it is not known.
func (m *NodeManager) UID() types.UID {
	if n, live := m.Node(); live && n != nil {
		return n.UID
	}
	return ""
}

// see records a version of the Node, unless a newer one is known: answers and events of
// the watch arrive in any order.
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
	m.knows()
	if same {
		return
	}
	m.changed.Set()
	m.keep.Set()
	if m.cfg.Changed != nil {
		m.cfg.Changed(n)
	}
}

// gone records that a list with that resource version does not have the Node. If the API server
// has not sent the Node since the start, a stored Node stays valid. A list that is older than the
// Node comes from a store that was wiped or restored; in this case nobody has removed the node
// from the cluster.
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
	m.knows()
	if !had {
		return
	}
	m.cfg.Log.Warn("Node object is missing at the API server", zap.Bool("storeLost", m.isLost()), zap.Bool("registersAgain", m.reregisters()))
	m.changed.Set()
	if m.cfg.Changed != nil {
		m.cfg.Changed(nil)
	}
}

func (m *NodeManager) isLost() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lost
}

// reregisters reports whether a missing Node is created again.
func (m *NodeManager) reregisters() bool { return m.cfg.Register && (m.cfg.Reregister || m.isLost()) }

// Run registers the node, watches it and reports its status until ctx ends, and
// returns nil when every goroutine has ended. It may be called once.
func (m *NodeManager) Run(ctx context.Context) error {
	m.event(status.Event{Type: v1.EventTypeNormal, Reason: "Starting", Message: "Starting kubelet."})
	var wg sync.WaitGroup
	// A list that is read while the Node is created may lack the Node, as after a wipe of the
	// store. So the list is read afterwards.
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
