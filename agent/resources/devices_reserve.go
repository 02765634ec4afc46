package resources

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/part"
)

// decision is an admission that plugins take part in.
type decision struct {
	since    time.Time
	reserved bool // and Commit or Release is still to come
}

// Adopt implements part.Reserver. The pod keeps what it has: what is known of
// that is matched with its spec, and no plugin is asked.
func (p *Devices) Adopt(pod *v1.Pod) {
	if p.before(func(e *earlyDevices) { e.adopted[pod.UID] = pod }) {
		return
	}
	p.keep(pod)
}

func (p *Devices) keep(pod *v1.Pod) { _, _ = p.cfg.Manager.Begin(p.starts.ctx, pod) }

// Waits implements part.Reserver: plugins are asked about devices that are still
// to be chosen.
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

// Reserve implements part.Reserver. Nothing is taken before Commit.
func (p *Devices) Reserve(ctx context.Context, r part.Request) (part.Reservation, *part.Rejection) {
	if asksForSome(containers(r.Pod)) && p.before(func(e *earlyDevices) { e.waits = !r.DryRun || e.waits }) {
		return nil, wait("which devices pods have is not known yet")
	}
	adm, err := p.cfg.Manager.Begin(ctx, r.Pod)
	switch {
	case err != nil:
		return nil, rejectionOf(err)
	case !adm.Asks():
		return nil, nil
	case !r.DryRun && !adm.Settled() && !p.reserved(r.Pod):
		// Waits said that nobody has to be waited for, so that this may be the
		// loop. A plugin has come since.
		p.host.Readmit()
		return nil, wait("its devices came just now")
	}
	return &deviceReservation{p: p, pod: r.Pod, asked: adm}, nil
}

// reserved notes that a pod's devices are reserved, and reports whether plugins
// may be waited for.
func (p *Devices) reserved(pod *v1.Pod) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.deciding[pod.UID]
	if d != nil {
		d.reserved = true
	}
	return d != nil
}

// decided records that the reservation is over. The decision is kept: a pod may be
// decided on several times after one Waits.
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
