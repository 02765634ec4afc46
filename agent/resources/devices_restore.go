package resources

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/record"
)

// earlyDevices records calls for pods that come before the manager is restored, for example while a
// disk hangs. catchUp makes them afterwards.
type earlyDevices struct {
	adopted map[types.UID]*v1.Pod
	stopped map[types.UID]bool
	waits   bool // some pod was told to wait
}

func newEarly() earlyDevices {
	return earlyDevices{adopted: map[types.UID]*v1.Pod{}, stopped: map[types.UID]bool{}}
}

// Restore implements part.Restorer: running containers keep their devices. It returns when these
// devices are known, or ctx ends. Pods that request devices wait for it.
func (p *Devices) Restore(ctx context.Context) error {
	err := part.ReadWithRetry(ctx, p.cfg.Log, func() error {
		if err := p.cfg.Manager.Restore(part.RunningContainers(p.host, p.cfg.Log)); err != nil {
			return fmt.Errorf("restore allocated devices: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	p.catchUp()
	p.starts.each(p.host.Retry)
	return nil
}

// catchUp makes the calls that were recorded before and during the restore. When none is left, it
// closes p.restored.
func (p *Devices) catchUp() {
	waits := false
	for {
		p.mu.Lock()
		e := p.early
		p.early = newEarly()
		waits = waits || e.waits
		done := len(e.adopted)+len(e.stopped) == 0
		if done {
			close(p.restored)
		}
		p.mu.Unlock()
		if done {
			break
		}
		for _, pod := range e.adopted {
			p.keep(pod)
		}
		for uid := range e.stopped {
			p.cfg.Manager.Release(uid)
		}
	}
	if waits {
		p.host.Readmit()
	}
}

// before calls note with the early calls if the manager has not been restored yet, and then
// returns true. Otherwise it returns false.
func (p *Devices) before(note func(*earlyDevices)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isRestored() {
		return false
	}
	note(&p.early)
	return true
}

func (p *Devices) isRestored() bool {
	select {
	case <-p.restored:
		return true
	default:
		return false
	}
}

// Ready is closed when the devices of running pods are known: plugins may register then.
func (p *Devices) Ready() <-chan struct{} { return p.restored }

// freshTimeout limits how long FreshDevices waits for Restore.
const freshTimeout = 5 * time.Second

// FreshDevices reports whether no device plugin has ever registered on this node, as far as is
// known. Devices in an older Node object then no longer exist. It waits up to 5 s for Restore, and
// then returns false.
func (p *Devices) FreshDevices() bool {
	late := time.NewTimer(freshTimeout)
	defer late.Stop()
	select {
	case <-p.restored:
		return len(p.cfg.Manager.Capacity()) == 0
	case <-late.C:
		return false
	}
}

// Run implements part.Runner. Plugins are not called before Restore is done.
func (p *Devices) Run(ctx context.Context) error {
	defer p.starts.end()
	defer context.AfterFunc(ctx, p.starts.cancel)()
	select {
	case <-ctx.Done():
		return nil
	case <-p.restored:
	}
	defer p.cfg.Manager.Subscribe(p.changed)()
	return p.cfg.Manager.Run(ctx)
}

// changed requests syncs of pods whose devices' health has changed, and starts or admissions of
// pods that waited for a plugin.
func (p *Devices) changed(c devicemgr.Change) {
	for _, uid := range c.Pods {
		p.host.Resync(uid)
	}
	if len(c.Resources) > 0 {
		counts := p.cfg.Manager.Capacity()
		for _, name := range c.Resources {
			part.Record(p.host, record.Entry{Fact: &record.Plugin{Name: name, Gone: counts[v1.ResourceName(name)].Away}})
		}
		p.starts.each(p.host.Retry)
		p.host.Readmit()
	}
}

// Resources implements part.Provider.
func (p *Devices) Resources() map[v1.ResourceName]part.Count {
	all := p.cfg.Manager.Capacity()
	out := make(map[v1.ResourceName]part.Count, len(all))
	for name, c := range all {
		out[name] = part.Count(c)
	}
	return out
}
