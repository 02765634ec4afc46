package cni

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/network"
)

// loadPatience is how long the directories may take to be read, their plugins'
// answers included; firstPatience is how long others wait for the first time.
const (
	loadPatience  = time.Minute
	firstPatience = 15 * time.Second
)

// Plugin runs CNI plugins. It is made by [New]; its methods may be called at
// any time and by several goroutines.
type Plugin struct {
	cfg       Config
	processes processes
	pause     time.Duration // busyPause
	metrics   *metrics
	lanes     lanes

	dir     *directory // the load that is under way has it
	loads   detached.Group[[]string]
	asks    detached.Group[error]    // for the status
	asksVer detached.Group[[]string] // for versions, by executable
	failed  chan struct{}
	changed atomic.Pointer[func()]

	// ready is what Status returns: nil if it is to return nil.
	ready atomic.Pointer[network.Error]

	mu      sync.Mutex
	loaded  bool
	list    *list // nil: none
	none    error // why
	status  error // of list: what its plugins say
	askedOf *list // whose answer status is; nil before the first one

	unanswered bool // a plugin did not say which versions it speaks

	results map[string]json.RawMessage // of the attachments that exist, by ID
}

var (
	_ network.Plugin    = (*Plugin)(nil)
	_ network.Checker   = (*Plugin)(nil)
	_ network.Collector = (*Plugin)(nil)
)

// New makes a Plugin. It reads nothing yet and starts nothing.
func New(cfg Config) (*Plugin, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, err
	}
	p := &Plugin{
		cfg: cfg, processes: groups{}, pause: busyPause, metrics: m,
		failed: make(chan struct{}, 1), results: map[string]json.RawMessage{},
	}
	p.dir = &directory{path: cfg.ConfDir, log: cfg.Log, versions: &versions{
		binDirs: cfg.BinDirs, ask: p.askVersion, now: time.Now, known: map[string]answer{}, used: map[string]bool{},
	}}
	p.publish(func() {})
	return p, nil
}

// Name is "cni".
func (*Plugin) Name() string { return "cni" }

// Durable reports that plugins keep state on the disk, such as addresses.
func (*Plugin) Durable() bool { return true }

// Status returns nil if there is a valid configuration and its plugins say that
// they are ready, and otherwise a [network.Error] that is Unavailable and says
// what is wrong with which file, or what which plugin said. It reads memory
// alone.
func (p *Plugin) Status() error {
	if e := p.ready.Load(); e != nil {
		return e
	}
	return nil
}

// Recovered takes over the results of what exists, and has a first look at the
// configurations, so that Status means something afterwards. It waits no more
// than 15 s for that.
func (p *Plugin) Recovered(ctx context.Context, kept []network.Kept) error {
	p.mu.Lock()
	for _, k := range kept {
		if k.Result != nil {
			p.results[k.Attachment.ID] = slices.Clone(k.Result.Extra)
		}
	}
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, firstPatience)
	defer cancel()
	p.look(ctx)
	return nil
}

// Run watches the directories of the configurations and of the plugins, and
// asks plugins of version 1.1 and above that are not ready for their status,
// every 30 s. It returns nil when ctx ends. It must be called once.
func (p *Plugin) Run(ctx context.Context, changed func()) error {
	p.changed.Store(&changed)
	w := newWatcher(p.cfg.Log)
	defer w.close()
	loop{
		events: w.events,
		failed: p.failed,
		load:   func(ctx context.Context) loaded { return p.watchAndLoad(ctx, w) },
		ask:    p.ask,
	}.run(ctx)
	return nil
}

