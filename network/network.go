package network

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/internal/wake"
)

// Network attaches pods to networks. Its methods may be called from any goroutine.
// Before Run, methods that change something wait for Run.
type Network struct {
	cfg     Config
	store   *store
	plugins []*plugged
	slots   chan struct{} // has a token for each running operation
	checks  chan struct{} // and for each check
	retries retry.Backoff
	ready   atomic.Pointer[readiness]
	running atomic.Bool

	loaded   chan struct{} // closed when the records are in memory
	loading  atomic.Pointer[error]
	spaces   spaceCalls
	statuses statusCalls
	work     sync.WaitGroup // operations
	run      context.Context
	stop     context.CancelFunc

	mu      sync.RWMutex // held over no call that leaves memory
	entries map[string]*entry
	paths   map[string]string     // path of a namespace to ID
	damaged map[string]damageSeen // by ID
	stopped bool
}

type damageSeen struct {
	err error
	at  time.Time
}

// readiness is the result of Status.
type readiness struct{ err error }

// plugged is a plugin with the result of its Recovered.
type plugged struct {
	Plugin
	name      string
	durable   bool
	recovered chan struct{} // closed when it succeeded
	failure   atomic.Pointer[error]
	refresh   wake.Signal // set when Status may have changed
}

// who returns the plugin's name, for errors.
func (p *plugged) who() string { return "plugin " + p.name }

// entry is one attachment. Network.mu guards it, except for constant fields, and
// fields that only the running operation uses.
type entry struct {
	id      string
	digest  digest
	path    string
	created time.Time
	plugin  *plugged // nil if no plugin has that name
	name    string   // name of the plugin

	record *record // the input of TearDown; nil before Plan has returned

	// space is used only by the running operation, like the fields below.
	space        uint64        // the namespace's ID; 0 if not known
	there        bool          // the namespace existed when the record was read
	foreign      bool          // the file at path does not belong to this network
	guardTimeout time.Duration // limit of the wait for processes of an earlier agent
	tornDown     bool          // the plugin has torn it down; the namespace and the record are left

	state   State
	result  *Result // while attached
	working bool    // an operation is at work
	hung    bool    // a plugin call did not return
	attach  *pending
	detach  *pending // requested, running or about to run
	failure error    // error of the last TearDown
	pause   time.Duration
	timer   *time.Timer
	gone    chan struct{} // closed when it is removed
}

// pending is an outcome that callers can wait for.
type pending struct {
	done   chan struct{}
	result Result
	err    error
}

func newPending() *pending { return &pending{done: make(chan struct{})} }

func (p *pending) finish(r Result, err error) {
	if p != nil {
		p.result, p.err = r, err
		close(p.done)
	}
}

// New checks cfg and returns a Network; call Run to start it. It reads and creates
// nothing before [Network.Run].
func New(cfg Config) (*Network, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	n := &Network{
		cfg:     cfg,
		store:   newStore(cfg.StateDir, cfg.DiskTimeout),
		slots:   make(chan struct{}, parallelCalls),
		checks:  make(chan struct{}, parallelChecks),
		retries: retry.Backoff{First: firstRetry, Max: lastRetry},
		loaded:  make(chan struct{}),
		entries: map[string]*entry{},
		paths:   map[string]string{},
		damaged: map[string]damageSeen{},
	}
	n.run, n.stop = context.WithCancel(context.Background())
	for _, p := range cfg.Plugins {
		n.plugins = append(n.plugins, &plugged{
			Plugin: p, name: p.Name(), durable: p.Durable(),
			recovered: make(chan struct{}), refresh: wake.New(),
		})
	}
	n.ready.Store(&readiness{Errorf(Unavailable, "network: records are not read yet")})
	return n, nil
}

// Attach sets up a pod's network and returns it. It waits for the recovery, for a slot, and for
// the plugin. If ctx ends first, Attach returns, but the work continues, with its own deadlines.
//
// If the ID is attached or being attached with the same values, Attach returns the result of the
// existing attachment. If the values differ, it returns a FailedPrecondition. If the ID is being
// torn down, Attach waits for the end of that first. After a failure everything is torn down in
// the background.
//
// The error has a [Code]. The slices of the Result are shared and must not be changed.
func (n *Network) Attach(ctx context.Context, a Attachment) (Result, error) {
	owner := a.UserNS
	a, sum, err := normal(a)
	if err != nil {
		return Result{}, fmt.Errorf("attach: %w", err)
	}
	if ctx.Err() != nil {
		return Result{}, fmt.Errorf("attach %s: %w", a.ID, context.Cause(ctx))
	}
	if err := n.awaitPlugin(ctx); err != nil {
		return Result{}, fmt.Errorf("attach %s: %w", a.ID, err)
	}
	for {
		wait, gone, err := n.join(a, sum, owner)
		if err != nil {
			return Result{}, fmt.Errorf("attach %s: %w", a.ID, err)
		}
		if gone == nil {
			select {
			case <-wait.done:
				return wait.result, wait.err
			case <-ctx.Done():
				return Result{}, fmt.Errorf("attach %s: %w", a.ID, context.Cause(ctx))
			}
		}
		select {
		case <-gone:
		case <-ctx.Done():
			return Result{}, fmt.Errorf("attach %s: %w", a.ID, n.busy(a.ID, context.Cause(ctx)))
		case <-n.run.Done():
			return Result{}, fmt.Errorf("attach %s: %w", a.ID, errStopped)
		}
	}
}

