package resources

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/part"
)

// decision is an admission in which plugins take part.
type decision struct {
	since    time.Time
	reserved bool // reserved; Commit or Release has not been called yet
}

// Adopt implements part.Reserver. The pod keeps its devices, as far as they match its spec; no
// plugin is called.
func (p *Devices) Adopt(pod *v1.Pod) {
	if p.before(func(e *earlyDevices) { e.adopted[pod.UID] = pod }) {
		return
	}
	p.keep(pod)
}

func (p *Devices) keep(pod *v1.Pod) { _, _ = p.cfg.Manager.Begin(p.starts.ctx, pod) }

// Waits implements part.Reserver: it returns true if devices still have to be chosen, which calls
// plugins.
func (p *Devices) Waits(pod *v1.Pod) bool {
	waits := false
	if p.isRestored() {
		adm, err := p.cfg.Manager.Begin(p.starts.ctx, pod)
		waits = err == nil && adm.Asks() && !adm.Settled()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if waits {
		p.deciding[pod.UID] = &decision{since: time.Now()}
	} else {
		delete(p.deciding, pod.UID)
	}
	return waits
}

// Reserve implements part.Reserver. It allocates nothing before Commit.
func (p *Devices) Reserve(ctx context.Context, r part.Request) (part.Reservation, *part.Rejection) {
	if asksForSome(containers(r.Pod)) && p.before(func(e *earlyDevices) { e.waits = !r.DryRun || e.waits }) {
		return nil, wait("the devices of the running pods: they are not known yet")
	}
	adm, err := p.cfg.Manager.Begin(ctx, r.Pod)
	switch {
	case err != nil:
		return nil, rejectionOf(r.Pod, err)
	case !adm.Asks():
		return nil, nil
	case !r.DryRun && !adm.Settled() && !p.reserved(r.Pod):
		// Waits returned false, so this may be the loop. A plugin has registered since.
		p.host.Readmit()
		return nil, wait("its devices, which came just now")
	}
	return &deviceReservation{p: p, pod: r.Pod, asked: adm}, nil
}

// reserved records that a pod's devices are being reserved, and reports whether the call may wait
// for plugins.
func (p *Devices) reserved(pod *v1.Pod) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.deciding[pod.UID]
	if d != nil {
		d.reserved = true
	}
	return d != nil
}

// decided records that the reservation has ended. It keeps the entry, since Reserve may be
// called several times after one call of Waits.
func (p *Devices) decided(pod *v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d := p.deciding[pod.UID]; d != nil {
		d.reserved = false
	}
}

// Explain implements part.Explainer.
func (p *Devices) Explain(pod *v1.Pod) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d := p.deciding[pod.UID]; d != nil && d.reserved {
		return "its devices: their plugins are asked since " + d.since.Format(time.TimeOnly)
	}
	return ""
}