// watchAndLoad reads the directories once they are watched. Which directories
// of plugins' files there are is known only then, so it may do so again.
func (p *Plugin) watchAndLoad(ctx context.Context, w *watcher) loaded {
	var r loaded
	var watched bool
	var subs []string
	for range 3 {
		watched = w.arm(ctx, slices.Concat([]string{p.cfg.ConfDir}, p.cfg.BinDirs, subs))
		next, ok := p.load(ctx)
		if !ok || !slices.ContainsFunc(next, func(dir string) bool { return !slices.Contains(subs, dir) }) {
			break
		}
		subs = next
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r.ask = p.list != nil && hasStatus(p.list) && (p.askedOf != p.list || p.status != nil)
	r.again = !watched || p.unanswered
	return r
}

// load reads the directories and publishes what came of it. It returns the
// directories of plugins' files, and false if they could not be read in time.
func (p *Plugin) load(caller context.Context) (subs []string, ok bool) {
	ctx, cancel := context.WithTimeout(caller, loadPatience)
	defer cancel()
	subs, err := p.loads.Do(ctx, "load", func() ([]string, error) {
		// Others may come to wait for it who have more time.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadPatience)
		defer cancel()
		l, err := p.dir.load(ctx)
		p.publish(func() {
			p.use(l, err)
			p.unanswered = p.dir.unanswered
		})
		return slices.Clone(p.dir.subs), nil
	})
	if err != nil && caller.Err() == nil {
		p.publish(func() {
			if !p.loaded {
				p.none = fmt.Errorf("%s and the directories of the plugins could not be read within %v", p.cfg.ConfDir, loadPatience)
			}
		})
	}
	return subs, err == nil
}

// use takes over what was loaded. A new list counts as its predecessor did until
// its plugins answered.
func (p *Plugin) use(l *list, none error) {
	was := p.list
	p.loaded, p.list, p.none = true, l, none
	switch {
	case l == nil:
		p.status, p.askedOf = nil, nil
		if was != nil {
			p.cfg.Log.Warn("lost network configuration", zap.Error(none))
		}
		return
	case l == was:
		return
	case !hasStatus(l):
		p.status, p.askedOf = nil, l
	case was == nil:
		p.status = fmt.Errorf("plugins of network %q were not asked for their status yet", l.name)
	}
	p.cfg.Log.Info("use network configuration", zap.String("directory", p.cfg.ConfDir), zap.String("file", l.file),
		zap.String("network", l.name), zap.String("version", l.version), zap.Strings("plugins", l.kinds()))
}

// publish changes the state and then what Status returns, and calls changed if
// that is something else.
func (p *Plugin) publish(change func()) {
	p.mu.Lock()
	change()
	var now *network.Error
	switch {
	case p.list == nil && p.none == nil:
		now = unavailable(fmt.Errorf("network configurations in %s were not read yet", p.cfg.ConfDir))
	case p.list == nil:
		now = unavailable(p.none)
	case p.status != nil:
		now = unavailable(p.status)
	}
	was := p.ready.Swap(now)
	p.mu.Unlock()
	if (was == nil) == (now == nil) && (was == nil || was.Error() == now.Error()) {
		return
	}
	if f := p.changed.Load(); f != nil {
		(*f)()
	}
}

func unavailable(err error) *network.Error {
	return &network.Error{Code: network.Unavailable, Err: err}
}

// look reads the directories and asks for the status, if nobody did yet.
func (p *Plugin) look(ctx context.Context) {
	p.mu.Lock()
	loaded := p.loaded
	p.mu.Unlock()
	if !loaded {
		p.load(ctx)
	}
	p.mu.Lock()
	unasked := p.list != nil && hasStatus(p.list) && p.askedOf == nil
	p.mu.Unlock()
	if unasked {
		p.ask(ctx)
	}
}

// current returns the list to use.
func (p *Plugin) current(ctx context.Context) (*list, error) {
	p.look(ctx)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := p.Status(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.list == nil { // since then
		return nil, unavailable(p.none)
	}
	return p.list, nil
}

// Plan checks the attachment's values and returns the configuration in force
// with the arguments for its plugins. Without a configuration, or if its plugins
// say that they are not ready, the error is Unavailable, with the text of
// Status.
func (p *Plugin) Plan(ctx context.Context, a network.Attachment) ([]byte, error) {
	if err := checkID(a.ID); err != nil {
		return nil, err
	}
	args, err := arguments(a)
	if err != nil {
		return nil, &network.Error{Code: network.InvalidArgument, Err: err}
	}
	l, err := p.current(ctx)
	if err != nil {
		return nil, err
	}
	given, err := capabilities(a, l)
	if err != nil {
		return nil, &network.Error{Code: network.InvalidArgument, Err: err}
	}
	s := saved{Format: savedFormat, File: l.file, Version: l.version, List: l.bytes, IfName: ifName, Args: args, Capabilities: given}
	b, err := s.encode()
	if err != nil {
		return nil, &network.Error{Code: network.InvalidArgument, Err: err}
	}
	return b, nil
}

// hasStatus reports whether a list's version has the verb STATUS, and GC.
func hasStatus(l *list) bool { return l.version == "1.1.0" }

// ask asks the plugins of the list in use for their status, and reports whether
// they are to be asked again.
func (p *Plugin) ask(ctx context.Context) (again bool) {
	p.mu.Lock()
	l := p.list
	p.mu.Unlock()
	if l == nil || !hasStatus(l) {
		return false
	}
	wait, cancel := context.WithTimeout(ctx, p.cfg.StatusTimeout+grace)
	defer cancel()
	keep := func(said error) error { // also for who did not wait
		if said != nil {
			said = fmt.Errorf("network %q is not ready: %w", l.name, coded(said))
		}
		p.publish(func() {
			if p.list == l {
				p.status, p.askedOf = said, l
			}
		})
		return said
	}
	said, err := p.asks.Do(wait, fmt.Sprintf("%p", l), func() (error, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.StatusTimeout)
		defer cancel()
		var left sync.WaitGroup
		defer left.Wait()
		return keep(p.libcni(p.executor(l, nil, &left)).GetStatusNetworkList(ctx, l.forLibcni())), nil
	})
	switch {
	case ctx.Err() != nil && err != nil:
		return false // who asked does not wait for the answer
	case err != nil:
		said = keep(fmt.Errorf("plugins were not done with STATUS within %v: %w", p.cfg.StatusTimeout, err))
	}
	return said != nil
}
