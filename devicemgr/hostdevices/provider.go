//go:build linux

package hostdevices

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/internal/cdi"
	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/internal/kernel"
	"github.com/nodewright/nodewright/internal/retry"
)

// Config configures a Provider. Settings and Offer are required.
type Config struct {
	Settings
	// Offer offers a plugin of this process: the method Offer of devicemgr.Manager, or
	// OfferDevices of nodeagent.Facts.
	Offer func(ctx context.Context, resource string, p devicemgr.Plugin) error
	Log   *zap.Logger // if nil, nothing is logged
}

const (
	// quiet is the time without a change after which the machine is read, and longest the time
	// after which it is read in any case.
	quiet   = time.Second
	longest = 10 * time.Second
	// callTimeout limits how long a call waits for the file systems.
	callTimeout = 20 * time.Second
	// unwatched is the time between two reads if directories cannot be watched.
	unwatched = 30 * time.Second
)

// Provider offers the devices of Settings. It is a Part with a Run for an agent of this module: see
// package agent/part.
type Provider struct {
	cfg     Config
	rules   []rule
	machine *machine
	watcher func() (watcher, error)
	scans   detached.Group[struct{}]

	mu    sync.Mutex
	last  *found                                 // of the last scan; nil before the first
	lists map[string]map[string]devicemgr.Device // of last, with devices that were there before
	news  chan struct{}                          // closed and replaced after each scan
	said  string                                 // errors of the scan that were logged last
}

// New checks cfg and returns a Provider. It reads no files. The error names all mistakes.
func New(cfg Config) (*Provider, error) {
	rules, err := cfg.compile()
	if cfg.Offer == nil {
		err = errors.Join(err, errors.New("Config.Offer is required"))
	}
	if err != nil {
		return nil, fmt.Errorf("hostdevices: %w", err)
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	registry, err := cdi.New(cdi.Config{Dirs: cfg.CDIDirs, Log: cfg.Log})
	if err != nil {
		return nil, fmt.Errorf("hostdevices: %w", err)
	}
	return &Provider{
		cfg: cfg, rules: rules, watcher: newInotify,
		machine: &machine{dev: "/dev", kernel: kernel.This, cdi: registry},
		lists:   map[string]map[string]devicemgr.Device{}, news: make(chan struct{}),
	}, nil
}

// Name implements part.Part.
func (p *Provider) Name() string { return "hostdevices" }

// Run offers the resources, and follows the devices until ctx ends. It blocks, and returns nil when
// its goroutines have ended. Failures are logged. It may be called once.
func (p *Provider) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	resources := map[string]bool{}
	for _, r := range p.rules {
		if !resources[r.resource] {
			resources[r.resource] = true
			wg.Go(func() { p.offer(ctx, r.resource) })
		}
	}
	p.follow(ctx)
	return nil
}

// offer offers the devices of a resource as soon as the manager runs.
func (p *Provider) offer(ctx context.Context, resource string) {
	pause := retry.Backoff{First: 10 * time.Millisecond, Max: time.Second}
	for {
		err := p.cfg.Offer(ctx, resource, &plugin{of: p, resource: resource})
		switch {
		case err == nil || ctx.Err() != nil:
			return
		case !errors.Is(err, devicemgr.ErrNotRunning):
			p.cfg.Log.Error("failed to offer devices", zap.String("resource", resource), zap.Error(err))
			return
		}
		pause.Wait(ctx)
	}
}

// follow reads the machine at once and after each change.
func (p *Provider) follow(ctx context.Context) {
	w, err := p.watcher()
	if err != nil {
		w = noWatcher{err}
	}
	defer w.close()
	said := ""
	for ctx.Err() == nil {
		var again <-chan time.Time
		err := p.read(ctx, w)
		if err != nil {
			again = time.After(unwatched)
		}
		if text := fmt.Sprint(err); err != nil && text != said && ctx.Err() == nil {
			said = text
			p.cfg.Log.Warn("failed to follow devices; trying again from time to time", zap.Duration("every", unwatched), zap.Error(err))
		}
		select {
		case <-ctx.Done():
		case <-again:
		case <-w.changed():
			settle(ctx, w)
		}
	}
}