// busy returns the error for an ID that is still being torn down.
func (n *Network) busy(id string, cause error) error {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if e := n.entries[id]; e != nil && e.failure != nil {
		return Errorf(Unavailable, "attachment is still being removed: %w (%w)", e.failure, cause)
	}
	return Errorf(Unavailable, "attachment is still being removed: %w", cause)
}

// join returns what an Attach has to wait for: either wait, the outcome of an operation, or gone,
// which is closed at the end of an earlier attachment.
func (n *Network) join(a Attachment, sum digest, owner *os.File) (wait *pending, gone <-chan struct{}, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.entries[a.ID]
	switch {
	case n.stopped:
		return nil, nil, errStopped
	case e == nil:
		wait, err = n.begin(a, sum, owner)
		return wait, nil, err
	case e.detach != nil || e.state == Detaching:
		return nil, e.gone, nil
	case e.digest != sum:
		return nil, nil, Errorf(FailedPrecondition, "attachment is %s with other values; detach it first", e.state)
	case e.state == Lost:
		return nil, nil, Errorf(FailedPrecondition, "network namespace %s of the attachment is gone; detach it first", e.path)
	case e.state == Attached:
		wait = newPending()
		wait.finish(*e.result, nil)
		return wait, nil, nil
	default:
		return e.attach, nil, nil
	}
}

// begin starts an attachment. The caller holds n.mu.
func (n *Network) begin(a Attachment, sum digest, owner *os.File) (*pending, error) {
	path := n.cfg.spacePath(a.ID)
	hung := 0
	for _, e := range n.entries {
		if e.hung {
			hung++
		}
	}
	switch other, taken := n.paths[path]; {
	case taken:
		return nil, Errorf(AlreadyExists, "network namespace %s belongs to attachment %s", path, other)
	case len(n.entries) >= maxAttachments:
		return nil, Errorf(ResourceExhausted, "there are %d attachments; want fewer than %d", len(n.entries), maxAttachments)
	case hung >= maxHung:
		return nil, Errorf(Unavailable, "%d plugin calls have not returned; want fewer than %d", hung, maxHung)
	}
	if owner != nil { // the caller may close its own
		own, err := duplicate(owner)
		if err != nil {
			return nil, Errorf(InvalidArgument, "attachment's UserNS: %w", err)
		}
		owner = own
	}
	p := n.plugins[0]
	e := &entry{
		id: a.ID, digest: sum, path: path, created: time.Now(), plugin: p, name: p.name,
		state: Planned, working: true, attach: newPending(), gone: make(chan struct{}),
	}
	delete(n.damaged, a.ID)
	n.add(e)
	n.work.Go(func() { n.attachNow(e, a, owner) })
	return e.attach, nil
}

// add adds an entry to the maps, and drop removes it. The caller holds n.mu.
func (n *Network) add(e *entry) {
	n.entries[e.id] = e
	n.paths[e.path] = e.id
}

func (n *Network) drop(e *entry) {
	n.stopTimer(e)
	delete(n.entries, e.id)
	delete(n.paths, e.path)
	close(e.gone)
}

func (n *Network) stopTimer(e *entry) {
	if e.timer != nil {
		e.timer.Stop()
		e.timer = nil
	}
}

// Detach tears a pod's network down. It returns nil when everything is removed, or if the ID is
// not known. Like Attach, it waits, also for an Attach that is running. An error has a [Code].
// After an error the teardown is retried in the background: after 1 s, and then after twice as
// long each time, up to 5 min. Each further call of Detach retries it at once.
func (n *Network) Detach(ctx context.Context, id string) error {
	if err := checkID(id); err != nil {
		return fmt.Errorf("detach: %w", &Error{InvalidArgument, err})
	}
	if err := n.awaitLoaded(ctx); err != nil {
		return fmt.Errorf("detach %s: %w", id, err)
	}
	wait, err := n.leave(id)
	if err != nil {
		return fmt.Errorf("detach %s: %w", id, err)
	}
	if wait == nil {
		return nil
	}
	select {
	case <-wait.done:
		return wait.err
	case <-ctx.Done():
		return fmt.Errorf("detach %s: %w", id, context.Cause(ctx))
	}
}

