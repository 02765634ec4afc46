package bridge

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/mdlayher/netlink"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

const (
	restorePause = 50 * time.Millisecond  // between two times that the table is put back
	bridgeQuiet  = 10 * time.Millisecond  // for what somebody does to the bridge step by step
	lookQuiet    = time.Second            // before routes and rules of others are looked at
	lookPause    = 3 * time.Second        // between two such looks
	failedPause  = 100 * time.Millisecond // doubled with each failure
	maxPause     = 30 * time.Second
	runDeadline  = 30 * time.Second // of what Run does at a time
)

// inbox collects changes until somebody takes them.
type inbox struct {
	mu   sync.Mutex
	all  change
	wake chan struct{}
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

func (b *inbox) put(c change) {
	if c == 0 {
		return
	}
	b.mu.Lock()
	b.all |= c
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *inbox) take() change {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.all
	b.all = 0
	return c
}

// schedule says when changes are looked into. It is pure: times are given to it.
type schedule struct {
	due  map[change]time.Time
	last map[change]time.Time // when it was done
	fail time.Duration        // the pause after the latest failure of what has to be restored
}

func newSchedule() *schedule {
	return &schedule{due: map[change]time.Time{}, last: map[change]time.Time{}}
}

var eachChange = []change{changedTable, unsure, changedBridge, changedRoutes, changedRules}

// add takes changes in.
func (s *schedule) add(all change, now time.Time) {
	for _, c := range eachChange {
		if all&c == 0 || !s.due[c].IsZero() {
			continue
		}
		switch c {
		case changedTable, unsure:
			s.due[c] = later(now, s.last[c].Add(restorePause))
		case changedBridge:
			s.due[c] = now.Add(bridgeQuiet)
		default:
			s.due[c] = later(now.Add(lookQuiet), s.last[c].Add(lookPause))
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// next returns what is due, and how long to wait if that is nothing; 0 for ever.
func (s *schedule) next(now time.Time) (c change, wait time.Duration) {
	for _, one := range eachChange {
		at := s.due[one]
		if at.IsZero() {
			continue
		}
		if !at.After(now) {
			return one, 0
		}
		if w := at.Sub(now); wait == 0 || w < wait {
			wait = w
		}
	}
	return 0, wait
}

// done takes in how it went.
func (s *schedule) done(c change, err error, now time.Time) {
	s.last[c] = now
	delete(s.due, c)
	if err == nil {
		if c == changedTable || c == unsure || c == changedBridge {
			s.fail = 0
		}
		return
	}
	s.fail = min(max(2*s.fail, failedPause), maxPause)
	s.due[c] = now.Add(s.fail)
}

// Run puts back what others take away, the table within 100 ms, and looks for what is
// against the pods' traffic, until ctx ends. It waits for events of the kernel and
// for nothing else.
func (p *Plugin) Run(ctx context.Context, changed func()) error {
	in := p.events
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		p.listen(ctx, in, unix.NETLINK_NETFILTER, 1<<(unix.NFNLGRP_NFTABLES-1), lostRules, watched.ofRules)
	})
	all.Go(func() {
		const settings = 1<<(unix.RTNLGRP_IPV4_NETCONF-1) | 1<<(unix.RTNLGRP_IPV6_NETCONF-1)
		const groups = settings | unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR | unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE
		p.listen(ctx, in, unix.NETLINK_ROUTE, groups, lostRoutes, watched.ofRoutes)
	})
	s := newSchedule()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		c, wait := s.next(time.Now())
		if c != 0 {
			err := p.lookInto(ctx, c, changed)
			s.done(c, err, time.Now())
			if c == unsure {
				p.mu.Lock()
				p.looked = true
				p.mu.Unlock()
			}
			s.add(in.take(), time.Now())
			if ctx.Err() != nil {
				return nil
			}
			continue
		}
		timer.Stop()
		var alarm <-chan time.Time
		if wait > 0 {
			timer.Reset(wait)
			alarm = timer.C
		}
		select {
		case <-ctx.Done():
			return nil
		case <-in.wake:
			s.add(in.take(), time.Now())
		case <-alarm:
		}
	}
}

// lookInto does what a change asks for.
func (p *Plugin) lookInto(ctx context.Context, c change, changed func()) error {
	ctx, cancel := context.WithTimeout(ctx, runDeadline)
	defer cancel()
	switch c {
	case changedRoutes:
		err := p.lookForConflicts()
		p.logFailure(ctx, "failed to look for overlaps", err)
		return err
	case changedRules:
		err := p.lookForDropping()
		p.logFailure(ctx, "failed to look at chains of others", err)
		return err
	}
	err := p.restore(ctx, c)
	p.logFailure(ctx, "failed to restore the bridge network", err)
	if ctx.Err() == nil && p.isRecovered() && p.setBroken(err) {
		changed()
	}
	return err
}

func (p *Plugin) isRecovered() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.recovered
}