// settle returns when nothing has changed for a while.
func settle(ctx context.Context, w watcher) {
	end := time.After(longest)
	for {
		select {
		case <-ctx.Done():
			return
		case <-end:
			return
		case <-time.After(quiet):
			return
		case <-w.changed():
		}
	}
}

// read reads the machine. After an error, changes may stay unknown.
func (p *Provider) read(ctx context.Context, w watcher) error {
	dirs := p.dirs()
	// Which directories matter follows from what is in them, and they are watched before they are
	// read, so that no change is missed. Bounded, since they may change all the time.
	for range 8 {
		watching := w.watch(dirs)
		if err := p.refresh(ctx); err != nil {
			return err
		}
		now := p.dirs()
		if watching != nil || maps.Equal(now, dirs) {
			return watching
		}
		dirs = now
	}
	return errors.New("watch devices: the directories to watch changed during each of 8 scans")
}

// dirs returns the directories that matter; none before the first scan.
func (p *Provider) dirs() watched {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		return nil
	}
	return p.last.dirs
}

// refresh reads the machine. Simultaneous calls share a result.
func (p *Provider) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, fmt.Errorf("file systems of devices did not answer within %v", callTimeout))
	defer cancel()
	_, err := p.scans.Do(ctx, "scan", func() (struct{}, error) {
		p.publish(p.machine.scan(context.WithoutCancel(ctx), p.rules))
		return struct{}{}, nil
	})
	return err
}

// publish makes the result of a scan the current one.
func (p *Provider) publish(f *found) {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := errors.Join(f.errs[:min(len(f.errs), maxShown)]...)
	if text := fmt.Sprint(err); text != p.said {
		p.said = text
		if err != nil {
			p.cfg.Log.Warn("failed to read some devices", zap.Error(err))
		}
	}
	for resource, devices := range f.devices {
		before := p.lists[resource]
		list := map[string]devicemgr.Device{}
		for id, d := range devices {
			list[id] = devicemgr.Device{ID: id, Healthy: d.present, Nodes: d.near}
		}
		for id, d := range before {
			if _, ok := list[id]; !ok && len(list) < maxDevices {
				list[id] = devicemgr.Device{ID: id, Nodes: d.Nodes}
			}
		}
		if p.last == nil || !maps.Equal(before, list) {
			p.cfg.Log.Info("devices changed", zap.String("resource", resource), zap.Strings("healthy", shown(list, true)), zap.Strings("unhealthy", shown(list, false)))
		}
		p.lists[resource] = list
	}
	p.last = f
	close(p.news)
	p.news = make(chan struct{})
}

// maxShown is the number of devices, or errors, in a log message.
const maxShown = 16

// shown returns the IDs of healthy or unhealthy devices for the log.
func shown(list map[string]devicemgr.Device, healthy bool) []string {
	var ids []string
	for id, d := range list {
		if d.Healthy == healthy {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids[:min(len(ids), maxShown)]
}

// list returns the devices of a resource, sorted, and a channel that is closed after the next scan. ok
// is false before the first.
func (p *Provider) list(resource string) (list []devicemgr.Device, ok bool, news <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list = slices.SortedFunc(maps.Values(p.lists[resource]), func(a, b devicemgr.Device) int { return strings.Compare(a.ID, b.ID) })
	return list, p.last != nil, p.news
}

// noWatcher is the watcher of a machine without inotify.
type noWatcher struct{ error }

func (b noWatcher) watch(watched) error    { return b.error }
func (noWatcher) changed() <-chan struct{} { return nil }
func (noWatcher) close()                   {}
