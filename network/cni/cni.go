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
	"github.com/nodewright/nodewright/internal/dirwatch"
	"github.com/nodewright/nodewright/internal/hostports"
	"github.com/nodewright/nodewright/internal/wake"
	"github.com/nodewright/nodewright/network"
)

// loadTimeout limits the time for reading the directories, including the plugins' answers.
// firstTimeout limits how long callers wait for the first read.
const (
	loadTimeout  = time.Minute
	firstTimeout = 15 * time.Second
)

// Plugin runs CNI plugins. Its methods may be called at any time from any
// goroutine.
type Plugin struct {
	cfg       Config
	processes processes
	pause     time.Duration // busyPause
	lanes     lanes

	dir     *directory // owned by the running load
	loads   detached.Group[[]string]
	asks    detached.Group[error]    // running calls for the status
	asksVer detached.Group[[]string] // running calls for versions, by executable
	failed  wake.Signal
	changed atomic.Pointer[func()]

	// ready points to the result of Status, which may be nil.
	ready atomic.Pointer[network.Error]

	mu      sync.Mutex
	loaded  bool
	list    *list // nil: none
	none    error // why no list is in use
	status  error // the last answers of list's plugins
	askedOf *list // the list of status; nil before the first answer

	unanswered bool // a plugin did not return its versions

	results map[string]json.RawMessage // results of the attachments that exist, by ID

	ports hostports.Held // held host ports by ID of the attachment
}

var (
	_ network.Plugin    = (*Plugin)(nil)
	_ network.Checker   = (*Plugin)(nil)
	_ network.Collector = (*Plugin)(nil)
)

// New returns a Plugin. It reads and starts nothing yet.
func New(cfg Config) (*Plugin, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &Plugin{
		cfg: cfg, processes: groups{}, pause: busyPause,
		failed: wake.New(), results: map[string]json.RawMessage{}, ports: hostports.Held{Reserved: slices.Clone(cfg.Reserved)},
	}
	p.dir = &directory{path: cfg.ConfDir, log: cfg.Log, versions: &versions{
		binDirs: cfg.BinDirs, ask: p.askVersion, now: time.Now, known: map[string]answer{}, used: map[string]bool{},
	}}
	p.publish(func() {})
	return p, nil
}

// Name returns "cni".
func (*Plugin) Name() string { return "cni" }

// Durable returns true: plugins keep state on the disk, such as addresses.
func (*Plugin) Durable() bool { return true }

// Status returns nil if there is a valid configuration and its plugins are ready,
// and otherwise an Unavailable [network.Error] that names the faulty file or has
// the plugin's answer. It reads only memory.
func (p *Plugin) Status() error {
	if e := p.ready.Load(); e != nil {
		return e
	}
	return nil
}