// isReady reports whether the bridge was made.
func (p *Plugin) isReady() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bridgeIndex != 0
}

func (p *Plugin) logFailure(ctx context.Context, message string, err error) {
	if err != nil && ctx.Err() == nil {
		p.log.Error(message, zap.Error(err))
	}
}

// restore puts back the table or the bridge. Before the first pod there is nothing
// to put back, but what Recovered could not.
func (p *Plugin) restore(ctx context.Context, c change) error {
	leave, err := p.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if !p.ready {
		if p.isRecovered() && p.Status() != nil {
			return p.prepare(ctx)
		}
		return nil
	}
	if c == changedBridge {
		return p.ensureBridge()
	}
	l, want := p.layout(), p.serve(nil, false)
	if c == unsure {
		if ok, err := p.table.holds(l, want); ok && err == nil {
			return nil
		}
	}
	if err := p.table.replace(ctx, l, want); err != nil {
		return err
	}
	p.metrics.restores.Inc()
	p.log.Warn("put the table back after others changed it", zap.String("table", p.cfg.Table))
	return nil
}

// listen turns the events of a netlink family into changes. Whenever events may
// have been lost, lost is what may have changed.
func (p *Plugin) listen(ctx context.Context, in *inbox, family int, groups uint32, lost change, read func(watched, netlink.Message) change) {
	pause := failedPause
	for ctx.Err() == nil {
		conn, err := netlink.Dial(family, &netlink.Config{Groups: groups, NetNS: int(p.ns.Fd())})
		if err == nil {
			_ = conn.SetReadBuffer(nftBuffer)
			stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
			in.put(lost)
			err = p.receive(ctx, conn, in, lost, read)
			stop()
			_ = conn.Close()
		}
		if ctx.Err() != nil {
			return
		}
		p.log.Warn("failed to read events of the kernel", zap.Int("family", family), zap.Error(err))
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, maxPause)
	}
}

func (p *Plugin) receive(ctx context.Context, conn *netlink.Conn, in *inbox, lost change, read func(watched, netlink.Message) change) error {
	var pending change
	for {
		all, err := conn.Receive()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, unix.ENOBUFS):
			in.put(lost)
			continue
		case err != nil:
			return err
		}
		w := p.watched()
		for _, m := range all {
			pending |= read(w, m)
			if pending&complete != 0 {
				in.put(pending &^ complete)
				pending = 0
			}
		}
	}
}

func (p *Plugin) watched() watched {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := watched{table: p.cfg.Table, bridge: p.name, index: p.bridgeIndex, own: p.isOwn, veth: p.isServing}
	for _, subnet := range []netip.Prefix{p.subnet, p.subnet6} {
		if subnet.IsValid() {
			w.subnets = append(w.subnets, subnet)
		}
	}
	return w
}

// isServing reports whether an interface is that of a pod that is attached.
func (p *Plugin) isServing(name string) bool {
	if !isVethName(p.cfg.VethPrefix, name) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.pods {
		if one.Veth == name {
			return one.serving
		}
	}
	return false
}
