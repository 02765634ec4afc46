package pleg

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/internal/slots"
	"github.com/nodewright/nodewright/internal/wake"
)

// Runtime is the part of a container runtime that this package uses; *cri.Reader implements it.
// Calls are made concurrently and must return when ctx ends.
type Runtime interface {
	// List returns every pod. The caller does not change the result, and does not read it after
	// the next List.
	List(ctx context.Context) ([]observed.Listed, error)
	// Inspect returns one pod. If the runtime does not have it, the result has only its UID.
	Inspect(ctx context.Context, uid types.UID) (*observed.Pod, error)
	// Events opens the event stream, calls ready, then on for each event until the stream ends.
	// It returns observed.ErrNoEventStream if the runtime has no stream.
	Events(ctx context.Context, ready func(), on func(observed.Event)) error
}

// Config holds what a Manager needs. Runtime is required; the zero value of
// every other field means the default named beside it.
type Config struct {
	Runtime Runtime

	Log     *zap.Logger           // if nil, nothing is logged
	Metrics prometheus.Registerer // if nil, metrics are not exported
}

const (
	minRelist      = time.Second      // time between relists without an event stream; the kubelet's
	maxRelist      = 5 * time.Minute  // longest time between relists with an event stream; the kubelet has the same
	listTimeout    = time.Minute      // limit of one relist; lists of many thousand pods take seconds
	maxInspections = 8                // at a time, without those that have run for slowAfter
	inspectTimeout = 30 * time.Second // limit of one inspection
	hungAfter      = 5 * time.Second  // an inspection that takes longer counts as hung
	unhealthyAfter = 3 * time.Minute  // time without a successful list after which the runtime is unhealthy; the kubelet's threshold
)

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

func (c Config) validate() error {
	if c.Runtime == nil {
		return errors.New("Config.Runtime is required")
	}
	return nil
}

// Manager holds the last known state of every pod in the runtime. Its methods may be called from
// any goroutine.
type Manager struct {
	cfg Config
	met *metrics
	out *outbox

	// kick requests a relist. Concurrent requests cause one relist.
	kick   wake.Signal   // asks for a relist now
	listed chan struct{} // closed after the first relist

	mu      sync.Mutex
	ctx     context.Context // context of Run; nil before Run is called
	wg      sync.WaitGroup
	records map[types.UID]*record
	// order has the records in the order of the last list. Runtimes return nearly the same order
	// each time, so most records are found without a map lookup.
	order        []*record // in the order of the last list
	listedAt     time.Time // start of the last list that succeeded
	failingSince time.Time // start of the first list that failed since the last success; zero after a success
	// listErr is the error of the last list. It is nil if the list succeeded.
	listErr     error
	slots       *slots.Queue[*record]
	streaming   bool
	lastEventAt time.Time
	// interval doubles up to maxRelist while relists find no change.
	interval time.Duration // interval of relists while the event stream is open
}

// New checks cfg and returns a Manager. Its work is done in Run.
func New(cfg Config) (*Manager, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("pleg: %w", err)
	}
	m := &Manager{
		cfg: cfg, out: newOutbox(),
		kick:     wake.New(),
		listed:   make(chan struct{}),
		records:  map[types.UID]*record{},
		interval: minRelist,
	}
	m.slots = slots.New(slots.Config[*record]{Slots: maxInspections, Limit: slowAfter, Lock: &m.mu, Turn: m.begin})
	var err error
	if m.met, err = newMetrics(cfg.Metrics, m); err != nil {
		return nil, fmt.Errorf("pleg: %w", err)
	}
	return m, nil
}

// Run observes the runtime until ctx ends. It returns nil when every goroutine has ended. It may
// be called once.
func (m *Manager) Run(ctx context.Context) error {
	m.mu.Lock()
	m.ctx = ctx
	m.mu.Unlock()
	m.wg.Add(2)
	go func() {
		defer m.wg.Done()
		m.stream(ctx)
	}()
	go func() {
		defer m.wg.Done()
		m.out.run(ctx)
	}()
	// On this goroutine: the first relist begins at once.
	m.relists(ctx)
	m.mu.Lock()
	// ctx has ended, and a timer would only find that out.
	for _, r := range m.records {
		r.stopRetry()
	}
	m.mu.Unlock()
	m.wg.Wait()
	return nil
}

// Events returns the channel of events. Waiting events of one pod are merged. There is one
// channel: with several readers, each event reaches one of them. It is never closed; a reader
// stops with the ctx of Run.
func (m *Manager) Events() <-chan Event { return m.out.ch }

// Listed returns a channel that is closed after the first successful list.
func (m *Manager) Listed() <-chan struct{} { return m.listed }

// Healthy returns an error if no list has succeeded for three minutes; the node is then
// not ready, as in the kubelet. It does not call the runtime and does not block.
func (m *Manager) Healthy() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.listedAt.IsZero() {
		m.met.lastSeen.Set(float64(m.listedAt.Unix()))
	}
	switch {
	case m.listedAt.IsZero() && m.listErr != nil:
		return fmt.Errorf("pleg has yet to be successful: %w", m.listErr)
	case m.listedAt.IsZero():
		return errors.New("pleg has yet to be successful")
	case m.failingSince.IsZero():
		return nil
	}
	// Measured from the first failed relist, since relists are rare while the stream is open.
	if d := time.Since(m.failingSince); d > unhealthyAfter {
		err := fmt.Errorf("the container runtime has not listed its pods for %v", d.Round(time.Second))
		if m.listErr != nil {
			err = fmt.Errorf("%w: %w", err, m.listErr)
		}
		return err
	}
	return nil
}

// Pods returns the last known state of every pod, in no order.
func (m *Manager) Pods() []observed.Listed {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]observed.Listed, 0, len(m.records))
	for _, r := range m.records {
		if r.exists() {
			out = append(out, r.asListed())
		}
	}
	return out
}

// HungPod is a pod whose inspection has not returned for five seconds.
type HungPod struct {
	UID   types.UID
	Since time.Time
}

// Hung lists the pods whose inspection has not returned for five seconds, or was
// given up for that reason and has not succeeded since.
func (m *Manager) Hung() []HungPod {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []HungPod
	for _, r := range m.records {
		since := r.hungSince
		if since.IsZero() && r.flight != nil {
			since = r.flight.began
		}
		if !since.IsZero() && time.Since(since) >= hungAfter {
			out = append(out, HungPod{UID: r.uid, Since: since})
		}
	}
	return out
}

// Inspections returns how many pods are being inspected, how many may be at a time, and how many
// wait for their inspection.
func (m *Manager) Inspections() (running, limit, waiting int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.slots.Load()
}