// Recovered stores the results of existing attachments, holds their host ports, and
// reads the configurations, so that Status is meaningful afterwards. It waits at most
// 15 s for that.
func (p *Plugin) Recovered(ctx context.Context, kept []network.Kept) error {
	p.mu.Lock()
	for _, k := range kept {
		if k.Result != nil {
			p.results[k.Attachment.ID] = slices.Clone(k.Result.Extra)
		}
	}
	p.mu.Unlock()
	for _, k := range kept {
		if s, err := decodeSaved(k.Saved); err == nil && k.Result != nil {
			p.keepPorts(k.Attachment, s.list)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, firstTimeout)
	defer cancel()
	p.look(ctx)
	return nil
}

// Run watches the directories of configurations and plugins. Every 30 s it calls STATUS of
// plugins of version 1.1 and above that are not ready. It returns nil when ctx ends, and then
// holds no host ports any more. It must be called once.
func (p *Plugin) Run(ctx context.Context, changed func()) error {
	p.changed.Store(&changed)
	w := dirwatch.New(p.notWatched, nil)
	defer w.Close()
	defer p.ports.Close()
	loop{
		events: w.Changed(),
		failed: p.failed,
		load:   func(ctx context.Context) loaded { return p.watchAndLoad(ctx, w) },
		ask:    p.ask,
	}.run(ctx)
	return nil
}

func (p *Plugin) notWatched(dir string, err error) {
	p.cfg.Log.Warn("failed to watch directory; reading it from time to time", zap.String("directory", dir), zap.Error(err))
}

// watchAndLoad reads the directories once they are watched. The first read shows in which
// directories the plugins' files are. If they are not watched yet, watchAndLoad watches them and
// reads again.
func (p *Plugin) watchAndLoad(ctx context.Context, w *dirwatch.Watcher) loaded {
	var r loaded
	var watched bool
	var subs []string
	for range 3 {
		watched = w.Watch(ctx, slices.Concat([]string{p.cfg.ConfDir}, p.cfg.BinDirs, subs)...)
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

// load reads the directories and stores the result. It returns the directories of plugins' files,
// and false if they could not be read in time.
func (p *Plugin) load(caller context.Context) (subs []string, ok bool) {
	ctx, cancel := context.WithTimeout(caller, loadTimeout)
	defer cancel()
	subs, err := p.loads.Do(ctx, "load", func() ([]string, error) {
		// The read continues for later callers, which may wait longer.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTimeout)
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
				p.none = fmt.Errorf("%s and the directories of the plugins could not be read within %v", p.cfg.ConfDir, loadTimeout)
			}
		})
	}
	return subs, err == nil
}

// use stores a loaded list. If there is no list, it stores the error none instead. A new list has
// the status of the previous one until its own plugins have answered.
func (p *Plugin) use(l *list, none error) {
	was := p.list
	p.loaded, p.list, p.none = true, l, none
	switch {
	case l == nil:
		p.status, p.askedOf = nil, nil
		if was != nil {
			p.cfg.Log.Warn("no valid network configuration is left", zap.Error(none))
		}
		return
	case l == was:
		return
	case !hasStatus(l):
		p.status, p.askedOf = nil, l
	case was == nil:
		p.status = fmt.Errorf("plugins of network %q were not asked for their status yet", l.name)
	}
	p.cfg.Log.Info("using network configuration", zap.String("directory", p.cfg.ConfDir), zap.String("file", l.file),
		zap.String("network", l.name), zap.String("version", l.version), zap.Strings("plugins", l.kinds()))
}

// publish runs change and updates the result of Status. It calls changed if the result differs.
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

// look reads the directories and calls STATUS, unless that was done already.
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

// current reads changed configuration, and returns the list for new pods. It returns an error if
// the network is not ready.
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

// Plan checks the attachment's values and returns the configuration in use with the
// arguments for its plugins. Without a configuration, or if its plugins are not
// ready, the error is Unavailable, with the text of Status.
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

// hasStatus reports whether a list's version has the verbs STATUS and GC.
func hasStatus(l *list) bool { return l.version == "1.1.0" }

// statusTimeout is the deadline of STATUS of one plugin.
const statusTimeout = 10 * time.Second

// ask calls STATUS of the plugins of the list in use, and reports whether to call
// them again.
func (p *Plugin) ask(ctx context.Context) (again bool) {
	p.mu.Lock()
	l := p.list
	p.mu.Unlock()
	if l == nil || !hasStatus(l) {
		return false
	}
	wait, cancel := context.WithTimeout(ctx, statusTimeout+grace)
	defer cancel()
	keep := func(said error) error { // also if the caller has gone
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
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statusTimeout)
		defer cancel()
		var left sync.WaitGroup
		defer left.Wait()
		return keep(p.libcni(p.executor(l, nil, &left)).GetStatusNetworkList(ctx, l.forLibcni())), nil
	})
	switch {
	case ctx.Err() != nil && err != nil:
		return false // the caller does not wait for the answer
	case err != nil:
		said = keep(fmt.Errorf("plugins did not answer STATUS within %v: %w", statusTimeout, err))
	}
	return said != nil
}