func (n *Network) leave(id string) (*pending, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.entries[id]
	switch {
	case e == nil:
		return nil, nil
	case n.stopped:
		return nil, errStopped
	case e.plugin == nil:
		e.state = Detaching
		e.failure = Errorf(FailedPrecondition, "network plugin %s, which attached the pod, is not configured", e.name)
		return nil, e.failure
	case e.hung:
		e.asked()
		return nil, Errorf(Unavailable, "a call of network plugin %s has not returned yet", e.name)
	}
	wait := e.asked()
	if !e.working {
		n.takeBack(e)
	}
	return wait, nil
}

// asked records that the attachment has to be torn down, and returns the outcome of the
// teardown.
func (e *entry) asked() *pending {
	if e.detach == nil {
		e.detach = newPending()
	}
	return e.detach
}

// takeBack starts TearDown. The caller holds n.mu, and no operation is running for the
// entry.
func (n *Network) takeBack(e *entry) {
	n.stopTimer(e)
	if n.stopped {
		e.detach.finish(Result{}, errStopped)
		e.detach = nil
		return
	}
	e.asked()
	e.state, e.working = Detaching, true
	n.work.Go(func() { n.detachNow(e) })
}

// Forget drops an attachment whose TearDown never succeeds: its namespace and record are removed,
// but the plugin's resources are not freed. It returns an error if TearDown was not tried before.
// It is not an error if the ID is unknown.
func (n *Network) Forget(id string) error {
	n.mu.Lock()
	delete(n.damaged, id)
	e := n.entries[id]
	switch {
	case e == nil:
		n.mu.Unlock()
		return nil
	case e.state != Detaching || e.working && !e.hung:
		n.mu.Unlock()
		return fmt.Errorf("forget %s: %w", id, Errorf(FailedPrecondition, "attachment is %s and no call has failed; detach it first", e.state))
	}
	hung := e.working
	e.working = true // nothing else begins
	n.stopTimer(e)
	record, space, failure := e.record, e.space, e.failure
	n.mu.Unlock()

	n.cfg.Log.Warn("abandoned network attachment", zap.String("id", id), zap.String("plugin", e.name), zap.Error(failure))
	err := n.removeSpace(context.Background(), e, space)
	if err == nil && record != nil {
		if err = n.store.remove(context.Background(), id); err != nil {
			err = fmt.Errorf("remove record: %w", err)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.entries[id] != e {
		return nil // the hung call returned meanwhile, and the attachment was torn down
	}
	e.working = hung && e.hung
	e.detach.finish(Result{}, err)
	e.detach = nil
	if err != nil {
		if !e.working {
			n.retryLater(e)
		}
		return fmt.Errorf("forget %s: %w", id, err)
	}
	n.drop(e)
	return nil
}

// Get returns the network of an attached ID. It reads only memory and does not
// block. The Result is shared and must not be changed.
func (n *Network) Get(id string) (Result, bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if e := n.entries[id]; e != nil && e.state == Attached {
		return *e.result, true
	}
	return Result{}, false
}

// Loaded returns a channel that is closed when the records of earlier processes are
// in memory. Until then [Network.Get] and [Network.List] return nothing.
func (n *Network) Loaded() <-chan struct{} { return n.loaded }

// Status returns nil if pods can be attached, and otherwise an error that a person
// can act on. It reads only memory and does not block.
func (n *Network) Status() error { return n.ready.Load().err }

// List returns all attachments, sorted by ID.
func (n *Network) List() []Info {
	n.mu.RLock()
	defer n.mu.RUnlock()
	out := make([]Info, 0, len(n.entries)+len(n.damaged))
	for _, e := range n.entries {
		out = append(out, Info{e.id, e.state, e.name, e.path, e.created, e.failure})
	}
	for id, d := range n.damaged {
		out = append(out, Info{ID: id, State: Damaged, Created: d.at, Err: d.err})
	}
	slices.SortFunc(out, func(a, b Info) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// awaitLoaded waits for the records.
func (n *Network) awaitLoaded(ctx context.Context) error {
	select {
	case <-n.loaded:
		return nil
	default:
	}
	select {
	case <-n.loaded:
		return nil
	case <-ctx.Done():
		return Errorf(Unavailable, "records are not read yet: %w", cmp.Or(loadError(&n.loading), context.Cause(ctx)))
	case <-n.run.Done():
		return errStopped
	}
}

// awaitPlugin waits for the plugin of new attachments.
func (n *Network) awaitPlugin(ctx context.Context) error {
	if err := n.awaitLoaded(ctx); err != nil {
		return err
	}
	p := n.plugins[0]
	select {
	case <-p.recovered:
		return nil
	default:
	}
	select {
	case <-p.recovered:
		return nil
	case <-ctx.Done():
		return Errorf(Unavailable, "plugin %s has not recovered yet: %w", p.name, cmp.Or(loadError(&p.failure), context.Cause(ctx)))
	case <-n.run.Done():
		return errStopped
	}
}

func loadError(p *atomic.Pointer[error]) error {
	if err := p.Load(); err != nil {
		return *err
	}
	return nil
}
